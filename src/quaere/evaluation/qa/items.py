"""Per-question results in a small file: JSON Lines, one question a line, compressed if the name ends with `.gz`.

    {"id":"q1","text_hash":"3f0c9a51","set":"popqa","answer":"Venn","exact_match":1.0,"f1":1.0,"end":"answered",...}

    write_items([score.item for score in scores], Path("warm.items.jsonl.gz"))
    read_items(Path("warm.items.jsonl.gz"))[0].f1 -> 1.0

Questions, documents and quoted spans are left out: a file of some thousand questions takes tens of kilobytes and can be
committed beside the table made from it. The same items give the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, field

from quaere.atomic import write_file
from quaere.errors import BadInput
from quaere.records import EndReason
from quaere.records.foreign_json import decode_json
from quaere.search.rows import read_lines

SUFFIX = ".items.jsonl.gz"
_SUFFIXES = (".jsonl", ".jsonl.gz")


class Item(Struct, frozen=True, omit_defaults=True):
    """The result of one question. `answer` is None where the episode ended without one.

    `text_hash` tells questions of the same id apart. `present`, `verbatim` and `supported` are about the quoted span:
    None where none was asked for, and `supported` also where nobody judged it.
    `facts` is how many facts the question combines, written under the name `hops`.

        Item(id="q1", text_hash="3f0c9a51", set="popqa", answer="Venn", exact_match=1.0, f1=1.0, end="answered",
             num_turns=2, num_searches=1, num_tokens=57)
    """

    id: str
    text_hash: str
    answer: str | None
    exact_match: float
    f1: float
    end: EndReason
    num_turns: int
    num_searches: int
    num_tokens: int
    num_malformed: int = 0
    search_failed: bool = False
    set: str = ""
    facts: int = field(default=0, name="hops")
    searches_needed: int = 0
    present: bool | None = None
    verbatim: bool | None = None
    supported: bool | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What two results of the same question share."""
        return self.id, self.text_hash

    @property
    def joint(self) -> bool:
        """Is the answer right and the span found to support it?"""
        return self.exact_match == 1.0 and self.supported is True


def hash_text(text: str) -> str:
    """Eight hex digits that stand for a question's wording."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def check_items_path(path: Path) -> None:
    """Refuse a name from which the reader could not tell what the file is."""
    if not path.name.endswith(_SUFFIXES):
        raise BadInput(f"a file of per-question results ends with {' or '.join(_SUFFIXES)}, not {path.name}")


def items_name(path: Path) -> str:
    """The name of the result in an items file: `warm` for `results/warm.items.jsonl.gz`."""
    return path.name.partition(".jsonl")[0].removesuffix(".items")


def write_items(items: Sequence[Item], path: Path) -> None:
    """Write one line per question; what stood at that path is replaced in one rename."""
    check_items_path(path)
    data = b"".join(msgspec.json.encode(item) + b"\n" for item in items)
    write_file(path, _compress(data) if path.suffix == ".gz" else data)


def _compress(data: bytes) -> bytes:
    """Gzip without a time or a file name in it, so that the same items give the same bytes."""
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, compresslevel=9, mtime=0) as file:
        file.write(data)
    return packed.getvalue()


def read_items(path: Path) -> list[Item]:
    """Read what `write_items` wrote; a broken line is named by its number."""
    items: list[Item] = []
    for number, line in read_lines(path):
        try:
            items.append(decode_json(line, Item))
        except msgspec.DecodeError as error:
            hint = "quaere eval ... --items FILE.jsonl.gz"
            raise BadInput(f"{path}, line {number}: no result of a question: {error}", hint=hint) from error
    if not items:
        raise BadInput(f"{path} holds no result of a question", hint="quaere eval ... --items FILE.jsonl.gz")
    if len({item.id for item in items}) < len(items):
        raise BadInput(f"{path} holds two results of one question")
    return items
