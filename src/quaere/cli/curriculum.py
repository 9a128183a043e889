"""`quaere curriculum`: the questions a run wrote for its solver, why each was kept or dropped, and your verdicts.

quaere curriculum evolve-1 --kept --hops 2 --min value=0.5
quaere curriculum evolve-1 show i0g-0003
quaere curriculum evolve-1 reject i0g-0003 --note "two bridges fit"
quaere curriculum evolve-1 export questions.parquet --learned
quaere curriculum evolve-2 add questions.parquet
quaere curriculum evolve-1 quality
"""

import argparse
import shlex
from pathlib import Path
from typing import Annotated, Any, get_args

from msgspec import Meta, Struct, to_builtins
from rich.text import Text

from quaere.api.printing import as_json, between, count
from quaere.api.run import name_index, open_documents
from quaere.cli import options
from quaere.cli.curriculum_view import render_item, render_items
from quaere.cli.terminal import open_console, printable
from quaere.errors import BadInput
from quaere.evaluation.qa.curriculum_quality import Asked, measure_quality, of_candidate, of_question
from quaere.recipes.registry import find_recipe
from quaere.records import DropReason
from quaere.rollout.question_files import read_questions
from quaere.runs import Run, add_questions, give_verdicts, item_files, judge
from quaere.runs.review import Item, ItemFilter, check_item, find_item, read_items
from quaere.search.index import Index, open_index
from quaere.training.config import config_from_yaml

_TABLE_ROWS = 40
_REASONS = [reason for reason in get_args(DropReason) if reason]
_KINDS = {"accept": "accepted", "reject": "rejected", "flag": "flagged"}
_HELP = {
    "accept": "train the solver on these candidates, even if the run dropped them",
    "reject": "do not train the solver on these candidates",
    "flag": "mark these candidates for later; training does not change",
}


def _bound(text: str) -> tuple[str, float]:
    name, _, value = text.rpartition("=")
    try:
        if name:
            return name, float(value)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, such as value=0.5")


class ShownOptions(Struct):
    """Which candidates of which run are listed.

    Attributes:
        name: a run's name or directory; for quality also a file of questions
        limit: list at most N (default: 40; with --json all)
        offset: skip the first N (default: 0)
    """

    name: options.RunName
    limit: Annotated[int, "N", Meta(ge=0)] | None = None
    offset: Annotated[int, "N", Meta(ge=0)] = 0


class PlaceOptions(options.JsonOption):
    """Where runs and documents are.

    Attributes:
        index: index of the documents (default: the run's)
        runs: folder of runs (default: $QUAERE_RUNS, or ./runs)
    """

    index: options.FolderName | None = None
    runs: options.FolderName | None = None


class StateFilter(Struct):
    """Filters of which one can be given.

    Attributes:
        kept: only candidates the run kept
        dropped: only candidates the run dropped
        added: only questions that people added
        learned: only what the solver learns from, after your verdicts
    """

    kept: bool = False
    dropped: bool = False
    added: bool = False
    learned: bool = False


class Filters(Struct):
    """Other filters.

    Attributes:
        reason: why it was dropped: %(choices)s
        verdict: only with this verdict: %(choices)s
        hops: only with H hops; of added questions, H facts
        searches: only if N searches are needed (hops - 1)
        iteration: only iteration I, counted from 0
        min: least value: votes, rate, p+, p-, value, or a score's name
        max: greatest value
        text: only with T in question, answer or span, ignoring case
    """

    reason: Annotated[str, "R", options.Flag(choices=_REASONS)] | None = None
    verdict: Annotated[str, "V", options.Flag(choices=[*_KINDS.values(), "none"])] | None = None
    hops: Annotated[int, "H", Meta(ge=0)] | None = None
    searches: Annotated[int, "N", Meta(ge=0)] | None = None
    iteration: Annotated[int, "I", Meta(ge=0)] | None = None
    min: Annotated[str, "NAME=VALUE", options.Repeated, options.Flag(type=_bound)] | None = None
    max: Annotated[str, "NAME=VALUE", options.Repeated, options.Flag(type=_bound)] | None = None
    text: Annotated[str, "T"] | None = None


class ClearOptions(Struct):
    """The candidates whose verdicts are removed.

    Attributes:
        ids: candidates, by their ids
    """

    ids: Annotated[tuple[str, ...], "ID", options.Several, options.Flag("ids")]


class JudgeOptions(ClearOptions):
    """The candidates that a verdict is given on.

    Attributes:
        note: reason for the verdict (default: none)
    """

    note: Annotated[str, "TEXT"] = ""


class ShowOptions(Struct):
    """The candidate that is shown.

    Attributes:
        id: a candidate, by its id in the list
    """

    id: Annotated[str, "ID", options.Flag("id")]


class ImportOptions(Struct):
    """Options of `quaere curriculum RUN import`.

    Attributes:
        file: the edited export
    """

    file: Annotated[Path, "FILE", options.Flag("file")]


class ExportOptions(ImportOptions):
    """Options of `quaere curriculum RUN export`.

    Attributes:
        file: file to write; its ending decides the format
        verl: write verl's Parquet format, with what the solver learns
        force: replace FILE if it exists
    """

    verl: bool = False
    force: bool = False


class AddOptions(ImportOptions):
    """Options of `quaere curriculum RUN add`.

    Attributes:
        file: questions with answers, or an export
        only: add them to iteration I only, counted from 0 (default: to all)
        all: of an export: also add what no solver learned from
    """

    only: Annotated[int, "I", options.Flag("--iteration"), Meta(ge=0)] | None = None
    all: bool = False


_FILTERS = (*StateFilter.__struct_fields__, *Filters.__struct_fields__)


# ------------------------------------------------------------------------------------------------------------- actions


def _list(args: argparse.Namespace) -> None:
    with _open(args) as run:
        found = _select(args, run)
        limit = args.limit if args.limit is not None else len(found) if args.json else _TABLE_ROWS
        page = found[args.offset : args.offset + limit]
        page, _, said = _check_evidence(run, args, page)
        if args.json:
            print(as_json(item_files.item_rows(page, run.info.id)))
            return
        num_lost = len(run.verdicts().keys() - {item.candidate.id for item in read_items(run)})
    open_console().print(render_items(page, found, args.offset, run.path, said, num_lost), crop=False)


def _show(args: argparse.Namespace) -> None:
    with _open(args) as run:
        (item,), index, said = _check_evidence(run, args, [find_item(read_items(run), args.id, run.path)])
        rows = [row for row in run.index() if row.id == item.candidate.episode_id]
    paid = rows[0].metrics if rows else {}
    evidence = item.candidate.evidence
    document = index.document(evidence.doc_id) if index and evidence and item.evidence_state == "verbatim" else ""
    if args.json:
        (row,) = item_files.item_rows([item], run.info.id)
        beyond = {"problem": item.problem, "outdated": item.outdated, "episode_metrics": paid, "documents": said}
        print(as_json({**row, **beyond}))
        return
    open_console().print(render_item(item, paid, document, said, run.path), crop=False)


def _judge(args: argparse.Namespace) -> None:
    """Store a verdict on each of the candidates, or on none if one of them does not exist."""
    with _open(args) as run:
        items = read_items(run)
    kind: Any = _KINDS[args.action]
    verdicts = [judge(find_item(items, id, run.path).candidate, kind, args.note) for id in dict.fromkeys(args.ids)]
    give_verdicts(run.path, verdicts)
    _tell({kind: len(verdicts)}, args)


def _clear(args: argparse.Namespace) -> None:
    """Remove verdicts, also those on candidates that no longer exist."""
    with _open(args) as run:
        known = run.verdicts()
    for id in args.ids:
        if id not in known:
            hint = f"quaere curriculum {shlex.quote(str(run.path))}"
            raise BadInput(f"there is no verdict on {id} to remove", hint=hint)
    give_verdicts(run.path, [], clear=args.ids)
    _tell({"cleared": len(set(args.ids))}, args)


def _export(args: argparse.Namespace) -> None:
    if args.file.exists() and not args.force:
        raise BadInput(f"{args.file} exists already", hint="--force replaces it")
    with _open(args) as run:
        found = _select(args, run)
        if args.verl:
            protocol = _solver_protocol(run)
            found = [item for item in found if item.learned]
            item_files.write_verl(args.file, [item.candidate for item in found], protocol, run.info.id)
            _tell({"exported": len(found)}, args)
            return
        found, _, said = _check_evidence(run, args, found)
    item_files.write_items(args.file, found, run.info.id)
    counts = {"exported": len(found)}
    if num_wrong := sum(item.evidence_state == "mismatch" for item in found):
        counts["with evidence that is not in its document"] = num_wrong
    _tell(counts, args, said)


def _import(args: argparse.Namespace) -> None:
    """Set the verdicts of the candidates in a file to what the file says; an empty verdict removes one."""
    with _open(args) as run:
        rows, items = item_files.read_verdict_rows(args.file), read_items(run)
        verdicts, clear, counts = item_files.plan_import(rows, items, str(args.file), run.path)
    give_verdicts(run.path, verdicts, clear=clear)
    _tell(counts, args)


def _add(args: argparse.Namespace) -> None:
    """Add the questions of a file to the curriculum: all of them, or none if one is invalid."""
    with _open(args) as run:
        if run.info.kind != "evolve":
            said = f"run {run.info.id} is of kind {run.info.kind}: it has no solver to train on questions"
            raise BadInput(said, hint="name a run of `quaere evolve`")
        rows = item_files.read_question_rows(args.file)
        planned, counts = item_files.plan_add(
            rows, read_items(run), str(args.file), iteration=args.only, take_all=args.all
        )
        checked, _, said = _check_evidence(run, args, [Item(item.candidate) for item in planned])
        added = [item_files.settle_evidence(item, one) for item, one in zip(planned, checked, strict=True)]
    add_questions(run.path, added)
    num_reduced = sum(before != after for before, after in zip(planned, added, strict=True))
    reduced = {"with evidence kept as mere text": num_reduced} if num_reduced else {}
    _tell({**counts, **reduced}, args, said)


def _quality(args: argparse.Namespace) -> None:
    asked = _ask_file(args) if Path(args.name).is_file() else _ask_run(args)
    if not asked:
        raise BadInput("there is no question to check", hint="use fewer filters, or name another run or file")
    quality = measure_quality(asked)
    if args.json:
        print(as_json({**to_builtins(quality), "share": quality.share}))
        return
    share = between(quality.share, scale=1, digits=3)
    print(f"{count(quality.num, 'question')}, {quality.num_proven} proven: {share}")
    for fault, num in quality.faults.items():
        print(f"{num:6}  {fault}")


def _ask_file(args: argparse.Namespace) -> list[Asked]:
    """The questions of a file, with the documents that should prove their answers."""
    if any(getattr(args, name) is not None for name in _FILTERS):
        raise BadInput("a file of questions is read as a whole", hint="leave the filters out, or name a run")
    if not args.index:
        raise BadInput("a file of questions needs the index of its documents", hint="--index DIR")
    documents = open_index(Path(args.index))
    return [of_question(question, documents.document) for question in read_questions(Path(args.name))]


def _ask_run(args: argparse.Namespace) -> list[Asked]:
    """The questions the solver of a run learns from, with their documents and the proposer's episodes."""
    with _open(args) as run:
        learned = [item.candidate for item in _select(args, run) if item.learned]
        documents = open_index(Path(args.index or name_index(run)))
        known = {row.id for row in run.index()}
        return [
            of_candidate(each, run.episode(each.episode_id) if each.episode_id in known else None, documents.document)
            for each in learned
        ]


# ------------------------------------------------------------------------------------------------------------- details


def _open(args: argparse.Namespace) -> Run:
    if args.action and (args.limit is not None or args.offset):
        raise BadInput(f"--limit and --offset are for the list, not for {args.action}", hint="leave them out")
    if args.action not in (None, "export", "quality") and any(getattr(args, name) is not None for name in _FILTERS):
        raise BadInput(f"filters are for the list, export and quality: {args.action} is given an ID or a FILE")
    try:
        return Run.open(options.named_run(args, args.name))
    except BadInput:
        if not Path(args.name).is_file():
            raise
        hint = f"quaere curriculum {shlex.quote(args.name)} quality --index DIR"
        raise BadInput(f"{args.name} is a file, of which only the quality is shown", hint=hint) from None


def _select(args: argparse.Namespace, run: Run) -> list[Item]:
    items = read_items(run)
    states = {"kept": True if args.kept else False if args.dropped else None}
    states |= {"added": args.added or None, "learned": args.learned or None}
    bounds = {"least": dict(args.min or ()), "most": dict(args.max or ())}
    wanted = options.read_options(args, ItemFilter, **states, **bounds)
    wanted.check_measures(items, run.info.id)
    return [item for item in items if wanted.admits(item)]


def _check_evidence(run: Run, args: argparse.Namespace, items: list[Item]) -> tuple[list[Item], Index | None, str]:
    """The items with their evidence checked, the index it was checked against, and a warning about that or ""."""
    if not any(item.candidate.evidence for item in items):
        return [check_item(item, None) for item in items], None, ""
    found = open_documents(run, args.index)
    where = "" if found.index else ", so evidence is not checked (--index DIR says where they are)"
    read = found.index.document if found.index else None
    return [check_item(item, read) for item in items], found.index, found.said + where


def _solver_protocol(run: Run) -> Any:
    if "recipe" not in run.info.settings:
        raise BadInput(f"run {run.info.id} is no run of `quaere evolve`, so its solver's prompts are not known")
    recipe = find_recipe(run.info.settings["recipe"])
    return recipe.solver_protocol(config_from_yaml(recipe.schema, run.trained_config()))


def _tell(counts: dict[str, int], args: argparse.Namespace, said: str = "") -> None:
    if args.json:
        print(as_json({**counts, "said": said} if said else counts))
        return
    console = open_console()
    console.print(Text(", ".join(f"{number} {what}" for what, number in counts.items())))
    if said:
        console.print(Text(printable(said), "yellow"))


# ----------------------------------------------------------------------------------------------------- the command line


def _add_filters(parser: argparse._ActionsContainer, default: str | None = argparse.SUPPRESS) -> None:
    filters = parser.add_argument_group("filters")
    defaults = dict.fromkeys(_FILTERS, default)
    options.add_options(filters.add_mutually_exclusive_group(), StateFilter, **defaults)
    options.add_options(filters, Filters, **defaults)


def _action(name: str, run: options.Run, help: str, *parts: type[Struct] | options.Add) -> options.Register:
    # With another default than `SUPPRESS`, argparse would overwrite options that were given before the action.
    unset = dict.fromkeys(PlaceOptions.__struct_fields__, argparse.SUPPRESS)
    return options.action(name, run, help, *parts, PlaceOptions, **unset)


fill = options.command(
    _list,
    ShownOptions,
    PlaceOptions,
    lambda parser: _add_filters(parser, None),
    options.actions(
        _action("show", _show, "one candidate in full", ShowOptions),
        *(_action(name, _judge, help, JudgeOptions) for name, help in _HELP.items()),
        _action("clear", _clear, "remove verdicts", ClearOptions),
        _action("export", _export, "write candidates to FILE.parquet or FILE.jsonl", ExportOptions, _add_filters),
        _action("import", _import, "read the verdicts of an edited export", ImportOptions),
        _action("add", _add, "add the questions in FILE.jsonl or FILE.parquet to the curriculum", AddOptions),
        _action("quality", _quality, "the share of questions whose answer the documents prove", _add_filters),
        required=False,
    ),
    description="Without an action: list the candidates of a run that pass the filters.",
    json=None,
)
