"""`quaere learn`: from a folder of documents to a better agent, without labels, in one command.

quaere learn ~/notes --model Qwen/Qwen2.5-1.5B-Instruct --out notes-learned --minutes 30
quaere learn ~/notes --model Qwen/Qwen2.5-1.5B-Instruct --out notes-learned --dry-run
quaere learn ~/notes --model Qwen/Qwen2.5-1.5B-Instruct --out notes-learned --update
"""

from __future__ import annotations

import argparse
import json
import shlex
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from quaere.api.printing import Progress, between, count, format_duration, no_progress, show_progress
from quaere.cli.options import DeviceOption, Flag, JsonOption, Repeated, command
from quaere.cli.terminal import interruptible, note_line, printable_line
from quaere.errors import BadInput
from quaere.recipes.registry import LEARNED
from quaere.setting_types import File, Folder, Number

if TYPE_CHECKING:
    from quaere.api.learned import Example, Learned, Update

_MOST_WRONG = 5


class LearnOptions(JsonOption, kw_only=True):
    """Options of `quaere learn`.

    Attributes:
        sources: a folder, a document, a JSON Lines file, or an index
        model: model to start from: a folder, a catalogue name or a hub id
        out: folder for all that is made; the same command goes on there after a kill
        minutes: time to plan for
        recipe: how the model is reinforced
        questions: file of `quaere questions --checked` or of a world, in place of writing questions
        config: YAML file of settings, as for `quaere evolve`
        assignments: one setting of the recipe; form.NAME is one of `quaere warmup`, writer.NAME one of the question
            writer
        seed: seed of everything that is drawn (default: 0)
        trainer: where the model samples and is reinforced: here, or on a server that speaks the Tinker interface
        trainer_url: the server of --trainer tinker (default: the hosted service, with the key in $TINKER_API_KEY)
        anyway: export the reinforced model also if no gain was shown, or with --update a loss
        update: refresh what the same command has learned, after documents have changed
        dry_run: print the plan and questions that are written on the spot, and stop
        json: print JSON, one object a line
    """

    sources: Annotated[tuple[Path, ...], "SOURCE", Flag("sources", nargs="+")]
    model: Annotated[str, "M"]
    out: Folder
    minutes: Number = 30.0
    recipe: Annotated[str, Flag(choices=LEARNED)] = LEARNED[0]
    questions: File | None = None
    config: File | None = None
    assignments: Annotated[tuple[str, ...], "K=V", Repeated, Flag("--set")] = ()
    seed: int = 0
    trainer: Literal["local", "tinker"] = "local"
    trainer_url: Annotated[str, "URL"] = ""
    anyway: bool = False
    update: bool = False
    dry_run: bool = False


def _run(args: argparse.Namespace) -> None:
    from quaere.api.learning import learn

    names = ("model", "minutes", "recipe", "questions", "config", "seed", "device", "trainer", "trainer_url")
    given: dict[str, Any] = {name: getattr(args, name) for name in names}
    given["settings"] = read_assignments(args.assignments)
    if args.dry_run and args.update:
        raise BadInput("--dry-run plans a first learning, and --update refreshes one", hint="leave one of them out")
    if args.dry_run:
        _preview(args, given)
        return
    goes_on = "what is finished is kept, and the same command goes on"
    with interruptible(goes_on), _open_progress(args.json) as progress:
        note = _print_event if args.json else note_line
        how = {"anyway": args.anyway, "update": args.update}
        learned = learn(args.sources, out=args.out, on_note=note, on_progress=progress, **how, **given)
    if args.json:
        found = json.loads(msgspec.json.encode(learned, enc_hook=str))
        print(json.dumps({"event": "done", **found, "index": str(learned.index)}), flush=True)
        return
    for line in describe_learned(learned):
        print(printable_line(line))


fill = command(
    _run,
    LearnOptions,
    DeviceOption,
    description="""\
Index the documents; let the model write questions about them, each checked, and hold some back, by document; measure
the model on those; teach it the form of an episode if it needs that; reinforce it on the other questions; measure
again, and export the agent. No label is used. The plan is printed first, with the time, memory and disk it takes. If
the interval of the gain is not above 0, the model is exported as it was before reinforcement.
""",
    epilog="quaere learn FOLDER --model MODEL --out DIR --minutes 30",
)


def read_assignments(assignments: tuple[str, ...]) -> dict[str, Any]:
    """The settings of K=V texts; a value is YAML, as for `quaere evolve --set`.

    read_assignments(("solver.batch=8", "form.facts=[1, 1]")) == {"solver.batch": 8, "form.facts": [1, 1]}
    """
    from quaere.runs.config_yaml import parse_yaml

    settings = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name.strip():
            raise BadInput(f"a setting must have the form KEY=VALUE, not {assignment}", hint="--set solver.batch=32")
        settings[name.strip()] = parse_yaml(text, name)
    return settings


def _preview(args: argparse.Namespace, given: dict[str, Any]) -> None:
    """Print the plan, and questions about the documents; nothing is kept."""
    from quaere.api.learning import preview_questions
    from quaere.api.learning_plan import find_plan
    from quaere.api.learning_request import ask_for

    plan = find_plan(ask_for(args.sources, **given), args.out)
    lines = plan.describe()
    width = max(len(name) for name, _ in lines)
    for name, said in () if args.json else lines:
        print(printable_line(f"{name:<{width}}  {said}"), flush=True)
    with interruptible("nothing is written"), _open_progress(args.json) as progress:
        told = {} if args.json else {"on_note": note_line}  # with --json, one object
        questions = preview_questions(plan, on_progress=progress, **told)
    if args.json:
        print(json.dumps({"plan": msgspec.to_builtins(plan), "questions": msgspec.to_builtins(questions)}))
        return
    print(f"\n{count(len(questions), 'question')}, as they would be practised on:")
    for question in questions:
        answer = f" {question.answers[0]!r}" if question.answers else ""
        print(printable_line(f"  {question.question}{answer}"))


# ------------------------------------------------------------------------------------------------------------- progress


def _print_event(line: str) -> None:
    print(json.dumps({"event": "note", "line": line}), flush=True)


def _open_progress(as_json: bool) -> AbstractContextManager[Progress]:
    """A bar on a terminal, else a line every half minute; JSON has the notes and the result."""
    return nullcontext(no_progress) if as_json else show_progress()


# ---------------------------------------------------------------------------------------------------------- the result


def describe_learned(learned: Learned) -> list[str]:
    """The result in lines: before and after, questions, examples, what is wrong, the cost, and what to do next."""
    from quaere.api.learned import compare_shares

    before, after = learned.before.score, learned.after.score
    kinds = ", ".join(f"{num} {kind}" for kind, num in learned.kinds.items())
    needed = ", ".join(f"{num} need {searches}" for searches, num in learned.searches.items())
    gained = f"gain {between(learned.gain, '+')} points on {count(learned.gain.num, 'question')} held back"
    lines = [f"exact match before {between(before.exact_match)}, after {between(after.exact_match)}", gained]
    for share in compare_shares(learned.before, learned.after)[1:]:  # the first was said
        was = f"{between(share.before)} before, " if share.before else ""
        lines.append(f"  {share.label.lower()}, {share.note} ({share.after.num}): {was}{between(share.after)} after")
    if learned.update:
        lines += _describe_update(learned.update, learned.is_trained)
    elif not learned.is_better:
        kept = "reinforced all the same" if learned.is_trained else "the model before reinforcement"
        lines.append(f"{learned.gain.verdict}: the agent is {kept}")
    lines += [f"questions: {kinds}; searches: {needed}"]
    if learned.examples:
        whose = "the questions given" if learned.plan.questions else "its own questions"
        lines += ["", f"examples of {whose}:", *map(_say_example, learned.examples)]
    if learned.wrong:
        lines += ["", f"still wrong ({len(learned.wrong)}):", *map(_say_example, learned.wrong[:_MOST_WRONG])]
    times = ", ".join(f"{name} {format_duration(seconds)}" for name, seconds in learned.seconds.items())
    lines += ["", f"time: {format_duration(sum(learned.seconds.values()))} ({times})", f"steps: {learned.num_steps}"]
    agent, index, run = (shlex.quote(str(path)) for path in (learned.agent, learned.index, learned.out / "run"))
    use = f"--index {index} --model {agent}"
    lines += [f'ask it:          quaere ask "your question" {use}', f"serve it:        quaere serve {use}"]
    if learned.is_trained:
        lines += [f"take it along:   quaere export {run} --role solver --merge --out FOLDER"]
    return [*lines, f"read about it:   {learned.out}/report.html"]


def _describe_update(update: Update, is_taken: bool) -> list[str]:
    """What changed, every question that was retired, and which agent is used from now on."""
    found = update.documents
    nums = f"{len(found.added)} added, {len(found.changed)} changed, {len(found.removed)} removed"
    lines = [f"documents: {nums}; {found.num_documents} now"]
    for name, measured in (("old", update.regression), ("new", update.gain)):
        if measured:
            lines.append(f"{name} questions held back ({measured.num}): {between(measured, '+')} points")
    if update.is_worse:
        said = "the old questions held back are answered worse" if update.regression else "no old question is held back"
        lines.append(f"{said}: the agent is the {'new one all the same (--anyway)' if is_taken else 'old one'}")
    else:
        lines.append(f"the agent is the {'new' if is_taken else 'old'} one")
    lines.append(f"{update.num_checked} checked again, {len(update.retired)} retired, {update.num_new} new")
    retired = (f"{one.question} {one.answer!r} ({one.document}: {one.reason})" for one in update.retired)
    return [*lines, *(f"  retired: {line}" for line in retired)]


def _say_example(example: Example) -> str:
    given = f", answered {example.given!r}" if example.given else ""
    return f"  {example.question} {example.answer!r}{given} ({example.document}: {example.sentence})"
