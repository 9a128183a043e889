"""What reaches a page, a person or a file: payloads, paths, hosts, keys, links."""

import shutil
import socket
from contextlib import ExitStack
from urllib.parse import quote, urlsplit

import httpx
import pytest

from asked import fill_history, open_queue, write_documents, write_payloads
from hostile_markup import NAMES, PAYLOADS, read_skeleton, traversals
from quaere.cli.main import main
from quaere.errors import BadInput
from quaere.runs import Run
from quaere.serving.server import ServerSettings
from quaere.viewer.app import HEADERS, make_view_server
from quaere.viewer.run_folder import open_folder
from viewed_reports import write_reports_run
from viewing import add_episodes, make_pipe, open_client, serve_view, write_asked, write_eval, write_hostile, write_run

PAGES = (
    "/",
    "/run/main",
    "/run/main/step/1",
    "/run/main/map",
    "/compare?run=main&run=other",
    "/run/main/questions",
    "/run/main/questions?page=3",
    "/run/main/group?task=q1",
    "/run/main/episode?id=s7-a0",
    "/run/main/episode?id=s99-a1",
    "/run/main/curriculum",
    "/run/main/curriculum?page=3",
    "/run/main/item?id=c7",
    "/run/main/unproven",
    "/run/asked",
    "/run/asked/questions",
    "/run/score",
    "/run/score/reports",
    "/run/score/reports?page=3",
    *(f"/run/score/report?id=r{step}-{number}" for step in (1, 44, 97, 150) for number in (0, 2)),
    "/evaluations",
    "/evaluation?of=first",
    "/evaluation?of=first&page=2",
    "/evaluations/compare?of=first&of=second",
    "/ask",
    "/ask?page=3",
    *(f"/ask/ask-{number}" for number in (0, 1, 2, 3, 44, 97, 98, 99)),
)
HARMLESS = [f"payload {number}" for number in range(len(PAYLOADS))]


# ------------------------------------------------------------------------------------------------------------ payloads


def test_there_are_at_least_150_payloads():
    assert len(set(PAYLOADS)) == len(PAYLOADS) >= 150


@pytest.fixture(scope="module")
def clients(tmp_path_factory):
    """The pages of runs full of payloads, and of runs with harmless words in their place."""
    folders = [tmp_path_factory.mktemp(name) for name in ("hostile", "harmless")]
    with ExitStack() as held:
        made = []
        for folder, payloads in zip(folders, (PAYLOADS, HARMLESS), strict=True):
            write_hostile(folder / "runs", payloads)
            write_reports_run(folder / "runs/score", titles=payloads)
            for name, answers in (("first", ["Orsolya Venn", "x", None]), ("second", ["x", "Orsolya Venn", "y"])):
                write_eval(folder / "runs" / name, answers * 30, titles=payloads, sets=payloads[:5])
            write_asked(folder / "runs/asked", payloads, titles=payloads, spans=payloads, scored=True)
            queue = held.enter_context(open_queue(write_payloads(folder, payloads)))
            fill_history(queue, payloads)
            made.append(open_client(folder / "runs", queue))
        yield made


@pytest.mark.parametrize("path", PAGES)
def test_payloads_change_no_element_and_no_attribute(clients, path):
    """The page with payloads has the elements of the page with harmless words, one for one."""
    replies = [client.get(path) for client in clients]
    assert [reply.status_code for reply in replies] == [200, 200]
    hostile, harmless = (read_skeleton(reply.text) for reply in replies)
    assert hostile.parts == harmless.parts
    assert all(address.startswith(("/", "#", "?")) and not address.startswith("//") for address in hostile.addresses)


@pytest.mark.parametrize("share", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_payloads_in_documents_change_no_element(clients, share):
    """Their ids stand in the addresses of their pages; every third is shown, or all."""
    hostile, harmless = clients
    expected = read_skeleton(harmless.get("/document", params={"id": HARMLESS[0], "start": 10, "end": 12}).text).parts
    for text in PAYLOADS[::share]:
        reply = hostile.get("/document", params={"id": text, "start": 10, "end": 12})
        assert reply.status_code == 200 and read_skeleton(reply.text).parts == expected, text


def test_names_of_runs_change_no_element(tmp_path):
    made = write_run(tmp_path / "made", num_steps=1)
    for number, name in enumerate(NAMES):
        shutil.copytree(made, tmp_path / "hostile" / name)
        shutil.copytree(made, tmp_path / "harmless" / f"name {number}")
    hostile, harmless = (open_client(tmp_path / kind) for kind in ("hostile", "harmless"))
    found = read_skeleton(hostile.get("/").text)
    assert found.parts == read_skeleton(harmless.get("/").text).parts
    links = [address for address in found.addresses if address.startswith("/run/")]
    assert len(links) == min(50, len(NAMES))
    for link in links:
        assert hostile.get(link).status_code == 200, link


@pytest.mark.parametrize("share", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_an_error_message_is_no_markup(tmp_path, share):
    """Of every third payload, or of all."""
    with Run.open(write_run(tmp_path / "a", num_steps=1), write=True) as run:
        add_episodes(run)
    with open_queue(write_documents(tmp_path)) as queue:
        _check_errors(open_client(tmp_path, queue), PAYLOADS[::share])


def _check_errors(client, payloads):
    expected = read_skeleton(client.get("/run/nowhere").text).parts
    pages = (
        "/?state=",
        "/run/",
        "/compare?run=x&run=",
        "/run/a/group?task=",
        "/run/a/episode?id=",
        "/run/a/questions?end=",
        "/run/a/document?id=",
        "/run/a/report?id=",
        "/evaluation?of=",
        "/evaluations/compare?of=a&of=",
        "/ask/",
        "/document?id=",
    )
    for number, text in enumerate(payloads):
        address = pages[number % len(pages)] + quote(text, safe="")
        reply = client.get(address)
        assert reply.status_code in (400, 404)
        assert read_skeleton(reply.text).parts == expected, address


def test_unprintable_characters_are_shown(tmp_path):
    write_run(tmp_path / "alpha", title="\u202edesrever\u202c \x1b[31m")
    page = open_client(tmp_path).get("/run/alpha").text
    assert "\u202e" not in page and "\x1b" not in page and "\\u202e" in page


# ------------------------------------------------------------------------------------------------------------- headers


@pytest.fixture(scope="module")
def plain_runs(tmp_path_factory):
    """Two runs that nobody changes."""
    folder = tmp_path_factory.mktemp("plain")
    for name in ("alpha", "beta"):
        write_run(folder / name)
    return folder


@pytest.mark.parametrize("path", ["/", "/json/", "/run/alpha", "/run/nowhere", "/static/viewer.js", "/nowhere"])
def test_every_response_has_the_policy(plain_runs, path):
    reply = open_client(plain_runs).get(path)
    own = {"cache-control": "no-cache"} if path.startswith("/static/") else {}
    for name, value in {**HEADERS, **own}.items():
        assert reply.headers.get_list(name) == [value]  # once: two values of one header would both hold
    assert "default-src 'none'" in reply.headers["content-security-policy"]


@pytest.mark.parametrize("path", ["/", "/run/alpha", "/run/alpha/step/1", "/compare?run=alpha&run=beta"])
def test_pages_need_nothing_that_the_policy_forbids(plain_runs, path):
    shown = read_skeleton(open_client(plain_runs).get(path).text)
    names = [name for part in shown.parts if isinstance(part, tuple) for name in part[1]]
    assert "style" not in names and not [name for name in names if name.startswith("on")]
    assert ("script", ()) not in shown.parts and ("style", ()) not in shown.parts
    assert all(not urlsplit(address).netloc for address in shown.addresses)


def test_a_verdict_comes_from_this_server_alone_and_as_json(tmp_path):
    """A page of another site can send a form, or a request whose answer it cannot read: neither writes."""
    write_run(tmp_path / "alpha")
    body = '{"id": "c0", "kind": "rejected"}'
    with serve_view(tmp_path) as url:
        for headers, status in (
            ({"content-type": "application/json", "origin": "https://evil.example"}, 403),
            ({"content-type": "application/json", "origin": "null"}, 403),
            ({"content-type": "text/plain", "origin": url}, 415),
            ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ):
            reply = httpx.post(f"{url}/run/alpha/verdict", content=body, headers=headers, trust_env=False)
            assert reply.status_code == status
        with Run.open(tmp_path / "alpha") as run:
            assert run.verdicts() == {}
        headers = {"content-type": "application/json", "origin": url}
        assert httpx.post(f"{url}/run/alpha/verdict", content=body, headers=headers, trust_env=False).is_success


def test_a_question_comes_from_this_server_alone_and_as_json(tmp_path):
    """The model must not work for a page of another site, nor be stopped by one."""
    write_run(tmp_path / "runs/alpha")
    body = '{"question": "made up"}'
    with open_queue(write_documents(tmp_path)) as queue, serve_view(tmp_path / "runs", queue=queue) as url:
        running = queue.add("wait for it").id
        for headers, status in (
            ({"content-type": "application/json", "origin": "https://evil.example"}, 403),
            ({"content-type": "application/json", "host": "evil.example"}, 403),
            ({"content-type": "text/plain", "origin": url}, 415),
            ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ):
            for path in ("/ask", f"/ask/{running}/cancel"):
                reply = httpx.post(url + path, content=body, headers=headers, trust_env=False)
                assert reply.status_code == status
        assert [line.id for line in queue.lines()] == [running] and not queue.find(running).is_over
        headers = {"content-type": "application/json", "origin": url}
        assert httpx.post(f"{url}/ask", content=body, headers=headers, trust_env=False).status_code == 202
        for path in ("/ask", f"/ask/{running}", "/document?id=oss.md", "/ask/changes"):
            for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
                reply = httpx.get(url + path, headers=headers, trust_env=False)
                assert reply.status_code == 403 and "Korrin" not in reply.text


def test_asking_needs_the_key_where_there_is_one(tmp_path):
    write_run(tmp_path / "runs/alpha")
    with open_queue(write_documents(tmp_path)) as queue, serve_view(tmp_path / "runs", "right", queue) as url:
        for path in ("/ask", "/json/ask", "/document?id=oss.md", "/ask/changes"):
            assert httpx.get(url + path, trust_env=False).status_code == 401
        sent = {"content": '{"question": "made up"}', "trust_env": False}
        headers = {"content-type": "application/json"}
        assert httpx.post(f"{url}/ask", headers=headers, **sent).status_code == 401
        headers["authorization"] = "Bearer right"
        assert httpx.post(f"{url}/ask", headers=headers, **sent).status_code == 202


# --------------------------------------------------------------------------------------------------------------- paths


def ask_raw(url, path):
    """The answer to a path that no client has tidied up."""
    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port), timeout=20) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode("utf-8", "replace")


@pytest.mark.parametrize("share", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_no_path_leads_out_of_the_runs(tmp_path, share):
    """Every third is tried, or all: each way to write a slash, and each to write a parent folder, is among them."""
    write_run(tmp_path / "runs/alpha")
    write_run(tmp_path / "secret", title="TOP-SECRET", ended="failed")
    (tmp_path / "secret.css").write_text("TOP-SECRET")
    tried = [f"/run/{path}" for path in traversals("../secret")]
    tried += [f"/json/run/alpha/{path}" for path in traversals("../../secret")]
    tried += [f"/static/{path}" for path in traversals("../../../../../../../secret.css")]
    tried += [f"/static/{path}" for path in traversals("../pages.py")]
    tried = [
        *tried[::share],
        f"/run/{tmp_path}/secret",
        f"/run//{tmp_path}/secret",
        f"/run/{str(tmp_path).replace('/', '%2f')}%2fsecret",
    ]
    assert len(tried) >= 200
    with serve_view(tmp_path / "runs") as url:
        assert " 200 OK" in ask_raw(url, "/run/alpha")
        for path in tried:
            said = ask_raw(url, path)
            assert "TOP-SECRET" not in said and "_environment" not in said, path
            assert " 200 OK" not in said.splitlines()[0], path


@pytest.mark.parametrize("share", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_no_path_leads_out_of_the_index(tmp_path, share):
    write_run(tmp_path / "runs/alpha", index=tmp_path / "index")
    (tmp_path / "secret.md").write_text("TOP-SECRET")
    (tmp_path / "docs").mkdir()
    index = write_documents(tmp_path / "docs")
    shutil.move(tmp_path / "docs/index", tmp_path / "index")
    ways, whole = [*traversals("../secret.md"), *traversals("../../secret.md")], tmp_path / "secret.md"
    bases = ("document?id=", "run/alpha/document?id=", "ask/", "json/ask/", "document/")
    tried = [f"/{base}{way}" for base in bases for way in ways][::share] + [f"/{base}{whole}" for base in bases]
    assert len(tried) >= 200 and index is not None
    with open_queue(str(tmp_path / "index")) as queue, serve_view(tmp_path / "runs", queue=queue) as url:
        for base in ("/document", "/run/alpha/document"):
            assert " 200 OK" in ask_raw(url, f"{base}?id=oss.md")
        for path in tried:
            said = ask_raw(url, path)
            assert "TOP-SECRET" not in said and " 200 OK" not in said.splitlines()[0], path


def test_a_run_whose_files_are_links_is_not_shown(tmp_path):
    (tmp_path / "secret").write_text("TOP-SECRET")
    path = write_run(tmp_path / "runs/alpha")
    (path / "config.yaml").unlink()
    (path / "config.yaml").symlink_to(tmp_path / "secret")
    client = open_client(tmp_path / "runs")
    reply = client.get("/run/alpha")
    assert reply.status_code == 400 and "symbolic link" in reply.text and "TOP-SECRET" not in reply.text
    assert "symbolic link" in client.get("/").text


PIPES = (
    "config.yaml",
    "questions.jsonl",
    "harness.jsonl",
    "run.lock",
    "run.db-journal",
    "run.db-wal",
    "run.db-shm",
    "episodes/00000.jsonl.zst",
    "notes.txt",
)


@pytest.mark.parametrize("file", PIPES)
def test_a_pipe_in_a_run_is_refused_and_not_waited_for(tmp_path, capsys, file):
    path = write_run(tmp_path / "alpha")
    write_run(tmp_path / "beta")
    client = open_client(tmp_path)
    with make_pipe(path / file):
        for address in ("/run/alpha", "/run/alpha/step/1", "/compare?run=alpha&run=beta", "/json/run/alpha"):
            reply = client.get(address)
            assert reply.status_code == 400 and "is no regular file" in reply.text, address
        page = client.get("/").text
        assert "is no regular file" in page and "beta" in page
        assert client.get("/run/beta").status_code == 200
        for command in (["runs", "show", "alpha"], ["runs", "show", "alpha", "--json"], ["runs", "list"]):
            assert main([*command, "--runs", str(tmp_path)]) == (0 if command[1] == "list" else 2)
            said = capsys.readouterr()
            assert "is no regular file" in " ".join((said.out + said.err).split())


def test_a_pipe_in_place_of_a_manifest_is_a_damaged_checkpoint(tmp_path):
    path = write_run(tmp_path / "alpha")
    folder = path / "checkpoints/step-000001"
    folder.mkdir(parents=True)
    with make_pipe(folder / "manifest.json"):
        reply = open_client(tmp_path).get("/run/alpha")
    assert reply.status_code == 200 and "step-000001" not in reply.text


@pytest.mark.parametrize("digits", [19, 23, 400, 5000])
def test_a_number_that_nothing_has_is_not_there(plain_runs, digits):
    """SQLite has 64 bits for an integer, and Python reads no more than 4300 digits."""
    number, client = "9" * digits, open_client(plain_runs)
    assert client.get(f"/run/alpha/step/{number}").status_code == 404
    assert client.get(f"/json/run/alpha/step/{number}").status_code == 404
    for page in (
        "questions?step=",
        "questions?least_searches=",
        "questions?most_searches=-",
        "questions?page=",
        "group?task=q1&step=",
        "reports?step=",
        "episode?id=x&start=",
        "document?id=x&at=",
        "curriculum?page=",
    ):
        assert client.get(f"/run/alpha/{page}{number}").status_code in (200, 400, 404), page
    assert client.get(f"/run/alpha?step={number}").status_code in (200, 400)


# ------------------------------------------------------------------------------------------------- hosts, origins, keys


def test_a_foreign_host_or_origin_is_refused(plain_runs):
    with serve_view(plain_runs) as url:
        for path in ("/", "/json/", "/run/alpha", "/changes", "/static/viewer.js"):
            for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}, {"origin": "null"}):
                reply = httpx.get(url + path, headers=headers, trust_env=False)
                assert reply.status_code == 403 and "alpha" not in reply.text, path
        assert httpx.get(url + "/", headers={"origin": url}, trust_env=False).status_code == 200


def test_other_machines_need_a_key(tmp_path, capsys):
    with pytest.raises(BadInput, match="an API key is required"):
        make_view_server(open_folder(str(tmp_path)), ServerSettings(host="0.0.0.0", port=0))
    assert main(["view", str(tmp_path), "--host", "0.0.0.0", "--port", "0"]) == 2
    assert "an API key is required" in capsys.readouterr().err


def test_a_browser_shows_the_key_once_and_keeps_a_cookie(tmp_path):
    write_run(tmp_path / "alpha")
    with serve_view(tmp_path, key="right-key") as url, httpx.Client(base_url=url, trust_env=False) as browser:
        refused = browser.get("/run/alpha")
        assert refused.status_code == 401 and "/?api_key=KEY" in refused.json()["error"]
        assert browser.get("/?api_key=wrong").status_code == 401
        reply = browser.get("/run/alpha?step=2&api_key=right-key")
        assert reply.status_code == 303 and reply.headers["location"] == "/run/alpha?step=2"
        cookie = reply.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "right-key" not in cookie
        assert browser.get("/run/alpha").status_code == 200
        assert httpx.get(f"{url}/", headers={"authorization": "Bearer right-key"}, trust_env=False).status_code == 200
        name = next(iter(browser.cookies))
    forged = {"cookie": f"{name}=right-key; x=1"}
    with serve_view(tmp_path, key="right-key") as url:
        assert httpx.get(f"{url}/", headers=forged, trust_env=False).status_code == 401


def test_the_way_to_a_page_with_the_key_leads_to_no_other_server(tmp_path):
    with serve_view(tmp_path, key="k") as url:
        for path in ("//evil.example/", "/\\evil.example/", "/%5cevil.example/", "/%2f/evil.example"):
            said = ask_raw(url, f"{path}?api_key=k")
            (location,) = [line for line in said.splitlines() if line.lower().startswith("location:")]
            assert location.split(": ")[1].startswith("/") and not location.split(": ")[1].startswith(("//", "/\\"))
