"""The table of slots and the storage behind it: what is said to be stored is what was stored."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from properties import examples
from quaere.policies.native.kv_cache import STRIDE, KVStorage, SlotTable


def test_nothing_is_kept_of_a_session_whose_context_changed():
    table = SlotTable(2)
    taken = table.take("a", [1] * 40)
    taken.slot.num_stored = 40
    table.rest(taken.slot)
    again = table.take("a", [1] * 20 + [2] * 20)
    assert again.slot is taken.slot
    assert again.slot.num_stored == 20


def test_a_context_without_a_session_is_kept_for_nobody():
    table = SlotTable(2)
    taken = table.take("", [1] * 40)
    taken.slot.num_stored = 40
    table.rest(taken.slot)
    assert table.stored() == {}
    assert table.take("a", [1] * 40).donor is None


def test_without_reuse_a_session_finds_nothing_of_its_last_turn():
    table = SlotTable(1, reuse=False)
    taken = table.take("a", [1] * 40)
    taken.slot.num_stored = 40
    table.rest(taken.slot)
    assert table.stored() == {}
    assert table.take("a", [1] * 60).slot.num_stored == 0


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 3), st.integers(1, 50), st.booleans()), max_size=30)
)
def test_what_a_slot_claims_to_hold_is_what_was_stored_there(steps):
    table, memory = SlotTable(3), {}
    for session, kind, length, ends in steps:
        tokens = [kind] * (length // 2) + [kind + 10] * (length - length // 2)
        taken = table.take(session, tokens)
        stored = memory.setdefault(taken.slot.number, {})
        if taken.donor is not None:
            donor = memory[taken.donor.number]
            stored |= {place: donor[place] for place in range(taken.num_shared)}
            taken.slot.num_stored = taken.num_shared
        assert taken.slot.num_stored < len(tokens)
        assert [stored[place] for place in range(taken.slot.num_stored)] == tokens[: taken.slot.num_stored]
        stored |= dict(enumerate(tokens))
        taken.slot.num_stored = len(tokens)
        table.rest(taken.slot)
        if ends:
            table.end(session)
            assert not [slot for slot in table.slots if slot.session == session]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_was_never_written_is_zero(dtype):
    storage = KVStorage()
    storage.reserve(3, 10, {})
    key = torch.ones(1, 2, 4, 8, dtype=dtype)
    keys, values = storage.write(0, key, key, torch.tensor([1, 1, 1, 1]), torch.arange(4))
    assert (keys.dtype, keys.shape) == (dtype, (3, 2, STRIDE, 8))
    assert keys.sum() == values.sum() == key.sum()
    storage.reserve(3, STRIDE + 1, {1: 3})
    keys, _ = storage.layers[0]
    assert keys.shape[2] == 2 * STRIDE
    assert keys.sum() == key[:, :, :3].sum()
