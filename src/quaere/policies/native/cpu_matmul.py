"""How the linear layers of a model multiply when it samples on a CPU.

Two things a general library does not do: a few rows are multiplied the other way round, and with `int8` the weights of
a decoding step are read as bytes. A step of few rows does little more than read all weights once, so a quarter of the
bytes is most of a quarter of the time; prompts have many rows, where that gains nothing, and keep the whole weights.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Linear
from torch.nn.functional import linear

SWAPPED_ROWS = range(4, 49)
INT8_ROWS = range(1, 7)  # with more, unpacking the bytes costs more than reading them saves


class Bytes(NamedTuple):
    """A weight as bytes: `values[row] * scales[row]` is about the row.

    Bytes(values=int8 (rows, columns), scales=bfloat16 (rows,))
    """

    values: Tensor
    scales: Tensor


def prepare_products(model: Any) -> None:
    """Make a model's layers ready to sample with the weights it has now: as bytes if it was loaded so, else swapped."""
    if decodes_in_int8(model):
        use_int8(model)
    else:
        swap_products(model)


def swap_products(model: Any) -> None:
    """Let the linear layers of a model that samples on a CPU multiply the other way round where that is faster."""
    for module in model.modules():
        if type(module) is Linear and module.weight.device.type == "cpu":
            module.forward = partial(_swapped_linear, module)


def _swapped_linear(layer: Linear, states: Tensor) -> Tensor:
    """`(weight @ states.T).T` for as many rows as decode together: in float32 faster than `states @ weight.T`."""
    rows = states.numel() // states.shape[-1]
    if rows not in SWAPPED_ROWS or states.dtype != torch.float32:
        return linear(states, layer.weight, layer.bias)
    product = layer.weight @ states.reshape(rows, -1).t()
    if layer.bias is not None:
        product += layer.bias[:, None]
    return product.t().reshape(*states.shape[:-1], -1)


def use_int8(model: Any) -> int:
    """Let a model decode with weights as bytes; returns how many layers do."""
    layers = [module for module in model.modules() if type(module) is Linear]
    for layer in layers:
        layer.as_bytes = pack(layer.weight.detach())
        layer.forward = partial(_int8_linear, layer)
    return len(layers)


def decodes_in_int8(model: Any) -> bool:
    """Was `use_int8` called on it?"""
    return any(hasattr(module, "as_bytes") for module in model.modules())


def pack(weight: Tensor) -> Bytes:
    """Every row as whole numbers from -127 to 127 and what to multiply them by.

    pack(torch.tensor([[0.5, -1.27]])) -> Bytes(values=[[50, -127]], scales=[0.01])
    """
    # Rounded first, so that the numbers fit the scale that is really used.
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
