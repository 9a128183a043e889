"""The GPU's attention kernels against plain attention.

On a machine without a GPU: `TRITON_INTERPRET=1 pytest tests/policies/test_kernels.py`, with triton installed. Then
every program of a kernel takes milliseconds, and fewer and smaller cases are tried.
"""

import os

import pytest
import torch

import tiny

pytest.importorskip("triton", reason="the kernels are Triton's: pip install triton")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("there is no CUDA device; TRITON_INTERPRET=1 runs the kernels on the CPU", allow_module_level=True)

from quaere.policies.native import fused, kernels
from quaere.policies.native.attention import Kind
from quaere.policies.native.bridge import fuse
from quaere.policies.native.decoder import pick_tokens
from quaere.policies.native.kv_cache import Span

HAS_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if HAS_GPU else "cpu")


def plain(query, key, value, start, scale, window, softcap, sinks=None):
    """`(heads, queries, dim)` over `(key heads, keys, dim)`, one score at a time in float64."""
    groups = query.shape[0] // key.shape[0]
    key, value = key.repeat_interleave(groups, 0).double(), value.repeat_interleave(groups, 0).double()
    scores = query.double() @ key.transpose(1, 2) * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    rows = torch.arange(start, start + query.shape[1], device=DEVICE)[:, None]
    columns = torch.arange(key.shape[1], device=DEVICE)
    seen = columns <= rows
    if window:
        seen &= columns > rows - window
    scores = scores.masked_fill(~seen, float("-inf"))
    if sinks is not None:
        scores = torch.cat((scores, sinks.double()[:, None, None].expand(*scores.shape[:-1], 1)), -1)
    return (scores.softmax(-1)[..., : key.shape[1]] @ value).float()


def memory(slots, heads, capacity, dim, dtype, lengths=None):
    generator = torch.Generator().manual_seed(heads * capacity + dim)
    keys, values = (torch.randn(slots, heads, capacity, dim, generator=generator) for _ in range(2))
    for slot, length in (lengths or {}).items():  # beyond a slot's end there may be anything at all
        keys[slot, :, length:] = values[slot, :, length:] = float("nan")
    return keys.to(DEVICE, dtype), values.to(DEVICE, dtype)


SHAPES = [(9, 3, 64), (4, 4, 8), (6, 2, 24), (12, 2, 128)]
VARIANTS = [(None, None, False), (7, None, False), (70, None, False), (None, 5.0, False), (40, 5.0, False)]
VARIANTS += [(None, None, True), (7, None, True)]
ROWS = [1, 5]
if not HAS_GPU:
    SHAPES, ROWS = [(4, 2, 24)], [3]
    VARIANTS = [(None, None, False), (70, None, False), (40, 5.0, False), (7, None, True)]


@pytest.fixture
def _parts(monkeypatch):
    """Interpreted, three parts of the keys show as much as sixteen."""
    if not HAS_GPU:
        monkeypatch.setattr(kernels, "MAX_PARTS", 3)


def draw_sinks(heads):
    """A score for each head: some far below those of the keys, some far above."""
    return (4 * torch.randn(heads, generator=torch.Generator().manual_seed(heads))).to(DEVICE)


@pytest.mark.parametrize(("heads", "key_heads", "dim"), SHAPES)
@pytest.mark.parametrize(("window", "softcap", "has_sinks"), VARIANTS)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.usefixtures("_parts")
def test_decode(heads, key_heads, dim, window, softcap, has_sinks, rows):
    sinks = draw_sinks(heads) if has_sinks else None
    slots = torch.tensor([3, 0, 6, 2, 5][:rows], device=DEVICE)
    positions = torch.tensor([200, 0, 64, 255, 63][:rows], device=DEVICE)
    lengths = dict(zip(slots.tolist(), (positions + 1).tolist(), strict=True))
    keys, values = memory(7, key_heads, 256, dim, torch.float32, lengths)
    query = torch.randn(1, rows, heads, dim, generator=torch.Generator().manual_seed(1)).to(DEVICE).transpose(1, 2)
    found = kernels.decode_attention(query, keys, values, slots, positions, Kind(0.3, window, softcap, sinks=sinks))
    for row, (slot, position) in enumerate(zip(slots.tolist(), positions.tolist(), strict=True)):
        seen = slice(0, position + 1)
        expected = plain(
            query[0, :, row, None], keys[slot, :, seen], values[slot, :, seen], position, 0.3, window, softcap, sinks
        )
        torch.testing.assert_close(found[0, row], expected[:, 0], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(("heads", "key_heads", "dim"), SHAPES)
@pytest.mark.parametrize(("window", "softcap", "has_sinks"), VARIANTS)
def test_prefill(heads, key_heads, dim, window, softcap, has_sinks):
    sinks = draw_sinks(heads) if has_sinks else None
    spans = [Span(2, 0, 70, 0), Span(0, 100, 1, 70), Span(3, 60, 67, 71)]
    lengths = {span.slot: span.start + span.length for span in spans}
    keys, values = memory(4, key_heads, 256, dim, torch.float32, lengths)
    query = torch.randn(1, 138, heads, dim, generator=torch.Generator().manual_seed(1)).to(DEVICE).transpose(1, 2)
    found = kernels.prefill_attention(
        query, keys, values, kernels.query_blocks(spans, DEVICE), Kind(0.3, window, softcap, sinks=sinks)
    )
    for span in spans:
        seen = slice(0, span.start + span.length)
        chunk = query[0, :, span.offset : span.offset + span.length]
        expected = plain(
            chunk, keys[span.slot, :, seen], values[span.slot, :, seen], span.start, 0.3, window, softcap, sinks
        )
        result = found[0, span.offset : span.offset + span.length].transpose(0, 1)
        torch.testing.assert_close(result, expected, atol=2e-5, rtol=1e-4)


def test_few_rows_are_cut_into_parts():
    assert kernels.num_parts(768) == 1
    assert kernels.num_parts(60) == 4
    assert kernels.num_parts(6) == 16


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.usefixtures("_parts")
def test_more_memory_changes_no_bit(rows):
    keys, values = memory(7, 3, 1024, 64, torch.float32)
    slots, positions = torch.arange(rows, device=DEVICE), torch.full((rows,), 200, device=DEVICE)
    query = torch.randn(1, rows, 9, 64, generator=torch.Generator().manual_seed(1)).to(DEVICE).transpose(1, 2)
    small, large = (
        kernels.decode_attention(
            query, keys[:, :, :size].contiguous(), values[:, :, :size].contiguous(), slots, positions, Kind(0.3)
        )
        for size in (256, 1024)
    )
    assert torch.equal(small, large)


def randn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


@pytest.mark.parametrize("width", [8, 48, 576])
def test_norm(width):
    states, weight = randn(1, 5, width) * 3, randn(width, seed=1)
    expected = weight * (states * torch.rsqrt(states.square().mean(-1, keepdim=True) + 1e-5))
    torch.testing.assert_close(fused.rms_norm(states, weight, 1e-5), expected)


def test_norm_of_heads_in_a_slice_of_wider_rows():
    states, weight = randn(1, 5, 80)[..., 16:64].view(1, 5, 6, 8), randn(8, seed=1)
    assert torch.equal(fused.rms_norm(states, weight, 1e-5), fused.rms_norm(states.contiguous(), weight, 1e-5))
    swapped = states.transpose(1, 2)
    assert torch.equal(fused.rms_norm(swapped, weight, 1e-5), fused.rms_norm(swapped.contiguous(), weight, 1e-5))


@pytest.mark.parametrize("width", [5, 300, 512, 1300])
def test_gate(width):
    gate, up = randn(1, 7, width), randn(1, 7, width, seed=1)
    expected = torch.nn.functional.silu(gate) * up
    torch.testing.assert_close(fused.gated_silu(gate, up), expected)
    sliced = fused.gated_silu(*torch.cat([gate, up], -1).split(width, -1))
    torch.testing.assert_close(sliced, expected)
    assert sliced.is_contiguous()


def heads_of_a_projection(dim, is_merged):
    """Queries, keys and values as a model has them: 6, 2 and 2 heads of 5 tokens, perhaps slices of the same rows."""
    parts = randn(1, 5, 10 * dim).split([6 * dim, 2 * dim, 2 * dim], -1)
    if not is_merged:
        parts = [part.contiguous() for part in parts]
    return [part.view(1, 5, -1, dim).transpose(1, 2) for part in parts]


@pytest.mark.parametrize("is_merged", [False, True])
@pytest.mark.parametrize("dim", [16, 24, 64])
def test_rotation(dim, is_merged):
    query, key, _ = heads_of_a_projection(dim, is_merged)
    cosines, sines = randn(1, 5, dim, seed=2), randn(1, 5, dim, seed=3)

    def turned(states):
        first, second = states.chunk(2, -1)
        return states * cosines[:, None] + torch.cat([-second, first], -1) * sines[:, None]

    found = fused.rotate(query, key, cosines, sines)
    torch.testing.assert_close(found[0], turned(query))
    torch.testing.assert_close(found[1], turned(key))


def test_a_rotated_token_leaves_the_next_one_alone():
    """Three heads are computed as a block of four, and the fourth would be the next token's first."""
    states, angles = randn(2, 3, 16), randn(1, 16, seed=1)
    new = torch.full((2, 2, 3, 16), 7.0, device=DEVICE)  # of queries and of keys: two tokens each, the first is rotated
    fused._rotate_kernel[(1, 2)](
        states[0], states[1], angles, angles, new[0], new[1], 16, 48, 16, 48, 16, 16,
        HEADS=3, KEY_HEADS=3, HALF=8, BLOCK_H=4, BLOCK_K=4, BLOCK=8,
    )  # fmt: skip
    assert (new[:, 0] != 7).all() and (new[:, 1] == 7).all()


@pytest.mark.usefixtures("_parts")
def test_slices_of_the_same_rows_are_written_and_attended_to_as_any_other():
    slots, positions = torch.tensor([2, 2, 0, 3, 3], device=DEVICE), torch.tensor([0, 1, 31, 7, 8], device=DEVICE)
    spans = [Span(2, 0, 2, 0), Span(0, 31, 1, 2), Span(3, 7, 2, 3)]
    found = []
    for is_merged in (False, True):
        query, key, value = heads_of_a_projection(16, is_merged)
        keys, values = torch.zeros(4, 2, 32, 16, device=DEVICE), torch.zeros(4, 2, 32, 16, device=DEVICE)
        fused.write_slots(keys, values, key, value, slots, positions)
        prefilled = kernels.prefill_attention(query, keys, values, kernels.query_blocks(spans, DEVICE), Kind(0.3))
        decoded = kernels.decode_attention(query, keys, values, slots, positions, Kind(0.3))
        found.append((keys, values, prefilled, decoded))
    assert all(torch.equal(plain, merged) for plain, merged in zip(*found, strict=True))


def test_writing_to_slots():
    keys, values = torch.zeros(4, 3, 32, 8, device=DEVICE), torch.zeros(4, 3, 32, 24, device=DEVICE)
    key, value = randn(1, 5, 3, 8).transpose(1, 2), randn(1, 5, 3, 24, seed=1).transpose(1, 2)
    slots, positions = torch.tensor([2, 2, 0, 3, 3]), torch.tensor([0, 1, 31, 7, 8])
    fused.write_slots(keys, values, key, value, slots.to(DEVICE), positions.to(DEVICE))
    expected_keys, expected_values = torch.zeros_like(keys), torch.zeros_like(values)
    expected_keys[slots, :, positions] = key[0].transpose(0, 1)
    expected_values[slots, :, positions] = value[0].transpose(0, 1)
    assert torch.equal(keys, expected_keys)
    assert torch.equal(values, expected_values)


@pytest.mark.parametrize(("family", "num_fused"), [("llama", 17), ("qwen3", 23), ("gemma2", 7), ("gpt2", 0)])
def test_a_fused_model_says_the_same(family, num_fused):
    model = tiny.model(family).to(DEVICE)
    ids = torch.arange(30, device=DEVICE)[None]
    with torch.no_grad():
        expected = model(ids).logits
        assert fuse(model) == num_fused or not HAS_GPU  # interpreted, some round differently and are not used
        torch.testing.assert_close(model(ids).logits, expected, atol=1e-4, rtol=1e-4)
        for weight in model.parameters():
            weight.mul_(0.9)
        theirs = tiny.model(family).to(DEVICE)
        for weight in theirs.parameters():
            weight.mul_(0.9)
        torch.testing.assert_close(model(ids).logits, theirs(ids).logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("size", [7, 4096, 4097, 9000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_drawing(size, dtype):
    make = torch.Generator().manual_seed(size)
    rows = 12
    logits = (5 * torch.randn(rows, size, generator=make)).to(dtype).to(DEVICE)
    logits[0, : size // 2] = float("-inf")
    temperatures = torch.linspace(1e-7, 3, rows).to(DEVICE)
    numbers = torch.rand(rows, generator=make, dtype=torch.float64).to(DEVICE)
    numbers[1], numbers[2] = 0.0, 1 - 2**-53
    nothing = torch.zeros(rows, dtype=torch.long, device=DEVICE)
    expected = pick_tokens(logits.float(), "plain", temperatures, nothing, nothing, numbers)
    tokens, logprobs = fused.draw_tokens(logits, temperatures, numbers)
    # At the very end the last bit of a sum decides: any token will do that has weight and nearly none behind it.
    weights = (logits[2].float() / temperatures[2]).softmax(-1)
    assert weights[tokens[2]] > 0 and weights[tokens[2] + 1 :].sum() < 1e-5
    tokens[2], logprobs[2] = expected[0][2], expected[1][2]
    assert tokens.tolist() == expected[0].tolist()
    torch.testing.assert_close(logprobs, expected[1], atol=1e-5, rtol=1e-5)


def test_how_often_each_token_is_drawn():
    size = 1000 if HAS_GPU else 20
    chances = torch.tensor([0.5, 0.0, 0.2, 0.3])
    numbers = (torch.arange(size, dtype=torch.float64) + 0.5) / size
    logits = chances.log().expand(size, 4).contiguous().to(DEVICE)
    tokens, logprobs = fused.draw_tokens(logits, torch.ones(size, device=DEVICE), numbers.to(DEVICE))
    assert (torch.bincount(tokens.cpu(), minlength=4) * 10).tolist() == [5 * size, 0, 2 * size, 3 * size]
    torch.testing.assert_close(logprobs.cpu(), chances.log()[tokens.cpu()])
