"""`quaere evolve`: trains a recipe on an index, in one command that can be killed and resumed."""

import argparse
import asyncio
import json
import shlex
from collections.abc import Sequence
from typing import Annotated, Any

from quaere.api.evolution import ConfigOptions, create_store, expect_time, open_stopped, read_stopped, train_to_end
from quaere.cli.options import Flag, JsonOption, Named, Repeated, RunsFolder, command, named_run, read_options
from quaere.cli.progress_view import open_reporter
from quaere.cli.terminal import interruptible
from quaere.dialects.registry import SOLVER_DIALECTS
from quaere.errors import BadInput
from quaere.recipes.registry import RECIPES, Recipe, find_recipe
from quaere.runs import Run
from quaere.runs.checkpoints import find_checkpoints
from quaere.setting_types import File
from quaere.training.progress import WRITERS, accept_stop, check_writers

_STEP = "the step under way, once its checkpoint is saved"


class EvolveOptions(JsonOption):
    """Options of `quaere evolve`.

    Attributes:
        recipe: the recipe (not needed with --resume)
        solver_dialect: prompts and protocol of the solver (default: the recipe's)
        config: YAML file of settings
        assignments: one setting, such as seed=1
        out: the run's directory (default: a new one in --runs)
        resume: continue a run that was stopped
        force: with --resume: continue even if the config has changed
        print_config: print every setting as YAML, with its description, and stop
        dry_run: check everything, print what would run and its cost, and stop
        writer: also write metrics to this sink; remembered by --resume
        json: print JSON, one object per step
    """

    recipe: Annotated[str, Flag("recipe", nargs="?", choices=RECIPES)] | None = None
    solver_dialect: Annotated[str, Flag(choices=SOLVER_DIALECTS)] | None = None
    config: File | None = None
    assignments: Annotated[tuple[str, ...], "K=V", Repeated, Flag("--set")] = ()
    out: Annotated[str, "RUN", Named] | None = None
    resume: Annotated[str, "RUN", Named] | None = None
    force: bool = False
    print_config: bool = False
    dry_run: bool = False
    writer: Annotated[tuple[str, ...], Repeated, Flag(choices=WRITERS)] = ()


def _run(args: argparse.Namespace) -> None:
    if args.resume:
        _resume(args)
        return
    if not args.recipe:
        raise BadInput("name a recipe or a run to resume", hint=f"quaere evolve {RECIPES[0]} --index DIR --model M")
    recipe = find_recipe(args.recipe)
    config = _options(args).load(recipe)
    if args.print_config:
        _print_config(config)
        return
    recipe.check(config)
    check_writers(args.writer)
    if args.dry_run:
        _print_plan(recipe, config, args)
        return
    _train(recipe, config, create_store(recipe, config, out=args.out, runs=args.runs, writers=args.writer), args)


def _resume(args: argparse.Namespace) -> None:
    path, options = named_run(args, args.resume), _options(args)
    how: dict[str, Any] = {"recipe": args.recipe, "force": args.force, "writers": args.writer}
    if not (args.print_config or args.dry_run):
        found = open_stopped(path, options, **how)
        _train(found.recipe, found.config, found.store, args, found.writers)
        return
    stopped = read_stopped(path, options, **how)
    if args.print_config:
        _print_config(stopped.config)
        return
    steps = [found.step for found in find_checkpoints(path / "checkpoints")]
    _print_plan(stopped.recipe, stopped.plannable, args, ("goes on", f"after step {max(steps, default=0)}"))


fill = command(
    _run,
    ConfigOptions,
    EvolveOptions,
    RunsFolder,
    description="""\
Train a model by reinforcement learning: on questions that it writes itself about your documents (drzero, eve), on given
questions (evalact, evalrar, search-r1, autorefine; r1 without a search), or by writing reports on open questions and
grading them (score, report-grpo, report-dpo). sft learns given answers by imitation.
""",
    epilog="quaere evolve drzero --index INDEX --model MODEL --preset demo",
)


def _options(args: argparse.Namespace) -> ConfigOptions:
    places = {name: getattr(args, name) or None for name in ("model", "index", "questions")}
    return read_options(args, ConfigOptions, **places, dialect=args.solver_dialect, file=args.config)


def _train(recipe: Recipe, config: Any, store: Run, args: argparse.Namespace, remembered: Sequence[str] = ()) -> None:
    """Train to the end. The first Ctrl-C stops after the step under way, the second at once."""
    kept = "a step that is broken off is taken again from the last checkpoint"
    then = f"stopped; go on with: quaere evolve --resume {shlex.quote(str(store.path))}"
    reporter = open_reporter(json=args.json)
    with accept_stop() as stop, interruptible(kept, after=_STEP, ask=stop, then=then):
        asyncio.run(train_to_end(recipe, config, store, reporter, args.writer, remembered, then=then))


def _print_config(config: Any) -> None:
    from quaere.training.config import config_to_commented_yaml

    print(config_to_commented_yaml(config), end="")


def _print_plan(recipe: Recipe, config: Any, args: argparse.Namespace, *more: tuple[str, str]) -> None:
    lines = [*recipe.plan(config), *more, ("time", expect_time(recipe.name, config.model, args.runs))]
    if args.json:
        print(json.dumps(dict(lines)))
        return
    width = max(len(name) for name, _ in lines)
    for name, said in lines:
        print(f"{name:<{width}}  {said}")
