"""Attention over slots on a CPU, and that of models in training where it is called without a packing."""

import pytest
import torch

import tiny
from quaere.policies.native.attention import DecodePass, Kind, _SideBySide, varlen_attention
from quaere.policies.native.bridge import use_varlen_attention
from quaere.policies.native.kv_cache import KVStorage


def test_scores_are_divided_by_the_root_of_the_heads_size_unless_the_model_says_otherwise():
    assert Kind.read(64, {}) == Kind(scale=0.125)
    assert Kind.read(64, {"scaling": 0.5}).scale == 0.5


def randn(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("window", [None, 1, 4, 20])
def test_slots_side_by_side_see_what_each_sees_alone(window):
    """Four query heads share two key heads; slot 1 does not decode."""
    slots, positions = torch.tensor([2, 0, 3]), torch.tensor([9, 7, 8])
    storage = KVStorage()
    storage.reserve(4, 16, {})
    written = [torch.arange(4).repeat_interleave(16), torch.arange(16).repeat(4)]
    storage.write(0, randn(1, 2, 64, 8, seed=0), randn(1, 2, 64, 8, seed=1), *written)
    query, key, value = randn(1, 4, 3, 8, seed=2), randn(1, 2, 3, 8, seed=3), randn(1, 2, 3, 8, seed=4)
    where = DecodePass(storage, slots, positions)
    assert where._side_by_side is not None
    found = where.attend(0, query, key, value, Kind(0.3, window))
    keys, values = storage.layers[0]
    for row, (slot, position) in enumerate(zip(slots.tolist(), positions.tolist(), strict=True)):
        seen = slice(max(0, position + 1 - (window or 99)), position + 1)
        for head in range(4):
            weights = (keys[slot, head // 2, seen] @ query[0, head, row] * 0.3).softmax(0)
            torch.testing.assert_close(found[0, row, head], weights @ values[slot, head // 2, seen])


@pytest.mark.parametrize(
    ("slots", "positions", "is_batch"),
    [
        ([0, 1, 2], [9, 9, 9], True),  # 30 keys, all of them asked for
        ([0, 2], [9, 9], True),  # 30 keys for 20
        ([0, 3], [9, 9], False),  # 40 keys for 20: two slots between them do not decode
        ([0, 1], [9, 99], False),  # 200 keys for 110
        ([4], [9], False),  # nothing to batch
    ],
)
def test_slots_are_one_batch_where_at_most_half_as_many_keys_again_are_read(slots, positions, is_batch):
    assert (_SideBySide.of(torch.tensor(slots), torch.tensor(positions)) is not None) == is_batch


def test_in_a_model_to_train_too_a_new_token_sees_all_that_came_before():
    """As when it writes with transformers' own KV cache: one query, five keys, no mask."""
    query, key, value = randn(1, 4, 1, 8, seed=0), randn(1, 2, 5, 8, seed=1), randn(1, 2, 5, 8, seed=2)
    found, _ = varlen_attention(None, query, key, value, None, scaling=0.3)
    for head in range(4):
        weights = (key[0, head // 2] @ query[0, head, 0] * 0.3).softmax(0)
        torch.testing.assert_close(found[0, 0, head], weights @ value[0, head // 2])


def test_no_model_is_trained_with_cudnns_attention():
    """Its gradients are not numbers for some lengths."""
    torch.backends.cuda.enable_cudnn_sdp(True)
    use_varlen_attention(tiny.model("llama"))
    assert not torch.backends.cuda.cudnn_sdp_enabled()
