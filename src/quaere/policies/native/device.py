"""Which device and which precision `auto` stands for, and whether kernels of our own run there."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from quaere.errors import BadInput

if TYPE_CHECKING:
    import torch

Precision = Literal["auto", "float32", "bfloat16", "int8"]
"""What is asked for after `--dtype`; int8 is float32 with the weights of a decoding step as bytes, on a CPU."""


@cache
def has_kernels(device: torch.device) -> bool:
    """Kernels are Triton's, which comes with torch for CUDA on most systems."""
    return device.type == "cuda" and find_spec("triton") is not None


def choose_device(wanted: str, report: Callable[[str], None] = lambda line: None) -> str:
    """`cuda` or `cpu`; says so when there are GPUs that will not be used."""
    import torch

    if wanted == "cuda" and not torch.cuda.is_available():
        raise BadInput("there is no CUDA device here", hint="quaere doctor")
    device = ("cuda" if torch.cuda.is_available() else "cpu") if wanted == "auto" else wanted
    if device == "cuda" and torch.cuda.device_count() > 1:
        count = torch.cuda.device_count()
        report(f"{count} GPUs are here and one is used; several at once will go through the verl engine, still to come")
    return device


def choose_dtype(wanted: str, device: str, mode: str = "deterministic") -> str:
    """What `auto` stands for: bfloat16 on a GPU, where it halves what must be read; on a CPU float32.

    In fast mode a CPU is tried: some have instructions for bfloat16, on others it is several times slower. A choice by
    the clock is no good where results must repeat, so deterministic mode and training weights keep to float32.

        choose_dtype("auto", "cpu") == "float32"
    """
    if wanted != "auto":
        return wanted
    if device == "cuda" or (mode == "fast" and _bfloat16_wins()):
        return "bfloat16"
    return "float32"


@cache
def _bfloat16_wins() -> bool:
    """Is a matrix product of a decoding step clearly faster in bfloat16 here?"""
    import torch

    with warnings.catch_warnings():
        # A CPU without instructions for bfloat16 warns with a stack trace; that it is slow is measured here anyway.
        warnings.simplefilter("ignore")
        return _seconds_of_product(torch.bfloat16) < 0.8 * _seconds_of_product(torch.float32)


def _seconds_of_product(dtype: torch.dtype) -> float:
    """The best of a few tries, so that what else the machine does matters little."""
    import torch

    states, weight = torch.ones(32, 1024, dtype=dtype), torch.ones(1024, 1024, dtype=dtype)
    tries = []
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(5):
            torch.nn.functional.linear(states, weight)
        tries.append(time.perf_counter() - started)
    return min(tries)
