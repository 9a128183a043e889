"""`quaere evolve`: train a recipe on an index, in one command that can be killed and gone on with."""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quaere.cli.old_names import add_solver_dialect
from quaere.errors import BadInput
from quaere.recipes.registry import RECIPES, find_recipe
from quaere.training.metric_sinks import WRITERS

if TYPE_CHECKING:
    from quaere.recipes.registry import Recipe
    from quaere.runs import Run


def register(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "evolve",
        help="train a search agent on your documents, with questions of its own or with yours",
        description="Let a model ask itself questions about your documents, answer them by searching, and learn "
        "(drzero, eve); or let it learn from questions that are given (evalact, evalrar, search-r1, autorefine); or "
        "let it write reports on open questions and judge them (score, report-grpo, report-dpo).",
        epilog="quaere evolve drzero --index INDEX --model MODEL --preset demo",
    )
    parser.add_argument("recipe", nargs="?", choices=RECIPES, help="the recipe (not needed with --resume)")
    parser.add_argument("--index", metavar="DIR", help="index of the documents to learn from (quaere index)")
    parser.add_argument("--model", metavar="M", help="model to start from: a folder, a catalogue name or a hub id")
    parser.add_argument(
        "--questions",
        metavar="FILE|RUN",
        help="what to learn from: a JSONL file of questions (with answers, unless reports are written on them), or a "
        "run of drzero or eve that wrote some",
    )
    add_solver_dialect(parser, "how the solver is spoken to (default: as the recipe has it)")
    parser.add_argument(
        "--preset", metavar="P", help="a set of values to start from: paper, single-gpu, large-gpu, demo"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file with values of your own")
    parser.add_argument(
        "--set", dest="assignments", action="append", default=[], metavar="K=V", help="one value, such as seed=1"
    )
    parser.add_argument("--out", metavar="RUN", help="the run's directory (default: a new one in --runs)")
    parser.add_argument("--runs", metavar="DIR", help="folder of runs (default: $QUAERE_RUNS, or ./runs)")
    parser.add_argument("--resume", metavar="RUN", help="go on with a run that was stopped")
    parser.add_argument("--force", action="store_true", help="with --resume: also if the config has changed")
    parser.add_argument(
        "--print-config", action="store_true", help="print every value as YAML, with what it does, and stop"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="check everything, say what would run and cost, and stop"
    )
    parser.add_argument(
        "--writer",
        action="append",
        default=[],
        choices=WRITERS,
        help="also write metrics there; remembered by --resume",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, one object per step")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Start a run or go on with one."""
    if args.resume:
        _resume(args)
        return
    if not args.recipe:
        raise BadInput("name a recipe or a run to resume", hint=f"quaere evolve {RECIPES[0]} --index DIR --model M")
    recipe = find_recipe(args.recipe)
    config = _config(recipe, args)
    if args.print_config:
        from quaere.training.config_docs import config_to_commented_yaml

        print(config_to_commented_yaml(config), end="")
        return
    recipe.check(config)
    from quaere.training.metric_sinks import check_writers

    check_writers(args.writer)
    if args.dry_run:
        _print_plan(recipe, config, as_json=args.json)
        return
    from quaere.runs import Run, runs_root
    from quaere.training.config import config_to_yaml
    from quaere.training.given import copy_given

    settings = {"recipe": recipe.name, "model": config.model, "index": config.index, **_fingerprint(config)}
    if args.writer:
        settings["writers"] = args.writer
    kept: dict[str, Any] = {"config": config_to_yaml(config), "files": copy_given(recipe.given(config))}
    if recipe.takes_questions:
        from quaere.training.qa_run import QUESTIONS, encode_questions, read_source

        settings["questions"] = config.questions
        kept["files"] = {QUESTIONS: encode_questions(read_source(config.questions, answered=recipe.needs_answers))}
    kind = "evolve"
    store = (
        Run.create(args.out, kind, settings, **kept)
        if args.out
        else Run.start(runs_root(args.runs), kind, settings, **kept)
    )
    _train(recipe, config, store, args)


def _config(recipe: Recipe, args: argparse.Namespace, file: Path | None = None) -> Any:
    from quaere.training.config import load_config

    given: dict[str, object] = {name: getattr(args, name) for name in ("model", "index") if getattr(args, name)}
    if args.questions:
        given["questions"] = _find_questions(recipe, args)
    if args.solver_dialect:
        given["solver.dialect"] = args.solver_dialect
    return load_config(
        recipe.schema,
        presets=recipe.presets,
        preset=args.preset,
        file=file or args.config,
        assignments=args.assignments,
        given=given,
    )


def _find_questions(recipe: Recipe, args: argparse.Namespace) -> str:
    """A file as it is, a run by its directory, so that it is found again from anywhere."""
    from quaere.runs import runs_root
    from quaere.training.qa_run import find_source

    if not recipe.takes_questions:
        raise BadInput(
            f"{recipe.name} writes its own questions: --questions is for recipes that do not",
            hint="--set generation.given=FILE|RUN adds some to the first iteration's",
        )
    return str(find_source(args.questions, runs_root(args.runs)))


def _fingerprint(config: Any) -> dict[str, str]:
    from quaere.search.index import open_index

    return {"index_fingerprint": open_index(Path(config.index)).fingerprint}


def _resume(args: argparse.Namespace) -> None:
    from quaere.runs import Run, find_run, runs_root
    from quaere.training.config import config_from_yaml, config_to_yaml, diff_configs
    from quaere.training.metric_sinks import check_writers

    path = find_run(runs_root(args.runs), args.resume)
    with Run.open(path) as stored:
        if stored.info.kind != "evolve":
            raise BadInput(f"{path} is a run of `quaere {stored.info.kind}`, which cannot be gone on with")
        recipe = find_recipe(stored.info.settings["recipe"])
        if args.recipe not in (None, recipe.name):
            raise BadInput(
                f"{path} is a run of {recipe.name}, not of {args.recipe}", hint=f"quaere evolve --resume {path}"
            )
        remembered = stored.info.settings.get("writers", [])
        before = config_from_yaml(recipe.schema, stored.config_text())
        fingerprint = stored.info.settings["index_fingerprint"]
    if args.preset or args.config:
        raise BadInput("a resumed run has its config already", hint="change single values with --set K=V and --force")
    config = _config(recipe, args, file=path / "config.yaml")
    if recipe.takes_questions and config.questions != before.questions:
        raise BadInput("a run keeps the questions it began with", hint="begin another run with --questions")
    if recipe.given(config) != recipe.given(before):
        raise BadInput("a run keeps the questions it was given", hint="begin another run with generation.given")
    changes = diff_configs(before, config)
    recipe.check(config)
    if _fingerprint(config)["index_fingerprint"] != fingerprint:
        changes.append(f"index: {config.index} holds other documents than when the run began")
    if changes and not args.force:
        raise BadInput(
            f"the config has changed: {'; '.join(changes)}", hint="add --force to go on with what has changed"
        )
    check_writers(args.writer)
    store = Run.open(path, write=True)
    if changes:
        store.replace_config(config_to_yaml(config))
    if added := [name for name in dict.fromkeys(args.writer) if name not in remembered]:
        store.change_settings({"writers": [*remembered, *added]})
    _train(recipe, config, store, args, remembered)


def _train(recipe: Recipe, config: Any, store: Run, args: argparse.Namespace, remembered: Sequence[str] = ()) -> None:
    """Train to the end; metrics also go to the writers that are asked for and to those the run began with."""
    from quaere.cli.interrupt import interruptible
    from quaere.cli.progress import Reporters, open_reporter
    from quaere.training.metric_sinks import find_missing, open_writers
    from quaere.training.outcome import check_learned
    from quaere.training.stop_request import accept_stop

    go_on = f"stopped; go on with: quaere evolve --resume {shlex.quote(str(store.path))}"
    step = "the step under way, once its checkpoint is saved"
    kept = "a step that is broken off is taken again from the last checkpoint"
    with store, accept_stop() as stop, interruptible(kept, after=step, ask=stop, then=go_on):
        missing = find_missing(remembered)
        writers = [*args.writer, *(name for name in remembered if name not in missing)]
        reporter = Reporters([*open_writers(writers, store.path), open_reporter(json=args.json)])
        reporter.note(f"run {store.path}")
        for name, error in missing.items():
            reporter.note(f"nothing is written to {name}, to which the run began to write: {error}; {error.hint}")
        store.note_end(None)
        try:
            asyncio.run(recipe.train(config, store, reporter))  # type: ignore[arg-type]
            check_learned(store, recipe.name, config.model, writes_questions=not recipe.takes_questions)
        except KeyboardInterrupt:
            reporter.note(go_on)
            raise
        else:
            reporter.note(f"done; look at it with: quaere runs show {store.path}")
        finally:
            reporter.close()


def _print_plan(recipe: Recipe, config: Any, *, as_json: bool) -> None:
    lines = recipe.plan(config)
    if as_json:
        print(json.dumps(dict(lines)))
        return
    width = max(len(name) for name, _ in lines)
    for name, said in lines:
        print(f"{name:<{width}}  {said}")
