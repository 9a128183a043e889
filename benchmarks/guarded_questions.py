"""What EVE's guards would say of questions that were given to a run: counted, and in two files for a person to read.

    quaere curriculum RUN --kept --json > kept.json
    python benchmarks/guarded_questions.py kept.json --index INDEX --out guarded
    python benchmarks/blind_sample.py guarded/passed.jsonl guarded/refused.jsonl --num 50 --out sheet.tsv --key key.json

Only guards on texts are asked: there is no proposer's episode, no verifier, and no tokenizer to count a span by. The
text that a question was written about is all of its document.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tables import as_table

from quaere.rewards.guards import GUARDS, Triple, refusals
from quaere.search.index import open_index

NOT_ASKED = ("focused", "needed", "new", "thoughtful", "searched", "travelled")
ON_TEXTS = tuple(name for name in GUARDS if name not in NOT_ASKED)


def name_kind(question_id: str) -> str:
    """The kind of a checked question, by its id: facts are joined by `>` in a chain, by `|` if they are compared."""
    return "chain" if ">" in question_id else "comparison" if "|" in question_id else "one fact"


def find_refusals(row: Mapping[str, Any], document: str) -> tuple[str, ...]:
    """The guards on texts that refuse a question with its answer and its sentence."""
    triple = Triple(
        question=row["question"],
        answer=row["answer"],
        span=row["span"],
        num_span_tokens=0,
        document=document,
        hops=row["hops"],
    )
    return refusals(triple, ON_TEXTS)


def count_kinds(found: Sequence[tuple[Mapping[str, Any], tuple[str, ...]]]) -> str:
    """A table: by kind of question how many were asked about, refused, and refused by each guard."""
    kinds = sorted({name_kind(row["id"]) for row, _ in found})
    guards = sorted({guard for _, refused in found for guard in refused})
    rows = []
    for kind in (*kinds, "all"):
        of_kind = [refused for row, refused in found if kind in (name_kind(row["id"]), "all")]
        counts = [sum(guard in refused for refused in of_kind) for guard in guards]
        rows.append([kind, *map(str, (len(of_kind), sum(map(bool, of_kind)), *counts))])
    return as_table(["", "questions", "refused", *guards], rows)


def write_questions(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Questions that `blind_sample.py` reads."""
    lines = [json.dumps({"id": row["id"], "question": row["question"], "answers": row["answers"]}) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kept", type=Path)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    index = open_index(args.index)
    rows = [row for row in json.loads(args.kept.read_text(encoding="utf-8")) if row["kept"]]
    found = [(row, find_refusals(row, index.document(row["document_id"]))) for row in rows]
    print(count_kinds(found))
    args.out.mkdir(parents=True, exist_ok=True)
    for name, is_refused in (("passed", False), ("refused", True)):
        write_questions([row for row, refused in found if bool(refused) == is_refused], args.out / f"{name}.jsonl")


if __name__ == "__main__":
    main()
