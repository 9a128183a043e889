"""Recipes on given questions: the paper's values one by one, each ablation one value away, and what is refused."""

import re

import pytest

from quaere.dialects.registry import FROM_MEMORY
from quaere.errors import BadInput
from quaere.recipes.registry import RECIPES, find_recipe
from quaere.rewards.self_evaluation import noted_reward
from quaere.training.config import config_from_yaml, config_to_yaml, diff_configs, load_config
from quaere.training.given import check_config, count_steps
from quaere.training.solver_phase import solver_of

PRACTICE = ("evalact", "evalrar", "search-r1", "autorefine")


def load(name, *assignments, preset="paper"):
    recipe = find_recipe(name)
    config = load_config(recipe.schema, presets=recipe.presets, preset=preset, file=None, assignments=assignments)
    check_config(config)
    return config


# ----------------------------------------------------------------------------------------------------------- the papers


def test_which_recipes_take_questions():
    taking = [name for name in RECIPES if find_recipe(name).takes_questions]
    assert [name for name in taking if find_recipe(name).needs_answers] == [*PRACTICE, "r1", "sft"]
    assert [name for name in taking if not find_recipe(name).needs_answers] == ["score", "report-grpo", "report-dpo"]


@pytest.mark.parametrize("name", ["r1", "sft"])
@pytest.mark.parametrize("preset", [None, "paper", "single-gpu", "large-gpu", "demo"])
def test_recipes_without_a_search_have_one_turn(name, preset):
    config = load(name, preset=preset)
    assert config.solver.limits.max_turns == 1 and config.solver.dialect in FROM_MEMORY
    assert name == "r1" or config.solver.learner.kl_beta == 0


def test_paper_evalact():
    paper = load("evalact")
    solver, learner, evaluation = paper.solver, paper.solver.learner, paper.solver.evaluation
    assert (solver.dialect, solver.answer_score) == ("evalact", "f1")
    assert (solver.batch, solver.attempts, paper.epochs, solver.steps) == (256, 5, 2.0, 0)
    assert count_steps(paper, 27_000) == 211
    assert learner.learning_rate == 1e-6
    assert (learner.aggregation, learner.kl_beta) == ("token_sum", 0.001)
    assert (paper.sampling.temperature, paper.sampling.top_p, paper.sampling.top_k) == (1.0, 1.0, 0)
    assert (solver.limits.max_searches, solver.limits.topk) == (20, 3)
    assert solver.limits.max_turns == 2 * solver.limits.max_searches + 2
    assert evaluation.pcar
    assert (evaluation.base, evaluation.most, evaluation.floor) == (0.1, 0.5, 1e-6)
    assert (evaluation.segment, evaluation.bad_score) == ("with_think", "format_fail")
    assert evaluation.think_before_evaluate == "allow"
    assert paper.adapter.rank == 0


def test_paper_evalrar():
    paper = load("evalrar")
    solver, learner = paper.solver, paper.solver.learner
    assert (solver.dialect, solver.answer_score) == ("evalrar", "own")
    assert (solver.batch, solver.attempts, solver.steps, solver.limits.topk) == (512, 5, 200, 3)
    assert count_steps(paper, 169_615) == 200
    assert learner.learning_rate == 1e-6
    assert (learner.aggregation, learner.kl_beta) == ("sequence_mean", 0.001)
    assert (solver.evaluation.bonus, solver.evaluation.contain) == (0.1, "normalised")
    assert paper.adapter.rank == 0


@pytest.mark.parametrize("name", ["search-r1", "autorefine"])
def test_baselines_differ_from_evalrar_by_their_dialect_alone(name):
    assert diff_configs(load("evalrar"), load(name)) == [f"solver.dialect: evalrar -> {name}"]


def test_what_each_protocol_is_paid_with():
    pays = {name: solver_of(load(name).solver, "brief").pay for name in PRACTICE}
    scores = {name: getattr(pay, "keywords", {}).get("score", "exact_match") for name, pay in pays.items()}
    assert scores == {"evalact": "f1", "evalrar": "exact_match", "search-r1": "exact_match", "autorefine": "f1"}
    assert noted_reward(0.0, ["Venn"], ["Venn"]).total == 0.1


@pytest.mark.parametrize("name", PRACTICE)
def test_what_the_paper_preset_changes(name):
    how = "token_sum" if name == "evalact" else "sequence_mean"
    assert set(diff_configs(find_recipe(name).schema(), load(name))) == {
        "solver.max_draws: 2 -> 0",
        "solver.several_share: 0.3333333333333333 -> 0.0",
        "solver.limits.answer_turn: true -> false",
        "solver.learner.kl_beta: 0.0 -> 0.001",
        "solver.learner.kl_flat: false -> true",
        f"solver.learner.aggregation: token_mean -> {how}",
        "engine.max_rows: 32 -> 256",
        "validation.questions: 64 -> 0",
    }


@pytest.mark.parametrize("name", PRACTICE)
@pytest.mark.parametrize("preset", ["paper", "single-gpu", "large-gpu", "demo"])
def test_every_preset_is_sound_survives_yaml_and_keeps_the_method(name, preset):
    config, paper = load(name, preset=preset), load(name)
    assert config_from_yaml(type(config), config_to_yaml(config)) == config
    kept = ("dialect", "answer_score", "evaluation", "unbiased_std")
    assert all(getattr(config.solver, key) == getattr(paper.solver, key) for key in kept)


# ------------------------------------------------------------------------------------------------------------ ablations

STRENGTHS = "solver.evaluation.base=0.2 solver.evaluation.most=1 solver.evaluation.floor=0.01"
ABLATIONS = {
    ("evalact", "epochs=0"): ["epochs"],
    ("evalact", "solver.dialect=tool-call"): ["solver.dialect"],
    ("evalact", "solver.evaluation.pcar=false"): ["solver.evaluation.pcar"],
    ("evalact", "solver.evaluation.base=0.05 solver.evaluation.most=0.25"): [
        "solver.evaluation.base",
        "solver.evaluation.most",
    ],
    ("evalact", STRENGTHS): ["solver.evaluation.base", "solver.evaluation.most", "solver.evaluation.floor"],
    ("evalact", "solver.evaluation.segment=search_eval"): ["solver.evaluation.segment"],
    ("evalact", "solver.evaluation.bad_score=clamp"): ["solver.evaluation.bad_score"],
    ("evalact", "solver.evaluation.think_before_evaluate=fail"): ["solver.evaluation.think_before_evaluate"],
    ("evalact", "solver.evaluation.brier=0.2"): ["solver.evaluation.brier"],
    ("evalact", "solver.evaluation.epsilon=1"): ["solver.evaluation.epsilon"],
    ("evalact", "solver.evaluation.scores=oracle"): ["solver.evaluation.scores"],
    ("evalact", "solver.evaluation.permuted=true"): ["solver.evaluation.permuted"],
    ("evalact", "solver.shuffle_advantages=true"): ["solver.shuffle_advantages"],
    ("evalrar", "solver.evaluation.bonus=0"): ["solver.evaluation.bonus"],
    ("evalrar", "solver.evaluation.contain=raw"): ["solver.evaluation.contain"],
    ("evalrar", "solver.evaluation.note_rule=grounded"): ["solver.evaluation.note_rule"],
    ("evalrar", "solver.min_std=0.1"): ["solver.min_std"],
    ("evalrar", "solver.dialect=search-r1"): ["solver.dialect"],
    ("evalrar", "solver.shuffle_advantages=true"): ["solver.shuffle_advantages"],
    ("search-r1", "solver.answer_score=f1"): ["solver.answer_score"],
    ("search-r1", "solver.information_gain=0.5"): ["solver.information_gain"],
    ("search-r1", "solver.shuffle_advantages=true"): ["solver.shuffle_advantages"],
    ("autorefine", "solver.answer_score=exact_match"): ["solver.answer_score"],
    ("autorefine", "solver.evaluation.bonus=0"): ["solver.evaluation.bonus"],
    ("autorefine", "solver.evaluation.contain=raw"): ["solver.evaluation.contain"],
    ("autorefine", "solver.shuffle_advantages=true"): ["solver.shuffle_advantages"],
}


@pytest.mark.parametrize(("name", "assignments"), ABLATIONS)
def test_an_ablation_changes_its_value_and_nothing_else(name, assignments):
    changed = diff_configs(load(name), load(name, *assignments.split()))
    assert [line.partition(":")[0] for line in changed] == ABLATIONS[name, assignments]


@pytest.mark.parametrize("name", PRACTICE)
def test_every_ablation_a_schema_names_is_among_them(name):
    named = re.findall(r"\b(?:epochs|solver\.[a-z_.]+)=[^\s,:]+", find_recipe(name).schema.__doc__)
    known = {one for recipe, assignments in ABLATIONS for one in assignments.split() if recipe == name}
    assert len(named) >= 2 and set(named) <= known


# ------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("assignments", "says"),
    [
        ("solver.limits.max_turns=2", "solver.limits.max_turns must be at least 3 for evalact"),
        ("solver.attempts=1", "solver.attempts must be at least 2"),
        ("solver.max_draws=-1", "solver.max_draws must be at least 0, not -1"),
        ("solver.batch=0", "solver.batch must be at least 1, not 0"),
        ("epochs=-1", "epochs must be at least 0, not -1"),
        ("epochs=.inf", "epochs must be a finite number with solver.steps=0"),
        ("solver.evaluation.base=0.9", "solver.evaluation.base must be at most solver.evaluation.most (0.5), not 0.9"),
        ("sampling.temperature=0", "sampling.temperature must be above 0"),
        ("sampling.temperature=0.7", "sampling.temperature must be 1 in training, not 0.7: log-probs and gradients"),
        ("sampling.top_p=0.95", "sampling.top_p must be 1 in training, not 0.95"),
        ("sampling.top_k=20", "sampling.top_k must be 0 in training, not 20"),
        ("checkpoints.every=0", "checkpoints.every must be at least 1, not 0"),
        ("solver.learner.min_warmup_steps=-1", "solver.learner.min_warmup_steps must be at least 0, not -1"),
        ("validation.every=0", "validation.every must be at least 1, not 0"),
        ("solver.evaluation.pcar=false solver.evaluation.scores=oracle", "evaluation.scores=oracle has no effect"),
        ("solver.evaluation.pcar=false solver.evaluation.permuted=true", "evaluation.permuted=true has no effect"),
        (
            "solver.dialect=evalrar solver.evaluation.bonus=0 solver.evaluation.note_rule=grounded",
            "evaluation.note_rule=grounded has no effect without a bonus",
        ),
        ("solver.dialect=cot solver.information_gain=1", "cot answers from memory, so no search of it has"),
    ],
)
def test_senseless_values_are_refused(assignments, says):
    with pytest.raises(BadInput, match=re.escape(says)):
        load("evalact", *assignments.split())
    assert load("evalact", "solver.limits.max_turns=2", "solver.dialect=tool-call")


@pytest.mark.parametrize(
    ("epochs", "steps", "num_questions", "expected"),
    [(1.0, 0, 100, 4), (2.0, 0, 100, 7), (0.5, 0, 100, 2), (2.0, 0, 3, 2), (0.0, 0, 100, 0), (2.0, 5, 100, 5)],
)
def test_the_number_of_steps(epochs, steps, num_questions, expected):
    config = load("evalact", f"epochs={epochs}", f"solver.steps={steps}", "solver.batch=32")
    assert count_steps(config, num_questions) == expected


@pytest.mark.parametrize(
    ("steps", "max_draws", "num_questions", "expected"),
    [(80, 0, 100, 80), (80, 2, 100, 6), (80, 1, 100, 3), (5, 2, 100, 5), (80, 2, 10, 2), (0, 1, 100, 7)],
)
def test_no_question_is_drawn_too_often(steps, max_draws, num_questions, expected):
    """Whole batches of 32; with `solver.steps=0`, two epochs are asked for by name."""
    sets = [f"solver.steps={steps}", f"solver.max_draws={max_draws}", "epochs=2", "solver.batch=32"]
    assert count_steps(load("evalact", *sets), num_questions) == expected


# ------------------------------------------------------------------------------------------------------ other dialects


@pytest.mark.parametrize(
    ("name", "other"), [("evalact", "tool-call"), ("evalrar", "search-r1"), ("evalrar", "evalact")]
)
def test_a_file_loses_the_settings_of_a_dialect_that_is_replaced(name, other, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(config_to_yaml(load(name, "solver.batch=9")), encoding="utf-8")
    how = {"presets": {}, "preset": None, "file": file}
    config = load_config(find_recipe(name).schema, assignments=[f"solver.dialect={other}"], **how)
    assert (config.solver.dialect, config.solver.batch) == (other, 9)
    assert config.solver == config_from_yaml(type(config), config_to_yaml(config)).solver


def test_a_setting_of_other_recipes_is_not_taken_for_one_of_these():
    with pytest.raises(BadInput, match=r"^unknown setting iterations$"):
        load("evalact", "iterations=2")


def test_settings_of_another_dialect_are_said_to_be_of_another(tmp_path):
    said = "unknown setting solver.evaluation.pcar: it is not of the dialect that solver.dialect names"
    for dialect in ("tool-call", "evalrar"):
        with pytest.raises(BadInput, match=f"^{re.escape(said)}; leave it out$"):
            load("evalact", f"solver.dialect={dialect}", "solver.evaluation.pcar=false")
    (tmp_path / "mine.yaml").write_text("solver: {evaluation: {pcar: false}}", encoding="utf-8")
    with pytest.raises(BadInput, match=re.escape(said)):
        config_from_yaml(find_recipe("search-r1").schema, (tmp_path / "mine.yaml").read_text(encoding="utf-8"))
    with pytest.raises(BadInput, match=r"did you mean solver\.evaluation\.pcar\?"):
        load("evalact", "solver.evaluation.pcra=false")
