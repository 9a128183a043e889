"""SCORE and reports under a fixed judge: the paper's values one by one, each ablation one value away, and refusals."""

import re

import pytest
from msgspec import structs

from quaere.chat.dimensions import POOL
from quaere.errors import BadInput
from quaere.recipes import report_baselines
from quaere.recipes.registry import RECIPES, find_recipe, writes_reports
from quaere.recipes.score import config as score_config
from quaere.recipes.score.config import check_config
from quaere.records import Rubric, Weight
from quaere.training.config import config_from_yaml, config_to_yaml, diff_configs, load_config
from quaere.training.report_run import ResearchConfig, parse_rubric

NAMES = ("score", "report-grpo", "report-dpo")


def load(name, *assignments, preset="paper"):
    recipe = find_recipe(name)
    config = load_config(recipe.schema, presets=recipe.presets, preset=preset, file=None, assignments=assignments)
    if name == "score":
        check_config(config)
    return config


def test_the_papers_values():
    paper = load("score")
    solver, evaluator, learner = paper.solver, paper.evaluator, paper.solver.learner
    assert (solver.batch, solver.minibatch, solver.attempts) == (64, 32, 8)
    assert (learner.learning_rate, learner.warmup_steps(solver.steps)) == (1e-6, 5)
    assert (learner.kl_beta, learner.kl) == (0.05, "k3")
    assert (solver.limits.max_turns, solver.cap) == (10, "turns")
    assert (solver.limits.turn_tokens, solver.limits.sequence_tokens) == (4096, 4096 + 8192)
    assert (evaluator.temperature, evaluator.beta, evaluator.every, evaluator.alpha) == (0.8, 0.7, 1, 1.0)
    assert (evaluator.limits.turn_tokens, evaluator.passes, evaluator.score_scale) == (2048, 1, 10.0)
    assert (evaluator.validity, evaluator.tau) == ("base_dimension", "harness_min_calls")
    assert (paper.rubric_scope, paper.harness.every, paper.harness.kind) == ("step", 5, "rules")
    assert not solver.frozen and not evaluator.frozen and paper.schedule and paper.initial_retrieval
    assert paper.health.policy == "stop" and paper.adapter.rank == 0
    assert find_recipe("score").schema().harness.first().find("factuality")


@pytest.mark.parametrize("name", NAMES)
def test_the_defaults_are_the_paper(name):
    assert set(diff_configs(find_recipe(name).schema(), load(name))) == {
        "solver.limits.answer_turn: true -> false",
        "evaluator.limits.answer_turn: true -> false",
        "engine.max_rows: 32 -> 256",
    }


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("preset", ["paper", "single-gpu", "demo"])
def test_every_preset_survives_yaml(name, preset):
    config = load(name, preset=preset)
    assert config_from_yaml(type(config), config_to_yaml(config)) == config


def test_baselines_write_as_score_does():
    score, grpo, dpo = (load(name) for name in NAMES)
    for other in (grpo, dpo):
        assert other.solver.limits == score.solver.limits
        assert (other.solver.batch, other.solver.attempts) == (score.solver.batch, score.solver.attempts)
    assert grpo.solver.learner == score.solver.learner
    assert dpo.solver.learner.aggregation == "token_sum"


def test_which_recipes_are_known_to_write_reports():
    assert tuple(name for name in RECIPES if writes_reports(name)) == NAMES
    # A recipe whose config is that of a run on open questions must be known as one, whoever adds it.
    assert tuple(name for name in RECIPES if issubclass(find_recipe(name).schema, ResearchConfig)) == NAMES
    assert not writes_reports("") and not writes_reports("of another version")


ABLATIONS = {
    "score": [
        *("evaluator.frozen=true", "solver.frozen=true", "harness.kind=none", "schedule=false", "initial_retrieval=0"),
        *("solver.attempts=3", "solver.minibatch=0", "solver.cap=tool_calls", "rubric_scope=query"),
        *("evaluator.validity=separate", "evaluator.score_scale=5", "evaluator.tau=2", "evaluator.passes=2"),
        *("evaluator.alpha=0.5", "evaluator.every=2", "evaluator.beta=0.9", "evaluator.tokens=turn"),
        *("evaluator.moments=own", "evaluator.agreement=content", "evaluator.aggregation=token_mean"),
        *("evaluator.baseline=pair", "evaluator.weights=own", "evaluator.verification=each"),
        *("harness.every=10", "health.policy=warn", "shuffle_advantages=true"),
        "fixed_rubric=factuality, depth 0.3",
    ],
    "report-grpo": ["judge=model", "shuffle_advantages=true", "fixed_rubric=factuality, depth 0.3"],
    "report-dpo": ["dpo_beta=0.5"],
}


@pytest.mark.parametrize(
    ("name", "assignment"), [(name, one) for name, several in ABLATIONS.items() for one in several]
)
def test_an_ablation_changes_its_value_and_nothing_else(name, assignment):
    changed = diff_configs(load(name), load(name, assignment))
    assert [line.partition(":")[0] for line in changed] == [assignment.partition("=")[0]]


@pytest.mark.parametrize(
    ("module", "names"), [(score_config, ["score"]), (report_baselines, ["report-grpo", "report-dpo"])]
)
def test_every_ablation_the_modules_name_is_among_them(module, names):
    named = re.findall(r"^    ([a-z_]+(?:\.[a-z_.]+)?=(?:\"[^\"]*\"|\S+))", module.__doc__, re.MULTILINE)
    known = {one for name in names for one in ABLATIONS[name]}
    assert len(named) >= 4 and {one.replace('"', "") for one in named} <= known


def test_what_a_cap_bounds():
    turns, calls = load("score").solver.writing_limits, load("score", "solver.cap=tool_calls").solver.writing_limits
    assert (turns.max_turns, turns.max_searches) == (10, 10)
    assert (calls.max_turns, calls.max_searches) == (12, 10)


@pytest.mark.parametrize(
    ("assignments", "says"),
    [
        (["solver.attempts=1"], "solver.attempts must be at least 2"),
        (["solver.steps=0"], "solver.steps must be at least 1"),
        (["evaluator.passes=0"], "evaluator.passes must be at least 1"),
        (["evaluator.every=0"], "evaluator.every must be at least 1"),
        (["harness.every=0"], "harness.every must be at least 1"),
        (["evaluator.alpha=0"], "evaluator.alpha must be above 0, not 0: set evaluator.frozen=true"),
        (["evaluator.beta=1.5"], "evaluator.beta must be between 0 and 1"),
        (["fixed_rubric=factuality", "evaluator.baseline=pair"], "fixed_rubric chooses none"),
        (["sampling.temperature=0.8"], "sampling.temperature must be 1 in training, not 0.8"),
        (["evaluator.temperature=0"], "evaluator.temperature must be above 0"),
        (["health.update_every=-1"], "health.update_every must be at least 0"),
        (["evaluator.tau=-1"], "evaluator.tau must be at least 0"),
        (["evaluator.tau=often"], "evaluator.tau must be"),
        (["harness.kind=llm"], "harness.kind=llm needs a model to ask"),
        (["harness.model=openai:x@http://localhost"], "is used only with harness.kind=llm"),
        (["harness.dimensions.k=40"], "(harness.*) cannot be used"),
        (["solver.frozen=true", "evaluator.frozen=true"], "nothing would be trained"),
        (["solver.frozen=true", "fixed_rubric=factuality"], "nothing would be trained"),
        (["fixed_rubric=beauty"], "fixed_rubric names the unknown dimension beauty"),
        (["fixed_rubric=factuality, depth"], "fixed_rubric is invalid"),
        (["fixed_rubric=factuality, depth 7"], "weights from 0 to 1"),
        (["scheduler.window=0"], "scheduler.window must be at least 1, not 0"),
    ],
)
def test_senseless_values_are_refused(assignments, says):
    with pytest.raises(BadInput, match=re.escape(says)):
        load("score", *assignments)


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        ("dpo_beta=0", "dpo_beta must be above 0"),
        ("solver.minibatch=4", "solver.minibatch must be 0"),
        ("solver.learner.keep_reference=false", "needs solver.learner.aggregation=token_sum"),
        ("fixed_rubric=beauty", "fixed_rubric names the unknown dimension beauty"),
    ],
)
def test_what_is_not_dpo_is_refused(assignment, says):
    with pytest.raises(BadInput, match=re.escape(says)):
        find_recipe("report-dpo").check(load("report-dpo", assignment))


def test_a_rubric_reads_back_as_it_says_itself():
    rubric = Rubric("factuality", (Weight("coverage", 0.4), Weight("insight", 0.25)))
    assert parse_rubric(rubric.text, POOL) == rubric


@pytest.mark.parametrize(
    ("assignments", "says"),
    [
        (["trainer.kind=tinker", "evaluator.moments=own"], "a Tinker server has one set of optimizer moments"),
        (["trainer.kind=tinker"], "no model is given"),  # and nothing else
        (["evaluator.moments=own"], "no model is given"),
    ],
)
def test_moments_of_its_own_are_refused_where_a_server_trains(assignments, says):
    with pytest.raises(BadInput, match=says):
        find_recipe("score").check(load("score", *assignments))


def test_the_first_harness_is_the_one_that_was_set():
    sets = ["harness.dimensions.k=3", "harness.process.min_tool_calls=3", "harness.process.require_gap_analysis=false"]
    first = load("score", *sets, "harness.notes=Look at dates.").harness.first()
    assert (first.dimensions.k, first.notes) == (3, "Look at dates.")
    assert (first.process.min_tool_calls, first.process.require_gap_analysis) == (3, False)


@pytest.mark.parametrize(
    ("name", "assignments", "says", "hint"),
    [
        ("score", ["evaluator.tau=10"], "10 searches, and an assessment of 8 reports", "max_turns=11"),
        (
            "score",
            ["evaluator.verification=each", "evaluator.tau=2"],
            "verification=each has room for 1",
            "max_turns=17",
        ),
        ("score", ["evaluator.verification=each", "solver.attempts=10"], "has room for 0", "max_turns=11"),
        ("score", ["harness.process.min_tool_calls=4", "evaluator.limits.max_turns=4"], "room for 3", "max_turns=5"),
        ("score", ["evaluator.limits.max_searches=0"], "room for 0", "max_searches=1"),
        ("report-grpo", ["judge=model", "evaluator.limits.max_turns=1"], "room for 0", "max_turns=2"),
    ],
)
def test_an_assessment_has_room_for_the_searches_that_verify_a_report(name, assignments, says, hint):
    """Otherwise every report would earn 0."""
    with pytest.raises(BadInput, match=re.escape(says)) as refused:
        find_recipe(name).check(load(name, *assignments))
    assert refused.value.hint == f"--set evaluator.limits.{hint}"
    asked = [*assignments, *refused.value.hint.split()[1:]]
    with pytest.raises(BadInput, match="no model is given"):  # and nothing else
        find_recipe(name).check(load(name, *asked))


def test_no_harness_requires_more_searches_than_there_is_room_for():
    assert load("score").harness_limits.max_tool_calls == 4
    each = load("score", "evaluator.verification=each", "solver.attempts=3", preset="single-gpu")
    assert each.harness_limits == structs.replace(each.harness.limits, max_tool_calls=3)


def test_a_pool_of_ones_own():
    config = load("score", 'harness.extra=[{name: chronology, text: "Events stand in their order."}]')
    assert (
        config.harness.first().find("chronology") and config_from_yaml(type(config), config_to_yaml(config)) == config
    )
