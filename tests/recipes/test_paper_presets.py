"""The `paper` presets have the papers' values, whatever becomes of the defaults.

`fixtures/paper_presets.json` holds what they came to when the defaults were still the papers'. A setting that is newer
than that must be off there; a value that was found to be wrong since is named here with the right one.
"""

import json
from pathlib import Path

import pytest
from msgspec import structs, to_builtins

from quaere.recipes.registry import RECIPES, find_recipe
from quaere.training.config import load_config
from quaere.training.given import find_source_of

RECORDED = json.loads((Path(__file__).parent / "fixtures" / "paper_presets.json").read_text(encoding="utf-8"))
# Both papers compare strings: an answer of "5" is contained in a question about 1950.
_LITERALLY = {"proposer.reward.containment": "characters"}
CORRECTED: dict[str, dict[str, object]] = {"drzero": _LITERALLY, "eve": _LITERALLY}
# By the ends of their names: settings that are newer, with the value that leaves everything as it was.
NEWER = {
    "learner.kl_flat": True,
    "learner.min_warmup_steps": 0,
    "solver.max_draws": 0,
    "needed_searches": "auto",
    "sampling.off_policy": False,
    "solver.min_std": 0.0,
    "solver.information_gain": 0.0,
    "evaluation.epsilon": 1e-6,
    "evaluation.scores": "own",
    "evaluation.permuted": False,
    "evaluation.brier": 0.0,
    "evaluation.note_rule": "any",
    "health.min_new_questions": 1,  # it warns and changes nothing
}


def resolve(name, preset="paper"):
    recipe = find_recipe(name)
    return load_config(recipe.schema, presets=recipe.presets, preset=preset, file=None, assignments=[])


def leaves(config, prefix=""):
    for field in structs.fields(config):
        value = getattr(config, field.name)
        if isinstance(field.type, type) and hasattr(field.type, "__struct_fields__"):
            yield from leaves(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, to_builtins(value, builtin_types=())


def plain(value):
    return list(map(plain, value)) if isinstance(value, list | tuple) else value


def test_dr_zeros_released_generator_keeps_the_best_of_five():
    """EVE's paper writes five questions about a document and keeps all that are valid."""
    found = {name: resolve(name).generation for name in ("drzero", "eve")}
    assert {name: (one.questions, one.samples) for name, one in found.items()} == {"drzero": (1, 5), "eve": (5, 1)}


def test_every_recipe_was_recorded():
    assert set(RECORDED) == set(RECIPES)


@pytest.mark.parametrize("name", RECIPES)
def test_a_paper_preset_has_the_recorded_values(name):
    found = {key: plain(value) for key, value in leaves(resolve(name))}
    expected = RECORDED[name] | CORRECTED.get(name, {})
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize("name", RECIPES)
def test_what_is_newer_is_off_in_a_paper_preset(name):
    refuse_newer(name, resolve(name))


def refuse_newer(name, config):
    """Fail if a setting of `NEWER` is on."""
    # Without a KL term it does not matter which samples it would be over.
    no_kl = name == "report-dpo"
    for key, value in leaves(config):
        for end, expected in NEWER.items():
            if key.endswith(end) and not (end == "learner.kl_flat" and no_kl):
                assert value == expected, key


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("evalact", "solver.evaluation.brier=0.2"),
        ("evalact", "solver.evaluation.scores=oracle"),
        ("evalrar", "solver.evaluation.note_rule=grounded"),
        ("search-r1", "solver.information_gain=0.5"),
        ("search-r1", "solver.min_std=0.1"),
    ],
)
def test_a_newer_setting_would_be_seen(name, setting):
    recipe = find_recipe(name)
    config = load_config(recipe.schema, presets=recipe.presets, preset="paper", file=None, assignments=[setting])
    with pytest.raises(AssertionError):
        refuse_newer(name, config)


@pytest.mark.parametrize("name", ["drzero", "eve", "evalact", "evalrar", "search-r1", "autorefine"])
@pytest.mark.parametrize("preset", [None, "single-gpu", "large-gpu", "demo"])
def test_elsewhere_solvers_learn_from_every_token_alike_and_from_differences_alone(name, preset):
    config = resolve(name, preset)
    learner = config.solver.learner
    assert (learner.aggregation, learner.kl_beta, learner.kl_flat) == ("token_mean", 0.0, False)
    roles = [config.solver, config.proposer] if name in ("drzero", "eve") else [config.solver]
    if preset in ("single-gpu", "large-gpu"):
        for role in roles:
            assert [role.learner.warmup_steps(steps) for steps in (2, 20, 100)] == [2, 5, 10]


@pytest.mark.parametrize("name", ["drzero", "eve", "evalact", "evalrar", "search-r1", "autorefine"])
def test_a_large_gpu_plays_512_episodes_a_step_that_fit_their_searches(name):
    config = resolve(name, "large-gpu")
    solver, learner, limits = config.solver, config.solver.learner, config.solver.limits
    assert (solver.steps, solver.batch, solver.attempts, config.prompts) == (80, 64, 8, "brief")
    assert (learner.learning_rate, learner.max_grad_norm, learner.micro_tokens) == (5e-5, 1.0, 32768)
    assert (config.adapter.rank, config.adapter.alpha, config.engine.max_rows) == (32, 64, 256)
    turns_a_search = 2 if name == "evalact" else 1
    assert (limits.max_searches, limits.topk) == (6, 3) and limits.max_turns > turns_a_search * limits.max_searches
    room = limits.sequence_tokens - limits.max_searches * limits.tool_response_tokens
    assert room >= 7 * limits.turn_tokens  # a turn for each search and one for the answer


@pytest.mark.parametrize("name", ["drzero", "eve"])
def test_a_large_gpu_writes_its_curriculum_in_one_iteration(name):
    config = resolve(name, "large-gpu")
    proposer, generation = config.proposer, config.generation
    assert (config.iterations, proposer.steps, proposer.batch) == (1, 10, 64)
    assert proposer.hop_ratio == (1, 0, 2, 2) and proposer.limits.max_turns > len(proposer.hop_ratio) - 1
    assert (generation.candidates, generation.attempts) == (1500, 4)


@pytest.mark.parametrize("name", RECIPES)
def test_who_writes_questions_may_be_given_some(name):
    recipe = find_recipe(name)
    takes_some = hasattr(recipe.schema(), "generation")
    assert takes_some == (name in ("drzero", "eve")) != recipe.takes_questions
    assert find_source_of(recipe.schema(), "generation.given") == ""
    if takes_some:
        given = {"preset": None, "file": None, "assignments": ["generation.given=train.jsonl"]}
        config = load_config(recipe.schema, presets=recipe.presets, **given)
        assert find_source_of(config, "generation.given") == "train.jsonl"


ROLES = ("proposer", "solver")
QUOTES = {"proposer.limits.turn_tokens", "solver.limits.turn_tokens", "solver.limits.sequence_tokens"}
OF_EVE = {"proposer.reward.format_rule", "generation.questions"}


@pytest.mark.parametrize(
    ("preset", "own"),
    [
        ("single-gpu", {"iterations", "generation.batch"}),
        ("large-gpu", {"generation.batch", *QUOTES}),
        ("demo", {*QUOTES, "proposer.limits.sequence_tokens", *(f"{role}.learner.max_grad_norm" for role in ROLES)}),
    ],
)
def test_eve_differs_from_dr_zero_only_by_what_is_its_own_and_room_for_quotes(preset, own):
    """Otherwise a comparison of the two would compare their settings."""
    first, second = (dict(leaves(resolve(name, preset))) for name in ("drzero", "eve"))
    assert {name for name in first.keys() & second.keys() if first[name] != second[name]} == OF_EVE | own
