import hashlib
import json
import os
import shutil
import signal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preloaded import Process
from properties import examples
from quaere.errors import UPDATE_HINT, BadInput, IndexMissing
from quaere.search.bm25 import Bm25Settings
from quaere.search.chunks import ChunkSettings, cut
from quaere.search.corpus import Document
from quaere.search.embedders import DenseSettings
from quaere.search.index import IndexSettings, open_index
from quaere.search.index_build import _fingerprint, build_index
from quaere.search.store import Store, StoreWriter


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def edit_manifest(index, **changes):
    path = index.path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


# -------------------------------------------------------------------------------------------------------------- store


@settings(max_examples=examples(30))
@given(st.lists(st.tuples(st.text(), st.text(min_size=1)), min_size=1, max_size=8), st.integers(1, 5))
def test_the_store_gives_back_what_was_put_in(tmp_path_factory, contents, max_words):
    folder = tmp_path_factory.mktemp("store")
    documents = [
        Document(id=f"{number}é", title=title, text=text, kind="file") for number, (title, text) in enumerate(contents)
    ]
    expected = []
    with StoreWriter(folder) as writer:
        for document in documents:
            passages = cut(document, ChunkSettings(max_words=max_words))
            writer.add(document, passages)
            expected += passages
    store = Store(folder)
    assert list(store.passages()) == expected
    assert list(store.document_ids()) == [document.id for document in documents]
    assert all(store.document(document.id) == document.text for document in documents)


# ----------------------------------------------------------------------------------------------------- build and open


def test_passages_point_into_their_documents(index, folder):
    assert len(index) == index.manifest.num_passages == len(list(index.passages()))
    assert index.manifest.num_documents == 3
    for passage in index.passages():
        assert index.document(passage.doc_id) == (folder / passage.doc_id).read_text("utf-8")
        assert index.document(passage.doc_id)[passage.start : passage.end] == passage.text


def test_an_opened_index_is_the_built_one(index):
    again = open_index(index.path)
    assert again.manifest == index.manifest
    assert list(again.passages()) == list(index.passages())
    query = ["who built the bridge?", "首都", "nothing-of-the-kind"]
    assert again.search(query, 2) == index.search(query, 2)


def test_search_finds_the_passage(index):
    bridge, tokyo, nothing, empty = index.search(["who built the Halm bridge", "日本", "xyzzy", ""], 3)
    assert bridge[0].passage.doc_id == "rivers.md"
    assert tokyo[0].passage.doc_id == "tokyo.txt"
    assert nothing == empty == []
    assert index.search([], 3) == []


def test_accents_and_case_do_not_hide_a_word(index):
    assert index.search(["ZURICH"], 1)[0][0].passage.doc_id == "coast/lighthouse.txt"


@pytest.mark.parametrize("topk", [0, -1])
def test_topk_below_one_is_refused(index, topk):
    with pytest.raises(BadInput):
        index.search(["x"], topk)


def test_unknown_passages_and_documents_are_refused(index):
    with pytest.raises(BadInput):
        index.document("no such document")
    for number in (-1, len(index)):
        with pytest.raises(IndexError):
            index.passage(number)


def test_building_twice_gives_the_same_bytes(folder, tmp_path):
    first, second = (build_index(folder, tmp_path / name) for name in ("one", "two"))
    for path in (path for path in first.path.rglob("*") if path.is_file()):
        assert path.read_bytes() == (second.path / path.relative_to(first.path)).read_bytes(), path


# -------------------------------------------------------------------------------------------------------- fingerprint


def test_the_fingerprint_follows_corpus_and_settings(index, folder, tmp_path):
    changed = [
        IndexSettings(chunks=ChunkSettings(max_words=5)),
        IndexSettings(bm25=Bm25Settings(k1=1.5)),
        IndexSettings(bm25=Bm25Settings(title_weight=1)),
    ]
    fingerprints = [build_index(folder, tmp_path / f"i{n}", s).fingerprint for n, s in enumerate(changed)]
    (folder / "rivers.md").write_text("another text")
    fingerprints += [build_index(folder, tmp_path / "other").fingerprint, index.fingerprint]
    assert len(set(fingerprints)) == 5


def test_the_fingerprint_ignores_what_does_not_matter(index, folder, tmp_path):
    (folder / "picture.png").write_bytes(b"")
    moved = shutil.copytree(folder, tmp_path / "elsewhere")
    unused = IndexSettings(dense=DenseSettings(embedder="another"))
    assert build_index(moved, tmp_path / "again", unused).fingerprint == index.fingerprint


def test_the_fingerprint_of_a_corpus_is_that_of_earlier_versions():
    """Else every index in use would seem to be another one once it is built again."""
    used = b'{"bm25":{"k1":1.2,"b":0.75,"title_weight":2},"chunks":{"max_words":120,"overlap_words":0,"row_words":300},'
    used += b'"engine":"bm25","format":1}'
    plain = IndexSettings(bm25=Bm25Settings(title_weight=2, stemmer="none", whole_names=False))
    assert _fingerprint("d1", plain) == hashlib.sha256(b"d1" + used).hexdigest()


# ------------------------------------------------------------------------------------------------------ never by half


def test_an_index_is_replaced_only_by_force(index, folder):
    with pytest.raises(BadInput) as caught:
        build_index(folder, index.path)
    assert "--force" in caught.value.hint
    (folder / "new.txt").write_text("a new document")
    replaced = build_index(folder, index.path, force=True)
    assert replaced.manifest.num_documents == 4
    assert replaced.fingerprint != index.fingerprint
    assert names_in(index.path.parent) == ["docs", "index"]


@pytest.mark.parametrize("force", [False, True])
def test_a_directory_that_is_not_an_index_is_left_alone(folder, tmp_path, force):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "manifest.json").write_text('{"kind": "something else", "format": 1}')
    for target in (precious, folder):
        before = names_in(target)
        with pytest.raises(BadInput, match="not replaced"):
            build_index(folder, target, force=force)
        assert names_in(target) == before


def test_an_empty_directory_may_become_an_index(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    assert len(build_index(folder, tmp_path / "empty")) == 3


def test_an_index_inside_its_own_corpus_is_not_read_into_it(folder):
    inside = build_index(folder, folder / "index")
    again = build_index(folder, folder / "index", force=True)
    assert again.fingerprint == inside.fingerprint
    assert again.manifest.corpus.ignored_suffixes == {}


def test_a_corpus_inside_the_index_it_would_replace_is_refused(index):
    shutil.copy(__file__, index.path / "notes.txt")
    with pytest.raises(BadInput, match="lies inside"):
        build_index(index.path / "notes.txt", index.path, force=True)


@pytest.mark.parametrize("with_documents", [False, True])
def test_an_index_is_not_read_as_documents(index, folder, tmp_path, with_documents):
    """What was meant is said: its documents, or a search."""
    with pytest.raises(BadInput, match=r"index is an index, and documents are needed here") as caught:
        build_index([index.path, *[folder] * with_documents], tmp_path / "other")
    search = f'quaere search "..." --index {index.path}'
    assert caught.value.hint == f"name its documents: {folder}; or search it: {search}"


def test_a_failed_build_leaves_nothing_behind(folder, tmp_path):
    (folder / "z.jsonl").write_text("{broken")
    before = names_in(tmp_path)
    with pytest.raises(BadInput):
        build_index([folder, folder / "z.jsonl"], tmp_path / "failed")
    assert names_in(tmp_path) == before


def test_a_failed_build_leaves_the_old_index_in_place(index, folder):
    (folder / "z.jsonl").write_text("{broken")
    with pytest.raises(BadInput):
        build_index([folder, folder / "z.jsonl"], index.path, force=True)
    assert open_index(index.path).fingerprint == index.fingerprint


def build_and_die(folder, path, stage):
    def die(doing, done, total):
        if doing == stage:
            os.kill(os.getpid(), signal.SIGKILL)

    build_index(folder, path, progress=die)


@pytest.mark.parametrize("stage", ["reading documents", "reading words", "scoring words"])
def test_a_killed_build_leaves_no_index_that_opens(folder, tmp_path, stage):
    process = Process(target=build_and_die, args=(folder, tmp_path / "killed", stage))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    with pytest.raises(IndexMissing):
        open_index(tmp_path / "killed")
    (half,) = [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    with pytest.raises(IndexMissing):
        open_index(half)
    assert len(build_index(folder, tmp_path / "killed")) == 3
    assert not half.exists()


def test_a_corpus_without_words_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": "a", "text": "!!! ... ???"}')
    with pytest.raises(BadInput, match="no word"):
        build_index(tmp_path / "a.jsonl", tmp_path / "index")


# ------------------------------------------------------------------------------------------------------------- damage


def test_a_missing_index_says_what_to_type(tmp_path, folder):
    missing = tmp_path / "nowhere"
    hints = {missing: f"quaere index FOLDER --out {missing}"}
    hints |= {path: f"quaere index {path} --out INDEX" for path in (folder, folder / "rivers.md")}  # documents
    for path, hint in hints.items():
        with pytest.raises(IndexMissing) as caught:
            open_index(path)
        assert caught.value.hint == hint


def test_a_newer_format_is_refused(index):
    edit_manifest(index, format=99, something_new=True)
    with pytest.raises(BadInput, match="format 99") as caught:
        open_index(index.path)
    assert caught.value.hint == UPDATE_HINT


@pytest.mark.parametrize("written", [b"", b"{", b"\xff", b"[]", b'{"kind": "quaere-index", "format": 1}'])
def test_a_damaged_manifest_is_refused(tmp_path, written):
    (tmp_path / "manifest.json").write_bytes(written)
    with pytest.raises(BadInput, match=r"manifest\.json is damaged") as caught:
        open_index(tmp_path)
    assert caught.value.hint == f"delete {tmp_path}, then quaere index FOLDER --out {tmp_path}"


def test_the_manifest_of_another_program_is_refused(index):
    edit_manifest(index, kind="something other")
    with pytest.raises(IndexMissing, match="another program"):
        open_index(index.path)


def test_every_missing_or_cut_file_is_noticed(index):
    for name in index.manifest.file_sizes:
        whole = (index.path / name).read_bytes()
        (index.path / name).write_bytes(whole[:-1])
        with pytest.raises(BadInput, match="damaged") as caught:
            open_index(index.path)
        assert name in str(caught.value)
        assert caught.value.hint.endswith("--force")
        (index.path / name).unlink()
        with pytest.raises(BadInput, match="damaged"):
            open_index(index.path)
        (index.path / name).write_bytes(whole)
    assert open_index(index.path).manifest == index.manifest


@pytest.mark.parametrize("name", ["data.csc.index.npy", "vocab.index.json", "params.index.json"])
def test_overwritten_engine_files_are_noticed(index, name):
    path = index.path / "bm25" / name
    path.write_bytes(b"\0" * path.stat().st_size)
    with pytest.raises(BadInput, match="damaged"):
        open_index(index.path).search(["oss"], 1)


def test_overwritten_arrays_are_noticed(index):
    path = index.path / "passages.npy"
    path.write_bytes(b"\0" * path.stat().st_size)
    with pytest.raises(BadInput, match="damaged"):
        open_index(index.path)
