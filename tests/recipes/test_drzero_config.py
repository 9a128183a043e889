"""The presets against the paper, number by number; each ablation is one assignment away."""

import re

import pytest
from msgspec import Struct, structs

from quaere.errors import BadInput
from quaere.recipes import drzero as module
from quaere.recipes.drzero import PRESETS, DrZeroConfig
from quaere.recipes.registry import find_recipe
from quaere.training.config import config_from_yaml, config_to_yaml, diff_configs, load_config
from quaere.training.self_play import check_self_play as check_config


def load(*assignments, preset="paper"):
    config = load_config(DrZeroConfig, presets=PRESETS, preset=preset, file=None, assignments=assignments)
    check_config(config)
    return config


# ----------------------------------------------------------------------------------------------------------- the paper


def test_paper_loop():
    paper = load()
    assert paper.iterations == 3
    assert paper.proposer.steps == 50
    assert paper.solver.steps == 50


def test_paper_proposer():
    proposer = load().proposer
    assert proposer.batch == 256
    assert proposer.hop_ratio == (4, 3, 2, 1)
    assert proposer.document is True
    assert proposer.questions == 1
    assert proposer.attempts == 5
    assert proposer.advantage == "hrpo"
    assert proposer.unbiased_std is True
    assert proposer.lone_group == "zero"
    assert proposer.shuffle_advantages is False
    assert proposer.reward.shape == "single"
    assert proposer.reward.format_weight == 0.5
    assert proposer.reward.format_rule == "released"
    assert proposer.limits.max_turns == 5
    assert proposer.limits.sequence_tokens == 4096
    assert proposer.limits.topk == 3


def test_paper_solver():
    solver = load().solver
    assert solver.batch == 256
    assert solver.attempts == 5
    assert solver.unbiased_std is True
    assert solver.shuffle_advantages is False
    assert solver.limits.max_turns == 5
    assert solver.limits.sequence_tokens == 3072
    assert solver.limits.topk == 3


@pytest.mark.parametrize("role", ["proposer", "solver"])
def test_paper_learner(role):
    learner = getattr(load(), role).learner
    assert learner.learning_rate == 1e-6
    assert learner.betas == (0.9, 0.999)
    assert learner.weight_decay == 0.01
    assert learner.warmup_ratio == 0.03
    assert learner.max_grad_norm in (0.1, 1.0)
    assert learner.kl_beta == 0.0
    assert learner.aggregation == "token_mean"


def test_paper_trains_all_weights_on_what_the_policy_itself_samples():
    paper = load()
    assert paper.adapter.rank == 0
    assert (paper.sampling.temperature, paper.sampling.top_p, paper.sampling.top_k) == (1.0, 1.0, 0)


def test_paper_keeps_the_best_of_five_questions_for_each_prompt_whoever_solves_it():
    generation = load().generation
    assert (generation.candidates, generation.questions, generation.attempts) == (0, 1, 0)
    assert (generation.samples, generation.max_words) == (5, 50)


def test_what_the_paper_preset_changes():
    """A run that names no preset differs from the paper in nothing else."""
    assert set(diff_configs(DrZeroConfig(), load())) == {
        "proposer.limits.answer_turn: true -> false",
        "proposer.carry_on: false -> true",
        "proposer.reward.choices: true -> false",
        "proposer.reward.containment: words -> characters",
        "proposer.learner.kl_flat: false -> true",
        "generation.samples: 1 -> 5",
        "solver.max_draws: 2 -> 0",
        "solver.several_share: 0.3333333333333333 -> 0.0",
        "solver.limits.answer_turn: true -> false",
        "solver.learner.kl_flat: false -> true",
        "engine.max_rows: 32 -> 256",
        "validation.questions: 64 -> 0",
    }


def test_how_many_searches_a_right_attempt_needs():
    """h hops name their first thing, so that h - 1 are looked up; one hop is looked up too."""
    on, off, auto = (
        load(f"proposer.reward.needed_searches={flag}").proposer.reward for flag in ("true", "false", "auto")
    )
    assert [on.min_searches(hops) for hops in (1, 2, 3, 4)] == [1, 1, 2, 3]
    assert {one.min_searches(hops) for hops in (1, 2, 3, 4) for one in (off, auto)} == {0}


# ---------------------------------------------------------------------------------------------------------- presets


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_loads_is_sound_and_survives_yaml(preset):
    config = load(preset=preset)
    assert config_from_yaml(DrZeroConfig, config_to_yaml(config)) == config


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_names_nothing_that_it_does_not_change(preset):
    plain = DrZeroConfig()
    named = {
        f"{key}.{inner}" if inner else key
        for key, value in PRESETS[preset].items()
        for inner in (value if isinstance(value, dict) else [""])
    }
    assert {line.partition(":")[0] for line in diff_configs(plain, load(preset=preset))} == named


@pytest.mark.parametrize("preset", ["single-gpu", "large-gpu", "demo"])
def test_small_presets_train_adapters_by_the_papers_method(preset):
    config = load(preset=preset)
    assert config.adapter.rank > 0
    assert config.proposer.advantage == "hrpo"
    papers_own = {"choices": False, "containment": "characters"}
    assert structs.replace(config.proposer.reward, **papers_own) == load().proposer.reward


# --------------------------------------------------------------------------------------------------------- ablations

ABLATIONS = {
    "proposer.hop_ratio=[1,1,1,1]": ["proposer.hop_ratio: [4, 3, 2, 1] -> [1, 1, 1, 1]"],
    "proposer.hop_ratio=[2,1,1,1]": ["proposer.hop_ratio: [4, 3, 2, 1] -> [2, 1, 1, 1]"],
    "proposer.reward.format_weight=0": ["proposer.reward.format_weight: 0.5 -> 0.0"],
    "proposer.reward.format_rule=eve": ["proposer.reward.format_rule: released -> eve"],
    "proposer.task=harden generation.given=checked.jsonl": [
        "proposer.task: propose -> harden",
        "generation.given: '' -> checked.jsonl",
    ],
    "proposer.reward.needed_searches=true": ["proposer.reward.needed_searches: auto -> true"],
    "proposer.reward.shape=parabola": ["proposer.reward.shape: single -> parabola"],
    "proposer.document=false": ["proposer.document: true -> false"],
    "proposer.steps=100": ["proposer.steps: 50 -> 100"],
    "solver.steps=100": ["solver.steps: 50 -> 100"],
    "proposer.advantage=grpo proposer.questions=4 proposer.attempts=4": [
        "proposer.questions: 1 -> 4",
        "proposer.attempts: 5 -> 4",
        "proposer.advantage: hrpo -> grpo",
    ],
    "proposer.advantage=global": ["proposer.advantage: hrpo -> global"],
    "solver.dialect=evalact": ["solver.dialect: tool-call -> evalact"],
    "proposer.lone_group=raw": ["proposer.lone_group: zero -> raw"],
    "proposer.unbiased_std=false": ["proposer.unbiased_std: true -> false"],
    "solver.learner.kl_beta=0.001": ["solver.learner.kl_beta: 0.0 -> 0.001"],
    "proposer.learner.learning_rate=5e-7": ["proposer.learner.learning_rate: 1.0e-06 -> 5.0e-07"],
    "proposer.learner.max_grad_norm=0.1": ["proposer.learner.max_grad_norm: 1.0 -> 0.1"],
}


@pytest.mark.parametrize("assignments", ABLATIONS)
def test_an_ablation_changes_its_value_and_nothing_else(assignments):
    assert diff_configs(load(), load(*assignments.split())) == ABLATIONS[assignments]


def test_every_ablation_the_module_names_is_among_them():
    named = re.findall(r"\b[a-z]+\.[a-z_.]+=[^\s,]+(?:,\d+)*\]?", module.__doc__)
    assert len(named) >= 9
    assert set(named) <= {one for assignments in ABLATIONS for one in assignments.split()}


# ---------------------------------------------------------------------------------------------------------- refusals

HOP_RATIO = "proposer.hop_ratio must be a list of 1 or more whole numbers of at least 0"


@pytest.mark.parametrize(
    ("assignments", "says"),
    [
        ("iterations=0", "iterations must be at least 1, not 0"),
        ("proposer.batch=0", "proposer.batch must be at least 1, not 0"),
        ("solver.batch=-1", "solver.batch must be at least 1, not -1"),
        ("generation.batch=0", "generation.batch must be at least 1, not 0"),
        ("proposer.questions=0", "proposer.questions must be at least 1, not 0"),
        ("engine.max_rows=0", "engine.max_rows must be at least 1, not 0"),
        ("checkpoints.every=0", "checkpoints.every must be at least 1, not 0"),
        ("validation.every=0", "validation.every must be at least 1, not 0"),
        ("checkpoints.keep=0", "checkpoints.keep must be at least 1, not 0"),
        ("solver.limits.max_turns=0", "solver.limits.max_turns must be at least 1, not 0"),
        ("proposer.limits.topk=0", "proposer.limits.topk must be at least 1, not 0"),
        ("proposer.steps=-1", "proposer.steps must be at least 0, not -1"),
        ("adapter.rank=-8", "adapter.rank must be at least 0, not -8"),
        ("generation.candidates=-1", "generation.candidates must be at least 0, not -1"),
        ("generation.attempts=-1", "generation.attempts must be at least 0, not -1"),
        ("proposer.reward.format_weight=-0.5", "proposer.reward.format_weight must be at least 0, not -0.5"),
        ("proposer.attempts=1", "proposer.attempts must be at least 2, not 1: a question's difficulty is measured"),
        ("solver.attempts=1", "solver.attempts must be at least 2, not 1: group-relative advantages need two attempts"),
        ("generation.attempts=1", "generation.attempts=1 would drop every question"),
        ("proposer.hop_ratio=[]", f"{HOP_RATIO}, not []: it gives a weight for 1, 2, ... hops"),
        ("proposer.hop_ratio=[0,0]", "proposer.hop_ratio gives a weight for 1, 2, ... hops, not [0, 0]"),
        ("proposer.hop_ratio=[2,-1]", f"{HOP_RATIO}, not [2, -1]: it gives a weight for 1, 2, ... hops"),
        ("proposer.advantage=grpo", "proposer.advantage=grpo compares questions about one document"),
        ("proposer.steps=0", "proposer.steps=0 leaves the solver no questions"),
        (
            "proposer.hop_ratio=[0,0,0,0,0,0,0,1]",
            "proposer.hop_ratio asks for 8 hops, which take 7 searches in 8 turns, and proposer.limits.max_turns is 5",
        ),
        (
            "proposer.document=false proposer.hop_ratio=[0,0,0,0,1]",
            "proposer.hop_ratio asks for 5 hops, which take 5 searches in 6 turns, and proposer.limits.max_turns is 5",
        ),
        (
            "proposer.hop_ratio=[1,0,1] proposer.limits.max_searches=1",
            "proposer.hop_ratio asks for 3 hops, which take 2 searches in 3 turns, and proposer.limits.max_searches is",
        ),
        ("solver.limits.max_turns=1", "solver.limits.max_turns must be at least 2 for tool-call (search, answer)"),
        ("solver.limits.max_searches=-1", "solver.limits.max_searches must be at least 0, not -1"),
        ("solver.limits.thought_tokens=512", "solver.limits.thought_tokens must be below turn_tokens (512)"),
        ("solver.limits.answer_tokens=0", "solver.limits.answer_tokens must be at least 1, not 0"),
        (
            "solver.limits.answer_turn=true solver.limits.sequence_tokens=64",
            "solver.limits.answer_tokens must be below sequence_tokens (64)",
        ),
        ("solver.dialect=evalact solver.limits.max_turns=2", "solver.limits.max_turns must be at least 3 for evalact"),
        ("solver.dialect=evalrar solver.evaluation.bonus=2", "solver.evaluation.bonus must be between 0 and 1, not 2"),
        ("solver.evaluation.bonus=2 solver.dialect=evalrar", "solver.evaluation.bonus must be between 0 and 1, not 2"),
        ("solver.evaluation.bonus=0", "unknown setting solver.evaluation.bonus"),
        ("solver.dialect=evalact solver.evaluation.bonus=0", "unknown setting solver.evaluation.bonus"),
        (
            "solver.dialect=morse",
            "solver.dialect must be one of tool-call, search-r1, autorefine, evalrar, evalact, direct, cot, rag",
        ),
        ("sampling.temperature=0", "sampling.temperature must be above 0"),
        ("sampling.temperature=0.7", "sampling.temperature must be 1 in training, not 0.7: log-probs and gradients"),
        ("sampling.top_p=0.95", "sampling.top_p must be 1 in training, not 0.95"),
        ("sampling.top_k=20", "sampling.top_k must be 0 in training, not 20"),
        ("sampling.top_p=0", "sampling.top_p must be above 0"),
        ("solver.learner.learning_rate=0", "solver.learner.learning_rate must be above 0"),
    ],
)
def test_senseless_values_are_refused(assignments, says):
    with pytest.raises(BadInput) as caught:
        load(*assignments.split())
    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)


def test_the_recipe_refuses_them_before_it_opens_anything():
    check, plain = find_recipe("drzero").check, DrZeroConfig()
    with pytest.raises(BadInput, match=r"solver\.attempts must be at least 2, not 1"):
        check(structs.replace(plain, solver=structs.replace(plain.solver, attempts=1)))
    with pytest.raises(BadInput, match="no model is given"):
        check(plain)


def test_another_policy_than_the_one_that_is_trained_is_sampled_only_on_request():
    with pytest.raises(BadInput) as caught:
        load("sampling.temperature=0.7")
    option = caught.value.hint.split()[1]
    sampling = load("sampling.temperature=0.7", "sampling.top_p=0.9", "sampling.top_k=5", option).sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.7, 0.9, 5)


def test_hops_that_fit_their_limits_are_accepted():
    """The last hop that fits, and weights of 0 beyond it; more searches than turns, as a turn may hold several."""
    assert load("proposer.hop_ratio=[0,0,0,0,1,0,0]").proposer.limits.max_turns == 5
    assert load("proposer.hop_ratio=[0,0,0,1]", "proposer.document=false").proposer.limits.max_turns == 5
    assert load("proposer.hop_ratio=[1]", "proposer.limits.max_turns=1", "proposer.limits.max_searches=0")
    assert load("solver.limits.max_searches=20").solver.limits.max_turns == 5


def test_phases_may_be_left_out():
    assert load("proposer.steps=0", "generation.candidates=64").proposer.steps == 0
    assert load("solver.steps=0").solver.steps == 0
    assert load("proposer.steps=0", "solver.steps=0").iterations == 3


def assignments_of(section, prefix=""):
    """Every setting of a config as `--set` would give it."""
    for field in structs.fields(section):
        value, key = getattr(section, field.name), prefix + field.name
        if isinstance(value, Struct):
            yield from assignments_of(value, f"{key}.")
        else:
            text = str(list(value)) if isinstance(value, tuple) else str(value)
            yield f"{key}={text.lower() if isinstance(value, bool) else text}"


@pytest.mark.parametrize("preset", PRESETS)
def test_every_setting_can_be_set_by_its_name(preset):
    assignments = list(assignments_of(load(preset=preset)))
    assert len(assignments) > 70
    assert load(*assignments, preset=None) == load(preset=preset)


def test_a_model_of_3b_fits_a_card_of_24_gb_with_the_single_gpu_preset():
    from transformers import Qwen2Config

    from quaere.training.estimate import estimate_run

    sizes = {"hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16}
    model = Qwen2Config(**sizes, num_key_value_heads=2, vocab_size=151936, tie_word_embeddings=True)
    config = load_config(DrZeroConfig, presets=PRESETS, preset="single-gpu", file=None, assignments=[])
    for phase in (config.proposer, config.solver):
        tokens = phase.limits.sequence_tokens
        shared = {"adapter": config.adapter, "engine": config.engine, "learner": phase.learner}
        assert estimate_run(model, **shared, sequence_tokens=tokens, device="cuda").memory.total < 22 * 2**30
