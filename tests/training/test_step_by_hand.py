"""What a step of the learner reports and does to the weights, against plain autograd, plain AdamW and means by hand."""

import copy
import math

import pytest
import torch
from msgspec import structs

import tiny
from quaere.errors import TrainingStopped
from quaere.training.adapters import add_adapters
from quaere.training.batches import Sample
from quaere.training.learner import Learner
from quaere.training.settings import AdapterSettings, LearnerSettings

# Three and two tokens carry loss; a mean of means would differ from the mean over the five.
FIRST = Sample((5, 6, 7, 8), (False, True, True, True), (0.0, -1.0, -2.0, -3.0), (0.0, 1.0, 1.0, 1.0))
SECOND = Sample((9, 3, 4, 2), (False, False, True, True), (0.0, 0.0, -0.5, -9.0), (0.0, 0.0, -2.0, -2.0))
BATCH = [FIRST, SECOND]


def plain_rows(model, sample):
    """By token that carries loss: the distribution it was drawn from, as log-probs, and the token."""
    logprobs = torch.log_softmax(model(torch.tensor([sample.token_ids])).logits[0].float(), -1)
    places = [place for place, flag in enumerate(sample.loss_mask) if flag]
    return [(logprobs[place - 1], place) for place in places]


def plain_loss(model, samples):
    """-log pi * A, the mean over the tokens of the batch."""
    terms = [
        -row[sample.token_ids[place]] * sample.advantages[place]
        for sample in samples
        for row, place in plain_rows(model, sample)
    ]
    return torch.stack(terms).mean()


@pytest.mark.parametrize("micro_tokens", [1, 1000])
def test_every_metric_of_a_step_is_a_mean_over_tokens_or_what_it_says(micro_tokens):
    plain = tiny.model()
    settings = LearnerSettings(learning_rate=1e-3, kl_beta=0.5, kl="k1", micro_tokens=micro_tokens)
    learner = Learner(tiny.model(), settings, reference=tiny.model(seed=1), warmup_steps=4)
    entropies, gaps, divergences = [], [], []
    for sample in BATCH:
        held_to = [row[sample.token_ids[place]].item() for row, place in plain_rows(tiny.model(seed=1), sample)]
        for (row, place), reference in zip(plain_rows(plain, sample), held_to, strict=True):
            logprob = row[sample.token_ids[place]].item()
            entropies.append(-(row.exp() * row).sum().item())
            gaps.append(abs(logprob - sample.logprobs[place]))
            divergences.append(logprob - reference)
    expected = {
        "policy/entropy": sum(entropies) / 5,
        "mismatch/mean": sum(gaps) / 5,
        "mismatch/max": max(gaps),
        "loss/policy": plain_loss(plain, BATCH).item(),
        "loss/kl": sum(divergences) / 5,
        "learner/rate": 1e-3 / 4,
        "batch/model_tokens": 5,
    }
    found = learner.step(BATCH)
    assert found.pop("gradient/norm") > 0
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_the_norm_is_that_of_the_whole_gradient():
    plain = tiny.model()
    plain_loss(plain, BATCH).backward()
    norm = math.sqrt(sum(float(weight.grad.square().sum()) for weight in plain.parameters()))
    learner = Learner(tiny.model(), LearnerSettings(micro_tokens=1))
    assert learner.step(BATCH)["gradient/norm"] == pytest.approx(norm, rel=1e-4)


def test_two_updates_are_adamws_with_the_betas_and_the_decay_that_were_set():
    """The first update does not depend on betas: the moments are corrected for their start. The second does."""
    chosen = {"betas": (0.5, 0.7), "weight_decay": 0.3}
    plain = tiny.model()
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-3, eps=1e-8, **chosen)
    settings = LearnerSettings(learning_rate=1e-3, max_grad_norm=math.inf, **chosen)
    learner = Learner(tiny.model(), settings)
    for sample in BATCH:
        optimizer.zero_grad()
        plain_loss(plain, [sample]).backward()
        optimizer.step()
        learner.step([sample])
    for theirs, ours in zip(plain.parameters(), learner.model.parameters(), strict=True):
        # Adam divides by the size of a gradient, so rounding shows where one is nearly zero.
        assert (theirs - ours).abs().mean() < 1e-6


def test_a_gradient_that_is_not_finite_stops_the_step_though_the_loss_is():
    learner = Learner(tiny.model(), LearnerSettings(learning_rate=1.0))
    learner.parameters[3].register_hook(lambda gradient: gradient * math.nan)
    before = copy.deepcopy(learner.model.state_dict())
    with pytest.raises(TrainingStopped, match="the gradient is not finite at step 0; no weight was changed"):
        learner.step(BATCH)
    assert learner.num_steps == 0 and all(weight.grad is None for weight in learner.parameters)
    assert all(torch.equal(before[name], weight) for name, weight in learner.model.state_dict().items())


@pytest.mark.parametrize("lora_rank", [0, 4])
def test_what_is_learned_from_is_computed_in_training_mode_also_after_the_reference_was_asked(lora_rank):
    """Layers keep activations, or compute them again, by the mode they are in; an adapter's dropout does too."""
    model = tiny.model()
    if lora_rank:
        model = add_adapters(model, ("solver",), AdapterSettings(rank=lora_rank))
    settings = LearnerSettings(kl_beta=0.5, micro_tokens=1)
    learner = Learner(model, settings, adapter="solver" if lora_rank else "")
    modes = []

    def note(module, inputs):
        if torch.is_grad_enabled():
            modes.append(module.training)

    for module in learner.model.modules():
        module.register_forward_pre_hook(note)
    learner.step([*BATCH, structs.replace(FIRST, token_ids=(9, 9, 9, 9))])
    assert modes and all(modes)
