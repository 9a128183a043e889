"""Split checked questions for hardening: the chains with the facts that end them, for lessons, and all other facts.

    python benchmarks/split_chains.py practice.jsonl --lessons lessons.jsonl --facts facts.jsonl
    python benchmarks/split_chains.py practice.jsonl passed.jsonl ...     # and what passed the gate: hardening_yield.py

A lesson rewords the fact that ends a chain to that chain (`warmup --proposer-task harden`), so these facts are not
among those that a taught proposer is asked to reword.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from quaere.api.checked_questions import read_checked, write_lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", type=Path, nargs="+")
    parser.add_argument("--lessons", type=Path, required=True, help="file for the chains and the facts that end them")
    parser.add_argument("--facts", type=Path, required=True, help="file for the other single facts")
    args = parser.parse_args()
    questions = {question.id: question for path in args.questions for question in read_checked(path)}.values()
    chains = [question for question in questions if question.kind == "chain"]
    singles = [question for question in questions if question.kind == "single"]
    ends = {chain.id.rpartition(">")[2] for chain in chains}
    lessons = [*chains, *(fact for fact in singles if fact.id in ends)]
    facts = [fact for fact in singles if fact.id not in ends]
    write_lines(args.lessons, lessons)
    write_lines(args.facts, facts)
    print(f"{args.lessons}: {len(chains)} chains, {len(lessons) - len(chains)} facts; {args.facts}: {len(facts)} facts")


if __name__ == "__main__":
    main()
