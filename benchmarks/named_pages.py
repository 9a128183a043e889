"""How often a search with the question itself shows a gold page first, by score and with named titles first.

    python benchmarks/named_pages.py --index dev-index --questions DATA/dev/questions.jsonl.gz --digits 0-4
    python benchmarks/named_pages.py --index index --questions world/questions.jsonl --facts 1 --changed changed.jsonl

`--digits` keeps questions by the first hex digit of sha256(id), as `split_questions.py` does. `--changed` writes the
questions whose three passages are others, or in another order: only their answers can change with the order.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from results_table import first_digit, parse_digits
from tables import as_table

import quaere
from quaere.records import Hit
from quaere.search.engines import CANDIDATES, titles_first
from quaere.search.json_lines import read_lines

TOPK = 3
Row = dict[str, Any]


def read_rows(path: Path, digits: str, facts: int | None) -> Iterator[tuple[bytes, Row]]:
    """The lines of a file of questions that are asked for, and their contents."""
    wanted = parse_digits(digits)
    for _, line in read_lines(path):
        row = json.loads(line)
        if first_digit(row["id"]) in wanted and facts in (None, row.get("facts")):
            yield line, row


def gold_shares(rows: list[tuple[Row, list[Hit], list[Hit]]]) -> tuple[str, ...]:
    """Cells of a table: questions, then for each order the share with a gold page first and among three."""
    known = [row for row in rows if row[0].get("gold_ids")]
    cells = [str(len(known))]
    for order in (1, 2):
        for depth in (1, TOPK):
            found = sum(any(hit.passage.doc_id in row[0]["gold_ids"] for hit in row[order][:depth]) for row in known)
            cells.append(f"{100 * found / len(known):.1f}" if known else "")
    return tuple(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", required=True)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--digits", default="0-f", metavar="0-4")
    parser.add_argument("--facts", type=int, metavar="N", help="only questions of N facts")
    parser.add_argument(
        "--changed", type=Path, metavar="FILE", help="write the questions that are shown other passages"
    )
    args = parser.parse_args()
    index = quaere.Index.open(args.index)
    searched, changed = [], []
    for line, row in read_rows(args.questions, args.digits, args.facts):
        hits = index.search(row["question"], k=CANDIDATES)
        ordered = titles_first(row["question"], hits, TOPK)
        searched.append((row, hits[:TOPK], ordered))
        if hits[:TOPK] != ordered:
            changed.append(line.rstrip(b"\n") + b"\n")
    sets = sorted({row.get("set", "") for row, _, _ in searched})
    lines = [(name, *gold_shares([row for row in searched if row[0].get("set", "") == name])) for name in sets]
    head = ("set", "questions with gold", "by score: first", "among three", "named titles first: first", "among three")
    print(as_table(head, lines))
    print(f"\n{len(changed)} of {len(searched)} questions are shown other passages or another order")
    if args.changed:
        args.changed.write_bytes(b"".join(changed))


if __name__ == "__main__":
    main()
