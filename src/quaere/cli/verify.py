"""`quaere verify`: measures the value of evidence to a model.

quaere verify curriculum.jsonl --model smollm2-135m
quaere verify curriculum.jsonl --model smollm2-135m --form teacher_forced --index INDEX
quaere verify curriculum.jsonl --model openai:qwen3-4b@http://localhost:8000/v1 --samples 10 --out verified.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quaere.api.printing import counting
from quaere.atomic import write_file
from quaere.cli.options import add_engine, check_positive
from quaere.cli.terminal import interruptible
from quaere.errors import BadInput

if TYPE_CHECKING:
    from rich.console import Console

    from quaere.evaluation.evidence.value import ClaimFile, Verified
    from quaere.records import Evidence, Support
    from quaere.rollout.policy import Policy
    from quaere.training.phases.verification import Claim, Form, VerifierSettings
if TYPE_CHECKING:
    from rich.table import Table

    from quaere.evaluation.evidence.value import SupportingScore, Verified
    from quaere.evaluation.intervals import Interval


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
    from quaere.training.phases.verification import VerifierSettings

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

    from quaere.training.phases.verification import verify_claims

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
    from quaere.training.phases.verification import open_hosted

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


# ------------------------------------------------------------------------------------------------------ what is printed


_QUESTION_CHARS = 60


def print_items(score: SupportingScore, items: list[Verified]) -> None:
    """Print the table, the means with their intervals, and how many spans help, have no effect or hurt."""
    from rich.console import Console

    from quaere.cli.episode_view import count

    # A file or pipe has no width of its own; 140 columns keep the table from being wrapped at 80.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    console.print(_table(items, with_places=score.num_verbatim is not None))
    console.print()
    for name, interval in (("p+", score.chance_with), ("p-", score.chance_without), ("V", score.value)):
        if interval is not None:
            console.print(f"mean {name:2} {_between(interval, '+' if name == 'V' else '')}", markup=False)
    told = f"{score.num_helping} help, {score.num_idle} do nothing (V within 0.05 of 0), {score.num_hurting} hurt"
    console.print(f"of {count(len(items) - score.num_unverified, 'span')}: {told}", markup=False)
    if score.num_verbatim is not None:
        console.print(f"{score.num_verbatim} of {count(len(items), 'span')} stand verbatim in a document", markup=False)
    if score.num_without_evidence:
        console.print(f"{count(score.num_without_evidence, 'claim')} without evidence", style="yellow", markup=False)
    if score.num_unverified:
        told = f"{count(score.num_unverified, 'claim')} could not be verified: the model failed, or they are too long"
        console.print(told, style="yellow", markup=False)


def _table(items: list[Verified], *, with_places: bool) -> Table:
    from rich.table import Table
    from rich.text import Text

    from quaere.cli.episode_view import printable

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("id", "p+", "p-", "V"):
        table.add_column(heading, no_wrap=True)
    table.add_column("question")
    table.add_column("answer")
    if with_places:
        table.add_column("verbatim in", no_wrap=True)
    for item in items:
        support, claim = item.support, item.claim
        numbers = ["?", "?", "?"]
        if support is not None:
            value = round(support.value, 2) + 0.0  # no "-0.00"
            numbers = [f"{support.chance_with:.2f}", f"{support.chance_without:.2f}", f"{value:+.2f}"]
        words = [_cut(claim.question), _cut(claim.answers[0])]
        table.add_row(
            *(Text(printable(cell)) for cell in (claim.id, *numbers, *words, *([_place(item)] if with_places else [])))
        )
    return table


def _place(item: Verified) -> str:
    """The place of the first span, `halm.md:28-49`, and the number of further spans."""
    if not item.evidence:
        return "no document" if item.claim.span.strip() else "no evidence"
    first, *others = item.evidence
    return f"{first.doc_id}:{first.start}-{first.end}" + (f" and {len(others)} more" if others else "")


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _QUESTION_CHARS else line[: _QUESTION_CHARS - 1] + "…"


def _between(interval: Interval, sign: str) -> str:
    mean, low, high = (f"{value:{sign}.3f}" for value in (interval.mean, interval.low, interval.high))
    return f"{mean} [{low}, {high}]"


def result_json(settings: dict[str, Any], score: SupportingScore, items: list[Verified]) -> str:
    """Settings, score and every claim with its result, as JSON."""
    import msgspec

    found = {"settings": settings, "score": score, "items": items}
    return json.dumps(json.loads(msgspec.json.encode(found)), indent=1, ensure_ascii=False)
