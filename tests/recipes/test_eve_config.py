"""EVE-Agent's presets against the paper, number by number; each option is one assignment away."""

import re

import pytest
from msgspec import Struct

from quaere.cli.main import main
from quaere.errors import BadInput
from quaere.recipes import eve as module
from quaere.recipes.drzero import PRESETS as DRZERO_PRESETS
from quaere.recipes.drzero import DrZeroConfig
from quaere.recipes.eve import EVE, PRESETS, EveConfig, check_config
from quaere.rewards.guards import GUARDS, OURS
from quaere.training.config import config_from_yaml, config_to_yaml, diff_configs, load_config
from village_runs import QUOTING


def load(*assignments, preset="paper"):
    config = load_config(EveConfig, presets=PRESETS, preset=preset, file=None, assignments=assignments)
    check_config(config)
    return config


# ----------------------------------------------------------------------------------------------------------- the paper


def test_paper_schedule():
    paper = load()
    assert paper.iterations == 1
    assert paper.proposer.steps == paper.solver.steps == 50
    assert paper.phase_b_documents == "held-out"
    assert paper.prompt_source == "uniform"
    assert paper.generation.questions == 5
    assert (paper.generation.candidates, paper.generation.attempts) == (0, 0)


def test_paper_phases():
    proposer, solver = load().proposer, load().solver
    assert proposer.batch == solver.batch == 256
    assert proposer.hop_ratio == (4, 3, 2, 1)
    assert (proposer.questions, proposer.attempts, proposer.advantage) == (1, 5, "hrpo")
    assert solver.attempts == 5
    assert (proposer.reward.shape, proposer.reward.format_weight) == ("single", 0.5)
    for role in (proposer, solver):
        assert (role.limits.max_turns, role.limits.tool_response_tokens, role.limits.topk) == (5, 512, 3)
        assert not role.shuffle_advantages


@pytest.mark.parametrize("role", ["proposer", "solver"])
def test_paper_learner(role):
    learner = getattr(load(), role).learner
    assert learner.learning_rate == 1e-6
    assert learner.warmup_ratio == 0.03
    assert learner.max_grad_norm == 0.1
    assert learner.kl_beta == 0.0


def test_paper_evidence():
    evidence, verifier = load().evidence, load().verifier
    assert evidence.cite is True
    assert (evidence.value_weight, evidence.brevity_weight, evidence.span_weight) == (0.5, 0.1, 0.3)
    assert evidence.brevity_tokens == 256
    assert evidence.guards == ()
    assert (verifier.form, verifier.samples, verifier.temperature, verifier.guided) == ("sampled", 5, 1.0, False)
    assert load().verify_candidates is False


def test_what_the_paper_leaves_open():
    paper = load()
    assert paper.evidence.check == "zero_value"
    assert paper.proposer.reward.invalid_rule == "text"
    assert paper.proposer.reward.format_rule == "eve"
    assert (paper.selector.run_score, paper.selector.previous_mean) == ("clip", "raw reward")


def test_paper_selector():
    selector = load().selector
    assert (selector.num_clusters, selector.growth, selector.exploration) == (10, 0.0, 1.0)


def test_paper_rewards_reach_what_it_says():
    assert load().proposer_range == pytest.approx((-0.5, 2.1))
    assert load().solver_range == pytest.approx((0.0, 1.3))


def test_what_the_paper_preset_changes():
    assert set(diff_configs(EveConfig(), load())) == {
        "proposer.limits.answer_turn: true -> false",
        "proposer.carry_on: false -> true",
        "proposer.reward.choices: true -> false",
        "proposer.reward.containment: words -> characters",
        "proposer.learner.kl_flat: false -> true",
        "solver.max_draws: 2 -> 0",
        "solver.several_share: 0.3333333333333333 -> 0.0",
        "solver.limits.answer_turn: true -> false",
        "solver.learner.kl_flat: false -> true",
        "engine.max_rows: 32 -> 256",
        "evidence.gold: verbatim -> written",
        "validation.questions: 64 -> 0",
    }


def test_how_it_differs_from_dr_zero():
    """Beside what Dr. Zero does not have."""
    shared = load_config(
        DrZeroConfig,
        presets={},
        preset=None,
        file=None,
        assignments=["iterations=1", "generation.questions=5", "proposer.reward.format_rule=eve"]
        + [f"{role}.learner.max_grad_norm=0.1" for role in ("proposer", "solver")],
    )
    ours = EveConfig()
    for name in DrZeroConfig.__struct_fields__:
        assert getattr(ours, name) == getattr(shared, name), name


# ---------------------------------------------------------------------------------------------------------- presets


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_loads_is_sound_and_survives_yaml(preset):
    config = load(preset=preset)
    assert config_from_yaml(EveConfig, config_to_yaml(config)) == config


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_names_nothing_that_it_does_not_change(preset):
    named = {
        f"{key}.{inner}" if inner else key
        for key, value in PRESETS[preset].items()
        for inner in (value if isinstance(value, dict) else [""])
    }
    assert {line.partition(":")[0] for line in diff_configs(EveConfig(), load(preset=preset))} == named


SHARED = {"proposer.reward.format_rule", "generation.batch", "generation.questions"}


@pytest.mark.parametrize(
    ("preset", "others"),
    [
        ("single-gpu", {"iterations"}),
        (
            "large-gpu",
            {"proposer.limits.turn_tokens", "solver.limits.turn_tokens", "solver.limits.sequence_tokens"},
        ),
    ],
)
def test_presets_for_gpus_differ_from_dr_zeros_in_evidence_alone(preset, others):
    """What both have is equal, but for the papers' own choices and the room that a quotation takes."""

    def leaves(config, prefix=""):
        for name in config.__struct_fields__:
            value = getattr(config, name)
            yield from leaves(value, f"{prefix}{name}.") if isinstance(value, Struct) else [(prefix + name, value)]

    dr_zeros = load_config(DrZeroConfig, presets=DRZERO_PRESETS, preset=preset, file=None, assignments=[])
    ours = dict(leaves(load(preset=preset)))
    assert {name for name, value in leaves(dr_zeros) if ours[name] != value} == SHARED | others


@pytest.mark.parametrize("preset", ["single-gpu", "large-gpu", "demo"])
def test_our_presets_have_every_guard(preset):
    config = load(preset=preset)
    assert config.evidence.guards == OURS == tuple(GUARDS)
    assert config.verifies_proposals and config.verifies_candidates


def test_the_demo_draws_its_candidates_in_one_batch():
    demo = load(preset="demo")
    assert demo.generation.batch == demo.generation.candidates == 6
    assert demo.generation.questions == demo.solver.batch == 2


# ---------------------------------------------------------------------------------------------------------- options

OPTIONS = {
    "evidence.check=none": ["evidence.check: zero_value -> none"],
    "evidence.check=invalid": ["evidence.check: zero_value -> invalid"],
    "evidence.value_weight=0": ["evidence.value_weight: 0.5 -> 0.0"],
    "evidence.brevity_weight=0": ["evidence.brevity_weight: 0.1 -> 0.0"],
    "evidence.span_weight=0": ["evidence.span_weight: 0.3 -> 0.0"],
    "evidence.paid=verbatim": ["evidence.paid: written -> verbatim"],
    "proposer.reward.invalid_rule=algorithm": ["proposer.reward.invalid_rule: text -> algorithm"],
    "prompt_source=selector": ["prompt_source: uniform -> selector"],
    "phase_b_documents=same": ["phase_b_documents: held-out -> same"],
    "verifier.form=teacher_forced": ["verifier.form: sampled -> teacher_forced"],
    "selector.run_score=rescale": ["selector.run_score: clip -> rescale"],
    "selector.learns=yield": ["selector.learns: kept -> yield"],
    "selector.previous_mean=arm mean": ["selector.previous_mean: raw reward -> arm mean"],
}


@pytest.mark.parametrize("assignment", OPTIONS)
def test_an_option_changes_its_value_and_nothing_else(assignment):
    assert diff_configs(load(), load(assignment)) == OPTIONS[assignment]


def test_the_preset_in_which_the_selector_acts():
    config = load(preset="selector")
    assert (config.prompt_source, config.selector.learns, config.iterations) == ("selector", "yield", 3)
    assert set(diff_configs(load(preset="large-gpu"), config)) == {
        "iterations: 1 -> 3",
        "prompt_source: uniform -> selector",
        "selector.learns: kept -> yield",
    }


def test_every_option_the_module_names_is_there():
    named = re.findall(r"\b[a-z_]+(?:\.[a-z_.]+)?=(?:\"[^\"]+\"|\w+)", module.__doc__)
    with_more = {"evidence.cite=false", "prompt_source=questions", "verifier.model=openai"}
    assert len(named) >= 11
    assert {name.replace('"', "") for name in named} - with_more <= set(OPTIONS)


def test_who_is_verified():
    assert (load().verifies_proposals, load().verifies_candidates) == (True, False)
    unpaid = load("evidence.value_weight=0")
    assert not unpaid.verifies_proposals and not unpaid.verifies_candidates
    needed = load("evidence.value_weight=0", 'evidence.guards=["needed"]')
    assert needed.verifies_proposals and needed.verifies_candidates


# ---------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("assignments", "says"),
    [
        ('evidence.guards=["verbatm"]', "evidence.guards: there is no guard 'verbatm'; choose from verbatim, focused"),
        ("evidence.value_weight=-1", "evidence.value_weight must be at least 0, not -1"),
        ("evidence.brevity_weight=-0.1", "evidence.brevity_weight must be at least 0, not -0.1"),
        ("evidence.span_weight=-0.3", "evidence.span_weight must be at least 0, not -0.3"),
        (
            "evidence.cite=false",
            "evidence.cite=false asks for no evidence: set evidence.value_weight=0 as well",
        ),
        (
            "evidence.cite=false evidence.value_weight=0 evidence.brevity_weight=0",
            "evidence.cite=false asks for no evidence: set evidence.span_weight=0 as well",
        ),
        (
            "evidence.cite=false evidence.value_weight=0 evidence.brevity_weight=0 evidence.span_weight=0 "
            'evidence.guards=["new"]',
            "evidence.cite=false asks for no evidence: set evidence.guards=[] as well",
        ),
        ("evidence.brevity_tokens=0", "evidence.brevity_tokens must be at least 1, not 0"),
        ("held_out_share=0", "held_out_share must be above 0 and below 1, not 0"),
        ("held_out_share=1", "held_out_share must be above 0 and below 1, not 1"),
        (
            "prompt_source=questions",
            "prompt_source=questions and prompt_questions=FILE must be set together, or neither",
        ),
        (
            "prompt_questions=q.jsonl",
            "prompt_source=questions and prompt_questions=FILE must be set together, or neither",
        ),
        (
            "prompt_source=selector proposer.document=false",
            "prompt_source=selector chooses documents: it needs proposer.document=true",
        ),
        ("verifier.samples=0", "verifier.samples must be at least 1, not 0"),
        ("verifier.temperature=-1", "verifier.temperature must be at least 0, not -1"),
        ("verifier.form=hosted", "the verifier's model must be openai:NAME@URL in the hosted form"),
        ("selector.num_clusters=0", "selector.num_clusters must be at least 1, not 0"),
        ("proposer.attempts=1", "proposer.attempts must be at least 2"),  # and all that Dr. Zero refuses
        (
            "prompt_source=selector selector.learns=yield",
            "selector.learns=yield counts questions that the solver answers",
        ),
    ],
)
def test_senseless_values_are_refused(assignments, says):
    with pytest.raises(BadInput) as caught:
        load(*assignments.split())
    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)


def test_no_evidence_at_all_is_allowed():
    weights = ["value", "brevity", "span"]
    plain = load("evidence.cite=false", *(f"evidence.{name}_weight=0" for name in weights))
    assert not plain.verifies_proposals and not plain.verifies_candidates


# ---------------------------------------------------------------------------------------------------- the command line


@pytest.fixture(scope="module")
def named(quoting_paths):
    index, model = quoting_paths
    return ["--index", str(index), "--model", str(model)]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_dry_run_says_what_would_run(named, tmp_path, capsys, preset):
    assert main(["evolve", "eve", *named, "--preset", preset, "--runs", str(tmp_path), "--dry-run"]) == 0
    said = capsys.readouterr().out
    if preset == "paper":
        assert "50 steps of 256 documents; a step plays 256 + 1280 episodes" in said
        assert "sampled: 10 single turns for each valid question of the proposer's phase" in said
        assert "check zero_value; guards: none" in said
        assert "uniform; triples about 20% held out" in said
    else:
        assert "of the proposer's and solver's phase" in said and "guards: verbatim, focused" in said
        assert f"sampled: {4 if preset == 'demo' else 10} single turns for each valid question" in said
    assert not list(tmp_path.iterdir())


def test_print_config_gives_a_file_that_can_be_used(named, tmp_path, capsys):
    sets = ["--set", "evidence.check=invalid", "--set", "verifier.form=teacher_forced"]
    assert main(["evolve", "eve", *named, *sets, "--print-config"]) == 0
    printed = capsys.readouterr().out
    config = config_from_yaml(EveConfig, printed)
    assert (config.evidence.check, config.verifier.form, config.model) == ("invalid", "teacher_forced", named[3])
    (tmp_path / "all.yaml").write_text(printed, encoding="utf-8")
    assert main(["evolve", "eve", "--config", str(tmp_path / "all.yaml"), "--print-config"]) == 0
    assert capsys.readouterr().out == printed


def test_bad_input_is_one_clear_line(named, tmp_path, capsys):
    for assignment, says in (
        ("evidence.guards=[verbatm]", "there is no guard 'verbatm'"),
        ("evidence.chek=none", "evidence.check"),
        ("verifier.form=hosted", "openai:NAME@URL"),
    ):
        assert main(["evolve", "eve", *named, "--set", assignment, "--runs", str(tmp_path)]) == 2
        error = capsys.readouterr().err
        assert says in error and error.startswith("quaere: ") and error.count("\n") <= 2
    assert not list(tmp_path.iterdir())


def test_a_run_of_the_command_line_is_listed_and_looked_at(named, tmp_path, capsys):
    lines = [f"{key}: {list(value) if isinstance(value, tuple) else value}" for key, value in QUOTING.items()]
    (tmp_path / "small.yaml").write_text("\n".join(lines), encoding="utf-8")
    sets = ["proposer.steps=1", "solver.steps=1", "generation.candidates=6", "verify_candidates=true"]
    args = [part for assignment in sets for part in ("--set", assignment)]
    config = ["--config", str(tmp_path / "small.yaml")]
    assert main(["evolve", "eve", *named, *config, *args, "--out", str(tmp_path / "runs" / "quoted"), "--json"]) == 0
    capsys.readouterr()
    assert main(["curriculum", str(tmp_path / "runs" / "quoted"), "--min", "p+=0", "--limit", "1"]) == 0
    first = capsys.readouterr().out.splitlines()[1].split()[0]
    assert main(["curriculum", str(tmp_path / "runs" / "quoted"), "show", first]) == 0
    shown = capsys.readouterr().out
    assert "verbatim" in shown and "»" in shown and "support: p+" in shown


def test_a_missing_file_of_questions_is_said_before_a_run_is_begun(tmp_path):
    config = load("prompt_source=questions", f"prompt_questions={tmp_path / 'none.jsonl'}")
    with pytest.raises(BadInput, match=r"none\.jsonl: cannot be read"):
        EVE.check(config)
