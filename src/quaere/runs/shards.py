"""Episodes on disk: `episodes/00000.jsonl.zst`, `00001.jsonl.zst`, ..., each a sequence of complete zstd frames.

A frame holds the lines of one append and can be decompressed alone; a shard as a whole is an ordinary `.jsonl.zst` file
(`zstd -dc` reads it). Only the index in `run.db` knows where a frame starts: bytes that no index row points at were
left by a killed process, and the next writer truncates them.

    writer = ShardWriter(Path("runs/ask-1/episodes"), ends={0: 5120})
    writer.append([b'{"id":"ask-3",...}', b'{"id":"ask-4",...}']) == Frame(shard=0, offset=5120, length=874)
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import zstandard
from msgspec import Struct

from quaere.disk import open_regular, sync
from quaere.errors import BadInput

_SHARD = re.compile(r"(\d+)\.jsonl\.zst")
_LEVEL = 3
_SHARD_BYTES = 64 << 20  # a new shard starts once the current one has this size


class Frame(Struct, frozen=True):
    """Location of a zstd frame in a shard file; a frame holds the lines of one append.

    Frame(shard=0, offset=5120, length=874)
    """

    shard: int
    offset: int
    length: int


def shard_path(directory: Path, shard: int) -> Path:
    """Path of a shard file.

    shard_path(Path("episodes"), 3) == Path("episodes/00003.jsonl.zst")
    """
    return directory / f"{shard:05d}.jsonl.zst"


def read_frame(directory: Path, frame: Frame) -> list[bytes]:
    """The lines of one frame; raises BadInput if the file does not contain what the index says."""
    path = shard_path(directory, frame.shard)
    try:
        with open_regular(path) as stream:
            stream.seek(frame.offset)
            compressed = stream.read(frame.length)
        return zstandard.ZstdDecompressor().decompress(compressed).splitlines()
    except (OSError, zstandard.ZstdError) as error:
        where = f"{path} at byte {frame.offset}"
        raise BadInput(
            f"the episodes in {where} are damaged: {error}", hint="restore the file from a backup"
        ) from error


class ShardWriter:
    """Appends frames to shards. `ends` is the indexed length of each shard; bytes beyond it are truncated first."""

    def __init__(self, directory: Path, ends: Mapping[int, int], *, shard_bytes: int = _SHARD_BYTES) -> None:
        self._directory = directory
        self._shard_bytes = shard_bytes
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True, write_content_size=True)
        directory.mkdir(exist_ok=True)
        self._shard, self._end, self._file = self._open_at(ends)

    def append(self, lines: Sequence[bytes]) -> Frame:
        """Write the lines as one frame and sync it to disk; a failed write is undone."""
        if self._end >= self._shard_bytes:
            self._file.close()
            self._shard, self._end = self._shard + 1, 0
            self._file = shard_path(self._directory, self._shard).open("ab")
        compressed = self._compressor.compress(b"".join(line + b"\n" for line in lines))
        try:
            self._file.write(compressed)
            self._file.flush()
            os.fsync(self._file.fileno())
            if self._end == 0:
                sync(self._directory)  # without this, a power cut could lose the new file's directory entry
        except OSError:
            self.discard()
            raise
        frame = Frame(shard=self._shard, offset=self._end, length=len(compressed))
        self._end += len(compressed)
        return frame

    def discard(self, frame: Frame | None = None) -> None:
        """Remove the frame just appended, or the rest of a failed write, because it is not indexed."""
        if frame is not None:
            self._end = frame.offset
        path = shard_path(self._directory, self._shard)
        with suppress(OSError):  # close() may flush the bytes that did not fit and fail again
            self._file.close()
        os.truncate(path, self._end)
        self._file = path.open("ab")

    def cut(self, ends: Mapping[int, int]) -> None:
        """Truncate each shard to its length in `ends`, after rows of the index were deleted."""
        self._file.close()
        self._shard, self._end, self._file = self._open_at(ends)

    def close(self) -> None:
        """Close the current shard file."""
        self._file.close()

    def _open_at(self, ends: Mapping[int, int]) -> tuple[int, int, BinaryIO]:
        """Delete bytes and shards beyond `ends`, and open the last shard for appending: (number, size, file).

        Raises BadInput, before changing anything, if a shard is shorter than its entry in `ends`.
        """
        last = max(ends, default=0)
        # Check all shards before truncating any: a store that has lost data stays unchanged for recovery.
        for shard, end in ends.items():
            path = shard_path(self._directory, shard)
            size = path.stat().st_size if path.is_file() else 0
            if size < end:
                said = f"{path} has {size} bytes, but the index expects {end}"
                raise BadInput(f"{said}: episodes are lost", hint="restore the file from a backup")
        for path in self._directory.iterdir():
            found = _SHARD.fullmatch(path.name)
            if found and int(found[1]) > last:
                path.unlink()
            elif found and path.stat().st_size > ends.get(int(found[1]), 0):
                os.truncate(path, ends.get(int(found[1]), 0))
        return last, ends.get(last, 0), shard_path(self._directory, last).open("ab")
