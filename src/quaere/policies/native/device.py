"""Choice of device and precision for `auto`, and whether the Triton kernels run on a device."""

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
"""Values of `--dtype`. int8 is for CPUs: float32 weights, with an int8 copy for decode steps."""


@cache
def has_kernels(device: torch.device) -> bool:
    """True if Triton kernels can run on the device; torch for CUDA installs Triton on most systems."""
    return device.type == "cuda" and find_spec("triton") is not None


def choose_device(wanted: str, report: Callable[[str], None] = lambda line: None) -> str:
    """ "cuda" or "cpu"; reports GPUs that will not be used."""
    import torch

    if wanted == "cuda" and not torch.cuda.is_available():
        raise BadInput("no CUDA device was found, so the device must be cpu or auto", hint="quaere doctor")
    device = ("cuda" if torch.cuda.is_available() else "cpu") if wanted == "auto" else wanted
    if device == "cuda" and torch.cuda.device_count() > 1:
        count = torch.cuda.device_count()
        report(f"{count} GPUs are here and one is used; several at once will go through the verl engine, still to come")
    return device


def choose_dtype(wanted: str, device: str, mode: str = "deterministic") -> str:
    """The dtype that `auto` stands for: bfloat16 on a GPU, where it halves the bytes to be read; float32 on a CPU.

    In fast mode bfloat16 is timed on a CPU: some CPUs have instructions for it, on others it is several times slower. A
    choice by timing is not reproducible, so deterministic mode and training use float32.

        choose_dtype("auto", "cpu") == "float32"
    """
    if wanted != "auto":
        return wanted
    if device == "cuda" or (mode == "fast" and _bfloat16_wins()):
        return "bfloat16"
    return "float32"


@cache
def _bfloat16_wins() -> bool:
    """True if a matrix product of a decode step is clearly faster in bfloat16 on this CPU."""
    import torch

    with warnings.catch_warnings():
        # A CPU without bfloat16 instructions warns with a stack trace; its speed is measured here anyway.
        warnings.simplefilter("ignore")
        return _seconds_of_product(torch.bfloat16) < 0.8 * _seconds_of_product(torch.float32)


def _seconds_of_product(dtype: torch.dtype) -> float:
    """Best time of several tries, which reduces the influence of other load on the machine."""
    import torch

    states, weight = torch.ones(32, 1024, dtype=dtype), torch.ones(1024, 1024, dtype=dtype)
    tries = []
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(5):
            torch.nn.functional.linear(states, weight)
        tries.append(time.perf_counter() - started)
    return min(tries)
