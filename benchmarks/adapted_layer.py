"""One linear layer with a LoRA adapter, ours against peft's: CPU time forward and backward, and error in bfloat16.

    python benchmarks/adapted_layer.py

The layers take turns; of each the quickest third's last is reported, in CPU time, so other work on the machine matters
little. The error is that of the output under autocast from a float64 computation, root mean square, as a ratio.
"""

from __future__ import annotations

import argparse
import time

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn

from quaere.training.adapters import fuse

SHAPES = ((30, 64, 128), (512, 576, 1536), (2048, 576, 1536), (256, 1536, 8960))  # tokens, inputs, outputs


def make_layer(inputs: int, outputs: int, seed: int, *, fused: bool) -> nn.Module:
    """An adapted layer with random weights, B's too."""
    torch.manual_seed(seed)
    plain = nn.Sequential(nn.Linear(inputs, outputs, bias=False))
    layer: nn.Module = get_peft_model(plain, LoraConfig(r=32, lora_alpha=48, target_modules=["0"]))
    for weight in layer.parameters():
        weight.data = torch.randn(weight.shape) / inputs**0.5
    if fused:
        fuse(layer)
    return layer


def time_pair(tokens: int, inputs: int, outputs: int, repeats: int) -> tuple[float, float]:
    """CPU milliseconds of ours and of peft's layer."""
    layers = [make_layer(inputs, outputs, 0, fused=fused) for fused in (True, False)]
    x = torch.randn(1, tokens, inputs, requires_grad=True)
    times: list[list[float]] = [[], []]
    for _ in range(repeats):
        for layer, found in zip(layers, times, strict=True):
            begun = time.process_time()
            layer(x).sum().backward()
            found.append(1000 * (time.process_time() - begun))
    ours, theirs = (sorted(found)[repeats // 3] for found in times)
    return ours, theirs


def compare_errors(seed: int) -> float:
    """The error of ours under autocast, as a share of peft's."""
    x: Tensor = torch.randn(200, 576, generator=torch.Generator().manual_seed(seed))
    exact = make_layer(576, 1536, seed, fused=False).double()(x.double())
    errors = []
    for fused in (True, False):
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
            found = make_layer(576, 1536, seed, fused=fused)(x)
        errors.append((found.double() - exact).square().mean().sqrt().item())
    return errors[0] / errors[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for shape in SHAPES:
        ours, theirs = time_pair(*shape, args.repeats)
        print(f"{shape[0]:5} tokens, {shape[1]} x {shape[2]}: {ours:.2f} ms, peft {theirs:.2f} ms, {ours / theirs:.3f}")
    print("error, of peft's:", ", ".join(f"{compare_errors(seed):.3f}" for seed in range(args.seeds)))


if __name__ == "__main__":
    main()
