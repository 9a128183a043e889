"""Which device and which precision `auto` stands for, and whether kernels of our own run there."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from quaere.errors import BadInput

if TYPE_CHECKING:
    import torch


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


def choose_dtype(wanted: str, device: str) -> str:
    """bfloat16 halves the memory a GPU must read; on most CPUs float32 is as fast and exact.

    choose_dtype("auto", "cpu") == "float32"
    """
    usual = "bfloat16" if device == "cuda" else "float32"
    return usual if wanted == "auto" else wanted
