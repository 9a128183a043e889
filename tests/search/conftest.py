import socket
import threading
import time
from contextlib import contextmanager

import pytest

from quaere.search.index_build import build_index
from quaere.serving.server import ServerSettings, make_search_server

RIVERS = """# The Oss

The Oss rises near Halmgate and flows north. It is crossed by the Halm bridge.

The bridge was built by Orsolya Venn in 1841. She also drew the plans of the lighthouse at Korrin.
"""
LIGHTHOUSE = "The lighthouse at Korrin stands on a cliff.\n\nIts lamp was lit in 1850, and it can be seen from Zürich."


def write_documents(docs):
    (docs / "coast").mkdir(parents=True)
    (docs / "rivers.md").write_text(RIVERS, encoding="utf-8")
    (docs / "coast" / "lighthouse.txt").write_text(LIGHTHOUSE, encoding="utf-8")
    (docs / "tokyo.txt").write_text("東京都は日本の首都である。人口は約1400万人。", encoding="utf-8")
    return docs


@pytest.fixture
def folder(tmp_path):
    """A folder with three documents."""
    return write_documents(tmp_path / "docs")


@pytest.fixture
def index(folder, tmp_path):
    """An index of the folder, to do anything to."""
    return build_index(folder, tmp_path / "index")


@contextmanager
def serving(index, limits=None, key="", **settings):
    """A real server on a free port of this machine; gives its URL."""
    server = make_search_server(index, ServerSettings(**{"port": 0, **settings}), key=key, limits=limits)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server.url
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        assert not thread.is_alive()


@pytest.fixture
def serve():
    return serving


@pytest.fixture(scope="session")
def shared_index(tmp_path_factory):
    """An index of the same documents, only to be read."""
    home = tmp_path_factory.mktemp("shared")
    return build_index(write_documents(home / "docs"), home / "index")


@pytest.fixture(scope="session")
def url(shared_index):
    """A server of the shared index."""
    with serving(shared_index) as address:
        yield address


@pytest.fixture
def deaf_port():
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def wait_until():
    def wait(condition, timeout_s=10):
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.005)

    return wait
