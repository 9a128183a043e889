"""The `Learner` of a role on a Tinker server: the same updates, computed there.

    learner = TinkerLearner(role, LearnerSettings(learning_rate=1e-5), base_sampler)
    metrics = learner.step(samples)

An update is one forward pass for the policy's own log-probs, one for the reference model's if there is a KL term, then
forward and backward with importance sampling, then the optimizer. Advantages are scaled and the KL term is folded into
them so that the gradient is the local one (`folded_advantages`). What the server does not report is left out of the
metrics, except the entropy, which is estimated from the sampled tokens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from quaere.errors import TrainingStopped
from quaere.objectives import Aggregation, Divergence
from quaere.objectives.policy_gradient import MAX_LOG_RATIO, estimate_kl
from quaere.policies.tinker import TinkerSampler
from quaere.training.batches import Sample, refuse_unusable, select_samples
from quaere.training.settings import LearnerSettings, TrainerSettings

if TYPE_CHECKING:
    from quaere.training.remote_actors import RemoteRole

_EPS = 1e-8  # torch.optim.AdamW's, which the local learner uses; the interface has another default


class TinkerLearner:
    """A role's updates on the server, and its place in the learning-rate schedule."""

    has_reference = True  # the base without an adapter

    def __init__(
        self,
        role: RemoteRole,
        settings: LearnerSettings,
        *,
        reference: TinkerSampler,
        warmup_steps: int = 0,
        trainer: TrainerSettings | None = None,
    ) -> None:
        self.settings = settings
        self.warmup_steps = warmup_steps
        self.num_steps = 0
        self.on_batch: Callable[[int, int, float], None] = lambda num_done, num_all, seconds: None
        self._role = role
        self._service = role.service
        self._reference = reference
        self._normalisation = (trainer or TrainerSettings()).loss_normalisation

    def step(
        self, samples: Sequence[Sample], how: LearnerSettings | None = None, *, moments: str = ""
    ) -> dict[str, float]:
        """Make one update on these samples and return its metrics; see `Learner.step`."""
        if moments:
            raise TrainingStopped("a Tinker server has one set of optimizer moments per role")
        settings = how or self.settings
        refuse_unusable(samples)
        counts = [sum(sample.loss_mask) for sample in samples]
        counted, settings = select_samples(samples, settings)
        started = time.perf_counter()
        self.on_batch(0, 2, 0.0)
        policy = [np.array(row) for row in self.score(counted)]
        if not all(np.isfinite(row).all() for row in policy):
            raise TrainingStopped("a log-prob of the learner is not finite; no weight was changed")
        reference = [np.array(row) for row in self.score_reference(counted)] if settings.kl_beta else []
        weights = [token_weight(sum(sample.loss_mask), counts, settings.aggregation) for sample in counted]
        self.on_batch(1, 2, time.perf_counter() - started)
        sent = self._for_server(counted, policy, _fold(counted, policy, reference, settings), weights)
        client = self._role.client
        self._service.call(lambda: client.forward_backward(sent, "importance_sampling").result())
        rate = settings.learning_rate * min(1.0, (self.num_steps + 1) / max(1, self.warmup_steps))
        measured = self._update(rate, settings)
        self._role.has_stepped = True
        self.num_steps += how is None
        return _measure(counted, policy, reference, weights, settings) | measured | {"learner/rate": rate}

    def score(self, samples: Sequence[Sample]) -> list[list[float]]:
        """Log-prob of every token that carries loss, in order, per sample."""
        data, rows = [], [number for number, sample in enumerate(samples) if any(sample.loss_mask)]
        for number in rows:
            tokens = _needed(samples[number])
            inputs = {"target_tokens": tokens[1:], "weights": [1.0] * (len(tokens) - 1)}
            data.append(self._make_datum(tokens[:-1], inputs))
        found: list[list[float]] = [[] for _ in samples]
        if not data:
            return found
        client = self._role.client
        output = self._service.call(lambda: client.forward(data, "cross_entropy").result())
        if self._normalisation == "auto":
            # A server that sums says so in its metrics (`loss:sum`). SkyRL's JAX engine takes means and has none.
            self._normalisation = "sum" if output.metrics else "sequence_mean"
        for number, row in zip(rows, output.loss_fn_outputs, strict=True):
            values, mask = row["logprobs"].tolist(), samples[number].loss_mask[1:]
            found[number] = list(compress(values, mask))
        return found

    def score_tokens(self, samples: Sequence[Sample]) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
        """Raise TrainingStopped: a server returns no entropies. `check_trainer` refuses the setting that needs them."""
        raise TrainingStopped("a Tinker server gives no entropy of tokens")

    def score_reference(self, samples: Sequence[Sample]) -> list[list[float]]:
        """Log-probs like `score`, by the base model without an adapter."""
        sequences = [_needed(sample) for sample in samples]
        scored = self._service.call(lambda: asyncio.run(self._reference.score_many(sequences)))
        return [list(compress(row, sample.loss_mask)) for row, sample in zip(scored, samples, strict=True)]

    def save_optimizer(self, file: Path) -> None:
        """Write the place in the schedule; the moments are part of the state that the server saves."""
        save_file({"num_steps": np.array(self.num_steps)}, file)

    def load_optimizer(self, file: Path) -> None:
        """Restore the place in the schedule from `save_optimizer`, and the moments from the role's saved state."""
        self.num_steps = int(load_file(file)["num_steps"])
        self._role.keep_moments()

    # -------------------------------------------------------------------------------------------------------- details

    def _make_datum(self, token_ids: Sequence[int], inputs: dict[str, Any]) -> Any:
        types = self._service.types
        return types.Datum(model_input=types.ModelInput.from_ints(list(token_ids)), loss_fn_inputs=inputs)

    def _for_server(
        self, samples: Sequence[Sample], policy: Sequence[Floats], folded: Sequence[Floats], weights: Sequence[float]
    ) -> list[Any]:
        """The samples as `Datum` objects of the SDK: targets, policy log-probs, advantages scaled for the server."""
        assert self._normalisation != "auto", "`score` has not been called"
        rows = [number for number, sample in enumerate(samples) if any(sample.loss_mask)]
        data = []
        for number in rows:
            tokens = _needed(samples[number])
            factor = server_factor(len(tokens) - 1, len(rows), self._normalisation)
            inputs = {
                "target_tokens": tokens[1:],
                "logprobs": _spread(samples[number], policy[number]),
                "advantages": _spread(samples[number], folded[number] * weights[number] * factor),
            }
            data.append(self._make_datum(tokens[:-1], inputs))
        return data

    def _update(self, rate: float, settings: LearnerSettings) -> dict[str, float]:
        """Make the optimizer step; returns the gradient norm if the server reports it; raises if it is not finite."""
        adam = self._service.types.AdamParams(
            learning_rate=rate,
            beta1=settings.betas[0],
            beta2=settings.betas[1],
            eps=_EPS,
            weight_decay=settings.weight_decay,
            grad_clip_norm=settings.max_grad_norm,
        )
        client = self._role.client
        reported = self._service.call(lambda: client.optim_step(adam).result()).metrics or {}
        norms = [value for name, value in reported.items() if "grad_norm" in name or "grad_l2" in name]
        if norms and not np.isfinite(norms[0]):
            raise TrainingStopped(
                f"the gradient is not finite at step {self.num_steps}, and the server has made the step",
                hint="quaere evolve --resume RUN goes on from the last checkpoint",
            )
        return {"gradient/norm": norms[0]} if norms else {}


def _needed(sample: Sample) -> list[int]:
    """The tokens up to the last that carries loss."""
    last = max((place for place, flag in enumerate(sample.loss_mask) if flag), default=len(sample.token_ids) - 1)
    return list(sample.token_ids[: last + 1])


def _spread(sample: Sample, values: Floats) -> list[float]:
    """One value per target token: those of `values` at the tokens that carry loss, 0 at the others."""
    mask = np.array(sample.loss_mask[1 : len(_needed(sample))])
    spread = np.zeros(len(mask))
    spread[mask] = values
    return [float(value) for value in spread]


def _fold(
    samples: Sequence[Sample], policy: Sequence[Floats], reference: Sequence[Floats], settings: LearnerSettings
) -> list[Floats]:
    """Advantages of the tokens that carry loss, with the KL term's gradient folded in if there is a reference."""
    plain = [np.array([*compress(sample.advantages, sample.loss_mask)]) for sample in samples]
    if not reference:
        return plain
    return [
        fold_kl(values, own, base, beta=settings.kl_beta, kind=settings.kl)
        for values, own, base in zip(plain, policy, reference, strict=True)
    ]


def _measure(
    samples: Sequence[Sample],
    policy: Sequence[Floats],
    reference: Sequence[Floats],
    weights: Sequence[float],
    settings: LearnerSettings,
) -> dict[str, float]:
    """Metrics of an update under the names of the local learner's."""
    advantages = _fold(samples, policy, (), settings)
    drawn = [value for sample in samples for value in compress(sample.logprobs, sample.loss_mask)]
    gaps = np.abs(np.concatenate(policy) - np.array(drawn))
    terms = [own * values for own, values in zip(policy, advantages, strict=True)]
    metrics = {
        "mismatch/mean": float(gaps.mean()),
        "mismatch/max": float(gaps.max()),
        "policy/entropy": float(-np.concatenate(policy).mean()),
        "loss/policy": -_weigh(terms, weights),
        "batch/model_tokens": float(len(gaps)),
    }
    if reference:
        pairs = zip(map(torch.from_numpy, policy), map(torch.from_numpy, reference), strict=True)
        terms = [estimate_kl(own, base, settings.kl).numpy() for own, base in pairs]
        metrics["loss/kl"] = _weigh(terms, weights)
    return metrics


def _weigh(terms: Sequence[Floats], weights: Sequence[float]) -> float:
    return float(sum(weight * row.sum() for row, weight in zip(terms, weights, strict=True)))


# -------------------------------------------------------------------------------------------- advantages for the server


Normalisation = Literal["sum", "sequence_mean"]
Floats = NDArray[np.float64]


def token_weight(num_tokens: int, counts: Sequence[int], aggregation: Aggregation) -> float:
    """Weight of one token's term in the loss, for a sample with `num_tokens` tokens that carry loss.

    `counts` has the number of such tokens for every sample of the batch.

    token_weight(2, [2, 3, 0], "token_mean") == 1 / 5
    token_weight(2, [2, 3, 0], "sequence_mean") == 1 / 2 / 2
    token_weight(2, [2, 3, 0], "token_sum") == 1 / 2
    """
    num_sequences = sum(count > 0 for count in counts)
    if aggregation == "token_mean":
        return 1.0 / max(1, sum(counts))
    if aggregation == "sequence_mean":
        return 1.0 / max(1, num_tokens) / max(1, num_sequences)
    return 1.0 / max(1, num_sequences)


def fold_kl(advantages: Floats, logprobs: Floats, reference: Floats, *, beta: float, kind: Divergence) -> Floats:
    """The advantages less beta times the derivative of the KL estimate by the log-prob (`objectives.estimate_kl`).

    With d = log pi_ref - log pi, the derivatives are: k1 -> 1, k2 -> -d, k3 -> 1 - e^d.
    """
    difference = reference - logprobs
    if kind == "k1":
        slope = np.ones_like(difference)
    elif kind == "k2":
        slope = -difference
    else:
        inside = np.abs(difference) <= MAX_LOG_RATIO  # beyond, the estimate is bounded and has no slope
        slope = np.where(inside, -np.expm1(np.where(inside, difference, 0.0)), 0.0)
    return advantages - beta * slope


def server_factor(num_targets: int, num_data: int, normalisation: Normalisation) -> float:
    """Factor on the advantages that cancels the divisions in the server's loss; 1 if the server only sums.

    Otherwise the server takes a mean over all targets of a datum, including the prompt's, which have advantage 0, and a
    mean over the data of an optimizer step.
    """
    return 1.0 if normalisation == "sum" else float(num_targets * num_data)
