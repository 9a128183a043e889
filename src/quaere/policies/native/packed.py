"""Weights of linear layers in eight bits, for products of few rows on a CPU.

A decode step of few rows is bound by reading all weights once, so a quarter of the bytes takes a fraction of the time.
torch ships two suitable products; `pack` chooses the one for this processor:

- `Halves`: KleidiAI's product of 4-bit weights in groups of 32 with dynamically quantised states, on aarch64. A byte is
  stored as two weights of 4 bits, `16 * high + low`.
- `Bytes`: int8 weights with one scale per row and bfloat16 states, on other processors.

    packed = pack(layer.weight)
    packed.product(states_TI)             # about states_TI @ layer.weight.T, for float32 states

Legend: T tokens, I inputs, O outputs, G groups of inputs.
"""

# ruff: noqa: N803, N806 (capitals are shapes)
from __future__ import annotations

import platform
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

GROUP = 32  # inputs with one scale; the size of KleidiAI's kernels
_multiply_4bit = torch.ops.aten._dyn_quant_matmul_4bit.default
_LOW, _HIGH = -136, 119  # 16 * high + low with halves from -8 to 7


class Bytes(NamedTuple):
    """An int8 weight: `values[row] * scales[row]` approximates the row.

    Bytes(values=int8 (O, I), scales=bfloat16 (O,))
    """

    values: Tensor
    scales: Tensor

    @property
    def copies(self) -> int:
        """How often `repeated_product` wants the states in a row."""
        return 1

    def product(self, states_TI: Tensor) -> Tensor:
        """`states @ weight.T`, computed in bfloat16."""
        return torch._weight_int8pack_mm(states_TI.bfloat16(), self.values, self.scales).to(states_TI.dtype)

    def repeated_product(self, states_TI: Tensor) -> Tensor:
        """As `product`: the states are needed once."""
        return self.product(states_TI)


class Halves(NamedTuple):
    """A weight as two 4-bit halves side by side, `(O, 2 * I)`: the high halves, scaled by 16, and the low ones.

    Halves(content=uint8 in KleidiAI's own order, num_inputs=2 * 576, num_outputs=1536)
    """

    content: Tensor
    num_inputs: int
    num_outputs: int

    @property
    def copies(self) -> int:
        """How often `repeated_product` wants the states in a row."""
        return 2

    def product(self, states_TI: Tensor) -> Tensor:
        """`states @ weight.T`; each row of states is rounded to eight bits."""
        return self.repeated_product(torch.cat((states_TI, states_TI), 1))

    def repeated_product(self, states_TI: Tensor) -> Tensor:
        """As `product` for states that stand in each row twice: one half of the weight is multiplied by each."""
        return _multiply_4bit(states_TI, self.content, GROUP, self.num_inputs, self.num_outputs)


Packed = Bytes | Halves


def pack(weight: Tensor) -> Packed:
    """The weight `(O, I)` in the form with the fastest product on this processor."""
    if has_halves() and weight.shape[1] % GROUP == 0:
        return pack_halves(weight)
    return pack_bytes(weight)


@cache
def has_halves() -> bool:
    """True if torch has KleidiAI's kernels here; elsewhere the same operation exists and is slow."""
    return platform.machine() in ("aarch64", "arm64") and torch.backends.kleidiai.is_available()


def pack_bytes(weight: Tensor) -> Bytes:
    """The weight as int8 values from -127 to 127 with one scale per row.

    pack_bytes(torch.tensor([[0.5, -1.27]])) -> Bytes(values=[[50, -127]], scales=[0.01])
    """
    # The scale is rounded to bfloat16 first, so that the values are computed with the scale that is used later.
    scales = (weight.abs().amax(dim=1).clamp(min=1e-12) / 127).bfloat16()
    values = (weight / scales.float()[:, None]).round().clamp(-127, 127).to(torch.int8)
    return Bytes(values, scales)


def pack_halves(weight: Tensor) -> Halves:
    """The weight in groups of 32 inputs, each with a scale, as 4-bit halves in the order that KleidiAI reads."""
    num_outputs, num_inputs = weight.shape
    values_OI, scales_OG = split_groups(weight)
    high = (values_OI + 8) >> 4  # rounds down, so that the rest is from -8 to 7
    halves = torch.cat([high, values_OI - (high << 4)], dim=1) + 8  # stored without sign
    scales = torch.cat([16 * scales_OG, scales_OG], dim=1)
    neighbours = halves.view(torch.int16)  # two at a time: slices of every other one take twice as long
    pairs = (neighbours >> 4 | neighbours).to(torch.uint8)
    content = torch.ops.aten._dyn_quant_pack_4bit_weight(pairs, scales, None, GROUP, 2 * num_inputs, num_outputs)
    return Halves(content, 2 * num_inputs, num_outputs)


def split_groups(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Integers `(O, I)` from -119 to 119 and bfloat16 scales `(O, G)` whose products approximate the weight."""
    grouped_OGI = weight.float().unflatten(1, (-1, GROUP))
    scales_OG = (grouped_OGI.abs().amax(dim=2).clamp(min=1e-12) / _HIGH).bfloat16()
    values = (grouped_OGI / scales_OG.float()[:, :, None]).round_().clamp_(_LOW, _HIGH)
    return values.flatten(1).to(torch.int8), scales_OG
