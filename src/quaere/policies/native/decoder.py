"""Device state of the rows in flight, and one decode step for all of them.

The last token of every slot, its length and its sampling parameters stay on the device. A step is given only the slots:
it reads their tokens, runs the model, samples, and stores the new tokens for the next step. So the next step can start
before any result is copied back to the host.

On a GPU a step is captured once as a CUDA graph per batch size (sizes are rounded up to a few, captured when first
needed) and then replayed, which saves launching a thousand small kernels one by one. Graphs read weights at fixed
addresses, so copying new weights in place needs no new capture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Literal

import numpy as np
import torch
from msgspec import Struct
from torch import Tensor

from quaere.policies.native.attention import DecodePass, Pass, PrefillPass
from quaere.policies.native.device import has_kernels
from quaere.policies.native.kv_cache import KVStorage, Span
from quaere.policies.native.weights import signed
from quaere.policies.sampler import SamplingParams

Forward = Callable[[Pass, Tensor, Tensor, Tensor | None], Tensor]
"""A model's forward pass, such as `bridge.forward` of a model: logits of the wanted (or all) packed tokens."""


class Drawn:
    """Tokens and log-probs of one step, possibly still being copied from the device."""

    def __init__(self, values: Tensor) -> None:
        self._event: torch.cuda.Event | None = None
        if values.device.type == "cuda":
            self._values = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
            self._values.copy_(values, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()
        else:
            self._values = values

    def read(self) -> tuple[list[int], list[float]]:
        """Wait for the copy and return tokens and log-probs."""
        if self._event is not None:
            self._event.synchronize()
        tokens, logprobs = self._values.tolist()
        return [int(token) for token in tokens], logprobs


class _Captured(Struct, frozen=True):
    graph: Any
    slots: Tensor
    output: Tensor


class Decoder:
    """The state of every slot on the device. One additional slot serves as padding.

    With `captures`, steps are captured as CUDA graphs where the device has kernels.
    """

    def __init__(
        self, forward: Forward, device: torch.device, storage: KVStorage, num_slots: int, *, captures: bool = True
    ) -> None:
        self.forward = forward
        self.device = device
        self.storage = storage
        # Attention per slot reads lengths on the host, which no graph allows.
        self._captures = captures and has_kernels(device)
        self.padding = num_slots
        self.num_slots = num_slots + 1
        zeros = partial(torch.zeros, self.num_slots, device=device)
        self._last_token, self._length, self._num_drawn = (zeros(dtype=torch.long) for _ in range(3))
        self._seed, self._top_k = (zeros(dtype=torch.long) for _ in range(2))
        self._temperature, self._top_p = zeros(dtype=torch.float32), zeros(dtype=torch.float64)
        draws_in_one_kernel(self.device)  # cached now: the check synchronises, which a graph capture does not allow
        self._graphs: dict[tuple[int, Draw], _Captured] = {}
        self._pool: Any = None
        self._version = -1

    def prefill(
        self, spans: list[Span], token_ids: list[int], joining: Mapping[int, SamplingParams], draw: Draw
    ) -> Drawn | None:
        """Prefill chunks of contexts; the slots in `joining`, complete after this pass, sample their first token."""
        where = PrefillPass(self.storage, spans, self.device)
        last = [span for span in spans if span.slot in joining]
        ends = [span.offset + span.length - 1 for span in last]
        wanted = torch.tensor(ends, dtype=torch.long, device=self.device)
        ids = torch.from_numpy(np.array(token_ids, dtype=np.int64)).to(self.device)  # 5x faster than from a list
        with torch.no_grad():
            logits = self.forward(where, ids, where.positions, wanted)
            if not joining:
                return None
            return Drawn(self._draw(logits, self._set_up(last, list(joining.values())), draw))

    def decode(self, slots: Sequence[int], draw: Draw) -> Drawn:
        """Sample one more token for each of these slots."""
        if not self._captures:
            with torch.no_grad():
                return Drawn(self._step(torch.tensor(slots, device=self.device), draw))
        captured = self._captured(_rounded(len(slots)), draw)
        padded = [*slots, *[self.padding] * (len(captured.slots) - len(slots))]
        captured.slots.copy_(torch.tensor(padded).pin_memory(), non_blocking=True)
        captured.graph.replay()
        return Drawn(captured.output[:, : len(slots)].contiguous())

    # ------------------------------------------------------------------------------------------------------ one step

    def _step(self, slots: Tensor, draw: Draw) -> Tensor:
        positions = self._length[slots]
        where = DecodePass(self.storage, slots, positions)
        drawn = self._draw(self.forward(where, self._last_token[slots], positions, None), slots, draw)
        self._length[slots] = positions + 1
        self._length[self.padding :].zero_()
        return drawn

    def _draw(self, logits: Tensor, slots: Tensor, draw: Draw) -> Tensor:
        """Sample a token for each slot and store it for the next step; returns `(2, slots)`: tokens and log-probs."""
        index = self._num_drawn[slots]
        numbers, temperatures = uniforms(self._seed[slots], index), self._temperature[slots]
        if draw == "plain" and draws_in_one_kernel(self.device):
            from quaere.policies.native import fused

            tokens, logprobs = fused.draw_tokens(logits, temperatures, numbers)
        else:
            cuts = self._top_k[slots], self._top_p[slots]
            tokens, logprobs = pick_tokens(logits.float(), draw, temperatures, *cuts, numbers)
        self._last_token[slots] = tokens
        self._num_drawn[slots] = index + 1
        return torch.stack([tokens.double(), logprobs.double()])

    def _set_up(self, spans: list[Span], params: list[SamplingParams]) -> Tensor:
        """Store length and sampling parameters of slots whose contexts end with these spans; returns the slots."""
        rows = zip(spans, params, strict=True)
        whole = [(span.slot, span.start + span.length, signed(row.seed), row.top_k) for span, row in rows]
        slots, lengths, seeds, top_k = torch.tensor(whole, device=self.device).T
        fractions = [(row.temperature, row.top_p) for row in params]
        temperatures, top_p = torch.tensor(fractions, dtype=torch.float64, device=self.device).T
        self._length[slots], self._seed[slots], self._top_k[slots] = lengths, seeds, top_k
        self._temperature[slots], self._top_p[slots] = temperatures.float(), top_p
        self._num_drawn[slots] = 0
        return slots

    # ------------------------------------------------------------------------------------------------------- capture

    def _captured(self, size: int, draw: Draw) -> _Captured:
        if self._version != self.storage.version:  # the KV cache was reallocated, so graphs hold old addresses
            self._graphs.clear()
            self._pool = None  # the memory pool was freed with the last graph
            self._version = self.storage.version
        if (size, draw) not in self._graphs:
            self._graphs[size, draw] = self._capture(size, draw)
        return self._graphs[size, draw]

    def _capture(self, size: int, draw: Draw) -> _Captured:
        slots = torch.full((size,), self.padding, device=self.device)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.no_grad(), torch.cuda.stream(stream):
            self._step(slots, draw)  # compiles kernels and allocates workspaces; only the padding slot is changed
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with (
            torch.no_grad(),
            torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"),
        ):
            output = self._step(slots, draw)
        return _Captured(graph, slots, output)


@cache
def draws_in_one_kernel(device: torch.device) -> bool:
    """True if the fused sampling kernel works on this device and samples the same tokens as `pick_tokens`."""
    if not has_kernels(device):
        return False
    from quaere.policies.native import fused

    make = torch.Generator().manual_seed(0)
    logits = (4 * torch.randn(64, 5000, generator=make)).to(device)
    numbers = torch.rand(64, generator=make, dtype=torch.float64).to(device)
    temperatures = torch.linspace(0.3, 2, 64).to(device)
    nothing = torch.zeros(64, dtype=torch.long, device=device)
    expected = pick_tokens(logits, "plain", temperatures, nothing, nothing, numbers)
    try:
        found = fused.draw_tokens(logits, temperatures, numbers)
    except Exception:  # any error of Triton's compiler
        return False
    # A random number may fall between two tokens, where the last bit of a sum decides: a few may differ.
    same = found[0] == expected[0]
    return bool(same.sum() >= 62) and torch.allclose(found[1][same], expected[1][same], atol=1e-4)


def _rounded(size: int) -> int:
    """Batch size of the captured graph for this many rows: 1, 2, 4, 8, 16, 24, 32, 48, 64, 96, ...

    _rounded(17) == 24
    """
    power = 1 << (size - 1).bit_length()
    middle = power // 4 * 3
    return middle if 8 < size <= middle else power


# ----------------------------------------------------------------------------------------------------- logits to tokens

_STRIDE, _STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB

_BLOCK = 256  # tokens of the vocabulary

Draw = Literal["greedy", "plain", "cut"]


def uniforms(seeds: Tensor, indices: Tensor) -> Tensor:
    """One float64 number in [0, 1) per int64 seed and index; arithmetic wraps at 64 bits."""
    state = seeds * signed(_STRIDE) + (indices + 1) * signed(_STEP)
    for _ in range(2):
        state = state + signed(_STRIDE)
        state = (state ^ _shifted(state, 30)) * signed(_FIRST)
        state = (state ^ _shifted(state, 27)) * signed(_SECOND)
        state = state ^ _shifted(state, 31)
    return _shifted(state, 11).double() / (1 << 53)


def _shifted(state: Tensor, bits: int) -> Tensor:
    """Logical shift right: zeros are shifted in, as for an unsigned number."""
    return (state >> bits) & ((1 << (64 - bits)) - 1)


def how_to_draw(params: Sequence[SamplingParams]) -> Draw:
    """The cheapest sampling method that serves all these rows: `cut` (top-k and top-p) serves any."""
    if all(param.temperature == 0 for param in params):
        return "greedy"
    plain = all(param.temperature > 0 and param.top_k == 0 and param.top_p >= 1 for param in params)
    return "plain" if plain else "cut"


def pick_tokens(
    logits: Tensor, draw: Draw, temperatures: Tensor, top_k: Tensor, top_p: Tensor, numbers: Tensor
) -> tuple[Tensor, Tensor]:
    """One token per row of float32 `logits`, and its log-prob at temperature 1 without top-k and top-p.

    Logits [[0.0, 2.0]] at temperature 0 give token 1 with log-prob -0.126928...
    """
    if draw == "greedy":
        tokens = logits.argmax(dim=-1)
    else:
        # A temperature below 1e-6 would overflow, and picks the best token anyway.
        scaled = logits / temperatures.clamp(min=1e-6)[:, None]
        if draw == "cut":
            scaled = _cut(scaled, top_k, top_p)
        tokens = _invert(scaled, numbers)
        if draw == "cut":
            tokens = torch.where(temperatures > 0, tokens, logits.argmax(dim=-1))
    return tokens, logits.gather(1, tokens[:, None])[:, 0] - logits.logsumexp(-1)


def _cut(logits: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """The logits after top-k, then top-p, per row; the most probable token always stays."""
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    ranks = torch.arange(logits.shape[1], device=logits.device)
    kept = torch.where(top_k > 0, top_k, logits.shape[1])
    ordered = ordered.masked_fill(ranks >= kept[:, None], float("-inf"))
    mass = ordered.double().softmax(-1).cumsum(-1)
    # A token is removed if the tokens before it already reach the mass top_p.
    gone = torch.zeros_like(mass, dtype=torch.bool)
    gone[:, 1:] = mass[:, :-1] >= top_p[:, None]
    ordered = ordered.masked_fill(gone & (top_p < 1)[:, None], float("-inf"))
    return torch.full_like(logits, float("-inf")).scatter(1, order, ordered)


def _invert(logits: Tensor, numbers: Tensor) -> Tensor:
    """Invert the cumulative distribution at one uniform number per row.

    The block of the vocabulary is found first, then the token in it: both sums are in float64, without a float64 copy
    of all probabilities.
    """
    rows, size = logits.shape
    blocks = -(-size // _BLOCK)
    weights = torch.nn.functional.pad(logits.softmax(-1), (0, blocks * _BLOCK - size)).view(rows, blocks, _BLOCK)
    before = weights.sum(-1, dtype=torch.float64).cumsum(-1)
    targets = numbers[:, None] * before[:, -1:]
    block = torch.searchsorted(before, targets, right=True).clamp(max=blocks - 1)
    rest = targets - torch.where(block > 0, before.gather(1, (block - 1).clamp(min=0)), 0.0)
    within = weights.gather(1, block[:, :, None].expand(-1, -1, _BLOCK))[:, 0].double().cumsum(-1)
    place = torch.searchsorted(within, rest, right=True)
    # Rounding may push a number past the last token with a non-zero probability.
    last = (within < within[:, -1:]).sum(-1, keepdim=True)
    return (block * _BLOCK + torch.minimum(place, last))[:, 0]
