"""Recipes that train on given questions, on the village, without the command line."""

import asyncio

from quaere.recipes.registry import find_recipe
from quaere.runs import Run
from quaere.training.config import config_to_yaml, load_config
from quaere.training.given import QUESTIONS, encode_questions, read_source
from village_runs import Told
from weighing import LIMITS

SMALL = {
    "prompts": "brief",
    "solver.steps": 2,
    "solver.batch": 4,
    "solver.attempts": 4,
    "solver.limits": LIMITS,
    "solver.learner.learning_rate": 1e-3,
    "engine.mode": "deterministic",
    "checkpoints.every": 1,
}


def make_practice(name, paths, *assignments, **changes):
    recipe = find_recipe(name)
    index, model, questions = map(str, paths)
    given = {**SMALL, "index": index, "model": model, "questions": questions, **changes}
    return load_config(
        recipe.schema, presets=recipe.presets, preset=None, file=None, assignments=assignments, given=given
    )


def run_practice(folder, name, config, told=None):
    """Start or go on; returns the run, open for reading."""
    recipe, told = find_recipe(name), told or Told()
    recipe.check(config)
    if folder.exists():
        store = Run.open(folder, write=True)
    else:
        files = {
            QUESTIONS: encode_questions(read_source(config.questions, answered=not config.solver.abstention.allowed))
        }
        store = Run.create(folder, "evolve", {"recipe": name}, config=config_to_yaml(config), files=files)
    with store:
        asyncio.run(recipe.train(config, store, told))
    return Run.open(folder)
