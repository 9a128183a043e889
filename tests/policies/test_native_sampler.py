"""The asynchronous face: many coroutines, one engine; the two modes; failures."""

import asyncio
import itertools
import random
import threading
import warnings
import weakref

import pytest
import torch
from engines import MODEL, TOKENIZER, make_model

from quaere.errors import SampledLess, SamplingFailed
from quaere.policies.native.engine import Engine
from quaere.policies.native.kv_cache import KVStorage
from quaere.policies.native.sampler import NativeSampler, _settle
from quaere.policies.native.weights import use_int8
from quaere.policies.sampler import SamplingParams


def make_sampler(mode="fast", max_rows=8, model=MODEL, **options):
    """A sampler over the model all share; who changes weights brings a model of their own."""
    engine = Engine(model, TOKENIZER.decode, max_rows=max_rows)
    return NativeSampler(engine, name="tiny", mode=mode, **options)


async def test_many_coroutines_share_batches_and_get_their_own_tokens():
    params = [SamplingParams(max_tokens=4 + n % 3, seed=n) for n in range(12)]
    async with make_sampler(max_rows=5) as alone:
        expected = [await alone.sample(f"s{n}", [n, 7, 7], params[n]) for n in range(12)]
    async with make_sampler(max_rows=5) as sampler:
        steps = []
        sampler.engine.observe = steps.append
        found = await asyncio.gather(*(sampler.sample(f"s{n}", [n, 7, 7], params[n]) for n in range(12)))
    assert [one.token_ids for one in found] == [one.token_ids for one in expected]
    assert max(map(len, steps)) == 5


async def test_who_wants_to_see_a_turn_grow_is_told_every_token_in_order_before_it_ends():
    async with make_sampler() as sampler:
        sampler.engine.lookahead = 1  # as a GPU is driven
        told = [[] for _ in range(6)]

        async def watch(number):
            params = SamplingParams(max_tokens=9 + number, seed=number)
            sampled = await sampler.sample(f"s{number}", [number, 3, 5], params, told[number].append)
            return sampled, [token for tokens in told[number] for token in tokens]

        for sampled, seen in await asyncio.gather(*map(watch, range(6))):
            assert tuple(seen) == sampled.token_ids
    assert all(len(pieces) > 3 for pieces in told)


async def play(mode, pauses, max_rows=8, ahead=False):
    """Three turns of six sessions, each turn after a pause of its own; every bit of every log-prob."""
    async with make_sampler(mode, max_rows) as sampler:
        if ahead:  # as a GPU is driven
            sampler.engine.lookahead, sampler.engine.patience = 1, 8
        batches = []
        sampler.engine.observe = batches.append

        async def session(number):
            name, context, heard = f"s{number}", [number, 3, 5], []
            for turn in range(3):
                await asyncio.sleep(pauses[number][turn])
                params = SamplingParams(max_tokens=3 + (number + turn) % 4, seed=100 * number + turn)
                sampled = await sampler.sample(name, context, params)
                context += [*sampled.token_ids, 9, 9]
                heard.append(sampled)
            sampler.close(name)
            return heard

        for number in range(6):
            sampler.open(f"s{number}")
        return await asyncio.gather(*map(session, range(6))), [sorted(batch) for batch in batches]


@pytest.mark.parametrize("num_delayed", [1, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("max_rows", "ahead"), [(8, False), (8, True), (4, False), (4, True)])
async def test_in_deterministic_mode_latency_changes_no_bit(max_rows, ahead, num_delayed):
    still = await play("deterministic", [[0] * 3] * 6, max_rows, ahead)
    for seed in range(num_delayed):
        draw = random.Random(seed)
        pauses = [[draw.uniform(0, 0.02) for _ in range(3)] for _ in range(6)]
        assert await play("deterministic", pauses, max_rows, ahead) == still


async def test_in_fast_mode_latency_changes_batches_but_no_token():
    still, batches = await play("fast", [[0] * 3] * 6)
    staggered, other_batches = await play("fast", [[0.03 * number] * 3 for number in range(6)])
    assert [[one.token_ids for one in heard] for heard in staggered] == [
        [one.token_ids for one in heard] for heard in still
    ]
    assert batches != other_batches


async def test_lockstep_waits_for_every_open_session():
    async with make_sampler("deterministic") as sampler:
        sampler.open("early")
        sampler.open("late")
        early = asyncio.create_task(sampler.sample("early", [1, 2], SamplingParams(max_tokens=2)))
        await asyncio.sleep(0.05)
        assert not early.done()
        sampler.close("late")
        assert len((await early).token_ids) == 2


async def test_a_cancelled_coroutine_frees_its_row():
    async with make_sampler() as sampler:
        endless = asyncio.create_task(sampler.sample("a", [1], SamplingParams(max_tokens=3000)))
        await asyncio.sleep(0.05)
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless
        assert len((await sampler.sample("b", [1], SamplingParams(max_tokens=3))).token_ids) == 3
        assert not sampler.engine.busy


def test_on_a_cpu_a_long_context_is_computed_in_steps_that_do_not_delay_others_for_long():
    assert NativeSampler.over(MODEL, TOKENIZER.decode, name="tiny").engine.max_step_tokens == 2048


async def test_a_session_computes_only_what_is_new():
    async with make_sampler() as sampler:
        context = list(range(1, 41))
        first = await sampler.sample("a", context, SamplingParams(max_tokens=5))
        assert sampler.engine.counts.prefilled == 40
        context += [*first.token_ids, 7, 8, 9]
        second = await sampler.sample("a", context, SamplingParams(max_tokens=5, seed=1))
        # The three that are new, and the last token drawn, after which nothing had been computed.
        assert sampler.engine.counts.prefilled == 40 + 1 + 3
        assert sampler.engine.counts.kept == 44
    async with make_sampler() as fresh:
        assert (await fresh.sample("b", context, SamplingParams(max_tokens=5, seed=1))).token_ids == second.token_ids


async def test_after_new_weights_the_next_turn_computes_anew():
    async with make_sampler(model=make_model()) as sampler, make_sampler(model=make_model()) as fresh:
        context, params = list(range(1, 41)), SamplingParams(max_tokens=5, temperature=0)
        context += (await sampler.sample("a", context, params)).token_ids
        for model in (sampler.engine.model, fresh.engine.model):
            with torch.no_grad():
                for weight in model.parameters():
                    weight.mul_(1.5)
        sampler.weights_changed()
        found = await sampler.sample("a", context, params)
        assert sampler.engine.counts.prefilled == 40 + 45
        assert (sampler.engine.counts.kept, sampler.engine.counts.copied) == (0, 0)
        assert found == await fresh.sample("a", context, params)


async def test_closing_a_session_frees_its_slot():
    def held(sampler):
        return {slot.session for slot in sampler.engine.slots.slots if slot.num_stored}

    async with make_sampler(max_rows=2) as sampler:
        context, params = list(range(1, 41)), SamplingParams(max_tokens=3)
        for name in "ab":
            sampler.open(name)
            await sampler.sample(name, context[::-1] if name == "a" else context, params)
        assert held(sampler) == {"a", "b"}
        sampler.close("b")
        await sampler.sample("c", [5, 6, 7], params)
        assert held(sampler) == {"a", "c"}
        # "a" has waited longest, and still has what it stored: "b" made room.
        await sampler.sample("a", [*context[::-1], 8], params)
        assert sampler.engine.counts.again == 0
        assert sampler.engine.counts.kept == 40


@pytest.mark.parametrize("mode", ["fast", "deterministic"])
async def test_a_session_closed_in_flight_may_be_opened_again_at_once(mode):
    async with make_sampler(mode) as sampler:
        sampler.open("a")
        first = asyncio.create_task(sampler.sample("a", [1, 2, 3], SamplingParams(max_tokens=40, seed=1)))
        await asyncio.sleep(0.02)
        sampler.close("a")
        sampler.open("a")
        second = await sampler.sample("a", [4, 5, 6], SamplingParams(max_tokens=4, seed=2))
        assert (len((await first).token_ids), len(second.token_ids)) == (40, 4)
        third = await sampler.sample("a", [4, 5, 6], SamplingParams(max_tokens=4, seed=2))
        assert second.token_ids == third.token_ids


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_lockstep_goes_on_without_a_session_that_gave_up_before_its_batch_began(is_cancelled):
    async with make_sampler("deterministic") as sampler:
        sampler.open("gone")
        sampler.open("stays")
        gone = asyncio.create_task(sampler.sample("gone", [1, 2], SamplingParams(max_tokens=2)))
        await asyncio.sleep(0.01)
        if is_cancelled:
            gone.cancel()
            with pytest.raises(asyncio.CancelledError):
                await gone
        sampler.close("gone")
        assert len((await sampler.sample("stays", [1, 2], SamplingParams(max_tokens=2))).token_ids) == 2
        assert is_cancelled or len((await gone).token_ids) == 2


async def test_an_empty_context_is_refused():
    async with make_sampler() as sampler:
        with pytest.raises(SamplingFailed, match="empty"):
            await sampler.sample("a", [], SamplingParams(max_tokens=2))


async def test_a_failing_step_fails_its_requests_and_the_next_ones_work():
    async with make_sampler() as sampler:
        with pytest.raises(SamplingFailed, match="failed while sampling"):
            await sampler.sample("a", [10**6], SamplingParams(max_tokens=3))
        assert len((await sampler.sample("a", [1], SamplingParams(max_tokens=3))).token_ids) == 3
        with pytest.raises(SamplingFailed):
            await sampler.score_many([[1, 10**6]])


async def test_a_context_that_is_too_long_is_refused_with_the_numbers():
    async with make_sampler(max_positions=100) as sampler:
        with pytest.raises(
            SamplingFailed, match="90 tokens plus 20 new tokens exceeds the model's context length of 100"
        ):
            await sampler.sample("a", [1] * 90, SamplingParams(max_tokens=20))


async def test_scores_are_the_log_probs_that_were_sampled():
    async with make_sampler() as sampler:
        sampled, other = await asyncio.gather(
            sampler.sample("a", [1, 2, 3], SamplingParams(max_tokens=12, seed=4)), sampler.score_many([[5, 6, 7]])
        )
        scores = (await sampler.score_many([[1, 2, 3, *sampled.token_ids]]))[0]
    assert scores[3:] == pytest.approx(sampled.logprobs, abs=1e-5)
    assert len(other[0]) == 3


async def test_stopping_fails_what_waits():
    sampler = make_sampler("deterministic")
    sampler.open("never")
    waiting = asyncio.create_task(sampler.sample("a", [1], SamplingParams(max_tokens=3)))
    await asyncio.sleep(0.02)
    await sampler.stop()
    with pytest.raises(SamplingFailed, match="stopped"):
        await waiting


async def test_stopping_fails_scores_that_wait_for_a_step(monkeypatch):
    sampler, entered, goes_on = make_sampler(), threading.Event(), threading.Event()
    score_many = sampler.engine.score_many

    def wait(sequences, starts):
        entered.set()
        goes_on.wait(10)
        return score_many(sequences, starts)

    monkeypatch.setattr(sampler.engine, "score_many", wait)
    first = asyncio.create_task(sampler.score_many([[1, 2]]))
    await asyncio.to_thread(entered.wait, 10)
    second = asyncio.create_task(sampler.score_many([[3, 4]]))
    await asyncio.sleep(0)  # it is queued behind the first
    stopping = asyncio.create_task(sampler.stop())
    await asyncio.sleep(0)
    goes_on.set()
    await stopping
    assert len((await first)[0]) == 2
    with pytest.raises(SamplingFailed, match="stopped"):
        await asyncio.wait_for(second, 10)


@pytest.mark.parametrize("asks", ["sample", "score"])
async def test_new_weights_that_could_not_be_taken_are_taken_before_anything_else(monkeypatch, asks):
    model, prompt = use_int8(make_model()), [1, 2, 3]
    engine = Engine(model, TOKENIZER.decode, quick=True)
    async with NativeSampler(engine, name="tiny") as sampler:

        async def ask():
            if asks == "score":
                return (await sampler.score_many([prompt]))[0]
            return list((await sampler.sample("a", prompt, SamplingParams(max_tokens=4))).logprobs)

        before, prepare, calls = await ask(), engine._prepare, []

        def fail_once():
            calls.append("prepare")
            if len(calls) == 1:
                raise RuntimeError("no memory")
            prepare()

        monkeypatch.setattr(engine, "_prepare", fail_once)
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(1.3)
        sampler.weights_changed()
        with pytest.raises(SamplingFailed, match="no memory"):
            await asyncio.wait_for(ask(), 10)
        after = await asyncio.wait_for(ask(), 10)
    async with NativeSampler(Engine(model, TOKENIZER.decode, quick=True), name="tiny") as sampler:
        assert after == await ask() != before
    assert len(calls) == 2


class FullStorage(KVStorage):
    """Storage on a GPU with room for three rows, beside the one of padding."""

    def reserve(self, num_slots, capacity, stored):
        if num_slots > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        super().reserve(num_slots, capacity, stored)


def make_full(monkeypatch, mode="fast", max_rows=8):
    sampler = make_sampler(mode, max_rows=max_rows)
    monkeypatch.setattr(sampler.engine, "_make_storage", FullStorage)
    sampler.engine.reset()
    return sampler


async def test_a_full_memory_halves_the_rows_and_loses_no_request(monkeypatch):
    params = [SamplingParams(max_tokens=4 + n % 3, seed=n) for n in range(12)]
    async with make_sampler() as roomy:
        expected = await asyncio.gather(*(roomy.sample(f"s{n}", [n, 7, 7], params[n]) for n in range(12)))
    async with make_full(monkeypatch) as sampler:
        with pytest.warns(SampledLess, match="at most 2 rows"):  # 8, 4 and then 2
            found = await asyncio.gather(*(sampler.sample(f"s{n}", [n, 7, 7], params[n]) for n in range(12)))
        assert [one.token_ids for one in found] == [one.token_ids for one in expected]
        assert sampler.engine.max_rows == 2
        with warnings.catch_warnings(action="error"):
            await sampler.sample("later", [1, 2], SamplingParams(max_tokens=2))


async def test_a_full_memory_is_freed_before_anything_is_made_in_its_place(monkeypatch):
    """The old storage is what fills it, and an engine that cannot be made anew serves nobody any more."""
    made, alive = [], []

    class Storage(FullStorage):
        def __init__(self):
            alive.append(sum(one() is not None for one in made))
            super().__init__()
            made.append(weakref.ref(self))

    sampler = make_sampler()
    monkeypatch.setattr(sampler.engine, "_make_storage", Storage)
    sampler.engine.reset()
    async with sampler:
        with pytest.warns(SampledLess):
            await asyncio.gather(*(sampler.sample(f"s{n}", [n, 7], SamplingParams(max_tokens=3)) for n in range(6)))
    assert alive == [0, 0, 0]  # for 8 rows, for 4 and for 2


async def test_a_session_that_was_closed_holds_nothing_after_its_turn_is_begun_anew(monkeypatch):
    async with make_sampler() as sampler:
        step, num_steps = sampler.engine.step, itertools.count()

        def fill():
            if next(num_steps) == 0:
                sampler.close("a")
                return step()
            monkeypatch.setattr(sampler.engine, "step", step)
            raise torch.OutOfMemoryError("CUDA out of memory")

        monkeypatch.setattr(sampler.engine, "step", fill)
        with pytest.warns(SampledLess):
            await sampler.sample("a", [1, 2], SamplingParams(max_tokens=9, seed=1))
        assert all(not slot.session and not slot.tokens for slot in sampler.engine.slots.slots)


async def test_scores_for_which_the_memory_is_full_are_computed_with_fewer_rows(monkeypatch):
    sequences = [[n, *range(5, 12)] for n in range(12)]
    async with make_sampler() as roomy:
        expected = await roomy.score_many(sequences)
        turn = await roomy.sample("a", [1, 2], SamplingParams(max_tokens=9, seed=1))
    async with make_sampler() as sampler:
        score, seen = sampler.engine.score_many, []

        def fill(*given):
            seen.append(sampler.engine.max_rows)
            if sampler.engine.max_rows > 2:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return score(*given)

        monkeypatch.setattr(sampler.engine, "score_many", fill)
        with pytest.warns(SampledLess, match="at most 2 rows"):
            found, again = await asyncio.gather(
                sampler.score_many(sequences), sampler.sample("a", [1, 2], SamplingParams(max_tokens=9, seed=1))
            )
    assert seen == [8, 4, 2] and again.token_ids == turn.token_ids
    assert [value for row in found for value in row] == pytest.approx(
        [value for row in expected for value in row], abs=1e-5
    )


async def test_a_full_memory_ends_no_engine_where_warnings_are_errors(monkeypatch):
    async with make_full(monkeypatch) as sampler:
        with warnings.catch_warnings(action="error"):
            await asyncio.gather(*(sampler.sample(f"s{n}", [n, 7], SamplingParams(max_tokens=3)) for n in range(6)))
        assert sampler.engine.max_rows == 2 and not sampler.ended


async def test_a_full_memory_while_new_weights_are_taken_loses_no_request(monkeypatch):
    params = SamplingParams(max_tokens=9, seed=1)
    async with make_sampler() as roomy:
        expected = await roomy.sample("a", [1, 2], params)
    async with make_sampler() as sampler:
        step, forget = sampler.engine.step, sampler.engine.forget

        def change():
            monkeypatch.setattr(sampler.engine, "step", step)
            sampler.weights_changed()
            return step()

        def fill():
            if sampler.engine.max_rows > 2:
                raise torch.OutOfMemoryError("CUDA out of memory")
            forget()

        monkeypatch.setattr(sampler.engine, "step", change)
        monkeypatch.setattr(sampler.engine, "forget", fill)
        with pytest.warns(SampledLess, match="at most 2 rows"):
            assert (await sampler.sample("a", [1, 2], params)).token_ids == expected.token_ids


@pytest.mark.parametrize(("mode", "max_rows"), [("deterministic", 8), ("fast", 1)])
async def test_a_full_memory_fails_where_batches_are_fixed_or_one_row_is_too_much(monkeypatch, mode, max_rows):
    async with make_sampler(mode, max_rows=max_rows) as sampler:

        def fill():
            raise torch.OutOfMemoryError("CUDA out of memory")

        monkeypatch.setattr(sampler.engine, "_admit", fill)
        sampler.open("a")
        with pytest.raises(SamplingFailed, match="out of memory"):
            await sampler.sample("a", [1, 2], SamplingParams(max_tokens=2))


async def test_a_stream_that_was_begun_fails_when_the_memory_is_full(monkeypatch):
    async with make_sampler() as sampler:
        told, step = [], sampler.engine.step

        def fill():
            if len(told) >= 3:
                monkeypatch.setattr(sampler.engine, "step", step)
                raise torch.OutOfMemoryError("CUDA out of memory")
            return step()

        monkeypatch.setattr(sampler.engine, "step", fill)
        params = SamplingParams(max_tokens=400, seed=1)
        with pytest.warns(SampledLess), pytest.raises(SamplingFailed, match="memory is full"):
            await sampler.sample("a", [1, 2], params, told.extend)
        # Whoever asks again gets an answer.
        assert len((await sampler.sample("a", [1, 2], SamplingParams(max_tokens=2))).token_ids) == 2


async def test_an_engine_that_cannot_go_on_leaves_nobody_waiting(monkeypatch):
    sampler, entered, goes_on = make_sampler(), threading.Event(), threading.Event()

    def step():
        entered.set()
        goes_on.wait(10)
        raise RuntimeError("the device is lost")

    def reset():
        raise RuntimeError("the device is still lost")

    monkeypatch.setattr(sampler.engine, "step", step)
    monkeypatch.setattr(sampler.engine, "reset", reset)
    in_flight = asyncio.create_task(sampler.sample("a", [1, 2, 3], SamplingParams(max_tokens=2)))
    await asyncio.to_thread(entered.wait, 10)
    waiting = [
        asyncio.create_task(sampler.sample("b", [1, 2, 3], SamplingParams(max_tokens=2))),
        asyncio.create_task(sampler.score_many([[3, 4]])),
    ]
    await asyncio.sleep(0)
    goes_on.set()
    for task in (in_flight, *waiting):
        with pytest.raises(SamplingFailed, match="lost"):
            await asyncio.wait_for(task, 10)
    with pytest.raises(SamplingFailed, match="lost"):
        await asyncio.wait_for(sampler.sample("c", [1, 2, 3], SamplingParams(max_tokens=2)), 10)
    await sampler.stop()


def test_a_loop_that_closes_before_it_is_told_ends_no_thread(monkeypatch):
    loop = asyncio.new_event_loop()
    future = loop.create_future()
    loop.close()
    monkeypatch.setattr(loop, "is_closed", lambda: False)  # as it was when it was asked
    _settle(future, 1)


async def test_a_stopped_sampler_says_so():
    sampler = make_sampler()
    await sampler.sample("a", [1, 2, 3], SamplingParams(max_tokens=2))
    await sampler.stop()
    with pytest.raises(SamplingFailed, match="was stopped"):
        await sampler.sample("b", [1, 2, 3], SamplingParams(max_tokens=2))
    with pytest.raises(SamplingFailed, match="was stopped"):
        await sampler.score_many([[1, 2, 3]])
