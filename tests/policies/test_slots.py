"""Contexts that are kept between turns and shared between sessions, and never computed twice."""

import random
from functools import lru_cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import tiny
from quaere.policies.native import storage
from quaere.policies.native.bridge import use_packed_attention
from quaere.policies.native.engine import Engine, Request
from quaere.policies.native.slots import BLOCK, SlotTable
from quaere.policies.native.storage import STRIDE, KVStorage
from quaere.policies.sampler import SamplingParams

TOKENIZER = tiny.tokenizer()


def make_engine(max_rows=4, ahead=False, **options):
    engine = Engine(use_packed_attention(tiny.model("llama")), TOKENIZER.decode, max_rows=max_rows, **options)
    if ahead:  # as a GPU is driven
        engine.lookahead, engine.patience = 1, 8
    return engine


def play(engine, sessions, turns=3, end=True):
    """Several sessions turn by turn, each adding an observation to what it has; returns all they sampled."""
    contexts = {name: list(prompt) for name, prompt in sessions.items()}
    heard = {name: [] for name in sessions}
    for turn in range(turns):
        for number, (name, context) in enumerate(contexts.items()):
            params = SamplingParams(max_tokens=3 + (number + turn) % 4, seed=10 * number + turn)
            engine.add(Request(f"{name}/{turn}", context, params, name))
        while engine.busy:
            for done in engine.step():
                name = done.key.split("/")[0]
                heard[name].append(done.sampled().token_ids)
                contexts[name] += [*done.new_tokens, 9, turn + 1, 7]
    if end:
        for name in sessions:
            engine.end(name)
    return heard


def prompt(seed, length=40):
    draw = random.Random(seed)
    return [draw.randrange(400) for _ in range(length)]


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


def test_new_weights_make_what_is_stored_untrue():
    engine = make_engine()
    contexts = {"a": prompt(1)}
    play(engine, contexts, turns=1, end=False)
    engine.forget()
    kept = engine.counts.kept
    with torch.no_grad():
        for weight in engine.model.parameters():
            weight.mul_(1.5)
    sampled = play(engine, contexts, turns=1)
    assert engine.counts.kept == kept
    fresh = make_engine()
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


def finish(engine):
    """Step until nothing is left; returns what was done on the way."""
    done = []
    for _ in range(2000):
        if not engine.busy:
            return done
        done += engine.step()
    raise AssertionError("the engine does not come to an end")


def alone(tokens, **params):
    """What a fresh engine samples after these tokens."""
    engine = make_engine(max_rows=1, reuse=False)
    engine.add(Request("alone", tokens, SamplingParams(**params)))
    return finish(engine)[0].new_tokens


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
@pytest.mark.parametrize("max_tokens", [1, 2, 3])
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
    engine = make_engine(ahead=ahead, max_step_tokens=25)
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
    fresh = make_engine(reuse=False)
    fresh.model.load_state_dict(engine.model.state_dict())
    expected = [Request(r.key, r.tokens[: r.num_prompt], r.params) for r in (behind, waits, kept, later)]
    for request in expected:
        fresh.add(request)
    finish(fresh)
    assert [r.new_tokens for r in (behind, waits, kept, later)] == [r.new_tokens for r in expected]
    assert {slot.session for slot in engine.slots.slots} <= {"", "l"}


def test_nobody_copies_from_a_row_that_began_before_the_weights_changed():
    engine = make_engine()
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


def test_nothing_is_kept_of_a_session_whose_context_changed():
    table = SlotTable(2)
    taken = table.take("a", [1] * 40)
    taken.slot.num_stored = 40
    table.rest(taken.slot)
    again = table.take("a", [1] * 20 + [2] * 20)
    assert again.slot is taken.slot
    assert again.slot.num_stored == 20


@settings(max_examples=60)
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


SESSIONS = list("abcd")
MODEL = use_packed_attention(tiny.model("llama"))


@lru_cache
def sampled_alone(context, params):
    engine = Engine(MODEL, TOKENIZER.decode, max_rows=1, reuse=False)
    engine.add(Request("alone", context, params))
    return finish(engine)[0].sampled()


class Driven(RuleBasedStateMachine):
    """An engine to which anything may happen at any time: every turn it finishes is what a fresh engine samples."""

    @initialize(
        ahead=st.booleans(), max_rows=st.sampled_from([1, 2, 3, 7]), max_step_tokens=st.sampled_from([7, 30, 2048])
    )
    def start(self, ahead, max_rows, max_step_tokens):
        self.engine = Engine(MODEL, TOKENIZER.decode, max_rows=max_rows, max_step_tokens=max_step_tokens)
        if ahead:
            self.engine.lookahead, self.engine.patience = 1, 8
        self.requests = []
        self.contexts = {}

    @rule(session=st.sampled_from(["", *SESSIONS]), kind=st.integers(0, 2), max_tokens=st.integers(1, 4))
    def begin(self, session, kind, max_tokens):
        """A first turn, or another than the session had: of three prompts that begin alike."""
        self.add(session, [*prompt(0, 20), *prompt(kind, 15)], kind, max_tokens)

    @precondition(lambda self: self.contexts)
    @rule(data=st.data(), length=st.integers(1, 20), max_tokens=st.integers(1, 4))
    def go_on(self, data, length, max_tokens):
        session = data.draw(st.sampled_from(sorted(self.contexts)))
        self.add(session, [*self.contexts[session], *prompt(length, length)], length, max_tokens)

    def add(self, session, context, seed, max_tokens):
        stop = tuple(range(100, 160)) if max_tokens % 2 else ()
        params = SamplingParams(max_tokens=max_tokens, seed=seed, stop_token_ids=stop)
        self.requests.append(Request(f"{session}/{len(self.requests)}", context, params, session))
        self.engine.add(self.requests[-1])

    @rule(what=st.sampled_from(["cancel", "cancel", "end", "end", "forget", "reset"]), data=st.data())
    def disturb(self, what, data):
        if what == "cancel" and self.requests:
            data.draw(st.sampled_from(self.requests)).cancelled = True
        elif what == "end":
            session = data.draw(st.sampled_from(SESSIONS))
            self.engine.end(session)
            self.contexts.pop(session, None)
        elif what == "forget":
            self.engine.forget()
        elif what == "reset":
            self.engine.reset()
            self.requests.clear()

    @rule(count=st.integers(1, 4))
    def step(self, count):
        for _ in range(count):
            self.check(self.engine.step())

    @invariant()
    def every_row_has_a_slot_of_its_own(self):
        rows = sorted(row.slot.number for row in self.engine.rows)
        assert rows == [slot.number for slot in self.engine.slots.slots if slot.in_flight]

    def check(self, done):
        for request in done:
            self.requests.remove(request)
            expected = sampled_alone(tuple(request.tokens[: request.num_prompt]), request.params)
            assert not request.cancelled
            assert request.sampled().token_ids == expected.token_ids
            assert request.logprobs == pytest.approx(expected.logprobs, abs=1e-4)
            if request.session:
                self.contexts[request.session] = list(request.tokens)

    def teardown(self):
        if hasattr(self, "engine"):
            self.check(finish(self.engine))
            assert all(request.cancelled for request in self.requests)
            for session in SESSIONS:
                self.engine.end(session)
            assert self.engine.slots.stored() == {}


def test_whatever_happens_a_turn_is_sampled_as_if_alone(monkeypatch):
    monkeypatch.setattr(storage, "STRIDE", 16)  # so that memory grows often
    run_state_machine_as_test(Driven, settings=settings(max_examples=80, stateful_step_count=30, derandomize=True))


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
