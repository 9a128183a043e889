"""The options of `quaere eval`, group by group."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from quaere.policies.native.device import Precision

LIMITS = {
    "max_turns": "most turns of an episode",
    "max_searches": "most searches of an episode",
    "topk": "passages per search",
    "turn_tokens": "most tokens per turn",
    "sequence_tokens": "most tokens of an episode",
    "tool_response_tokens": "most tokens of a search's results",
}


def add_evidence(parser: argparse.ArgumentParser) -> None:
    """Add the options for evidence and its judge."""
    evidence = parser.add_argument_group("evidence")
    evidence.add_argument(
        "--evidence",
        action=argparse.BooleanOptionalAction,
        help="ask for the sentence that proves each answer (default: only for models taught to quote evidence)",
    )
    evidence.add_argument(
        "--judge",
        metavar="string|MODEL",
        help="what decides whether evidence supports the answer: a string check, or a model as after --model "
        "(default: nothing)",
    )
    evidence.add_argument(
        "--judge-items",
        type=int,
        default=100,
        metavar="N",
        help="questions to measure the judge's accuracy on first, each with its gold span and six corrupted ones "
        "(default: 100)",
    )
    evidence.add_argument(
        "--gold-sets",
        nargs="+",
        metavar="SET",
        help="sets whose `gold_ids` name every passage that proves the answer: there, evidence is also scored by "
        "whether it is of such a passage (default: the sets all of whose questions have gold_ids)",
    )


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Add the options for episode limits."""
    limits = parser.add_argument_group("limits", "default: as the model was trained, else those of the paper")
    for name, words in LIMITS.items():
        limits.add_argument(f"--{name.replace('_', '-')}", type=int, metavar="N", help=words)
    limits.add_argument(
        "--answer-turn",
        action=argparse.BooleanOptionalAction,
        help="reserve the last turn for the answer, and tell the model when no searches are left",
    )
    add_titles_first(limits)


def add_titles_first(parser: argparse._ActionsContainer) -> None:
    """Add the option for the order of search results."""
    parser.add_argument(
        "--titles-first",
        action=argparse.BooleanOptionalAction,
        help="show passages first whose title the query names, among the first ten found",
    )


def add_engine(parser: argparse.ArgumentParser, batched: str = "episodes") -> None:
    """Add the options for sampling and the engine; `batched` is what it runs several of at once."""
    engine = parser.add_argument_group("engine")
    engine.add_argument("--max-rows", type=int, default=32, metavar="N", help=f"{batched} at once (default: 32)")
    engine.add_argument(
        "--device", choices=["auto", "cpu", "cuda"], default="auto", help="where the model runs (default: auto)"
    )
    engine.add_argument(
        "--dtype", choices=get_args(Precision), default="auto", help="precision of the weights (default: auto)"
    )
    engine.add_argument(
        "--deterministic",
        action="store_true",
        help="make batches independent of timing, so that results repeat exactly; slower",
    )
    engine.add_argument("--seed", type=int, default=0, help="seed of the sampling (default: 0)")


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the options for files and printed output."""
    output = parser.add_argument_group("output")
    output.add_argument("--name", metavar="LABEL", help="name of this result (default: the model)")
    output.add_argument("--out", type=Path, metavar="FILE.json", help="write the result to a file, for --compare")
    output.add_argument(
        "--items",
        type=Path,
        metavar="FILE.jsonl.gz",
        help="write one small line per question (default: beside --out, as FILE.items.jsonl.gz)",
    )
    output.add_argument(
        "--compare",
        type=Path,
        nargs="+",
        default=[],
        metavar="EVAL.json|ITEMS.jsonl.gz",
        help="compare with earlier results; without a model, the last of them with the others",
    )
    output.add_argument(
        "--seeds",
        choices=["independent", "paired"],
        help="take compared files whose names differ in a last number (warm-0, warm-1) as seeds of one arm, and "
        "compare the last arm with the others over questions and seeds; paired: seed N of both had the same start",
    )
    stopped = "continue a stopped evaluation, with the same options: what it has answered is not asked again"
    output.add_argument("--resume", metavar="RUN", help=stopped)
    output.add_argument("--runs", metavar="DIR", help="folder of runs (default: $QUAERE_RUNS, or ./runs)")
    output.add_argument("--json", action="store_true", help="print JSON")
