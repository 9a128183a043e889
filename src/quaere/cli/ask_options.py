"""Options and helpers shared by `quaere ask` and `quaere report`: question, index, model, sampling."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, get_args

from quaere.cli.bounds import check_positive
from quaere.cli.index_option import add_index
from quaere.errors import BadInput
from quaere.policies.native.device import Precision

if TYPE_CHECKING:
    from rich.console import Console

    from quaere.records import Question
    from quaere.rollout.episode import Limits
    from quaere.rollout.policy import Policy

DEFAULT_MODEL = "smollm2-135m"
LIMITS = ("max_turns", "topk", "turn_tokens", "sequence_tokens")


def add_asked(parser: argparse.ArgumentParser, default_model: str = DEFAULT_MODEL) -> None:
    """Add the options for the question or file of questions, the index and the model."""
    parser.add_argument("question", nargs="?", help="the question; or give --questions FILE")
    add_questions(parser, "JSONL file of questions, or .txt file with a question per line")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N questions of the file (default: all)")
    add_index(parser, required=True)
    parser.add_argument(
        "--model",
        default=default_model,
        help=f"catalogue name, directory, hub id, or openai:MODEL@BASE_URL (default: {default_model})",
    )


def add_questions(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the option for a file of questions, or a data set of the hub."""
    also = "or a data set of the hub, hub:OWNER/NAME[/SUBSET][@REVISION][:SPLIT]"
    parser.add_argument("--questions", metavar="FILE|hub:ID", help=f"{what}, {also}")


def add_plain(parser: argparse._ActionsContainer) -> None:
    """Add the option for a catalogue model without the adapter that is part of the package."""
    parser.add_argument(
        "--plain", action="store_true", help="a model of the catalogue as published, without the built-in adapter"
    )


def choose_plain(args: argparse.Namespace) -> None:
    """With --plain, replace the model's name by that of its plain form."""
    if args.plain:
        from quaere.policies.catalogue import plain_name

        args.model = plain_name(args.model or "")


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """Add the options for sampling, and for the folder of runs."""
    sampling = parser.add_argument_group("sampling")
    sampling.add_argument(
        "--temperature", type=float, default=0.0, help="sampling temperature; 0 is greedy decoding (default: 0)"
    )
    sampling.add_argument("--seed", type=int, default=0, help="seed of the sampling (default: 0)")
    sampling.add_argument(
        "--device", choices=["auto", "cpu", "cuda"], default="auto", help="where the model runs (default: auto)"
    )
    sampling.add_argument(
        "--dtype", choices=get_args(Precision), default="auto", help="precision of the weights (default: auto)"
    )
    parser.add_argument("--runs", metavar="DIR", help="folder of runs (default: $QUAERE_RUNS, or ./runs)")


def read_asked(args: argparse.Namespace, command: str) -> list[Question]:
    """The question of the command line, or the questions of the file."""
    from quaere.records import Question
    from quaere.rollout.question_files import read_questions

    hint = f'quaere {command} "your question" --index DIR'
    if (args.question is None) == (args.questions is None):
        raise BadInput("give either a question or --questions FILE", hint=hint)
    if args.questions is not None:
        return read_questions(args.questions, args.limit)
    if not args.question.strip():
        raise BadInput("the question is empty", hint=hint)
    return [Question(id=command, text=args.question)]


def check_numbers(args: argparse.Namespace) -> None:
    """Raise `BadInput` for limits below 1 and for a temperature below 0."""
    check_positive(args, (*LIMITS, "limit"))
    if getattr(args, "min_overlap", None) is not None and not 0 <= args.min_overlap <= 1:
        raise BadInput(f"--min-overlap must be from 0 to 1, not {args.min_overlap}")
    if args.temperature < 0:
        raise BadInput(f"--temperature must be 0 or more, not {args.temperature}")


def open_model(args: argparse.Namespace, quiet: Console) -> Policy:
    """The policy named by `--model`; loading and downloads are reported on the console."""
    from quaere.rollout.policy import open_policy

    def report(line: str) -> None:
        quiet.print(line, style="dim", markup=False)

    report(f"loading {args.model}")
    return open_policy(args.model, device=args.device, dtype=args.dtype, interactive=True, report=report)


def asked_settings(args: argparse.Namespace, limits: Limits, *, hidden: Collection[str]) -> dict[str, Any]:
    """The settings of this call that are stored with its run."""
    left_out = {"run", "runs", "json", "questions", *hidden}
    settings = {name: value for name, value in vars(args).items() if name not in left_out}
    settings |= {name: getattr(limits, name) for name in LIMITS}
    return settings | {"questions": args.questions}


def episode_setting(args: argparse.Namespace, limits: Limits) -> dict[str, Any]:
    """Limits, sampling parameters and seed that all episodes of this call share."""
    from quaere.policies.sampler import SamplingParams

    return {"limits": limits, "params": SamplingParams(temperature=args.temperature), "seed": args.seed}
