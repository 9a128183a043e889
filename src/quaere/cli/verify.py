"""`quaere verify`: measures the value of evidence to a model.

quaere verify curriculum.jsonl --model smollm2-135m
quaere verify curriculum.jsonl --model smollm2-135m --form teacher_forced --index INDEX
quaere verify curriculum.jsonl --model openai:qwen3-4b@http://localhost:8000/v1 --samples 10 --out verified.json
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from quaere.api.counts import counting
from quaere.atomic import write_file
from quaere.cli.bounds import check_positive
from quaere.cli.eval_options import add_engine
from quaere.cli.interrupt import interruptible
from quaere.cli.verify_view import print_items, result_json
from quaere.errors import BadInput

if TYPE_CHECKING:
    from rich.console import Console

    from quaere.evaluation.evidence.value import ClaimFile, Verified
    from quaere.records import Evidence, Support
    from quaere.rollout.policy import Policy
    from quaere.training.verification import Claim, Form, VerifierSettings


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `verify` to the command line."""
    parser = commands.add_parser("verify", help="measure how much evidence helps a model to answer")
    parser.set_defaults(run=run)
    parser.add_argument("file", type=Path, metavar="FILE", help="JSONL of question, answer (or answers) and evidence")
    parser.add_argument("--model", required=True, help="catalogue name, directory, hub id, or openai:MODEL@BASE_URL")
    parser.add_argument(
        "--form",
        choices=["sampled", "teacher_forced", "hosted"],
        help="how probabilities are estimated (default: sampled; hosted for an openai: model)",
    )
    parser.add_argument(
        "--samples", type=int, default=5, metavar="M", help="turns with and without the evidence (default: 5)"
    )
    parser.add_argument("--temperature", type=float, default=1.0, metavar="T", help="of sampled turns (default: 1)")
    parser.add_argument("--turn-tokens", type=int, default=256, metavar="N", help="most tokens per turn (default: 256)")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N lines of the file (default: all)")
    parser.add_argument(
        "--index", type=Path, metavar="DIR", help="also locate each span in the documents of this index"
    )
    parser.add_argument(
        "--guided",
        action=argparse.BooleanOptionalAction,
        help="write the start of turns, for models too small to follow the dialect "
        "(default: only for models of the catalogue that need it)",
    )
    add_engine(parser, "turns")
    output = parser.add_argument_group("output")
    output.add_argument("--out", type=Path, metavar="FILE.json", help="write the result to a file")
    output.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> None:
    """Check all input first, then load the model, verify and print."""
    from quaere.evaluation.evidence.value import locate_evidence, read_claims
    from quaere.search.index import open_index

    settings = _settings(args)
    found = read_claims(args.file, args.limit)
    index = open_index(args.index) if args.index else None
    places = locate_evidence([span for spans in found.spans for span in spans], index) if index else None
    with interruptible("no result is written"):
        supports = asyncio.run(_verify(args, settings, found.claims))
    _show(args, settings, _put_together(found, supports, places))


def _settings(args: argparse.Namespace) -> VerifierSettings:
    from quaere.policies.catalogue import needs_guide
    from quaere.training.verification import VerifierSettings

    check_positive(args, ("samples", "limit", "max_rows", "turn_tokens"))
    if not 0 <= args.temperature < float("inf"):
        raise BadInput(f"--temperature must be at least 0, not {args.temperature:g}")
    if args.out is not None and (args.out.is_dir() or not args.out.absolute().parent.is_dir()):
        raise BadInput(f"--out {args.out} cannot be written: it is a folder, or its folder does not exist")
    is_endpoint = args.model.startswith("openai:")
    form: Form = args.form or ("hosted" if is_endpoint else "sampled")
    if is_endpoint and form != "hosted":
        raise BadInput(f"an openai: model is verified in the hosted form, not {form}", hint="leave --form out")
    if form == "hosted" and not is_endpoint:
        raise BadInput("--form hosted needs an endpoint as --model", hint="--model openai:NAME@URL")
    guided = needs_guide(args.model) if args.guided is None else args.guided
    return VerifierSettings(
        form=form,
        samples=args.samples,
        model=args.model if is_endpoint else "",
        turn_tokens=args.turn_tokens,
        temperature=args.temperature,
        guided=guided,
    )


async def _verify(args: argparse.Namespace, settings: VerifierSettings, claims: list[Claim]) -> list[Support | None]:
    from rich.console import Console

    from quaere.training.verification import verify_claims

    quiet = Console(stderr=True, highlight=False)
    policy = _open_policy(args, settings, quiet)
    values: list[float] = []
    try:
        with counting("verifying", len(claims), quiet) as advance:

            def keep(claim: Claim, support: Support | None) -> None:
                values.extend([support.value] if support else [])
                advance(f"mean V {sum(values) / len(values):+.3f}" if values else "V unknown")

            return await verify_claims(
                policy, claims, settings, seed=args.seed, concurrency=args.max_rows, on_support=keep
            )
    finally:
        await policy.stop()


def _open_policy(args: argparse.Namespace, settings: VerifierSettings, quiet: Console) -> Policy:
    from quaere.rollout.policy import open_policy
    from quaere.training.verification import open_hosted

    def report(line: str) -> None:
        quiet.print(line, style="dim", markup=False)

    if settings.form == "hosted":
        return open_hosted(settings)
    report(f"loading {args.model}")
    return open_policy(
        args.model,
        device=args.device,
        dtype=args.dtype,
        mode="deterministic" if args.deterministic else "fast",
        max_rows=args.max_rows,
        report=report,
    )


def _put_together(
    found: ClaimFile, supports: list[Support | None], places: dict[str, Evidence | None] | None
) -> list[Verified]:
    """One item per claim; its evidence is verbatim if all of its spans are."""
    from quaere.evaluation.evidence.value import Verified

    items = []
    for claim, spans, support in zip(found.claims, found.spans, supports, strict=True):
        located = [places[span] for span in spans] if places is not None else []
        verbatim = tuple(evidence for evidence in located if evidence is not None)
        evidence = (verbatim if len(verbatim) == len(spans) else ()) if places is not None else None
        items.append(Verified(claim, support, support.value if support else None, evidence))
    return items


def _show(args: argparse.Namespace, settings: VerifierSettings, items: list[Verified]) -> None:
    from msgspec import structs

    from quaere.evaluation.evidence.value import score_supporting

    score = score_supporting(items)
    kept = {
        "file": str(args.file),
        "limit": args.limit,
        **structs.asdict(settings),
        "model": args.model,
        "index": str(args.index) if args.index else None,
        "device": args.device,
        "dtype": args.dtype,
        "max_rows": args.max_rows,
        "deterministic": args.deterministic,
        "seed": args.seed,
    }
    told = result_json(kept, score, items)
    if args.out:
        write_file(args.out, told + "\n")
    if args.json:
        print(told)
    else:
        print_items(score, items)
