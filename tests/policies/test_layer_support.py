"""Models that the engine would compute wrongly are refused: with weights, without, and for training alone."""

import pytest
import torch
import transformers

import tiny
from quaere.errors import ModelMissing
from quaere.policies.native.bridge import (
    load_model,
    packed_states,
    refuse_unsupported,
    use_packed_attention,
    use_varlen_attention,
)
from quaere.policies.native.varlen import Packing

SIZES = dict(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4)
LINEAR = dict(linear_num_value_heads=2, linear_num_key_heads=2, linear_key_head_dim=8, linear_value_head_dim=8)
REFUSED = {
    "Lfm2Config": ({"layer_types": ["conv", "full_attention"], "num_key_value_heads": 2}, "layers of conv"),
    "Qwen3_5TextConfig": ({**LINEAR, "num_hidden_layers": 4, "num_key_value_heads": 2}, "layers of linear_attention"),
    "Mamba2Config": ({"num_heads": 8, "head_dim": 8, "state_size": 8, "n_groups": 1}, "layers of linear_attention"),
    "RecurrentGemmaConfig": (
        {"block_types": ["recurrent", "attention"]},
        "have layers that convolve neighbouring tokens",
    ),
    "StableLmConfig": ({"num_key_value_heads": 4}, "attention that cannot be replaced"),
}


def make(config, changes, device="cpu"):
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(getattr(transformers, config)(**{**SIZES, **changes}))


@pytest.mark.parametrize("config", REFUSED)
def test_a_model_whose_tokens_meet_elsewhere_than_in_attention_is_refused(config):
    changes, reason = REFUSED[config]
    for use in (use_packed_attention, use_varlen_attention):
        with pytest.raises(ModelMissing, match=reason) as caught:
            use(make(config, changes))
    assert "\n" not in caught.value.args[0] and "openai:MODEL@BASE_URL" in caught.value.hint
    with pytest.raises(ModelMissing, match=reason):
        refuse_unsupported(make(config, changes, "meta"))  # before weights are downloaded or loaded


def test_a_folder_with_such_a_model_is_refused_when_it_is_loaded(tmp_path):
    make("Lfm2Config", REFUSED["Lfm2Config"][0]).save_pretrained(tmp_path)
    for packed in (True, False):
        with pytest.raises(ModelMissing, match="models of the kind lfm2 have layers of conv"):
            load_model(str(tmp_path), "cpu", "float32", packed=packed)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3", "gpt2"])
def test_models_of_attention_alone_are_not_refused(family):
    refuse_unsupported(tiny.model(family))


def test_a_model_that_does_not_tell_its_attention_about_the_packing_is_not_trained():
    """Nemotron's layers drop what they are called with: packed sequences would see one another."""
    model = use_varlen_attention(make("NemotronConfig", {"num_key_value_heads": 4}))
    with pytest.raises(ModelMissing, match="cannot be trained: its NemotronAttention"):
        packed_states(model, torch.arange(6), Packing((3, 3), torch.device("cpu")))
    assert model(torch.arange(6)[None]).logits.shape == (1, 6, 64)  # without a packing there is nothing to tell
