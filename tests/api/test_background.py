"""Coroutines run from synchronous code: beside a running loop, from callbacks, and when interrupted."""

import asyncio
import inspect
import threading
import time
from concurrent.futures import CancelledError

import pytest

from quaere.api.background import BackgroundLoop
from quaere.errors import BadInput


async def double(number):
    await asyncio.sleep(0)
    return 2 * number


async def test_it_runs_beside_a_running_loop():
    with BackgroundLoop() as loop:
        assert loop.run(double(4)) == 8


def test_errors_come_back():
    async def fail():
        raise BadInput("no such thing")

    with BackgroundLoop() as loop, pytest.raises(BadInput, match="no such thing"):
        loop.run(fail())


def test_several_threads_may_wait_at_once():
    with BackgroundLoop() as loop:
        both = threading.Barrier(2, timeout=30)

        async def meet():
            return await asyncio.get_running_loop().run_in_executor(None, both.wait)

        found = []
        threads = [threading.Thread(target=lambda: found.append(loop.run(meet()))) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(found) == [0, 1]


def test_a_call_from_the_loops_own_thread_is_refused_rather_than_never_ending():
    with BackgroundLoop() as loop:

        async def call_back():
            loop.run(double(1))

        with pytest.raises(BadInput, match="callback"):
            loop.run(call_back())
        assert loop.run(double(1)) == 2


def test_after_closing_nothing_runs_and_closing_again_is_nothing():
    loop = BackgroundLoop()
    loop.close()
    loop.close()
    assert loop.is_closed
    late = double(1)
    with pytest.raises(BadInput, match="closed"):
        loop.run(late)
    # Python would warn of a coroutine that was never awaited.
    assert inspect.getcoroutinestate(late) == inspect.CORO_CLOSED


def test_an_interrupted_caller_waits_until_the_coroutine_has_let_go(monkeypatch):
    started, released = threading.Event(), []

    async def hold():
        try:
            started.set()
            await asyncio.sleep(600)
        finally:
            await asyncio.sleep(0)
            released.append(True)

    def interrupted(self, timeout=None):
        started.wait(30)
        raise KeyboardInterrupt  # as Ctrl-C does to whoever waits

    with BackgroundLoop() as loop:
        monkeypatch.setattr("quaere.api.background.Future.result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            loop.run(hold())
        monkeypatch.undo()
        assert released == [True]


def test_what_was_started_can_be_cancelled_from_anywhere():
    began, released = threading.Event(), []

    async def hold():
        try:
            began.set()
            await asyncio.sleep(600)
        finally:
            await asyncio.sleep(0)
            released.append(True)

    with BackgroundLoop() as loop:
        started = loop.start(hold())
        assert began.wait(30)
        started.cancel()
        with pytest.raises(CancelledError):
            started.result()
        assert released == [True]
        over = loop.start(double(4))
        assert over.result() == 8
        over.cancel()
        assert over.result() == 8
    started.cancel()  # its loop is closed


def test_what_is_begun_while_it_closes_is_refused_or_ends():
    """The loop's thread lives on for as long as something runs in a thread of the loop."""
    loop, goes_on, outcomes = BackgroundLoop(), threading.Event(), []

    async def leave_behind():
        asyncio.get_running_loop().run_in_executor(None, goes_on.wait, 30)

    loop.run(leave_behind())
    closing = threading.Thread(target=loop.close)
    closing.start()
    while loop._loop.is_running() and not loop._stopped.is_set():
        time.sleep(0.001)
    time.sleep(0.05)  # it waits for the thread now
    try:
        outcomes.append(loop.start(asyncio.sleep(60)))
    except BadInput:
        outcomes.append("refused")
    goes_on.set()
    closing.join(30)
    assert not closing.is_alive()
    assert outcomes == ["refused"] or isinstance(outcomes[0]._result.exception(10), CancelledError)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_callback_may_end_the_program(error):
    """What a task raises of these ends its event loop, and with it everything else that runs there."""

    async def end():
        raise error

    with BackgroundLoop() as loop:
        other = loop.start(asyncio.sleep(60))
        with pytest.raises(error):
            loop.run(end())
        assert loop.run(double(1)) == 2 and not other._result.done()
