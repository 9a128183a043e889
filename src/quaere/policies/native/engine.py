"""Continuous batching as a plain state machine: no threads, no asyncio.

Every row has tokens, some of which already have their keys and values stored. A step takes from each row the tokens
that do not (a whole prompt, a chunk of one, or the token sampled last), runs them through the model together, and lets
every row that has caught up sample its next token. So a prompt may join while others are in the middle of their turn,
and a row leaves the moment it is done.

    engine = Engine(model, decode, max_rows=32)
    engine.add(Request("e1", prompt_ids, SamplingParams(max_tokens=64)))
    while engine.busy:
        for done in engine.step():
            print(done.key, done.sampled())
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from quaere.policies.native.bridge import PackedStep, forward
from quaere.policies.native.picking import pick_tokens, uniform
from quaere.policies.native.storage import KVStorage, Span
from quaere.policies.sampler import Sampled, SamplingParams
from quaere.records import StopReason


class Request:
    """One turn to be sampled, and how far it has come."""

    def __init__(self, key: str, token_ids: Sequence[int], params: SamplingParams) -> None:
        self.key = key
        self.params = params
        self.tokens = list(token_ids)
        self.num_prompt = len(self.tokens)
        self.num_stored = 0
        self.logprobs: list[float] = []
        self.stop_reason: StopReason | None = None
        self.cancelled = False

    @property
    def new_tokens(self) -> list[int]:
        """What was sampled so far."""
        return self.tokens[self.num_prompt :]

    def sampled(self) -> Sampled:
        """The finished turn."""
        assert self.stop_reason is not None
        return Sampled(tuple(self.new_tokens), tuple(self.logprobs), self.stop_reason)


class Engine:
    """Steps all rows in flight together; `observe` (if set) is told the keys and token counts of every step."""

    def __init__(
        self,
        model: Any,
        decode: Callable[[Sequence[int]], str],
        *,
        max_rows: int = 32,
        max_step_tokens: int = 2048,
    ) -> None:
        self.model = model
        self.decode = decode
        self.max_rows = max_rows
        self.max_step_tokens = max_step_tokens
        self.device = next(model.parameters()).device
        self.rows: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.storage = KVStorage()
        self._pieces: dict[int, str] = {}
        self.observe: Callable[[list[tuple[str, int]]], None] | None = None

    @property
    def busy(self) -> bool:
        """Is anything in flight or waiting?"""
        return bool(self.rows or self.waiting)

    def add(self, request: Request) -> None:
        """Queue a request; it joins at the next step with room for it."""
        self.waiting.append(request)

    def reset(self) -> None:
        """Forget everything in flight and give its memory back."""
        self.rows.clear()
        self.waiting.clear()
        self.storage = KVStorage()

    def step(self) -> list[Request]:
        """Move every row on by one forward pass; returns the requests that are done."""
        self._drop_cancelled()
        self._admit()
        plan = self._plan()
        if not plan:
            return []
        if self.observe:
            self.observe([(self.rows[span.slot].key, span.length) for span in plan])
        logits = self._forward(plan)
        ready = []
        for span in plan:
            row = self.rows[span.slot]
            row.num_stored += span.length
            if row.num_stored == len(row.tokens):
                ready.append(row)
        if ready:
            self._sample(ready, logits)
        done = [row for row in self.rows if row.stop_reason is not None]
        for row in done:
            self._leave(row)
        return done

    def score(self, token_ids: Sequence[int]) -> list[float]:
        """Log-prob of every token given those before it, in a pass of its own; the first one's is 0."""
        if len(token_ids) < 2:
            return [0.0] * len(token_ids)
        storage = KVStorage()
        storage.reserve(1, len(token_ids))
        result = [0.0]
        for start in range(0, len(token_ids) - 1, self.max_step_tokens):
            chunk = list(token_ids[start : start + self.max_step_tokens])
            targets = list(token_ids[start + 1 : start + 1 + len(chunk)])
            step = PackedStep(storage, [Span(0, start, len(chunk), 0)], self.device)
            wanted = torch.arange(len(targets), device=self.device)
            positions = torch.arange(start, start + len(chunk), device=self.device)
            logits = forward(self.model, step, torch.tensor(chunk, device=self.device), positions, wanted)
            chosen = torch.tensor(targets, device=self.device)[:, None]
            result += torch.log_softmax(logits, -1).gather(1, chosen)[:, 0].tolist()
        return result

    # ------------------------------------------------------------------------------------------ one step, in order

    def _drop_cancelled(self) -> None:
        self.waiting = deque(request for request in self.waiting if not request.cancelled)
        for row in [row for row in self.rows if row.cancelled]:
            self._leave(row)

    def _admit(self) -> None:
        while self.waiting and len(self.rows) < self.max_rows:
            self.rows.append(self.waiting.popleft())
        if self.rows:
            longest = max(row.num_prompt + row.params.max_tokens for row in self.rows)
            self.storage.reserve(len(self.rows), longest)

    def _plan(self) -> list[Span]:
        """Decoding rows first, in slot order; then prompts, in chunks that fit the step."""
        decoding = [slot for slot, row in enumerate(self.rows) if len(row.tokens) - row.num_stored == 1]
        room = max(1, self.max_step_tokens - len(decoding))
        spans = [Span(slot, self.rows[slot].num_stored, 1, offset) for offset, slot in enumerate(decoding)]
        offset = len(spans)
        for slot, row in enumerate(self.rows):
            length = min(len(row.tokens) - row.num_stored, room)
            if slot in decoding or length == 0:
                continue
            spans.append(Span(slot, row.num_stored, length, offset))
            offset += length
            room -= length
        return spans

    def _forward(self, plan: list[Span]) -> torch.Tensor:
        """Logits of the last token of every row that catches up in this step."""
        token_ids: list[int] = []
        positions: list[int] = []
        wanted: list[int] = []
        for span in plan:
            row = self.rows[span.slot]
            end = span.start + span.length
            token_ids += row.tokens[span.start : end]
            positions += range(span.start, end)
            if end == len(row.tokens):
                wanted.append(len(token_ids) - 1)
        step = PackedStep(self.storage, plan, self.device)
        tensors = [
            torch.tensor(values, dtype=torch.long, device=self.device) for values in (token_ids, positions, wanted)
        ]
        return forward(self.model, step, *tensors)

    def _sample(self, ready: list[Request], logits: torch.Tensor) -> None:
        params = [row.params for row in ready]
        uniforms = [uniform(row.params.seed, len(row.logprobs)) for row in ready]
        for row, token, logprob in zip(ready, *pick_tokens(logits, params, uniforms), strict=True):
            row.tokens.append(token)
            row.logprobs.append(logprob)
            row.stop_reason = self._why_stop(row)

    def _why_stop(self, row: Request) -> StopReason | None:
        new = row.new_tokens
        if new[-1] in row.params.stop_token_ids:
            return "end_of_turn"
        if row.params.stop and self._ends_in_stop(new, row.params.stop):
            return "stop_string"
        return "length" if len(new) >= row.params.max_tokens else None

    def _ends_in_stop(self, new: list[int], stop: tuple[str, ...]) -> bool:
        """Has one of the strings just appeared? It may end inside the last token, which is kept whole.

        A token stands for at least one byte of text, so a tail of tokens as long as the longest string in bytes holds
        any string that the newest token completes; some more keep a character cut at the front out of the way.
        """
        if not self._may_end(new[-1], stop):
            return False
        longest = max(len(text.encode()) for text in stop)
        tail = self.decode(new[-(longest + 4) :])
        return any(text in tail for text in stop)

    def _may_end(self, token: int, stop: tuple[str, ...]) -> bool:
        """Could this token complete one of the strings?

        What a token says is decoded once; a tail of tokens for every row and step would cost much of a fast step. A
        last character of several bytes may be shared by two tokens, so then nothing is ruled out.
        """
        lasts = {text[-1] for text in stop}
        if not all(map(str.isascii, lasts)):
            return True
        if token not in self._pieces:
            self._pieces[token] = self.decode([token])
        return not lasts.isdisjoint(self._pieces[token])

    def _leave(self, row: Request) -> None:
        """Take a row out; the last row moves into its slot, so that the slots in use stay 0..n-1."""
        slot = self.rows.index(row)
        last = self.rows.pop()
        if last is not row:
            self.rows[slot] = last
            self.storage.move(len(self.rows), slot, last.num_stored)
