"""Matrix products of linear layers for sampling on a CPU, and weights in eight bits for products of few rows.

Three optimisations: for few rows the product is computed transposed, small products avoid oneDNN, and with int8 weights
a decode step reads those. Prompts have many rows, where int8 gains nothing, and use the float weights.

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
import platform
from collections.abc import Sequence
from functools import cache, partial
from typing import Any, ClassVar

import torch
from msgspec import Struct
from torch import Tensor
from torch.nn import Linear
from torch.nn.functional import linear

SWAPPED_ROWS = range(4, 49)
# On ARM, PyTorch gives products of more than 8 rows to oneDNN, which takes longer to set one up than products of up to
# this many multiplications take.
SMALL = 2 << 20
DIRECT_ROWS = 8
INT8_ROWS = range(1, 7)  # with more rows, unpacking int8 costs more than it saves in reading
GROUP = 32  # inputs with one scale; the size of KleidiAI's kernels
_multiply_4bit = torch.ops.aten._dyn_quant_matmul_4bit.default
_LOW, _HIGH = -136, 119  # 16 * high + low with halves from -8 to 7

# ------------------------------------------------------------------------------------------------ weights in eight bits


class Bytes(Struct, frozen=True):
    """An int8 weight: `values[row] * scales[row]` approximates the row.

    Bytes(values=int8 (O, I), scales=bfloat16 (O,))
    """

    copies: ClassVar[int] = 1  # how often `repeated_product` wants the states in a row
    values: Tensor
    scales: Tensor

    def product(self, states_TI: Tensor) -> Tensor:
        """`states @ weight.T`, computed in bfloat16."""
        return torch._weight_int8pack_mm(states_TI.bfloat16(), self.values, self.scales).to(states_TI.dtype)

    repeated_product = product


class Halves(Struct, frozen=True):
    """A weight as two 4-bit halves side by side, `(O, 2 * I)`: the high halves, scaled by 16, and the low ones.

    Halves(content=uint8 in KleidiAI's own order, num_inputs=2 * 576, num_outputs=1536)
    """

    copies: ClassVar[int] = 2
    content: Tensor
    num_inputs: int
    num_outputs: int

    def product(self, states_TI: Tensor) -> Tensor:
        """`states @ weight.T`; each row of states is rounded to eight bits."""
        return self.repeated_product(torch.cat((states_TI, states_TI), 1))

    def repeated_product(self, states_TI: Tensor) -> Tensor:
        """As `product`, for rows that contain the states twice: each copy is multiplied by one half of the weight."""
        return _multiply_4bit(states_TI, self.content, GROUP, self.num_inputs, self.num_outputs)


Packed = Bytes | Halves


def pack(weight: Tensor) -> Packed:
    """The weight `(O, I)` in the form with the fastest product on this processor."""
    return pack_halves(weight) if has_halves() and weight.shape[1] % GROUP == 0 else pack_bytes(weight)


@cache
def has_halves() -> bool:
    """True if torch has KleidiAI's kernels for this processor; on others the same operation is slow."""
    return platform.machine() in ("aarch64", "arm64") and torch.backends.kleidiai.is_available()


def pack_bytes(weight: Tensor) -> Bytes:
    """The weight as int8 values from -127 to 127 with one scale per row.

    pack_bytes(torch.tensor([[0.5, -1.27]])) -> Bytes(values=[[50, -127]], scales=[0.01])
    """
    # The scale is rounded to bfloat16 first, so that the values are computed with the scale that is used later.
    scales = (weight.abs().amax(dim=1).clamp(min=1e-12) / 127).bfloat16()
    return Bytes((weight / scales.float()[:, None]).round().clamp(-127, 127).to(torch.int8), scales)


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


# ------------------------------------------------------------------------------------------------------------- products


def multiply(states: Tensor, weight: Tensor, bias: Tensor | None, packed: Packed | None = None) -> Tensor:
    """`states @ weight.T + bias` by the fastest product for this number of rows; `packed` is the weight in int8.

    In float32, `(weight @ states.T).T` is faster than `states @ weight.T` for the number of rows of a decode batch. A
    contiguous `states.T` is a layout that PyTorch does not give to oneDNN.
    """
    rows = states.numel() // states.shape[-1]
    if packed is not None and rows in INT8_ROWS:
        product = packed.product(states.reshape(rows, -1))
        if bias is not None:
            product += bias
        return product.reshape(*states.shape[:-1], -1)
    is_small = rows * weight.numel() < SMALL
    if rows not in SWAPPED_ROWS or states.dtype != torch.float32 or (is_small and rows <= DIRECT_ROWS):
        return linear(states, weight, bias)
    columns = states.reshape(rows, -1).t()
    product = weight @ (columns.contiguous() if is_small else columns)
    if bias is not None:
        product += bias[:, None]
    return product.t().reshape(*states.shape[:-1], -1)


def prepare_products(model: Any) -> None:
    """Make a CPU model's linear layers compute with `multiply`, and pack their weights if it decodes in int8."""
    in_int8 = decodes_in_int8(model)
    for module in model.modules():
        if type(module) is Linear and module.weight.device.type == "cpu":
            module.forward = partial(_forward, module, pack(module.weight.detach()) if in_int8 else None)


def _forward(layer: Linear, packed: Packed | None, states: Tensor) -> Tensor:
    return multiply(states, layer.weight, layer.bias, packed)


def use_int8(model: Any) -> Any:
    """Mark a model to decode with int8 weights, which `prepare_products` then packs; returns the model."""
    model.decodes_in_int8 = True
    return model


def decodes_in_int8(model: Any) -> bool:
    """True if `use_int8` was called on the model."""
    return bool(getattr(model, "decodes_in_int8", False))


# ---------------------------------------------------------------------------------------- several layers as one product


class _Merged:
    """A group of layers and the matrix that their weights are views of."""

    def __init__(self, layers: Sequence[Linear]) -> None:
        self.layers = list(layers)
        self.sizes = [layer.out_features for layer in layers]
        self.weight = join_rows([layer.weight for layer in layers])
        self.bias = None if layers[0].bias is None else join_rows([layer.bias for layer in layers])
        self._places = self._where_weights_lie()
        # Results computed for the other layers, until these are called with the same states.
        self._states: Tensor | None = None
        self._parts: dict[int, Tensor] = {}

    def forward(self, number: int, states: Tensor) -> Tensor:
        if self._states is not states or number not in self._parts:
            self._states, self._parts = None, {}
            if self._places != self._where_weights_lie():
                layer = self.layers[number]
                return linear(states, layer.weight, layer.bias)
            self._states = states
            self._parts = dict(enumerate(linear(states, self.weight, self.bias).split(self.sizes, -1)))
        part = self._parts.pop(number)
        if not self._parts:  # after the last layer nothing is kept
            self._states = None
        return part

    def _where_weights_lie(self) -> list[int]:
        """Addresses of the weights; they change if the model was moved, copied or given weights outside the matrix."""
        tensors = [tensor for layer in self.layers for tensor in (layer.weight, layer.bias) if tensor is not None]
        return [tensor.data_ptr() for tensor in tensors]


def merge(layers: Sequence[Any]) -> bool:
    """Merge linear layers that have the same input; returns False if they cannot be merged or are merged already.

    Layers with a forward function of their own (int8 weights, layers spread over devices, merged layers) are not
    changed.
    """
    plain = [layer for layer in layers if type(layer) is Linear and "forward" not in vars(layer)]
    kinds = {(layer.in_features, layer.weight.dtype, layer.weight.device, layer.bias is None) for layer in plain}
    if len(plain) != len(layers) or len({id(layer) for layer in plain}) != len(layers) or len(kinds) != 1:
        return False
    merged = _Merged(plain)
    for number, layer in enumerate(plain):
        layer.forward = partial(merged.forward, number)
    return True


def join_rows(tensors: Sequence[Tensor]) -> Tensor:
    """One tensor of all rows; the tensors become views of it, and their own memory is freed."""
    whole = torch.cat([tensor.detach() for tensor in tensors])
    for tensor, part in zip(tensors, whole.split([len(tensor) for tensor in tensors]), strict=True):
        tensor.data = part
    return whole
