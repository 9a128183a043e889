"""Atomic writes, which appear complete or not at all, and reads of files that somebody else laid out.

    write_file(Path("scores.json"), data)
    with new_file(Path("items.parquet")) as partial:
        parquet.write_table(table, partial)
    with new_folder(Path("solver")) as folder:
        model.save_pretrained(folder)

Data is written to a hidden name beside the target (`.solver.partial-5f2c...`). When it is complete, it is synced to
disk, gets the file modes of the umask, and is renamed to the target: a process killed at any moment leaves either the
old target or the new one. The writer holds a lock on the hidden file or folder, which the operating system releases
when the process ends. The lock tells leftovers of killed processes from work in progress, and the next writer of the
same target removes the leftovers.

A full or read-only disk raises `BadInput` with a one-line message; the old target stays.

Only regular files are read: opening a pipe blocks until something writes to it, which may be never, and a device may
have no end. Both can be in a folder that was unpacked or shared.
"""

import errno
import fcntl
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from quaere.errors import BadInput, QuaereError

_PARTIAL, _OLD = "partial", "old"
_LEFTOVER = re.compile(rf"\.(?P<name>.+)\.(?P<kind>{_PARTIAL}|{_OLD})-[0-9a-f]{{16}}")
_RUST_ERROR = re.compile(r"\(os error (\d+)\)")  # an operating system error in safetensors and tokenizers
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# Error numbers of a full, read-only or broken disk: problems of the machine, not bugs.
DISK_ERRORS = _FULL | {errno.EROFS, errno.EIO}
_CANNOT_SWAP = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EXDEV}


# ----------------------------------------------------------------------------------------------------------- writing


def write_file(path: Path, content: bytes | str) -> None:
    """Write a file atomically, replacing an existing one; text is encoded as UTF-8 and its line endings are kept."""
    with new_file(path) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Context manager: an empty file to write to, which is renamed to `path` on success.

    A symbolic link is kept and the file it points to is replaced. A pipe or a device (`/dev/stdout`) cannot be
    replaced, so it is written to directly.
    """
    target = path.resolve() if path.is_symlink() else path.absolute()
    with explain_errors(path):
        if (path.exists() and not path.is_file()) or path.absolute().is_relative_to("/dev"):
            yield path
            return
        with _staged(target, lambda new: new.touch(exist_ok=False)) as partial:
            yield partial
            if target.exists():
                _set_mode(partial, target.stat().st_mode)
            sync(partial)
            partial.replace(target)
            sync(target.parent)


@contextmanager
def new_folder(out: Path, *, replace: bool = True, owned: Container[str] | None = None) -> Iterator[Path]:
    """Context manager: an empty folder to write to, which replaces `out` on success; on an error `out` is unchanged.

    With `replace=False`, a folder at `out` that is not empty is kept and an error is raised. With `owned`, entries of
    `out` that have other names and are not written anew stay: somebody has put them there.
    """
    target = out.resolve() if out.is_symlink() else out.absolute()  # "." has no name of its own
    with explain_errors(out), _staged(target, Path.mkdir) as partial:
        yield partial
        _open_up(partial)
        if target.is_dir():
            _set_mode(partial, target.stat().st_mode)
        for path in _walk(partial):
            sync(path)
        if owned is not None and target.is_dir():
            _carry_over(target, partial, owned)
        sync(partial)
        _put_in_place(partial, target, replace)
        sync(target.parent)


@contextmanager
def scratch_folder(beside: Path) -> Iterator[Path]:
    """Context manager: a temporary folder on the same disk as a target; removed on exit."""
    with explain_errors(beside.absolute().parent), _staged(beside.absolute(), Path.mkdir) as folder:
        yield folder


def discard_folder(path: Path) -> Path:
    """Delete a folder atomically: after the rename, a process killed half-way leaves nothing at `path`.

    Returns the path of what could not be deleted, if anything could not.
    """
    condemned = _name_beside(path, _PARTIAL)
    path.rename(condemned)
    _remove(condemned)
    return condemned


def refuse_taken(out: Path, what: str, *, is_ours: bool, force: bool, hint: str = "choose another --out") -> None:
    """Raise `BadInput` if `out` has contents, unless they are what the caller writes and `force` replaces them.

    refuse_taken(Path("warm"), "a warmed-up model", is_ours=True, force=False)     # "warm is a warmed-up model already"
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not is_ours:
        said = f"{out} exists already and is not {what}, so it is not replaced"
        raise BadInput(said, hint="choose another --out")
    if not force:
        raise BadInput(f"{out} is {what} already", hint=f"{hint}, or --force to replace it")


def link_file(source: str | Path, target: str | Path) -> None:
    """A second name for a file that is never written to again; a copy where there are no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk (fsync)."""
    with _opened(path) as handle:
        os.fsync(handle)


def append_whole(handle: int, data: bytes, *, synced: bool = False) -> int:
    """Append all of the data to an open file, or nothing; returns the offset of its first byte.

    A full disk takes a part of it, and what is appended after a part cannot be read.
    """
    offset, written = os.fstat(handle).st_size, 0
    try:
        while written < len(data):
            written += os.pwrite(handle, data[written:], offset + written)
        if synced:
            os.fsync(handle)
    except BaseException:
        with suppress(OSError):
            os.ftruncate(handle, offset)
        raise
    return offset


@contextmanager
def explain_errors(path: Path) -> Iterator[None]:
    """Context manager that turns errors of the operating system while writing `path` into one-line `BadInput` errors.

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
        hint = "make room on the disk, or write to another disk" if number in _FULL else ""
        raise BadInput(f"cannot write {path}: {reason}", hint=hint) from error


def _read_reason(error: Exception) -> tuple[int | None, str]:
    """Error number and message of an operating system error; `(None, "")` for any other exception."""
    if isinstance(error, OSError):
        return error.errno, error.strerror or " ".join(str(error).split())
    found = _RUST_ERROR.search(str(error))
    return (int(found[1]), os.strerror(int(found[1]))) if found else (None, "")


# --------------------------------------------------------------------------------------------------------- leftovers


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Remove files and folders left by killed writers; with `name`, only those of that target.

    Work in progress is locked and stays. On a file system without locks nothing is removed.
    """
    for path in _list(folder):
        found = _LEFTOVER.fullmatch(path.name)
        if not found or (name is not None and found["name"] != name):
            continue
        with suppress(OSError), _opened(path, os.O_NOFOLLOW) as handle:
            _lock(handle)  # fails if another process writes it, or has just finished
            target = path.with_name(found["name"])
            if found["kind"] == _OLD and not target.exists():
                path.rename(target)  # killed between the two renames of `_swap_in_two`
            else:
                _remove(path)


@contextmanager
def _staged(target: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """Context manager: a new file or folder beside a target, locked by this process; removed on exit unless renamed."""
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
        # Between creation and lock, another writer of this target may remove the new file as a leftover: then retry.
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
    except OSError:  # a file system without locks, where leftovers are never removed
        return True


@contextmanager
def _opened(path: Path, flags: int = 0) -> Iterator[int]:
    handle = os.open(path, os.O_RDONLY | flags)
    try:
        yield handle
    finally:
        os.close(handle)


def _lock(handle: int) -> None:
    """Lock until the handle is closed or the process ends; `BlockingIOError` if another process holds the lock."""
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _name_beside(target: Path, kind: str) -> Path:
    return target.with_name(f".{target.name}.{kind}-{os.urandom(8).hex()}")


def _list(folder: Path) -> list[Path]:
    with suppress(OSError):  # a folder with write permission but no read permission
        return sorted(folder.iterdir())
    return []


def _remove(path: Path) -> None:
    """Delete a file or a folder and ignore errors: the next writer removes what remains."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


# ------------------------------------------------------------------------------------------------- modes and renames


def _open_up(folder: Path) -> None:
    """Give everything in a new folder the modes of the umask: some writers create files only their owner can read."""
    mode = folder.stat().st_mode  # set by `mkdir`; reading the umask itself means changing it for a moment
    for path in _walk(folder):
        _set_mode(path, mode if path.is_dir() else mode & 0o666)


def _set_mode(path: Path, mode: int) -> None:
    current = stat.S_IMODE(path.stat().st_mode)
    wanted = (current & ~0o777) | (mode & 0o777)
    if wanted != current:
        with suppress(PermissionError):  # a file system without modes, or a linked file with another owner
            path.chmod(wanted)


def _walk(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if not path.is_symlink()]


def _carry_over(old: Path, new: Path, owned: Container[str]) -> None:
    """Link the entries of a folder that are not `owned` into the one that replaces it, unless it has such ones."""
    for path in old.iterdir():
        if path.name in owned or os.path.lexists(new / path.name):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.copytree(path, new / path.name, symlinks=True, copy_function=link_file)
            for folder in filter(Path.is_dir, [new / path.name, *_walk(new / path.name)]):
                sync(folder)
        elif path.is_symlink():
            (new / path.name).symlink_to(path.readlink())
        else:
            link_file(path, new / path.name)


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
    """Exchange two folders atomically, so that both names exist at every moment."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    try:
        if sys.platform == "darwin":
            failed = libc.renamex_np(*names, 2)  # RENAME_SWAP
        else:
            failed = libc.renameat2(-100, names[0], -100, names[1], 2)  # AT_FDCWD, RENAME_EXCHANGE
    except AttributeError as error:  # glibc older than 2.28 (2018) has no renameat2
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from error
    if failed:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(other))


def _swap_in_two(partial: Path, target: Path) -> None:
    """Exchange with two renames, for file systems without an atomic exchange.

    If the process is killed in between, the next writer of the target puts the old folder back (`remove_leftovers`).
    """
    old = _name_beside(target, _OLD)
    with _opened(target) as handle:
        with suppress(OSError):
            _lock(handle)
        target.rename(old)
        try:
            partial.rename(target)
        except OSError:
            old.rename(target)
            raise
        _remove(old)


# -------------------------------------------------------------------------------------------------------------- reading


def open_regular(path: Path) -> BufferedReader:
    """A regular file, open for reading; an `OSError` for a pipe, a device, a socket or a folder."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # without O_NONBLOCK, a pipe blocks here
    try:
        mode = os.fstat(handle).st_mode  # of what was opened: the name may lead to another file by now
        if not stat.S_ISREG(mode):
            number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
            raise OSError(number, os.strerror(number) if stat.S_ISDIR(mode) else "Not a regular file", str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: Path) -> bytes:
    """The content of a regular file; an `OSError` for anything else."""
    with open_regular(path) as stream:
        return stream.read()


def find_special(paths: Iterable[Path]) -> Path | None:
    """The first of these that is neither a regular file nor a folder, also behind a link; missing ones are passed over.

    find_special(Path("runs/shared").iterdir()) -> Path("runs/shared/pipe")
    """
    for path in paths:
        with suppress(OSError):  # gone, or a link to nothing: reading it says so
            mode = path.stat().st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                return path
    return None
