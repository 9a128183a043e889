"""SCORE's alternating step is, to first order, one step down L_s + alpha L_e + lambda KL (its Proposition 2).

A solver's update by GRPO with a KL term, then the evaluator's REINFORCE on the same weights at alpha times the rate, by
the real learner with plain gradient descent in place of AdamW. Held against autograd on the sum of the losses, taken
where the step began. Each update brings the divergence on its own tokens, so lambda KL stands for that of the solver's
tokens and alpha times that of the evaluator's.
"""

import copy

import pytest
import torch
from msgspec import structs

import tiny
from quaere.objectives.policy_gradient import kl_loss, policy_gradient_loss
from quaere.training.batches import Sample
from quaere.training.learner import Learner
from quaere.training.settings import LearnerSettings

ALPHA, LAMBDA = 0.5, 0.05
SOLVER = LearnerSettings(learning_rate=1.0, kl_beta=LAMBDA, max_grad_norm=float("inf"))


def evaluator(settings):
    """As `Score.evaluator_settings` has it."""
    rate = ALPHA * settings.learning_rate
    return structs.replace(settings, aggregation="token_sum", learning_rate=rate)


def sample(seed, advantage, length=9):
    """A few tokens of prompt, the rest sampled."""
    draw = torch.Generator().manual_seed(seed)
    ids = tuple(torch.randint(0, 440, (length,), generator=draw).tolist())
    mask = tuple(place > 2 for place in range(length))
    return Sample(ids, mask, (-1.0,) * length, tuple(advantage if flag else 0.0 for flag in mask))


REPORTS = [sample(1, 1.2), sample(2, -0.7, 7), sample(3, -0.5)]
RUBRICS = [sample(9, 0.4, 6)]


def logprobs(model, samples):
    """The log-probs of each sampled token, padded, by the model's own code in double precision."""
    rows, masks = [], []
    width = max(len(one.token_ids) for one in samples)
    for one in samples:
        ids = torch.tensor(one.token_ids)
        logits = model(input_ids=ids[None]).logits[0].double().log_softmax(dim=-1)
        row = logits[:-1].gather(1, ids[1:, None])[:, 0]
        rows.append(torch.nn.functional.pad(row, (0, width - len(ids))))
        masks.append(torch.nn.functional.pad(torch.tensor(one.loss_mask[1:]), (0, width - len(ids))))
    worth = torch.tensor([max(one.advantages, key=abs) for one in samples], dtype=torch.float64)
    return torch.stack(rows), worth, torch.stack(masks)


def surrogate(model, reference):
    """The three parts of the surrogate where the model stands."""
    reports, worth, mask = logprobs(model, REPORTS)
    rubrics, rubric_worth, rubric_mask = logprobs(model, RUBRICS)
    with torch.no_grad():
        ref_reports, ref_rubrics = logprobs(reference, REPORTS)[0], logprobs(reference, RUBRICS)[0]
    divergence = kl_loss(reports, ref_reports, mask)
    return {
        "solver": policy_gradient_loss(reports, worth, mask),
        "evaluator": ALPHA * policy_gradient_loss(rubrics, rubric_worth, rubric_mask, how="token_sum"),
        "divergence": LAMBDA * (divergence + ALPHA * kl_loss(rubrics, ref_rubrics, rubric_mask, how="token_sum")),
    }


def surrogate_gradients(model, reference):
    gradients = {}
    for name in ("solver", "evaluator", "divergence"):
        model.zero_grad()
        surrogate(model, reference)[name].backward()
        gradients[name] = flat([parameter.grad for parameter in model.parameters()])
    return gradients


def flat(tensors):
    return torch.cat([tensor.detach().double().flatten() for tensor in tensors])


def moved(model, reference, rate):
    """What the two updates change, at this rate."""
    settings = structs.replace(SOLVER, learning_rate=rate)
    learner = Learner(copy.deepcopy(model), settings, reference=copy.deepcopy(reference))
    learner.model.double()
    learner.reference.double()
    learner.optimizer = torch.optim.SGD(learner.parameters, lr=rate)
    before = flat(learner.parameters).clone()
    learner.step(REPORTS)
    learner.step(RUBRICS, evaluator(settings))
    return flat(learner.parameters) - before


def test_the_residual_shrinks_with_the_square_of_the_rate():
    model, reference = tiny.model(seed=0, scale=2).double(), tiny.model(seed=0, scale=2).double()
    with torch.no_grad():  # where both agree, the divergence has no gradient and would go unnoticed
        for weight in reference.parameters():
            weight.add_(0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    parts = surrogate_gradients(copy.deepcopy(model), reference)
    gradient = sum(parts.values())
    rates = [1e-3, 5e-4, 2.5e-4]
    changes = [moved(model, reference, rate) for rate in rates]
    residuals = [float((change + rate * gradient).norm()) for change, rate in zip(changes, rates, strict=True)]
    # To first order they are the same step, and what is left over falls by four when the rate is halved.
    assert residuals[0] / residuals[1] == pytest.approx(4, rel=0.05)
    assert residuals[1] / residuals[2] == pytest.approx(4, rel=0.05)
    relative = residuals[-1] / float((rates[-1] * gradient).norm())
    assert relative < 0.005
    # And none of the three parts is missing: without any of them it would be another step.
    for name, part in parts.items():
        without = changes[-1] + rates[-1] * (gradient - part)
        assert float(without.norm()) > 10 * residuals[-1], name
