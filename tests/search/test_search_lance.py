"""The engine of LanceDB: words, vectors and both; updates; what it refuses."""

import hashlib
import json
import random
import sys
from functools import cache

import numpy as np
import pytest

from quaere.cli.main import main
from quaere.errors import BadInput, ExtraMissing, SearchFailed, install_hint
from quaere.search import embedders
from quaere.search.bm25 import Bm25Settings
from quaere.search.embedders import DenseSettings
from quaere.search.index import IndexSettings, open_index
from quaere.search.index_build import build_index, update_index
from quaere.search.lance import LanceSettings, _share

SEARCHES = ("text", "dense", "hybrid")
WORDS = "oss halm bridge river korrin cliff lamp venn town north eel weir mill rye gate ferry".split()


@cache
def word_vector(word, width):
    seed = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
    return np.random.default_rng(seed).standard_normal(width)


class WordVectors:
    """An embedder in which texts are similar if they share words: the sum of a vector per word."""

    def __init__(self, salt="", width=32):
        self.salt, self.width, self.embedded = salt, width, []

    def vector(self, text):
        total = sum(word_vector(self.salt + word, self.width) for word in text.split())
        return (total / np.linalg.norm(total)).astype(np.float32)

    def encode_query(self, texts, **options):
        return np.stack([self.vector(text) for text in texts])

    def encode_document(self, texts, **options):
        self.embedded += texts
        return self.encode_query(texts)


@pytest.fixture
def embedder(monkeypatch):
    """In place of every sentence-transformers model."""
    model = WordVectors()
    monkeypatch.setattr(embedders, "_load_model", lambda name: model)
    return model


def write_rows(path, numbers):
    """Rows of different lengths, so that few have the same score."""
    path.write_text("\n".join(map(row, numbers)))
    return path


@cache
def row(number):
    words = random.Random(number).choices(WORDS, k=5 + number % 37)
    return json.dumps({"id": str(number), "text": f"{' '.join(words)} n{number}"})


@pytest.fixture
def rows(tmp_path):
    """120 rows of a few words each."""
    return write_rows(tmp_path / "rows.jsonl", range(120))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The rows in an index per way to search them and in one per other engine, only to be read."""
    home = tmp_path_factory.mktemp("built")
    rows = write_rows(home / "rows.jsonl", range(120))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedders, "_load_model", lambda name: WordVectors())
        for search in SEARCHES:
            build_index(rows, home / search, settings(search))
        build_index(rows, home / "bm25", IndexSettings())
    return home


def settings(search="text", engine="lance", **dense):
    return IndexSettings(
        engine=engine, dense=DenseSettings(embedder="stub", **dense), lance=LanceSettings(lance_search=search)
    )


def found(index, queries=("korrin lamp", "oss ferry mill", "n17", "weir n75 eel"), topk=10):
    """What is found, with rounded scores."""
    return [[(hit.passage.id, round(hit.score, 4)) for hit in hits] for hits in index.search(list(queries), topk)]


lance = pytest.mark.usefixtures("_lancedb")


@pytest.fixture
def _lancedb():
    pytest.importorskip("lancedb")


# ---------------------------------------------------------------------------------------------------------- searching


@lance
def test_words_are_found_as_by_bm25(built):
    index, bm25 = open_index(built / "text"), open_index(built / "bm25")
    for query in ("n17", "n100 n3", "n119 n0 n8"):
        ids = [hit.passage.id for hit in index.search([query], 3)[0]]
        assert ids and ids == [hit.passage.id for hit in bm25.search([query], 3)[0]]
    assert index.search(["xyzzy", "", "?!"], 3) == [[], [], []]
    many = index.search(["oss"], 40)[0]
    assert len(many) == 40 and many[:3] == index.search(["oss"], 3)[0]


@lance
def test_every_script_is_searched_by_the_same_words(folder, tmp_path):
    index = build_index(folder, tmp_path / "index", settings())
    for query in ("ZURICH", "Zürich", "首都", "Halm bridge"):
        assert index.search([query], 1)[0], query
    assert index.search(["首都"], 1)[0][0].passage.doc_id == "tokyo.txt"


@lance
@pytest.mark.parametrize("dense", [{}, {"ann": "ivf", "num_lists": 5, "num_probes": 5}])
def test_vectors_are_found_as_by_faiss(built, rows, tmp_path, embedder, dense):
    pytest.importorskip("faiss")
    index = build_index(rows, tmp_path / "index", settings("dense", **dense)) if dense else open_index(built / "dense")
    faiss = build_index(rows, tmp_path / "faiss", settings(engine="dense"))
    queries = ["korrin lamp", "oss ferry mill", "town north rye gate"]
    for hits, expected in zip(index.search(queries, 10), faiss.search(queries, 10), strict=True):
        assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in expected], abs=1e-5)


@lance
@pytest.mark.parametrize("lists", [{"num_lists": 12}, {}])  # by themselves, 120 passages are three lists
def test_few_probes_find_less_but_never_nonsense(rows, tmp_path, embedder, lists):
    index = build_index(rows, tmp_path / "index", settings("dense", ann="ivf", num_probes=1, **lists))
    for hits in index.search(["korrin lamp", "oss ferry"], 100):
        assert 0 < len(hits) < 100 and hits == sorted(hits, key=lambda hit: -hit.score)


@lance
def test_hybrid_is_the_fusion_of_both(built, embedder):
    from quaere.search.engines import FUSION_DEPTH, fuse

    *parts, both = (open_index(built / search) for search in SEARCHES)
    query = "river bridge n17"
    expected = fuse([part.engine.search([query], FUSION_DEPTH)[0] for part in parts], 5)
    assert [(hit.passage.id, hit.score) for hit in both.search([query], 5)[0]] == [
        (both.passage(match.number).id, match.score) for match in expected
    ]


@lance
@pytest.mark.parametrize("search", SEARCHES)
def test_equal_passages_come_in_their_order(tmp_path, embedder, search):
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(f'{{"id": "{n}", "text": "bridge{"." * n}"}}' for n in range(6)))
    embedder.vector = lambda text: np.eye(4, dtype=np.float32)[0]
    index = build_index(path, tmp_path / "index", settings(search))
    for topk in (2, 6):
        hits = index.search(["bridge"], topk)[0]
        assert [hit.passage.doc_id for hit in hits] == [str(number) for number in range(topk)]


# ------------------------------------------------------------------------------------------------------------ updates


@lance
@pytest.mark.parametrize(
    ("search", "ann"),
    [
        ("text", "flat"),
        ("hybrid", "flat"),
        ("dense", "ivf"),
        pytest.param("dense", "flat", marks=pytest.mark.slow),  # half of what a hybrid search does
        pytest.param("hybrid", "ivf", marks=pytest.mark.slow),
    ],
)
def test_an_updated_index_finds_what_a_new_one_finds(tmp_path, embedder, search, ann):
    path, probes = tmp_path / "rows.jsonl", {"ann": ann, "num_lists": 4, "num_probes": 4}
    write_rows(path, range(100))
    index = build_index(path, tmp_path / "index", settings(search, **probes))
    for numbers in ([*range(15, 100)], [*range(150, 170), *range(15, 45), 7, *range(50, 100)], [*range(15, 75)]):
        write_rows(path, numbers)
        embedder.embedded.clear()
        counts = update_index(index.path).counts
        assert counts.num_embedded <= 25 and len(embedder.embedded) <= 26  # and one to see whether it is the same
        fresh = build_index(path, tmp_path / "fresh", settings(search, **probes), force=True)
        updated = open_index(index.path)
        assert updated.fingerprint == fresh.fingerprint
        assert found(updated) == found(fresh)


@lance
@pytest.mark.filterwarnings("error")
def test_a_build_and_an_update_say_what_they_do_and_nothing_else(rows, tmp_path, embedder):
    told = []
    options = settings("hybrid", ann="ivf")
    index = build_index(rows, tmp_path / "index", options, progress=lambda *said: told.append(said))
    stages = ["reading documents", "embedding", "scoring words", "linking neighbours"]
    assert list(dict.fromkeys(doing for doing, _, _ in told)) == stages
    assert max(done for doing, done, _ in told if doing == "embedding") == 120
    told.clear()
    write_rows(rows, range(121))
    update_index(index.path, lambda *said: told.append(said))
    assert ("embedding", 1, 1) in told
    # Vectors are put into their clusters before the words are scored.
    assert list(dict.fromkeys(doing for doing, _, _ in told))[-2:] == ["linking neighbours", "scoring words"]


@pytest.mark.parametrize(
    ("name", "is_shared"),
    [("data/a.lance", True), ("_indices/b/index.idx", True), ("_versions/1.manifest", False), ("numbers.npy", False)],
)
def test_files_that_lancedb_never_changes_are_shared_by_links(tmp_path, name, is_shared):
    one, other = tmp_path / "one" / name, tmp_path / "other"
    one.parent.mkdir(parents=True)
    one.write_bytes(b"rows")
    _share(str(one), str(other))
    assert other.read_bytes() == b"rows" and other.samefile(one) is is_shared


@lance
def test_reading_words_is_told_by_the_passage(built, tmp_path):
    told = []
    build_index(built / "rows.jsonl", tmp_path / "index", settings(), progress=lambda *said: told.append(said))
    assert ("reading words", 120, 120) in told and told[-1] == ("scoring words", 0, None)


@lance
def test_an_update_without_changes_leaves_everything(rows, tmp_path):
    index = build_index(rows, tmp_path / "index", settings())
    before = {path: path.stat().st_mtime_ns for path in index.path.rglob("*.lance")}
    update_index(index.path)
    assert before == {path: path.stat().st_mtime_ns for path in index.path.rglob("*.lance")}


@lance
def test_another_embedder_of_the_same_name_embeds_everything(rows, tmp_path, embedder, monkeypatch):
    index = build_index(rows, tmp_path / "index", settings("dense"))
    monkeypatch.setattr(embedders, "_load_model", lambda name: WordVectors("another"))
    write_rows(rows, range(121))
    assert update_index(index.path).counts.num_embedded == 121
    fresh = build_index(rows, tmp_path / "fresh", settings("dense"))
    assert found(open_index(index.path)) == found(fresh)


@lance
def test_no_embedder_is_loaded_where_rows_were_only_removed(rows, tmp_path, embedder, monkeypatch):
    index = build_index(rows, tmp_path / "index", settings("dense"))
    write_rows(rows, range(100))
    with monkeypatch.context() as patch:
        patch.setattr(embedders, "_load_model", lambda name: pytest.fail("loaded"))
        update_index(index.path)
    assert found(open_index(index.path)) == found(build_index(rows, tmp_path / "fresh", settings("dense")))


@lance
def test_texts_that_occur_twice_are_both_found_after_an_update(tmp_path, embedder):
    """Two new passages with the words of one that is gone: one of them gets its row."""
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.txt").write_text("the ferry at Aldern")
    (folder / "b.txt").write_text("the mill of rye")
    index = build_index(folder, tmp_path / "index", settings("hybrid"))
    (folder / "a.txt").unlink()
    for name in ("c.md", "d.md"):
        (folder / name).write_text(f"# a\n\n{'word ' * 119}\n\nthe ferry at Aldern")
    update_index(index.path)
    fresh = build_index(folder, tmp_path / "fresh", settings("hybrid"))
    assert found(open_index(index.path), ["ferry Aldern"]) == found(fresh, ["ferry Aldern"])


# ---------------------------------------------------------------------------------------------------------- refusals


@lance
def test_commands(rows, tmp_path, capsys):
    assert main(["index", str(rows), "--out", str(tmp_path / "index"), "--engine", "lance"]) == 0
    assert "engine lance" in capsys.readouterr().out
    assert main(["search", "n17", "--index", str(tmp_path / "index"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["hits"][0]["passage"]["id"] == "17#0"
    write_rows(rows, range(5, 121))
    assert main(["index", "--update", str(tmp_path / "index")]) == 0
    assert "116 passages of 116 documents" in capsys.readouterr().out


@lance
def test_documents_without_words_are_refused(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"id": "1", "text": "?!"}')
    with pytest.raises(BadInput, match="no word"):
        build_index(tmp_path / "rows.jsonl", tmp_path / "index", settings())
    assert not (tmp_path / "index").exists()


@lance
def test_an_embedder_that_fails_half_way_is_said_as_it_is(rows, tmp_path, embedder):
    def encode(texts, **options):
        if len(embedder.embedded) >= 64:
            raise SearchFailed("the embedder is gone", kind="unreachable")
        embedder.embedded += texts
        return embedder.encode_query(texts)

    embedder.encode_document = encode
    with pytest.raises(SearchFailed, match="the embedder is gone"):
        build_index(rows, tmp_path / "index", settings("dense"))
    assert not (tmp_path / "index").exists()


@lance
def test_a_damaged_table_is_one_line(rows, tmp_path):
    index = build_index(rows, tmp_path / "index", settings())
    for manifest in (index.path / "lance" / "passages.lance" / "_versions").iterdir():
        manifest.write_bytes(b"\0" * manifest.stat().st_size)
    with pytest.raises(BadInput, match="damaged") as caught:
        index.search(["n1"], 1)
    assert "\n" not in str(caught.value)


@lance
def test_another_embedder_than_the_index_was_made_with_is_noticed(built, embedder):
    index = open_index(built / "dense")
    embedder.width = 7
    with pytest.raises(BadInput, match="vectors have 7 dimensions, those of the index 32"):
        index.search(["oss"], 1)


@pytest.mark.parametrize(
    "impossible",
    [
        IndexSettings(engine="lance", bm25=Bm25Settings(k1=1.5)),
        IndexSettings(engine="lance", bm25=Bm25Settings(b=0.5)),
        settings("dense", ann="hnsw"),
    ],
)
def test_what_lancedb_does_not_have_is_refused(impossible, rows, tmp_path):
    with pytest.raises(BadInput):
        build_index(rows, tmp_path / "index", impossible)


def test_without_the_extra_it_says_what_to_install(rows, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "lancedb", None)
    with pytest.raises(ExtraMissing) as caught:
        build_index(rows, tmp_path / "index", settings())
    assert caught.value.hint == install_hint("lance")
