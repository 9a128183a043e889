"""Weights on their way to bfloat16: right on average, the same bits whenever and wherever, exact numbers left alone."""

import copy
import math
from hashlib import blake2s

import pytest
import torch

import tiny
from quaere.policies.native.bridge import load_model, merge_products
from quaere.policies.native.weights import copy_rounded, round_weights
from quaere.training.actors import copy_weights

NAME = "model.layers.0.mlp.up_proj.weight"


def rounded(source, name=NAME, **options):
    target = torch.empty(source.shape, dtype=torch.bfloat16, device=source.device)
    copy_rounded(target, source, name, **options)
    return target


def floats(*words):
    """float32 numbers by their bits."""
    signed = [(word + 2**31) % 2**32 - 2**31 for word in words]
    return torch.tensor(signed, dtype=torch.int32).view(torch.float32)


def bits(numbers):
    return [word % 2**16 for word in numbers.view(torch.int16).tolist()]


def by_hand(name, place):
    """The hash of a place in plain integers: two rounds of xor-shift and multiply, then the upper half."""

    def signed(number):
        return (number + 2**31) % 2**32 - 2**31

    key = int.from_bytes(blake2s(name.encode(), digest_size=4).digest(), "little")
    word = signed(key + place * 0x9E3779B1)
    for factor in (0x85EBCA6B, 0xC2B2AE35):
        word = signed((word ^ (word >> 15)) * factor)
    return (word >> 16) & 0xFFFF


def noise(count, seed=0):
    """Numbers as in a model, with signs and sizes of all kinds."""
    torch.manual_seed(seed)
    return torch.randn(count) * torch.exp(3 * torch.randn(count))


def test_a_quarter_of_the_way_up_goes_up_where_the_hash_says_so():
    # 0x3F80 is 1 and 0x3F81 the next number; 0x3F804000 lies a quarter above 1.
    hashes = [by_hand(NAME, place) for place in range(300)]
    expected = [0x3F81 if hash_ + 0x4000 >= 0x10000 else 0x3F80 for hash_ in hashes]
    assert set(expected) == {0x3F80, 0x3F81}
    assert bits(rounded(floats(0x3F804000).expand(300))) == expected
    # The sign plays no part, and from just below 2 a number goes up to 2, where the exponent is another.
    assert bits(rounded(floats(0xBF804000).expand(300))) == [word | 0x8000 for word in expected]
    edge = [0x4000 if hash_ + 0xFFFF >= 0x10000 else 0x3FFF for hash_ in hashes]
    assert bits(rounded(floats(0x3FFFFFFF).expand(300))) == edge


def test_the_hash_stays_what_it_is():
    """Another one would give a run that is resumed another sampler."""
    hashes = [29662, 55440, 25579, 58205]
    assert [by_hand("w", place) for place in range(4)] == hashes
    # A number goes up if what lies above the lower neighbour, in 65536ths, and the hash come to 65536.
    enough = floats(*(0x3F800000 + 65536 - hash_ for hash_ in hashes))
    assert bits(rounded(enough, "w")) == [0x3F81] * 4
    assert bits(rounded(torch.nextafter(enough, torch.ones(())), "w")) == [0x3F80] * 4


def test_what_bfloat16_can_hold_stays_itself():
    every = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    exact = every[~every.isnan()]  # all of them: zeros, the smallest, the infinities
    assert torch.equal(rounded(exact.float()).view(torch.int16), exact.view(torch.int16))


def test_what_is_not_a_number_stays_none_and_spoils_nobody():
    source = noise(4000)
    expected = rounded(source)
    # Those a CPU and a GPU make, and some whose upper half alone would be an infinity.
    strange = floats(0x7FC00000, 0xFFC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0xFF800001)
    places = torch.arange(7, 7 + 600 * len(strange), 600)
    source[places] = strange
    source[5], source[6] = math.inf, -math.inf
    found = rounded(source)
    assert found[places].isnan().all()
    assert (found[5], found[6]) == (math.inf, -math.inf)
    others = torch.ones(4000, dtype=torch.bool)
    others[places] = others[5] = others[6] = False
    assert torch.equal(found[others], expected[others])


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.9])
def test_it_is_right_on_average(share):
    count = 1_000_000
    source = floats(0x3F800000 + round(share * 0x10000)).expand(count)
    ups = (rounded(source).float() > source).double().mean().item()
    assert abs(ups - round(share * 0x10000) / 0x10000) < 4 * math.sqrt(share * (1 - share) / count)


@pytest.mark.parametrize("width", [64, 576, 1536])
def test_rows_and_columns_are_right_on_average_too(width):
    """No pattern along a matrix: sums over a row, or a column, stray as those of independent numbers would."""
    errors = (rounded(floats(0x3F808000).expand(width * 1000)).double() - (1 + 2**-8)) / 2**-8
    for sums in (errors.view(-1, width).sum(1) / math.sqrt(width), errors.view(-1, width).sum(0) / math.sqrt(1000)):
        assert abs(sums.mean()) < 4 / math.sqrt(len(sums))
        assert abs(sums.var() - 1) < 5 * math.sqrt(2 / len(sums))


def test_neighbours_are_rounded_independently():
    errors = rounded(floats(0x3F808000).expand(400_000)).double() - (1 + 2**-8)
    for lag in (1, 2, 3, 64, 576, 1536, 4096):
        together = (errors[:-lag] * errors[lag:]).mean() / errors.square().mean()
        assert abs(together) < 5 / math.sqrt(len(errors) - lag)


@pytest.mark.parametrize("chunk", [1, 7, 64, 839, 840, 10_000])
def test_chunks_change_nothing(chunk):
    source = noise(840)
    assert torch.equal(rounded(source, chunk=chunk), rounded(source))


def test_the_place_counts_and_not_how_the_memory_lies():
    source = noise(24 * 35)
    expected = rounded(source).view(24, 35)
    matrix = source.view(24, 35)
    assert torch.equal(rounded(matrix), expected)
    assert torch.equal(rounded(matrix.t().contiguous().t()), expected)
    turned = torch.empty(35, 24, dtype=torch.bfloat16).t()
    copy_rounded(turned, matrix, NAME)
    assert torch.equal(turned, expected)
    whole = torch.zeros(30, 35, dtype=torch.bfloat16)
    copy_rounded(whole[3:27], matrix, NAME)
    assert torch.equal(whole[3:27], expected)
    assert not whole[:3].any() and not whole[27:].any()


def test_other_names_round_otherwise():
    source = noise(10_000)
    first, second = rounded(source, "a.weight"), rounded(source, "b.weight")
    # Half of all pairs of draws on a uniform place differ by a third: 2 p (1 - p) on average.
    assert (first != second).double().mean().item() == pytest.approx(1 / 3, abs=0.03)


def test_other_precisions_are_copied():
    source = noise(1000)
    exact, half = torch.empty(1000), torch.empty(1000, dtype=torch.float16)
    copy_rounded(exact, source, NAME)
    copy_rounded(half, source, NAME)
    assert torch.equal(exact, source)
    assert torch.equal(half, source.half())


def test_a_small_change_of_many_weights_arrives():
    """Every weight is raised by a tenth of what bfloat16 can tell apart; to the nearest, nothing would happen."""
    base = noise(500_000).bfloat16().float()
    step = 0.1 * (torch.nextafter(base.abs().bfloat16(), torch.tensor(math.inf).bfloat16()).float() - base.abs())
    changed = base + step * base.sign()
    assert torch.equal(changed.bfloat16().float(), base)
    arrived = ((rounded(changed).float() - base) * base.sign() / step).double().mean().item()
    # One in ten moves, by ten steps: the variance of one is 9.
    assert arrived == pytest.approx(1, abs=4 * 3 / math.sqrt(len(base)))


def test_a_model_is_rounded_by_the_names_of_its_weights(tmp_path):
    """Whether it is copied, loaded, turned in place, or its products are merged; ties stay ties."""
    model = tiny.model("qwen2")
    expected = {name: rounded(weight, name) for name, weight in model.named_parameters()}
    model.save_pretrained(tmp_path)
    copied = copy.deepcopy(model).bfloat16()
    merge_products(copied)
    places = [weight.data_ptr() for weight in copied.parameters()]
    copy_weights(model, copied)
    assert [weight.data_ptr() for weight in copied.parameters()] == places
    turned = round_weights(copy.deepcopy(model), torch.bfloat16)
    for made in (copied, load_model(str(tmp_path), "cpu", "bfloat16"), turned):
        assert made.lm_head.weight is made.model.embed_tokens.weight
        found = dict(made.named_parameters())
        assert list(found) == list(expected)
        assert all(torch.equal(found[name], weight) for name, weight in expected.items())


def test_a_model_that_is_stored_in_bfloat16_is_loaded_as_it_is(tmp_path):
    model = tiny.model("qwen2").bfloat16()
    model.save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path), "cpu", "bfloat16")
    assert all(torch.equal(*pair) for pair in zip(loaded.parameters(), model.parameters(), strict=True))
    exact = load_model(str(tmp_path), "cpu", "float32")
    assert {weight.dtype for weight in exact.parameters()} == {torch.float32}
