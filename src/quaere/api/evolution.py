"""`quaere.evolve`: train a recipe on an index, resume a stopped run, and export a trained role.

run = evolve("drzero", index="notes-index", model="warm", preset="single-gpu", on_step=print)
run.metrics("reward/mean")
"""

import asyncio
import shlex
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Struct, structs

from quaere.api.background import BackgroundLoop
from quaere.api.index import Index
from quaere.api.printing import count, format_duration
from quaere.api.run import Run
from quaere.api.search_function import FunctionSearcher, SearchFunction
from quaere.dialects.notes import Notes, find_notes, find_role, use_role
from quaere.dialects.registry import FROM_MEMORY, SolverDialectName
from quaere.errors import BadInput
from quaere.policies.catalogue import absolute_name
from quaere.recipes.registry import Recipe, find_recipe
from quaere.runs import Run as Store
from quaere.runs import list_runs, runs_root
from quaere.runs.checkpoints import Which
from quaere.search.index import open_index
from quaere.search.searcher import Searcher, is_folder
from quaere.training.config import config_from_yaml, config_to_yaml, diff_configs, load_config
from quaere.training.exports import export_role
from quaere.training.health import check_learned
from quaere.training.progress import (
    Reporter,
    Reporters,
    StepProgress,
    StepReport,
    check_writers,
    find_missing,
    open_writers,
)


def evolve(
    recipe: str,
    *,
    index: Index | str | Path | None = None,
    model: str | Path | None = None,
    questions: str | Path | None = None,
    dialect: SolverDialectName | None = None,
    search: SearchFunction | None = None,
    preset: str | None = None,
    config: str | Path | None = None,
    settings: Mapping[str, object] | None = None,
    out: str | Path | None = None,
    runs: str | Path | None = None,
    writers: Sequence[str] = (),
    on_step: Callable[[StepReport], None] = lambda report: None,
    on_note: Callable[[str], None] = lambda line: None,
) -> Run:
    """Train a model by a recipe until it is done, and return the run. Interrupted (Ctrl-C), it can be resumed.

    `index` are the documents to learn from and `model` the model to start from. With `search`, a function from a query
    to passages as for `Agent`, searches call it instead of the index, and so they must when the run is resumed.
    Settings are those of the preset, overruled by the YAML file `config`, overruled by `settings`: `{"solver.batch":
    8}`. `questions` is for recipes that are given some: a JSONL file, or a run that wrote its own. The run is written
    to `out`, else to a new directory in `runs`. `on_step` is called after every step, `on_note` with other events.
    """
    chosen = find_recipe(recipe)
    places = {"model": model, "index": index.path if isinstance(index, Index) else index, "questions": questions}
    named: dict[str, Any] = {name: None if place is None else str(place) for name, place in places.items()}
    options = ConfigOptions(
        **named,
        dialect=dialect,
        preset=preset,
        file=None if config is None else Path(config),
        settings=settings or {},
        runs=runs,
    )
    loaded = options.load(chosen)
    chosen.check(loaded)
    reporter = _Callbacks(on_step, on_note)

    async def train() -> Path:
        # The store belongs to the thread that opens it.
        searcher = FunctionSearcher(search) if search else None
        store = create_store(chosen, loaded, out=out, runs=runs, writers=writers, has_function=search is not None)
        await train_to_end(chosen, loaded, store, reporter, writers, searcher=searcher)
        return store.path

    with BackgroundLoop("quaere-evolve") as loop:
        return Run.open(loop.run(train()))


def resume(
    run: str | Path,
    *,
    settings: Mapping[str, object] | None = None,
    search: SearchFunction | None = None,
    force: bool = False,
    on_step: Callable[[StepReport], None] = lambda report: None,
    on_note: Callable[[str], None] = lambda line: None,
) -> Run:
    """Go on with a training run that was stopped, until its end."""
    path = Run.open(run).path

    async def train() -> None:
        options = ConfigOptions(settings=settings or {})
        resumed = open_stopped(path, options, force=force, has_function=search is not None)
        await train_to_end(
            resumed.recipe,
            resumed.config,
            resumed.store,
            _Callbacks(on_step, on_note),
            remembered=resumed.writers,
            searcher=FunctionSearcher(search) if search else None,
        )

    with BackgroundLoop("quaere-evolve") as loop:
        loop.run(train())
    return Run.open(path)


class _Callbacks(Struct):
    """A reporter that calls functions; progress within a step is ignored."""

    step: Callable[[StepReport], None]
    note: Callable[[str], None]
    progress: Callable[[StepProgress], None] = lambda progress: None
    close: Callable[[], None] = lambda: None


# ------------------------------------------------------------------------------------------- what a run is made with


class ConfigOptions(Struct, frozen=True):
    """What a user sets of a run's config. `assignments` are texts of the command line, `settings` the same as values.

        ConfigOptions(model="warm", index="notes-index", preset="demo", assignments=("solver.batch=8",))

    Attributes:
        index: index of the documents to learn from (quaere index)
        search: what is searched instead of the index: URL of a search server, web:NAME[@URL], record:FILE@PLACE or
            replay:FILE (the setting search_url)
        model: model to start from: a folder, a catalogue name or a hub id
        questions: questions to train on: a JSONL file (with answers, except for recipes that write reports), a run of
            drzero or eve, or a data set of the hub, hub:OWNER/NAME[/SUBSET][@REVISION][:SPLIT]
        preset: named settings to start from: paper, single-gpu, large-gpu, demo (default: none)
        trainer: where sampling and gradients are computed: here, or on a server that speaks the Tinker interface
            (default: local)
        trainer_url: the server of --trainer tinker (default: the hosted service, with the key in $TINKER_API_KEY)
    """

    index: Annotated[str, "DIR"] | None = None
    search: Annotated[str, "PLACE"] | None = None
    model: Annotated[str, "M"] | None = None
    questions: Annotated[str, "FILE|RUN|hub:ID"] | None = None
    preset: Annotated[str, "P"] | None = None
    trainer: Literal["local", "tinker"] | None = None
    trainer_url: Annotated[str, "URL"] | None = None
    dialect: SolverDialectName | None = None
    file: Path | None = None
    assignments: Sequence[str] = ()
    settings: Mapping[str, object] = {}
    runs: str | Path | None = None

    def load(self, recipe: Recipe) -> Any:
        """The config: the preset, the file and the options, checked by the recipe's schema."""
        given: dict[str, object] = {"model": self.model, "index": self.index, "search_url": self.search}
        given |= {"solver.dialect": self.dialect}
        given |= {"trainer.kind": self.trainer, "trainer.url": self.trainer_url}
        if self.questions is not None:
            given["questions"] = self._find_questions(recipe)
        load = partial(
            load_config,
            recipe.schema,
            presets=recipe.presets,
            preset=self.preset,
            file=self.file,
            assignments=self.assignments,
            overrides=self.settings,
        )
        config = load(given=given)
        # A model's own notes decide how it is prompted, unless a setting says otherwise.
        notes = find_notes(config.model) if config.model else Notes()
        if notes.style is not None and hasattr(config, "prompts"):
            given["prompts"] = notes.style
        if notes.abstention and _may_abstain(config) is not None and self.preset != "paper":
            given["solver.abstention.allowed"] = True
        return settle_paths(load(given=given))

    def _find_questions(self, recipe: Recipe) -> str:
        """The questions: a file or data set as given, a run by its directory, so that it is found from anywhere."""
        from quaere.training.given import find_source

        if not recipe.takes_questions:
            raise BadInput(
                f"{recipe.name} writes its own questions: --questions is for recipes that do not",
                hint="--set generation.given=FILE|RUN adds some to the first iteration's",
            )
        assert self.questions is not None
        return find_source(self.questions, runs_root(self.runs))


def settle_paths(config: Any) -> Any:
    """The config with absolute paths of what is here, so that its run can be resumed and exported from any directory.

    Questions are left out: a run keeps a copy of them.
    """
    from quaere.training.proposals import ProposerConfig

    places = {"index": _absolute(config.index), "search_url": _settle_record(config.search_url)}
    config = structs.replace(config, model=absolute_name(config.model), **places)
    proposer = getattr(config, "proposer", None)
    if not isinstance(proposer, ProposerConfig):
        return config
    hardening = structs.replace(proposer.hardening, examiner=absolute_name(proposer.hardening.examiner))
    return structs.replace(config, proposer=structs.replace(proposer, hardening=hardening))


def _absolute(place: str) -> str:
    path = Path(place).expanduser()
    return str(path.resolve()) if place and path.exists() else place


def _settle_record(place: str) -> str:
    """What is searched, with the absolute path of a record: from another directory another record would be begun.

    _settle_record("record:study.warc.gz@web:searxng") -> "record:/home/ada/study.warc.gz@web:searxng"
    """
    kind, _, rest = place.partition(":")
    if kind == "replay":
        return f"replay:{_absolute(rest)}"
    file, at, searched = rest.partition("@")
    return f"record:{Path(file).absolute()}{at}{searched}" if kind == "record" and file else place


def _may_abstain(config: Any) -> bool | None:
    """Whether the solver may abstain; None for a recipe that answers no questions, or answers them from memory."""
    abstention = getattr(config.solver, "abstention", None)
    return None if abstention is None or config.solver.dialect in FROM_MEMORY else bool(abstention.allowed)


_FUNCTION = "function"  # in the settings of a run that searches with a function


def create_store(
    recipe: Recipe,
    config: Any,
    *,
    out: str | Path | None,
    runs: str | Path | None,
    writers: Sequence[str],
    has_function: bool = False,
) -> Store:
    """A new run directory at `out`, else in the folder of runs, with the config and a copy of what it was given."""
    from quaere.training.given import QUESTIONS, copy_given, encode_questions, read_source

    check_writers(writers)
    if out is not None and Path(out, "config.yaml").exists():
        hint = f"quaere evolve --resume {shlex.quote(str(out))}, or choose another --out"
        raise BadInput(f"{out} is a run already", hint=hint)
    settings = {"recipe": recipe.name, "model": config.model, "index": config.index}
    settings |= {"index_fingerprint": open_index(Path(config.index)).fingerprint}
    settings |= ({"search": _FUNCTION} if has_function else {}) | ({"writers": list(writers)} if writers else {})
    kept: dict[str, Any] = {"config": config_to_yaml(config), "files": copy_given(config)}
    if recipe.takes_questions:
        settings["questions"] = config.questions
        answered = recipe.needs_answers and not _may_abstain(config)
        kept["files"][QUESTIONS] = encode_questions(read_source(config.questions, answered=answered))
    if out is not None:
        return Store.create(out, "evolve", settings, **kept)
    return Store.start(runs_root(runs), "evolve", settings, **kept)


def expect_time(recipe: str, model: str, runs: str | Path | None) -> str:
    """How long a step takes by the newest run of this recipe and model, in words; without one it is not known.

    "41 s a step, by the 96 steps of runs/drzero-1 (same recipe and model; larger batches take longer)"
    """
    for summary in reversed(list_runs(runs_root(runs))):
        if summary.kind != "evolve" or not summary.step:
            continue
        with Store.open(summary.path) as store:
            is_same = (store.info.settings.get("recipe"), store.info.settings.get("model")) == (recipe, model)
            seconds = [metric.value for metric in store.metrics("step/seconds")] if is_same else []
        if seconds:
            told = f"by the {count(len(seconds), 'step')} of {summary.path}"
            pace = format_duration(statistics.median(seconds))
            return f"{pace} a step, {told} (same recipe and model; larger batches take longer)"
    return "not known before the first step; then every step says how long is left, and Ctrl-C keeps the steps taken"


# ---------------------------------------------------------------------------------------------------------- training


class Stopped(Struct, frozen=True):
    """A run that was stopped, with what it takes to go on: the config that it had, and the one to go on with.

    Stopped(path=Path("runs/a"), recipe=Recipe(...), before=DrZeroConfig(...), config=DrZeroConfig(...), writers=())
    """

    path: Path
    recipe: Any
    before: Any
    config: Any
    writers: tuple[str, ...]  # the metric writers it began with
    store: Any = None  # open for writing if the run goes on

    @property
    def plannable(self) -> Any:
        """The config for a dry run, which reads the run's copies of its questions: their sources may be gone."""
        from quaere.training.given import use_copies

        return use_copies(self.config, self.path)


def open_stopped(path: Path, options: ConfigOptions, *, writers: Sequence[str] = (), **how: Any) -> Stopped:
    """Open a training run to go on with it, and store its changed settings; `how` is that of `read_stopped`."""
    found = read_stopped(path, options, writers=writers, **how)
    store = Store.open(path, write=True)
    try:
        if found.config != found.before:
            store.replace_config(config_to_yaml(found.config))
        if added := [name for name in dict.fromkeys(writers) if name not in found.writers]:
            store.change_settings({"writers": [*found.writers, *added]})  # for the next time it is resumed
    except BaseException:
        store.close()
        raise
    return structs.replace(found, store=store)


def read_stopped(
    path: Path,
    options: ConfigOptions,
    *,
    recipe: str | None = None,
    force: bool = False,
    writers: Sequence[str] = (),
    has_function: bool = False,
) -> Stopped:
    """Check that a training run can go on like this; settings or documents that have changed only with `force`."""
    from quaere.training.given import COPIES, find_source_of, use_copies

    with Store.open(path) as stored:
        if stored.info.kind != "evolve":
            raise BadInput(
                f"{path} is a run of `quaere {stored.info.kind}`; only runs of `quaere evolve` can be resumed"
            )
        found = find_recipe(stored.info.settings["recipe"])
        if recipe not in (None, found.name):
            raise BadInput(
                f"{path} is a run of {found.name}, not of {recipe}",
                hint=f"quaere evolve --resume {shlex.quote(str(path))}",
            )
        if (stored.info.settings.get("search") == _FUNCTION) != has_function:
            began = "without" if has_function else "with"
            raise BadInput(f"{path} began {began} a search function", hint=f"resume it {began} search=FUNCTION")
        remembered = tuple(stored.info.settings.get("writers", ()))
        before = config_from_yaml(found.schema, stored.trained_config())
        fingerprint = stored.info.settings["index_fingerprint"]
    if options.preset or options.file:
        raise BadInput("--resume uses the run's own config", hint="change single settings with --set K=V and --force")
    config = structs.replace(options, file=path / "config.yaml").load(found)
    for setting, file in COPIES.items():
        was = find_source_of(before, setting)
        # Runs of earlier versions have no copy of some questions, whose file may have moved.
        if find_source_of(config, setting) != was and ((path / file).exists() or not was):
            raise BadInput(f"{setting} of a run cannot be changed", hint=f"start another run with {setting}")
    changes = _find_changes(settle_paths(before), config)
    _refuse_fixed(changes)
    if config.index and is_folder(config.index) and not Path(config.index).exists():
        said = f"the index of the run is not here: {config.index}"
        raise BadInput(
            said, hint=f"quaere evolve --resume {shlex.quote(str(path))} --index DIR --force, with its place now"
        )
    found.check(use_copies(config, path))
    if open_index(Path(config.index)).fingerprint != fingerprint:
        changes.append(f"index: {config.index} holds other documents than when the run began")
    if changes and not force:
        raise BadInput(
            f"the config has changed: {'; '.join(changes)}", hint="add --force to resume with the changed config"
        )
    check_writers(writers)
    return Stopped(path, found, before, config, remembered)


# Which weights a checkpoint has, and in what form; `judge` is that of recipes that write reports.
_FIXED = ("adapter.", "trainer.kind:", "evaluator.weights:", "judge:")


def _refuse_fixed(changes: Sequence[str]) -> None:
    for name, _, change in (line.partition(": ") for line in changes if line.startswith(_FIXED)):
        raise BadInput(
            f"{name} of a run cannot be changed, as its weights depend on it: {change}",
            hint="resume without it, or start another run",
        )


def _find_changes(before: Any, config: Any) -> list[str]:
    """One line per setting that has changed; where a server is now is not a change of the config."""
    in_place = structs.replace(config, trainer=structs.replace(config.trainer, url=before.trainer.url))
    if config.engine.url and before.engine.url:
        in_place = structs.replace(in_place, engine=structs.replace(config.engine, url=before.engine.url))
    return diff_configs(before, in_place)


async def train_to_end(
    recipe: Recipe,
    config: Any,
    store: Store,
    reporter: Reporter,
    writers: Sequence[str] = (),
    remembered: Sequence[str] = (),
    searcher: Searcher | None = None,
    then: str = "",
) -> None:
    """Train from the last checkpoint to the end, and close the store, which records how the training ended.

    A `searcher` replaces the index or server of the config. Metrics also go to the `writers` that are asked for and to
    those `remembered` from the beginning of the run. `then` is noted if the training is interrupted.
    """
    from quaere.training.given import use_copies
    from quaere.training.run_setup import searching_with

    with store, searching_with(searcher):
        missing = find_missing(remembered)
        opened = open_writers([*writers, *(name for name in remembered if name not in missing)], store.path)
        told = Reporters([*opened, reporter])
        told.note(f"run {store.path}")
        for name, error in missing.items():
            told.note(f"nothing is written to {name}, to which the run began to write: {error}; {error.hint}")
        store.note_end(None)
        try:
            await recipe.train(use_copies(config, store.path), store, told)
            check_learned(store, recipe.name, config.model, writes_questions=not recipe.takes_questions)
        except (KeyboardInterrupt, asyncio.CancelledError):  # Ctrl-C cancels the task; within a step it is raised
            if then:
                told.note(then)
            raise
        else:
            told.note(f"done; look at it with: quaere runs show {shlex.quote(str(store.path))}")
        finally:
            told.close()


# --------------------------------------------------------------------------------------------------------------- export


def export(
    run: Run | str | Path,
    out: str | Path,
    *,
    role: Literal["solver", "proposer", "actor"] | None = None,
    checkpoint: Which | None = None,
    merge: bool = False,
    dtype: Literal["float32", "bfloat16"] = "float32",
    force: bool = False,
) -> Path:
    """Write a trained role of a run to the folder `out`, and return it: `Agent(out, index)` opens it.

    `role` is by default the solver, or of a run that writes reports the actor. `checkpoint` is a step, "best" or
    "last"; by default the best by validation where there is one, else the last. A LoRA adapter is written by itself
    unless `merge` adds it to its base. `dtype` is that of the weights that are written. With `force`, an earlier export
    at `out` is replaced.
    """
    path = run.path if isinstance(run, Run) else Run.open(run).path
    _, written = use_role(
        lambda: find_role(path, role or "", checkpoint),
        lambda weights: export_role(weights, Path(out), merge=merge, dtype=dtype, force=force),
    )
    return written
