"""Files and folders that appear whole or not at all: killed at any step, on a full disk, beside other writers."""

from __future__ import annotations

import errno
import json
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from preloaded import start
from quaere import disk
from quaere.disk import discard_folder, new_file, new_folder, remove_leftovers, scratch_folder, write_file
from quaere.errors import BadInput


@pytest.fixture
def umask() -> Iterator[None]:
    """People of one group work together: what is made is theirs to write, and nobody else's to read."""
    before = os.umask(0o027)
    yield
    os.umask(before)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def fill(folder: Path, content: str) -> None:
    (folder / "inner").mkdir()
    (folder / "a").write_text(content)
    (folder / "inner" / "b").write_text(content)


def read(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


# ---------------------------------------------------------------------------------------------------- old or new


@pytest.mark.parametrize("exists", [False, True])
def test_a_file_is_written_or_replaced(tmp_path: Path, exists: bool) -> None:
    path = tmp_path / "deep" / "scores.json"
    if exists:
        write_file(path, "old")
    write_file(path, "zwei\r\nZeilen ü")
    assert path.read_bytes() == "zwei\r\nZeilen ü".encode()
    assert names(path.parent) == ["scores.json"]


@pytest.mark.parametrize("exists", ["nothing", "empty", "full"])
@pytest.mark.parametrize("swap", ["at once", "in two"])
def test_a_folder_is_written_or_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: str, swap: str
) -> None:
    if swap == "in two":
        monkeypatch.setattr(disk, "_swap", cannot_swap)
    out = tmp_path / "out"
    if exists != "nothing":
        out.mkdir()
    if exists == "full":
        (out / "of the old one").touch()
    with new_folder(out) as folder:
        assert folder != out and out.exists() == (exists != "nothing")
        fill(folder, "new")
    assert read(out) == {"a": "new", "inner/b": "new"}
    assert names(tmp_path) == ["out"]


def cannot_swap(one: Path, other: Path) -> None:
    raise OSError(errno.EINVAL, "Invalid argument")


def test_a_failure_of_the_caller_is_its_own_and_leaves_what_was_there(tmp_path: Path) -> None:
    write_file(tmp_path / "file", "old")
    with new_folder(tmp_path / "folder") as folder:
        fill(folder, "old")
    for target, new in ((tmp_path / "file", new_file), (tmp_path / "folder", new_folder)):
        with pytest.raises(ZeroDivisionError), new(target):
            raise ZeroDivisionError
    assert (tmp_path / "file").read_text() == "old" and read(tmp_path / "folder") == {"a": "old", "inner/b": "old"}
    assert names(tmp_path) == ["file", "folder"]


def test_without_replace_what_is_there_stays(tmp_path: Path) -> None:
    write_file(tmp_path / "out" / "mine", "x")
    with (
        pytest.raises(BadInput, match=r"cannot write .*out: it exists already$"),
        new_folder(tmp_path / "out", replace=False) as folder,
    ):
        fill(folder, "new")
    assert read(tmp_path / "out") == {"mine": "x"} and names(tmp_path) == ["out"]


def test_what_a_folder_has_besides_stays_as_it_was(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with new_folder(out) as folder:
        fill(folder, "old")
    write_file(out / "notes", "mine")
    (out / "notes").chmod(0o600)
    write_file(out / "more" / "deep", "mine")
    (out / "link").symlink_to("notes")
    with new_folder(out, owned={"a", "inner"}) as folder:
        write_file(folder / "inner" / "b", "new")
    assert read(out) == {"inner/b": "new", "notes": "mine", "more/deep": "mine", "link": "mine"}
    assert (out / "link").is_symlink() and stat.S_IMODE((out / "notes").stat().st_mode) == 0o600
    with new_folder(out) as folder:  # without `owned` it is replaced as a whole
        fill(folder, "new")
    assert read(out) == {"a": "new", "inner/b": "new"}


def test_folders_that_stay_are_on_the_disk_before_the_old_one_is_removed(tmp_path: Path, monkeypatch) -> None:
    out, synced = tmp_path / "out", []
    write_file(out / "more" / "deep" / "own", "mine")
    monkeypatch.setattr(disk, "sync", lambda path: synced.append(path.name))
    with new_folder(out, owned=set()) as folder:
        write_file(folder / "a", "new")
    assert {"more", "deep"} <= set(synced) and read(out) == {"a": "new", "more/deep/own": "mine"}


def test_links_stay_links_and_devices_are_written_to(tmp_path: Path) -> None:
    write_file(tmp_path / "there" / "real", "old")
    (tmp_path / "link").symlink_to(tmp_path / "there" / "real")
    write_file(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "there" / "real").read_text() == "new"
    (tmp_path / "linked folder").symlink_to(tmp_path / "there")
    with new_folder(tmp_path / "linked folder") as folder:
        fill(folder, "new")
    assert (tmp_path / "linked folder").is_symlink() and set(read(tmp_path / "there")) == {"a", "inner/b"}
    write_file(Path("/dev/null"), "gone")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    said = subprocess.run(
        [sys.executable, "-c", "from quaere.disk import *; write_file(Path('/dev/stdout'), 'said')"],
        stdout=subprocess.PIPE,
        check=True,
    )
    assert said.stdout == b"said"


def test_a_folder_discarded_is_gone(tmp_path: Path) -> None:
    fill_at = tmp_path / "out"
    fill_at.mkdir()
    fill(fill_at, "x")
    discard_folder(fill_at)
    assert names(tmp_path) == []


# ---------------------------------------------------------------------------------------------------------- modes


@pytest.mark.usefixtures("umask")
def test_modes_are_those_of_the_umask(tmp_path: Path) -> None:
    """However private a writer made them, and directories can be entered."""
    with new_folder(tmp_path / "out") as folder:
        fill(folder, "x")
        (folder / "a").chmod(0o600)
        (folder / "inner").chmod(0o700)
    assert [mode(tmp_path / "out" / name) for name in (".", "inner", "a", "inner/b")] == [0o750, 0o750, 0o640, 0o640]
    write_file(tmp_path / "file", "x")
    with scratch_folder(tmp_path / "out") as scratch:
        assert [mode(tmp_path / "file"), mode(scratch)] == [0o640, 0o750]


@pytest.mark.usefixtures("umask")
def test_what_somebody_made_private_stays_private_when_it_is_replaced(tmp_path: Path) -> None:
    write_file(tmp_path / "file", "old")
    (tmp_path / "out").mkdir(0o700)
    (tmp_path / "file").chmod(0o600)
    write_file(tmp_path / "file", "new")
    for _ in range(2):
        with new_folder(tmp_path / "out") as folder:
            fill(folder, "new")
    assert [mode(tmp_path / "file"), mode(tmp_path / "out"), mode(tmp_path / "out" / "a")] == [0o600, 0o700, 0o640]


# ------------------------------------------------------------------------------------------------------ leftovers

LEFT = ".out.partial-0123456789abcdef"


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path: Path) -> None:
    (tmp_path / LEFT).mkdir()
    fill(tmp_path / LEFT, "half")
    (tmp_path / LEFT.replace("0", "a")).touch()  # of a file
    others = [".out.partial-notes", ".other.partial-0123456789abcdef", "out.partial-0123456789abcdef"]
    for name in others:
        (tmp_path / name).mkdir()
    with new_folder(tmp_path / "out") as folder:
        fill(folder, "new")
    assert names(tmp_path) == sorted([*others, "out"])
    remove_leftovers(tmp_path)
    assert names(tmp_path) == sorted([".out.partial-notes", "out.partial-0123456789abcdef", "out"])


def test_what_a_living_writer_builds_is_left_alone(tmp_path: Path) -> None:
    """Two build the same target; the one that ends last wins, and neither takes anything from the other."""
    with scratch_folder(tmp_path / "out") as scratch, new_folder(tmp_path / "out") as slow:
        fill(slow, "slow")
        with new_folder(tmp_path / "out") as fast:
            fill(fast, "fast")
        remove_leftovers(tmp_path)
        assert read(tmp_path / "out") == {"a": "fast", "inner/b": "fast"}
        assert read(slow) == {"a": "slow", "inner/b": "slow"} and scratch.is_dir()
    assert read(tmp_path / "out") == {"a": "slow", "inner/b": "slow"}
    assert names(tmp_path) == ["out"]


def test_on_a_file_system_without_locks_nothing_of_others_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(disk.fcntl, "flock", flock)
    (tmp_path / LEFT).mkdir()
    write_file(tmp_path / "out", "new")
    assert names(tmp_path) == [LEFT, "out"]


def test_a_killed_exchange_in_two_steps_is_undone_by_the_next_writer(tmp_path: Path) -> None:
    (tmp_path / ".out.old-0123456789abcdef").mkdir()
    fill(tmp_path / ".out.old-0123456789abcdef", "old")
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "out"):
        raise ZeroDivisionError
    assert read(tmp_path / "out") == {"a": "old", "inner/b": "old"} and names(tmp_path) == ["out"]


# ---------------------------------------------------------------------------------------------------------- disks


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("moment", ["make", "write", "sync"])
def test_a_disk_that_refuses_is_one_line_and_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, moment: str
) -> None:
    write_file(tmp_path / "file", "old")
    with new_folder(tmp_path / "out") as folder:
        fill(folder, "old")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    if moment == "make":
        monkeypatch.setattr(disk, "_make_locked", refuse)
    elif moment == "sync":
        monkeypatch.setattr(disk, "sync", refuse)
    for target, new in ((tmp_path / "file", new_file), (tmp_path / "out", new_folder)):
        with pytest.raises(BadInput) as caught, new(target):
            (refuse if moment == "write" else str)()
        assert str(caught.value) == f"cannot write {target}: {os.strerror(number)}"
        assert ("make room" in caught.value.hint) == (number in (errno.ENOSPC, errno.EDQUOT))
    assert (tmp_path / "file").read_text() == "old" and read(tmp_path / "out") == {"a": "old", "inner/b": "old"}
    assert names(tmp_path) == ["file", "out"]


def write_too_much(out: Path) -> None:
    """In a process of its own: write a file larger than it may be."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    with new_folder(out) as folder:
        save_file({"w": torch.zeros(10_000)}, folder / "model.safetensors")


def test_a_full_disk_under_a_library_that_is_not_python_is_said_too(tmp_path: Path) -> None:
    """safetensors and tokenizers raise errors of their own, which name the system's by number."""
    _, stderr = start(write_too_much, tmp_path / "out")
    with stderr:
        said = stderr.read().splitlines()
    assert f"quaere.errors.BadInput: cannot write {tmp_path / 'out'}: File too large" in said
    assert names(tmp_path) == []


# --------------------------------------------------------------------------------------------------------- killed

KILLED = """
import json, os, signal, sys
from pathlib import Path
from quaere import disk

kind, root = sys.argv[1], Path(sys.argv[2])
target = root / "out"

def write(content):
    if kind == "file":
        return disk.write_file(target, content * 1000)
    with disk.new_folder(target) as folder:
        (folder / "inner").mkdir()
        for name in ("a", "inner/b"):
            (folder / name).write_text(content * 1000)

def read():
    if not target.exists():
        return None
    files = [target] if kind == "file" else sorted(path for path in target.rglob("*") if path.is_file())
    found = {path.read_text() for path in files}
    return found.pop()[:3] if len(found) == 1 and len(files) == (1 if kind == "file" else 2) else "torn"

def write_and_die(moment):
    seen = 0
    def die(event, args):
        nonlocal seen
        if event.partition(".")[0] in ("os", "open", "fcntl", "shutil", "ctypes"):
            seen += 1
            if seen == moment:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(die)
    if kind == "folder without exchange":
        def cannot(*_):
            raise OSError(22, "Invalid argument")
        disk._swap = cannot
    write("new")
    os._exit(0)

for first in ("old", None):
    for moment in range(1, 1000):
        if first:
            write(first)
        elif target.exists():
            target.unlink() if kind == "file" else disk.discard_folder(target)
        child = os.fork()
        if child == 0:
            write_and_die(moment)
        died = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        after = read()
        try:
            with disk.new_folder(target) if kind != "file" else disk.new_file(target):
                raise ZeroDivisionError  # the next writer fails, and only clears up
        except ZeroDivisionError:
            pass
        print(json.dumps([first, died, after, read(), sorted(os.listdir(root))]))
        if not died:
            break
"""


@pytest.mark.parametrize("kind", ["file", "folder", "folder without exchange"])
def test_killed_at_each_of_its_steps_it_leaves_the_old_or_the_new(tmp_path: Path, kind: str) -> None:
    """At every call to the system that Python audits: open, mkdir, rename, chmod, lock, remove."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, kind, str(tmp_path)], capture_output=True, text=True, check=True
    )
    rounds = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rounds) > 16 and [first for first, died, *_ in rounds if not died] == ["old", None]
    for first, died, after, later, left in rounds:
        if died and kind == "folder without exchange" and after is None:
            assert later == first  # between two renames: the next writer has put it back
        else:
            assert after in ((first, "new") if died else ("new",))
            assert later == after
        assert left == ([] if later is None else ["out"])
    for first in ("old", None):  # kills came before the moment it appeared and after it
        assert {later for begun, died, _, later, _ in rounds if died and begun == first} == {first, "new"}
