"""Weights in eight bits: what is rounded away, and that products come to about the same."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quaere.policies.native.weights import GROUP, Bytes, Halves, has_halves, pack, pack_bytes, pack_halves, split_groups

needs_halves = pytest.mark.skipif(not has_halves(), reason="KleidiAI's kernels are for aarch64")


def test_a_row_worked_out_by_hand():
    packed = pack_bytes(torch.tensor([[0.5, -127.0, 64.4], [0.0, 0.0, 0.0]]))
    assert packed.values.tolist() == [[0, -127, 64], [0, 0, 0]]  # 0.5 / 1 rounds to even
    assert packed.scales.tolist()[0] == 1.0


@given(st.integers(0, 2**32 - 1), st.floats(1e-4, 1e4))
def test_no_weight_is_off_by_more_than_its_rows_share(seed, size):
    weight = torch.randn(5, 32, generator=torch.Generator().manual_seed(seed)) * size
    packed = pack_bytes(weight)
    apart = (packed.values * packed.scales.float()[:, None] - weight).abs().amax(1)
    # Half a step, and what the largest number loses where the scale was rounded down.
    assert (apart <= weight.abs().amax(1) * (0.5 / 127 + 2**-8) * 1.01).all()


@given(st.integers(0, 2**32 - 1), st.floats(1e-4, 1e4))
def test_no_weight_is_off_by_more_than_its_groups_share(seed, size):
    weight = torch.randn(5, 2 * GROUP, generator=torch.Generator().manual_seed(seed)) * size
    weight[0, :GROUP] *= 1000  # a large group does not spoil its neighbour
    values, scales = split_groups(weight)
    restored = values.unflatten(1, (-1, GROUP)) * scales.float()[:, :, None]
    grouped = weight.unflatten(1, (-1, GROUP))
    assert ((restored - grouped).abs().amax(2) <= grouped.abs().amax(2) * (0.5 / 119 + 2**-8) * 1.01).all()


@needs_halves
def test_halves_multiply_whole_numbers_exactly():
    """Every byte from -119 to 119, and states that eight bits hold exactly: the two halves are put together rightly."""
    numbers = torch.arange(-119, 121).float().clamp(max=119).view(-1, 1).repeat(1, GROUP)
    weight = torch.where(torch.arange(GROUP) % 2 == 0, numbers, -numbers)
    weight[:, 0] = 119.0  # so that the scale of every group is 1
    states = torch.zeros(1, GROUP)
    states[0, 0], states[0, 5], states[0, 8] = 127.0, -128.0, 64.0
    found = pack_halves(weight).product(states)
    torch.testing.assert_close(found, states @ weight.t(), rtol=0, atol=0.5)


@pytest.mark.parametrize("rows", [1, 3, 6])
@pytest.mark.parametrize("form", [pack_bytes, pytest.param(pack_halves, marks=needs_halves)])
@pytest.mark.parametrize("num_outputs", [96, 101])
def test_products_come_to_about_the_same(rows, form, num_outputs):
    torch.manual_seed(rows)
    weight, states = torch.randn(num_outputs, 128), torch.randn(rows, 128)
    packed, expected = form(weight), states @ weight.t()
    found = packed.product(states)
    assert 0 < float((found - expected).norm() / expected.norm()) < 0.02
    repeated = packed.repeated_product(states.repeat(1, packed.copies))
    torch.testing.assert_close(repeated, found, rtol=0, atol=0)


def test_the_form_fits_processor_and_width():
    assert isinstance(pack(torch.ones(4, GROUP)), Halves if has_halves() else Bytes)
    assert isinstance(pack(torch.ones(4, GROUP + 1)), Bytes)
