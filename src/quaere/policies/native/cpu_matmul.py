"""Matrix products of linear layers for sampling on a CPU.

Two optimisations: for few rows the product is computed transposed, and with `int8` a decode step reads int8 weights. A
step of few rows is bound by reading all weights once, so a quarter of the bytes takes little more than a quarter of the
time. Prompts have many rows, where int8 gains nothing, and use the float weights.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Linear
from torch.nn.functional import linear

SWAPPED_ROWS = range(4, 49)
INT8_ROWS = range(1, 7)  # with more rows, unpacking int8 costs more than it saves in reading


class Bytes(NamedTuple):
    """An int8 weight: `values[row] * scales[row]` approximates the row.

    Bytes(values=int8 (rows, columns), scales=bfloat16 (rows,))
    """

    values: Tensor
    scales: Tensor


def prepare_products(model: Any) -> None:
    """Prepare the linear layers for sampling with the current weights: int8 if loaded so, else transposed products."""
    if decodes_in_int8(model):
        use_int8(model)
    else:
        swap_products(model)


def swap_products(model: Any) -> None:
    """Let the linear layers of a model on a CPU compute transposed products where these are faster."""
    for module in model.modules():
        if type(module) is Linear and module.weight.device.type == "cpu":
            module.forward = partial(_swapped_linear, module)


def _swapped_linear(layer: Linear, states: Tensor) -> Tensor:
    """`(weight @ states.T).T` for the number of rows of a decode batch: in float32 faster than `states @ weight.T`."""
    rows = states.numel() // states.shape[-1]
    if rows not in SWAPPED_ROWS or states.dtype != torch.float32:
        return linear(states, layer.weight, layer.bias)
    product = layer.weight @ states.reshape(rows, -1).t()
    if layer.bias is not None:
        product += layer.bias[:, None]
    return product.t().reshape(*states.shape[:-1], -1)


def use_int8(model: Any) -> int:
    """Let a model decode with int8 weights; returns the number of layers."""
    layers = [module for module in model.modules() if type(module) is Linear]
    for layer in layers:
        layer.as_bytes = pack(layer.weight.detach())
        layer.forward = partial(_int8_linear, layer)
    return len(layers)


def decodes_in_int8(model: Any) -> bool:
    """True if `use_int8` was called on the model."""
    return any(hasattr(module, "as_bytes") for module in model.modules())


def pack(weight: Tensor) -> Bytes:
    """The weight as int8 values from -127 to 127 with one scale per row.

    pack(torch.tensor([[0.5, -1.27]])) -> Bytes(values=[[50, -127]], scales=[0.01])
    """
    # The scale is rounded to bfloat16 first, so that the values are computed with the scale that is used later.
    scales = (weight.abs().amax(dim=1).clamp(min=1e-12) / 127).bfloat16()
    values = (weight / scales.float()[:, None]).round().clamp(-127, 127).to(torch.int8)
    return Bytes(values, scales)


def _int8_linear(layer: Any, states: Tensor) -> Tensor:
    rows = states.numel() // states.shape[-1]
    if rows not in INT8_ROWS:
        return _swapped_linear(layer, states)
    flat = states.reshape(rows, -1).bfloat16()
    product = torch._weight_int8pack_mm(flat, layer.as_bytes.values, layer.as_bytes.scales).to(states.dtype)
    if layer.bias is not None:
        product += layer.bias
    return product.reshape(*states.shape[:-1], -1)
