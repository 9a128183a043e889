"""Continuous batching as a plain state machine, without threads or asyncio.

Every row has a slot (`slots`) with the KV cache of some of its tokens: those of its session's earlier turns, or of a
prompt that it shares with another row. A step samples one more token for every row whose context is complete, and
prefills the missing parts of other contexts, in chunks that fit. So a prompt can join while other rows are in the
middle of their turn, and a row leaves as soon as it is done.

    engine = Engine(model, decode, max_rows=32)
    engine.add(Request("e1", prompt_ids, SamplingParams(max_tokens=64)))
    while engine.busy:
        for done in engine.step():
            print(done.key, done.sampled())

On a GPU the next step is launched before the tokens of the last one are read; a row that turns out to have stopped has
then sampled one token too many, which is dropped.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any, Self

from msgspec import Struct

from quaere.policies.native.bridge import forward, fuse, read_llama, why_unpacked
from quaere.policies.native.decoder import Decoder, Draw, Drawn, Forward, how_to_draw
from quaere.policies.native.device import has_kernels, release_memory
from quaere.policies.native.kv_cache import KVStorage, Slot, SlotTable, Span
from quaere.policies.native.llama_step import LlamaStep
from quaere.policies.native.plain import PlainForward
from quaere.policies.native.row_caches import RowCaches
from quaere.policies.native.sequence_logprobs import score_sequences
from quaere.policies.native.weights import decodes_in_int8, prepare_products
from quaere.policies.sampler import Sampled, SamplingParams, StopStrings
from quaere.records import StopReason


class Request:
    """One turn to be sampled, and its state. Turns of one session reuse its KV cache."""

    def __init__(self, key: str, token_ids: Sequence[int], params: SamplingParams, session: str = "") -> None:
        self.key = key
        self.session = session
        self.params = params
        self.draw = how_to_draw([params])
        self.tokens = list(token_ids)
        self.num_prompt = len(self.tokens)
        self.num_launched = 0  # tokens sampled or being sampled
        self.logprobs: list[float] = []
        self.stop_reason: StopReason | None = None
        self.cancelled = False
        self.slot: Slot | None = None
        self.donor: Slot | None = None  # slot from which the first `num_shared` tokens will be copied
        self.donor_epoch = 0
        self.num_shared = 0

    def begun_anew(self) -> Self:
        """The request as it was made: with its seed it gets the same tokens, up to rounding."""
        return type(self)(self.key, self.tokens[: self.num_prompt], self.params, self.session)

    @property
    def new_tokens(self) -> list[int]:
        """The tokens sampled so far."""
        return self.tokens[self.num_prompt :]

    def sampled(self) -> Sampled:
        """The finished turn as a `Sampled`: its tokens, log-probs and stop reason."""
        assert self.stop_reason is not None
        return Sampled(tuple(self.new_tokens), tuple(self.logprobs), self.stop_reason)


class Counts(Struct):
    """Token counts of the engine since it was made.

    Counts(prefilled=700, kept=512, copied=300, again=0, drawn=64)

    prefilled: context tokens computed; kept: found in the session's own slot; copied: from another slot with the same
    prompt; again: computed again after the session's slot was given to another; drawn: sampled.
    """

    prefilled: int = 0
    kept: int = 0
    copied: int = 0
    again: int = 0
    drawn: int = 0


class Engine:
    """Steps all rows in flight together; `observe`, if set, is called with the keys and token counts of every step.

    `quick` allows a forward pass that equals the model's own up to rounding (`llama_step`), where there is one. A model
    whose rows cannot be packed runs its own forward pass with its own cache (`plain`).
    """

    def __init__(
        self,
        model: Any,
        decode: Callable[[Sequence[int]], str],
        *,
        max_rows: int = 32,
        max_step_tokens: int = 2048,
        reuse: bool = True,
        quick: bool = False,
    ) -> None:
        self.model = model
        self.forward: Forward
        self.score_forward: Forward
        self.max_rows = max_rows
        self.max_step_tokens = max_step_tokens
        self.reuse = reuse
        self.device = next(model.parameters()).device
        self.is_packed = not why_unpacked(model)
        self.note = ""  # about the path, if it is not the packed one
        self._choose_path(quick)
        self.counts = Counts()
        self.observe: Callable[[list[tuple[str, int]]], None] | None = None
        self._stops = StopStrings(decode)
        # A GPU launches one step before reading the last, and collects contexts for up to 16 steps before it prefills:
        # a prefill of one context costs about as much there as a prefill of all.
        # A plain row that has stopped must not see a further token, because its state cannot be cut back.
        self.lookahead, self.patience = (1, 16) if self.device.type == "cuda" and self.is_packed else (0, 0)
        self.reset()

    def _choose_path(self, quick: bool) -> None:
        """Set the forward passes of sampling and scoring, and what prepares them for new weights."""
        model = self.model
        self._prepare: Callable[[], None] = partial(prepare_products, model)
        self._make_storage: type[KVStorage] = KVStorage if self.is_packed else RowCaches
        if not self.is_packed:
            if decodes_in_int8(model):  # other products have strides that a model's own code may not expect
                self._prepare()
            else:
                self._prepare = lambda: None
            self.forward = self.score_forward = plain = PlainForward(model)
            self.note = plain.note
            return
        parts = read_llama(model) if quick else None
        self.forward = self.score_forward = partial(forward, model)
        if parts is not None:
            step = LlamaStep(parts, in_int8=decodes_in_int8(model))
            self.forward, self._prepare = step.forward, step.prepare
        self._prepare()
        if has_kernels(self.device):
            fuse(model)

    def reset(self) -> None:
        """Drop all requests and free their memory."""
        self.rows: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.storage = self._make_storage()
        self.slots = SlotTable(self.max_rows, reuse=self.reuse, whole=not self.is_packed)
        self._decoder = Decoder(self.forward, self.device, self.storage, self.max_rows, captures=self.is_packed)
        self._launched: deque[tuple[list[Request], Drawn]] = deque()
        self._since_prefill = 0
        self._stored_before: dict[str, int] = {}

    def halve(self) -> None:
        """Drop all requests, free their memory, and hold half as many rows from now on."""
        self.max_rows = max(1, self.max_rows // 2)
        del self.storage, self._decoder  # beside the old ones there may be no room even for empty ones
        release_memory(self.device)
        self.reset()

    @property
    def busy(self) -> bool:
        """True if any request is in flight or waiting."""
        return bool(self.rows or self.waiting)

    def add(self, request: Request) -> None:
        """Queue a request; it joins at the next step with room for it."""
        self.waiting.append(request)

    def end(self, session: str) -> None:
        """End a session: its KV cache may be dropped, and a last turn still in flight keeps nothing."""
        self.slots.end(session)
        for request in (*self.waiting, *self.rows):
            if request.session == session:
                request.session = ""  # also in a request that is begun anew
        self._stored_before.pop(session, None)

    def forget(self) -> None:
        """Invalidate the KV cache after the weights have changed."""
        self._prepare()
        self.slots.forget()
        self._stored_before.clear()
        for row in self.rows:
            if not row.num_launched:  # nothing sampled yet, so the whole context can be computed again
                _slot_of(row).num_stored = 0

    def step(self) -> list[Request]:
        """Advance every row; returns the finished requests."""
        self.waiting = deque(request for request in self.waiting if not request.cancelled)
        for row in [row for row in self.rows if row.cancelled]:
            self._leave(row)
        self._admit()
        decoded = self._decode()
        prefilled = self._prefill(len(decoded))
        if self.observe and (decoded or prefilled):
            self.observe([*((row.key, 1) for row in decoded), *prefilled])
        return self._collect()

    def score_many(self, sequences: Sequence[Sequence[int]], starts: Sequence[int] = ()) -> list[list[float]]:
        """Log-probs of given tokens (`sequence_logprobs`), in separate passes."""
        return score_sequences(
            self.score_forward,
            sequences,
            starts,
            device=self.device,
            max_rows=self.max_rows,
            max_step_tokens=self.max_step_tokens,
            make_storage=self._make_storage,
        )

    # ------------------------------------------------------------------------------------------ one step, in order

    def _admit(self) -> None:
        """Give slots to waiting requests until the missing contexts are more than four steps of work.

        Later requests lose nothing by waiting, and an idle GPU need not wait until a thousand slots are assigned.
        """
        coming = [*islice(self.waiting, self.max_rows - len(self.rows))]
        longest = max((row.num_prompt + row.params.max_tokens for row in coming), default=0)
        missing = sum(row.num_prompt - _slot_of(row).num_stored for row in self.rows if not row.num_launched)
        while self.waiting and len(self.rows) < self.max_rows and missing < 4 * self.max_step_tokens:
            row = self.waiting.popleft()
            taken = self.slots.take(row.session, row.tokens)
            row.slot, row.donor, row.num_shared = taken.slot, taken.donor, taken.num_shared
            row.donor_epoch = taken.donor.epoch if taken.donor else 0
            kept = taken.slot.num_stored
            self.counts.kept += kept
            self.counts.again += max(0, min(self._stored_before.get(row.session, 0), row.num_prompt - 1) - kept)
            self.rows.append(row)
            missing += row.num_prompt - max(kept, taken.num_shared)
        if longest:
            self.storage.reserve(self._decoder.num_slots, longest, self.slots.stored())

    def _decode(self) -> list[Request]:
        """Sample one more token for every row that has started and may continue; returns these rows."""
        rows = [row for row in self.rows if 0 < row.num_launched < row.params.max_tokens]
        if not rows:
            return []
        slots = [_slot_of(row) for row in rows]
        drawn = self._decoder.decode([slot.number for slot in slots], _draw_of(rows))
        for slot in slots:
            slot.num_stored += 1
        self._launch(rows, drawn)
        return rows

    def _prefill(self, num_decoded: int) -> list[tuple[str, int]]:
        """Prefill contexts in chunks that fit the step; rows whose context is complete sample their first token."""
        self._since_prefill += 1
        behind = [row for row in self.rows if not row.num_launched]
        if not behind or not (self._since_prefill >= self.patience or self._has_gathered(behind, num_decoded)):
            return []
        spans: list[Span] = []
        token_ids: list[int] = []
        joining: list[Request] = []
        room = max(1, self.max_step_tokens - num_decoded)
        for row in self._copy_shared(behind):
            slot = _slot_of(row)
            length = min(row.num_prompt - slot.num_stored, room - len(token_ids))
            if length <= 0:
                break
            spans.append(Span(slot.number, slot.num_stored, length, len(token_ids)))
            token_ids += row.tokens[slot.num_stored : slot.num_stored + length]
            slot.num_stored += length
            if slot.num_stored == row.num_prompt:
                joining.append(row)
        # If the step was full, the next one continues without waiting for more contexts.
        self._since_prefill = 0 if len(token_ids) < room else self.patience
        self.counts.prefilled += len(token_ids)
        params = {_slot_of(row).number: row.params for row in joining}
        drawn = self._decoder.prefill(spans, token_ids, params, _draw_of(joining))
        if drawn is not None:
            self._launch(joining, drawn)
        names = {_slot_of(row).number: row.key for row in behind}
        return [(names[span.slot], span.length) for span in spans]

    def _has_gathered(self, behind: list[Request], num_decoded: int) -> bool:
        """True if the rows to prefill are at least half as many as those that decode, or fill a whole step."""
        missing = sum(row.num_prompt - _slot_of(row).num_stored for row in behind)
        return 2 * len(behind) >= num_decoded or missing >= self.max_step_tokens

    def _copy_shared(self, rows: list[Request]) -> list[Request]:
        """Copy shared prompts from other slots; returns the rows except those whose donor is still computing."""
        ready: list[Request] = []
        copies: dict[tuple[int, int], list[int]] = {}
        for row in rows:
            donor = row.donor
            if donor is not None and donor.epoch == row.donor_epoch:
                if donor.in_flight and donor.num_stored < row.num_shared:
                    continue
                slot = _slot_of(row)
                slot.num_stored = min(row.num_shared, donor.num_stored)
                self.counts.copied += slot.num_stored
                copies.setdefault((donor.number, slot.num_stored), []).append(slot.number)
            row.donor = None
            ready.append(row)
        for (source, length), targets in copies.items():
            self.storage.copy(source, targets, length)
        return ready

    def _launch(self, rows: list[Request], drawn: Drawn) -> None:
        for row in rows:
            row.num_launched += 1
        self._launched.append((rows, drawn))

    def _collect(self) -> list[Request]:
        """Read the tokens of earlier steps; those of the last step only if no other step is running."""
        done: list[Request] = []
        while len(self._launched) > self.lookahead or (
            self._launched and not any(row.num_launched < row.params.max_tokens for row in self.rows)
        ):
            done += self._read(*self._launched.popleft())
        return done

    def _read(self, rows: list[Request], drawn: Drawn) -> list[Request]:
        done = []
        for row, token, logprob in zip(rows, *drawn.read(), strict=True):
            if row.slot is None:  # the row has stopped already: this token is one too many
                continue
            self.counts.drawn += 1
            row.tokens.append(token)
            row.logprobs.append(logprob)
            row.stop_reason = self._stops.find_reason(row.tokens, row.params, row.num_prompt)
            if row.stop_reason is not None:
                self._leave(row)
                done.append(row)
        return done

    def _leave(self, row: Request) -> None:
        """Remove a finished or cancelled row from the batch; its session keeps the slot with its KV cache."""
        slot = _slot_of(row)
        self.rows.remove(row)
        row.slot = None
        # A step launched ahead may have stored the last token and one more; tokens beyond the row's own do not count.
        slot.num_stored = min(slot.num_stored, len(row.tokens))
        if slot.session:
            self._stored_before[slot.session] = slot.num_stored
        self.slots.rest(slot)


def _draw_of(rows: Sequence[Request]) -> Draw:
    draws = {row.draw for row in rows}
    return draws.pop() if len(draws) == 1 else "cut"


def _slot_of(row: Request) -> Slot:
    assert row.slot is not None
    return row.slot
