"""Recipes that write reports, in the newsroom, without the command line."""

import asyncio

import newsroom
from quaere.recipes.registry import find_recipe
from quaere.runs import Run
from quaere.training.config import config_to_yaml, load_config
from quaere.training.given import QUESTIONS, encode_questions, read_source
from village_runs import Told

SMALL = {
    "prompts": "brief",
    "solver.steps": 2,
    "solver.batch": 4,
    "solver.attempts": newsroom.NUM_REPORTS,
    "solver.minibatch": 0,
    "solver.limits": newsroom.LIMITS,
    "solver.learner.learning_rate": 1e-3,
    "evaluator.limits": newsroom.LIMITS,
    "engine.mode": "deterministic",
    "checkpoints.every": 1,
}
SCORE = {
    **SMALL,
    "rubric_scope": "query",
    "initial_retrieval": 0,
    "schedule": False,
    "harness.kind": "none",
    "harness.pool": [{"name": item.name, "text": item.text} for item in newsroom.OFFERS[0].pool],
    "harness.dimensions.k": 2,
    "harness.process": {
        "require_search": False,
        "require_verification": False,
        "require_gap_analysis": False,
        "citation_cross_check": False,
    },
}


def make_reports(name, paths, *assignments, **changes):
    recipe = find_recipe(name)
    index, model, questions = map(str, paths)
    given = {**(SCORE if name == "score" else SMALL), "index": index, "model": model, "questions": questions, **changes}
    return load_config(
        recipe.schema, presets=recipe.presets, preset=None, file=None, assignments=assignments, given=given
    )


def run_reports(folder, name, config, told=None):
    """Start or go on; returns the run, open for reading."""
    recipe, told = find_recipe(name), told or Told()
    recipe.check(config)
    if folder.exists():
        store = Run.open(folder, write=True)
    else:
        files = {QUESTIONS: encode_questions(read_source(config.questions, answered=False))}
        store = Run.create(folder, "evolve", {"recipe": name}, config=config_to_yaml(config), files=files)
    with store:
        asyncio.run(recipe.train(config, store, told))
    return Run.open(folder)


class Stopped(Exception):
    pass


class Impatient(Told):
    """A reporter that pulls the plug."""

    def __init__(self, last):
        super().__init__()
        self.last = last

    def step(self, report):
        super().step(report)
        if report.step == self.last:
            raise Stopped
