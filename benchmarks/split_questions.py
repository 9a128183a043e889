"""The questions of a file whose ids' SHA-256 begins with certain hex digits: a split that needs no list.

    python benchmarks/split_questions.py questions.jsonl.gz --digits 5-f --out report.jsonl

Lines are copied as they are. `benchmarks/results_table.py --digits` reads the same digits.
"""

import argparse
import json
from pathlib import Path

from results_table import first_digit, parse_digits

from quaere.search.json_lines import read_lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--digits", required=True, metavar="A-B")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    digits = parse_digits(args.digits)
    kept = [line for _, line in read_lines(args.questions) if first_digit(json.loads(line)["id"]) in digits]
    args.out.write_bytes(b"".join(line.rstrip(b"\n") + b"\n" for line in kept))
    print(f"{args.out}: {len(kept)} questions")


if __name__ == "__main__":
    main()
