import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quaere.policies.native.decoder import how_to_draw, pick_tokens, signed, uniforms
from quaere.policies.sampler import SamplingParams


def pick(logits, params, numbers):
    tokens, logprobs = pick_tokens(
        logits,
        how_to_draw(params),
        torch.tensor([param.temperature for param in params]),
        torch.tensor([param.top_k for param in params]),
        torch.tensor([param.top_p for param in params], dtype=torch.float64),
        torch.tensor(numbers, dtype=torch.float64),
    )
    return tokens.tolist(), logprobs.tolist()


def draw(logits, count=4000, **params):
    rows = torch.tensor([logits]).expand(count, -1)
    numbers = uniforms(torch.full((count,), 11), torch.arange(count)).tolist()
    tokens, _ = pick(rows, [SamplingParams(**params)] * count, numbers)
    return torch.bincount(torch.tensor(tokens), minlength=len(logits)) / count


def test_uniform_numbers_are_reproducible_spread_and_in_range():
    seeds, indices = torch.arange(40).repeat_interleave(100), torch.arange(100).repeat(40)
    numbers = uniforms(seeds, indices).tolist()
    assert numbers == uniforms(seeds, indices).tolist()
    assert len(set(numbers)) == len(numbers)
    assert min(numbers) >= 0 and max(numbers) < 1
    # Mean and a chi-square over 10 bins: far outside these bounds only if the mixing is broken.
    assert abs(sum(numbers) / len(numbers) - 0.5) < 0.02
    counts = torch.histc(torch.tensor(numbers), bins=10, min=0, max=1)
    assert ((counts - 400) ** 2 / 400).sum() < 30


def splitmix(seed, index):
    """The same numbers by plain integers of any size."""
    mask = (1 << 64) - 1
    state = (seed * 0x9E3779B97F4A7C15 + (index + 1) * 0xD1B54A32D192ED03) & mask
    for _ in range(2):
        state = (state + 0x9E3779B97F4A7C15) & mask
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
        state ^= state >> 31
    return (state >> 11) / (1 << 53)


@given(st.integers(0, (1 << 64) - 1), st.integers(0, 1 << 20))
def test_tensor_arithmetic_wraps_as_64_bits_do(seed, index):
    found = uniforms(torch.tensor([signed(seed)]), torch.tensor([index]))
    assert float(found) == splitmix(seed, index)


def test_uniform_numbers_of_many_rows_at_once():
    seeds, indices = torch.arange(50) * 7919, torch.arange(50) * 3
    expected = [splitmix(seed, index) for seed, index in zip(seeds.tolist(), indices.tolist(), strict=True)]
    assert uniforms(seeds, indices).tolist() == expected


def test_greedy_and_its_logprob():
    tokens, logprobs = pick(torch.tensor([[0.0, 2.0]]), [SamplingParams(temperature=0)], [0.99])
    assert tokens == [1]
    assert logprobs[0] == pytest.approx(-math.log(1 + math.exp(-2)))


def test_frequencies_follow_the_softmax():
    logits = [0.0, 1.0, 2.0]
    torch.testing.assert_close(draw(logits), torch.tensor(logits).softmax(0), atol=0.03, rtol=0)


def test_temperature_sharpens():
    torch.testing.assert_close(
        draw([0.0, 1.0, 2.0], temperature=0.5), torch.tensor([0.0, 2.0, 4.0]).softmax(0), atol=0.03, rtol=0
    )
    assert draw([0.0, 1.0, 2.0], temperature=1e-9)[2] == 1


def test_top_k_and_top_p_cut_and_renormalise():
    logits = [math.log(p) for p in (0.5, 0.3, 0.15, 0.05)]
    torch.testing.assert_close(draw(logits, top_k=2), torch.tensor([0.625, 0.375, 0, 0]), atol=0.03, rtol=0)
    torch.testing.assert_close(draw(logits, top_p=0.75), torch.tensor([0.625, 0.375, 0, 0]), atol=0.03, rtol=0)
    assert draw(logits, top_p=0.1)[0] == 1
    assert draw(logits, top_k=100)[3] > 0
    assert draw([0.5, 1.0, 0.0], top_k=1, count=200).tolist() == [0, 1, 0]


def test_rows_with_different_settings_do_not_mix():
    logits = torch.randn(6, 50, generator=torch.Generator().manual_seed(0))
    params = [
        SamplingParams(temperature=0),
        SamplingParams(top_k=3),
        SamplingParams(top_p=0.5),
        SamplingParams(temperature=2.0),
        SamplingParams(top_k=5, top_p=0.4, temperature=0.7),
        SamplingParams(),
    ]
    numbers = [0.1, 0.5, 0.9, 0.3, 0.7, 0.2]
    together = pick(logits, params, numbers)
    for row in range(6):
        alone = pick(logits[row : row + 1], [params[row]], [numbers[row]])
        assert (together[0][row], pytest.approx(together[1][row])) == (alone[0][0], alone[1][0])


@given(
    st.lists(st.floats(-30, 30), min_size=1, max_size=20),
    st.floats(0, 1, exclude_max=True),
    st.floats(0.05, 3),
    st.floats(0.01, 1),
    st.integers(0, 25),
)
def test_a_picked_token_is_never_one_that_was_cut(logits, number, temperature, top_p, top_k):
    row = torch.tensor([logits], dtype=torch.float32)
    params = SamplingParams(temperature=temperature, top_p=top_p, top_k=top_k)
    (token,), (logprob,) = pick(row, [params], [number])
    scaled = row[0] / torch.tensor(temperature)  # logits that differ in the last bit may tie once they are divided
    above = scaled > scaled[token]
    assert top_k == 0 or above.sum() < top_k
    mass_above = scaled.double().softmax(0)[above].sum()
    assert top_p == 1 or mass_above < top_p + 1e-6
    assert logprob == pytest.approx(torch.log_softmax(row[0], 0)[token].item(), abs=1e-5)
