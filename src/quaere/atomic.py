"""Files and folders that appear whole or not at all.

    write_file(Path("scores.json"), data)
    with new_file(Path("items.parquet")) as partial:
        parquet.write_table(table, partial)
    with new_folder(Path("solver")) as folder:
        model.save_pretrained(folder)

What is written lies under a hidden name beside its target (`.solver.partial-5f2c...`) until it is complete. Then it is
synced, gets the modes that the umask says, and one rename puts it in place: a process killed at any moment leaves the
old or the new. Whoever writes holds a lock on what it writes, and the system lets go of it with the process. So what a
killed process left can be told from what a living one is building, and the next writer of the same target removes it.

A disk that is full or read-only is a `BadInput` of one line, and what stood at the target stays.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from quaere.errors import BadInput, QuaereError

_PARTIAL, _OLD = "partial", "old"
_LEFTOVER = re.compile(rf"\.(?P<name>.+)\.(?P<kind>{_PARTIAL}|{_OLD})-[0-9a-f]{{16}}")
_RUST_ERROR = re.compile(r"\(os error (\d+)\)")  # how safetensors and tokenizers name an error of the system
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
DISK_ERRORS = _FULL | {errno.EROFS, errno.EIO}
"""Error numbers of a disk that is full, read-only or broken: never the program's fault."""
_CANNOT_SWAP = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EXDEV}


# ----------------------------------------------------------------------------------------------------------- writing


def write_file(path: Path, content: bytes | str) -> None:
    """Write a file, text in UTF-8 with its line endings as they are; what stood there is replaced."""
    with new_file(path) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """An empty file to write into, which becomes `path` at the end. A link stays one: what it points to is replaced.

    A pipe or a device (`/dev/stdout`) cannot be replaced and is written to as it is.
    """
    target = path.resolve() if path.is_symlink() else path.absolute()
    with explain_errors(path):
        if (path.exists() and not path.is_file()) or path.absolute().is_relative_to("/dev"):
            yield path
            return
        with _staged(target, _touch) as partial:
            yield partial
            if target.exists():
                _set_mode(partial, target.stat().st_mode)
            sync(partial)
            partial.replace(target)
            sync(target.parent)


@contextmanager
def new_folder(out: Path, *, replace: bool = True) -> Iterator[Path]:
    """A folder to write into, which becomes `out` at the end, in place of what is there; nothing if that fails.

    Without `replace`, a folder that has something in it is left alone and an error.
    """
    target = out.resolve() if out.is_symlink() else out.absolute()  # "." has no name of its own
    with explain_errors(out), _staged(target, Path.mkdir) as partial:
        yield partial
        _open_up(partial)
        if target.is_dir():
            _set_mode(partial, target.stat().st_mode)
        for path in _walk(partial):
            sync(path)
        sync(partial)
        _put_in_place(partial, target, replace)
        sync(target.parent)


@contextmanager
def scratch_folder(beside: Path) -> Iterator[Path]:
    """A folder beside a target, on the same disk, for what is needed while the target is made; gone afterwards."""
    with explain_errors(beside.absolute().parent), _staged(beside.absolute(), Path.mkdir) as folder:
        yield folder


def discard_folder(path: Path) -> Path:
    """Delete a folder so that, if the process is killed half-way, nothing is left under its name.

    Returns the name under which lies what could not be deleted, if anything could not.
    """
    condemned = _name_beside(path, _PARTIAL)
    path.rename(condemned)
    _remove(condemned)
    return condemned


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def explain_errors(path: Path) -> Iterator[None]:
    """Around everything that writes to `path`: what the disk refuses is one line, with the reason.

    with explain_errors(Path("out")): ...     # BadInput("cannot write out: No space left on device")
    """
    try:
        yield
    except QuaereError:
        raise
    except Exception as error:
        number, reason = _read_reason(error)
        if not reason:
            raise
        hint = "make room on the disk, or write to another" if number in _FULL else ""
        raise BadInput(f"cannot write {path}: {reason}", hint=hint) from error


def _read_reason(error: Exception) -> tuple[int | None, str]:
    """The system's error number and its words; no words where it is no error of the system."""
    if isinstance(error, OSError):
        return error.errno, error.strerror or " ".join(str(error).split())
    found = _RUST_ERROR.search(str(error))
    return (int(found[1]), os.strerror(int(found[1]))) if found else (None, "")


# --------------------------------------------------------------------------------------------------------- leftovers


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Remove what killed processes left in a folder of targets; with `name`, of that target alone.

    What a living process writes is locked and stays. So does everything on a file system that knows no locks.
    """
    for path in _list(folder):
        found = _LEFTOVER.fullmatch(path.name)
        if not found or (name is not None and found["name"] != name):
            continue
        with suppress(OSError), _open_locked(path):  # else somebody is writing it, or has just finished
            target = path.with_name(found["name"])
            if found["kind"] == _OLD and not target.exists():
                path.rename(target)  # killed between the two renames of `_swap_in_two`
            else:
                _remove(path)


@contextmanager
def _staged(target: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """Something new beside a target, locked by this process; removed at the end unless it has been renamed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(target.parent, target.name)
    partial, handle = _make_locked(target, make)
    try:
        yield partial
    finally:
        _remove(partial)
        os.close(handle)


def _make_locked(target: Path, make: Callable[[Path], None]) -> tuple[Path, int]:
    while True:
        partial = _name_beside(target, _PARTIAL)
        make(partial)
        # Another writer of this target may take it for a leftover before the lock is there; then it is made anew.
        with suppress(FileNotFoundError):
            handle = os.open(partial, os.O_RDONLY)
            if _is_ours(partial, handle):
                return partial, handle
            os.close(handle)


def _is_ours(partial: Path, handle: int) -> bool:
    try:
        _lock(handle)
        return os.path.samestat(os.fstat(handle), partial.stat())
    except (BlockingIOError, FileNotFoundError):
        return False
    except OSError:  # a file system without locks, where nobody removes leftovers
        return True


@contextmanager
def _open_locked(path: Path) -> Iterator[None]:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        _lock(handle)
        yield
    finally:
        os.close(handle)


def _lock(handle: int) -> None:
    """Lock until the handle is closed or the process ends; `BlockingIOError` if another holds the lock."""
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _name_beside(target: Path, kind: str) -> Path:
    return target.with_name(f".{target.name}.{kind}-{os.urandom(8).hex()}")


def _touch(path: Path) -> None:
    path.touch(exist_ok=False)


def _list(folder: Path) -> list[Path]:
    with suppress(OSError):  # a folder that can be written to and not read
        return sorted(folder.iterdir())
    return []


def _remove(path: Path) -> None:
    """Delete a file or a folder, as far as that is possible: what stays is removed by the next writer."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


# ------------------------------------------------------------------------------------------------- modes and renames


def _open_up(folder: Path) -> None:
    """Give everything in a new folder the modes of the umask: some writers make files only their owner can read."""
    mode = folder.stat().st_mode  # as `mkdir` left it; to ask for the umask would mean to change it for a moment
    for path in _walk(folder):
        _set_mode(path, mode if path.is_dir() else mode & 0o666)


def _set_mode(path: Path, mode: int) -> None:
    current = stat.S_IMODE(path.stat().st_mode)
    wanted = (current & ~0o777) | (mode & 0o777)
    if wanted != current:
        with suppress(PermissionError):  # a file system without modes, or a linked file of another person
            path.chmod(wanted)


def _walk(folder: Path) -> list[Path]:
    """Everything below a folder that lies in it: where a link points to is not its business."""
    return [path for path in folder.rglob("*") if not path.is_symlink()]


def _put_in_place(partial: Path, target: Path, replace: bool) -> None:
    try:
        partial.rename(target)  # works if nothing is there, or an empty folder
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if not replace:
            raise FileExistsError(errno.EEXIST, "it exists already") from error
    try:
        _swap(partial, target)
    except OSError as error:
        if error.errno not in _CANNOT_SWAP:
            raise
        _swap_in_two(partial, target)


def _swap(one: Path, other: Path) -> None:
    """Exchange two folders at once, so that at no moment there is nothing under either name."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    try:
        if sys.platform == "darwin":
            failed = libc.renamex_np(*names, 2)  # RENAME_SWAP
        else:
            failed = libc.renameat2(-100, names[0], -100, names[1], 2)  # AT_FDCWD, RENAME_EXCHANGE
    except AttributeError as error:  # a C library of before 2018
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from error
    if failed:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(other))


def _swap_in_two(partial: Path, target: Path) -> None:
    """The same where the file system cannot: killed in between, the next writer of the target puts the old one back."""
    old = _name_beside(target, _OLD)
    handle = os.open(target, os.O_RDONLY)
    try:
        with suppress(OSError):
            _lock(handle)
        target.rename(old)
        try:
            partial.rename(target)
        except OSError:
            old.rename(target)
            raise
        _remove(old)
    finally:
        os.close(handle)
