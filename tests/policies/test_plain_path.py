"""Models whose rows cannot be packed: what they sample, score and learn is what transformers computes."""

import random
from functools import cache

import pytest
import torch
from engines import TOKENIZER, finish, play, prompt
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny
from properties import examples
from quaere.errors import ModelMissing
from quaere.policies.native import row_caches
from quaere.policies.native.attention import VARLEN, Packing
from quaere.policies.native.bridge import load_model, packed_states, use_packed_attention, use_varlen_attention
from quaere.policies.native.engine import Engine, Request
from quaere.policies.native.kv_cache import SlotTable
from quaere.policies.native.plain import padded_states
from quaere.policies.sampler import SamplingParams
from quaere.training.engine_check import compare_with_transformers

IDS = prompt(1, 40)
OTHERS = ("granite_hybrid", "mamba2", "lfm2")  # attention and states, states alone, convolutions


SESSIONS = {f"s{number}": prompt(number, 5 + 7 * number % 23) for number in range(4)}


@cache
def sessions_alone(family):
    return play(plain_engine(family, max_rows=1, reuse=False), SESSIONS, turns=2)


@cache
def sampling_model(family):
    return use_packed_attention(tiny.model(family))


def plain_engine(family="lfm2", **options):
    return Engine(sampling_model(family), TOKENIZER.decode, **options)


@pytest.mark.parametrize("family", tiny.PLAIN)
def test_samples_scores_and_learns_as_transformers(family):
    found = compare_with_transformers(tiny.model(family), IDS)
    assert "plain path, rows decoded together" in found.path and "\n" not in found.path
    assert found.logprob_gap < 1e-4 and found.gradient_gap < 1e-5 and found.is_right


def test_a_model_that_cannot_decode_rows_together_decodes_them_one_by_one():
    """Falcon-H1 with a norm in its state space: transformers' own `generate` fails for a batch."""
    model = tiny.model("falcon_h1", mamba_rms_norm=True, mamba_norm_before_gate=False)
    found = compare_with_transformers(model, IDS)
    assert "rows one by one" in found.path and found.logprob_gap < 1e-4 and found.gradient_gap < 1e-5 and found.is_right


def test_the_packed_path_agrees_as_well_and_a_wrong_model_does_not(monkeypatch):
    assert compare_with_transformers(tiny.model("qwen3"), IDS).path == "packed"
    monkeypatch.setattr("quaere.policies.native.bridge._ATTENTION", {"full_attention", "conv"})
    monkeypatch.setattr("quaere.policies.native.bridge.nn.Conv1d", torch.nn.Conv3d)
    found = compare_with_transformers(tiny.model("lfm2"), IDS)  # packed, though it has convolutions
    assert found.path == "packed" and not found.is_right and found.logprob_gap > 0.01


@pytest.mark.parametrize("scaled", [("granite_hybrid", "logits_scaling"), ("falcon_h1", "lm_head_multiplier")])
def test_logits_are_scaled_in_learning_too(scaled):
    family, name = scaled
    assert compare_with_transformers(tiny.model(family, **{name: 1.7}), IDS).is_right


@pytest.mark.parametrize("family", OTHERS)
@pytest.mark.parametrize("max_rows", [2, 8])
def test_sessions_sample_what_each_samples_alone(family, max_rows):
    """Rows of many lengths join and leave; with few slots some caches are lost and computed again."""
    together = plain_engine(family, max_rows=max_rows, max_step_tokens=16)
    assert play(together, SESSIONS, turns=2) == sessions_alone(family)
    assert (together.counts.kept > 0) == (max_rows == 8)


def test_a_context_that_several_rows_share_is_computed_once():
    engine = plain_engine(max_rows=4)
    calls = []
    forward = engine.model.forward

    def counted(*args, **options):
        calls.append(options["input_ids"].shape)
        return forward(*args, **options)

    engine.model.forward = counted
    try:
        for number in range(3):
            engine.add(Request(str(number), IDS, SamplingParams(max_tokens=4, seed=number), str(number)))
        done = finish(engine)
    finally:
        engine.model.forward = forward
    assert calls == [(1, len(IDS)), *[(3, 1)] * 3]
    for request in done:
        alone = plain_engine(max_rows=1)
        alone.add(Request("alone", IDS, request.params))
        assert finish(alone)[0].new_tokens == request.new_tokens


def test_a_session_that_takes_back_tokens_is_computed_anew():
    engine = plain_engine(max_rows=2)
    for context in (IDS, IDS[:30]):  # the second is shorter than what the state has seen
        engine.add(Request("a", context, SamplingParams(max_tokens=5, temperature=0), "a"))
        (done,) = finish(engine)
        fresh = plain_engine(max_rows=1)
        fresh.add(Request("b", context, SamplingParams(max_tokens=5, temperature=0)))
        assert done.sampled().token_ids == finish(fresh)[0].sampled().token_ids
    assert engine.counts.kept == 0


def test_new_weights_invalidate_the_caches():
    engine = Engine(use_packed_attention(tiny.model("lfm2")), TOKENIZER.decode, max_rows=2)
    engine.add(Request("a", IDS, SamplingParams(max_tokens=3, temperature=0), "a"))
    (done,) = finish(engine)
    with torch.no_grad():
        for weight in engine.model.parameters():
            weight.mul_(1.1)
    engine.forget()
    context = [*done.tokens, 7, 8]
    engine.add(Request("a", context, SamplingParams(max_tokens=3, temperature=0), "a"))
    (later,) = finish(engine)
    fresh = Engine(engine.model, TOKENIZER.decode, max_rows=1)
    fresh.add(Request("b", context, SamplingParams(max_tokens=3, temperature=0)))
    assert later.sampled() == finish(fresh)[0].sampled() and engine.counts.kept == 0


def test_caches_of_ended_sessions_are_dropped():
    engine = plain_engine(max_rows=8)
    play(engine, {f"s{number}": prompt(number, 9) for number in range(5)}, turns=1)
    engine.add(Request("new", IDS, SamplingParams(max_tokens=2), "new"))
    finish(engine)
    assert len(engine.storage._single) == 1


# ------------------------------------------------------------------------------------------------------------- caches


def test_whole_slots_are_used_as_they_are_or_not_at_all():
    table = SlotTable(2, whole=True)
    first = table.take("a", IDS).slot
    first.num_stored = 30
    table.rest(first)
    assert table.take("a", [*IDS, 5]).slot.num_stored == 30  # a longer context goes on from there
    table.rest(first)
    assert table.take("a", IDS[:20]).slot.num_stored == 0  # 20 of 30 tokens cannot be taken
    assert table.take("b", IDS).donor is None


@pytest.mark.parametrize("family", OTHERS)
def test_stacked_caches_come_back_bit_for_bit(family):
    model, lengths = sampling_model(family), [9, 4, 6]
    caches = row_caches.RowCaches()
    with torch.no_grad():
        for slot, length in enumerate(lengths):
            output = model(torch.tensor([IDS[:length]]), use_cache=True)
            caches.put(slot, output.get("past_key_values", output.get("cache_params")))
    before = [tensors_of(caches.get(slot)) for slot in range(3)]
    assert caches.stack([2, 0, 1], [6, 9, 4]).num_padded == [3, 0, 5]
    for slot, expected in enumerate(before):
        found = tensors_of(caches.get(slot))
        assert len(found) == len(expected) > 1
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))


def tensors_of(cache):
    found = []
    for layer in cache.layers:
        for value in vars(layer).values():
            found += [one for one in (value.values() if isinstance(value, dict) else [value]) if torch.is_tensor(one)]
    return found


def test_rows_are_decoded_one_by_one_if_stacked_ones_differ(monkeypatch):
    def pad_right(parts):
        longest = max(part.shape[-2] for part in parts)
        return torch.cat([torch.nn.functional.pad(part, (0, 0, 0, longest - part.shape[-2])) for part in parts])

    monkeypatch.setattr(row_caches, "_cat_padded", pad_right)
    engine = plain_engine(max_rows=4)
    assert "rows one by one" in engine.note
    sessions = {f"s{number}": prompt(number, 5 + 3 * number) for number in range(3)}
    assert play(engine, sessions, turns=2) == play(plain_engine(max_rows=1, reuse=False), sessions, turns=2)


def test_a_model_whose_cache_is_wrong_is_refused(monkeypatch):
    model = tiny.model("lfm2")
    forward = type(model).forward

    def forgetful(self, *args, past_key_values=None, **options):
        return forward(self, *args, **options)

    monkeypatch.setattr(type(model), "forward", forgetful)
    with pytest.raises(
        ModelMissing, match="lfm2 has layers of conv, and computes something else with its cache"
    ) as caught:
        Engine(use_packed_attention(model), TOKENIZER.decode)
    assert "openai:MODEL@BASE_URL" in caught.value.hint

    monkeypatch.setattr(type(model), "forward", lambda self, input_ids: forward(self, input_ids))
    with pytest.raises(ModelMissing, match="its forward pass takes no cache"):
        use_packed_attention(model)


# ----------------------------------------------------------------------------------------------------------- learning


@settings(max_examples=examples(40))
@given(st.lists(st.integers(1, 12), min_size=1, max_size=6), st.integers(0, 99))
def test_padded_rows_have_the_states_and_gradients_of_single_ones(lengths, seed):
    model = learning_model()
    draw = random.Random(seed)
    ids = torch.tensor([draw.randrange(400) for _ in range(sum(lengths))])
    pulls = torch.randn(len(ids), 48, generator=torch.Generator().manual_seed(seed))
    packing = Packing(lengths, torch.device("cpu"))
    single = torch.cat([model.model(row[None]).last_hidden_state[0] for row in ids.split(lengths)])
    padded = padded_states(model, ids, packing)
    assert torch.allclose(padded, single, atol=1e-4)
    weights = list(model.model.parameters())
    ours, theirs = (torch.autograd.grad((states * pulls).sum(), weights) for states in (padded, single))
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine - other).abs().max() <= 1e-4 * (1 + other.abs().max())


@cache
def learning_model():
    return use_varlen_attention(tiny.model("lfm2", scale=2))


def test_packed_rows_would_see_one_another():
    """The control of the test above."""
    model = use_varlen_attention(tiny.model("lfm2"))
    packing, ids = Packing((20, 20), torch.device("cpu")), torch.tensor(IDS)
    right = padded_states(model, ids, packing)
    model.set_attn_implementation(VARLEN)
    wrong = packed_states(model, ids, packing)
    assert torch.allclose(wrong[:20], right[:20], atol=1e-4)
    assert (wrong[20:] - right[20:]).abs().max() > 0.01


def test_a_shared_prefix_is_for_packed_rows_only():
    with pytest.raises(ValueError, match="share a prefix"):
        padded_states(learning_model(), torch.tensor(IDS[:6]), Packing((3, 3), torch.device("cpu"), (None, 0)))


# ---------------------------------------------------------------------------------------------- bfloat16 and int8


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folder of a family's model, written once."""
    root = tmp_path_factory.mktemp("plain")

    @cache
    def save(family):
        tiny.model(family).save_pretrained(root / family)
        return str(root / family)

    return save


def decoded_gap(engine):
    """The largest difference of a log-prob between decoding, three rows side by side, and scoring what was decoded."""
    starts = (20, 25, 30)
    for start in starts:
        engine.add(Request(f"{start}", IDS[:start], SamplingParams(max_tokens=8, seed=start)))
    turns = {int(request.key): request.sampled() for request in finish(engine)}
    scored = engine.score_many([IDS[:start] + list(turns[start].token_ids) for start in starts], starts)
    rows = zip(starts, scored, strict=True)
    return max(abs(torch.tensor(row[start:]) - torch.tensor(turns[start].logprobs)).max() for start, row in rows)


@pytest.mark.parametrize("family", tiny.PLAIN)
def test_bfloat16_is_that_of_transformers(family, saved):
    """A whole context is that of its own forward pass; step by step, bfloat16 rounds differently."""
    model = load_model(saved(family), "cpu", "bfloat16")
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    engine = Engine(model, TOKENIZER.decode, max_rows=4)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([IDS]), use_cache=False).logits[0].float()
    own = logits.log_softmax(-1)[:-1].gather(1, torch.tensor(IDS[1:])[:, None])[:, 0]
    assert torch.allclose(torch.tensor(engine.score_many([IDS])[0][1:]), own, atol=0.03)
    assert decoded_gap(engine) < 0.15


@pytest.mark.parametrize("family", tiny.PLAIN)
def test_int8_decodes_with_rounded_weights_and_reads_with_whole_ones(family, saved):
    rounded, whole = (
        Engine(load_model(saved(family), "cpu", dtype), TOKENIZER.decode) for dtype in ("int8", "float32")
    )
    assert torch.allclose(*(torch.tensor(one.score_many([IDS])) for one in (rounded, whole)), atol=1e-5)
    assert decoded_gap(whole) < 1e-4
    assert 1e-4 < decoded_gap(rounded) < 0.3
