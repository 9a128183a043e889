"""Per-question results in a small file: JSON Lines, one question per line, gzipped if the name ends in `.gz`.

    {"id":"q1","text_hash":"3f0c9a51","set":"popqa","answer":"Venn","exact_match":1.0,"f1":1.0,"end":"answered",...}

    write_items([score.item for score in scores], Path("warm.items.jsonl.gz"))
    read_items(Path("warm.items.jsonl.gz"))[0].f1 -> 1.0

Questions, documents and quoted spans are left out, so a file of some thousand questions takes tens of kilobytes and can
be committed beside its table. Equal items give equal bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, field

from quaere.disk import write_file
from quaere.errors import BadInput
from quaere.records import EndReason
from quaere.records.foreign_json import decode_json
from quaere.search.json_lines import read_lines

SUFFIX = ".items.jsonl.gz"
_SUFFIXES = (".jsonl", ".jsonl.gz")


class Item(Struct, frozen=True, omit_defaults=True):
    """The result of one question. `answer` is None if the episode ended without one.

    `text_hash` distinguishes questions with the same id. `present`, `verbatim`, `supported` and `gold` describe the
    quoted span: None if no span was requested; `supported` is also None if the span was not judged, `gold` if the
    question's gold passages are not known. `facts`, the number of facts the question combines, is stored under the name
    `hops`. `kind` is the kind of answer asked for, "" in files written before it was stored; `right_option` and
    `option` are, for a closed kind, the option that is right and the one that the answer takes (`answer_kinds`).

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
    gold: bool | None = None
    kind: str = ""
    right_option: str = ""
    option: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Key shared by all results of the same question."""
        return self.id, self.text_hash

    @property
    def joint(self) -> bool:
        """True if the answer is right and the span was judged to support it."""
        return self.exact_match == 1.0 and self.supported is True

    @property
    def gold_joint(self) -> bool:
        """True if the answer is right and the span is of a gold passage and holds an accepted answer."""
        return self.exact_match == 1.0 and self.gold is True


def hash_text(text: str) -> str:
    """Eight hex digits of the SHA-256 of a question's text."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def check_items_path(path: Path) -> None:
    """Raise BadInput if the file name does not tell the reader the format."""
    if not path.name.endswith(_SUFFIXES):
        raise BadInput(f"a file of per-question results must end in {' or '.join(_SUFFIXES)}, not {path.name}")


def items_name(path: Path) -> str:
    """The name of the result in an items file: `warm` for `results/warm.items.jsonl.gz`."""
    return path.name.partition(".jsonl")[0].removesuffix(".items")


def write_items(items: Sequence[Item], path: Path) -> None:
    """Write one line per question; an existing file is replaced atomically."""
    check_items_path(path)
    data = b"".join(msgspec.json.encode(item) + b"\n" for item in items)
    write_file(path, _compress(data) if path.suffix == ".gz" else data)


def _compress(data: bytes) -> bytes:
    """The data gzipped without time and file name, so that equal items give equal bytes."""
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, compresslevel=9, mtime=0) as file:
        file.write(data)
    return packed.getvalue()


def read_items(path: Path) -> list[Item]:
    """Results written by `write_items`; an error names the number of the invalid line."""
    items: list[Item] = []
    for number, line in read_lines(path):
        try:
            items.append(decode_json(line, Item))
        except msgspec.DecodeError as error:
            hint = "quaere eval ... --items FILE.jsonl.gz"
            raise BadInput(f"{path}, line {number}: not a per-question result: {error}", hint=hint) from error
    if not items:
        raise BadInput(f"{path} contains no per-question result", hint="quaere eval ... --items FILE.jsonl.gz")
    if len({item.id for item in items}) < len(items):
        raise BadInput(f"{path} contains two results with the same question id; ids must be unique")
    return items
