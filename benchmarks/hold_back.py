"""Splits checked questions by document, so that what is held back shares no document with what is practised on.

    python benchmarks/hold_back.py questions.jsonl --digits 0-4 --practice practice.jsonl --held held.jsonl

A document is held back if the SHA-256 of its id begins with one of the digits. A question about documents of both
halves is in neither file, nor is one without evidence, whose documents are not known. An unanswerable question has no
evidence: the document that it is about is in its id ("halm.md#0:16-unanswerable"). Nor is one to practise on whose text
or whose sentences are those of one that is held back.
"""

import argparse
import json
from pathlib import Path

from results_table import first_digit, parse_digits

from quaere.search.json_lines import read_lines
from quaere.warmup.documents.held_back import find_contents, find_documents, split_by_document


def list_documents(line: bytes) -> list[str]:
    row = json.loads(line)
    return find_documents(row["id"], [span["doc_id"] for span in row.get("evidence", [])])


def list_contents(line: bytes) -> list[str]:
    row = json.loads(line)
    return find_contents(row.get("question", ""), [span.get("text", "") for span in row.get("evidence", [])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--digits", default="0-4", metavar="A-B", help="of the documents held back (default: 0-4)")
    parser.add_argument("--practice", type=Path, required=True)
    parser.add_argument("--held", type=Path, required=True)
    args = parser.parse_args()
    digits = parse_digits(args.digits)
    lines = (line.rstrip(b"\n") + b"\n" for _, line in read_lines(args.questions))
    practice, held, num_left_out = split_by_document(
        lines, list_documents, list_contents, lambda name: first_digit(name) in digits
    )
    if not practice and not held:
        parser.exit(2, f"{args.questions}: no question is about documents of one side only, or none has evidence\n")
    for path, chosen in ((args.practice, practice), (args.held, held)):
        path.write_bytes(b"".join(chosen))
    counts = f"{len(practice)} to practise on, {len(held)} held back"
    print(f"{counts}, {num_left_out} left out")


if __name__ == "__main__":
    main()
