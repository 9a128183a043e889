"""Two objectives on one set of weights, with one set of Adam's moments or with a set each."""

import copy

import pytest
import torch
from msgspec import structs

import tiny
from quaere.training.batches import Sample
from quaere.training.learner import OPTIMIZER_FILE, Learner
from quaere.training.settings import LearnerSettings

OWN = LearnerSettings(learning_rate=1e-4, weight_decay=0.0, max_grad_norm=float("inf"))
# Sums rather than means: a gradient many times as large.
FURTHER = structs.replace(OWN, aggregation="token_sum")


def sample(seed, worth):
    draw = torch.Generator().manual_seed(seed)
    ids = tuple(torch.randint(0, 440, (40,), generator=draw).tolist())
    mask = tuple(place > 2 for place in range(40))
    return Sample(ids, mask, (-1.0,) * 40, tuple(worth if flag else 0.0 for flag in mask))


REPORTS = [sample(1, 0.5), sample(2, -0.4)]
RUBRICS = [sample(9, 2.0)]


def flat(learner):
    return torch.cat([weight.detach().flatten() for weight in learner.parameters]).clone()


def travelled(moments, num=6):
    """How far the own objective moved the weights in its updates, with further ones between them, or without."""
    learner = Learner(tiny.model(), OWN)
    total = torch.zeros_like(flat(learner))
    for _ in range(num):
        before = flat(learner)
        learner.step(REPORTS)
        total += flat(learner) - before
        if moments is not None:
            learner.step(RUBRICS, FURTHER, moments=moments)
    return total


def test_one_set_lets_the_larger_gradient_size_the_other_steps_and_two_do_not():
    alone, shared, own = travelled(None), travelled(""), travelled("further")

    def along(moved):
        """How far along the way that the own objective would have gone by itself; 1 is as far."""
        return float(moved @ alone / (alone @ alone))

    assert along(own) == pytest.approx(1, abs=0.15)
    assert along(shared) < 0.5


def test_a_set_of_its_own_starts_as_a_learner_of_its_own_would():
    mixed, single = (Learner(tiny.model(), OWN) for _ in range(2))
    mixed.step(REPORTS)
    for weight, other in zip(single.parameters, mixed.parameters, strict=True):
        weight.data.copy_(other.data)
    mixed.step(RUBRICS, FURTHER, moments="further")
    single.step(RUBRICS, FURTHER)
    assert torch.equal(flat(mixed), flat(single))


@pytest.mark.parametrize("moments", ["", "further"])
def test_both_sets_are_saved_and_gone_on_with(tmp_path, moments):
    learner = Learner(tiny.model(), OWN)

    def alternate(one):
        one.step(REPORTS)
        one.step(RUBRICS, FURTHER, moments=moments)

    alternate(learner)
    learner.save_optimizer(tmp_path / OPTIMIZER_FILE)
    resumed = Learner(copy.deepcopy(learner.model), OWN)
    resumed.load_optimizer(tmp_path / OPTIMIZER_FILE)
    forgetful = Learner(copy.deepcopy(learner.model), OWN)
    for one in (learner, resumed, forgetful):
        alternate(one)
    assert torch.equal(flat(resumed), flat(learner))
    assert not torch.equal(flat(forgetful), flat(learner))


def test_what_a_checkpoint_does_not_hold_is_forgotten(tmp_path):
    learner = Learner(tiny.model(), OWN)
    learner.save_optimizer(tmp_path / OPTIMIZER_FILE)
    learner.step(RUBRICS, FURTHER, moments="further")
    learner.load_optimizer(tmp_path / OPTIMIZER_FILE)
    learner.save_optimizer(tmp_path / OPTIMIZER_FILE)
    from safetensors.torch import load_file

    assert set(load_file(tmp_path / OPTIMIZER_FILE)) == {"num_steps"}
