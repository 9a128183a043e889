"""Products with int8 weights: when they are used, and that they follow the weights."""

import os

import pytest
import torch

import tiny
from quaere.errors import BadInput, ModelMissing
from quaere.policies.native.bridge import load_model, use_packed_attention
from quaere.policies.native.engine import Engine, Request
from quaere.policies.native.weights import INT8_ROWS, SMALL, decodes_in_int8, prepare_products, use_int8
from quaere.policies.sampler import SamplingParams

TOKENIZER = tiny.tokenizer()


@pytest.mark.parametrize("rows", [1, 6, 7, 24, 60])
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_says_about_the_same(rows, bias):
    torch.manual_seed(rows)
    layer, states = torch.nn.Linear(64, 96, bias=bias), torch.randn(1, rows, 64)
    expected = layer(states).detach()
    prepare_products(use_int8(layer))
    with torch.no_grad():
        found = layer(states)
    apart = float((found - expected).norm() / expected.norm())
    if rows in INT8_ROWS:
        assert 0 < apart < 0.02
    else:
        assert apart < 1e-6  # a prompt is read with the whole weights


@pytest.mark.parametrize("num_outputs", [48, 300])
@pytest.mark.parametrize("rows", [4, 9, 48, 49])
def test_small_and_large_products_are_those_of_the_layer(rows, num_outputs):
    """Of the widths, one is small at every number of rows here and the other at the fewest alone."""
    torch.manual_seed(rows)
    layer, states = torch.nn.Linear(800, num_outputs), torch.randn(1, rows, 800)
    is_small = [count * layer.weight.numel() < SMALL for count in (4, 9)]
    assert is_small == ([True, True] if num_outputs == 48 else [True, False])
    expected = layer(states).detach()
    prepare_products(layer)
    with torch.no_grad():
        found = layer(states)
    assert float((found - expected).norm() / expected.norm()) < 1e-6


def sample(model, **options):
    engine = Engine(use_packed_attention(model), TOKENIZER.decode, max_rows=2)
    request = Request("a", list(range(5, 25)), SamplingParams(max_tokens=12, **options))
    engine.add(request)
    while engine.busy:
        engine.step()
    return engine, request


def test_log_probs_are_close_to_those_of_whole_weights():
    model = tiny.model("qwen2", seed=3)
    use_int8(model)
    request = sample(model, seed=5)[1]
    sampled = request.sampled()
    whole = Engine(use_packed_attention(tiny.model("qwen2", seed=3)), TOKENIZER.decode).score_many([request.tokens])[0][
        20:
    ]
    apart = [abs(ours - theirs) for ours, theirs in zip(sampled.logprobs, whole, strict=True)]
    assert 0 < max(apart) < 0.1


def test_new_weights_are_packed_anew():
    model = tiny.model("llama", seed=1)
    use_int8(model)
    engine, _ = sample(model, temperature=0.0)
    with torch.no_grad():
        for old, new in zip(model.parameters(), tiny.model("llama", seed=2).parameters(), strict=True):
            old.copy_(new)
    engine.forget()
    fresh = tiny.model("llama", seed=2)
    use_int8(fresh)
    again = Request("b", list(range(5, 25)), SamplingParams(max_tokens=12, temperature=0.0))
    engine.add(again)
    while engine.busy:
        engine.step()
    assert again.sampled() == sample(fresh, temperature=0.0)[1].sampled()


def test_weights_that_changed_before_sampling_began_count():
    """A role's adapter is added to its base after loading and before there is an engine."""
    model, fresh = tiny.model("llama", seed=1), tiny.model("llama", seed=2)
    use_int8(model)
    with torch.no_grad():
        for old, new in zip(model.parameters(), fresh.parameters(), strict=True):
            old.copy_(new)
    use_int8(fresh)
    assert sample(model, temperature=0.0)[1].sampled() == sample(fresh, temperature=0.0)[1].sampled()


def test_it_is_loaded_by_its_name_and_refused_on_a_gpu(tmp_path):
    tiny.model("llama").save_pretrained(tmp_path)
    assert decodes_in_int8(load_model(str(tmp_path), "cpu", "int8"))
    assert not decodes_in_int8(load_model(str(tmp_path), "cpu", "float32"))
    with pytest.raises(BadInput, match="int8 works only on a CPU"):
        load_model(str(tmp_path), "cuda", "int8")


def test_threads_that_wait_leave_the_cores_to_others_unless_told_otherwise(tmp_path, monkeypatch):
    for given, used in (("active", "active"), (None, "passive")):
        monkeypatch.setenv("OMP_WAIT_POLICY", given) if given else monkeypatch.delenv("OMP_WAIT_POLICY")
        with pytest.raises(ModelMissing):  # there is none in this folder
            load_model(str(tmp_path), "cpu", "float32")
        assert os.environ["OMP_WAIT_POLICY"] == used
