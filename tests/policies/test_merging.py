"""Layers that multiply the same states as one product say what they said before."""

import copy
import weakref

import pytest
import torch
from torch.nn import Linear

import tiny
from quaere.policies.native.attention import DecodePass, PrefillPass
from quaere.policies.native.bridge import forward, merge_products, use_packed_attention
from quaere.policies.native.kv_cache import KVStorage, Span
from quaere.policies.native.weights import merge, prepare_products, use_int8
from quaere.training.actors import copy_weights

FAMILIES = ["llama", "qwen2", "qwen3", "gemma2", "gemma3", "mistral"]
IDS = torch.arange(7, 37)[None]


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def same(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def packed_logits(model):
    """Two contexts of different length in one pass, then one more token of each."""
    storage, cpu = KVStorage(), torch.device("cpu")
    storage.reserve(3, 40, {})
    where = PrefillPass(storage, [Span(0, 0, 20, 0), Span(2, 0, 10, 20)], cpu)
    prefilled = forward(model, where, IDS[0], where.positions)
    positions = torch.tensor([20, 10])
    decoded = forward(model, DecodePass(storage, torch.tensor([0, 2]), positions), torch.tensor([5, 6]), positions)
    return torch.cat([prefilled, decoded])


def layers(*sizes, width=12, bias=True):
    torch.manual_seed(0)
    return [Linear(width, size, bias=bias) for size in sizes]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_merged_model_says_the_same(family):
    model = tiny.model(family)
    expected = model(IDS).logits
    assert merge_products(model) == 4  # two in each of two layers
    same(model(IDS).logits, expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_merged_model_says_the_same_of_packed_tokens(family):
    model = use_packed_attention(tiny.model(family))
    expected = packed_logits(model)
    assert merge_products(model) == 4
    same(packed_logits(model), expected)


@pytest.mark.parametrize(("family", "num_products"), [("llama", 2 + 2), ("gemma2", 2 + 2), ("qwen2", 2 + 2)])
def test_a_layer_is_four_products_instead_of_seven(family, num_products, monkeypatch):
    model = tiny.model(family, num_hidden_layers=1)
    merge_products(model)
    seen = []
    plain = torch.nn.functional.linear

    def counted(states, weight, bias=None):
        seen.append(weight.shape)
        return plain(states, weight, bias)

    monkeypatch.setattr("quaere.policies.native.weights.linear", counted)
    monkeypatch.setattr(torch.nn.functional, "linear", counted)
    model.model(IDS)
    assert len(seen) == num_products


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_new_weights_are_followed(family):
    model, other = tiny.model(family), tiny.model(family, seed=1)
    merge_products(model)
    places = [weight.data_ptr() for weight in model.parameters()]
    assert not torch.allclose(model(IDS).logits, other(IDS).logits, atol=0.1)
    copy_weights(other, model)
    same(model(IDS).logits, other(IDS).logits)
    assert [weight.data_ptr() for weight in model.parameters()] == places


def test_names_shapes_and_values_stay():
    model = tiny.model("qwen2")
    before = copy.deepcopy(model.state_dict())
    merge_products(model)
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    tiny.model("qwen2", seed=1).load_state_dict(after)


def test_weights_are_held_once():
    model = tiny.model("qwen2")
    attention, mlp = model.model.layers[0].self_attn, model.model.layers[0].mlp
    merge_products(model)
    for tied in ([attention.q_proj, attention.k_proj, attention.v_proj], [mlp.gate_proj, mlp.up_proj]):
        storages = [layer.weight.untyped_storage() for layer in tied]
        assert len({storage.data_ptr() for storage in storages}) == 1
        assert storages[0].nbytes() == sum(layer.weight.numel() * 4 for layer in tied)
    biases = {layer.bias.untyped_storage().data_ptr() for layer in (attention.q_proj, attention.k_proj)}
    assert len(biases) == 1


def test_other_states_are_never_taken_for_these():
    first, second, third = group = layers(4, 6, 8)
    plain = copy.deepcopy(group)
    assert merge(group)
    states, others = torch.randn(2, 3, 12), torch.randn(2, 3, 12)
    same(first(states), plain[0](states))
    same(second(others), plain[1](others))
    same(third(states.clone()), plain[2](states))
    for order in ([0, 1, 2], [2, 0, 1], [1, 1, 0], [0, 0, 0]):
        for number in order:
            same(group[number](states), plain[number](states))


def test_what_is_handed_out_may_be_written_to():
    group = layers(4, 6, bias=False)
    plain = copy.deepcopy(group)
    merge(group)
    states = torch.randn(1, 3, 12)
    group[0](states).zero_()
    group[1](states).zero_()
    same(group[0](states), plain[0](states))
    same(group[1](states), plain[1](states))


def test_nothing_is_kept_once_all_have_taken_theirs():
    group = layers(4, 6, 8)
    merge(group)
    states = torch.randn(1, 3, 12)
    alive = weakref.ref(states)
    outputs = [layer(states) for layer in group]
    whole = weakref.ref(outputs[0]._base)
    assert whole() is not None
    del states, outputs
    assert alive() is None
    assert whole() is None


def test_a_merged_model_may_be_moved_and_copied():
    model = tiny.model("llama")
    expected = model(IDS).logits
    merge_products(model)
    copied = copy.deepcopy(model)
    for weight in model.parameters():
        weight.zero_()
    same(copied(IDS).logits, expected)
    same(copied.double()(IDS).logits.float(), expected)
    copied.model.layers[0].mlp.up_proj.weight.zero_()
    assert not torch.allclose(copied(IDS).logits.float(), expected, atol=1e-2)


def test_merging_twice_moves_nothing():
    model = tiny.model("llama")
    merge_products(model)
    places = [weight.data_ptr() for weight in model.parameters()]
    assert merge_products(model) == 0
    assert [weight.data_ptr() for weight in model.parameters()] == places


def test_what_does_not_belong_together_stays_apart():
    class Own(Linear):
        pass

    assert not merge([*layers(4), *layers(6, width=10)])
    assert not merge([*layers(4), *layers(6, bias=False)])
    assert not merge([*layers(4), layers(6)[0].bfloat16()])
    assert not merge([*layers(4), Own(12, 6)])
    assert not merge([*layers(4), None])
    assert not merge(layers(4) * 2)
    assert merge_products(tiny.model("gpt2")) == 0
    in_bytes = tiny.model("llama")
    prepare_products(use_int8(in_bytes))
    assert merge_products(in_bytes) == 0
