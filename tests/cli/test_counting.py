"""How far a command has come, where there is no terminal."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from quaere.api import printing as module
from quaere.api.printing import count, counting, format_duration


def lines(monkeypatch, seconds_each, total=20, stands="well"):
    now = iter(seconds_each * number for number in range(total + 1))
    # Names of this module, not of the process: another thread that asks for the time must not take one of these.
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(now)))
    monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=io.StringIO()))
    stream = io.StringIO()
    with counting("writing", total, Console(file=stream, width=100)) as advance:
        for _ in range(total):
            advance(stands)
    return stream.getvalue().splitlines()


def test_what_is_slow_says_a_line_every_tenth(monkeypatch):
    said = lines(monkeypatch, 10.0)
    assert len(said) == 10
    assert said[0] == "2 of 20 done, well, about 3 min left" and said[-1] == "20 of 20 done, well"


def test_without_a_result_so_far_nothing_stands_between_commas(monkeypatch):
    assert lines(monkeypatch, 10.0, total=2, stands="") == ["1 of 2 done, about 10 s left", "2 of 2 done"]


def test_a_tenth_is_a_whole_number_of_things(monkeypatch):
    said = lines(monkeypatch, 10.0, total=25)
    assert [int(line.split()[0]) for line in said[:3]] == [2, 4, 6]


def test_what_is_quick_says_how_it_began_and_ended(monkeypatch):
    assert lines(monkeypatch, 0.01) == ["2 of 20 done, well, about 0.2 s left", "20 of 20 done, well"]


def test_what_is_very_slow_says_a_line_every_half_minute(monkeypatch):
    said = lines(monkeypatch, 15.0, total=100)
    assert [int(line.split()[0]) for line in said[:6]] == [2, 4, 6, 8, 10, 12]  # and not only after every tenth


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (4.21, "4.2 s"),
        (119.4, "119 s"),
        (120, "2 min"),
        (35 * 60, "35 min"),
        (59.6 * 60, "1 h 00 min"),
        (125 * 60, "2 h 05 min"),
        (23 * 3600 + 59 * 60, "23 h 59 min"),
        (24 * 3600, "1 d 00 h"),
        (76 * 3600, "3 d 04 h"),
    ],
)
def test_durations_in_words(seconds, words):
    assert format_duration(seconds) == words


def test_numbers_with_their_noun():
    assert [count(1, "search"), count(2, "search"), count(0, "question")] == ["1 search", "2 searches", "0 questions"]
