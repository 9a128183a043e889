"""R4: 40 non-finite injections, and each stops the run before a weight moves or is saved.

Rewards are spoiled in whole runs of five recipes; advantages, log-probs, gradients behind a finite loss, weights, and
rows of weights that no sample uses in single steps of a whole model and of an adapter; weights also on their way to
disk.
"""

import math
from functools import partial

import pytest
import torch
from msgspec import structs
from safetensors.torch import load_file

import newsroom
import tiny
import village
import weighing
from dictating import dictating
from practice_runs import make_practice, run_practice
from quaere.errors import TrainingStopped
from quaere.records import AssessTask, ReportTask
from quaere.runs.checkpoints import find_checkpoints
from quaere.training.adapters import add_adapters
from quaere.training.batches import Sample
from quaere.training.learner import Learner, save_weights
from quaere.training.settings import AdapterSettings, LearnerSettings
from score_runs import make_reports, run_reports
from village_runs import make_config, make_eve, run_drzero, run_eve

VALUES = (math.nan, math.inf, -math.inf)
KINDS = ("whole model", "adapter")
UNUSED = 399  # a token of the vocabulary that no sample holds
# What is spoiled, in a learner's step: 2 kinds of learner x 3 values x 5 places.
PLACES = ("advantage", "log-prob", "gradient", "weight", "unused row")
STEPS = [(kind, place, value) for kind in KINDS for place in PLACES for value in VALUES]
# A reward, where a recipe works it out: 5 runs.
REWARDS = {
    "drzero": ("quaere.recipes.drzero.judge_proposal", math.nan),
    "eve": ("quaere.recipes.eve.judge_triple", math.inf),
    "search-r1": ("quaere.dialects.roles.solver_reward", -math.inf),
    "score": ("quaere.recipes.report_baselines.report_reward", math.nan),
    "report-grpo": ("quaere.recipes.report_baselines.check_report", math.inf),
}
# A weight that went wrong after the last step, on its way to disk: 5 saves.
SAVES = [
    ("whole model", "model.norm.weight", math.nan),
    ("whole model", "model.embed_tokens.weight", math.inf),
    ("whole model", "model.layers.1.mlp.down_proj.weight", -math.inf),
    ("adapter", "lora_A", math.nan),
    ("adapter", "lora_B", math.inf),
]


def test_there_are_forty_injections():
    assert len(STEPS) + len(REWARDS) + len(SAVES) == 40


# --------------------------------------------------------------------------------------------------------- single steps


def make_learner(kind):
    settings = LearnerSettings(learning_rate=1e-2)
    model = tiny.model(tie_word_embeddings=False)  # tied, a row of the embedding is a word's logit and always used
    if kind == "whole model":
        return Learner(model, settings)
    torch.manual_seed(0)
    return Learner(add_adapters(model, ("solver",), AdapterSettings(rank=4)), settings, adapter="solver")


def make_samples():
    mask = (False, False, True, True, True)
    return [
        Sample((5, 6, 7, 8, first), mask, (0.0, 0.0, -1.0, -1.0, -1.0), tuple(worth * flag for flag in mask))
        for first, worth in ((9, 1.0), (10, -0.5))
    ]


def weights_of(model):
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def assert_unmoved(model, before):
    for name, weight in model.named_parameters():
        assert torch.equal(weight.nan_to_num(7), before[name].nan_to_num(7)), name


def weight_named(model, part):
    return next(weight for name, weight in model.named_parameters() if part in name)


def spoil(gradient, value):
    spoiled = gradient.clone()
    spoiled.view(-1)[1] = value
    return spoiled


@torch.no_grad()
def inject(learner, samples, place, value):
    """Spoil one number where `place` says; returns the samples to learn from."""
    if place in ("advantage", "log-prob"):
        field = "advantages" if place == "advantage" else "logprobs"
        values = list(getattr(samples[1], field))
        values[3] = value
        return [samples[0], structs.replace(samples[1], **{field: tuple(values)})]
    if place == "gradient":
        # Only on the way back, and in one number: the loss of this step is finite.
        learner.parameters[-1].register_hook(partial(spoil, value=value))
    else:
        weight_named(learner.model, "embed_tokens.weight")[7 if place == "weight" else UNUSED, 0] = value
    return samples


@pytest.mark.parametrize(("kind", "place", "value"), STEPS)
def test_a_step_stops_before_a_weight_moves(kind, place, value):
    learner = make_learner(kind)
    samples = inject(learner, make_samples(), place, value)
    before = weights_of(learner.model)
    with pytest.raises(TrainingStopped, match=r"not finite.*no weight was changed") as caught:
        learner.step(samples)
    assert "\n" not in str(caught.value)
    assert_unmoved(learner.model, before)
    assert learner.num_steps == 0 and not learner.optimizer.state


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_step_without_an_injection_moves_weights(kind):
    """Or the others would pass whatever happened."""
    learner = make_learner(kind)
    before = weights_of(learner.model)
    learner.step(make_samples())
    assert any(not torch.equal(weight, before[name]) for name, weight in learner.model.named_parameters())


# ---------------------------------------------------------------------------------------------------------------- saves


@pytest.mark.parametrize(("kind", "part", "value"), SAVES)
def test_a_weight_that_is_not_finite_is_not_saved(kind, part, value, tmp_path):
    learner = make_learner(kind)
    with torch.no_grad():
        weight_named(learner.model, part).view(-1)[-1] = value
    with pytest.raises(TrainingStopped, match="not finite: it is not saved") as caught:
        save_weights(learner.model, tmp_path / "saved", learner.adapter)
    assert part in str(caught.value)
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_weight_that_overflows_in_the_dtype_it_is_saved_in_is_not_saved(tmp_path):
    learner = make_learner("adapter")
    with torch.no_grad():
        weight_named(learner.model, "lora_A").view(-1)[0] = 1e5
    save_weights(learner.model, tmp_path, "solver", "bfloat16")
    with pytest.raises(TrainingStopped, match="it is not saved"):
        save_weights(learner.model, tmp_path, "solver", "float16")


# ----------------------------------------------------------------------------------------------------------- whole runs


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Untaught models: what they write is dictated."""
    build = {"village": village.build, "weighing": weighing.build, "newsroom": newsroom.build}
    return {name: make(tmp_path_factory.mktemp(name), 0) for name, make in build.items()}


def answer(job):
    """An attempt at a question of the village, right in the first of a group and wrong in the others."""
    (right,) = job.task.question.answers
    wrong = next(name for name in village.PEOPLE if name != right)
    bridge = next(name for name in village.BRIDGES if name in job.task.question.text)
    return [f"<search>{bridge}</search>", f"<answer>{right if job.episode_id.endswith('a0') else wrong}</answer>"]


def write(job):
    """Every act in the newsroom: of the reports on a question the first cites the record, and is scored high for it."""
    if isinstance(job.task, AssessTask):
        return newsroom.write_assessment(job.task)
    if not isinstance(job.task, ReportTask):
        return newsroom.dictate(job)
    text = newsroom.UNCITED if job.task.number else newsroom.REPORT.format(1, newsroom.WORDS[0])
    return [f"<search>{job.task.question.text}</search>", text]


def start(name, places, folder):
    """A run of a recipe in which rewards differ, so that weights would move."""
    if name in ("drzero", "eve"):
        make, run = (make_config, run_drzero) if name == "drzero" else (make_eve, run_eve)
        # EVE without evidence is Dr. Zero, save for who judges a proposal.
        script = village.dictate
        begin = partial(run, folder, make(places["village"], *(["evidence.cite=false"] if name == "eve" else [])))
    elif name == "search-r1":
        script, begin = answer, partial(run_practice, folder, name, make_practice(name, places["weighing"]))
    else:
        script, begin = write, partial(run_reports, folder, name, make_reports(name, places["newsroom"]))
    with dictating(script):
        begin()


def spoil_pay(paid, value):
    """The total of what was paid, or where that follows from its parts, the first of them."""
    if isinstance(paid, float):
        return value
    if "reward" in paid.__struct_fields__:
        return structs.replace(paid, reward=spoil_pay(paid.reward, value))
    spoiled = "total" if "total" in paid.__struct_fields__ else paid.__struct_fields__[0]
    return structs.replace(paid, **{spoiled: value})


@pytest.mark.parametrize("name", REWARDS)
def test_a_run_stops_before_a_weight_is_saved(name, places, tmp_path, monkeypatch):
    target, value = REWARDS[name]
    module, _, function = target.rpartition(".")
    original, calls, steps = getattr(__import__(module, fromlist=[function]), function), [], []

    def spoiled(*given, **options):
        calls.append(1)
        paid = original(*given, **options)
        return spoil_pay(paid, value) if len(calls) == 2 else paid

    monkeypatch.setattr(target, spoiled)
    monkeypatch.setattr(Learner, "step", lambda *given, **options: steps.append(1) or {})
    folder = tmp_path / "run"
    with pytest.raises(
        TrainingStopped, match="the reward of episode 1 of the batch is not finite; no weight was changed"
    ):
        start(name, places, folder)
    assert len(calls) >= 2 and not steps
    (saved,) = find_checkpoints(folder / "checkpoints")
    assert saved.step == 0
    for file in saved.path.rglob("model*.safetensors"):
        assert all(torch.isfinite(tensor).all() for tensor in load_file(file).values())
