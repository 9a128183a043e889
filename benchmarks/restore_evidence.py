"""Put the evidence back into checked questions that were stored without it: the sentences their ids point to.

    python benchmarks/restore_evidence.py practice-1.jsonl.gz --index dev-index --out practice-1.jsonl

Newer files have the places of the sentences without their text; in older ones the id of a question names its facts,
each a passage and a place in it (`halm#0:16>sall#2:40`; `>` between the links of a chain, `|` between the sides of a
comparison). So the documents hold all that is needed. Questions whose places are not in the index, as after another
split into passages, are left out and counted.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from quaere.chat.statements import split_statements
from quaere.grouping import group_by
from quaere.records import Evidence, Passage
from quaere.search.index import open_index
from quaere.search.json_lines import read_lines


def find_sentence(fact: str, passages: Mapping[str, Passage]) -> Evidence | None:
    """The sentence at a place: find_sentence("halm#0:16", {...}) -> Evidence(doc_id="halm", start=0, ...)."""
    name, _, place = fact.rpartition(":")
    passage = passages.get(name)
    if passage is None or not place.isdecimal():
        return None
    for said in split_statements(passage.text):
        if said.start <= int(place) < said.start + len(said.text):
            start = passage.start + said.start
            return Evidence(passage.doc_id, start, start + len(said.text), said.text)
    return None


def read_span(span: Mapping[str, Any], passages: Sequence[Passage]) -> Evidence | None:
    """The text of a place: read_span({"doc_id": "halm", "start": 0, "end": 24}, [...]) -> Evidence(...)."""
    start, end = span["start"], span["end"]
    for one in passages:
        if one.start <= start and end <= one.end:
            return Evidence(one.doc_id, start, end, one.text[start - one.start : end - one.start])
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    passages = {passage.id: passage for passage in open_index(args.index).passages()}
    by_document = group_by(passages.values(), lambda passage: passage.doc_id)
    lines, num_lost = [], 0
    for _, line in read_lines(args.questions):
        row = json.loads(line)
        if spans := row.get("evidence"):
            evidence = [read_span(span, by_document.get(span["doc_id"], ())) for span in spans]
        else:
            evidence = [find_sentence(fact, passages) for fact in re.split(r"[>|]", row["id"])]
        if None in evidence:
            num_lost += 1
            continue
        row = {"hops": row["facts"], **row, "evidence": msgspec.to_builtins(evidence)}
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    args.out.write_text("".join(lines), encoding="utf-8")
    print(f"{args.out}: {len(lines)} questions with evidence, {num_lost} left out")


if __name__ == "__main__":
    main()
