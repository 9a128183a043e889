"""Options and helpers shared by `quaere ask` and `quaere report`: question, index, model, sampling."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from quaere.errors import BadInput
from quaere.policies.native.device import Precision
from quaere.setting_types import check_positive as check_positive

if TYPE_CHECKING:
    from rich.console import Console

    from quaere.records import Question
    from quaere.rollout.episode import Limits
    from quaere.rollout.policy import Policy
if TYPE_CHECKING:
    from quaere.serving.server import ServerSettings


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


# ---------------------------------------------------------------------------------------------- groups of `quaere eval`


ALL_LIMITS = {
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
    for name, words in ALL_LIMITS.items():
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


# -------------------------------------------------------------------------------------------------------------- --index


def add_index(parser: argparse._ActionsContainer, *, required: bool = False) -> None:
    """Add `--index`. Repeated, it names several search servers; the value is then their URLs, separated by commas."""
    parser.add_argument(
        "--index",
        action=_Joined,
        required=required,
        metavar="DIR|URL",
        help="index directory, or URL of a search server (repeatable: requests are spread over the servers)",
    )


class _Joined(argparse.Action):
    """Joins the URLs of a repeated option; a second value of any other kind replaces the first, as usual."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        before, now = getattr(namespace, self.dest), str(values)
        both_urls = before is not None and all(each.startswith(("http://", "https://")) for each in (before, now))
        setattr(namespace, self.dest, f"{before},{now}" if both_urls else now)


# -------------------------------------------------------------------------------------------------------------- servers


KEY = "QUAERE_API_KEY"


def add_server_options(parser: argparse.ArgumentParser, port: int = 8000) -> None:
    """Add the options of every server; `port` is the one it listens on by default."""
    where = parser.add_argument_group("address and access")
    where.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    where.add_argument(
        "--port", type=int, default=port, help=f"port to listen on; 0 takes a free one (default: {port})"
    )
    where.add_argument(
        "--api-key-file",
        type=Path,
        metavar="FILE",
        help=f"require the key in this file from clients (default: ${KEY}, else none on 127.0.0.1)",
    )
    where.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a host name that clients may use for this server (its address and localhost are always allowed)",
    )
    where.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="URL",
        help="allow requests from web pages of this origin, such as https://app.example (default: none)",
    )
    # Declared, because argparse would otherwise read it as an abbreviation of --api-key-file.
    where.add_argument("--api-key", help=argparse.SUPPRESS)


def server_settings(args: argparse.Namespace) -> ServerSettings:
    """The server's settings from the options."""
    from quaere.serving.server import ServerSettings

    return ServerSettings(
        host=args.host, port=args.port, allow_hosts=tuple(args.allow_host), allow_origins=tuple(args.allow_origin)
    )


def read_key(args: argparse.Namespace) -> str:
    """The key that clients must send; "" if none is needed."""
    from quaere.credentials import read_secret

    if args.api_key is not None:
        hint = f"export {KEY}=..., or --api-key-file FILE"
        raise BadInput("--api-key was removed: every user of this machine can read a command line", hint=hint)
    return read_secret(KEY, args.api_key_file)


# --------------------------------------------------------------------------------------------------------------- values


def checkpoint(text: str) -> int | Literal["best", "last"]:
    """The value of `--checkpoint`: a step, `best` or `last`."""
    if text == "best":
        return "best"
    if text == "last":
        return "last"
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a step (a whole number), best or last") from None
