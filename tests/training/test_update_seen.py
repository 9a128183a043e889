"""How much of a learner's change its sampler has: the measure by itself, and on every way a role takes to bfloat16."""

import copy
import math
import random
from itertools import chain

import pytest
import torch
from msgspec import structs

import tiny
from quaere.dialects.notes import find_role, load_role
from quaere.policies.native.bridge import load_model
from quaere.runs import Run
from quaere.runs.checkpoints import save_checkpoint
from quaere.training.actors import copy_weights, merged_weights
from quaere.training.adapters import add_adapters
from quaere.training.batches import Sample
from quaere.training.exports import export_role
from quaere.training.learner import Learner, save_weights
from quaere.training.settings import AdapterSettings, LearnerSettings
from quaere.training.step import MIN_TOKENS, compare_update, measure_update
from quaere.training.training_run import _is_due


def make_samples(count, length=60, seed=0):
    """Prompts of ten tokens and turns of the rest, whose tokens are worth 1 or -1."""
    draw = random.Random(seed)
    mask = (False,) * 10 + (True,) * (length - 10)
    return [
        Sample(
            token_ids=tuple(draw.randrange(400) for _ in mask),
            loss_mask=mask,
            logprobs=tuple(-1.0 if flag else 0.0 for flag in mask),
            advantages=tuple(draw.choice((1.0, -1.0)) if flag else 0.0 for flag in mask),
        )
        for _ in range(count)
    ]


def sampled(samples, logprobs):
    """The samples as a sampler with these log-probs of model tokens would have left them."""
    found = []
    for sample, row in zip(samples, logprobs, strict=True):
        values = iter(row)
        found.append(
            structs.replace(sample, logprobs=tuple(next(values) if flag else 0.0 for flag in sample.loss_mask))
        )
    return found


def mixed(first, second, share):
    """Rows of numbers that lie so far on the way from the first to the second."""
    pairs = [zip(*rows, strict=True) for rows in zip(first, second, strict=True)]
    return [[a + share * (b - a) for a, b in row] for row in pairs]


# ---------------------------------------------------------------------------------------------------- the measure alone


def test_a_slope_by_hand():
    # The changes are -1 and 2, of which -1 and 1 were seen: (1 + 2) / (1 + 4); -0.4 and -0.2 stay unexplained.
    found = compare_update(start=[-3.0, -5.0], learner=[-4.0, -3.0], sampler=[-4.0, -4.0])
    assert found == pytest.approx(
        {
            "sampler/update_size": math.sqrt(5 / 2),
            "sampler/update_seen": 3 / 5,
            "sampler/update_noise": (0.4**2 + 0.2**2) / 5,
        }
    )


def test_noise_of_the_sampler_does_not_bend_the_slope():
    draw = random.Random(0)
    start = [-1.0] * 20_000
    learner = [value + draw.gauss(0, 0.1) for value in start]
    sampler = [value + draw.gauss(0, 0.05) for value in learner]
    found = compare_update(start, learner, sampler)
    assert found["sampler/update_seen"] == pytest.approx(1, abs=4 * 0.5 / math.sqrt(20_000))
    assert found["sampler/update_noise"] == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize("size", [0.0, 0.03, 0.1, 1.0])
def test_noise_of_all_engines_stays_within_what_an_alarm_allows_for(size):
    """The learner's and the start's engine are off by 0.05 too: however small the change, a whole one is no alarm."""
    draw = random.Random(1)
    changes = [draw.gauss(0, size) for _ in range(20_000)]
    start, learner, sampler = (
        [share * change + draw.gauss(0, 0.05) for change in changes] for share in (0.0, 1.0, 1.0)
    )
    found = compare_update(start, learner, sampler)
    assert found["sampler/update_seen"] + found["sampler/update_noise"] > 0.98
    learnt_twice = [2 * value for value in learner]  # the sampler has half of it
    if size >= 0.1:
        found = compare_update(start, learnt_twice, sampler)
        assert found["sampler/update_seen"] + found["sampler/update_noise"] < 0.9


def test_nothing_learned_has_a_size_and_no_slope():
    assert compare_update([-1.0, -2.0], [-1.0, -2.0], [-1.1, -2.0]) == {"sampler/update_size": 0.0}
    assert compare_update([-1.0, -2.0], [-1.5, -2.0], [-math.inf, -2.0]) == {}


class Scores:
    """A learner that moved every log-prob up by 0.5, and remembers what it was asked."""

    has_reference = True

    def __init__(self):
        self.asked = []

    def score(self, samples):
        self.asked.append(len(samples))
        return [[-0.5] * sum(sample.loss_mask) for sample in samples]

    def score_reference(self, samples):
        return [[-1.0] * sum(sample.loss_mask) for sample in samples]


def test_enough_samples_for_2000_tokens_are_scored_or_all():
    learner, many = Scores(), make_samples(60)
    assert MIN_TOKENS == 2000
    # Those without a model token say nothing.
    silent = structs.replace(many[0], loss_mask=(False,) * 60)
    found = measure_update(learner, [silent, *many])
    assert learner.asked == [40]  # of 50 tokens each
    assert found == pytest.approx({"sampler/update_size": 0.5, "sampler/update_seen": 0.0, "sampler/update_noise": 0.0})
    measure_update(learner, many[:3])
    assert learner.asked == [40, 3]
    assert measure_update(learner, [silent]) == measure_update(learner, []) == {}


def test_without_the_start_nothing_is_measured():
    samples = make_samples(3)
    alone = Learner(tiny.model(), LearnerSettings())
    assert not alone.has_reference and measure_update(alone, samples) == {}
    held = Learner(tiny.model(), LearnerSettings(learning_rate=1e-3, kl_beta=0.01))
    held.step(samples)
    assert measure_update(held, sampled(samples, held.score(samples)))["sampler/update_seen"] == pytest.approx(1)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_a_sampler_that_is_part_of_the_way(share):
    adapted = add_adapters(tiny.model(), ("proposer", "solver"), AdapterSettings(rank=4))
    learner = Learner(adapted, LearnerSettings(learning_rate=1e-3), adapter="solver")
    samples = make_samples(3)
    learner.step(samples)
    halfway = mixed(learner.score_reference(samples), learner.score(samples), share)
    found = measure_update(learner, sampled(samples, halfway))
    assert found["sampler/update_seen"] == pytest.approx(share, abs=1e-6)
    assert found["sampler/update_size"] > 1e-3


def test_measuring_changes_no_step():
    def learn(measures):
        torch.manual_seed(0)
        adapted = add_adapters(tiny.model(), ("solver",), AdapterSettings(rank=4))
        learner = Learner(adapted, LearnerSettings(learning_rate=1e-3), adapter="solver")
        for _ in range(2):
            if measures:
                measure_update(learner, make_samples(3))
            metrics = learner.step(make_samples(3))
        return metrics, learner.score(make_samples(3))

    assert learn(True) == learn(False)


def test_when_it_is_measured():
    assert [number for number in range(25) if _is_due(10, number, 25)] == [9, 19, 24]
    assert [number for number in range(20) if _is_due(10, number, 20)] == [9, 19]
    assert [number for number in range(3) if _is_due(10, number, 3)] == [2]
    assert not any(_is_due(0, number, 25) for number in range(25))


# ------------------------------------------------------------------------------------- a small update, on all its ways

CONFIG = """\
model: {model}
iterations: 1
solver:
  steps: 2
"""


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A model that is stored in bfloat16, a run that took four small steps with an adapter, and its learner."""
    root = tmp_path_factory.mktemp("small")
    base = tiny.model(hidden_size=192, intermediate_size=384).bfloat16()
    base.save_pretrained(root / "base")
    tiny.tokenizer().save_pretrained(root / "base")
    torch.manual_seed(1)
    adapted = add_adapters(
        load_model(str(root / "base"), "cpu", "bfloat16", packed=False), ("solver",), AdapterSettings(rank=4, alpha=8)
    )
    learner = Learner(adapted.float(), LearnerSettings(learning_rate=1e-4), adapter="solver")
    samples = make_samples(16)
    for _ in range(4):
        learner.step(samples)
    with Run.create(root / "runs" / "lora", "evolve", {"recipe": "drzero"}, config=CONFIG.format(model=root / "base")):
        pass
    save_checkpoint(
        root / "runs" / "lora" / "checkpoints", 4, lambda to: save_weights(adapted, to / "solver", "solver"), {}
    )
    return root, learner, samples


@pytest.fixture(scope="module")
def update_seen(learned):
    """The slope with the log-probs of some weights, computed in float32 so that weights alone make a difference."""
    _, learner, samples = learned
    start, moved = learner.score_reference(samples), learner.score(samples)

    def measure(model):
        scores = Learner(copy.deepcopy(model).float(), LearnerSettings()).score(samples)
        return compare_update(*(list(chain(*rows)) for rows in (start, moved, scores)))["sampler/update_seen"]

    return measure


@pytest.fixture(scope="module")
def sampling_copy(learned):
    root, learner, _ = learned
    model = load_model(str(root / "base"), "cpu", "bfloat16")
    copy_weights(learner.model, model, learner.adapter)
    return model


def test_to_the_nearest_most_of_a_small_update_is_lost(learned, update_seen):
    root, learner, _ = learned
    model, merged = load_model(str(root / "base"), "cpu", "bfloat16"), merged_weights(learner.model, "solver")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(merged[name]())
    assert update_seen(model) < 0.6


def test_the_sampler_has_a_small_update(sampling_copy, update_seen):
    assert 0.9 <= update_seen(sampling_copy) <= 1.1  # with so few samples four seeds gave 0.957 to 1.025


def test_a_role_and_its_export_are_the_sampler_to_the_bit(learned, sampling_copy, tmp_path):
    root, _, _ = learned
    role = find_role(root / "runs" / "lora", "solver")
    export_role(role, tmp_path / "out", merge=True, dtype="bfloat16")
    exact = export_role(role, tmp_path / "exact", merge=True)
    expected = dict(sampling_copy.named_parameters())
    for model in (
        load_role(role, dtype="bfloat16"),
        load_model(str(tmp_path / "out"), "cpu", "bfloat16"),
        load_model(str(exact), "cpu", "bfloat16"),  # exported in float32 and rounded by whoever loads it here
    ):
        assert all(torch.equal(weight, expected[name]) for name, weight in model.named_parameters())


def test_the_update_is_small_and_real(learned):
    _, learner, samples = learned
    found = measure_update(learner, sampled(samples, learner.score(samples)))
    assert found["sampler/update_seen"] == pytest.approx(1)
    assert found["sampler/update_size"] > 0.005
