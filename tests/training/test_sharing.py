"""A prompt that several samples begin with is computed once, and nothing else changes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_packing import FAMILIES, assert_same, make_model, packed_gradients, padded_gradients

from properties import examples
from quaere.policies.native.attention import Kind, Packing, varlen_attention
from quaere.policies.native.bridge import use_varlen_attention
from quaere.training.adapters import add_adapters
from quaere.training.batches import Sample, packed_logprobs, split_batch
from quaere.training.learner import Learner
from quaere.training.settings import AdapterSettings, LearnerSettings

CPU = torch.device("cpu")
ALIKE = ("qwen2", "qwen3", "qwen3_moe", "untied", "gemma3")  # as llama or, the last, as gemma2 with fewer parts


def sample(prompt, answer, mask=None):
    """The answer carries loss, all of it or where the mask says so; what a token is worth follows from its id."""
    ids = (*prompt, *answer)
    flags = (*[False] * len(prompt), *(mask or [True] * len(answer)))
    return Sample(ids, flags, (-1.0,) * len(ids), tuple((token % 7 - 3) / 3 for token in ids))


def groups(num_groups=3, num_answers=4):
    """Rollouts as they come: prompts of different lengths, answers too; one of them is a single token."""
    draw = torch.Generator().manual_seed(0)

    def tokens(count):
        return torch.randint(2, 400, (count,), generator=draw).tolist()

    made = []
    for group in range(num_groups):
        prompt = tokens(9 + 4 * group)
        made += [sample(prompt, tokens(1 + (group + 5 * number) % 12)) for number in range(num_answers)]
    return made


# -------------------------------------------------------------------------------------------------------- by hand


def test_positions_and_masks_by_hand():
    packing = Packing((3, 2, 1, 2), CPU, prefixes=(None, 0, 0, None))
    assert packing.positions_T.tolist() == [0, 1, 2, 3, 4, 3, 0, 1]
    assert packing.bounds.tolist() == [0, 3, 5, 6, 8]
    assert packing.longest == 5
    assert packing.mask(0, None) is None and packing.mask(3, None) is None
    assert packing.mask(1, None).int().tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert packing.mask(2, None).int().tolist() == [[1, 1, 1, 1]]
    assert packing.mask(1, 2).int().tolist() == [[0, 0, 1, 1, 0], [0, 0, 0, 1, 1]]
    assert packing.mask(0, 2).int().tolist() == [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    assert packing.mask(3, 2) is None
    assert not packing.is_plain and Packing((3, 5), CPU).is_plain


def test_what_a_shared_micro_batch_holds():
    samples = [
        sample((5, 6, 7), (10, 11), [True, True]),
        sample((1, 2), (20, 21)),
        sample((5, 6, 7), (30, 31, 32), [True, False, True]),
        sample((5, 6, 7), (40,)),
    ]
    (batch,) = split_batch(samples, 100, CPU, share_prompts=True)
    assert batch.rows == (2, 0, 3, 1)
    assert batch.token_ids_T.tolist() == [5, 6, 7, 30, 31, 10, 1, 2, 20]  # nothing of the single token's own
    assert batch.packing.lengths == [3, 2, 1, 3]
    assert batch.packing.prefixes == [None, 0, 0, None]
    assert batch.packing.positions_T.tolist() == [0, 1, 2, 3, 4, 3, 0, 1, 2]
    assert batch.targets_N.tolist() == [30, 32, 10, 11, 40, 20, 21]
    assert batch.before_N.tolist() == [2, 4, 2, 5, 2, 7, 8]  # the 7 at place 2 predicts three of them
    assert batch.mask_BW.tolist() == [[True, True], [True, True], [True, False], [True, True]]


def test_equal_samples_are_computed_once_and_counted_twice():
    twice = [sample((5, 6, 7), (8,))] * 2
    (batch,) = split_batch(twice, 100, CPU, share_prompts=True)
    assert batch.token_ids_T.tolist() == [5, 6, 7]
    assert batch.before_N.tolist() == [2, 2]
    loss, expected = padded_gradients(make_model("llama"), twice)
    found_loss, found = packed_gradients(make_model("llama"), twice)
    assert found_loss == pytest.approx(loss, rel=1e-5)
    assert_same(found, expected)


# ------------------------------------------------------------------------------------------------------- the split


def test_who_shares_a_prompt_stays_together():
    """Longest first would put a, c | b, d; each pair saves six tokens together."""
    a, b = (sample((1, 2, 3, 4, 5, 6), (first, 8, 9)) for first in (10, 11))
    c, d = (sample((6, 5, 4, 3, 2, 1), (first, 8)) for first in (12, 13))
    assert [batch.rows for batch in split_batch([a, c, b, d], 16, CPU)] == [(0, 2), (1, 3)]
    batches = list(split_batch([a, c, b, d], 10, CPU, share_prompts=True))
    assert [batch.rows for batch in batches] == [(0, 2), (1, 3)]
    assert [batch.packing.lengths for batch in batches] == [[6, 2, 2], [6, 1, 1]]


PROMPTS = [(1,), (1, 2), (3, 4, 5), (1, 2, 3, 4, 5, 6, 7, 8, 9)]
ANSWERS = st.lists(st.integers(2, 9), min_size=1, max_size=8)
SAMPLES = st.lists(st.builds(sample, st.sampled_from(PROMPTS), ANSWERS), min_size=1, max_size=12)


@given(SAMPLES, st.integers(1, 60))
def test_every_sample_is_in_one_micro_batch_that_keeps_its_budget(samples, budget):
    batches = list(split_batch(samples, budget, CPU, share_prompts=True))
    assert sorted(row for batch in batches for row in batch.rows) == list(range(len(samples)))
    for batch in batches:
        prompts = {samples[row].token_ids[: samples[row].loss_mask.index(True)] for row in batch.rows}
        answers = [sum(samples[row].loss_mask) - 1 for row in batch.rows]
        assert len(batch.token_ids_T) == sum(batch.packing.lengths) == sum(map(len, prompts)) + sum(answers)
        assert len(batch.token_ids_T) <= budget or len(batch.rows) == 1
    assert len([batch for batch in batches if 2 * len(batch.token_ids_T) <= budget]) <= 1


# --------------------------------------------------------------------------------------------------- the attention


@st.composite
def packings(draw):
    lengths, prefixes = [], []
    for answers in draw(st.lists(st.lists(st.integers(1, 9), max_size=3), min_size=1, max_size=3)):
        prompt = len(lengths)
        lengths += [draw(st.integers(1, 9)), *answers]
        prefixes += [None, *[prompt] * len(answers)]
    return Packing(lengths, CPU, prefixes)


@settings(max_examples=examples(60))
@given(packings(), st.sampled_from([None, 1, 3, 8]), st.sampled_from([None, 2.0]), st.sampled_from([1, 2, 4]))
def test_attention_is_that_of_one_mask_over_all(packing, window, softcap, kv_heads):
    owner = [number for number, length in enumerate(packing.lengths) for _ in range(length)]
    where = packing.positions_T.tolist()
    sees = torch.tensor(
        [
            [owner[k] in (owner[q], packing.prefixes[owner[q]]) and 0 <= where[q] - where[k] < (window or 99)]
            for q in range(len(owner))
            for k in range(len(owner))
        ]
    ).view(len(owner), len(owner))
    seed = torch.Generator().manual_seed(len(owner))
    pull, query, key, value = (
        torch.randn(1, heads, len(owner), 8, generator=seed, dtype=torch.float64).requires_grad_()
        for heads in (4, 4, kv_heads, kv_heads)
    )
    kind = Kind(0.3, window, softcap)
    keys, values = (tensor.repeat_interleave(4 // kv_heads, 1) for tensor in (key, value))
    scores = query @ keys.transpose(2, 3) * kind.scale
    scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
    expected = (scores.masked_fill(~sees, -torch.inf).softmax(-1) @ values).transpose(1, 2)
    options = {"scaling": 0.3, "sliding_window": window, "softcap": softcap, "packing": packing}
    found, _ = varlen_attention(None, query, key, value, None, **options)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)
    pull = pull.detach().transpose(1, 2)
    mine, theirs = (torch.autograd.grad(output, (query, key, value), pull) for output in (found, expected))
    torch.testing.assert_close(mine, theirs, atol=1e-10, rtol=1e-10)


# ------------------------------------------------------------------------------------------------- the same gradients


def whole_gradients(model, samples, budget, *, share_prompts):
    """Log-probs per sample, and the gradient of all of them weighed by what they are worth, whatever the split."""
    model.zero_grad()
    logprobs = [[]] * len(samples)
    for batch in split_batch(samples, budget, CPU, share_prompts=share_prompts):
        found = batch.grid(packed_logprobs(model, batch)[0])
        (found * batch.advantages_BW).sum().backward()
        for row, values, flags in zip(batch.rows, found, batch.mask_BW, strict=True):
            logprobs[row] = values[flags].tolist()
    return logprobs, {name: weight.grad.clone() for name, weight in model.named_parameters()}


def assert_sharing_changes_nothing(model, samples, budget, tolerance):
    expected_logprobs, expected = whole_gradients(model, samples, 10_000, share_prompts=False)
    logprobs, found = whole_gradients(model, samples, budget, share_prompts=True)
    for mine, theirs in zip(logprobs, expected_logprobs, strict=True):
        assert mine == pytest.approx(theirs, abs=tolerance)
    assert_same(found, expected, tolerance)


@pytest.mark.parametrize(
    "family",  # those whose layers attend alike are slow: a step on groups, below, has all of them
    [pytest.param(name, marks=pytest.mark.slow if name in ALIKE else ()) for name in FAMILIES],
)
@settings(max_examples=examples(16))
@given(samples=SAMPLES, budget=st.integers(1, 60))
def test_however_samples_share_the_gradients_are_the_same(family, samples, budget):
    # Experts add up their tokens in another order; to ten digits is the next test.
    tolerance = 1e-4 if "moe" in family else 1e-5
    assert_sharing_changes_nothing(use_varlen_attention(make_model(family)), samples, budget, tolerance)


@settings(max_examples=examples(30))
@given(samples=SAMPLES, budget=st.integers(1, 60))
def test_in_float64_they_are_the_same_to_ten_digits(samples, budget):
    model = use_varlen_attention(make_model("gpt2").double())  # norms of the others are float32 in any model
    assert_sharing_changes_nothing(model, samples, budget, 1e-10)


# ------------------------------------------------------------------------------------------------------- the learner


def test_a_learner_on_a_cpu_shares():
    learner = Learner(make_model("llama"), LearnerSettings())
    computed = []
    learner.model.model.norm.register_forward_hook(lambda module, given, states: computed.append(states.shape[1]))
    samples = [sample(range(2, 52), (number, 4)) for number in range(60, 68)]
    learner.step(samples)
    learner.score(samples)
    assert computed == [50 + 8, 50 + 8]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_on_groups_is_the_padded_step(family):
    loss, expected = padded_gradients(make_model(family), groups())
    for checkpointing in (False, True):
        found_loss, found = packed_gradients(make_model(family), groups(), gradient_checkpointing=checkpointing)
        assert found_loss == pytest.approx(loss, rel=1e-5)
        assert_same(found, expected)


def test_an_adapter_on_groups_gets_the_gradients_of_the_padded_step():
    def adapted():
        torch.manual_seed(0)
        model = add_adapters(make_model("qwen2"), ("solver",), AdapterSettings(rank=4))
        for name, weight in model.named_parameters():
            if "lora_B" in name:  # zero at first, which would hide the gradient of its partner
                torch.nn.init.normal_(weight, std=0.1)
        return model

    loss, expected = padded_gradients(adapted(), groups())
    for checkpointing in (False, True):
        options = {"adapter": "solver", "gradient_checkpointing": checkpointing}
        found_loss, found = packed_gradients(adapted(), groups(), **options)
        assert found_loss == pytest.approx(loss, rel=1e-5)
        assert_same(found, expected)


# Each with and without KL: see test_packing.py.
@pytest.mark.parametrize(("aggregation", "kl_beta"), [("token_mean", 0.5), ("sequence_mean", 0.0)])
def test_groups_may_be_split_anyhow(aggregation, kl_beta):
    def gradients(micro_tokens):
        options = {"aggregation": aggregation, "kl_beta": kl_beta}
        return packed_gradients(make_model("qwen3"), groups(), micro_tokens=micro_tokens, **options)

    loss, expected = gradients(10_000)
    for micro_tokens in (1, 30):
        other, found = gradients(micro_tokens)
        assert other == pytest.approx(loss, rel=1e-5, abs=1e-7)
        assert_same(found, expected)


def test_a_step_on_groups_repeats_bit_for_bit():
    def weights():
        learner = Learner(make_model("llama"), LearnerSettings(learning_rate=1e-2, micro_tokens=50, kl_beta=0.1))
        return [learner.step(groups()) for _ in range(2)], list(learner.model.parameters())

    (first, mine), (second, theirs) = weights(), weights()
    assert first == second
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [False, True])
def test_compiled_layers_share_too(checkpointing):
    (loss, plain), (found_loss, found) = (
        packed_gradients(make_model("llama"), groups(), compiled=flag, gradient_checkpointing=checkpointing)
        for flag in (False, True)
    )
    assert found_loss == pytest.approx(loss, rel=1e-5)
    assert_same(found, plain)
