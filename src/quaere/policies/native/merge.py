"""Linear layers that multiply the same states, as one product.

A model multiplies a token's states by the weights of query, key and value one after the other, and by those of gate and
up. When a small model decodes, each of these is a kernel that is over before a GPU is busy; one product over all of the
weights keeps it busier, and there are fewer of them to start.

    merge([attention.q_proj, attention.k_proj, attention.v_proj])

The layers stay, under their own names; their weights become parts of one matrix, so that new weights copied into them
reach it and nothing is held twice. The model calls its layers as before: the first one asked about some states
multiplies for all, and the others hand out their part, a slice of the same rows. This is for sampling: there are no
gradients to think of.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Linear
from torch.nn.functional import linear


class _Waiting(NamedTuple):
    """What was computed for the other layers, until they are asked about the same states."""

    states: Tensor
    parts: dict[int, Tensor]


class _Merged:
    """Some layers and the one matrix their weights are parts of."""

    def __init__(self, layers: Sequence[Linear]) -> None:
        self.layers = list(layers)
        self.sizes = [layer.out_features for layer in layers]
        self.weight = _join([layer.weight for layer in layers])
        self.bias = None if layers[0].bias is None else _join([layer.bias for layer in layers])
        self._places = self._where_weights_lie()
        self._waiting: _Waiting | None = None

    def forward(self, number: int, states: Tensor) -> Tensor:
        """What layer `number` says about the states."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None and waiting.states is states and number in waiting.parts:
            part = waiting.parts.pop(number)
            if waiting.parts:  # the last one leaves nothing behind
                self._waiting = waiting
            return part
        if self._places != self._where_weights_lie():
            layer = self.layers[number]
            return linear(states, layer.weight, layer.bias)
        parts = dict(enumerate(linear(states, self.weight, self.bias).split(self.sizes, -1)))
        part = parts.pop(number)
        self._waiting = _Waiting(states, parts)
        return part

    def _where_weights_lie(self) -> list[int]:
        """Their addresses: other ones, and a model was moved, copied or given weights that are not in the matrix."""
        tensors = [tensor for layer in self.layers for tensor in (layer.weight, layer.bias) if tensor is not None]
        return [tensor.data_ptr() for tensor in tensors]


def merge(layers: Sequence[Any]) -> bool:
    """Let linear layers that are called with the same states multiply as one; False where they cannot, or do already.

    Who has a forward of its own (weights as bytes, layers spread over devices, or merged before) is left alone.
    """
    plain = [layer for layer in layers if type(layer) is Linear and "forward" not in vars(layer)]
    kinds = {(layer.in_features, layer.weight.dtype, layer.weight.device, layer.bias is None) for layer in plain}
    if len(plain) != len(layers) or len({id(layer) for layer in plain}) != len(layers) or len(kinds) != 1:
        return False
    merged = _Merged(plain)
    for number, layer in enumerate(plain):
        layer.forward = partial(merged.forward, number)
    return True


def _join(tensors: Sequence[Tensor]) -> Tensor:
    """One tensor of all rows; the tensors become views of it, and the memory they had is free."""
    whole = torch.cat([tensor.detach() for tensor in tensors])
    for tensor, part in zip(tensors, whole.split([len(tensor) for tensor in tensors]), strict=True):
        tensor.data = part
    return whole
