"""An engine to which anything may happen at any time."""

from functools import lru_cache

import pytest
from engines import MODEL, TOKENIZER, finish, prompt
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from properties import examples
from quaere.policies.native import kv_cache
from quaere.policies.native.engine import Engine, Request
from quaere.policies.sampler import SamplingParams

SESSIONS = list("abcd")


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


@pytest.mark.parametrize("num", [40, pytest.param(160, marks=pytest.mark.slow)])
def test_whatever_happens_a_turn_is_sampled_as_if_alone(monkeypatch, num):
    monkeypatch.setattr(kv_cache, "STRIDE", 16)  # so that memory grows often
    run_state_machine_as_test(
        Driven, settings=settings(max_examples=examples(num), stateful_step_count=30, derandomize=True)
    )
