"""Adapters of models whose rows cannot be packed: which layers have one, and that merging adds it exactly."""

import pytest
import torch

import tiny
from quaere.policies.catalogue import resolve_model
from quaere.policies.native.bridge import load_model
from quaere.training.actors import copy_weights
from quaere.training.adapters import add_adapters
from quaere.training.batches import Sample, plain_model
from quaere.training.learner import Learner, save_weights
from quaere.training.settings import AdapterSettings, LearnerSettings

IDS = torch.arange(3, 23)[None]
ADAPTED = {
    "lfm2": {"in_proj", "out_proj", "q_proj", "w1"},
    "qwen3_5": {"in_proj_qkv", "out_proj", "q_proj", "down_proj"},
    "qwen3_next": {"in_proj_qkvz", "out_proj", "q_proj"},
    "granite_hybrid": {"in_proj", "q_proj", "output_linear"},
    "nemotron_h": {"in_proj", "q_proj", "up_proj"},
    "falcon_h1": {"in_proj", "q_proj", "down_proj"},
    "mamba2": {"in_proj"},
}


@torch.no_grad()
def logits_of(model):
    return model(IDS, use_cache=False).logits


@pytest.mark.parametrize("family", ADAPTED)
def test_an_adapter_is_trained_copied_saved_and_merged(family, tmp_path):
    tiny.model(family).save_pretrained(tmp_path / "base")
    torch.manual_seed(0)
    model = add_adapters(tiny.model(family), ("solver",), AdapterSettings(rank=2, alpha=4))
    names = {name for name, module in plain_model(model).named_modules() if hasattr(module, "lora_A")}
    assert {name.rpartition(".")[2] for name in names} >= ADAPTED[family]
    # The kernels of state spaces read the last layer's weight by themselves: an adapter there would have no effect.
    assert any(name.endswith("out_proj") for name in names) == ("out_proj" in ADAPTED[family])
    assert "lm_head" not in names

    learner = Learner(model, LearnerSettings(learning_rate=0.05), adapter="solver")
    ids = tuple(IDS[0].tolist())
    ones = (1.0,) * len(ids)
    before = logits_of(model)
    learner.step([Sample(ids[:length], (False, *[True] * (length - 1)), ones, ones) for length in (20, 20, 7)])
    adapted = logits_of(model.eval())
    assert (adapted - before).abs().max() > 0.01

    copied = tiny.model(family)
    copy_weights(model, copied, "solver")
    save_weights(model, tmp_path / "adapter", "solver")
    merged = load_model(resolve_model(f"{tmp_path / 'adapter'}@{tmp_path / 'base'}"), "cpu", "float32")
    for found in (copied, merged):
        assert torch.allclose(logits_of(found), adapted, atol=1e-3)
