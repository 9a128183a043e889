"""A server in the place of the Hugging Face hub, for data sets: what `huggingface_hub` and `datasets` ask of it.

with serve_hub({"acme/qa": {"train.jsonl": b'{"question": "Who?"}\n'}}) as hub:
    hub.url  -> "http://127.0.0.1:41234"
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlparse

COMMIT = "a" * 40
Repositories = dict[str, dict[str, bytes]]


class HubServer(ThreadingHTTPServer):
    """A hub with these repositories of data sets; each has one commit, which is `main` and the tag `v1`."""

    daemon_threads = True

    def __init__(self, repositories: Repositories) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories = repositories
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def serve_hub(repositories: Repositories) -> Iterator[HubServer]:
    with HubServer(repositories) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()  # looks for its end so often
        yield server
        server.shutdown()


def list_tree(files: dict[str, bytes], folder: str) -> list[dict[str, Any]]:
    """The files and folders directly in a folder, as the hub lists them."""
    prefix = f"{folder}/" if folder else ""
    entries: dict[str, dict[str, Any]] = {}
    for path, body in files.items():
        if not path.startswith(prefix):
            continue
        name, is_deeper, _ = path.removeprefix(prefix).partition("/")
        kind = "directory" if is_deeper else "file"
        oid = hashlib.sha1(body).hexdigest()
        entries[name] = {"type": kind, "path": prefix + name, "size": 0 if is_deeper else len(body), "oid": oid}
    return list(entries.values())


class _Handler(BaseHTTPRequestHandler):
    server: HubServer

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        match unquote(urlparse(self.path).path).split("/")[1:]:
            case ["api", "datasets", owner, name, *rest]:
                self.describe(f"{owner}/{name}", rest)
            case ["datasets", owner, name, "resolve", revision, *path]:
                self.send_file(f"{owner}/{name}", revision, "/".join(path))
            case _:
                self.send(404)

    def describe(self, repository: str, asked: list[str]) -> None:
        files = self.files(repository, asked[1] if asked else "main")
        if files is None:
            return
        if asked[:1] == ["tree"]:
            self.send(200, list_tree(files, "/".join(asked[2:])))
        else:
            siblings = [{"rfilename": path} for path in files]
            self.send(200, {"id": repository, "sha": COMMIT, "siblings": siblings, "tags": [], "private": False})

    def send_file(self, repository: str, revision: str, path: str) -> None:
        files = self.files(repository, revision)
        if files is None:
            return
        if path not in files:
            self.send(404, **{"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        else:
            oid = hashlib.sha1(files[path]).hexdigest()
            self.send(200, files[path], **{"ETag": f'"{oid}"', "X-Repo-Commit": COMMIT})

    def files(self, repository: str, revision: str) -> dict[str, bytes] | None:
        """The files, or None after an error was sent."""
        if repository not in self.server.repositories:
            self.send(404, **{"X-Error-Code": "RepoNotFound"})
        elif revision not in ("main", "v1", COMMIT):
            self.send(404, **{"X-Error-Code": "RevisionNotFound"})
        else:
            return self.server.repositories[repository]
        return None

    def send(self, status: int, body: object = b"", **headers: str) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if not isinstance(body, bytes):
            self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
