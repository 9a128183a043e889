"""`quaere eval SUITE.yaml`: every method with every model on every set of questions, in one table.

    rows = await run_suite(read_suite(Path("suite.yaml")), Path("suite"), engine=Engine())

A cell is one evaluation, as `quaere eval` makes it: a model with a method on a set. Its episodes are stored in the run
OUT/MODEL-METHOD-SET as they end, its result beside it in OUT/MODEL-METHOD-SET.json and .items.jsonl.gz. A suite that is
started again keeps the results that exist and continues the cell that was stopped.
"""

from __future__ import annotations

import hashlib
import platform
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

import quaere
from quaere.api.agent import OpenAgent, choose_solver
from quaere.api.answering import answer_questions, open_stored, say_changes, score_metrics
from quaere.api.suite_file import SPLITS, Suite, SuiteMethod, SuiteModel, SuiteSet
from quaere.api.suite_table import Row, make_row
from quaere.chat.protocol import Protocol
from quaere.dialects.notes import Notes, find_notes, find_role, role_policy
from quaere.dialects.registry import FROM_MEMORY, usual_limits
from quaere.disk import discard_folder, explain_errors
from quaere.errors import BadInput
from quaere.evaluation.qa.abstaining import add_hidden
from quaere.evaluation.qa.items import SUFFIX, keep_whole_gold, write_items
from quaere.evaluation.qa.scores import Evaluation, read_evaluation, score_answering, write_evaluation
from quaere.policies.catalogue import needs_guide, resolve_model
from quaere.policies.model_folders import hash_weights
from quaere.policies.native.device import Precision, choose_device, choose_dtype, name_device
from quaere.records import Question
from quaere.rollout.episode import Limits
from quaere.rollout.policy import Policy, open_policy
from quaere.rollout.question_files import read_questions
from quaere.runs import Run, find_run, runs_root
from quaere.search.searcher import NoSearcher, Searcher, check_reachable, find_fingerprint, open_searcher

SECONDS = "time/answering_s"
_LIBRARIES = ("torch", "transformers", "tokenizers")
# Settings of a finished cell that may differ from today's: the first two are marked in the table, and the others do not
# change what is asked.
_MARKED = ("index_fingerprint", "questions_hash")
_FREE = {*_MARKED, "questions", "index", "max_rows", "device", "versions"}


# ------------------------------------------------------------------------------------------------------- what is there


class Engine(Struct, frozen=True):
    """How models are run. With `deterministic` a stopped cell begins anew, as its batches would differ otherwise.

    Engine(device="cuda", max_rows=256)
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Precision = "auto"
    deterministic: bool = False
    max_rows: int = 32


class _Asked(Struct, frozen=True):
    """A set with its questions and what is searched.

    _Asked(name="dev", questions=[Question(...)], searcher=LocalSearcher(...), settings={"limit": None, ...})
    """

    name: str
    questions: list[Question]
    searcher: Searcher
    settings: dict[str, Any]  # that tell the set apart


class _Model(Struct, frozen=True):
    """A model that was found and is not loaded yet.

    _Model(name="base", notes=Notes(), is_small=True, load=..., settings={"weights": "5f2c9a51d0e6a0f9", ...})
    """

    name: str
    notes: Notes
    is_small: bool
    load: Callable[[], Policy]
    settings: dict[str, Any]  # that tell its weights apart, and where they run


class Cell(Struct, frozen=True):
    """One evaluation: which model is asked what, and how; `path` is that of its run.

    Cell(path=Path("suite/base-rag-dev"), method="rag", model=_Model(...), asked=_Asked(...), ...)
    """

    path: Path
    method: str
    model: _Model
    asked: _Asked
    searcher: Searcher
    protocol: Protocol
    limits: Limits
    settings: dict[str, Any]

    @property
    def file(self) -> Path:
        """The result, which exists if the cell is finished."""
        return self.path.with_name(f"{self.path.name}.json")


def _read_set(one: SuiteSet) -> list[Question]:
    """The questions of a set; BadInput if they are not the split it expects, or none has an answer to compare with."""
    questions = read_questions(one.questions, None if one.expect else one.limit)
    if one.expect:
        split, num = SPLITS[one.expect]
        if len(questions) != num:
            said = (
                f"{one.questions} has {len(questions):,} questions, and the {split} split of {one.expect} has {num:,}"
            )
            raise BadInput(f"sets: {one.name}: {said}", hint=f"give all of that split ({split}), or leave out expect")
    asked = questions[: one.limit]
    if not any(question.answers for question in asked):
        said = f"sets: {one.name}: no question of {one.questions} has an answer to compare with"
        raise BadInput(said, hint="give a split with answers, in a field called answers, golden_answers or answer")
    return add_hidden(asked)[0] if one.hide_answers else asked


async def _open_sets(suite: Suite, held: AsyncExitStack) -> list[_Asked]:
    """The sets with their questions; an index that several sets search is opened once."""
    searchers: dict[str, Searcher] = {"": NoSearcher()}
    found = []
    for one in suite.sets:
        questions = keep_whole_gold(_read_set(one), None)
        if one.index not in searchers:
            searchers[one.index] = open_searcher(one.index)
            held.push_async_callback(searchers[one.index].close)
            await check_reachable(searchers[one.index])
        settings = {
            "questions": one.questions,
            "limit": one.limit,
            "questions_hash": hashlib.sha256(msgspec.json.encode(questions)).hexdigest()[:16],
            "index": one.index or None,
            "index_fingerprint": await find_fingerprint(searchers[one.index]),
        }
        if one.hide_answers:  # results of before there was such a setting have none
            settings["hide_answers"] = True
        found.append(_Asked(one.name, questions, searchers[one.index], settings))
    return found


def _find_model(model: SuiteModel, engine: Engine, runs: Path, note: Callable[[str], None]) -> _Model:
    """The model with the hash of its weights; on a CPU its precision is not chosen by timing, which may vary."""
    if model.model.startswith("openai:"):
        settings = {"model": model.model, "weights": "", "device": "endpoint", "dtype": ""}
        return _Model(model.name, find_notes(model.model), False, partial(open_policy, model.model), settings)
    device = choose_device(engine.device, note)
    dtype = choose_dtype(engine.dtype, device)
    how: dict[str, Any] = {"device": device, "dtype": dtype, "max_rows": engine.max_rows, "report": note}
    how["mode"] = "deterministic" if engine.deterministic else "fast"
    settings = {"device": name_device(device), "dtype": dtype}
    if model.run:
        role = find_role(find_run(runs, model.run), "solver", model.checkpoint, note)
        settings |= {"model": role.name, "weights": hash_weights(role.model.folders)}
        return _Model(model.name, role.notes, False, partial(role_policy, role, **how), settings)
    settings |= {"model": model.model, "weights": hash_weights(resolve_model(model.model, report=note).folders)}
    load = partial(open_policy, model.model, **how)
    return _Model(model.name, find_notes(model.model), needs_guide(model.model), load, settings)


def _plan(suite: Suite, models: Sequence[_Model], sets: Sequence[_Asked], out: Path, engine: Engine) -> list[Cell]:
    """All cells, those of one model after another; BadInput for the first that cannot be."""
    cells = [
        _make_cell(model, method, asked, suite.seed, out, engine)
        for model in models
        for method in suite.asked_by
        if not method.models or model.name in method.models
        for asked in sets
    ]
    twice = [path.name for path, num in Counter(cell.path for cell in cells).items() if num > 1]
    if twice:
        raise BadInput(f"two cells of the suite would be called {twice[0]}", hint="give a model or a set another name")
    return cells


def _make_cell(model: _Model, method: SuiteMethod, asked: _Asked, seed: int, out: Path, engine: Engine) -> Cell:
    if method.chosen is None and not (model.notes.dialect or model.notes.recipe or model.notes.taught):
        said = f"methods: {method.name} names no dialect, and {model.name} was not trained in one"
        raise BadInput(said, hint=f"{{name: {method.name}, dialect: rag}}, or models: [...] that were trained")
    # As `quaere eval` asks: a model that was not taught to abstain is not asked to.
    protocol, limits = choose_solver(
        model.notes,
        needs_guide=model.is_small,
        dialect=method.chosen,
        style=method.style,
        evidence=method.evidence,
        abstention=method.abstention,
        limits=method.limits,
        usual=usual_limits,
        untaught_abstain=False,
    )
    dialect = method.chosen or model.notes.dialect or "tool-call"
    searcher, about = asked.searcher, dict(asked.settings)
    if dialect in FROM_MEMORY:
        if "hide_answers" in about:
            said = f"sets: {asked.name} hides passages with answers, and {method.name} is shown none"
            raise BadInput(said, hint=f"hide_answers in another suite, without {method.name}")
        searcher, about = NoSearcher(), about | {"index": None, "index_fingerprint": ""}
    elif isinstance(searcher, NoSearcher):
        raise BadInput(f"sets: {asked.name} has no index, and {method.name} searches", hint="index: DIR")
    name = f"{model.name}-{method.name}-{asked.name}"
    settings = model.settings | about
    settings |= {
        "name": name,
        "dialect": dialect,
        "protocol": protocol.name,
        "style": getattr(protocol, "style", None),
        "evidence": getattr(protocol, "evidence", False),
        "abstention": getattr(protocol, "abstention", False),
        "limits": structs.asdict(limits),
        "seed": seed,
        "deterministic": engine.deterministic,
        "max_rows": engine.max_rows,
        "versions": find_versions(),
    }
    return Cell(out / name, method.name, model, asked, searcher, protocol, limits, settings)


def find_versions() -> dict[str, str]:
    """Versions of what decides an answer: {"quaere": "0.4.0", "python": "3.12.3", "torch": "2.9.0", ...}."""
    found = {"quaere": quaere.__version__, "python": platform.python_version()}
    for name in _LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


# ------------------------------------------------------------------------------------------------------------ the loop


async def run_suite(
    suite: Suite,
    out: Path,
    *,
    engine: Engine,
    runs: Path | None = None,
    progress: bool = True,
    on_note: Callable[[str], None] = lambda line: None,
) -> list[Row]:
    """Evaluate every cell that has no result in `out` yet; the rows of the table, in the order of the suite.

    All input is checked before a model is loaded, and a model is loaded once for all of its cells.
    """
    async with AsyncExitStack() as held:
        sets = await _open_sets(suite, held)
        models = [_find_model(model, engine, runs or runs_root(), on_note) for model in suite.models]
        cells = _plan(suite, models, sets, out, engine)
        found = {cell.path: _read_finished(cell) for cell in cells if cell.file.exists()}
        _make_folder(out)
        for model in models:
            left = [cell for cell in cells if cell.model is model and cell.path not in found]
            if not left:
                continue
            on_note(f"loading {model.name}")
            policy = model.load()
            try:
                for cell in left:
                    on_note(f"evaluating {cell.path.name}")
                    found[cell.path] = await _evaluate(cell, policy, progress)
            finally:
                await policy.stop()
    return [
        make_row(cell.asked.name, cell.model.name, cell.method, found[cell.path], _differs(cell, found[cell.path]))
        for cell in cells
    ]


def _make_folder(out: Path) -> None:
    with explain_errors(out):
        out.mkdir(parents=True, exist_ok=True)


def _read_finished(cell: Cell) -> Evaluation:
    """The result of a finished cell; BadInput if it was asked in another way, or of other weights."""
    found = read_evaluation(cell.file)
    now = msgspec.json.decode(msgspec.json.encode(cell.settings))
    if said := say_changes(found.settings, {name: now[name] for name in now if name not in _FREE}):
        raise BadInput(f"{cell.file} has another result: {said}", hint="--out another folder, or remove the file")
    return found


def _differs(cell: Cell, found: Evaluation) -> tuple[str, ...]:
    """What has changed since the cell was finished, of what its row must share with others: ("index",)."""
    return tuple(name.partition("_")[0] for name in _MARKED if found.settings.get(name) != cell.settings[name])


async def _evaluate(cell: Cell, policy: Policy, progress: bool) -> Evaluation:
    """Answer the questions of a cell that its run has no answers to, and write its result."""
    how = {"seed": cell.settings["seed"], "max_rows": cell.settings["max_rows"]}
    agent = OpenAgent(policy, cell.searcher, cell.protocol, cell.limits, cell.model.notes, 0.0, **how)
    with _open_run(cell) as stored:
        before, started = stored.metrics_at(0).get(SECONDS, 0.0), time.monotonic()

        def keep_time() -> None:
            # After every question, so that the time of a killed process counts too.
            stored.log_metrics(0, {SECONDS: before + time.monotonic() - started})

        said: dict[str, Any] = {"progress": progress, "doing": cell.path.name, "on_stored": keep_time}
        scores = await answer_questions(agent, cell.asked.questions, stored=stored, **said)
        score = score_answering(scores)
        stored.log_metrics(0, score_metrics(score))
        settings = cell.settings | {"seconds": round(stored.metrics_at(0).get(SECONDS, 0.0), 3)}
    found = Evaluation(cell.path.name, cell.settings["model"], settings, score, tuple(scores))
    write_items(found.items, cell.path.with_name(cell.path.name + SUFFIX))
    write_evaluation(found, cell.file)  # last: it says that the cell is finished
    return found


def _open_run(cell: Cell) -> Run:
    """The cell's run, new or stopped."""
    if cell.path.exists():
        stored = open_stored(cell.path, cell.settings, hint=f"--out another folder, or remove {cell.path}")
        if not cell.settings["deterministic"]:
            return stored
        stored.close()  # it is a run of this cell, so that nothing else is deleted
        discard_folder(cell.path)
    return Run.create(cell.path, "eval", cell.settings)
