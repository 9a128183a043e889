"""The forward pass of Llama and its kin with few, large operations, for sampling on a CPU.

One token of a small model takes some three thousand operations of a few microseconds each in transformers' modules,
more time than the matrix products. Here a layer takes a third of that: query, key and value are one product, and so
are gate and up, and queries and keys are rotated together.

    step = LlamaStep(parts, in_int8=False)                    # parts: bridge.read_llama(model)
    logits_TV = step.forward(where, token_ids_T, positions_T)

The weights of a joined product become views of one matrix, so that new weights copied into the model reach it.

A single row is decoded by `OneToken`, written for the cost of a call rather than of arithmetic: calling an operation of
torch takes about as long as its arithmetic there, and a view takes as long as a norm. So states are in buffers whose
views are made once, values are rotated along with queries and keys (by an angle of 0), and what a product needs twice
(`weights.Halves`) is written twice by the operation before it.

Legend: T tokens, W width, H heads (of queries, then of keys; in `OneToken` of values too), D size of a head,
V vocabulary, C copies of the states.
"""

# ruff: noqa: N803, N806 (capitals are shapes)
from collections.abc import Callable, Sequence
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Linear
from torch.nn.functional import embedding, linear, rms_norm, scaled_dot_product_attention, silu

from quaere.policies.native.attention import DecodePass, Kind, Pass
from quaere.policies.native.kv_cache import KVStorage
from quaere.policies.native.weights import Packed, join_rows, multiply, pack

# ------------------------------------------------------------------------------------------------- the parts of a model


class Norm(NamedTuple):
    """An RMS norm.

    Norm(weight=tensor of (576,), epsilon=1e-5)
    """

    weight: Tensor
    epsilon: float


class Product:
    """The product with the weights of one linear layer, or of several that have the same input."""

    def __init__(self, layers: Sequence[Linear]) -> None:
        # Tied to the embedding, the weight of a single layer stays where it is.
        is_single, biases = len(layers) == 1, [layer.bias for layer in layers if layer.bias is not None]
        self.weight = layers[0].weight.detach() if is_single else join_rows([layer.weight for layer in layers])
        self.bias = join_rows(biases) if biases else None
        self.packed: Packed | None = None  # the current weight in int8, for products of few rows

    def __call__(self, states: Tensor) -> Tensor:
        """The product with any number of rows."""
        return multiply(states, self.weight, self.bias, self.packed)

    @property
    def copies(self) -> int:
        """How many times the input of `one_row` must repeat the states."""
        return self.packed.copies if self.packed is not None else 1

    def one_row(self, states: Tensor) -> Tensor:
        """The product with a single row of states, which the input repeats `copies` times."""
        if self.packed is None:
            return linear(states, self.weight, self.bias)
        product = self.packed.repeated_product(states)
        return product if self.bias is None else product.add_(self.bias)


class Layer(NamedTuple):
    """A decoder layer with joined products; `head_norms` are those of queries and keys, if it has them.

    Layer(norm, Product([q_proj, k_proj, v_proj]), None, Product([o_proj]), norm, Product([gate_proj, up_proj]),
          Product([down_proj]), Kind(0.125))
    """

    attention_norm: Norm
    query_key_value: Product
    head_norms: tuple[Norm, Norm] | None
    attention_output: Product
    mlp_norm: Norm
    gate_up: Product
    down: Product
    kind: Kind


class LlamaParts(NamedTuple):
    """A whole model. `angles` returns cosines and sines, `(1, T, D)`, of positions `(1, T)` for states of a dtype.

    LlamaParts(embedding, layers, norm, head, angles, num_heads=9, num_key_heads=3, head_dim=64)
    """

    embedding: Tensor
    layers: Sequence[Layer]
    norm: Norm
    head: Product
    angles: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    num_heads: int
    num_key_heads: int
    head_dim: int


# ------------------------------------------------------------------------------------------------- one token of one row


class _Input:
    """A buffer for the input of a product: `copies_CW` is the view to write to, `row` the same memory as one row."""

    def __init__(self, product: Product) -> None:
        self.copies_CW = torch.empty(product.copies, product.weight.shape[1])
        self.zeros_CW = torch.zeros_like(self.copies_CW)
        self.row = self.copies_CW.view(1, -1)


class OneToken:
    """Buffers and views for decode steps of one row. New ones are needed after the weights have changed."""

    def __init__(self, parts: LlamaParts) -> None:
        self.parts = parts
        heads, key_heads, head_dim = parts.num_heads, parts.num_key_heads, parts.head_dim
        self._states = torch.empty(1, parts.embedding.shape[1])
        self._flat_states = self._states.view(-1)
        first = parts.layers[0]
        self._normed, self._last = _Input(first.query_key_value), _Input(parts.head)
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
        for layer, (keys, values) in zip(self.parts.layers, self._slot_memory(storage, slot), strict=True):
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
        return self.parts.head.one_row(self._norm(self.parts.norm, self._last))

    def _norm(self, norm: Norm, out: _Input) -> Tensor:
        """Write the RMS norm of the states to a buffer; returns its row."""
        flat = self._flat_states
        scale = 1 / sqrt(torch.dot(flat, flat).item() / len(flat) + norm.epsilon)
        torch.addcmul(out.zeros_CW, flat, norm.weight, value=scale, out=out.copies_CW)
        return out.row

    def _rotate(self, layer: Layer, joined: Tensor) -> None:
        heads_HD = joined.view(self._rotated_HD.shape)
        if layer.head_norms is not None:
            rotated = heads_HD[: self._num_rotated].split((self.parts.num_heads, self.parts.num_key_heads))
            for heads, norm in zip(rotated, layer.head_norms, strict=True):
                heads.copy_(_normed(heads, norm))
        torch.index_select(heads_HD, 1, self._exchange, out=self._exchanged_HD)
        torch.mul(heads_HD, self._cosines_HD, out=self._rotated_HD)
        self._rotated_HD.addcmul_(self._exchanged_HD, self._sines_HD)

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
            layers = [storage.memory(number, *like) for number in range(len(self.parts.layers))]
            self._memory = [(keys[slot, None], values[slot, None]) for keys, values in layers]
            self._memory_of = key
        return self._memory


# --------------------------------------------------------------------------------------------------- any number of rows


class LlamaStep:
    """A model as its products and norms. Call `prepare` before the first pass, and after its weights have changed."""

    def __init__(self, parts: LlamaParts, *, in_int8: bool) -> None:
        self.parts = parts
        self.in_int8 = in_int8
        self._sections = (parts.num_heads + parts.num_key_heads, parts.num_key_heads)
        half = parts.head_dim // 2
        self._exchange = torch.arange(parts.head_dim).roll(half)  # exchanges the halves of a head
        self._signs = torch.ones(parts.head_dim)
        self._signs[:half] = -1

    def prepare(self) -> None:
        """Make new buffers for the current weights, and pack the weights if the model decodes in int8."""
        if self.in_int8:
            products = (part for layer in self.parts.layers for part in layer if isinstance(part, Product))
            for product in (self.parts.head, *products):
                product.packed = pack(product.weight)
        self.one_token = OneToken(self.parts)

    def forward(self, where: Pass, token_ids_T: Tensor, positions_T: Tensor, wanted: Tensor | None = None) -> Tensor:
        """Logits `(wanted, V)` of the wanted (or all) packed tokens; equals `bridge.forward` up to rounding."""
        if isinstance(where, DecodePass) and len(token_ids_T) == 1:
            slot, position, token = int(where.slots), int(positions_T), int(token_ids_T)
            return self.one_token.logits(where.storage, slot, position, token)
        states_TW = embedding(token_ids_T, self.parts.embedding)
        cosines, sines = self.parts.angles(states_TW, positions_T[None])
        angles = cosines[0, :, None], sines[0, :, None] * self._signs
        for number, layer in enumerate(self.parts.layers):
            states_TW = states_TW + self._attend(layer, number, states_TW, where, angles)
            gate, up = layer.gate_up(_normed(states_TW, layer.mlp_norm)).chunk(2, -1)
            states_TW += layer.down(silu(gate).mul_(up))
        if wanted is not None:
            states_TW = states_TW[wanted]
        return self.parts.head(_normed(states_TW, self.parts.norm))

    def _attend(
        self, layer: Layer, number: int, states_TW: Tensor, where: Pass, angles: tuple[Tensor, Tensor]
    ) -> Tensor:
        joined = layer.query_key_value(_normed(states_TW, layer.attention_norm))
        turned_THD, value = joined.view(len(states_TW), -1, self.parts.head_dim).split(self._sections, 1)
        sizes = (self.parts.num_heads, self.parts.num_key_heads)
        if layer.head_norms is not None:
            pairs = zip(turned_THD.split(sizes, 1), layer.head_norms, strict=True)
            turned_THD = torch.cat([_normed(heads, norm) for heads, norm in pairs], 1)
        cosines, sines = angles
        turned_THD = (turned_THD * cosines).addcmul_(turned_THD.index_select(2, self._exchange), sines)
        query, key = turned_THD.split(sizes, 1)
        query, key, value = (heads.transpose(0, 1)[None] for heads in (query, key, value))
        return layer.attention_output(where.attend(number, query, key, value, layer.kind).reshape(len(states_TW), -1))


def _normed(states: Tensor, norm: Norm) -> Tensor:
    return rms_norm(states, norm.weight.shape, norm.weight, norm.epsilon)
