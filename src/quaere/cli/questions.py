"""`quaere questions`: writes questions about documents without human help: open-ended or checked ones.

quaere questions --index docs-index --num 100 --out questions.jsonl
quaere questions --index docs-index --num 100 --out questions.jsonl --model qwen3-4b
quaere questions --world demo --num 100 --out questions.jsonl
quaere questions --checked --index docs-index --model qwen3-4b --drafts 6000 --out own.jsonl
"""

import argparse
import asyncio
import json
import shlex
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from quaere.api.checked_questions import count_searches, summarise, write_checked, write_lines
from quaere.api.printing import count, counting, show_progress
from quaere.cli.options import DeviceOption, JsonOption, command, exclusive, group, read_options, refuse
from quaere.cli.terminal import interruptible, note_line
from quaere.policies.catalogue import needs_guide
from quaere.rollout.policy import open_policy
from quaere.rollout.topic_questions import OpenQuestion, draw_open_questions, rewrite_questions
from quaere.search.index import Index, open_index
from quaere.search.json_lines import check_plain
from quaere.setting_types import Count, File, Folder, PositiveCount, fields_of
from quaere.warmup.documents.checked_question import WriterSettings
from quaere.worlds.open_questions import ask_open_questions
from quaere.worlds.world import open_world


class QuestionOptions(JsonOption, kw_only=True):
    """Options of `quaere questions`.

    Attributes:
        num: number of open questions
        seed: seed of the questions (default: 0)
        out: JSONL file to write
        force: replace the file if it exists
        topk: hits of a search that count as found; with --checked, hits that a search returns (5, with --checked 10)
        json: print counts as JSON instead of a summary
    """

    num: PositiveCount = 100
    seed: Annotated[int, "N", Meta(ge=0)] = 0
    out: File
    force: bool = False
    topk: PositiveCount | None = None


class QuestionSource(Struct):
    """What the questions are about.

    Attributes:
        index: an index that `quaere index` wrote
        world: a world that `quaere world` wrote
    """

    index: Folder | None = None
    world: Folder | None = None


class QuestionWriter(DeviceOption):
    """The model that words the questions.

    Attributes:
        model: catalogue name, directory, hub id or openai:MODEL@URL (default: templates)
        temperature: of the model
        guided: write the start of the model's turns (default: only for models of the catalogue that need it)
    """

    model: Annotated[str, "NAME"] | None = None
    temperature: Annotated[float, "X", Meta(ge=0)] = WriterSettings().temperature
    guided: bool | None = None


class CheckOptions(Struct):
    """Questions with checked answers.

    Attributes:
        checked: write questions with short answers, each checked
        dropped: also write what was dropped, with the reasons
        max_rows: questions at once
    """

    checked: bool = False
    dropped: File | None = None
    max_rows: Count = 32


def _run(args: argparse.Namespace) -> None:
    _check(args)
    goes_on = "what is finished is kept, and the same command goes on"
    with interruptible(goes_on if args.checked else f"nothing is written to {args.out}"):
        _write(args)


fill = command(
    _run,
    exclusive(QuestionSource, required=True),
    QuestionOptions,
    group("questions written by a model", QuestionWriter),
    group("questions with checked answers", CheckOptions, WriterSettings),
    description="""\
Write open-ended questions for reports to a JSONL file. From an index: about documents that a search for their title or
one of their terms finds, worded by templates or by a model shown a passage. From a world: with all known facts for each
question, for evaluation. With --checked: questions with short answers from the documents, for training without labels.
Rules pick a sentence and a span of it, the model words the question, and it is kept if a search with it finds the
passage and the model answers it with the passage among others and never without. Such facts are combined into chains,
comparisons and choices.
""",
)


def _write(args: argparse.Namespace) -> None:
    if args.checked:
        _write_checked(args)
        return
    lines, faults = _ask_index(args) if args.world is None else _ask_world(args)
    write_lines(args.out, lines)
    counts = Counter(line.kind for line in lines)
    by_model = sum(getattr(line, "writer", "template") != "template" for line in lines)
    _print_summary(args, len(lines), counts, by_model, faults)


_CHECKED_ONLY = ("dropped", "max_rows", "drafts", "tries", "min_right", "minutes", "unanswerable")
_SCHEMAS = (QuestionOptions, CheckOptions, WriterSettings)
_DEFAULTS = {field.name: field.default for kind in _SCHEMAS for field in fields_of(kind)}


def _check(args: argparse.Namespace) -> None:
    unused = next((name for name in _CHECKED_ONLY if getattr(args, name) != _DEFAULTS[name]), "")
    alone = f"--{unused.replace('_', '-')} needs --checked"
    lacks, exists = args.index is None or not args.model, args.out.exists() and not args.force
    templates = "--model works with --index only: questions of a world use templates"
    refuse(
        (unused and not args.checked, alone, "--checked --index DIR --model NAME"),
        (args.checked and args.num != _DEFAULTS["num"], "--num counts open questions", "--drafts N with --checked"),
        (args.checked and lacks, "--checked needs --index and --model", "--index DIR --model NAME"),
        (args.world is not None and args.model, templates, "--index DIR"),
        (args.out.is_dir(), f"{args.out} is a folder; --out must name a file", f"--out {args.out}/questions.jsonl"),
        (exists, f"{args.out} exists already", "choose another --out, or add --force to replace it"),
    )
    check_plain(args.out, args.dropped)


def _ask_world(args: argparse.Namespace) -> tuple[list[Any], Counter[str]]:
    world = open_world(args.world)
    return list(ask_open_questions(world.graph, world.seed, args.num, draw=args.seed)), Counter()


def _ask_index(args: argparse.Namespace) -> tuple[list[Any], Counter[str]]:
    index = open_index(args.index)
    with counting("asking", args.num) as advance:
        told: dict[str, Any] = {"topk": args.topk or 5, "report": lambda num: advance("grounded")}
        drawn = draw_open_questions(index, args.num, args.seed, **told)
    return asyncio.run(_rewrite(args, index, drawn)) if args.model else (drawn, Counter())


async def _rewrite(
    args: argparse.Namespace, index: Index, drawn: list[OpenQuestion]
) -> tuple[list[OpenQuestion], Counter[str]]:
    note_line(f"loading {args.model}")
    guided = needs_guide(args.model) if args.guided is None else args.guided
    policy = open_policy(args.model, device=args.device)
    how = {"guided": guided, "temperature": args.temperature, "seed": args.seed}
    try:
        with counting("writing", len(drawn)) as advance:
            return await rewrite_questions(policy, index, drawn, **how, report=lambda num: advance("written"))
    finally:
        await policy.stop()


def _print_summary(
    args: argparse.Namespace, num: int, counts: Counter[str], by_model: int, faults: Counter[str]
) -> None:
    if args.json:
        print(json.dumps({"questions": num, "kinds": counts, "by_model": by_model, "not_taken": faults}))
        return
    kinds = ", ".join(f"{of_kind} {kind}" for kind, of_kind in counts.most_common())
    print(f"{args.out}: {count(num, 'question')} ({kinds})")
    if args.model:
        why = ", ".join(f"{times} {fault}" for fault, times in faults.most_common())
        why = f" (the model's: {why})" if why else ""
        print(f"{by_model} worded by {args.model}, {num - by_model} by forms{why}")
    print(f"quaere report --questions {shlex.quote(str(args.out))} --index {shlex.quote(str(args.index or 'INDEX'))}")


# ---------------------------------------------------------------------------------------------------- checked questions


def _write_checked(args: argparse.Namespace) -> None:
    settings = read_options(args, WriterSettings, topk=args.topk or 10, concurrency=args.max_rows)
    place = {"device": args.device, "out": args.out, "dropped": args.dropped}
    with show_progress() as progress:
        written = write_checked(args.model, args.index, settings, **place, note=note_line, progress=progress)
    if args.json:
        counts: dict[str, object] = {
            "questions": len(written.questions),
            "drafts": written.num_drafts,
            "kinds": dict(Counter(question.kind for question in written.questions)),
            "searches": {str(num): count for num, count in sorted(count_searches(written).items())},
            "dropped": dict(written.reasons.most_common()),
        }
        print(json.dumps(counts))
        return
    for line in (*summarise(written, args.out), *next_commands(args.out, args.index, args.model, args.unanswerable)):
        print(line)


def next_commands(questions: Path, index: Path, model: str, unanswerable: float = 0.0) -> tuple[str, str]:
    """The commands that warm the model up and train it on the questions; MODEL stands in for a model at a URL.

    Where a share of the questions is unanswerable, the warm-up teaches the model to abstain; `evolve` reads its notes.
    """
    start = "MODEL" if model.startswith("openai:") else shlex.quote(model)
    warm, runs = shlex.quote(f"{questions.stem}-warm"), shlex.quote(f"runs/{questions.stem}")
    given = f"--index {shlex.quote(str(index))} --questions {shlex.quote(str(questions))}"
    taught = f"--abstention {unanswerable} " if unanswerable else ""
    return (
        f"quaere warmup search-r1 --style brief {taught}--model {start} --lora-rank 32 --out {warm}",
        f"quaere evolve search-r1 {given} --model {warm} --preset single-gpu --out {runs}",
    )
