"""Many sequences scored at once say what each says alone, however they are packed."""

import asyncio
import random
from functools import cache

import pytest

import tiny
from quaere.errors import SamplingFailed
from quaere.policies.native.bridge import use_packed_attention
from quaere.policies.native.engine import Engine
from quaere.policies.native.sampler import NativeSampler
from quaere.policies.sampler import SamplingParams

MODELS = {
    family: use_packed_attention(tiny.model(family, **changes))
    for family, changes in {"llama": {}, "gemma3": {"sliding_window": 7, "query_pre_attn_scalar": 8}}.items()
}


def sequences(count, longest=70):
    draw = random.Random(count)
    return [[draw.randrange(400) for _ in range(draw.randint(1, longest))] for _ in range(count)]


def engine(family="llama", **options):
    return Engine(MODELS[family], tiny.tokenizer().decode, **options)


@cache
def scored_alone(family):
    return [engine(family).score_many([ids])[0] for ids in sequences(7, longest=14)]


@pytest.mark.parametrize("family", MODELS)
@pytest.mark.parametrize(("max_rows", "max_step_tokens"), [(1, 2048), (4, 2048), (3, 7), (64, 50), (64, 1)])
def test_together_as_alone(family, max_rows, max_step_tokens):
    asked = sequences(7, longest=14)
    alone = scored_alone(family)
    together = engine(family, max_rows=max_rows, max_step_tokens=max_step_tokens).score_many(asked)
    assert [len(row) for row in together] == [len(ids) for ids in asked]
    for ours, theirs in zip(together, alone, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-4)
        assert ours[0] == 0


@pytest.mark.parametrize("max_logits", [3, 2048])
def test_only_what_comes_after_a_start_is_scored(monkeypatch, max_logits):
    monkeypatch.setattr("quaere.policies.native.sequence_logprobs._MAX_LOGITS", max_logits)
    asked = sequences(8, longest=24)
    draw = random.Random(1)
    starts = [draw.randint(1, len(ids) + 1) for ids in asked]
    everything = engine().score_many(asked)
    for row, full, start in zip(
        engine(max_rows=5, max_step_tokens=33).score_many(asked, starts), everything, starts, strict=True
    ):
        assert row[:start] == [0.0] * min(start, len(row))
        assert row[start:] == pytest.approx(full[start:], abs=1e-4)


def test_memory_is_bounded_by_rows_tokens_and_logits(monkeypatch):
    from quaere.policies.native import sequence_logprobs as scoring

    seen = []
    made = engine(max_rows=6, max_step_tokens=64)
    forward = made.score_forward

    def watched(where, ids, positions, wanted):
        seen.append((len(ids), len(wanted), len({span.slot for span in where.spans}), where.storage.num_slots))
        return forward(where, ids, positions, wanted)

    made.score_forward = watched
    monkeypatch.setattr(scoring, "_MAX_LOGITS", 20)
    asked = sequences(30)
    made.score_many(asked, [max(1, len(ids) - 5) for ids in asked])
    assert max(tokens for tokens, *_ in seen) == 64
    assert max(logits for _, logits, *_ in seen) <= 20
    assert max(slots for *_, slots in seen) <= 6
    assert max(rows for _, _, rows, _ in seen) > 1  # they do share passes
    assert sum(tokens for tokens, *_ in seen) == sum(len(ids) - 1 for ids in asked)


def test_short_sequences_are_not_given_the_room_of_long_ones(monkeypatch):
    from quaere.policies.native import kv_cache

    rooms = set()
    made = engine(max_rows=2)
    forward = made.score_forward

    def watched(where, *rest):
        rooms.add((where.storage.num_slots, where.storage.capacity))
        return forward(where, *rest)

    made.score_forward = watched
    monkeypatch.setattr(kv_cache, "STRIDE", 16)
    made.score_many([[1] * 40, [2] * 5, [3] * 40, [4] * 5])
    assert rooms == {(2, 16), (2, 48)}


def test_nothing_and_too_little_to_score():
    assert engine().score_many([]) == []
    assert engine().score_many([[], [7], [7, 8]])[:2] == [[], [0.0]]
    for starts in ([1], [0, 1]):
        with pytest.raises(ValueError, match="one position per sequence"):
            engine().score_many([[1, 2], [3]], starts)


@pytest.mark.parametrize("mode", ["fast", "deterministic"])
async def test_a_sampler_scores_many_while_others_sample_and_changes_nothing_of_theirs(mode):
    params = SamplingParams(max_tokens=12, seed=4)

    async def sampled(sampler, *others):
        sampler.open("a")
        found, *_ = await asyncio.gather(sampler.sample("a", [1, 2, 3], params), *others)
        return found

    async with NativeSampler.over(MODELS["llama"], tiny.tokenizer().decode, name="tiny", mode=mode) as sampler:
        undisturbed = await sampled(sampler)
    async with NativeSampler.over(MODELS["llama"], tiny.tokenizer().decode, name="tiny", mode=mode) as sampler:
        found = await sampled(sampler, sampler.score_many(sequences(5)))
        assert found == undisturbed
        scores = await sampler.score_many([[1, 2, 3, *found.token_ids], [5, 6]], [3, 1])
        assert scores[0][3:] == pytest.approx(found.logprobs, abs=1e-5)
        assert scores == await sampler.score_many([[1, 2, 3, *found.token_ids], [5, 6]], [3, 1])
        with pytest.raises(SamplingFailed, match="5000 tokens exceed the model's context length of 4096"):
            await sampler.score_many([[1], [1] * 5000])
        with pytest.raises(SamplingFailed, match="failed while sampling"):
            await sampler.score_many([[1, 10**6]])
