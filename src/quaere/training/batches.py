"""Training samples, micro-batches of them without padding, and the log-probs of their tokens under a model.

    sample = make_sample(episode, advantage=1.2)       # tokens with loss mask, sampler log-probs and advantages

The samples of a micro-batch are packed end to end into one sequence, in which a prompt shared by several samples may
occur once. Values of the tokens that carry loss, which are far fewer, are kept as one list, and as a grid with a row
per sample for losses that average over sequences.

Logits are the largest tensor of a training step. They are needed only at tokens that carry loss, and only one value of
each row; so those positions are selected first and projected in chunks. The gradient with respect to the states is
computed in the forward pass while a chunk's logits exist. The gradient of a trainable head depends on the incoming
gradient, which is known only in the backward pass, where each chunk is projected again except the last, whose result is
kept.

Shapes: T packed tokens, N tokens that carry loss, B samples, W most such tokens in one sample, D hidden size, V
vocabulary size.
"""

# ruff: noqa: N803, N806, N815 (capitals are shapes)
import math
import operator
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import torch
from msgspec import Struct, structs
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from quaere.dialects.roles import Credit
from quaere.errors import TrainingStopped
from quaere.policies.native.attention import Packing
from quaere.policies.native.bridge import Head, is_varlen, output_head, packed_states
from quaere.policies.native.plain import padded_states
from quaere.records import Episode
from quaere.training.settings import LearnerSettings

CHUNK_TOKENS = 1024


class Sample(Struct, frozen=True):
    """One training sequence; every field has one entry per token.

    `logprobs` are those of the sampler. `logprobs` and `advantages` are meaningful only where `loss_mask` is true.
    `episode_id` names the episode that it was made from, if any.

        Sample(token_ids=(5, 7, 9), loss_mask=(False, True, True), logprobs=(0.0, -0.7, -0.1),
               advantages=(0.0, 1.2, 1.2))
    """

    token_ids: tuple[int, ...]
    loss_mask: tuple[bool, ...]
    logprobs: tuple[float, ...]
    advantages: tuple[float, ...]
    episode_id: str = ""


def make_sample(
    episode: Episode, advantage: float, factors: Sequence[float] | None = None, credits: Sequence[Credit] = ()
) -> Sample:
    """The episode as a training sample: each model token gets `advantage`, times its entry of `factors` if given.

    The values of `credits` are added for their tokens. Raises ValueError for an episode of a text endpoint, which has
    no tokens.
    """
    if not episode.segments:
        raise ValueError(f"episode {episode.id} has no tokens: episodes of a text endpoint cannot be trained on")
    mask = episode.loss_mask
    weighted = [advantage] * len(mask) if factors is None else [advantage * factor for factor in factors]
    for credit in credits:
        weighted[credit.start : credit.end] = [value + credit.value for value in weighted[credit.start : credit.end]]
    advantages = tuple(value if flag else 0.0 for value, flag in zip(weighted, mask, strict=True))
    return Sample(episode.token_ids, mask, episode.logprobs, advantages, episode.id)


def refuse_unusable(samples: Sequence[Sample]) -> None:
    """Raise TrainingStopped if nothing carries loss, or if an advantage or a log-prob is not finite."""
    if not any(any(sample.loss_mask) for sample in samples):
        raise TrainingStopped("no token of the batch carries loss: there is nothing to train on")
    for number, sample in enumerate(samples):
        for name, values in (("advantage", sample.advantages), ("log-prob", sample.logprobs)):
            if not all(map(math.isfinite, values)):
                raise TrainingStopped(f"a {name} of sample {number} is not finite; no weight was changed")


def select_samples(samples: Sequence[Sample], settings: LearnerSettings) -> tuple[Sequence[Sample], LearnerSettings]:
    """The samples to compute, and the settings for them.

    Samples of zero advantage have no policy gradient and are skipped, unless the KL term includes them. If all
    advantages are zero, all samples are computed for their metrics only, without KL term.
    """
    if settings.kl_beta and settings.kl_flat:
        return samples, settings
    if found := _with_gradient(samples):
        return found, settings
    return samples, structs.replace(settings, kl_beta=0.0)


def _with_gradient(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Samples with a non-zero advantage on a token that carries loss."""
    return [sample for sample in samples if any(map(operator.mul, sample.advantages, sample.loss_mask))]


# ------------------------------------------------------------------------------------------------------- micro-batches


class MicroBatch(Struct, frozen=True):
    """A packed micro-batch; `rows` are the samples' indices in the whole batch.

    `targets_N[n]` is a token that carries loss. `before_N[n]` is the packed position of the token before it, whose
    hidden state predicts it; if samples share a prompt, their first targets share this position. `places_N[n]` is the
    target's position in the flattened (B, W) grid. `logprobs_N` are the sampler's log-probs of the targets.
    """

    rows: tuple[int, ...]
    token_ids_T: Tensor
    packing: Packing
    before_N: Tensor
    targets_N: Tensor
    logprobs_N: Tensor
    places_N: Tensor
    mask_BW: Tensor
    advantages_BW: Tensor

    def grid(self, values_N: Tensor) -> Tensor:
        """Values of the tokens that carry loss as `(B, W)`: one row per sample, left-aligned and padded with zeros."""
        flat = values_N.new_zeros(self.mask_BW.numel())
        return flat.index_copy(0, self.places_N, values_N).view(self.mask_BW.shape)


def split_batch(
    samples: Sequence[Sample], max_tokens: int, device: torch.device, *, share_prompts: bool = False
) -> Iterator[MicroBatch]:
    """Micro-batches of at most `max_tokens` tokens each, or of one longer sample.

    First-fit decreasing: longest first, each sample goes to the first micro-batch with room. With `share_prompts`,
    samples with the same prompt (all tokens before the first that carries loss) follow one another, and each goes where
    it adds the fewest tokens. Samples without a token that carries loss are left out. The split depends on the samples
    alone, so that a repeated step is identical.
    """
    lengths = [_num_needed(sample) for sample in samples]
    prompts = [_prompt(sample) if share_prompts else () for sample in samples]
    order = sorted((row for row, length in enumerate(lengths) if length), key=lambda row: (-lengths[row], row))
    ranks = {prompt: rank for rank, prompt in enumerate(dict.fromkeys(prompts[row] for row in order))}
    bins: list[list[int]] = []
    room: list[int] = []
    for row in sorted(order, key=lambda row: ranks[prompts[row]]):
        # Samples arrive grouped by prompt, so a bin can share only the prompt of its last sample.
        known = [len(prompts[row]) if prompts[row] == prompts[rows[-1]] else 0 for rows in bins]
        adds = [(lengths[row] - shared, number) for number, shared in enumerate(known)]
        tokens, place = min((one for one in adds if one[0] <= room[one[1]]), default=(lengths[row], len(bins)))
        if place == len(bins):
            bins.append([])
            room.append(max_tokens)
        bins[place].append(row)
        room[place] -= tokens
    for rows in bins:
        yield _pack([samples[row] for row in rows], tuple(rows), [prompts[row] for row in rows], device)


def _num_needed(sample: Sample) -> int:
    """Number of tokens to read in order to predict every token that carries loss: those before the last of them."""
    if any(sample.loss_mask[:1]):
        raise ValueError("the first token of a sequence cannot carry loss: no token before it predicts it")
    return max((place for place, flag in enumerate(sample.loss_mask) if flag), default=0)


def _prompt(sample: Sample) -> tuple[int, ...]:
    """The tokens before the first that carries loss."""
    return sample.token_ids[: sample.loss_mask.index(True)] if any(sample.loss_mask) else ()


class _Layout(Struct, frozen=True):
    """A packed sequence of pieces; a piece may continue an earlier one, its prefix, such as a shared prompt.

    `places[n]` are the positions of sample n's tokens in `token_ids`.
    """

    token_ids: list[int] = []
    lengths: list[int] = []
    prefixes: list[int | None] = []
    places: list[list[int]] = []

    def add(self, token_ids: Sequence[int], prefix: int | None = None) -> range:
        """Append tokens as a piece and return their positions; `prefix` is the number of the piece they continue."""
        if token_ids:
            self.token_ids.extend(token_ids)
            self.lengths.append(len(token_ids))
            self.prefixes.append(prefix)
        return range(len(self.token_ids) - len(token_ids), len(self.token_ids))


def _lay_out(samples: Sequence[Sample], prompts: Sequence[tuple[int, ...]]) -> _Layout:
    """Pack samples, with one copy of a prompt that neighbours share."""
    layout = _Layout()
    for prompt, group in groupby(zip(samples, prompts, strict=True), key=operator.itemgetter(1)):
        alike = [sample for sample, _ in group]
        shared = prompt if len(alike) > 1 else ()
        first = layout.add(shared)
        prefix = len(layout.lengths) - 1 if shared else None
        for sample in alike:
            own = layout.add(sample.token_ids[len(shared) : _num_needed(sample)], prefix)
            layout.places.append([*first, *own])
    return layout


def _pack(
    samples: Sequence[Sample], rows: tuple[int, ...], prompts: Sequence[tuple[int, ...]], device: torch.device
) -> MicroBatch:
    pack = _lay_out(samples, prompts)
    marked = [[place for place, flag in enumerate(sample.loss_mask) if flag] for sample in samples]
    width = max(map(len, marked))

    def tensor(values: list[list[float]], dtype: torch.dtype) -> Tensor:
        return torch.tensor([value for row in values for value in row], dtype=dtype, device=device)

    def pick(name: str) -> list[list[float]]:
        return [[getattr(s, name)[place] for place in places] for s, places in zip(samples, marked, strict=True)]

    def pad(values: list[list[float]], dtype: torch.dtype) -> Tensor:
        return tensor([[*row, *[0] * (width - len(row))] for row in values], dtype).view(len(rows), width)

    return MicroBatch(
        rows=rows,
        token_ids_T=torch.tensor(pack.token_ids, device=device),
        packing=Packing(pack.lengths, device, pack.prefixes),
        before_N=tensor(
            [[where[p - 1] for p in ps] for where, ps in zip(pack.places, marked, strict=True)], torch.long
        ),
        targets_N=tensor(pick("token_ids"), torch.long),
        logprobs_N=tensor(pick("logprobs"), torch.float32),
        places_N=tensor([[number * width + n for n in range(len(p))] for number, p in enumerate(marked)], torch.long),
        mask_BW=pad([[1] * len(places) for places in marked], torch.bool),
        advantages_BW=pad(pick("advantages"), torch.float32),
    )


# --------------------------------------------------------------------- log-probs, without the logits of the whole batch


def plain_model(model: Any) -> Any:
    """The transformers model without peft's wrapper; adapter layers stay in it."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def packed_logprobs(model: Any, batch: MicroBatch) -> tuple[Tensor, Tensor]:
    """Log-prob and entropy `(N,)` of every token that carries loss, given the tokens before it.

    Entropy has no gradient.
    """
    model = plain_model(model)
    find_states = packed_states if is_varlen(model) else padded_states
    states_TD = find_states(model, batch.token_ids_T, batch.packing)
    return head_logprobs(states_TD[batch.before_N], output_head(model), batch.targets_N)


def head_logprobs(states_ND: Tensor, head: Head, targets_N: Tensor) -> tuple[Tensor, Tensor]:
    """Log-prob of each target, and entropy, under the logits of a head on the states.

    Matrix products use the precision of autocast or of the weights, everything else float32 or better.

        head_logprobs(zeros(1, 4), Head(zeros(2, 4), None, None), tensor([1])) -> [-0.693], [0.693]
    """
    if head.scale != 1:
        states_ND = states_ND * head.scale
    device = states_ND.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else head.weight.dtype
    with torch.autocast(device, enabled=False):
        found: tuple[Tensor, Tensor] = _HeadLogProbs.apply(
            states_ND, head.weight, head.bias, targets_N, head.softcap, dtype
        )
    return found


class _HeadLogProbs(torch.autograd.Function):  # type: ignore[misc]
    """From states to log-probs as one autograd function, so that no logits outlive their chunk."""

    @staticmethod
    def forward(
        ctx: Any,
        states_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        softcap: float | None,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        """Log-prob of each target, and entropy, computed chunk by chunk.

        If gradients are needed, the gradient of each log-prob with respect to its state is computed too and kept in
        `ctx`.
        """
        needs_states, *needs_head = ctx.needs_input_grad[:3]
        head = Head(weight_VD.to(dtype), None if bias_V is None else bias_V.to(dtype), softcap)
        precise = torch.promote_types(dtype, torch.float32)
        logprobs_N, entropy_N, sums_N = (states_ND.new_empty(len(targets_N), dtype=precise) for _ in range(3))
        moves_ND = torch.empty_like(states_ND) if needs_states else None
        pulls = None
        for chunk in _chunks(len(targets_N)):
            logits = _logits(states_ND[chunk].to(dtype), head, precise)
            sums_N[chunk] = sums = logits.logsumexp(dim=-1)
            slopes = _slopes(logits, softcap) if any(ctx.needs_input_grad) else None
            logits -= sums[:, None]  # log-probs from here on
            probabilities = logits.exp()
            logprobs_N[chunk] = logits.gather(-1, targets_N[chunk, None])[:, 0]
            # An impossible token (-inf) contributes 0; without the clamp, 0 * -inf would be NaN.
            entropy_N[chunk] = -(logits.clamp_(min=torch.finfo(precise).min).mul_(probabilities)).sum(dim=-1)
            del logits
            if any(ctx.needs_input_grad):
                pulls = _pulls(probabilities, slopes, targets_N[chunk]).to(dtype)
            if moves_ND is not None:
                moves_ND[chunk] = pulls @ head.weight
        again = (states_ND, weight_VD, bias_V, targets_N, sums_N, pulls) if any(needs_head) else ()
        ctx.save_for_backward(moves_ND, *again)
        ctx.softcap, ctx.dtype = softcap, dtype
        ctx.mark_non_differentiable(entropy_N)
        return logprobs_N, entropy_N

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, pull_N: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the states and, if it is trained, of the head; None for all other inputs of `forward`."""
        moves_ND, *again = ctx.saved_tensors
        states_grad = None if moves_ND is None else (pull_N[:, None] * moves_ND).to(moves_ND.dtype)
        head_grads = _head_gradients(ctx, pull_N, *again) if again else (None, None)
        return states_grad, *head_grads, None, None, None


def _head_gradients(
    ctx: Any,
    pull_N: Tensor,
    states_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    targets_N: Tensor,
    sums_N: Tensor,
    last_pulls: Tensor,
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of the head's weight and bias, None for one that is not trained.

    `last_pulls` are the logit gradients of the last chunk, kept by `forward`; those of the others are computed again.
    """
    dtype, precise = ctx.dtype, sums_N.dtype
    _, for_weight, for_bias, *_ = ctx.needs_input_grad
    head = Head(weight_VD.to(dtype), None if bias_V is None else bias_V.to(dtype), ctx.softcap)
    weight_grad = torch.zeros_like(weight_VD) if for_weight else None
    bias_grad = torch.zeros_like(bias_V) if for_bias and bias_V is not None else None
    for chunk in _chunks(len(targets_N)):
        if chunk.stop >= len(targets_N):
            pulls = last_pulls
        else:
            logits = _logits(states_ND[chunk].to(dtype), head, precise)
            slopes = _slopes(logits, ctx.softcap)
            pulls = _pulls(logits.sub_(sums_N[chunk, None]).exp_(), slopes, targets_N[chunk]).to(dtype)
        if weight_grad is not None:
            scaled = (states_ND[chunk] * pull_N[chunk, None]).to(dtype)  # scale the states: D columns, not V
            if weight_grad.dtype == dtype:
                weight_grad.addmm_(pulls.T, scaled)
            else:
                weight_grad += pulls.T @ scaled
        if bias_grad is not None:
            bias_grad += pull_N[chunk].to(dtype) @ pulls
    return weight_grad, bias_grad


def _chunks(count: int) -> Iterator[slice]:
    for start in range(0, count, CHUNK_TOKENS):
        yield slice(start, start + CHUNK_TOKENS)


def _logits(states_ND: Tensor, head: Head, precise: torch.dtype) -> Tensor:
    logits_NV = linear(states_ND, head.weight, head.bias).to(precise)
    if head.softcap is None:
        return logits_NV
    return logits_NV.div_(head.softcap).tanh_().mul_(head.softcap)


def _slopes(logits_NV: Tensor, softcap: float | None) -> Tensor | None:
    """Derivative of each logit with respect to its value before the softcap; None means 1."""
    return None if softcap is None else 1 - (logits_NV / softcap).square()


def _pulls(probabilities_NV: Tensor, slopes_NV: Tensor | None, targets_N: Tensor) -> Tensor:
    """Gradient of the target's log-prob by the raw logits: one-hot minus probabilities. Overwrites its input."""
    pulls_NV = probabilities_NV.neg_()
    pulls_NV.scatter_add_(1, targets_N[:, None], torch.ones_like(targets_N[:, None], dtype=pulls_NV.dtype))
    return pulls_NV if slopes_NV is None else pulls_NV.mul_(slopes_NV)
