"""Choice of device and precision for `auto`, and whether the Triton kernels run on a device."""

from __future__ import annotations

import os
import timeit
from collections.abc import Callable
from functools import cache, partial
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


def release_memory(device: torch.device) -> None:
    """Return memory that torch keeps for later to the GPU: its pieces are too small for what is to come."""
    import torch

    if device.type == "cuda":
        torch.cuda.empty_cache()


def choose_device(wanted: str, report: Callable[[str], None] = lambda line: None) -> str:
    """The device to use, "cuda" or "cpu"; `report` is called with a line about GPUs that will not be used."""
    import torch

    if wanted == "cuda" and not torch.cuda.is_available():
        raise BadInput("no CUDA device was found, so the device must be cpu or auto", hint="quaere doctor")
    device = ("cuda" if torch.cuda.is_available() else "cpu") if wanted == "auto" else wanted
    if device == "cuda" and torch.cuda.device_count() > 1:
        report(f"{torch.cuda.device_count()} GPUs were found; a run uses only one of them")
    return device


def name_device(device: str) -> str:
    """The device as a table names it: the GPU's model, or "2 CPU cores"."""
    import torch

    return str(torch.cuda.get_device_name()) if device == "cuda" else f"{os.cpu_count() or 1} CPU cores"


def choose_dtype(wanted: str, device: str, mode: str = "deterministic", *, interactive: bool = False) -> str:
    """The dtype; `auto` is bfloat16 on a GPU, where it halves the bytes to be read; float32 on a CPU.

    In fast mode bfloat16 is timed on a CPU: some CPUs have instructions for it, on others it is several times slower.
    Where few rows are decoded at a time (`interactive`), int8 is timed too. A choice by timing is not reproducible, so
    deterministic mode and training use float32.

        choose_dtype("auto", "cpu") == "float32"
    """
    if wanted != "auto":
        return wanted
    if device == "cuda":
        return "bfloat16"
    return _fastest_dtype(1 if interactive else 32) if mode == "fast" else "float32"


@cache
def _fastest_dtype(rows: int) -> str:
    """The dtype with the fastest product of this many rows on this CPU; float32 unless another is clearly faster."""
    candidates = ["bfloat16"] if _multiplies_bfloat16() else []
    if rows == 1:  # products of many rows do not use int8
        candidates.append("int8")
    seconds = {dtype: _seconds_of_product(dtype, rows) for dtype in ["float32", *candidates]}
    fastest = min(seconds, key=seconds.__getitem__)
    return fastest if seconds[fastest] < 0.8 * seconds["float32"] else "float32"


def _multiplies_bfloat16() -> bool:
    """True if torch has a bfloat16 product for this CPU; its substitute is a hundred times slower, and warns."""
    import torch

    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _seconds_of_product(dtype: str, rows: int) -> float:
    """Seconds of a matrix product with this dtype and number of rows: the best of several tries, as load varies."""
    import torch

    from quaere.policies.native.weights import pack

    # 16 MB in float32, so that one row is bound by memory as it is in a model.
    states, weight = torch.ones(rows, 1024), torch.ones(4096, 1024)
    if dtype == "int8":
        multiply = pack(weight).product
    else:
        kind = getattr(torch, dtype)
        multiply = partial(torch.nn.functional.linear, weight=weight.to(kind))
        states = states.to(kind)
    return min(timeit.repeat(lambda: multiply(states), number=1, repeat=5))
