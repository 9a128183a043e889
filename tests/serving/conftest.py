import logging
import threading
from contextlib import contextmanager

import pytest

from quaere.search.index_build import build_index
from quaere.serving.model.retriever import Documents, HashEmbedder
from quaere.serving.server import ServerSettings, make_search_server, make_server
from served import serving


@pytest.fixture(scope="session")
def index(tmp_path_factory):
    """An index of one document, only to be read."""
    home = tmp_path_factory.mktemp("served")
    (home / "docs").mkdir()
    (home / "docs" / "rivers.md").write_text("# The Oss\n\nThe Oss rises near Halmgate.\n")
    return build_index(home / "docs", home / "index")


@pytest.fixture
def logged():
    """What our servers log from INFO on while a test runs, and everybody's warnings.

    pytest's `caplog` would do, but its plugin takes some time of every test of the suite, and is switched off.
    """
    records: list[logging.LogRecord] = []
    handler, servers, root = logging.Handler(), logging.getLogger("quaere.serving"), logging.getLogger()
    handler.emit = records.append
    before = servers.level
    servers.setLevel(logging.INFO)
    root.addHandler(handler)
    yield records
    root.removeHandler(handler)
    servers.setLevel(before)


@contextmanager
def running(server):
    """A server in a thread of its own."""
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.should_exit = True
        thread.join(timeout=30)
        assert not thread.is_alive()


@pytest.fixture
def serve(index):
    """A search server, or one of any application; gives the server."""

    def start(app=None, key="", **settings):
        settings = ServerSettings(port=0, **settings)
        if app is None:
            return running(make_search_server(index, settings, key=key))
        return running(make_server(app, settings, as_error=lambda status, line: {"error": line}, key=key))

    return start


@pytest.fixture(scope="session")
def url(index):
    """A search server with the settings it has by default."""
    with running(make_search_server(index, ServerSettings(port=0))) as server:
        yield server.url


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """An index of three documents, two of them in a folder and one of these with a newline in its name."""
    home = tmp_path_factory.mktemp("pages")
    (home / "docs" / "coast").mkdir(parents=True)
    (home / "docs" / "rivers.md").write_text(
        "# The Oss\n\nThe Oss runs past Halmgate.\n\nOrsolya Venn built the bridge."
    )
    (home / "docs" / "coast" / "light house.txt").write_text("The lighthouse at Korrin was lit in 1850. <b>Zürich</b>")
    (home / "docs" / "coast" / "new\nline.md").write_text("The eel mill of Dravik.")
    return build_index(home / "docs", home / "index")


@pytest.fixture(scope="module")
def client(pages):
    """A client of a server that has everything: a model, embeddings, documents."""
    with serving(embedder=HashEmbedder(), documents=Documents(pages, 5), max_tokens=512) as served:
        yield served
