"""Commands on a disk that is full: one line, exit code 2, and what was there stays."""

import errno
import resource
import sys

import pytest

from preloaded import start
from quaere.cli.main import main


def child(words):
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))  # a write beyond it fails, as on a disk that is full
    sys.exit(main(words))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    out = tmp_path_factory.mktemp("disk") / "world"
    assert main(["world", "--articles", "200", "--questions", "1", "--out", str(out)]) == 0
    return out


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "large.md").write_text("Every word of this is there to fill the disk. " * 2000)
    return tmp_path


def contents(path):
    files = [path, *path.rglob("*")] if path.exists() else []
    return {file: file.read_bytes() for file in files if file.is_file()}


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("command", ["world", "index", "questions"])
def test_a_full_disk_is_one_line_and_costs_nothing(corpus, world, command, exists):
    out = corpus / "out"
    words = {
        "world": ["world", "--articles", "200"],
        "index": ["index", str(corpus / "docs")],
        "questions": ["questions", "--world", str(world), "--num", "60"],
    }[command] + ["--out", str(out)]
    if exists:
        assert main(words) == 0
        words.append("--force")
    before = contents(out)
    assert bool(before) == exists
    process, stderr = start(child, words)
    with stderr:
        said = stderr.read()
    process.join()
    assert process.exitcode == 2, said
    line, hint = said.splitlines()
    assert line == f"quaere: cannot write {out}: File too large" and hint.startswith("  try: make room")
    assert contents(out) == before
    assert not [path for path in corpus.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(("number", "is_disk"), [(errno.ENOSPC, True), (errno.EROFS, True), (errno.EBADF, False)])
def test_a_disk_that_refuses_where_nobody_expected_it_is_one_line_too(monkeypatch, capsys, number, is_disk):
    def refuse(*_):
        raise OSError(number, "the system's words", "/data/x")

    monkeypatch.setattr("quaere.cli.main.build_parser", refuse)
    if not is_disk:  # a fault of the program
        with pytest.raises(OSError, match="the system's words"):
            main(["doctor"])
        return
    assert main(["doctor"]) == 2
    assert capsys.readouterr().err == "quaere: /data/x: the system's words\n"
