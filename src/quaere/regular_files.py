"""Reading of files that somebody else laid out: regular files only, and never a wait for one.

    read_regular(Path("runs/shared/config.yaml"))        # b"model: smollm2-135m\n..."
    with open_regular(Path("runs/shared/episodes/00000.jsonl.zst")) as stream:
        stream.seek(5120)

Opening a pipe blocks until something writes to it, which may be never; a device may have no end. Both can be in a
folder that was unpacked or shared.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from io import BufferedReader
from pathlib import Path

_NOT_REGULAR = "Not a regular file"


def open_regular(path: Path) -> BufferedReader:
    """A regular file, open for reading; an `OSError` for a pipe, a device, a socket or a folder."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # without O_NONBLOCK, a pipe blocks here
    try:
        mode = os.fstat(handle).st_mode  # of what was opened: the name may lead to another file by now
        if not stat.S_ISREG(mode):
            raise OSError(*_describe(mode), str(path))
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
    return next((path for path in paths if _is_special(path)), None)


def _is_special(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:  # gone, or a link to nothing: reading it says so
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _describe(mode: int) -> tuple[int, str]:
    if stat.S_ISDIR(mode):
        return errno.EISDIR, os.strerror(errno.EISDIR)
    return errno.EINVAL, _NOT_REGULAR
