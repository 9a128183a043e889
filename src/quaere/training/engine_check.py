"""What the engine and the learner compute for a model, compared with transformers' own forward pass.

compare_with_transformers(load_model("./my-model", "cpu", "float32", packed=False), token_ids)
-> Agreement(path="packed", logprob_gap=2e-6, num_same=12, gradient_gap=1e-7)
"""

from collections.abc import Sequence
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor

from quaere.policies.native.bridge import use_packed_attention, use_varlen_attention
from quaere.policies.native.engine import Engine, Request
from quaere.policies.sampler import SamplingParams
from quaere.training.batches import Sample, packed_logprobs, split_batch

NUM_SAMPLED = 12
# In float32 the log-probs of a model of thirty layers differ by 6e-5 and its gradients by 1e-4, which is rounding; what
# is computed wrongly is off by more than `WRONG`.
TOLERANCE, WRONG = 1e-3, 1e-2


class Agreement(Struct, frozen=True):
    """How far the engine and the learner are from transformers' own forward pass.

    Agreement(path="packed", logprob_gap=2e-6, num_same=12, gradient_gap=1e-7)

    path: "packed", or the engine's note about its plain path; logprob_gap: the largest difference of a log-prob, by the
    engine or the learner; num_same: tokens of a greedy turn before one differs; gradient_gap: the largest difference of
    a gradient, as a share of the largest gradient.
    """

    path: str
    logprob_gap: float
    num_same: int
    gradient_gap: float

    @property
    def is_right(self) -> bool:
        """True if everything agrees up to rounding in float32."""
        return max(self.logprob_gap, self.gradient_gap) < TOLERANCE and self.num_same == NUM_SAMPLED


def compare_with_transformers(model: Any, token_ids: list[int]) -> Agreement:
    """Compare log-probs, a greedy turn and a gradient; the model is in float32 and has its own attention.

    Log-probs and gradient are those of two sequences, the second a part of the first, that are learned together. The
    turn is sampled beside another and goes on after tokens that nobody sampled. The model is changed in place.
    """
    sequences = _split(token_ids)
    turns = [_own_turn(model.eval(), ids) for ids in sequences]
    expected, learned, gradient_gap = compare_learning(model, token_ids)
    engine = Engine(use_packed_attention(model), str, max_rows=2, max_step_tokens=len(token_ids) - 1)
    scored = torch.tensor([logprob for row in engine.score_many(sequences) for logprob in row[1:]])
    return Agreement(
        engine.note or "packed",
        float(max((found.cpu() - expected.cpu()).abs().max() for found in (learned, scored))),
        min(map(_count_same, turns, _engine_turns(engine, sequences))),
        gradient_gap,
    )


def compare_learning(model: Any, token_ids: list[int]) -> tuple[Tensor, Tensor, float]:
    """Log-probs of transformers and of the learner, and the largest difference of a gradient over the largest one."""
    sequences, weights = _split(token_ids), _watch_few(model.eval())
    expected = torch.cat([_own_logprobs(model, ids) for ids in sequences])
    expected_gradient = _gradient(expected, weights)
    (batch,) = split_batch([as_sample(ids) for ids in sequences], 1 << 30, next(model.parameters()).device)
    learned, _ = packed_logprobs(use_varlen_attention(model), batch)
    gap = (_gradient(learned, weights) - expected_gradient).abs().max() / expected_gradient.abs().max()
    return expected.detach(), learned.detach(), float(gap)


def _split(token_ids: list[int]) -> list[list[int]]:
    return [token_ids, token_ids[: len(token_ids) // 3]]


def _watch_few(model: Any) -> list[Tensor]:
    """The weights whose gradient is compared: all vectors (norms, biases, decays), which are few and in every layer."""
    model.requires_grad_(False)
    return [weight.requires_grad_() for weight in model.parameters() if weight.dim() == 1]


def as_sample(ids: Sequence[int]) -> Sample:
    """A sample in which every token but the first carries loss."""
    zeros = (0.0,) * len(ids)
    return Sample(tuple(ids), (False, *[True] * (len(ids) - 1)), zeros, zeros)


def _own_logprobs(model: Any, ids: list[int]) -> Tensor:
    device = next(model.parameters()).device
    logits = model(torch.tensor([ids], device=device), use_cache=False).logits[0, :-1].float()
    return logits.log_softmax(-1).gather(1, torch.tensor(ids[1:], device=device)[:, None])[:, 0]


def _gradient(logprobs: Tensor, weights: list[Tensor]) -> Tensor:
    found = torch.autograd.grad(logprobs.sum(), weights, allow_unused=True)
    return torch.cat([gradient.float().flatten() for gradient in found if gradient is not None])


@torch.no_grad()  # type: ignore[untyped-decorator]
def _own_turn(model: Any, ids: list[int]) -> list[int]:
    """A greedy turn in two halves, with a token in between that was not sampled, computed without a cache."""
    device, tokens = next(model.parameters()).device, [*ids]
    for number in range(NUM_SAMPLED):
        if number == NUM_SAMPLED // 2:
            tokens.append(ids[0])
        tokens.append(int(model(torch.tensor([tokens], device=device), use_cache=False).logits[0, -1].argmax()))
    return tokens[len(ids) :]


def _engine_turns(engine: Engine, sequences: list[list[int]]) -> list[list[int]]:
    """The same turns by the engine, each in a session."""
    contexts = [[*ids] for ids in sequences]
    for half in range(2):
        for number, ids in enumerate(sequences):
            contexts[number] += ids[:1] if half else []
            params = SamplingParams(max_tokens=NUM_SAMPLED // 2, temperature=0)
            engine.add(Request(str(number), contexts[number], params, session=str(number)))
        while engine.busy:
            for done in engine.step():
                contexts[int(done.key)] = done.tokens
    return [tokens[len(ids) :] for tokens, ids in zip(contexts, sequences, strict=True)]


def _count_same(first: list[int], second: list[int]) -> int:
    """Number of sampled tokens before the first that differs."""
    same = next((place for place, pair in enumerate(zip(first, second, strict=True)) if pair[0] != pair[1]), len(first))
    return same - (same > NUM_SAMPLED // 2)  # the token in between was not sampled
