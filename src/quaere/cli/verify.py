"""`quaere verify`: measures the value of evidence to a model.

quaere verify curriculum.jsonl --model smollm2-135m
quaere verify curriculum.jsonl --model smollm2-135m --form teacher_forced --index INDEX
quaere verify curriculum.jsonl --model openai:qwen3-4b@http://localhost:8000/v1 --samples 10 --out verified.json
"""

import argparse
import asyncio
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, structs
from rich.table import Table

from quaere.api.printing import as_json, between, count, counting, plain_table, wide_console
from quaere.cli import options
from quaere.cli.episode_view import trim
from quaere.cli.terminal import interruptible, note_line
from quaere.disk import write_file
from quaere.errors import BadInput
from quaere.evaluation.claims import (
    SupportingScore,
    Verified,
    locate_evidence,
    pair_results,
    read_claims,
    score_supporting,
)
from quaere.policies.catalogue import needs_guide
from quaere.records import Support
from quaere.rollout.policy import Policy, open_policy
from quaere.search.index import open_index
from quaere.search.json_lines import check_plain
from quaere.setting_types import Folder, PositiveCount
from quaere.training.evidence import Claim, Form, VerifierSettings, open_hosted, verify_claims

_QUESTION_CHARS = 60


class VerifyOptions(Struct, kw_only=True):
    """Options of `quaere verify`.

    Attributes:
        file: JSONL of question, answer (or answers) and evidence
        model: catalogue name, directory, hub id, or openai:MODEL@BASE_URL
        form: how probabilities are estimated (default: sampled; hosted for an openai: model)
        samples: turns with and without the evidence
        temperature: of sampled turns (default: 1)
        turn_tokens: most tokens per turn
        limit: only the first N lines of the file (default: all)
        index: also locate each span in the documents of this index
        guided: write the start of turns, for models too small to follow the dialect (default: only for models of the
            catalogue that need it)
    """

    file: Annotated[Path, "FILE", options.Flag("file")]
    model: str
    form: Literal["sampled", "teacher_forced", "hosted"] | None = None
    samples: Annotated[int, "M", Meta(ge=1)] = 5
    temperature: Annotated[float, "T"] = 1.0
    turn_tokens: PositiveCount = 256
    limit: PositiveCount | None = None
    index: Folder | None = None
    guided: bool | None = None


class OutputOptions(options.JsonOption):
    """Where the result goes.

    Attributes:
        out: write the result to a file
    """

    out: Annotated[Path, "FILE.json"] | None = None


def _run(args: argparse.Namespace) -> None:
    """Check all input first, then load the model, verify and print."""
    settings = _settings(args)
    found = read_claims(args.file, args.limit)
    index = open_index(args.index) if args.index else None
    places = locate_evidence([span for spans in found.spans for span in spans], index) if index else None
    with interruptible("no result is written"):
        supports = asyncio.run(_verify(args, settings, found.claims))
    _show(args, settings, pair_results(found, supports, places))


fill = options.command(
    _run, VerifyOptions, options.group("engine", options.TurnEngineOptions), options.group("output", OutputOptions)
)


def _settings(args: argparse.Namespace) -> VerifierSettings:
    if not 0 <= args.temperature < float("inf"):
        raise BadInput(f"--temperature must be at least 0, not {args.temperature:g}")
    check_plain(args.out)
    options.check_writable(args.out, "--out", [args.file])
    is_endpoint = args.model.startswith("openai:")
    form: Form = args.form or ("hosted" if is_endpoint else "sampled")
    if is_endpoint and form != "hosted":
        raise BadInput(f"an openai: model is verified in the hosted form, not {form}", hint="leave --form out")
    if form == "hosted" and not is_endpoint:
        raise BadInput("--form hosted needs an endpoint as --model", hint="--model openai:NAME@URL")
    guided = needs_guide(args.model) if args.guided is None else args.guided
    model = args.model if is_endpoint else ""
    return options.read_options(args, VerifierSettings, form=form, model=model, guided=guided)


async def _verify(args: argparse.Namespace, settings: VerifierSettings, claims: list[Claim]) -> list[Support | None]:
    policy: Policy
    if settings.form == "hosted":
        policy = open_hosted(settings)
    else:
        note_line(f"loading {args.model}")
        policy = open_policy(args.model, **options.engine_settings(args, "max_rows"), report=note_line)
    values: list[float] = []
    try:
        with counting("verifying", len(claims)) as advance:

            def keep(claim: Claim, support: Support | None) -> None:
                values.extend([support.value] if support else [])
                advance(f"mean V {sum(values) / len(values):+.3f}" if values else "V unknown")

            how: dict[str, Any] = {"seed": args.seed, "concurrency": args.max_rows, "on_support": keep}
            return await verify_claims(policy, claims, settings, **how)
    finally:
        await policy.stop()


def _show(args: argparse.Namespace, settings: VerifierSettings, items: list[Verified]) -> None:
    score = score_supporting(items)
    kept = structs.asdict(settings) | structs.asdict(options.read_options(args, options.EngineOptions))
    kept |= {"file": str(args.file), "limit": args.limit, "model": args.model}
    kept["index"] = str(args.index) if args.index else None
    told = as_json({"settings": kept, "score": score, "items": items})
    if args.out:
        write_file(args.out, told + "\n")
    if args.json:
        print(told)
    else:
        _print_items(score, items)


# ------------------------------------------------------------------------------------------------------ what is printed


def _print_items(score: SupportingScore, items: list[Verified]) -> None:
    console = wide_console(140)
    console.print(_table(items, with_places=score.num_verbatim is not None))
    console.print()
    for name, interval in (("p+", score.chance_with), ("p-", score.chance_without), ("V", score.value)):
        if interval is not None:
            mean = between(interval, "+" if name == "V" else "", scale=1, digits=3)
            console.print(f"mean {name:2} {mean}", markup=False)
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
    rows = []
    for item in items:
        support, claim = item.support, item.claim
        numbers = ["?", "?", "?"]
        if support is not None:
            value = round(support.value, 2) + 0.0  # no "-0.00"
            numbers = [f"{support.chance_with:.2f}", f"{support.chance_without:.2f}", f"{value:+.2f}"]
        words = [trim(claim.question, _QUESTION_CHARS), trim(claim.answers[0], _QUESTION_CHARS)]
        rows.append((claim.id, *numbers, *words, *([_place(item)] if with_places else [])))
    names = ("id", "p+", "p-", "V", "question", "answer", *(("verbatim in",) if with_places else ()))
    return plain_table(*names, rows=rows, whole=("id", "p+", "p-", "V", "verbatim in"))


def _place(item: Verified) -> str:
    """The place of the first span, `halm.md:28-49`, and the number of further spans."""
    if not item.evidence:
        return "no document" if item.claim.span.strip() else "no evidence"
    first, *others = item.evidence
    return f"{first.doc_id}:{first.start}-{first.end}" + (f" and {len(others)} more" if others else "")
