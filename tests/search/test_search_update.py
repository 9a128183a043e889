"""An updated index is the one a new build would give, and only what has changed was read and embedded for it."""

import gzip
import hashlib
import json
import os
import random
import shutil
import time
from functools import cache

import numpy as np
import pytest

from quaere.errors import BadInput
from quaere.search import corpus, embedders
from quaere.search.embedders import DenseSettings
from quaere.search.index import IndexSettings, open_index
from quaere.search.index_build import build_index, update_index
from quaere.search.sources import SOURCES

WORDS = "oss halm bridge river korrin cliff lamp venn town north eel mill keeper storm weir salt".split()


@cache
def word_vector(word):
    seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "little")
    return np.random.default_rng(seed).normal(size=16)


class WordVectors:
    """An embedder without batches or rounding to speak of: the mean of a vector per word."""

    def __init__(self, salt=""):
        self.salt = salt
        self.embedded = []

    def vector(self, text):
        sums = sum(word_vector(self.salt + word) for word in text.lower().split())
        return (sums / np.linalg.norm(sums)).astype(np.float32)

    def encode_query(self, texts, **options):
        return np.stack([self.vector(text) for text in texts])

    def encode_document(self, texts, **options):
        self.embedded += texts
        return self.encode_query(texts)


@pytest.fixture
def embedder(monkeypatch):
    """In place of every sentence-transformers model."""
    pytest.importorskip("faiss")
    model = WordVectors()
    monkeypatch.setattr(embedders, "_load_model", lambda name: model)
    return model


@pytest.fixture
def parsed(monkeypatch):
    """The names of all files that were parsed since the list was cleared."""
    names = []

    def watch(function):
        def watched(path, *rest):
            names.append(path.name)
            return function(path, *rest)

        return watched

    monkeypatch.setattr(corpus, "parse_file", watch(corpus.parse_file))
    monkeypatch.setattr(corpus, "read_rows", watch(corpus.read_rows))
    return names


def contents(index):
    """Every file of an index, byte for byte."""
    return {path.relative_to(index): path.read_bytes() for path in sorted(index.rglob("*")) if path.is_file()}


def settings(engine, **dense):
    return IndexSettings(engine=engine, dense=DenseSettings(embedder="stub", **dense))


def age(path, seconds):
    """Make a file, or every file in a folder, older or younger.

    Size and time of a file are only trusted if it was older than the step in which times are kept when it was read.
    """
    for each in [path, *path.rglob("*")]:
        status = each.stat()
        os.utime(each, ns=(status.st_atime_ns, status.st_mtime_ns - seconds * 10**9))


# -------------------------------------------------------------------------------------------------- the same as if new


class Editor:
    """Edits a folder at random: files of several kinds are added, changed, copied, renamed, emptied, removed."""

    def __init__(self, folder, seed):
        self.folder = folder
        self.draw = random.Random(seed)
        self.num_made = 0

    def edit(self):
        actions = [self.add] * 4 + [self.change] * 3 + [self.copy, self.rename, self.remove, self.remove]
        actions += [self.empty, self.spoil, self.touch, self.rewrite, self.rewrite, self.remove_first, self.ignore]
        self.draw.choice(actions)()

    def words(self, low=3, high=60):
        return " ".join(self.draw.choices(WORDS, k=self.draw.randint(low, high)))

    def files(self):
        return sorted(path for path in self.folder.rglob("*") if path.is_file() and path.name != ".gitignore")

    def pick(self):
        return self.draw.choice(self.files() or [self.add()])

    def new_path(self, suffix):
        self.num_made += 1
        place = self.folder / self.draw.choice(["", "coast", "coast/north", "inland"])
        place.mkdir(parents=True, exist_ok=True)
        return place / f"{self.draw.choice('abcxyz')}{self.num_made}{suffix}"

    def add(self):
        path = self.new_path(
            self.draw.choice([".md", ".txt", ".csv", ".html", ".eml", ".ipynb", ".jsonl", ".jsonl.gz"])
        )
        self.write(path)
        return path

    def change(self):
        self.write(self.pick())

    def write(self, path):
        text = self.words()
        match path.suffix:
            case ".md":
                text = f"# {self.words(1, 3)}\n\n" + "\n\n".join(self.words() for _ in range(self.draw.randint(1, 4)))
            case ".csv":
                text = "name,place\n" + "".join(f"{self.words(1, 2)},{self.words(1, 2)}\n" for _ in range(5))
            case ".html":
                text = f"<title>{self.words(1, 3)}</title><p>{text}<p>{self.words()}"
            case ".eml":
                text = f"Subject: {self.words(1, 3)}\n\n{text}\n\n{self.words()}"
            case ".ipynb":
                cells = [{"cell_type": "markdown", "source": self.words()} for _ in range(3)]
                text = json.dumps({"cells": cells, "nbformat": 4})
            case ".jsonl" | ".gz":
                texts = [self.words(0, 4) for _ in range(6)]  # some empty, some equal
                text = "".join(json.dumps({"id": f"{path.name}-{n}", "text": t}) + "\n" for n, t in enumerate(texts))
        data = text.encode("utf-16" if path.suffix == ".txt" and self.draw.random() < 0.3 else "utf-8")
        path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
        if self.draw.random() < 0.5:
            age(path, -3600)

    def copy(self):
        path = self.pick()
        if "jsonl" not in path.name:  # ids of rows must stay apart
            shutil.copyfile(path, self.new_path(path.suffix))

    def rename(self):
        path = self.pick()
        if "jsonl" not in path.name:
            path.rename(self.new_path(path.suffix))

    def remove(self):
        self.pick().unlink(missing_ok=True)

    def empty(self):
        path = self.pick()
        if path.suffix != ".gz":
            path.write_bytes(b"")

    def spoil(self):
        self.new_path(self.draw.choice([".pdf", ".docx", ".epub", ".ipynb", ".txt"])).write_bytes(b"\0\1\2" * 50)

    def touch(self):
        os.utime(self.pick())

    def rewrite(self):
        """Put other words of the same length into files without a change of their time, which is too late to tell."""
        for path in self.files():
            if path.suffix in (".md", ".csv") and path.stat().st_mtime > time.time() + 60:
                self.swap_words(path)

    def swap_words(self, path):
        status, text = path.stat(), path.read_bytes()
        for one, other in [(b"oss", b"eel"), (b"halm", b"venn"), (b"river", b"storm")]:
            text = text.replace(one, b"?").replace(other, one).replace(b"?", other)
        path.write_bytes(text)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def remove_first(self):
        """Remove a file that another repeats: the other is no duplicate any more."""
        of_content = {}
        for path in self.files():
            first = of_content.setdefault((path.suffix, path.read_bytes()), path)
            if first != path:
                first.unlink()
                return

    def ignore(self):
        (self.folder / ".gitignore").write_text(self.draw.choice(["a*\n", "coast/north/\n", "*.csv\n", ""]))


@pytest.mark.parametrize(
    ("engine", "seed"),
    [
        *(("bm25", seed) for seed in range(2)),
        *(("hybrid", seed) for seed in range(2, 4)),
        *(pytest.param(engine, seed, marks=pytest.mark.slow) for engine in ("bm25", "hybrid") for seed in range(4, 12)),
    ],
)
def test_after_random_edits_an_updated_index_is_a_new_one(tmp_path, embedder, engine, seed):
    docs, draw = tmp_path / "docs", random.Random(seed)
    docs.mkdir()
    editor = Editor(docs, seed)
    (docs / "always.md").write_text("# Oss\n\nThe Oss rises near Halmgate.")
    for _ in range(12):
        editor.add()
    editor.copy()
    editor.copy()
    updated = build_index(docs, tmp_path / "updated", settings(engine))
    for round_ in range(5):
        for _ in range(draw.randint(0, 10)):
            editor.edit()
        (docs / "always.md").write_text("# Oss\n\nThe Oss rises near Halmgate.")
        updated = update_index(tmp_path / "updated").index
        fresh = build_index(docs, tmp_path / "fresh", settings(engine), force=True)
        assert contents(updated.path) == contents(fresh.path), round_
        queries = [" ".join(draw.choices(WORDS, k=draw.randint(1, 4))) for _ in range(40)]
        assert updated.search(queries, 5) == fresh.search(queries, 5)
        assert not updated.find_changes()


@pytest.mark.parametrize("ann", ["flat", "ivf"])
def test_vectors_are_taken_over_from_every_layout(tmp_path, folder, embedder, ann):
    index = build_index(folder, tmp_path / "index", settings("dense", ann=ann))
    (folder / "a.txt").write_text("eel weir")
    update_index(index.path)
    fresh = build_index(folder, tmp_path / "fresh", settings("dense", ann=ann))
    assert contents(index.path) == contents(fresh.path)


# ------------------------------------------------------------------------------------------------- no more than needed


def test_only_what_changed_is_read_and_embedded(tmp_path, folder, embedder, parsed):
    (folder / "rows.jsonl").write_text('{"id": "1", "text": "salt"}\n{"id": "2", "text": "storm"}\n')
    index, told = build_index(folder, tmp_path / "index", settings("hybrid")), []
    assert set(parsed) == {"lighthouse.txt", "rivers.md", "rows.jsonl", "tokyo.txt"}
    parsed.clear()
    embedder.embedded.clear()
    (folder / "new.txt").write_text("eel weir")
    (folder / "rivers.md").write_text("# The Oss\n\nThe mill stands on the Oss.")
    (folder / "tokyo.txt").unlink()
    counts = update_index(index.path, lambda *said: told.append(said)).counts
    assert told[-2:] == [("embedding", 2, 2), ("linking neighbours", 0, None)]
    assert sorted(parsed) == ["new.txt", "rivers.md"]
    # One that is kept is embedded once more, to see whether the embedder is still the same.
    assert len(embedder.embedded) == 3
    assert {"new\neel weir", "The Oss\n# The Oss\n\nThe mill stands on the Oss."} < set(embedder.embedded)
    assert (counts.num_added, counts.num_changed, counts.num_removed, counts.num_unchanged) == (1, 1, 1, 2)
    assert (counts.num_read, counts.num_kept, counts.num_embedded) == (2, 3, 2)


def test_a_row_that_changed_is_embedded_alone(tmp_path, embedder):
    rows = [{"id": str(n), "text": f"{word} {n}"} for n, word in enumerate(WORDS)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    index = build_index(tmp_path / "rows.jsonl", tmp_path / "index", settings("dense"))
    rows[3]["text"] = "a new one"
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert update_index(index.path).counts.num_embedded == 1


def test_a_file_that_was_renamed_is_read_and_not_embedded(tmp_path, folder, embedder):
    index = build_index(folder, tmp_path / "index", settings("dense"))
    (folder / "rivers.md").rename(folder / "streams.md")
    counts = update_index(index.path).counts
    assert (counts.num_added, counts.num_removed, counts.num_read, counts.num_embedded) == (1, 1, 1, 0)
    assert "streams.md" in open_index(index.path).document_ids()


def test_no_embedder_is_loaded_where_files_were_only_removed(tmp_path, folder, embedder, monkeypatch):
    index = build_index(folder, tmp_path / "index", settings("dense"))
    (folder / "tokyo.txt").unlink()
    monkeypatch.setattr(embedders, "_load_model", lambda name: pytest.fail("loaded"))
    assert update_index(index.path).counts.num_removed == 1


def test_another_embedder_of_the_same_name_embeds_everything(tmp_path, folder, embedder, monkeypatch):
    index = build_index(folder, tmp_path / "index", settings("dense"))
    monkeypatch.setattr(embedders, "_load_model", lambda name: WordVectors("another"))
    (folder / "new.txt").write_text("eel weir")
    assert update_index(index.path).counts.num_embedded == 4
    fresh = build_index(folder, tmp_path / "fresh", settings("dense"))
    assert contents(index.path) == contents(fresh.path)


def test_a_file_whose_time_alone_changed_is_compared_and_not_read(tmp_path, folder, parsed):
    age(folder, 60)
    index = build_index(folder, tmp_path / "index")
    parsed.clear()
    os.utime(folder / "rivers.md")
    assert index.find_changes()
    counts = update_index(index.path).counts
    assert parsed == []
    assert (counts.num_changed, counts.num_unchanged) == (0, 3)
    assert not open_index(index.path).find_changes()


def test_where_nothing_changed_nothing_is_written(tmp_path, folder, parsed, monkeypatch):
    age(folder, 60)
    index = build_index(folder, tmp_path / "index")
    parsed.clear()
    monkeypatch.setattr("quaere.search.store.digest_file", lambda path: pytest.fail(f"opened {path}"))
    before = {path: path.stat().st_ino for path in index.path.rglob("*")}
    assert update_index(index.path).counts.num_unchanged == 3
    assert {path: path.stat().st_ino for path in index.path.rglob("*")} == before
    assert parsed == []


@pytest.mark.parametrize("seconds", [1, -60])  # from when the file changed to when it was read
def test_a_change_of_the_same_size_at_the_same_time_is_found(tmp_path, folder, seconds):
    path = folder / "coast" / "lighthouse.txt"
    index, status = build_index(folder, tmp_path / "index"), path.stat()
    os.utime(index.path / SOURCES, ns=(0, status.st_mtime_ns + seconds * 10**9))
    path.write_bytes(path.read_bytes().replace(b"1850", b"1851"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert update_index(index.path).counts.num_changed == 1
    assert "1851" in open_index(index.path).document("coast/lighthouse.txt")


def test_a_duplicate_takes_the_place_of_what_it_repeats(tmp_path, folder):
    (folder / "zz.md").write_bytes((folder / "rivers.md").read_bytes())
    index = build_index(folder, tmp_path / "index")
    assert index.manifest.corpus.num_duplicates == 1
    (folder / "rivers.md").unlink()
    assert update_index(index.path).counts.num_read == 1
    assert open_index(index.path).search(["halm bridge"], 1)[0][0].passage.doc_id == "zz.md"


def test_with_another_version_of_a_library_every_file_is_read(tmp_path, folder, embedder, parsed, monkeypatch):
    index = build_index(folder, tmp_path / "index", settings("dense"))
    parsed.clear()
    monkeypatch.setattr("quaere.search.index_build._version_of", lambda library: "99")
    counts = update_index(index.path).counts
    assert len(parsed) == counts.num_read == counts.num_unchanged == 3
    assert counts.num_embedded == 0
    assert open_index(index.path).manifest.versions["bm25s"] == "99"


def test_an_index_of_an_earlier_version_is_updated(tmp_path, folder, embedder):
    index = build_index(folder, tmp_path / "index", settings("hybrid"))
    expected = contents(index.path)
    (index.path / SOURCES).unlink()
    manifest = json.loads((index.path / "manifest.json").read_text())
    del manifest["file_sizes"][SOURCES]
    (index.path / "manifest.json").write_text(json.dumps(manifest))
    assert not open_index(index.path).find_changes()
    counts = update_index(index.path).counts
    assert (counts.num_read, counts.num_embedded) == (3, 0)
    assert contents(index.path) == expected


# ------------------------------------------------------------------------------------------------------ what is refused


def test_sources_that_are_gone_are_named(tmp_path, folder, index):
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="docs, which no longer exists") as caught:
        update_index(index.path)
    assert "--force" in caught.value.hint
    assert len(open_index(index.path)) == 3


def test_an_index_that_does_not_know_its_sources_is_refused(index):
    path = index.path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"sources": []}))
    with pytest.raises(BadInput, match="did not record its sources"):
        update_index(index.path)


def test_an_update_that_fails_leaves_the_old_index(tmp_path, folder):
    (folder / "z.jsonl").write_text('{"id": "1", "text": "salt"}')
    index = build_index([folder, folder / "z.jsonl"], tmp_path / "index")
    expected = contents(index.path)
    (folder / "z.jsonl").write_text("{broken")
    with pytest.raises(BadInput, match=r"z\.jsonl"):
        update_index(index.path)
    assert contents(index.path) == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["docs", "index"]


def test_an_index_that_was_replaced_since_it_was_opened_is_not_searched(folder, index):
    opened = open_index(index.path)
    (folder / "a.txt").write_text("eel weir")
    update_index(index.path)
    with pytest.raises(BadInput, match="replaced"):
        opened.search(["eel"], 1)
