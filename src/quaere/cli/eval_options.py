"""The options of `quaere eval`, group by group."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from quaere.policies.native.device import Precision

LIMITS = {
    "max_turns": "turns the model may take",
    "max_searches": "searches it may make",
    "topk": "passages per search",
    "turn_tokens": "tokens per turn",
    "sequence_tokens": "tokens in all",
    "tool_response_tokens": "tokens of what a search brings back",
}


def add_evidence(parser: argparse.ArgumentParser) -> None:
    """What is asked for beside the answer, and who judges it."""
    evidence = parser.add_argument_group("evidence")
    evidence.add_argument(
        "--evidence",
        action=argparse.BooleanOptionalAction,
        help="ask for the sentence each answer rests on (default: only for models that were taught to give it)",
    )
    evidence.add_argument(
        "--judge",
        metavar="string|MODEL",
        help="who says whether it supports the answer: a string check (no judge), or a model as after --model",
    )
    evidence.add_argument(
        "--judge-items",
        type=int,
        default=100,
        metavar="N",
        help="questions the judge is validated on first, each with its gold span and six corrupted ones (default: 100)",
    )


def add_limits(parser: argparse.ArgumentParser) -> None:
    """How far an episode may go."""
    limits = parser.add_argument_group("limits", "default: as the model was trained, else those of the paper")
    for name, words in LIMITS.items():
        limits.add_argument(f"--{name.replace('_', '-')}", type=int, metavar="N", help=words)
    limits.add_argument(
        "--answer-turn",
        action=argparse.BooleanOptionalAction,
        help="keep the last turn for the answer, and say so when no searches are left",
    )


def add_engine(parser: argparse.ArgumentParser) -> None:
    """How it samples."""
    engine = parser.add_argument_group("engine")
    engine.add_argument("--max-rows", type=int, default=32, metavar="N", help="episodes at once (default: 32)")
    engine.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto", help="where the model runs")
    engine.add_argument("--dtype", choices=get_args(Precision), default="auto", help="precision of its weights")
    engine.add_argument("--deterministic", action="store_true", help="batches that never depend on timing; slower")
    engine.add_argument("--seed", type=int, default=0, help="seed of what is drawn (default: 0)")


def add_output(parser: argparse.ArgumentParser) -> None:
    """What is written and printed."""
    output = parser.add_argument_group("output")
    output.add_argument("--name", metavar="LABEL", help="what to call this result (default: the model)")
    output.add_argument("--out", type=Path, metavar="FILE.json", help="write the result, for --compare")
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
        help="earlier results; without a model, the last of them against the others",
    )
    output.add_argument("--runs", metavar="DIR", help="folder of runs (default: $QUAERE_RUNS, or ./runs)")
    output.add_argument("--json", action="store_true", help="print JSON")
