"""The ratios of lessons in `quaere warmup`: facts for a solver, hops for a proposer, kinds for score.

quaere warmup drzero --facts 4,3,2,1 --proposer-hops 4,3,2,1
"""

from __future__ import annotations

import argparse

from quaere.errors import BadInput

_FACTS, _HOPS, _LESSONS = "4,3,2,1", "4,3,2,1", "5,2,3"


def add_ratios(group: argparse._ArgumentGroup) -> None:
    """Add the options for the ratios."""
    add = group.add_argument
    solver = f"solver: weights of questions that combine 1, 2, ... facts, a search each (default: {_FACTS})"
    proposer = (
        "proposer: weights of 1, 2, ... hops in Dr. Zero's count, in which n hops are n - 1 facts and searches "
        f"(default: {_HOPS})"
    )
    add("--facts", metavar="LIST", help=solver)
    add("--proposer-hops", metavar="LIST", help=proposer)
    add("--hops", metavar="LIST", help="sets --facts and --proposer-hops to the same weights: the earlier name")
    lessons = f"score: weights of reports, rubrics, assessments (default: {_LESSONS})"
    add("--lessons", default=_LESSONS, metavar="LIST", help=lessons)


def read_ratios(args: argparse.Namespace) -> str:
    """Replace the options' text by weights; a notice for the user if `--hops` was used, else ""."""
    typed = args.hops
    if typed is not None and (args.facts is not None or args.proposer_hops is not None):
        raise BadInput(
            "--hops sets --facts and --proposer-hops, so it cannot be combined with them",
            hint="--facts LIST --proposer-hops LIST, without --hops",
        )
    args.lessons = _weights("--lessons", _LESSONS, args.lessons)
    if typed is None:
        args.facts = _weights("--facts", _FACTS, _FACTS if args.facts is None else args.facts)
        hops = _HOPS if args.proposer_hops is None else args.proposer_hops
        args.proposer_hops = _weights("--proposer-hops", _HOPS, hops)
        return ""
    args.facts = args.proposer_hops = _weights("--hops", _FACTS, typed)
    same = f"--facts {typed} for a solver and --proposer-hops {typed} for a proposer"
    return f"--hops {typed} is read as {same}: n facts are n searches, n hops are n - 1"


def _weights(option: str, example: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(weight) for weight in text.split(","))
    except ValueError:
        raise BadInput(f"{option} must be a list of whole numbers such as {example}, not {text}") from None
