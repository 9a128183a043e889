"""Contexts that are kept between turns and shared between sessions, and never computed twice."""

import pytest
import torch
from engines import alone, finish, make_engine, make_model, play, prompt

from quaere.policies.native.engine import Request
from quaere.policies.native.kv_cache import BLOCK
from quaere.policies.sampler import SamplingParams


@pytest.mark.parametrize("ahead", [False, True])
def test_a_session_computes_no_token_twice(ahead):
    engine = make_engine(ahead=ahead)
    sessions = {"a": prompt(1), "b": prompt(2)}
    heard = play(engine, sessions)
    context = sum(len(tokens) for turns in heard.values() for tokens in turns[:-1]) + 2 * 40 + 2 * 2 * 3
    # Every token of a context is computed once: as a chunk, or when it was drawn and fed back.
    assert engine.counts.again == 0
    assert engine.counts.prefilled < context
    assert engine.counts.prefilled + engine.counts.kept == sum(
        40 + sum(len(tokens) + 3 for tokens in turns[:turn]) for turns in heard.values() for turn in range(3)
    )
    assert heard == play(make_engine(reuse=False), sessions)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("max_step_tokens", [17, 2048])
def test_a_shared_prompt_is_computed_once(ahead, max_step_tokens):
    engine = make_engine(max_rows=8, ahead=ahead, max_step_tokens=max_step_tokens)
    shared = prompt(3, 50)
    sessions = {f"s{number}": shared for number in range(5)} | {"other": [*shared[:33], *prompt(4)]}
    heard = play(engine, sessions, turns=1)
    assert engine.counts.copied == 4 * 49 + 33
    assert engine.counts.prefilled == 50 + 4 * 1 + 40
    assert heard == play(make_engine(max_rows=8, reuse=False), sessions, turns=1)
    # Contexts that are alike but for less than a block share nothing.
    assert BLOCK > 10
    small = make_engine()
    play(small, {"a": prompt(5, 10), "b": prompt(5, 10)}, turns=1)
    assert small.counts.copied == 0


@pytest.mark.parametrize("ahead", [False, True])
def test_a_crowd_gets_its_slots_while_others_are_computed_and_no_memory_moves(ahead):
    engine = make_engine(max_rows=8, max_step_tokens=20, ahead=ahead)
    crowd = [Request(f"{n}/0", prompt(n, 30 + n), SamplingParams(max_tokens=3, seed=n), str(n)) for n in range(8)]
    for request in crowd:
        engine.add(request)
    engine.step()
    # Four steps of work, and the one that went beyond them.
    assert [request.slot is not None for request in crowd] == [True] * 3 + [False] * 5
    version = engine.storage.version
    assert len(finish(engine)) == 8
    assert engine.storage.version == version  # the longest came last, and had its room from the beginning
    assert all(request.new_tokens == alone(prompt(n, 30 + n), max_tokens=3, seed=n) for n, request in enumerate(crowd))


def test_new_weights_make_what_is_stored_untrue():
    engine = make_engine(model=make_model())
    contexts = {"a": prompt(1)}
    play(engine, contexts, turns=1, end=False)
    engine.forget()
    kept = engine.counts.kept
    with torch.no_grad():
        for weight in engine.model.parameters():
            weight.mul_(1.5)
    sampled = play(engine, contexts, turns=1)
    assert engine.counts.kept == kept
    fresh = make_engine(model=make_model())
    fresh.model.load_state_dict(engine.model.state_dict())
    assert sampled == play(fresh, contexts, turns=1)


def test_a_cancelled_request_frees_its_slot_when_its_session_ends():
    engine = make_engine(max_rows=2)
    request = Request("a/0", prompt(1), SamplingParams(max_tokens=50), "a")
    engine.add(request)
    engine.step()
    request.cancelled = True
    engine.step()
    assert not engine.busy
    assert engine.slots.stored() != {}  # the session may go on
    engine.end("a")
    assert engine.slots.stored() == {}


def test_a_donor_that_is_cancelled_does_not_keep_others_waiting():
    engine = make_engine(max_step_tokens=20)
    first = Request("a/0", prompt(1, 60), SamplingParams(max_tokens=3), "a")
    second = Request("b/0", prompt(1, 60), SamplingParams(max_tokens=3), "b")
    engine.add(first)
    engine.add(second)
    engine.step()
    first.cancelled = True
    done = []
    while engine.busy:
        done += engine.step()
    assert done == [second]
    assert engine.counts.prefilled < 2 * 60


STATES = {
    # the state a request is in, and how many steps bring it there
    "in the queue": 0,
    "waiting for a donor": 1,
    "prefilling in chunks": 4,
    "decoding": 6,
}


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("state", STATES)
def test_cancelled_in_any_state_it_disturbs_nobody_and_its_session_goes_on(ahead, state):
    engine = make_engine(max_rows=3, max_step_tokens=25, ahead=ahead)
    donor = Request("a/0", prompt(1, 60), SamplingParams(max_tokens=9, seed=1), "a")
    leaver = Request("b/0", [*prompt(1, 60), *prompt(2, 50)], SamplingParams(max_tokens=9, seed=2), "b")
    other = Request("c/0", prompt(3, 30), SamplingParams(max_tokens=9, seed=3), "c")
    for request in (donor, leaver, other):
        engine.add(request)
    for _ in range(STATES[state]):
        engine.step()
    stored = leaver.slot.num_stored if leaver.slot else 0
    assert (leaver.slot is None) == (state == "in the queue")
    assert (leaver.donor is not None) == (state == "waiting for a donor")
    assert (0 < stored < 110 and leaver.num_launched == 0) == (state == "prefilling in chunks")
    assert (leaver.num_launched > 0) == (state == "decoding")
    leaver.cancelled = True
    done = engine.step()
    again = Request("b/1", leaver.tokens, SamplingParams(max_tokens=4, seed=4), "b")
    engine.add(again)
    done += finish(engine)
    assert sorted(request.key for request in done) == ["a/0", "b/1", "c/0"]
    assert donor.new_tokens == alone(prompt(1, 60), max_tokens=9, seed=1)
    assert other.new_tokens == alone(prompt(3, 30), max_tokens=9, seed=3)
    assert again.new_tokens == alone(leaver.tokens, max_tokens=4, seed=4)
    assert [slot for slot in engine.slots.slots if slot.in_flight] == []


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("max_tokens", [1, 3])
def test_short_turns(ahead, max_tokens):
    """Some end by length and some by a stop token, seen when the next step is already on its way."""
    free = [alone(prompt(n, 20), max_tokens=max_tokens, seed=n) for n in range(6)]
    engine = make_engine(max_rows=2, ahead=ahead)
    requests = []
    for n, tokens in enumerate(free):
        stop = (tokens[-1],) if n % 2 else ()
        params = SamplingParams(max_tokens=max_tokens + n % 2, seed=n, stop_token_ids=stop)
        requests.append(Request(f"s{n}", prompt(n, 20), params, f"s{n}"))
        engine.add(requests[-1])
    finish(engine)
    for n, (request, tokens) in enumerate(zip(requests, free, strict=True)):
        assert request.new_tokens == tokens[: tokens.index(tokens[-1]) + 1] if n % 2 else tokens
        assert len(request.logprobs) == len(request.new_tokens)
        assert request.stop_reason == ("end_of_turn" if n % 2 else "length")
    assert engine.counts.drawn == sum(len(request.new_tokens) for request in requests)


def test_rows_that_have_drawn_all_they_may_keep_no_context_waiting():
    engine = make_engine(max_rows=7, ahead=True)
    for n in range(6):
        engine.add(Request(f"s{n}", prompt(n), SamplingParams(max_tokens=2)))
    engine.step()
    engine.add(Request("late", prompt(9), SamplingParams(max_tokens=1)))
    steps = []
    engine.observe = steps.append
    engine.step()
    engine.step()
    assert steps == [[(f"s{n}", 1) for n in range(6)], [("late", 40)]]


def test_a_row_that_is_done_waits_for_its_tokens_as_long_as_a_gpu_has_others_to_draw():
    engine = make_engine(ahead=True)
    short, long = (Request(f"{n} tokens", prompt(n), SamplingParams(max_tokens=n)) for n in (1, 3))
    engine.add(short)
    engine.add(long)
    # The last step is read at once, as no other is on its way.
    assert [engine.step() for _ in range(3)] == [[], [short], [long]]


@pytest.mark.parametrize("ahead", [False, True])
def test_two_turns_of_a_session_at_once(ahead):
    engine = make_engine(ahead=ahead)
    requests = [Request(f"a/{n}", prompt(n % 2), SamplingParams(max_tokens=5, seed=n), "a") for n in range(3)]
    engine.add(requests[0])
    engine.step()
    for request in requests[1:]:
        engine.add(request)
    finish(engine)
    for n, request in enumerate(requests):
        assert request.new_tokens == alone(prompt(n % 2), max_tokens=5, seed=n)
    assert [slot.session for slot in engine.slots.slots if slot.num_stored] == ["a"]


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("num_steps", [0, 1, 4])
def test_a_session_that_ends_in_flight_finishes_its_turn_and_keeps_nothing(ahead, num_steps):
    engine = make_engine(ahead=ahead, max_step_tokens=25)
    request = Request("a/0", prompt(1), SamplingParams(max_tokens=6), "a")
    engine.add(request)
    for _ in range(num_steps):
        engine.step()
    engine.end("a")
    assert finish(engine) == [request]
    assert request.new_tokens == alone(prompt(1), max_tokens=6)
    assert engine.slots.stored() == {}
    # Whoever has the name next is another.
    engine.add(Request("a/0", prompt(1), SamplingParams(max_tokens=1), "a"))
    finish(engine)
    assert (engine.counts.kept, engine.counts.copied, engine.counts.again) == (0, 0, 0)


def changed(engine):
    with torch.no_grad():
        for weight in engine.model.parameters():
            weight.mul_(1.5)
    engine.forget()


@pytest.mark.parametrize("ahead", [False, True])
def test_new_weights_with_rows_in_flight(ahead):
    engine = make_engine(model=make_model(), ahead=ahead, max_step_tokens=25)
    shared = prompt(1, 60)
    play(engine, {"b": prompt(5)}, turns=1, end=False)
    behind = Request("a/0", shared, SamplingParams(max_tokens=6), "a")
    waits = Request("w/0", shared, SamplingParams(max_tokens=6), "w")
    kept = Request("b/1", [*prompt(5), *prompt(6, 50)], SamplingParams(max_tokens=6), "b")
    for request in (behind, waits, kept):
        engine.add(request)
    engine.step()
    assert behind.slot.num_stored == 25
    assert waits.donor is behind.slot
    assert kept.slot.num_stored >= 40
    changed(engine)
    later = Request("l/0", shared, SamplingParams(max_tokens=6), "l")
    engine.add(later)
    finish(engine)
    fresh = make_engine(model=make_model(), reuse=False)
    fresh.model.load_state_dict(engine.model.state_dict())
    expected = [Request(r.key, r.tokens[: r.num_prompt], r.params) for r in (behind, waits, kept, later)]
    for request in expected:
        fresh.add(request)
    finish(fresh)
    assert [r.new_tokens for r in (behind, waits, kept, later)] == [r.new_tokens for r in expected]
    assert {slot.session for slot in engine.slots.slots} <= {"", "l"}


def test_nobody_copies_from_a_row_that_began_before_the_weights_changed():
    engine = make_engine(model=make_model())
    engine.add(Request("a/0", prompt(1), SamplingParams(max_tokens=30), "a"))
    engine.step()
    changed(engine)
    engine.add(Request("b/0", prompt(1), SamplingParams(max_tokens=2), "b"))
    engine.step()
    assert engine.counts.copied == 0
    assert engine.counts.prefilled == 2 * 40


@pytest.mark.parametrize("ahead", [False, True])
def test_after_a_failure_and_a_reset_nothing_is_left(ahead):
    engine = make_engine(ahead=ahead)
    sessions = {"a": prompt(1), "b": prompt(2)}
    play(engine, sessions, turns=1, end=False)
    engine.add(Request("c", prompt(3), SamplingParams(max_tokens=5), "c"))
    engine.step()
    engine.add(Request("bad", [10**6], SamplingParams(max_tokens=5), "bad"))
    with pytest.raises(IndexError):
        finish(engine)
    engine.reset()
    assert not engine.busy
    assert engine.storage.layers == {}
    kept = engine.counts.kept
    assert play(engine, sessions, turns=1) == play(make_engine(), sessions, turns=1)
    assert engine.counts.kept == kept


@pytest.mark.parametrize("ahead", [False, True])
def test_a_donor_whose_session_goes_elsewhere_before_it_was_copied(ahead):
    engine = make_engine(ahead=ahead)
    play(engine, {"a": prompt(1, 60)}, turns=1, end=False)
    copies = Request("b/0", prompt(1, 60), SamplingParams(max_tokens=4, seed=1), "b")
    turns = Request("a/1", [*prompt(1, 30), *prompt(2, 40)], SamplingParams(max_tokens=4, seed=2), "a")
    engine.add(copies)
    engine.add(turns)
    finish(engine)
    assert copies.new_tokens == alone(prompt(1, 60), max_tokens=4, seed=1)
    assert turns.new_tokens == alone([*prompt(1, 30), *prompt(2, 40)], max_tokens=4, seed=2)


@pytest.mark.parametrize("ahead", [False, True])
def test_memory_grows_under_rows_in_flight_and_sessions_that_rest(ahead):
    engine = make_engine(ahead=ahead)
    play(engine, {"rests": prompt(1)}, turns=1, end=False)
    decodes = Request("decodes", prompt(2), SamplingParams(max_tokens=8, seed=1))
    engine.add(decodes)
    engine.step()
    assert engine.storage.capacity == 512
    engine.add(Request("long", prompt(3, 600), SamplingParams(max_tokens=1)))
    again = Request("rests/1", [*prompt(1), 7, 8], SamplingParams(max_tokens=4, seed=2), "rests")
    engine.add(again)
    finish(engine)
    assert engine.storage.capacity == 1024
    assert engine.counts.kept == 40
    assert decodes.new_tokens == alone(prompt(2), max_tokens=8, seed=1)
    assert again.new_tokens == alone([*prompt(1), 7, 8], max_tokens=4, seed=2)


def test_a_slot_that_was_given_up_early_hides_no_other_donor():
    engine = make_engine(max_step_tokens=20)
    early = Request("a/0", prompt(1, 60), SamplingParams(max_tokens=1), "a")
    engine.add(early)
    engine.step()
    early.cancelled = True
    engine.add(Request("b/0", [*prompt(1, 33), *prompt(2, 20)], SamplingParams(max_tokens=1), "b"))
    finish(engine)
    assert (engine.counts.copied, engine.counts.prefilled) == (20, 20 + 33)
    # "a" begins like all of this but stored 20 tokens; "b" like 33 of it, and has them.
    engine.add(Request("c/0", prompt(1, 60), SamplingParams(max_tokens=1), "c"))
    finish(engine)
    assert (engine.counts.copied, engine.counts.prefilled) == (20 + 33, 20 + 33 + 27)


def test_when_slots_are_short_the_longest_idle_session_gives_way():
    engine = make_engine(max_rows=2)
    sessions = {"a": prompt(1), "b": prompt(2), "c": prompt(3)}
    heard = play(engine, sessions, turns=2)
    assert engine.counts.again > 0
    assert heard == play(make_engine(max_rows=3), sessions, turns=2)
