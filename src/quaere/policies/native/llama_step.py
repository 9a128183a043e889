"""The forward pass of Llama and its kin with few, large operations, for sampling on a CPU.

One token of a small model takes some three thousand operations of a few microseconds each in transformers' modules,
more time than the matrix products. Here a layer takes a third of that: query, key and value are one product, and so
are gate and up, and queries and keys are rotated together. A single row is decoded by `one_token`.

    step = LlamaStep(parts, in_int8=False)                    # parts: bridge.read_llama(model)
    logits_TV = step.forward(where, token_ids_T, positions_T)

Legend: T tokens, W width, H heads (of queries, then of keys), D size of a head, V vocabulary.
"""

# ruff: noqa: N803, N806 (capitals are shapes)
from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import embedding, rms_norm, silu

from quaere.policies.native.attention import DecodePass, Pass
from quaere.policies.native.llama_parts import Layer, LlamaParts, Norm, Product
from quaere.policies.native.one_token import OneToken


class LlamaStep:
    """A model as its products and norms. Call `prepare` after its weights have changed."""

    def __init__(self, parts: LlamaParts, *, in_int8: bool) -> None:
        self.parts = parts
        self.in_int8 = in_int8
        self.layers = [Layer(layer) for layer in parts.layers]
        self.head = Product([parts.head])
        self._sections = (parts.num_heads + parts.num_key_heads, parts.num_key_heads)
        half = parts.head_dim // 2
        self._exchange = torch.arange(parts.head_dim).roll(half)  # exchanges the halves of a head
        self._signs = torch.ones(parts.head_dim)
        self._signs[:half] = -1
        self.prepare()

    def prepare(self) -> None:
        """Use the current weights: they are packed if the model decodes in int8."""
        if self.in_int8:
            for product in [self.head, *(product for layer in self.layers for product in layer.products)]:
                product.pack()
        self.one_token = OneToken(self.parts, self.layers, self.head)

    def forward(self, where: Pass, token_ids_T: Tensor, positions_T: Tensor, wanted: Tensor | None = None) -> Tensor:
        """Logits `(wanted, V)` of the wanted (or all) packed tokens; equals `bridge.forward` up to rounding."""
        if isinstance(where, DecodePass) and len(token_ids_T) == 1:
            slot, position, token = int(where.slots), int(positions_T), int(token_ids_T)
            return self.one_token.logits(where.storage, slot, position, token)
        states_TW = embedding(token_ids_T, self.parts.embedding)
        cosines, sines = self.parts.angles(states_TW, positions_T[None])
        angles = cosines[0, :, None], sines[0, :, None] * self._signs
        for number, layer in enumerate(self.layers):
            states_TW = states_TW + self._attend(layer, number, states_TW, where, angles)
            gate, up = layer.gate_up(_normed(states_TW, layer.mlp_norm)).chunk(2, -1)
            states_TW += layer.down(silu(gate).mul_(up))
        if wanted is not None:
            states_TW = states_TW[wanted]
        return self.head(_normed(states_TW, self.parts.norm))

    def _attend(
        self, layer: Layer, number: int, states_TW: Tensor, where: Pass, angles: tuple[Tensor, Tensor]
    ) -> Tensor:
        joined = layer.query_key_value(_normed(states_TW, layer.attention_norm))
        turned_THD, value = joined.view(len(states_TW), -1, self.parts.head_dim).split(self._sections, 1)
        if layer.head_norms is not None:
            turned_THD = self._norm_heads(turned_THD, layer.head_norms)
        cosines, sines = angles
        turned_THD = (turned_THD * cosines).addcmul_(turned_THD.index_select(2, self._exchange), sines)
        query, key = turned_THD.split((self.parts.num_heads, self.parts.num_key_heads), 1)
        query, key, value = (heads.transpose(0, 1)[None] for heads in (query, key, value))
        attended = where.attend(number, query, key, value, layer.kind)
        return layer.attention_output(attended.reshape(len(states_TW), -1))

    def _norm_heads(self, heads_THD: Tensor, norms: tuple[Norm, Norm]) -> Tensor:
        sections = heads_THD.split((self.parts.num_heads, self.parts.num_key_heads), 1)
        return torch.cat([_normed(heads, norm) for heads, norm in zip(sections, norms, strict=True)], 1)


def _normed(states: Tensor, norm: Norm) -> Tensor:
    return rms_norm(states, norm.weight.shape, norm.weight, norm.epsilon)
