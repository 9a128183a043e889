"""The plain path: transformers' own forward pass with its own cache, for models whose rows cannot be packed.

Convolutions, linear attention and state spaces carry a state from token to token, which packed rows would share. Here a
context is computed row by row. A decode step has one token per row: the caches of all rows are stacked, keys with
padding on the left, so that a state sees no padding. Caches stay stacked until other rows are decoded.

    storage = RowCaches()
    logits = PlainForward(model)(PrefillPass(storage, spans, device), token_ids, positions, wanted)

In training, rows are padded on the right (`padded_states`).

Shapes: B rows, T tokens of each, N packed tokens, W those of which logits are wanted, V vocabulary size, D hidden size.
"""

# ruff: noqa: N803, N806 (capitals are shapes)
import time
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from quaere.policies.native.attention import DecodePass, Packing, Pass, PrefillPass
from quaere.policies.native.bridge import cache_name, find_decoder, refuse_plain, refuse_unsupported, why_unpacked
from quaere.policies.native.kv_cache import Span
from quaere.policies.native.row_caches import RowCaches, can_stack, has_attention
from quaere.policies.native.weights import decodes_in_int8

PADDED_SHARE = 0.8  # rows are padded together if the shortest has this share of the longest's tokens


class PlainForward:
    """A `Forward` by the model's own code. The storage of its passes is a `RowCaches`.

    Before use it is compared with the model without a cache. If results differ or it fails, rows are decoded one by one
    (not in `stacks`), or tokens that continue a cache are fed one by one (not in `chunks`: Mamba 1), or both; if they
    still differ, the model is refused. `speed` is the number of tokens per second that one row decoded.
    """

    def __init__(self, model: Any) -> None:
        refuse_unsupported(model)
        self.model = model
        self.speed = 0.0
        for self.stacks, self.chunks in ((True, True), (False, True), (True, False), (False, False)):
            try:
                if self._agrees():
                    return
            except RuntimeError:  # transformers 5.22 cannot decode several rows of a Falcon-H1 with `mamba_rms_norm`
                if not self.stacks:
                    raise
        refuse_plain(model, f"has {why_unpacked(model)}, and computes something else with its cache than without")

    @property
    def note(self) -> str:
        """Which path was chosen, why and how fast it is, in one line."""
        rows = "rows decoded together" if self.stacks else "rows one by one"
        rows += "" if self.chunks else ", contexts continued token by token"
        kind = self.model.config.get_text_config().model_type
        return f"{kind} has {why_unpacked(self.model)}: plain path, {rows}, {self.speed:.0f} tokens a second per row"

    def __call__(self, where: Pass, token_ids_N: Tensor, positions_N: Tensor, wanted_W: Tensor | None) -> Tensor:
        """Logits `(W, V)` of the wanted (or all) tokens."""
        storage = where.storage
        assert isinstance(storage, RowCaches)
        if isinstance(where, PrefillPass):
            assert wanted_W is not None
            return self._prefill(storage, where.spans, token_ids_N, wanted_W)
        return self._decode(storage, where.slots.tolist(), token_ids_N, positions_N)

    def _prefill(self, storage: RowCaches, spans: list[Span], token_ids_N: Tensor, wanted_W: Tensor) -> Tensor:
        """Compute the contexts row by row; rows that begin with the same context in this pass share one computation."""
        found: list[Tensor] = []
        known: dict[bytes, tuple[Tensor, Any]] = {}
        for span in spans:
            own = token_ids_N[span.offset : span.offset + span.length]
            wanted = wanted_W[(wanted_W >= span.offset) & (wanted_W < span.offset + span.length)] - span.offset
            key = own.cpu().numpy().tobytes() + b"/" + wanted.cpu().numpy().tobytes() if span.start == 0 else b""
            if key in known:
                logits, cache = known[key][0], deepcopy(known[key][1])
            elif span.start:
                logits, cache = self._continue(own[None], storage.get(span.slot), wanted)
            else:
                logits, cache = self._run(own[None], None, wanted)
            if key:
                known[key] = logits, cache
            storage.put(span.slot, cache)
            found.append(logits[0])
        return torch.cat(found)

    def _continue(self, token_ids_1T: Tensor, cache: Any, wanted: Tensor) -> tuple[Tensor, Any]:
        if self.chunks:
            return self._run(token_ids_1T, cache, wanted)
        newest = torch.zeros(1, dtype=torch.long, device=wanted.device)
        steps = [self._run(token_ids_1T[:, [place]], cache, newest)[0] for place in range(token_ids_1T.shape[1])]
        return torch.cat(steps, 1)[:, wanted], cache

    def _decode(self, storage: RowCaches, slots: list[int], token_ids_B: Tensor, positions_B: Tensor) -> Tensor:
        newest = torch.zeros(1, dtype=torch.long, device=token_ids_B.device)
        if len(slots) == 1 or not self.stacks:
            rows = zip(slots, token_ids_B, strict=True)
            return torch.cat([self._run(token[None, None], storage.get(slot), newest)[0][0] for slot, token in rows])
        stack = storage.stack(slots, positions_B.tolist())
        options = {}
        if any(stack.num_padded) and has_attention(stack.cache):
            padded_B = torch.tensor(stack.num_padded, device=positions_B.device)
            columns = torch.arange(int((padded_B + positions_B)[0]) + 1, device=positions_B.device)
            options = {"attention_mask": (columns >= padded_B[:, None]).long(), "position_ids": positions_B[:, None]}
        return self._run(token_ids_B[:, None], stack.cache, newest, **options)[0][:, 0]

    def _run(self, token_ids_BT: Tensor, cache: Any, wanted: Tensor, **options: Any) -> tuple[Tensor, Any]:
        """Logits of the wanted tokens that continue a cache (None: a new one), and the cache with them."""
        name = cache_name(self.model)
        options |= {name: cache, "use_cache": True, "logits_to_keep": wanted}
        output = self.model(input_ids=token_ids_BT, **options)
        if getattr(output, name, None) is None:
            refuse_plain(self.model, f"has {why_unpacked(self.model)}, and its forward pass returns no cache")
        return output.logits, getattr(output, name)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _agrees(self) -> bool:
        """True if two rows of different lengths give the same logits with their caches as without; sets `speed`."""
        device = next(self.model.parameters()).device
        whole = torch.arange(1, 13, device=device) % self.model.config.get_text_config().vocab_size
        storage, lengths, found = RowCaches(), [9, 5], []
        ids, none = torch.cat([whole[:4], whole[:5]]), whole[:0]
        self(PrefillPass(storage, [Span(0, 0, 4, 0), Span(1, 0, 5, 4)], device), ids, ids, none)
        self.stacks = self.stacks and can_stack(storage.get(0))
        rest = PrefillPass(storage, [Span(0, 4, 5, 0)], device)
        continued = self(rest, whole[4:9], rest.positions, torch.arange(5, device=device))
        for step in range(3):
            places = torch.tensor(lengths, device=device) + step
            found.append(self(DecodePass(storage, torch.arange(2, device=device), places), whole[places], places, None))
        expected = self.model(input_ids=whole[None], use_cache=False).logits[0].float()
        started = time.perf_counter()
        for place in range(3):
            self._run(whole[place, None, None], storage.get(0), none)
        self.speed = 3 / (time.perf_counter() - started)
        rows = torch.cat([continued, *torch.stack(found, 1)]).float()  # two rows of three tokens each
        theirs = torch.cat([expected[4:9], *(expected[length : length + 3] for length in lengths)])
        is_exact = next(self.model.parameters()).dtype == torch.float32 and not decodes_in_int8(self.model)
        tolerance = 3e-4 if is_exact else 0.1
        return bool((rows - theirs).norm() <= tolerance * theirs.norm())


def padded_states(model: Any, token_ids_N: Tensor, packing: Packing) -> Tensor:
    """Last hidden states `(N, D)` of packed sequences, with gradients, as rows that are padded on the right.

    All layers are causal, so tokens after a row's last change nothing before it. Rows of similar length are computed
    together.
    """
    if not packing.is_plain:
        raise ValueError("sequences that share a prefix can only be packed")
    rows = token_ids_N.split(packing.lengths)
    groups: list[list[int]] = []
    for number in sorted(range(len(rows)), key=lambda number: -len(rows[number])):
        if groups and len(rows[number]) >= PADDED_SHARE * len(rows[groups[-1][0]]):
            groups[-1].append(number)
        else:
            groups.append([number])
    states: dict[int, Tensor] = {}
    for group in groups:
        padded_BT = pad_sequence([rows[number] for number in group], batch_first=True)
        found_BTD = find_decoder(model)(input_ids=padded_BT, use_cache=False).last_hidden_state
        states |= {number: found_BTD[place, : len(rows[number])] for place, number in enumerate(group)}
    return torch.cat([states[number] for number in range(len(rows))])
