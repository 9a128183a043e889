"""Dense search with an embedder behind `/v1/embeddings`: that of `quaere serve`, and servers that misbehave."""

import asyncio
import json
import socket
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from quaere.cli.main import main
from quaere.errors import BadInput, SearchFailed
from quaere.search.embedders import DenseSettings, open_embedder
from quaere.search.endpoint_embedder import EndpointEmbedder
from quaere.search.index import IndexSettings, open_index
from quaere.search.index_build import build_index, update_index
from quaere.search.searcher import LocalSearcher

pytest.importorskip("faiss")


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch):
    for name in ("QUAERE_EMBEDDER_KEY", "QUAERE_EMBEDDER_URL"):
        monkeypatch.delenv(name, raising=False)


def settings(name, engine="dense", **dense):
    return IndexSettings(engine=engine, dense=DenseSettings(embedder=name, **dense))


# ------------------------------------------------------------------------------------------------------- `quaere serve`


@pytest.fixture(scope="module")
def hashing():
    """The name of the embedder of a real model server."""
    pytest.importorskip("sklearn")
    from quaere.serving.model.retriever import HashEmbedder
    from served import serving

    with serving(embedder=HashEmbedder(), key="k-1") as client:
        yield f"openai:hash@{client.url}/v1"


@pytest.fixture
def _key(monkeypatch):
    monkeypatch.setenv("QUAERE_EMBEDDER_KEY", "k-1")


@pytest.mark.usefixtures("_key")
def test_an_index_remembers_its_server_and_asks_it_for_queries(hashing, folder, tmp_path, capsys):
    index = tmp_path / "index"
    assert main(["index", str(folder), "--out", str(index), "--engine", "dense", "--embedder", hashing]) == 0
    assert json.loads((index / "manifest.json").read_text())["settings"]["dense"]["embedder"] == hashing
    assert "k-1" not in (index / "manifest.json").read_text()
    capsys.readouterr()
    assert main(["search", "who lit the lamp of the lighthouse?", "--index", str(index), "--json"]) == 0
    hits = json.loads(capsys.readouterr().out)[0]["hits"]
    assert hits[0]["passage"]["doc_id"] == "coast/lighthouse.txt" and 0 < hits[0]["score"] <= 1


@pytest.mark.usefixtures("_key")
def test_batches_change_nothing(hashing, folder, tmp_path):
    found = []
    for batch_size in (1, 64):
        index = build_index(folder, tmp_path / f"index-{batch_size}", settings(hashing, batch_size=batch_size))
        found.append(index.search(["lamp", "Halm bridge Oss"], 3))
    assert found[0] == found[1]
    made = open_embedder(DenseSettings(embedder=hashing, batch_size=2)).embed_queries(["a lamp", "oss", "Oss", "mill"])
    assert made.shape == (4, 1024) and np.array_equal(made[1], made[2]) and not np.array_equal(made[0], made[3])


@pytest.mark.usefixtures("_key")
def test_an_update_embeds_what_is_new(hashing, folder, tmp_path):
    index = build_index(folder, tmp_path / "index", settings(hashing, "hybrid"))
    (folder / "mill.txt").write_text("The mill at Aldern grinds rye.")
    assert update_index(index.path).counts.num_embedded == 1
    assert open_index(index.path).search(["mill rye"], 1)[0][0].passage.doc_id == "mill.txt"


@pytest.mark.usefixtures("_key")
def test_a_server_that_has_moved_is_named_in_the_environment(hashing, folder, tmp_path, monkeypatch):
    index = build_index(folder, tmp_path / "index", settings(hashing))
    manifest = index.path / "manifest.json"
    manifest.write_text(manifest.read_text().replace(hashing, "openai:hash@http://127.0.0.1:9/v1"))
    monkeypatch.setenv("QUAERE_EMBEDDER_URL", hashing.partition("@")[2])
    assert open_index(index.path).search(["lamp"], 1)[0][0].passage.doc_id == "coast/lighthouse.txt"
    monkeypatch.setenv("QUAERE_EMBEDDER_URL", "127.0.0.1")
    with pytest.raises(BadInput):
        open_embedder(DenseSettings(embedder=hashing))


@pytest.mark.parametrize(("key", "said"), [("", "asks for a key"), ("k-2", "does not accept the key")])
def test_a_key_that_is_missing_or_wrong_is_one_line(hashing, folder, tmp_path, monkeypatch, capsys, key, said):
    monkeypatch.setenv("QUAERE_EMBEDDER_KEY", key)
    monkeypatch.setenv("OPENAI_API_KEY", "k-1")  # of another server, which must not be sent
    out = str(tmp_path / "index")
    assert main(["index", str(folder), "--out", out, "--engine", "dense", "--embedder", hashing]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and said in lines[0] and "export QUAERE_EMBEDDER_KEY=..." in lines[1]
    assert "k-2" not in lines[0]


@pytest.mark.usefixtures("_key")
def test_a_model_the_server_does_not_have_is_one_line(hashing, folder, tmp_path):
    with pytest.raises(SearchFailed, match=r"is not there.*404.*nothing-like-it") as caught:
        build_index(folder, tmp_path / "index", settings(hashing.replace(":hash@", ":nothing-like-it@")))
    assert caught.value.kind == "rejected" and "\n" not in str(caught.value)


def test_e5_on_a_server_gets_its_prefixes():
    name = "openai:intfloat/e5-base-v2@http://localhost:8000/v1"
    assert DenseSettings(embedder=name).with_known_prefixes().passage_prefix == "passage: "


@pytest.mark.parametrize(
    "name", ["openai:hash", "openai:@http://h/v1", "openai:m@http://me:pw@h/v1", "openai:m@ftp://h"]
)
def test_what_is_no_endpoint_is_refused_before_anything_is_read(name, tmp_path):
    with pytest.raises(BadInput):
        build_index(tmp_path / "not-there", tmp_path / "index", settings(name))


# ----------------------------------------------------------------------------------------------- servers that misbehave


@contextmanager
def serve_embeddings(answer):
    """The name of an embedder whose server answers with `answer(texts, number of the request)`."""
    requests = []

    async def embed(request):
        requests.append(json.loads(await request.body()))
        return answer(requests[-1]["input"], len(requests))

    listening = socket.create_server(("127.0.0.1", 0))
    app = Starlette(routes=[Route("/v1/embeddings", embed, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"openai:m@http://127.0.0.1:{listening.getsockname()[1]}/v1", requests
    finally:
        server.should_exit = True
        thread.join(timeout=10)


def vectors(texts, width=4):
    rows = [[float(len(text))] + [3.0] * (width - 1) for text in texts]
    return JSONResponse({"data": [{"index": n, "embedding": row} for n, row in reversed([*enumerate(rows)])]})


def make(name, **options):
    return EndpointEmbedder(DenseSettings(embedder=name, batch_size=2), first_wait_s=0.01, **options)


def test_vectors_are_put_in_order_and_scaled():
    with serve_embeddings(lambda texts, number: vectors(texts)) as (name, requests):
        made = make(name).embed_queries(["a", "bbb", "ccccc"])
    assert np.allclose(np.linalg.norm(made, axis=1), 1)
    assert np.allclose(made[:, 0] / made[:, 1], [1 / 3, 1, 5 / 3])
    assert sorted(len(request["input"]) for request in requests) == [1, 2]


@pytest.mark.parametrize("fault", [429, 503, 500, 502])
def test_what_may_pass_is_tried_again(fault):
    def answer(texts, number):
        return vectors(texts) if number > 2 else JSONResponse({"error": "busy"}, fault, headers={"Retry-After": "0"})

    with serve_embeddings(answer) as (name, requests):
        assert make(name).embed_queries(["a"]).shape == (1, 4)
        assert len(requests) == 3


def test_a_server_that_stays_busy_fails_after_so_many_tries():
    with serve_embeddings(lambda texts, number: JSONResponse({"error": "busy"}, 503)) as (name, requests):
        with pytest.raises(SearchFailed, match=r"failed 3 times \(503\): busy") as caught:
            make(name, max_retries=2).embed_queries(["a"])
        assert (caught.value.kind, len(requests)) == ("overloaded", 3)


def test_an_address_without_the_model_says_what_to_try():
    with serve_embeddings(lambda texts, number: JSONResponse({"error": "no such page"}, 404)) as (name, requests):
        with pytest.raises(SearchFailed, match=r"a part such as /v1 \(404\): no such page") as caught:
            make(name).embed_queries(["a"])
        assert (caught.value.kind, len(requests)) == ("rejected", 1)
        assert caught.value.hint == f"curl {name.partition('@')[2]}/models"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda texts: JSONResponse({"error": {"message": "too long\nby far"}}, 400), r"\(400\): too long by far"),
        (lambda texts: vectors(texts[:-1]), "answered 2 texts with 1 vectors"),
        (lambda texts: Response("<html>"), "no readable vectors"),
        (
            lambda texts: JSONResponse({"data": [{"index": 0, "embedding": [1]}, {"index": 1, "embedding": [1, 2]}]}),
            "no",
        ),
        (lambda texts: JSONResponse({"data": [{"index": n, "embedding": []} for n in (0, 1)]}), "without numbers"),
        (lambda texts: JSONResponse({"data": [{"index": n, "embedding": [1e200]} for n in (0, 1)]}), "not finite"),
    ],
)
def test_answers_that_cannot_be_used_are_one_line_and_not_asked_for_again(answer, said):
    with serve_embeddings(lambda texts, number: answer(texts)) as (name, requests):
        with pytest.raises(SearchFailed, match=said) as caught:
            make(name).embed_queries(["a", "b"])
        assert "\n" not in str(caught.value) and len(requests) == 1


def test_vectors_of_another_size_than_before_are_refused(folder, tmp_path):
    widths = {"now": 4}
    with serve_embeddings(lambda texts, number: vectors(texts, widths["now"])) as (name, _):
        embedder = make(name)
        embedder.embed_queries(["a"])
        widths["now"] = 5
        with pytest.raises(SearchFailed, match="different sizes: 4, 5"):
            embedder.embed_queries(["a"])
        index = build_index(folder, tmp_path / "index", settings(name))
        widths["now"] = 6
        with pytest.raises(BadInput, match="vectors have 6 dimensions, those of the index 5"):
            open_index(index.path).search(["lamp"], 1)


def test_a_server_that_is_gone_is_a_failed_search(folder, tmp_path):
    """An episode with it is played again, as with any search that failed."""
    with serve_embeddings(lambda texts, number: vectors(texts)) as (name, _):
        index = build_index(folder, tmp_path / "index", settings(name))

    async def search():
        searcher = LocalSearcher(open_index(index.path))
        searcher.index.engine.embedder = make(name, max_retries=1)
        try:
            await searcher.search(["lamp"], 1)
        finally:
            await searcher.close()

    with pytest.raises(SearchFailed, match="cannot be reached") as caught:
        asyncio.run(search())
    assert caught.value.kind == "unreachable"
