"""Reranking by an encoder that counts letters, so that every rank can be told by hand."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from quaere import Index
from quaere.cli.main import main
from quaere.errors import ModelMissing
from quaere.records import Passage
from quaere.search import embedders
from quaere.search.embedders import RERANK_DEPTH, RerankEngine
from quaere.search.engines import Match
from quaere.search.index import IndexSettings, open_index
from quaere.search.index_build import build_index
from quaere.search.searcher import open_searcher


class LetterEncoder:
    """Texts are near one another if they have as many of the letters a and z; notes what it was given."""

    num_at_once = 8

    def __init__(self):
        self.batches = []

    def embed_queries(self, queries):
        return np.array([self._vector(query) for query in queries])

    def embed_passages(self, passages):
        self.batches.append([passage.text for passage in passages])
        return np.array([self._vector(passage.titled_text) for passage in passages])

    def _vector(self, text):
        vector = np.array([text.count("a") + 0.01, text.count("z")], np.float32)
        return vector / np.linalg.norm(vector)


def ranked(num_passages):
    """An engine that has all passages in their order, for every query."""
    matches = [Match(number, 100.0 - number) for number in range(num_passages)]
    return SimpleNamespace(search=lambda queries, topk: [matches[:topk] for _ in queries])


def read(number):
    text = "z" * number + "a" * (30 - number)
    return Passage(id=f"{number}#0", doc_id=str(number), title="", text=text, start=0, end=len(text))


@pytest.fixture
def encoder(monkeypatch):
    """The encoder that every reranker is while a test runs."""
    opened = LetterEncoder()
    monkeypatch.setattr(embedders, "open_embedder", lambda settings: opened)
    return opened


def test_ranks_are_fused_by_hand():
    found = RerankEngine(ranked(3), LetterEncoder(), read).search(["zzz"], 3)[0]
    # The engine's order is 0, 1, 2, the encoder's 2, 1, 0: each adds 1 / (60 + rank).
    assert [match.number for match in found] == [0, 2, 1]
    assert [match.score for match in found] == pytest.approx([1 / 61 + 1 / 63, 1 / 61 + 1 / 63, 2 / 62])


def test_the_rest_follows_in_its_order():
    found = RerankEngine(ranked(30), LetterEncoder(), read).search(["zzz"], 30)[0]
    assert [match.number for match in found[RERANK_DEPTH:]] == [*range(RERANK_DEPTH, 30)]
    assert sorted(match.number for match in found[:RERANK_DEPTH]) == [*range(RERANK_DEPTH)]
    first = RerankEngine(ranked(30), LetterEncoder(), read).search(["zzz"], 3)[0]
    assert first == found[:3]


def test_passages_are_encoded_in_batches_and_once():
    encoder = LetterEncoder()
    engine = RerankEngine(ranked(30), encoder, read)
    engine.search(["zzz", "aaa", "za"], 3)
    assert [len(batch) for batch in encoder.batches] == [8, 8, 4]
    engine.search(["another"], 10)
    assert len(encoder.batches) == 3


def test_of_many_passages_those_used_last_are_kept():
    encoder = LetterEncoder()
    numbers = iter([[0, 1], [0], [2], [0], [1]])
    base = SimpleNamespace(search=lambda queries, topk: [[Match(number, 1.0) for number in next(numbers)]])
    engine = RerankEngine(base, encoder, read, num_kept=2)
    for _ in range(5):
        engine.search(["zzz"], 1)
    assert [[text.count("z") for text in batch] for batch in encoder.batches] == [[0, 1], [2], [1]]


def test_where_nothing_is_found_nothing_is_encoded():
    encoder = LetterEncoder()
    assert RerankEngine(ranked(0), encoder, read).search(["zzz"], 3) == [[]]
    assert RerankEngine(ranked(3), encoder, read).search([], 3) == []
    assert encoder.batches == []


# ------------------------------------------------------------------------------------------- in an index, for everyone


@pytest.fixture
def pages(tmp_path):
    """Pages that BM25 has in the order of their lengths; the encoder has the last one first."""
    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "1.txt").write_text("mill")
    (folder / "2.txt").write_text("mill " + "oss " * 5)
    (folder / "3.txt").write_text("mill " + "zz " * 9)
    return folder


QUERY = "mill zzzzzz"


def order(hits):
    return [hit.passage.doc_id for hit in hits]


async def test_the_reranker_of_an_index_is_used_by_all_who_open_it(pages, tmp_path, encoder):
    path = tmp_path / "index"
    plain = build_index(pages, tmp_path / "plain")
    index = build_index(pages, path, IndexSettings(rerank="encoder"))
    assert order(plain.search([QUERY], 3)[0]) == ["1.txt", "2.txt", "3.txt"]
    reranked = ["1.txt", "3.txt", "2.txt"]
    assert order(index.search([QUERY], 3)[0]) == reranked
    assert order(Index.open(path).search(QUERY, 3)) == reranked
    searcher = open_searcher(str(path))
    assert order((await searcher.search([QUERY], 3))[0]) == reranked
    await searcher.close()
    assert index.fingerprint != plain.fingerprint and index.manifest.format == 2


def test_an_index_gets_and_loses_a_reranker_by_an_update(pages, tmp_path, encoder, capsys):
    path = str(tmp_path / "index")
    main(["index", str(pages), "--out", path])
    main(["index", "--update", path, "--rerank", "encoder"])
    assert "reranked by encoder" in capsys.readouterr().out
    main(["index", "--update", path])
    assert open_index(tmp_path / "index").manifest.settings.rerank == "encoder"
    main(["index", "--update", path, "--rerank", "none", "--json"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["settings"]["rerank"] == "none"
    assert order(open_index(tmp_path / "index").search([QUERY], 3)[0]) == ["1.txt", "2.txt", "3.txt"]


def test_a_reranker_that_is_not_there_is_said_before_anything_is_built(pages, tmp_path):
    pytest.importorskip("sentence_transformers")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelMissing, match="cannot be loaded"):
        build_index(pages, tmp_path / "index", IndexSettings(rerank=str(tmp_path / "empty")))
    assert not (tmp_path / "index").exists()
