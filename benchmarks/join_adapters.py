"""One LoRA adapter in place of two, the second of which was trained on top of the first.

    python benchmarks/join_adapters.py warm solver --base smollm2-135m-plain --out joined

The update of a weight is the sum of both updates, so the matrices are put side by side: ranks 5 and 4 give rank 9, and
nothing is approximated. Scales other than 1 are multiplied into B (exact for powers of two). The notes of the second
adapter (`quaere.json`) are kept, with the new base.
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


def read_adapter(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, object]]:
    """The matrices of an adapter, its scale multiplied into B, and its config."""
    config = json.loads((folder / "adapter_config.json").read_text())
    scale = config["lora_alpha"] / config["r"]
    weights = load_file(folder / "adapter_model.safetensors")
    return {name: value * scale if ".lora_B." in name else value for name, value in weights.items()}, config


def join(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A of both below each other, B of both side by side."""
    if first.keys() != second.keys():
        raise SystemExit("the adapters do not change the same weights")
    return {
        name: torch.cat((first[name], second[name]), dim=1 if ".lora_B." in name else 0).contiguous() for name in first
    }


def main() -> None:
    """Join two adapters and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--base", required=True, help="name of the model below both")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    (below, one), (above, two) = read_adapter(args.first), read_adapter(args.second)
    rank = int(str(one["r"])) + int(str(two["r"]))
    config = {**two, "r": rank, "lora_alpha": rank, "base_model_name_or_path": args.base}
    config["target_modules"] = sorted(two["target_modules"])  # type: ignore[call-overload]
    args.out.mkdir(parents=True, exist_ok=True)
    save_file(join(below, above), args.out / "adapter_model.safetensors", metadata={"format": "pt"})
    (args.out / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")
    notes = json.loads((args.second / "quaere.json").read_text())
    (args.out / "quaere.json").write_text(json.dumps({**notes, "base": args.base}, indent=2) + "\n")
    print(f"{args.out}: rank {rank}, {(args.out / 'adapter_model.safetensors').stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
