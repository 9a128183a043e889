"""Which path a model takes: packed rows where its tokens meet in attention alone, else its own forward pass."""

import pytest
import torch
import transformers

import tiny
from quaere.errors import ModelMissing
from quaere.policies.native.attention import VARLEN, Packing, PackingLost
from quaere.policies.native.bridge import (
    is_varlen,
    load_model,
    packed_states,
    use_packed_attention,
    use_varlen_attention,
    why_unpacked,
)
from quaere.policies.native.engine import Engine
from quaere.training.engine_check import compare_with_transformers

SIZES = dict(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4)
UNPACKED = {
    "StableLmConfig": ({"num_key_value_heads": 4}, "attention that cannot be replaced"),
    "Llama4TextConfig": (
        {"num_key_value_heads": 2, "head_dim": 8, "num_local_experts": 2, "intermediate_size_mlp": 32},
        "layers of chunked_attention",
    ),
}
MAMBA = {"state_size": 8, "hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 64}
REASONS = {"lfm2": "layers of conv", "qwen3_5": "layers of linear_attention", "falcon_h1": "layers of hybrid"}


def make(config, changes, device="cpu"):
    torch.manual_seed(0)
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(getattr(transformers, config)(**{**SIZES, **changes}))


@pytest.mark.parametrize("config", UNPACKED)
def test_what_cannot_be_packed_has_a_reason_and_its_own_path(config):
    changes, reason = UNPACKED[config]
    assert why_unpacked(make(config, changes, "meta")) == reason  # before weights are downloaded or loaded
    found = compare_with_transformers(make(config, changes).float(), list(range(2, 42)))
    assert reason in found.path and "plain path" in found.path and found.is_right


def test_contexts_are_continued_token_by_token_where_a_chunk_gives_something_else():
    """Mamba 1 begins a chunk of several tokens without the state before it."""
    model = make("MambaConfig", MAMBA)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(4 if weight.dim() == 2 else 1)  # so that the state matters
    found = compare_with_transformers(model.float(), list(range(2, 42)))
    assert "rows decoded together, contexts continued token by token" in found.path and found.is_right


def test_a_model_that_returns_no_cache_is_refused():
    """Recurrent Gemma keeps its state in its layers, where conversations cannot be told apart."""
    model = make("RecurrentGemmaConfig", {"block_types": ["recurrent", "attention"], "attention_window_size": 16})
    with pytest.raises(ModelMissing, match="layers that convolve neighbouring tokens, and its forward pass returns no"):
        Engine(use_packed_attention(model), str)


@pytest.mark.parametrize("family", REASONS)
def test_layers_that_keep_a_state_cannot_be_packed(family):
    assert why_unpacked(tiny.model(family)) == REASONS[family]


def test_a_folder_with_such_a_model_is_loaded_with_its_own_attention(tmp_path):
    tiny.model("lfm2").save_pretrained(tmp_path)
    for packed in (True, False):
        model = load_model(str(tmp_path), "cpu", "float32", packed=packed)
        assert model.config._attn_implementation == "sdpa"
    assert not Engine(model, str).is_packed


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3", "gpt2"])
def test_models_of_attention_alone_are_packed(family):
    model = tiny.model(family)
    assert why_unpacked(model) == "" and is_varlen(use_varlen_attention(model))
    engine = Engine(use_packed_attention(model), str)
    assert engine.is_packed and engine.note == ""


def test_a_model_that_does_not_tell_its_attention_about_the_packing_learns_from_padded_rows():
    """Nemotron's layers drop what they are called with: packed sequences would see one another."""
    made = make("NemotronConfig", {"num_key_value_heads": 4})
    model = use_varlen_attention(made)
    assert not is_varlen(model) and model.config._attn_implementation == "sdpa"
    model.set_attn_implementation(VARLEN)
    with pytest.raises(PackingLost, match="NemotronAttention is not told"):
        packed_states(model, torch.arange(6), Packing((3, 3), torch.device("cpu")))
    assert model(torch.arange(6)[None]).logits.shape == (1, 6, 64)  # without a packing there is nothing to tell
    model.set_attn_implementation("sdpa")
    found = compare_with_transformers(model, list(range(2, 42)))
    assert found.path == "packed" and found.is_right  # sampling is packed all the same
