"""Asynchronous interface of the native engine.

One thread owns the model and steps the engine; coroutines submit requests and await the results.

    async with NativeSampler.over(load_model("./my-model", "cpu", "float32"), decode, name="my-model") as sampler:
        sampler.open("e1")
        sampled = await sampler.sample("e1", prompt_ids, SamplingParams(max_tokens=64))

There are two modes. `fast`: a request joins the batch as soon as it is made. `deterministic`: a batch starts only when
every open session has made its request, and rows are in the order in which their sessions were opened; so the
composition of a batch never depends on how long a search took, and results repeat bit for bit.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal, NamedTuple, Self, TypeVar, cast

from quaere.errors import SampledLess, SamplingFailed, is_out_of_memory
from quaere.policies.native.bridge import max_positions
from quaere.policies.native.engine import Engine, Request
from quaere.policies.sampler import Sampled, SamplingParams, check_context

T = TypeVar("T")
Mode = Literal["fast", "deterministic"]
OnTokens = Callable[[list[int]], None]


class _Pending:
    """A submitted request and the future that its coroutine awaits."""

    def __init__(self, session: str, request: Request, on_tokens: OnTokens | None = None) -> None:
        self.session, self.request = session, request
        self.future: asyncio.Future[Sampled] = asyncio.get_running_loop().create_future()
        self._on_tokens = on_tokens
        self._num_told = 0

    @property
    def has_told(self) -> bool:
        """True once a caller has seen tokens."""
        return self._num_told > 0

    def tell(self) -> None:
        num_new = len(self.request.logprobs) - self._num_told
        if self._on_tokens is not None and num_new:
            self._num_told += num_new
            _call_in(self.future.get_loop(), partial(self._on_tokens, self.request.tokens[-num_new:]))


class _Job(NamedTuple):
    """Work between two steps of the engine; `fail` is called if it cannot be done, or if the engine stops before it."""

    work: Callable[[], None]
    fail: Callable[[Exception], None]


def _settle(future: asyncio.Future[T], result: T | Exception) -> None:
    """Set the result of a future of another thread's event loop, unless it was cancelled."""

    def set_result() -> None:
        if isinstance(result, Exception) and not future.done():
            future.set_exception(result)
        elif not future.done():
            future.set_result(cast(T, result))

    _call_in(future.get_loop(), set_result)


def _call_in(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Call a function in another thread's event loop; if that is closed, as after a Ctrl-C, no coroutine waits."""
    with suppress(RuntimeError):  # not `is_closed`: the loop may be closed between the question and the call
        loop.call_soon_threadsafe(call)


class NativeSampler:
    """A `TokenSampler` over an `Engine`, which runs in a thread of its own."""

    def __init__(self, engine: Engine, *, name: str, mode: Mode = "fast", max_positions: int = 1 << 20) -> None:
        self.name = name
        self.lockstep = mode == "deterministic"
        self.engine = engine
        self.max_positions = max_positions
        self._sessions: dict[str, int] = {}  # open sessions in the order of opening, with their number of turns
        self._ended: list[str] = []
        self._inbox: list[_Pending] = []
        self._jobs: deque[_Job] = deque()
        self._in_flight: dict[Request, _Pending] = {}
        self._has_new_weights = False
        self._wake = threading.Condition()
        self._stopping = False
        self._end = SamplingFailed("the engine was stopped")  # what becomes of all requests once it has ended
        self._thread: threading.Thread | None = None

    @classmethod
    def over(
        cls,
        model: Any,
        decode: Callable[[Sequence[int]], str],
        *,
        name: str,
        mode: Mode = "fast",
        max_rows: int = 32,
        quick: bool = False,
    ) -> NativeSampler:
        """A sampler over a model in memory that uses packed attention; `decode` is the tokenizer's, for stop strings.

        `quick` is for sampling that nothing is trained on: results equal those of the model's own code up to rounding.
        """
        # A GPU needs thousands of tokens to be busy; on a CPU a long step only delays the other rows.
        max_step_tokens = 32768 if next(model.parameters()).device.type == "cuda" else 2048
        engine = Engine(model, decode, max_rows=max_rows, max_step_tokens=max_step_tokens, quick=quick)
        return cls(engine, name=name, mode=mode, max_positions=max_positions(model))

    @property
    def ended(self) -> str:
        """Why the engine takes no more requests; "" while it does."""
        return str(self._end) if self._stopping else ""

    # ------------------------------------------------------------------------------------------- called by coroutines

    def open(self, session: str) -> None:
        """Register a session."""
        with self._wake:
            self._sessions.setdefault(session, 0)

    def close(self, session: str) -> None:
        """End a session and free its KV cache. In deterministic mode other sessions may have been waiting for it."""
        with self._wake:
            if self._sessions.pop(session, None) is not None:
                self._ended.append(session)
            self._wake.notify()

    def weights_changed(self) -> None:
        """Tell the engine that new weights were copied into the model: its KV cache is invalid."""
        with self._wake:
            self._has_new_weights = True
            self._wake.notify()

    async def sample(
        self, session: str, token_ids: Sequence[int], params: SamplingParams, on_tokens: OnTokens | None = None
    ) -> Sampled:
        """Sample a turn; requests of other coroutines are batched with it.

        `on_tokens` is called with new ids as they are sampled, in the caller's event loop, before the turn is returned.
        """
        check_context(token_ids, params, self.max_positions)
        with self._wake:
            self._start()
            turn = self._sessions[session] = self._sessions.get(session, 0) + 1
            pending = _Pending(session, Request(f"{session}/{turn}", token_ids, params, session), on_tokens)
            self._inbox.append(pending)
            self._wake.notify()
        try:
            return await pending.future
        except asyncio.CancelledError:
            with self._wake:
                pending.request.cancelled = True
                if pending in self._inbox:
                    self._inbox.remove(pending)
            raise

    async def score_many(self, sequences: Sequence[Sequence[int]], starts: Sequence[int] = ()) -> list[list[float]]:
        """See `TokenSampler`; the log-probs are computed between two steps in separate passes."""
        longest = max(map(len, sequences), default=0)
        if longest > self.max_positions:
            raise SamplingFailed(f"{longest} tokens exceed the model's context length of {self.max_positions}")
        future: asyncio.Future[list[list[float]]] = asyncio.get_running_loop().create_future()

        def work() -> None:
            _settle(future, self.engine.score_many(sequences, starts))

        with self._wake:
            self._start()
            self._jobs.append(_Job(work, partial(_settle, future)))
            self._wake.notify()
        return await future

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stop the thread after its current step. Waiting requests fail."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    # ------------------------------------------------------------------------------------------- the engine's thread

    def _start(self) -> None:
        if self._stopping:
            raise SamplingFailed(str(self._end))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="quaere-engine", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        """Work until `stop`, or until a fault that leaves no usable engine, as of a lost GPU: nobody waits after it."""
        try:
            while self._wait():
                if self._take_weights():
                    self._do_jobs()
                    self._step()
        except BaseException as error:  # a panic in the tokenizer's native code is no Exception
            self._end = _sampling_failed(error)
        with self._wake:
            self._stopping = True
        self._fail_all(self._end)

    def _wait(self) -> bool:
        """Wait for something to do, and give the engine the requests that are ready; False if it is to stop."""
        with self._wake:
            self._wake.wait_for(lambda: self._stopping or self._jobs or self.engine.busy or self._ready())
            if self._stopping:
                return False
            ready = self._take_ready()
            # Slots of closed sessions are released in lockstep between batches only: timing has no influence.
            if ready or not self.lockstep:
                for session in self._ended:
                    self.engine.end(session)
                self._ended.clear()
            for pending in ready:
                self._in_flight[pending.request] = pending
                self.engine.add(pending.request)
            return True

    def _take_weights(self) -> bool:
        """Let the engine forget what it made of earlier weights; False if that fails: the next step waits for it.

        If the memory is full, fewer rows are tried, as in `_step`.
        """
        if not self._has_new_weights:
            return True
        self._has_new_weights = False  # first: there may be newer ones while it forgets
        try:
            self.engine.forget()
            return True
        except Exception as error:
            self._has_new_weights = True
            if not self._can_halve(error):
                self._fail_all(_sampling_failed(error))
                self.engine.reset()
                return False
        self._begin_anew()
        return False

    def _do_jobs(self) -> None:
        for _ in range(len(self._jobs)):
            job = self._jobs.popleft()
            try:
                job.work()
                continue
            except BaseException as error:
                if not self._can_halve(error):
                    job.fail(_sampling_failed(error))
                    if not isinstance(error, Exception):
                        raise
                    continue
            self._jobs.appendleft(job)
            self._begin_anew()
            return

    def _ready(self) -> bool:
        waiting = {pending.session for pending in self._inbox}
        return bool(waiting) and (not self.lockstep or (not self.engine.busy and self._sessions.keys() <= waiting))

    def _take_ready(self) -> list[_Pending]:
        if not self._ready():
            return []
        taken, self._inbox = self._inbox, []
        if self.lockstep:
            order = {session: number for number, session in enumerate(self._sessions)}
            taken.sort(key=lambda pending: order.get(pending.session, len(order)))  # closed sessions may have requests
        return taken

    def _step(self) -> None:
        done: list[Request] | None = None
        try:
            done = self.engine.step()
        except Exception as error:
            if not self._can_halve(error):
                # No coroutine must wait forever.
                failure = _sampling_failed(error)
                for pending in self._in_flight.values():
                    _settle(pending.future, failure)
                self._in_flight.clear()
                self.engine.reset()
                return
        if done is None:  # the error is forgotten first, because it holds what was computed until then
            self._begin_anew()
            return
        for pending in self._in_flight.values():
            pending.tell()
        for request in done:
            _settle(self._in_flight.pop(request).future, request.sampled())
        self._in_flight = {one: pending for one, pending in self._in_flight.items() if not one.cancelled}

    def _can_halve(self, error: BaseException) -> bool:
        """True if fewer rows may do. Deterministic batches must not depend on how much memory there was."""
        return not self.lockstep and self.engine.max_rows > 1 and is_out_of_memory(error)

    def _begin_anew(self) -> None:
        """After a full memory: begin all requests in flight anew, half as many at once.

        Each has a seed, so it gets the same tokens up to rounding; one of which a caller has seen tokens fails.
        """
        self.engine.halve()
        said = f"the GPU's memory is full: at most {self.engine.max_rows} rows are sampled at once from now on"
        with suppress(SampledLess):  # where warnings are errors (`python -W error`), it would end the engine
            warnings.warn(f"{said} (--max-rows, engine.max_rows)", SampledLess, stacklevel=1)
        with self._wake:
            pendings = [pending for request, pending in self._in_flight.items() if not request.cancelled]
            self._in_flight.clear()
            for pending in pendings:
                if pending.has_told:
                    _settle(pending.future, SamplingFailed(said))
                    continue
                pending.request = pending.request.begun_anew()
                self._in_flight[pending.request] = pending
                self.engine.add(pending.request)

    def _fail_all(self, failure: Exception) -> None:
        """Fail all requests and jobs that there are: no coroutine must wait forever."""
        with self._wake:
            requests, jobs = [*self._in_flight.values(), *self._inbox], [*self._jobs]
            self._in_flight.clear()
            self._inbox.clear()
            self._jobs.clear()
        for pending in requests:
            _settle(pending.future, failure)
        for job in jobs:
            job.fail(failure)


def _sampling_failed(error: BaseException) -> SamplingFailed:
    failure = SamplingFailed(f"the model failed while sampling: {type(error).__name__}: {error}"[:300])
    failure.__cause__ = error
    return failure
