"""Whoever opens an index whose sources have changed is told so in one line, and `--watch` acts on it."""

import json
import os
import signal
import time
import warnings
from types import SimpleNamespace

import pytest

from preloaded import start_command
from quaere.cli.main import main
from quaere.errors import BadInput, SearchFailed, StaleIndex
from quaere.search import index as index_module
from quaere.search import index_build
from quaere.search.index import STALE_CHECK, IndexSettings, open_index
from quaere.search.index_build import build_index, update_index, wait_for_changes
from quaere.search.sources import SOURCES, find_changes


def is_stale(index):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        open_index(index.path)
    return [str(warning.message) for warning in said if warning.category is StaleIndex] != []


# -------------------------------------------------------------------------------------------------------- what is stale


@pytest.mark.parametrize(
    "edit",
    [
        lambda docs: (docs / "rivers.md").write_text("another text"),
        lambda docs: (docs / "rivers.md").unlink(),
        lambda docs: (docs / "rivers.md").rename(docs / "streams.md"),
        lambda docs: (docs / "coast" / "new.txt").write_text("new"),
        lambda docs: (docs / "inland").mkdir(),
        lambda docs: (docs / ".gitignore").write_text("coast/"),
        lambda docs: os.utime(docs / "tokyo.txt"),
    ],
    ids=["changed", "removed", "renamed", "added", "folder", "gitignore", "touched"],
)
def test_a_change_of_the_sources_makes_an_index_stale(folder, index, edit):
    assert not is_stale(index)
    edit(folder)
    assert is_stale(index)
    update_index(index.path)
    assert not is_stale(index)


@pytest.mark.parametrize("name", [".hidden.md", "picture.png", "coast/.swap.txt", ".git/config.txt"])
def test_files_that_are_not_read_make_no_index_stale(folder, index, name):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("nothing of it")
    assert not is_stale(index)


def test_an_index_among_its_sources_is_not_one_of_them(folder):
    index = build_index(folder, folder / "index")
    assert not is_stale(index)
    (folder / "new.txt").write_text("new")
    assert is_stale(index)
    update_index(index.path)
    assert not is_stale(index)
    assert index.manifest.num_documents + 1 == open_index(index.path).manifest.num_documents


def test_where_no_gitignore_is_honoured_none_makes_stale(folder, tmp_path):
    index = build_index(folder, tmp_path / "index", IndexSettings(gitignore=False))
    (folder / ".gitignore").write_text("coast/")
    assert not is_stale(index)


def test_a_source_that_is_one_file_is_looked_at(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id": "1", "text": "salt"}')
    index = build_index(rows, tmp_path / "index")
    assert not is_stale(index)
    rows.write_text('{"id": "1", "text": "salt and storm"}')
    assert is_stale(index)


def test_links_that_lead_nowhere_and_odd_names_are_no_change(folder, tmp_path):
    (folder / "gone.md").symlink_to(folder / "nowhere")
    (folder / "loop.md").symlink_to(folder / "loop.md")
    with open(os.path.join(os.fsencode(folder), b"odd\xff.txt"), "wb") as file:
        file.write(b"eel")
    index = build_index(folder, tmp_path / "index")
    assert index.manifest.corpus.num_unreadable == 3
    assert not is_stale(index)
    assert update_index(index.path).counts.num_changed == 0


def test_the_check_can_be_switched_off(folder, index, monkeypatch):
    (folder / "rivers.md").unlink()
    monkeypatch.setenv(STALE_CHECK, "off")
    assert not is_stale(index)
    monkeypatch.setenv(STALE_CHECK, "on")
    assert is_stale(index)


def test_without_its_sources_an_index_is_not_stale(folder, index, tmp_path):
    folder.rename(tmp_path / "elsewhere")
    assert not is_stale(index)


def test_no_more_is_looked_at_than_said(tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    for number in range(30):
        (docs / f"{number:02}.txt").write_text(f"salt {number}")
    index = build_index(docs, tmp_path / "index")
    for path in docs.iterdir():
        path.write_text("changed")
    # The folder's 30 entries and itself, then the first files.
    assert find_changes(index.path, [docs], max_looks=36) == [f"{number:02}.txt" for number in range(5)]
    assert not find_changes(index.path, [docs], max_looks=20)
    assert len(find_changes(index.path, [docs])) == 30


def test_damaged_records_are_said(index):
    path = index.path / SOURCES
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(BadInput, match=r"sources\.jsonl is damaged"):
        open_index(index.path)


# ------------------------------------------------------------------------------------------------------------- commands


def test_commands_say_in_one_line_what_to_type(folder, index, capsys):
    (folder / "rivers.md").write_text("another text")
    assert main(["search", "korrin", "--index", str(index.path), "--json"]) == 0
    said = capsys.readouterr()
    expected = f"the index {index.path} is stale, rivers.md has changed since it was built"
    assert said.err == f"quaere: {expected}: quaere index --update {index.path}\n"
    assert json.loads(said.out)[0]["hits"]


def test_the_doctor_says_it_too(folder, index, capsys):
    main(["doctor", "--index", str(index.path), "--json"])
    assert json.loads(capsys.readouterr().out)[-1]["status"] == "ok"
    (folder / "rivers.md").unlink()
    main(["doctor", "--index", str(index.path), "--json"])
    said = capsys.readouterr()
    check = json.loads(said.out)[-1]
    assert (check["status"], check["hint"]) == ("warn", f"quaere index --update {index.path}")
    assert "stale" not in said.err


def test_the_update_says_what_it_did(folder, index, capsys):
    (folder / "rivers.md").unlink()
    (folder / "new.txt").write_text("eel weir")
    assert main(["index", "--update", str(index.path), "--json"]) == 0
    counts = {"num_added": 1, "num_changed": 0, "num_removed": 1, "num_unchanged": 2, "num_read": 1}
    assert json.loads(capsys.readouterr().out)["update"] == counts | {"num_kept": 2, "num_embedded": 0}
    (folder / "new.txt").write_text("eels")
    assert main(["index", "--update", str(index.path)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["files: 0 added, 1 changed, 0 removed, 2 unchanged; 1 read", "passages: 2 kept, 1 new"]


@pytest.mark.parametrize("words", [["docs"], ["--out", "x"], ["--k1", "2"], ["--no-gitignore"], ["--force"]])
def test_an_update_takes_no_other_options(index, words, capsys):
    assert main(["index", "--update", str(index.path), *words]) == 2
    assert "--update takes no SOURCE" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "said"), [([], "no SOURCE is named"), (["docs"], "--out is missing")])
def test_a_build_needs_a_source_and_a_target(words, said, capsys):
    assert main(["index", *words]) == 2
    assert said in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------------------- watch


@pytest.fixture
def polls(monkeypatch):
    """What is done while the watcher sleeps, one after another; then Ctrl-C."""
    steps = []

    def sleep(seconds):
        assert seconds >= index_build.POLL_S
        if not steps:
            raise KeyboardInterrupt
        if step := steps.pop(0):
            step()

    monkeypatch.setattr(
        index_build, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic, time_ns=time.time_ns)
    )
    return steps


def test_watching_waits_until_the_sources_stand_still(folder, index, polls):
    new = folder / "new.txt"
    polls += [None, lambda: new.write_text("one"), lambda: new.write_text("one two"), None, pytest.fail]
    assert {file.id: file.size for file in wait_for_changes(index.path)}["new.txt"] == len("one two")
    assert polls == [pytest.fail]


def test_watch_updates_and_survives_a_broken_file(folder, tmp_path, polls, capsys):
    rows = folder / "z.jsonl"
    rows.write_text('{"id": "1", "text": "eel"}\n{"id": "2", "text": "weir"}')
    index = build_index([folder, rows], tmp_path / "index")
    polls += [lambda: rows.write_text("{broken"), None, None, lambda: rows.write_text('{"id": "1", "text": "salt"}')]
    polls += [None, None]
    assert main(["index", "--update", str(index.path), "--watch", "--json"]) == 0
    said = capsys.readouterr()
    assert [json.loads(line)["num_passages"] for line in said.out.splitlines()] == [5, 4]
    begun, failed, ended = said.err.splitlines()
    assert begun.startswith("quaere: watching") and ended == "quaere: no longer watching"
    assert "z.jsonl, line 1" in failed and failed.endswith("the index stays as it was")


def test_watch_survives_a_server_of_embeddings_that_is_away(folder, index, polls, capsys, monkeypatch):
    update, calls = index_build.update_index, []

    def fail_at_the_second(*given, **options):
        calls.append(given)
        if len(calls) == 2:
            raise SearchFailed("the embedder cannot be reached", kind="unreachable")
        return update(*given, **options)

    monkeypatch.setattr(index_build, "update_index", fail_at_the_second)
    rows = folder / "new.txt"
    polls += [lambda: rows.write_text("an eel"), None, None, lambda: rows.write_text("an eel, a weir"), None, None]
    assert main(["index", "--update", str(index.path), "--watch", "--json"]) == 0
    said = capsys.readouterr()
    assert [json.loads(line)["num_documents"] for line in said.out.splitlines()] == [3, 4] and len(calls) == 3
    assert "cannot be reached; the index stays as it was" in said.err


def test_ctrl_c_ends_the_watching(folder, tmp_path):
    watcher, stderr = start_command("index", folder, "--out", tmp_path / "index", "--watch")
    try:
        assert "watching" in stderr.readline()
        os.kill(watcher.pid, signal.SIGINT)
        watcher.join(timeout=60)
        assert stderr.read() == "quaere: no longer watching\n"
        assert watcher.exitcode == 0
    finally:
        watcher.kill()
        watcher.join()
        stderr.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["docs", "index"]


def test_an_index_that_is_replaced_while_it_is_opened_is_not_called_damaged(folder, index, monkeypatch):
    """The manifest was read of the old index, and its files are those of the new one."""
    read, reads = index_module.read_manifest, []

    def read_and_replace(path):
        found = read(path)
        reads.append(found.fingerprint)
        if len(reads) == 1:
            monkeypatch.setattr(index_module, "read_manifest", read)
            (folder / "new.txt").write_text("An eel in a weir.")
            update_index(path)
        return found

    monkeypatch.setattr(index_module, "read_manifest", read_and_replace)
    opened = open_index(index.path, check_sources=False)
    assert opened.fingerprint not in reads and opened.search(["eel"], 1)[0]
