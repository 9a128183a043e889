"""`quaere evolve`: trains a recipe on an index, in one command that can be killed and resumed."""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quaere.dialects.registry import SOLVER_DIALECTS
from quaere.errors import BadInput
from quaere.recipes.registry import RECIPES, find_recipe
from quaere.training.progress import WRITERS

if TYPE_CHECKING:
    from quaere.api.evolution import ConfigOptions
    from quaere.recipes.registry import Recipe
    from quaere.runs import Run


def register(commands: Any) -> None:
    """Add `evolve` to the command line."""
    parser = commands.add_parser(
        "evolve",
        help="train a search agent on your documents, with its own questions or with yours",
        description="Train a model by reinforcement learning: on questions that it writes itself about your documents "
        "(drzero, eve), on given questions (evalact, evalrar, search-r1, autorefine), or by writing reports on open "
        "questions and grading them (score, report-grpo, report-dpo).",
        epilog="quaere evolve drzero --index INDEX --model MODEL --preset demo",
    )
    parser.add_argument("recipe", nargs="?", choices=RECIPES, help="the recipe (not needed with --resume)")
    parser.add_argument("--index", metavar="DIR", help="index of the documents to learn from (quaere index)")
    parser.add_argument("--model", metavar="M", help="model to start from: a folder, a catalogue name or a hub id")
    parser.add_argument(
        "--questions",
        metavar="FILE|RUN|hub:ID",
        help="questions to train on: a JSONL file (with answers, except for recipes that write reports), a run of "
        "drzero or eve, or a data set of the hub, hub:OWNER/NAME[/SUBSET][@REVISION][:SPLIT]",
    )
    parser.add_argument(
        "--solver-dialect", choices=SOLVER_DIALECTS, help="prompts and protocol of the solver (default: the recipe's)"
    )
    parser.add_argument(
        "--preset", metavar="P", help="named settings to start from: paper, single-gpu, large-gpu, demo (default: none)"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file of settings")
    parser.add_argument(
        "--set", dest="assignments", action="append", default=[], metavar="K=V", help="one setting, such as seed=1"
    )
    parser.add_argument(
        "--trainer",
        choices=("local", "tinker"),
        help="where sampling and gradients are computed: here, or on a server that speaks the Tinker interface "
        "(default: local)",
    )
    parser.add_argument(
        "--trainer-url",
        metavar="URL",
        help="the server of --trainer tinker (default: the hosted service, with the key in $TINKER_API_KEY)",
    )
    parser.add_argument("--out", metavar="RUN", help="the run's directory (default: a new one in --runs)")
    parser.add_argument("--runs", metavar="DIR", help="folder of runs (default: $QUAERE_RUNS, or ./runs)")
    parser.add_argument("--resume", metavar="RUN", help="continue a run that was stopped")
    parser.add_argument("--force", action="store_true", help="with --resume: continue even if the config has changed")
    parser.add_argument(
        "--print-config", action="store_true", help="print every setting as YAML, with its description, and stop"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="check everything, print what would run and its cost, and stop"
    )
    parser.add_argument(
        "--writer",
        action="append",
        default=[],
        choices=WRITERS,
        help="also write metrics to this sink; remembered by --resume",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, one object per step")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Start a run or resume one."""
    if args.resume:
        _resume(args)
        return
    if not args.recipe:
        raise BadInput("name a recipe or a run to resume", hint=f"quaere evolve {RECIPES[0]} --index DIR --model M")
    from quaere.api.evolution import create_store

    recipe = find_recipe(args.recipe)
    config = _options(args).load(recipe)
    if args.print_config:
        from quaere.training.config import config_to_commented_yaml

        print(config_to_commented_yaml(config), end="")
        return
    recipe.check(config)
    from quaere.training.progress import check_writers

    check_writers(args.writer)
    if args.dry_run:
        _print_plan(recipe, config, args)
        return
    store = create_store(recipe, config, out=args.out, runs=args.runs, writers=args.writer)
    _train(recipe, config, store, args)


def _options(args: argparse.Namespace) -> ConfigOptions:
    from quaere.api.evolution import ConfigOptions

    return ConfigOptions(
        model=args.model or None,
        index=args.index or None,
        questions=args.questions or None,
        dialect=args.solver_dialect,
        trainer=args.trainer,
        trainer_url=args.trainer_url,
        preset=args.preset,
        file=args.config,
        assignments=args.assignments,
        runs=args.runs,
    )


def _resume(args: argparse.Namespace) -> None:
    from quaere.api.evolution import open_stopped
    from quaere.runs import find_run, runs_root

    path = find_run(runs_root(args.runs), args.resume)
    stopped = open_stopped(path, _options(args), recipe=args.recipe, force=args.force, writers=args.writer)
    _train(stopped.recipe, stopped.config, stopped.store, args, stopped.writers)


def _train(recipe: Recipe, config: Any, store: Run, args: argparse.Namespace, remembered: Sequence[str] = ()) -> None:
    """Train to the end. The first Ctrl-C stops after the step under way, the second at once."""
    from quaere.api.evolution import train_to_end
    from quaere.cli.interrupt import interruptible
    from quaere.cli.progress_view import open_reporter
    from quaere.training.progress import accept_stop

    step = "the step under way, once its checkpoint is saved"
    kept = "a step that is broken off is taken again from the last checkpoint"
    then = f"stopped; go on with: quaere evolve --resume {shlex.quote(str(store.path))}"
    with accept_stop() as stop, interruptible(kept, after=step, ask=stop, then=then):
        reporter = open_reporter(json=args.json)
        asyncio.run(train_to_end(recipe, config, store, reporter, args.writer, remembered))


def _print_plan(recipe: Recipe, config: Any, args: argparse.Namespace) -> None:
    from quaere.api.evolution import expect_time

    lines = [*recipe.plan(config), ("time", expect_time(recipe.name, config.model, args.runs))]
    if args.json:
        print(json.dumps(dict(lines)))
        return
    width = max(len(name) for name, _ in lines)
    for name, said in lines:
        print(f"{name:<{width}}  {said}")
