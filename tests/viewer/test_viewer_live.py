"""Pages are told when their run was written to."""

import sys
import threading
import time

import httpx
import pytest

from quaere.runs import Run
from quaere.viewer import run_folder
from quaere.viewer.run_folder import Kept
from viewing import log_step, serve_view, write_run


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(run_folder, "LOOK_EVERY_S", 0.02)


def wait_for_change(url, write):
    """Whether a stream tells of what `write` does once it is open; its first event is of the opening itself."""
    with httpx.stream("GET", url, timeout=20, trust_env=False) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for line in stream.iter_lines():
            if line == "data: 0":
                write()
            if line == "data: 1":
                return True
    return False


@pytest.mark.parametrize("path", ["/changes", "/run/alpha/changes"])
def test_a_new_step_is_told(tmp_path, path):
    with serve_view(write_run(tmp_path / "alpha").parent) as url, Run.open(tmp_path / "alpha", write=True) as run:
        assert wait_for_change(url + path, lambda: log_step(run, 7, 6))


def test_a_new_run_and_the_end_of_one_are_told(tmp_path):
    with serve_view(tmp_path) as url:
        assert wait_for_change(f"{url}/changes", lambda: write_run(tmp_path / "alpha"))
        run = Run.open(tmp_path / "alpha", write=True)
        assert wait_for_change(f"{url}/run/alpha/changes", run.close)


def test_an_unknown_run_is_not_followed(tmp_path):
    with serve_view(tmp_path) as url:
        assert httpx.get(f"{url}/run/nowhere/changes", trust_env=False).status_code == 404


async def test_a_quiet_stream_says_now_and_then_that_it_is_there(monkeypatch):
    monkeypatch.setattr(run_folder, "_BEAT_EVERY_S", 4 / 128)
    looks = []
    streams = run_folder.Streams(lambda: len(looks) > 9)
    told = [event async for event in streams.follow(lambda: looks.append(1), every_s=1 / 128).body_iterator]
    first, *rest = told
    assert first == "retry: 2000\nevent: change\ndata: 0\n\n"
    assert rest == [": still here\n\n", ": still here\n\n"]  # after 4 looks of 9, and after 8


def test_a_server_with_followed_pages_stops_at_once(tmp_path):
    """Its streams end by themselves: `serve_view` would otherwise wait until they are cut off."""
    write_run(tmp_path / "alpha")
    ended, began = threading.Event(), threading.Event()

    def follow(url):
        with httpx.stream("GET", f"{url}/run/alpha/changes", timeout=20, trust_env=False) as stream:
            for _ in stream.iter_lines():
                began.set()
        ended.set()  # not reached where the connection is cut off

    with serve_view(tmp_path) as url:
        thread = threading.Thread(target=follow, args=(url,), daemon=True)
        thread.start()
        assert began.wait(20)
    thread.join(20)
    assert ended.is_set()


def test_there_is_a_limit_to_open_streams(tmp_path, monkeypatch):
    monkeypatch.setattr(run_folder, "MAX_STREAMS", 1)
    with serve_view(tmp_path) as url, httpx.stream("GET", f"{url}/changes", timeout=20, trust_env=False) as first:
        lines = first.iter_lines()  # kept: a stream is closed with its iterator
        next(lines)
        assert httpx.get(f"{url}/changes", trust_env=False).status_code == 503
        first.close()
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with httpx.stream("GET", f"{url}/changes", timeout=20, trust_env=False) as second:
                if second.status_code == 200:
                    return
            time.sleep(0.05)
        pytest.fail("a stream that was closed still counts")


def test_pages_that_are_read_at_once_share_what_is_kept():
    """Each page is made in a thread of its own."""
    kept, faults, every_s = Kept(2), [], sys.getswitchinterval()

    def read(number):
        try:
            for turn in range(3000):
                key = f"k{(7 * turn + number) % 9}"
                assert kept.get(key, 0, lambda key=key: key) == key
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(8)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(every_s)
    assert not faults
