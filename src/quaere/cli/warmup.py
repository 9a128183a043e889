"""`quaere warmup`: teaches a small model the dialect of a recipe from demonstrated episodes.

quaere warmup drzero --model smollm2-135m --out warm
quaere warmup drzero --model blank --style brief --facts 1 --proposer-hops 1 --out tiny
quaere warmup eve --also drzero --model smollm2-135m --out warm
quaere warmup evalact --also evalrar --also search-r1 --model smollm2-135m --out warm
quaere warmup score --model smollm2-135m --out warm --lessons 5,2,3
quaere warmup drzero --model smollm2-135m --lora-rank 16 --adapter --dtype bfloat16 --out warm
quaere warmup drzero --model smollm2-135m --index docs-index --out warm
quaere warmup eve --model warm --index docs-index --questions checked.jsonl --roles proposer --out warmer
quaere warmup drzero --model smollm2-135m --out warm --teacher openai:qwen3-32b@http://localhost:8001/v1
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from quaere.api.printing import count
from quaere.api.warmup_settings import (
    EVALUATED_MAX_TURNS,
    FULL_RATE,
    LORA_RATE,
    MAX_TURNS,
    REPORT_MAX_TURNS,
    REPORT_SEQUENCE_TOKENS,
    REPORT_TURN_TOKENS,
    SEQUENCE_TOKENS,
    TURN_TOKENS,
)
from quaere.cli.terminal import interruptible
from quaere.cli.work_progress import open_display
from quaere.errors import BadInput
from quaere.warmup.dialects import DIALECTS

if TYPE_CHECKING:
    from quaere.warmup.model_folder import WarmupManifest


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `warmup` to the command line."""
    parser = commands.add_parser(
        "warmup",
        help="teach a small model a dialect by demonstration",
        description="Demonstrate episodes on a fictional encyclopedia of the warm-up family, train the model to copy "
        "them, and write it as a Hugging Face folder. The model learns the dialect; the facts are invented. In eve's "
        "dialect both roles also quote, letter for letter, the sentence they rely on; the solvers of evalact, evalrar "
        "and autorefine note what each search found or missed, in evalact with a score; score has reports, rubrics and "
        "assessments of reports whose flaws are known. A model warmed up like this has learnt from demonstrations, and "
        "its warmup.json says so.",
    )
    parser.add_argument("recipe", choices=DIALECTS, help="recipe whose dialect to teach")
    parser.add_argument(
        "--model",
        required=True,
        help="catalogue name, directory or hub id of the model to teach; blank: one made from nothing, which can learn "
        "drzero in a hamlet (quaere world --family hamlet)",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write the model to")
    parser.add_argument("--force", action="store_true", help="replace an earlier warmed-up model at --out")
    parser.add_argument("--teacher", metavar="openai:MODEL@URL", help="model that demonstrates (default: an oracle)")
    shown = parser.add_argument_group("demonstrations")
    shown.add_argument(
        "--also",
        choices=DIALECTS,
        action="append",
        default=[],
        help="also teach this recipe's dialect, with an equal share of the episodes; can be repeated",
    )
    shown.add_argument("--roles", metavar="LIST", help="solver, proposer, evaluator (default: all that a recipe has)")
    shown.add_argument("--episodes", type=int, metavar="N", help="episodes in all (default: 400 of each dialect)")
    add_ratios(shown)
    shown.add_argument("--style", choices=["full", "brief"], default="full", help="prompt style (default: full)")
    shown.add_argument("--world-seed", type=int, default=1, metavar="N", help="seed of the world (default: 1)")
    shown.add_argument("--articles", type=int, default=500, metavar="N", help="articles of the world (default: 500)")
    _add_documents(parser)
    _add_limits(parser)
    _add_teaching(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, one object a line")
    parser.set_defaults(run=run)


def _add_documents(parser: argparse.ArgumentParser) -> None:
    own = parser.add_argument_group("lessons from your own documents")
    own.add_argument(
        "--index",
        type=Path,
        metavar="DIR",
        help="after the dialect, learn from questions about these documents: a solver from its own right answers, a "
        "proposer from demonstrated proposals",
    )
    own.add_argument(
        "--questions",
        type=Path,
        metavar="FILE",
        help="file of checked questions, which is written first if it does not exist (default: OUT-questions.jsonl)",
    )
    own.add_argument("--drafts", type=int, default=6000, metavar="N", help="facts to ask about (default: 6000)")
    own.add_argument("--attempts", type=int, default=4, metavar="N", help="attempts at each question (default: 4)")
    own.add_argument(
        "--most",
        type=int,
        metavar="N",
        help="questions to attempt, half of them of several facts as far as they last (default: all)",
    )
    own.add_argument(
        "--practice",
        type=Path,
        metavar="FILE",
        help="file for the questions that not every attempt answered right, for reinforcement learning (default: none)",
    )
    own.add_argument("--max-rows", type=int, default=32, metavar="N", help="episodes at once (default: 32)")


def _add_limits(parser: argparse.ArgumentParser) -> None:
    limits = parser.add_argument_group("limits of an episode")
    turns = f"most turns (default: {MAX_TURNS}, in evalact {EVALUATED_MAX_TURNS}, in score {REPORT_MAX_TURNS})"
    per_turn = f"most tokens per turn (default: {TURN_TOKENS}, in score {REPORT_TURN_TOKENS})"
    in_all = f"most tokens of an episode (default: {SEQUENCE_TOKENS}, in score {REPORT_SEQUENCE_TOKENS})"
    limits.add_argument("--max-turns", type=int, metavar="N", help=turns)
    limits.add_argument("--topk", type=int, default=3, metavar="N", help="passages per search (default: 3)")
    limits.add_argument("--turn-tokens", type=int, metavar="N", help=per_turn)
    limits.add_argument("--sequence-tokens", type=int, metavar="N", help=in_all)
    limits.add_argument(
        "--tool-response-tokens", type=int, default=512, metavar="N", help="most tokens per result (default: 512)"
    )


def _add_teaching(parser: argparse.ArgumentParser) -> None:
    taught = parser.add_argument_group("teaching")
    taught.add_argument("--epochs", type=int, default=2, metavar="N", help="passes over the episodes (default: 2)")
    taught.add_argument("--batch", type=int, default=16, metavar="N", help="episodes per step (default: 16)")
    rates = f"learning rate (default: {FULL_RATE:g}, with LoRA {LORA_RATE:g})"
    taught.add_argument("--learning-rate", type=float, metavar="X", help=rates)
    taught.add_argument("--lora-rank", type=int, default=0, metavar="N", help="0 trains all weights (default: 0)")
    taught.add_argument(
        "--adapter", action="store_true", help="with --lora-rank: write the adapter alone, not a merged model"
    )
    taught.add_argument("--micro-tokens", type=int, default=4096, metavar="N", help="tokens per pass (default: 4096)")
    taught.add_argument("--seed", type=int, default=0, help="seed of lessons and training (default: 0)")
    taught.add_argument(
        "--device", choices=["auto", "cpu", "cuda"], default="auto", help="where the model runs (default: auto)"
    )
    taught.add_argument(
        "--dtype",
        choices=["auto", "float32", "bfloat16"],
        default="auto",
        help="precision of the written weights (default: auto, the model's own; float32 for an adapter)",
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def run(args: argparse.Namespace) -> None:
    """Demonstrate, teach, and save the model."""
    import msgspec

    from quaere.api.warmup import warm_up
    from quaere.api.warmup_settings import make_settings

    args.roles = None if args.roles is None else _names(args.roles)
    notice = read_ratios(args)
    settings = make_settings(vars(args))
    with interruptible(f"no model is written to {args.out}"), open_display(args.json) as display:
        if notice:
            display.note(notice)
        manifest = warm_up(settings, display)
    if args.json:
        print(json.dumps({"event": "done", **msgspec.to_builtins(manifest)}), flush=True)
    else:
        _print_result(args, manifest)
    if manifest.stopped:
        raise KeyboardInterrupt


def _print_result(args: argparse.Namespace, manifest: WarmupManifest) -> None:
    """What the model has learned, and the command to go on with."""
    print(f"{args.out}: loss of held-out episodes {manifest.loss_before:.3f} before, {manifest.loss_after:.3f} after")
    if manifest.stopped:
        documents = f" --index {args.index}" if args.index else ""
        more = f"quaere warmup {args.recipe} --model {args.out} --style {args.style}{documents} --out OTHER"
        print(f"stopped after {count(manifest.num_steps, 'step')}, and saved as it is; teach it more with: {more}")
        return
    command = "report" if args.recipe == "score" else "ask"
    print(f'quaere {command} "your question" --index {args.index or "INDEX"} --model {args.out}')


# ---------------------------------------------------------------------------------------------------- ratios of lessons


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
