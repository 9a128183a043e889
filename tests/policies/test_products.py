"""Weights as bytes: what is rounded away, when they are used, and that they follow the weights."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tiny
from quaere.errors import BadInput
from quaere.policies.native.bridge import load_model, use_packed_attention
from quaere.policies.native.cpu_matmul import INT8_ROWS, decodes_in_int8, pack, use_int8
from quaere.policies.native.engine import Engine, Request
from quaere.policies.sampler import SamplingParams

TOKENIZER = tiny.tokenizer()


def test_a_row_worked_out_by_hand():
    packed = pack(torch.tensor([[0.5, -127.0, 64.4], [0.0, 0.0, 0.0]]))
    assert packed.values.tolist() == [[0, -127, 64], [0, 0, 0]]  # 0.5 / 1 rounds to even
    assert packed.scales.tolist()[0] == 1.0


@given(st.integers(0, 2**32 - 1), st.floats(1e-4, 1e4))
def test_no_weight_is_off_by_more_than_its_rows_share(seed, size):
    weight = torch.randn(5, 32, generator=torch.Generator().manual_seed(seed)) * size
    packed = pack(weight)
    apart = (packed.values * packed.scales.float()[:, None] - weight).abs().amax(1)
    # Half a step, and what the largest number loses where the scale was rounded down.
    assert (apart <= weight.abs().amax(1) * (0.5 / 127 + 2**-8) * 1.01).all()


@pytest.mark.parametrize("rows", [1, 6, 7, 60])
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_says_about_the_same(rows, bias):
    torch.manual_seed(rows)
    layer, states = torch.nn.Linear(64, 96, bias=bias), torch.randn(1, rows, 64)
    expected = layer(states).detach()
    assert use_int8(layer) == 1
    with torch.no_grad():
        found = layer(states)
    apart = float((found - expected).norm() / expected.norm())
    if rows in INT8_ROWS:
        assert 0 < apart < 0.02
    else:
        assert apart < 1e-6  # a prompt is read with the whole weights


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
    whole = Engine(use_packed_attention(tiny.model("qwen2", seed=3)), TOKENIZER.decode).score(request.tokens)[20:]
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
