"""Matrix products of linear layers for sampling on a CPU.

Three optimisations: for few rows the product is computed transposed, small products avoid oneDNN, and with int8 weights
(`packed`) a decode step reads those. Prompts have many rows, where int8 gains nothing, and use the float weights.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear
from torch.nn.functional import linear

from quaere.policies.native.packed import Packed, pack

SWAPPED_ROWS = range(4, 49)
# On ARM, PyTorch gives products of more than 8 rows to oneDNN, which takes longer to set one up than products of up to
# this many multiplications take.
SMALL = 2 << 20
DIRECT_ROWS = 8
INT8_ROWS = range(1, 7)  # with more rows, unpacking int8 costs more than it saves in reading


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
    """Let the linear layers of a model on a CPU compute with `multiply`, and pack their current weights if in int8."""
    in_int8 = decodes_in_int8(model)
    for module in model.modules():
        if type(module) is Linear and module.weight.device.type == "cpu":
            module.forward = partial(_forward, module, pack(module.weight.detach()) if in_int8 else None)


def _forward(layer: Linear, packed: Packed | None, states: Tensor) -> Tensor:
    return multiply(states, layer.weight, layer.bias, packed)


def use_int8(model: Any) -> Any:
    """Let a model decode with int8 weights, once its products are prepared; returns the model."""
    model.decodes_in_int8 = True
    return model


def decodes_in_int8(model: Any) -> bool:
    """True if `use_int8` was called on the model."""
    return bool(getattr(model, "decodes_in_int8", False))
