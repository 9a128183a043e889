"""One token of one row through a Llama, written for the cost of a call rather than of arithmetic.

In a decode step of one row on a CPU, calling an operation of torch takes about as long as its arithmetic, and a view
takes as long as a norm. So states are in buffers whose views are made once, values are rotated along with queries and
keys (by an angle of 0), and what a product needs twice (`packed.Halves`) is written twice by the operation before it.

Legend: W width, H heads (of queries, keys and values), D size of a head, C copies of the states.
"""

# ruff: noqa: N803, N806 (capitals are shapes)
from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

from quaere.policies.native.llama_parts import Layer, LlamaParts, Norm, Product
from quaere.policies.native.storage import KVStorage


class _Input:
    """A buffer for the input of a product: `copies_CW` is what is written, `row` the same as one row."""

    def __init__(self, product: Product) -> None:
        self.copies_CW = torch.empty(product.copies, product.weight.shape[1])
        self.zeros_CW = torch.zeros_like(self.copies_CW)
        self.row = self.copies_CW.view(1, -1)


class OneToken:
    """Buffers and views for decode steps of one row. New ones are needed after the weights have changed."""

    def __init__(self, parts: LlamaParts, layers: Sequence[Layer], head: Product) -> None:
        self.parts, self.layers, self.head = parts, layers, head
        heads, key_heads, head_dim = parts.num_heads, parts.num_key_heads, parts.head_dim
        self._states = torch.empty(1, parts.embedding.shape[1])
        self._flat_states = self._states.view(-1)
        first = layers[0]
        self._normed, self._last = _Input(first.query_key_value), _Input(head)
        self._attended, self._gated = _Input(first.attention_output), _Input(first.down)
        self._attended_heads = self._attended.copies_CW.view(-1, heads, 1, head_dim)
        self._rotated_HD, self._exchanged_HD = torch.empty(2, heads + 2 * key_heads, head_dim)
        query, key, value = self._rotated_HD.split((heads, key_heads, key_heads))
        self._query, self._key, self._value = query[None, :, None], key[None], value[None]
        self._exchange = torch.arange(head_dim).roll(head_dim // 2)  # exchanges the halves of a head
        # Values are rotated by an angle of 0.
        self._cosines_HD, self._sines_HD = torch.ones_like(self._rotated_HD), torch.zeros_like(self._rotated_HD)
        self._num_rotated = heads + key_heads
        self._memory: list[tuple[Tensor, Tensor]] = []
        self._memory_of: tuple[KVStorage, int, int] | None = None

    def logits(self, storage: KVStorage, slot: int, position: int, token: int) -> Tensor:
        """Logits `(1, vocabulary)` after a token; its keys and values are written to the slot."""
        states = self._states
        states.copy_(self.parts.embedding[token])
        self._set_angles(position)
        for layer, (keys, values) in zip(self.layers, self._slot_memory(storage, slot), strict=True):
            self._rotate(layer, layer.query_key_value.one_row(self._norm(layer.attention_norm, self._normed)))
            keys.select(2, position).copy_(self._key)
            values.select(2, position).copy_(self._value)
            first = 0 if layer.kind.window is None else max(0, position + 1 - layer.kind.window)
            seen = position + 1 - first
            attended = scaled_dot_product_attention(
                self._query, keys.narrow(2, first, seen), values.narrow(2, first, seen),
                scale=layer.kind.scale, enable_gqa=True,
            )  # fmt: skip
            self._attended_heads.copy_(attended)
            states += layer.attention_output.one_row(self._attended.row)
            gate, up = layer.gate_up.one_row(self._norm(layer.mlp_norm, self._normed)).chunk(2, -1)
            torch.addcmul(self._gated.zeros_CW, silu(gate), up, out=self._gated.copies_CW)
            states += layer.down.one_row(self._gated.row)
        return self.head.one_row(self._norm(self.parts.norm, self._last))

    def _norm(self, norm: Norm, out: _Input) -> Tensor:
        """Write the RMS norm of the states to a buffer; returns its row."""
        flat = self._flat_states
        scale = 1 / sqrt(torch.dot(flat, flat).item() / len(flat) + norm.epsilon)
        torch.addcmul(out.zeros_CW, flat, norm.weight, value=scale, out=out.copies_CW)
        return out.row

    def _rotate(self, layer: Layer, joined: Tensor) -> None:
        heads_HD = joined.view(self._rotated_HD.shape)
        if layer.head_norms is not None:
            self._norm_heads(layer.head_norms, heads_HD)
        torch.index_select(heads_HD, 1, self._exchange, out=self._exchanged_HD)
        torch.mul(heads_HD, self._cosines_HD, out=self._rotated_HD)
        self._rotated_HD.addcmul_(self._exchanged_HD, self._sines_HD)

    def _norm_heads(self, norms: tuple[Norm, Norm], heads_HD: Tensor) -> None:
        sections = (self.parts.num_heads, self.parts.num_key_heads)
        for heads, norm in zip(heads_HD[: self._num_rotated].split(sections), norms, strict=True):
            heads.copy_(rms_norm(heads, norm.weight.shape, norm.weight, norm.epsilon))

    def _set_angles(self, position: int) -> None:
        cosines, sines = self.parts.angles(self._states, torch.tensor([[position]]))
        half = self.parts.head_dim // 2
        self._cosines_HD[: self._num_rotated] = cosines[0]
        self._sines_HD[: self._num_rotated] = sines[0]
        self._sines_HD[: self._num_rotated, :half].neg_()

    def _slot_memory(self, storage: KVStorage, slot: int) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of the slot, `(1, heads, capacity, D)`, per layer; the views are kept for the next token."""
        key = (storage, storage.version, slot)
        if self._memory_of != key:
            like = self._key[:, :, None], self._value[:, :, None]
            layers = [storage.memory(number, *like) for number in range(len(self.layers))]
            self._memory = [(keys[slot, None], values[slot, None]) for keys, values in layers]
            self._memory_of = key
        return self._memory
