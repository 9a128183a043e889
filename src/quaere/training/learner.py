"""One gradient step on a batch of samples.

    learner = Learner(model, LearnerSettings(learning_rate=1e-6))
    metrics = learner.step(samples)         # {"loss/policy": ..., "gradient/norm": ..., ...}

Weights are float32; on a GPU the forward pass is autocast to bfloat16. Old log-probs are the learner's own, not the
sampler's: a batch is used for one update, so they are what the forward pass of that update says before it. How far the
sampler's are from them is a metric. Whatever is not finite stops the step with its cause before any weight moves.

Shapes: B rows, T tokens.
"""

# ruff: noqa: N803, N806 (capitals are shapes)
from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from msgspec import Struct
from torch import Tensor

from quaere.errors import TrainingStopped
from quaere.objectives.losses import Aggregation, Divergence, clipped_loss, count_terms, kl_loss, policy_gradient_loss
from quaere.rollout.samples import Sample
from quaere.training.adapters import load_weights, save_weights, trainable_weights, without_adapter
from quaere.training.batching import MicroBatch, split_batch
from quaere.training.logprobs import model_logprobs

OPTIMIZER_FILE = "optimizer.safetensors"


class LearnerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """How a batch becomes a step. Defaults are those of Dr. Zero's solver.

    `warmup_ratio` is the share of a phase's steps over which the learning rate rises; then it stays.

        LearnerSettings(learning_rate=1e-6, loss="clipped", epsilon=0.2)
    """

    learning_rate: float = 1e-6
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.01
    warmup_ratio: float = 0.03
    max_grad_norm: float = 1.0
    loss: Literal["clipped", "policy_gradient"] = "clipped"
    epsilon: float = 0.2
    kl_beta: float = 0.0
    kl: Divergence = "k3"
    aggregation: Aggregation = "token_mean"
    micro_tokens: int = 8192
    gradient_checkpointing: bool = False

    def warmup_steps(self, num_steps: int) -> int:
        """Over how many of a phase's steps the rate rises.

        LearnerSettings(warmup_ratio=0.03).warmup_steps(50) == 2
        """
        return math.ceil(self.warmup_ratio * num_steps)


class Learner:
    """A model, its optimizer, and where it stands in its schedule.

    With `adapter`, only that adapter of a model that has several is trained; the base under it stays as it is.
    """

    def __init__(self, model: Any, settings: LearnerSettings, *, adapter: str = "", warmup_steps: int = 0) -> None:
        self.settings = settings
        self.adapter = adapter
        self.warmup_steps = warmup_steps
        self.model = model if adapter else model.float()
        if settings.gradient_checkpointing:
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self.device = next(self.model.parameters()).device
        self.parameters = trainable_weights(self.model, adapter)
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=settings.learning_rate, betas=settings.betas, weight_decay=settings.weight_decay
        )
        self.num_steps = 0
        self.reference: Any = None
        if settings.kl_beta and not adapter:  # with an adapter, the model without it is the reference
            self.reference = copy.deepcopy(self.model).eval().requires_grad_(False)

    # ------------------------------------------------------------------------------------------------------- one step

    def step(self, samples: Sequence[Sample]) -> dict[str, float]:
        """Learn from these samples; returns what was measured on the way."""
        _refuse_unusable(samples)
        self._activate()
        whole = split_batch(samples, self.settings.micro_tokens, torch.device("cpu"))
        denominator = sum(count_terms(batch.mask_BT, self.settings.aggregation) for batch in whole)
        micro_batches = split_batch(self._with_gradient(samples), self.settings.micro_tokens, self.device)
        self.optimizer.zero_grad(set_to_none=True)
        totals: dict[str, float] = {}
        gaps: list[Tensor] = []
        for batch in micro_batches:
            reference_BT = self._reference_logprobs(batch)
            self.model.train()
            loss, logprobs_BT, measured = self._loss(batch, reference_BT, denominator)
            gaps.append((logprobs_BT - batch.logprobs_BT)[batch.mask_BT])
            if not bool(torch.isfinite(loss)):
                self.optimizer.zero_grad(set_to_none=True)
                raise TrainingStopped(f"the loss is not finite at step {self.num_steps}; no weight was changed")
            loss.backward()
            for name, value in measured.items():
                totals[name] = totals.get(name, 0.0) + value
        metrics = _mismatch(torch.cat(gaps)) | self._update()
        num_tokens = totals.pop("num_tokens")
        # Losses were divided by the whole batch's count already; the others are sums over tokens.
        for name, value in totals.items():
            metrics[name] = value if name.startswith("loss/") else value / num_tokens
        return metrics | {"batch/model_tokens": num_tokens}

    def score(self, samples: Sequence[Sample]) -> list[list[float]]:
        """Log-prob of every token that carries loss, in order, per sample."""
        self._activate()
        found: list[list[float]] = [[] for _ in samples]
        for batch in split_batch(samples, self.settings.micro_tokens, self.device):
            logprobs_BT = self._logprobs(batch)
            for number, row in enumerate(batch.rows):
                found[row] = logprobs_BT[number][batch.mask_BT[number]].tolist()
        return found

    # ------------------------------------------------------------------------------------------------- save and load

    def save(self, folder: Path) -> None:
        """Write weights (Hugging Face layout; of an adapter, it alone) and the optimizer's state."""
        save_weights(self.model, folder, self.adapter)
        self.save_optimizer(folder)

    def load(self, folder: Path) -> None:
        """Go on exactly where `save` was called: the same weights, moments and place in the schedule."""
        load_weights(self.model, folder, self.adapter)
        self.load_optimizer(folder)

    def save_optimizer(self, folder: Path) -> None:
        """Write the optimizer's moments and the place in the schedule."""
        from safetensors.torch import save_file

        moments = {
            f"{number}.{name}": value.detach().cpu()
            for number, state in self.optimizer.state_dict()["state"].items()
            for name, value in state.items()
        }
        moments["num_steps"] = torch.tensor(self.num_steps)
        save_file(moments, folder / OPTIMIZER_FILE)

    def load_optimizer(self, folder: Path) -> None:
        """Read what `save_optimizer` wrote."""
        from safetensors.torch import load_file

        moments = load_file(folder / OPTIMIZER_FILE)
        self.num_steps = int(moments.pop("num_steps"))
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in moments.items():
            number, name = key.split(".", 1)
            state.setdefault(int(number), {})[name] = value
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})

    # -------------------------------------------------------------------------------------------------------- details

    def _with_gradient(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """Those that pull at the weights: one worth nothing has no gradient, unless a KL term holds on to it."""
        if self.settings.kl_beta:
            return samples
        return [sample for sample in samples if any(sample.advantages)] or samples

    def _activate(self) -> None:
        """Let the model speak with this learner's adapter; another learner may have used it since."""
        if self.adapter:
            self.model.set_adapter(self.adapter)

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        is_cuda = self.device.type == "cuda"
        return torch.autocast("cuda", dtype=torch.bfloat16) if is_cuda else contextlib.nullcontext()

    def _logprobs(self, batch: MicroBatch) -> Tensor:
        """What the present weights say of the batch, without gradients."""
        self.model.eval()
        with torch.no_grad(), self._autocast():
            return model_logprobs(self.model, batch.token_ids_BT, batch.attention_BT, batch.mask_BT)[0]

    def _reference_logprobs(self, batch: MicroBatch) -> Tensor | None:
        if not self.settings.kl_beta:
            return None
        self.model.eval()
        with torch.no_grad(), self._autocast(), without_adapter(self.model):
            model = self.model if self.reference is None else self.reference
            return model_logprobs(model, batch.token_ids_BT, batch.attention_BT, batch.mask_BT)[0]

    def _loss(
        self, batch: MicroBatch, reference_BT: Tensor | None, denominator: int
    ) -> tuple[Tensor, Tensor, dict[str, float]]:
        """The loss of a micro-batch, the log-probs before the update, and what was measured."""
        settings = self.settings
        with self._autocast():
            logprobs_BT, entropy_BT = model_logprobs(self.model, batch.token_ids_BT, batch.attention_BT, batch.mask_BT)
        shared: dict[str, Any] = {"how": settings.aggregation, "denominator": denominator}
        measured = {"num_tokens": float(batch.mask_BT.sum()), "policy/entropy": float(entropy_BT.sum())}
        if settings.loss == "clipped":
            clipped = clipped_loss(
                logprobs_BT,
                logprobs_BT.detach(),
                batch.advantages_BT,
                batch.mask_BT,
                epsilon=settings.epsilon,
                **shared,
            )
            loss = clipped.loss
            measured["policy/clip_fraction"] = float(clipped.num_clipped_low + clipped.num_clipped_high)
        else:
            loss = policy_gradient_loss(logprobs_BT, batch.advantages_BT, batch.mask_BT, **shared)
        measured["loss/policy"] = float(loss.detach())
        if reference_BT is not None:
            divergence = kl_loss(logprobs_BT, reference_BT, batch.mask_BT, kind=settings.kl, **shared)
            loss = loss + settings.kl_beta * divergence
            measured["loss/kl"] = float(divergence.detach())
        return loss, logprobs_BT.detach(), measured

    def _update(self) -> dict[str, float]:
        """Clip, check, and take the optimizer's step."""
        rate = self.settings.learning_rate * min(1.0, (self.num_steps + 1) / max(1, self.warmup_steps))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.max_grad_norm))
        if not math.isfinite(norm):
            self.optimizer.zero_grad(set_to_none=True)
            raise TrainingStopped(f"the gradient is not finite at step {self.num_steps}; no weight was changed")
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.num_steps += 1
        return {"gradient/norm": norm, "learner/rate": rate}


def _refuse_unusable(samples: Sequence[Sample]) -> None:
    if not any(any(sample.loss_mask) for sample in samples):
        raise TrainingStopped("no token of the batch carries loss")
    for number, sample in enumerate(samples):
        for name, values in (("advantage", sample.advantages), ("log-prob", sample.logprobs)):
            if not all(map(math.isfinite, values)):
                raise TrainingStopped(f"a {name} of sample {number} is not finite; no weight was changed")


def _mismatch(gaps_N: Tensor) -> dict[str, float]:
    """How far the sampler's log-probs are from the learner's: what the policy said it would do against what it did."""
    if not bool(torch.isfinite(gaps_N).all()):
        raise TrainingStopped("a log-prob of the learner is not finite; no weight was changed")
    return {"mismatch/mean": float(gaps_N.abs().mean()), "mismatch/max": float(gaps_N.abs().max())}
