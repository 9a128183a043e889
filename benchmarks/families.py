"""Which families of transformers the native engine runs: tiny random models of each, sampled and trained.

    python benchmarks/families.py
    python benchmarks/families.py Llama GPT-OSS
    python benchmarks/families.py --generate                # and how fast: turns per `generate` of transformers
    python benchmarks/families.py --speed smollm2-135m      # the same model on both paths

A family works if log-probs, a greedy turn and a gradient are those of transformers' own forward pass, in float32
(`training/engine_check.py`), up to 1e-4 and, as a share of the largest gradient, 1e-5. Its path is `packed`, or `plain`
where rows cannot be packed; what is refused is printed with its reason. Sizes are tiny, so experts, windows, sinks and
latent attention are all used within 40 tokens. With `--double` only the learner is compared, in float64: a difference
that then vanishes was rounding.
"""

from __future__ import annotations

import argparse
import copy
import math
import time
from typing import Any

import torch
import transformers

from quaere.errors import QuaereError
from quaere.policies.catalogue import resolve_model
from quaere.policies.native.bridge import load_model, use_packed_attention
from quaere.policies.native.engine import Engine, Request
from quaere.policies.native.plain import PlainForward
from quaere.policies.native.row_caches import RowCaches
from quaere.policies.sampler import SamplingParams
from quaere.training.engine_check import NUM_SAMPLED, compare_learning, compare_with_transformers

SIZES = {
    "vocab_size": 440,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
WINDOW = {"sliding_window": 7}
EXPERTS = {
    "num_local_experts": 4,
    "num_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "shared_expert_intermediate_size": 32,
}
LATENT = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "num_key_value_heads": 6,
}
LINEAR = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
MAMBA = {"mamba_n_heads": 12, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1}
SCALAR = {**WINDOW, "query_pre_attn_scalar": 8}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("LlamaConfig", {}),
    "Llama 4": ("Llama4TextConfig", {**EXPERTS, "intermediate_size_mlp": 96}),
    "Mistral": ("MistralConfig", WINDOW),
    "Ministral": ("MinistralConfig", WINDOW),
    "Mixtral": ("MixtralConfig", EXPERTS),
    "Qwen2": ("Qwen2Config", {}),
    "Qwen2-MoE": ("Qwen2MoeConfig", EXPERTS),
    "Qwen3": ("Qwen3Config", {}),
    "Qwen3-MoE": ("Qwen3MoeConfig", EXPERTS),
    "Qwen3-Next": ("Qwen3NextConfig", {**EXPERTS, **LINEAR, "decoder_sparse_step": 1}),
    "Qwen3.5": ("Qwen3_5TextConfig", LINEAR),
    "Gemma": ("GemmaConfig", {}),
    "Gemma 2": ("Gemma2Config", SCALAR),
    "Gemma 3": ("Gemma3TextConfig", SCALAR),
    "Gemma 3n": (
        "Gemma3nTextConfig",
        {
            **WINDOW,
            "intermediate_size": [96] * 4,
            "vocab_size_per_layer_input": 440,
            "hidden_size_per_layer_input": 8,
            "num_kv_shared_layers": 1,
            "laurel_rank": 8,
            "activation_sparsity_pattern": [0.0] * 4,
        },
    ),
    "Gemma 4": ("Gemma4TextConfig", {**WINDOW, "vocab_size_per_layer_input": 440}),
    "Phi": ("PhiConfig", {}),
    "Phi-3, Phi-4": ("Phi3Config", {}),
    "Phi-MoE": ("PhimoeConfig", EXPERTS),
    "GLM-4": ("GlmConfig", {}),
    "GLM-4-0414": ("Glm4Config", {}),
    "GLM-4-MoE": ("Glm4MoeConfig", EXPERTS),
    "GLM-4-MoE-Lite": ("Glm4MoeLiteConfig", {**EXPERTS, **LATENT}),
    "GPT-OSS": ("GptOssConfig", {**EXPERTS, **WINDOW, "layer_types": ["sliding_attention", "full_attention"] * 2}),
    "DeepSeek-V3": ("DeepseekV3Config", {**EXPERTS, **LATENT}),
    "MiniMax-M2": ("MiniMaxM2Config", EXPERTS),
    "Granite": ("GraniteConfig", {"logits_scaling": 2.0}),
    "Granite-MoE": ("GraniteMoeConfig", EXPERTS),
    "Granite 4 hybrid": ("GraniteMoeHybridConfig", {**EXPERTS, **MAMBA, "layer_types": ["mamba", "attention"] * 2}),
    "OLMo 2": ("Olmo2Config", {}),
    "OLMo 3": ("Olmo3Config", WINDOW),
    "OLMoE": ("OlmoeConfig", EXPERTS),
    "SmolLM3": ("SmolLM3Config", {}),
    "Cohere": ("CohereConfig", {}),
    "Cohere 2": ("Cohere2Config", WINDOW),
    "LFM2": ("Lfm2Config", {"layer_types": ["conv", "full_attention"] * 2}),
    "Nemotron": ("NemotronConfig", {}),
    "Nemotron-H, Nemotron-3": (
        "NemotronHConfig",
        {
            **EXPERTS,
            "mamba_num_heads": 12,
            "mamba_head_dim": 8,
            "ssm_state_size": 8,
            "n_groups": 1,
            "layers_block_type": ["mamba", "attention", "mlp", "attention"],
        },
    ),
    "Falcon-H1": ("FalconH1Config", {**MAMBA, "mamba_d_ssm": 96}),
    "StarCoder 2": ("Starcoder2Config", {}),
    "StableLM": ("StableLmConfig", {}),
    "ERNIE 4.5": ("Ernie4_5Config", {}),
    "EXAONE 4": ("Exaone4Config", WINDOW),
    "Seed-OSS": ("SeedOssConfig", {}),
    "Apertus": ("ApertusConfig", {}),
    "Hunyuan": ("HunYuanDenseV1Config", {}),
    "GPT-2": ("GPT2Config", {"n_embd": 48, "n_layer": 3, "n_head": 6, "n_positions": 1024}),
    "Mamba 2": ("Mamba2Config", {"num_heads": 12, "head_dim": 8, "expand": 2, "state_size": 8, "n_groups": 1}),
}
LOGPROB_GAP, GRADIENT_GAP = 1e-4, 1e-5
ROUNDED = {"Gemma 4": 3e-5}  # its gradients differ by 1e-5 to 2e-5, and by 2e-14 with `--double`
IDS = torch.randint(2, 400, (40,), generator=torch.Generator().manual_seed(1)).tolist()


def make_model(name: str) -> Any:
    """A tiny random model whose choice of a token matters, with transformers' own attention."""
    config, changes = FAMILIES[name]
    torch.manual_seed(0)
    made = transformers.AutoModelForCausalLM.from_config(
        getattr(transformers, config)(**{**SIZES, **changes}), attn_implementation="eager"
    )
    with torch.no_grad():
        for weight in made.parameters():
            if weight.dim() > 1:
                weight.mul_(3)
            elif not torch.isfinite(weight).all():  # some families leave their sinks unset
                weight.zero_()
    return made.float().eval()


def use_float64() -> None:
    """Make every float32 of this process float64, also those to which models cast their norms and probabilities."""
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double
    torch.float32 = torch.float = torch.float64


def judge(name: str, *, generates: bool = False) -> str:
    try:
        found = compare_with_transformers(make_model(name), IDS)
        speed = f", {speed_to_generate(make_model(name)):.1f} x generate" if generates else ""
    except QuaereError as error:
        return f"refused: {error.args[0]}"
    except (RuntimeError, AttributeError, TypeError, ValueError) as error:
        return f"FAILS: {type(error).__name__}: {str(error).splitlines()[0]}"
    gaps = f"log-probs {found.logprob_gap:.0e}, gradient {found.gradient_gap:.0e}, turn {found.num_same} tokens"
    gradient_gap = ROUNDED.get(name, GRADIENT_GAP)
    is_right = found.logprob_gap < LOGPROB_GAP and found.gradient_gap < gradient_gap and found.num_same == NUM_SAMPLED
    return f"{'works' if is_right else 'WRONG'} ({gaps}){speed}, {found.path.partition(': ')[2] or found.path}"


def speed_to_generate(model: Any, num_rows: int = 8, num_tokens: int = 24, num_tries: int = 3) -> float:
    """How many turns the engine samples while `generate` samples one, greedily and side by side; the best of each."""
    rows = [IDS[row:] + IDS[:row] for row in range(num_rows)]
    how: dict[str, Any] = {"do_sample": False, "min_new_tokens": num_tokens, "max_new_tokens": num_tokens}
    best = [math.inf, math.inf]
    generating = copy.deepcopy(model)
    engine = Engine(use_packed_attention(model), str, max_rows=num_rows)
    for _ in range(num_tries):
        started = time.perf_counter()
        generating.generate(torch.tensor(rows), attention_mask=torch.ones(num_rows, len(IDS)), pad_token_id=0, **how)
        generated = time.perf_counter()
        for number, row in enumerate(rows):
            engine.add(Request(str(number), row, SamplingParams(max_tokens=num_tokens, temperature=0.0)))
        while engine.busy:
            engine.step()
        best = [min(best[0], generated - started), min(best[1], time.perf_counter() - generated)]
    return best[0] / best[1]


def compare_speed(name: str, num_tokens: int = 16, num_tries: int = 2) -> None:
    """Tokens per second of both paths by the number of rows, the best of several tries in turn."""
    found = resolve_model(name)
    packed, plain = (Engine(load_model(found, "cpu", "float32"), str, max_rows=16) for _ in range(2))
    plain.model.set_attn_implementation("sdpa")
    plain.is_packed, plain._make_storage = False, RowCaches
    plain.forward = PlainForward(plain.model)
    plain.reset()
    for num_rows in (1, 4, 16):
        best = [0.0, 0.0]
        for _ in range(num_tries):
            for place, engine in enumerate((packed, plain)):
                best[place] = max(best[place], decode_rate(engine, num_rows, num_tokens))
        print(
            f"{num_rows:2} rows: packed {best[0]:.0f}, plain {best[1]:.0f} tokens/s, {best[1] / best[0]:.0%}",
            flush=True,
        )


def decode_rate(engine: Engine, num_rows: int, num_tokens: int) -> float:
    for row in range(num_rows):
        engine.add(Request(str(row), IDS[row:] + IDS[:row], SamplingParams(max_tokens=num_tokens, seed=row)))
    engine.step()  # the contexts
    started = time.perf_counter()
    while engine.busy:
        engine.step()
    return num_rows * (num_tokens - 1) / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description="which families the native engine runs")
    parser.add_argument("--speed", metavar="MODEL", help="decode with a model whose rows can be packed on both paths")
    parser.add_argument("--generate", action="store_true", help="compare the speed with that of transformers' generate")
    parser.add_argument("--double", action="store_true", help="compare the learner in float64")
    parser.add_argument("families", nargs="*", choices=[[], *FAMILIES], metavar="FAMILY", help="default: all")
    args = parser.parse_args()
    chosen = args.families or list(FAMILIES)
    transformers.logging.set_verbosity_error()
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    if args.double:
        use_float64()
        for name in chosen:
            own, learned, gap = compare_learning(make_model(name), IDS)
            print(f"{name:23} log-probs {float((own - learned).abs().max()):.0e}, gradient {gap:.0e}", flush=True)
        return
    if args.speed:
        compare_speed(args.speed)
        return
    for name in chosen:
        print(f"{name:23} {judge(name, generates=args.generate)}", flush=True)


if __name__ == "__main__":
    main()
