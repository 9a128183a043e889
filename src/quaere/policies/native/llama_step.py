"""The forward pass of Llama and its kin with few, large operations, for sampling on a CPU.

One token of a small model takes some three thousand operations of a few microseconds each in transformers' modules,
more time than the matrix products. Here a layer takes about thirty: query, key and value are one product, and so are
gate and up; queries and keys are rotated together; a norm of one row is two operations.

    step = LlamaStep(parts, in_int8=False)                    # parts: bridge.read_llama(model)
    logits_TV = step.forward(where, token_ids_T, positions_T)

Weights are those of the model, in place: the joined ones become views of one matrix, so new weights copied into the
model need only `prepare`.

Legend: T tokens, W width, H heads (of queries, then of keys), D size of a head, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Linear
from torch.nn.functional import embedding, rms_norm, silu

from quaere.policies.native.attention import Pass
from quaere.policies.native.attention_spec import Kind
from quaere.policies.native.cpu_matmul import multiply
from quaere.policies.native.merge import join_rows
from quaere.policies.native.packed import Packed, pack


class Norm(NamedTuple):
    """An RMS norm.

    Norm(weight=tensor of (576,), epsilon=1e-5)
    """

    weight: Tensor
    epsilon: float


class LayerParts(NamedTuple):
    """A decoder layer; `head_norms` are those of queries and keys, if it has them.

    LayerParts(norm, [q_proj, k_proj, v_proj], None, o_proj, norm, [gate_proj, up_proj], down_proj, Kind(0.125))
    """

    attention_norm: Norm
    query_key_value: Sequence[Linear]
    head_norms: tuple[Norm, Norm] | None
    attention_output: Linear
    mlp_norm: Norm
    gate_up: Sequence[Linear]
    down: Linear
    kind: Kind


class LlamaParts(NamedTuple):
    """A whole model. `angles` returns cosines and sines, `(1, T, D)`, of positions `(1, T)` for states of a dtype.

    LlamaParts(embedding, layers, norm, head, angles, num_heads=9, num_key_heads=3, head_dim=64)
    """

    embedding: Tensor
    layers: Sequence[LayerParts]
    norm: Norm
    head: Linear
    angles: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    num_heads: int
    num_key_heads: int
    head_dim: int


class _Product:
    """The product with the weights of one linear layer, or of several that have the same input."""

    def __init__(self, layers: Sequence[Linear]) -> None:
        biases = [layer.bias for layer in layers if layer.bias is not None]
        self.weight = layers[0].weight.detach() if len(layers) == 1 else join_rows([layer.weight for layer in layers])
        self.bias = join_rows(biases) if biases else None
        self.packed: Packed | None = None

    def __call__(self, states: Tensor) -> Tensor:
        return multiply(states, self.weight, self.bias, self.packed)


class _Layer:
    """A decoder layer with joined products."""

    def __init__(self, parts: LayerParts) -> None:
        self.attention_norm, self.mlp_norm, self.kind = parts.attention_norm, parts.mlp_norm, parts.kind
        self.query_key_value, self.attention_output = _Product(parts.query_key_value), _Product([parts.attention_output])
        self.gate_up, self.down = _Product(parts.gate_up), _Product([parts.down])
        self.products = (self.query_key_value, self.attention_output, self.gate_up, self.down)
        self.head_norms = parts.head_norms


class LlamaStep:
    """A model as its products and norms. Call `prepare` after its weights have changed."""

    def __init__(self, parts: LlamaParts, *, in_int8: bool) -> None:
        self.parts = parts
        self.in_int8 = in_int8
        self._layers = [_Layer(layer) for layer in parts.layers]
        self._head = _Product([parts.head])
        half = parts.head_dim // 2
        self._sections = (parts.num_heads + parts.num_key_heads, parts.num_key_heads)
        self._swapped = torch.arange(parts.head_dim).roll(half)  # exchanges the halves of a head
        self._signs = torch.ones(parts.head_dim)
        self._signs[:half] = -1
        self.prepare()

    def prepare(self) -> None:
        """Pack the current weights if the model decodes in int8."""
        if self.in_int8:
            for product in [self._head, *(product for layer in self._layers for product in layer.products)]:
                product.packed = pack(product.weight)

    def forward(self, where: Pass, token_ids_T: Tensor, positions_T: Tensor, wanted: Tensor | None = None) -> Tensor:
        """Logits `(wanted, V)` of the wanted (or all) packed tokens; equals `bridge.forward` up to rounding."""
        states_TW = embedding(token_ids_T, self.parts.embedding)
        cosines, sines = self.parts.angles(states_TW, positions_T[None])
        angles = cosines[0, :, None], sines[0, :, None] * self._signs
        for number, layer in enumerate(self._layers):
            states_TW = states_TW + self._attend(layer, number, states_TW, where, angles)
            gate, up = layer.gate_up(_normed(states_TW, layer.mlp_norm)).chunk(2, -1)
            states_TW += layer.down(silu(gate).mul_(up))
        if wanted is not None:
            states_TW = states_TW[wanted]
        return self._head(_normed(states_TW, self.parts.norm))

    def _attend(self, layer: _Layer, number: int, states_TW: Tensor, where: Pass, angles: tuple[Tensor, Tensor]) -> Tensor:
        joined = layer.query_key_value(_normed(states_TW, layer.attention_norm))
        rotated_THD, value = joined.view(len(states_TW), -1, self.parts.head_dim).split(self._sections, 1)
        if layer.head_norms is not None:
            rotated_THD = self._norm_heads(rotated_THD, layer.head_norms)
        cosines, sines = angles
        rotated_THD = (rotated_THD * cosines).addcmul_(rotated_THD.index_select(2, self._swapped), sines)
        query, key = rotated_THD.split((self.parts.num_heads, self.parts.num_key_heads), 1)
        parts = (part[None].transpose(1, 2) for part in (query, key, value))
        attended = where.attend(number, *parts, layer.kind)
        return layer.attention_output(attended.reshape(len(states_TW), -1))

    def _norm_heads(self, heads_THD: Tensor, norms: tuple[Norm, Norm]) -> Tensor:
        parts = heads_THD.split((self.parts.num_heads, self.parts.num_key_heads), 1)
        return torch.cat([_normed(part, norm) for part, norm in zip(parts, norms, strict=True)], 1)


def _normed(states: Tensor, norm: Norm) -> Tensor:
    """The RMS norm over the last dimension."""
    width = states.shape[-1]
    if states.numel() != width:
        return rms_norm(states, (width,), norm.weight, norm.epsilon)
    row = states.view(-1)
    # torch's norm is four operations on a CPU; for one row this is two.
    scale = 1 / sqrt(torch.dot(row, row).item() / width + norm.epsilon)
    return torch.mul(row * scale, norm.weight).view(states.shape)
