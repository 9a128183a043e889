"""One gradient step on a batch of samples.

    learner = Learner(model, LearnerSettings(learning_rate=1e-6))
    metrics = learner.step(samples)         # {"loss/policy": ..., "gradient/norm": ..., ...}

Weights are float32; on a GPU the forward pass is autocast to bfloat16. Samples are packed end to end without padding;
on a CPU, a prompt shared by several samples is computed once. A sample is used for one update, and counts as if the
policy of its forward pass had sampled it; the distance of its log-probs from the sampler's is a metric. Any value that
is not finite stops the step, with its cause, before a weight changes. A step synchronises with the GPU once: after all
gradients, before the update.

Shapes: N tokens that carry loss, B samples, W most such tokens in one sample (see `batches.py`).
"""

# ruff: noqa: N806 (capitals are shapes)
import contextlib
import copy
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from quaere.errors import BadInput, TrainingStopped, is_out_of_memory
from quaere.objectives.policy_gradient import count_terms, kl_loss, policy_gradient_loss
from quaere.policies.model_folders import WEIGHTS
from quaere.policies.native.bridge import decoder_layers, is_varlen, use_varlen_attention
from quaere.training.batches import (
    MicroBatch,
    Sample,
    packed_logprobs,
    plain_model,
    refuse_unusable,
    select_samples,
    split_batch,
)
from quaere.training.estimate import needs_checkpointing
from quaere.training.settings import LearnerSettings

OPTIMIZER_FILE = "optimizer.safetensors"


class Learner:
    """A model with its optimizer and its place in the learning-rate schedule.

    With `adapter`, only that adapter of the model is trained and the base stays frozen. The reference model of a KL
    term is the base, or without an adapter `reference`; if that is None, a copy of the model as it is now.
    """

    def __init__(
        self, model: Any, settings: LearnerSettings, *, adapter: str = "", warmup_steps: int = 0, reference: Any = None
    ) -> None:
        self.settings = settings
        self.adapter = adapter
        self.warmup_steps = warmup_steps
        self.model = model if adapter else model.float()
        use_varlen_attention(plain_model(self.model))
        self.device = next(self.model.parameters()).device
        self._checkpointing = settings.gradient_checkpointing
        if self._checkpointing == "auto" and self.device.type != "cuda":
            self._checkpointing = False  # on a CPU, memory is cheaper than time
        if self._checkpointing is True:
            self._switch_checkpointing_on()
        self.parameters = trainable_weights(self.model, adapter)
        self.optimizer = self._make_optimizer()
        self._further: dict[str, torch.optim.Optimizer] = {}  # further optimizers, by the names of their moments
        self.num_steps = 0
        # Hears how many micro-batches of an update are done, of how many, and in how many seconds.
        self.on_batch: Callable[[int, int, float], None] = lambda num_done, num_all, seconds: None
        self.reference: Any = None
        if settings.needs_reference and not adapter:  # with an adapter, the model without it is the reference
            found = copy.deepcopy(self.model) if reference is None else reference
            self.reference = use_varlen_attention(found).eval().requires_grad_(False)
        if settings.compiled:
            for layer in decoder_layers(self.model):
                layer.compile(dynamic=True)

    # ------------------------------------------------------------------------------------------------------- one step

    def step(
        self, samples: Sequence[Sample], how: LearnerSettings | None = None, *, moments: str = ""
    ) -> dict[str, float]:
        """Make one update on these samples and return its metrics.

        With `how`, its loss, KL and learning rate replace the learner's own: a further update by another objective at
        the same place in the schedule. It may have its own optimizer `moments`, by any name; with shared moments, the
        objective with the larger gradients would also determine the step size of the other.
        """
        settings = how or self.settings
        optimizer = self._optimizer(moments)
        refuse_unusable(samples)
        self._activate()
        # Counted over the whole batch, so that the gradient does not depend on the split into micro-batches, nor on
        # which flat samples are skipped.
        denominator = sum(count_terms(torch.tensor([one.loss_mask]), settings.aggregation) for one in samples)
        # All micro-batches are moved to the device first, so that it never waits for the next.
        counted, settings = select_samples(samples, settings)
        batches = list(self._split(counted))
        self._choose_checkpointing(batches)
        self.optimizer.zero_grad(set_to_none=True)
        self.model.train()
        started, measured = time.perf_counter(), []
        for number, batch in enumerate(batches):
            self.on_batch(number, len(batches), time.perf_counter() - started)
            measured.append(self._add_gradients(batch, denominator, settings))
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, settings.max_grad_norm or math.inf)
        totals = _read(measured, norm, largest_weight(self.model.parameters()))
        self._refuse_non_finite(totals)
        rate = self._update(optimizer, settings.learning_rate, moves_on=how is None)
        num_tokens = sum(len(batch.targets_N) for batch in batches)
        # Losses are already divided by the whole batch's count; `means` are sums over tokens; the rest stays as it is.
        means = ("policy/entropy", "mismatch/mean")
        metrics = {name: value / num_tokens if name in means else value for name, value in totals.items()}
        del metrics["loss"], metrics["weights"]
        return metrics | {"learner/rate": rate, "batch/model_tokens": float(num_tokens)}

    @property
    def has_reference(self) -> bool:
        """True if the reference model is available: as the base of an adapter, or as a copy."""
        return bool(self.adapter) or self.reference is not None

    def score(self, samples: Sequence[Sample]) -> list[list[float]]:
        """Log-prob of every token that carries loss, in order, per sample."""
        return [list(logprobs) for logprobs, _ in self.score_tokens(samples)]

    def score_reference(self, samples: Sequence[Sample]) -> list[list[float]]:
        """Log-probs like `score`, by the reference model."""
        return [list(logprobs) for logprobs, _ in self._score(samples, self._score_reference)]

    def score_tokens(self, samples: Sequence[Sample]) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
        """Log-prob and entropy of every token that carries loss, in order, per sample."""
        return self._score(samples, self._score_batch)

    def _score(
        self, samples: Sequence[Sample], score_batch: Callable[[MicroBatch], tuple[Tensor, Tensor]]
    ) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
        self._activate()
        found: list[tuple[tuple[float, ...], tuple[float, ...]]] = [((), ())] * len(samples)
        for batch in self._split(samples):
            counts = batch.mask_BW.sum(dim=1).tolist()
            logprobs, entropies = (values_N.split(counts) for values_N in score_batch(batch))
            for row, own, spread in zip(batch.rows, logprobs, entropies, strict=True):
                found[row] = tuple(own.tolist()), tuple(spread.tolist())
        return found

    # ------------------------------------------------------------------------------------------------- save and load

    def save(self, folder: Path) -> None:
        """Write the weights (Hugging Face layout; with an adapter, only its own) and the optimizer's state."""
        save_weights(self.model, folder, self.adapter)
        self.save_optimizer(folder / OPTIMIZER_FILE)

    def load(self, folder: Path) -> None:
        """Restore weights, optimizer moments and the place in the schedule from `save`."""
        load_weights(self.model, folder, self.adapter)
        self.load_optimizer(folder / OPTIMIZER_FILE)

    def save_optimizer(self, file: Path) -> None:
        """Write the optimizer's moments and the place in the schedule."""
        saved = {
            f"{moments}/{number}.{name}": value.detach().cpu()
            for moments, optimizer in {"": self.optimizer, **self._further}.items()
            for number, state in optimizer.state_dict()["state"].items()
            for name, value in state.items()
        }
        refuse_non_finite(saved.items())
        saved["num_steps"] = torch.tensor(self.num_steps)
        save_file(saved, file)

    def load_optimizer(self, file: Path) -> None:
        """Restore the moments and the place in the schedule from a file that `save_optimizer` wrote."""
        saved = load_file(file)
        self.num_steps = int(saved.pop("num_steps"))
        self._further.clear()
        states: dict[str, dict[int, dict[str, Tensor]]] = {"": {}}
        for key, value in saved.items():
            moments, _, place = key.rpartition("/")
            number, name = place.split(".", 1)
            states.setdefault(moments, {}).setdefault(int(number), {})[name] = value
        for moments, state in states.items():
            optimizer = self._optimizer(moments)
            optimizer.load_state_dict({**optimizer.state_dict(), "state": state})

    # -------------------------------------------------------------------------------------------------------- details

    def _make_optimizer(self) -> torch.optim.Optimizer:
        """AdamW, fused where torch has a kernel."""
        settings = self.settings
        kind = _OffloadedAdamW if settings.offload_optimizer else torch.optim.AdamW
        options = {"lr": settings.learning_rate, "betas": settings.betas, "weight_decay": settings.weight_decay}
        return kind(self.parameters, fused=self.device.type in ("cpu", "cuda"), **options)

    def _optimizer(self, moments: str) -> torch.optim.Optimizer:
        """The optimizer with these moments, created at its first use."""
        if not moments:
            return self.optimizer
        if moments not in self._further:
            self._further[moments] = self._make_optimizer()
        return self._further[moments]

    def _split(self, samples: Sequence[Sample]) -> Iterator[MicroBatch]:
        # The GPU kernel for packed sequences does not support shared prompts; rows that are not packed share nothing.
        shares = self.device.type != "cuda" and is_varlen(plain_model(self.model))
        return split_batch(samples, self.settings.micro_tokens, self.device, share_prompts=shares)

    def _activate(self) -> None:
        """Select this learner's adapter; another learner may have selected its own since."""
        if self.adapter:
            self.model.set_adapter(self.adapter)

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        is_cuda = self.device.type == "cuda"
        return torch.autocast("cuda", dtype=torch.bfloat16) if is_cuda else contextlib.nullcontext()

    def _score_batch(self, batch: MicroBatch) -> tuple[Tensor, Tensor]:
        """Log-probs and entropies of the batch under the current weights, without gradients."""
        self.model.eval()
        with torch.no_grad(), self._autocast():
            return packed_logprobs(self.model, batch)

    def _score_reference(self, batch: MicroBatch) -> tuple[Tensor, Tensor]:
        """Log-probs and entropies of the batch under the reference model."""
        if self.reference is not None:
            with torch.no_grad(), self._autocast():
                return packed_logprobs(self.reference, batch)
        with self.model.disable_adapter():  # without a copy, the base under the adapter is the reference
            found = self._score_batch(batch)
        self.model.train()
        return found

    def _add_gradients(self, batch: MicroBatch, denominator: int, settings: LearnerSettings) -> dict[str, Tensor]:
        """Forward and backward pass of one micro-batch; metrics stay on the device, so that nothing synchronises."""
        shared: dict[str, Any] = {"how": settings.aggregation, "denominator": denominator}
        reference_N = self._score_reference(batch)[0] if settings.kl_beta else None
        with self._autocast():
            logprobs_N, entropy_N = packed_logprobs(self.model, batch)
        logprobs_BW = batch.grid(logprobs_N)
        gaps_N = (logprobs_N.detach() - batch.logprobs_N).abs()
        measured = {"mismatch/mean": gaps_N.sum(), "mismatch/max": gaps_N.max(), "policy/entropy": entropy_N.sum()}
        loss = policy_gradient_loss(logprobs_BW, batch.advantages_BW, batch.mask_BW, **shared)
        measured["loss/policy"] = loss.detach()
        if reference_N is not None:
            divergence = kl_loss(logprobs_BW, batch.grid(reference_N), batch.mask_BW, kind=settings.kl, **shared)
            loss = loss + settings.kl_beta * divergence
            measured["loss/kl"] = divergence.detach()
        loss.backward()
        return measured | {"loss": loss.detach()}

    def _refuse_non_finite(self, totals: dict[str, float]) -> None:
        """Raise TrainingStopped before any weight changes, naming the first cause."""
        causes = {
            "loss": f"the loss is not finite at step {self.num_steps}",
            "mismatch/mean": "a log-prob of the learner is not finite",
            "gradient/norm": f"the gradient is not finite at step {self.num_steps}",
            "weights": "a weight that no sample used is not finite",
        }
        for name, cause in causes.items():
            if not math.isfinite(totals[name]):
                self.optimizer.zero_grad(set_to_none=True)
                raise TrainingStopped(f"{cause}; no weight was changed")

    def _update(self, optimizer: torch.optim.Optimizer, learning_rate: float, *, moves_on: bool) -> float:
        """Make the optimizer step and return its learning rate; `moves_on` advances the schedule by one step."""
        rate = learning_rate * min(1.0, (self.num_steps + 1) / max(1, self.warmup_steps))
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        self.num_steps += moves_on
        return rate

    def _choose_checkpointing(self, batches: Sequence[MicroBatch]) -> None:
        """Resolve `gradient_checkpointing="auto"` at the first step, when other users of the GPU have their memory."""
        if self._checkpointing == "auto":
            longest = max(batch.packing.longest for batch in batches)
            self._checkpointing = needs_checkpointing(
                plain_model(self.model), self.parameters, self.settings, sequence_tokens=longest
            )
            if self._checkpointing:
                self._switch_checkpointing_on()

    def _switch_checkpointing_on(self) -> None:
        self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def _read(measured: Sequence[dict[str, Tensor]], norm: Tensor, largest: Tensor) -> dict[str, float]:
    """Sums over the micro-batches (for `mismatch/max`, the maximum), in one transfer from the device."""
    names = list(measured[0])
    rows = [torch.stack([batch[name].double() for name in names]) for batch in measured]
    whole = torch.stack([norm.double(), largest.double()])
    *values, norm_value, largest_value = torch.cat([*rows, whole]).tolist()
    totals = {name: sum(values[place :: len(names)]) for place, name in enumerate(names)}
    totals["mismatch/max"] = max(values[names.index("mismatch/max") :: len(names)])
    return totals | {"gradient/norm": norm_value, "weights": largest_value}


# --------------------------------------------------------------------------------------------------------- the weights


def trainable_weights(model: Any, adapter: str) -> list[Tensor]:
    """The weights a learner trains: all of a plain model, or those of one adapter; the rest is frozen."""
    if not adapter:
        return list(model.requires_grad_(True).parameters())
    model.set_adapter(adapter)
    return [weight for name, weight in model.named_parameters() if f".{adapter}." in name]


def save_weights(model: Any, folder: Path, adapter: str = "", dtype: str = "float32") -> None:
    """Write a model, or one adapter of it with tensors in `dtype`, in Hugging Face layout."""
    if not adapter:
        save_model(model, folder)
        return
    from peft import get_peft_model_state_dict

    folder.mkdir(parents=True, exist_ok=True)
    # Embeddings are never adapted. Without the explicit False, peft looks for the base model, even on the hub.
    tensors = get_peft_model_state_dict(model, adapter_name=adapter, save_embedding_layers=False)
    save_tensors(tensors, folder / WEIGHTS, dtype)
    model.peft_config[adapter].save_pretrained(folder)


def save_model(model: Any, folder: Path) -> None:
    """Write a whole model in Hugging Face layout; raises TrainingStopped if a weight is not finite."""
    refuse_non_finite(model.named_parameters())
    model.save_pretrained(folder)


def save_tensors(tensors: dict[str, Tensor], path: Path, dtype: str) -> None:
    """Write the tensors of an adapter in `dtype`, rounded to nearest.

    Rounding to nearest is safe here: an adapter's tensors are not sums in which a small update could be lost.
    """
    cast = {name: tensor.to(getattr(torch, dtype)).contiguous() for name, tensor in tensors.items()}
    refuse_non_finite(cast.items())  # after the cast: a float32 value may overflow in float16
    save_file(cast, path)


_SAME_MODEL = "resume with the model that the run began with: --model M --force"


def load_weights(model: Any, folder: Path, adapter: str = "") -> None:
    """Load weights written by `save_weights` into the model they came from."""
    if adapter:
        from peft import set_peft_model_state_dict

        with _refusing_misfits(folder):
            set_peft_model_state_dict(model, load_file(folder / WEIGHTS), adapter_name=adapter)
        return
    tensors: dict[str, Tensor] = {}
    for file in sorted(folder.glob("model*.safetensors")):  # one file, or several shards
        tensors |= load_file(file)
    # A tied weight is stored once, under one of its names.
    missing = set(model.state_dict()) - set(tensors)
    stray = missing - set(getattr(model, "all_tied_weights_keys", None) or ())
    if stray:
        said = f"{folder} has no weights for {', '.join(sorted(stray)[:3])}: it belongs to another model"
        raise BadInput(said, hint=_SAME_MODEL)
    with _refusing_misfits(folder):
        model.load_state_dict(tensors, strict=False)


@contextlib.contextmanager
def _refusing_misfits(folder: Path) -> Iterator[None]:
    """Context in which weights of other shapes, or none, are a BadInput and not an error of torch in many lines."""
    try:
        yield
    except FileNotFoundError as error:
        raise BadInput(f"{folder} has no {WEIGHTS}: it belongs to another model", hint=_SAME_MODEL) from error
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        said = f"the weights in {folder} do not fit the model: they belong to another model"
        raise BadInput(said, hint=_SAME_MODEL) from error


@torch.no_grad()  # type: ignore[untyped-decorator]
def largest_weight(weights: Iterable[Tensor]) -> Tensor:
    """The largest magnitude among the weights, as a tensor on their device; NaN or infinite if any weight is.

    One pass without copies, and without waiting for the device.
    """
    # vector_norm, not abs().max(): the latter would allocate a copy of the largest weight.
    return torch.stack([torch.linalg.vector_norm(weight, math.inf).float() for weight in weights]).max()


def refuse_non_finite(weights: Iterable[tuple[str, Tensor]]) -> None:
    """Raise TrainingStopped if a weight is not finite, naming its tensor.

    refuse_non_finite(model.named_parameters())
    """
    for name, weight in weights:
        is_checked = weight.is_floating_point() and weight.numel() > 0
        if is_checked and not math.isfinite(largest_weight([weight]).item()):
            raise TrainingStopped(
                f"{name} contains a value that is not finite: it is not saved",
                hint="resume from the last checkpoint with --resume and a lower learning rate",
            )


# ------------------------------------------------------------------------------- AdamW with its moments in host memory


class _OffloadedAdamW(torch.optim.AdamW):  # type: ignore[misc]
    """AdamW with its moments in host memory; they are copied to the device for the update, weight by weight.

    Updates and saved state are bit-identical to plain AdamW.
    """

    param_groups: list[dict[str, Any]]

    def __init__(self, parameters: Iterable[Tensor], **options: Any) -> None:
        # One parameter group per weight, so that weights can be updated one after another.
        super().__init__([{"params": [weight]} for weight in parameters], **options)

    def step(self, closure: None = None) -> None:
        groups = self.param_groups
        try:
            for group in groups:
                (weight,) = group["params"]
                if weight.grad is None:
                    continue
                resting = self.state[weight]
                self.state[weight] = {n: value.to(weight.device, non_blocking=True) for n, value in resting.items()}
                self.param_groups = [group]
                super().step()
                self._put_away(weight, resting)
        finally:
            self.param_groups = groups
        _finish_copies()

    def load_state_dict(self, state_dict: Any) -> None:
        super().load_state_dict(state_dict)
        for weight in list(self.state):
            self._put_away(weight, {})
        _finish_copies()

    def _put_away(self, weight: Tensor, resting: dict[str, Tensor]) -> None:
        """Move a weight's state to the host, into the memory it had there before."""
        moved = {}
        for name, value in self.state[weight].items():
            if not value.is_cuda:
                moved[name] = value
                continue
            # Pinned memory makes the copies several times faster.
            place = resting[name] if name in resting else torch.empty_like(value, device="cpu", pin_memory=True)
            moved[name] = place.copy_(value, non_blocking=True)
        self.state[weight] = moved


def _finish_copies() -> None:
    """Wait for the asynchronous copies; only then may the host memory be read."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
