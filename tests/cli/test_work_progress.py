"""How far work in several parts is: one bar on a terminal, else a line every half minute."""

import io
import json
import sys

from quaere.api import printing
from quaere.api.printing import LogProgress, show_progress
from quaere.cli.warmup import open_display
from quaere.warmup.imitation import TeachingStep


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


def test_a_log_hears_every_half_minute_what_is_done_and_how_long_the_rest_takes():
    log, clock = io.StringIO(), Clock()
    progress = LogProgress(log, clock)
    for clock.now, done in ((0.0, 0), (1.0, 1), (30.0, 1000), (59.0, 1700), (60.0, 2000)):
        progress("drzero attempts", done, 4000, "812 tok/s")
    for clock.now, kept in ((80.0, 3), (100.0, 5)):  # another part: the time left is its own, from its first count
        progress(f"checking ({kept} kept)", kept, 8)
    assert log.getvalue().splitlines() == [
        "drzero attempts: 1,000 of 4,000, 812 tok/s, about 90 s left",
        "drzero attempts: 2,000 of 4,000, 812 tok/s, about 60 s left",
        "checking (5 kept): 5 of 8, about 30 s left",
    ]


def test_the_first_of_a_part_says_nothing_of_the_time_left():
    log, clock = io.StringIO(), Clock()
    progress = LogProgress(log, clock)
    for clock.now, done in ((40.0, 1), (75.0, 8)):
        progress("answering", done, 20)
    assert log.getvalue().splitlines() == ["answering: 1 of 20", "answering: 8 of 20, about 60 s left"]


def test_a_pipe_gets_no_bar(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with show_progress() as progress:
        progress("single: wording", 1, 6000)
    assert stream.getvalue() == ""  # it took no time


def test_a_terminal_gets_a_bar(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with show_progress() as progress:
        progress("single: wording", 6000, 6000)
    assert "single: wording" in stream.getvalue() and "6,000 of 6,000" in stream.getvalue()


def test_a_warm_up_says_its_parts_in_every_form(monkeypatch, capsys):
    monkeypatch.setattr(printing, "LOG_S", 0.0)
    with open_display(as_json=False) as display:
        display.progress("drzero attempts", 3, 40, "812 tok/s")
    assert capsys.readouterr().err.startswith("drzero attempts: 3 of 40, 812 tok/s")
    with open_display(as_json=True) as display:
        display.progress("playing", 3, 40)
    told = {"event": "progress", "doing": "playing", "done": 3, "total": 40, "stands": ""}
    assert json.loads(capsys.readouterr().out) == told


def shown_by_a_warm_up(monkeypatch, *calls):
    """What a terminal gets of the last state of a display, and of its notes."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with open_display(as_json=False) as display:
        for name, *values in calls:
            getattr(display, name)(*values)
    return stream.getvalue()


def test_a_warm_up_shows_one_bar_at_a_time(monkeypatch):
    parts = ("progress", "single: wording", 6000, 6000), ("progress", "drzero attempts", 40, 40, "812 tok/s")
    shown = shown_by_a_warm_up(monkeypatch, *parts)
    assert "drzero attempts" in shown and "40 of 40, 812 tok/s" in shown
    assert "wording" not in shown.partition("drzero attempts")[2]


def test_a_warm_up_shows_notes_and_steps_on_a_terminal(monkeypatch):
    step = TeachingStep(step=3, num_steps=3, epoch=0, loss=1.5, num_tokens=8, tokens_per_s=4.0)
    shown = shown_by_a_warm_up(monkeypatch, ("note", "the model is taught"), ("step", step))
    assert "the model is taught\n" in shown and "teaching" in shown and "3 of 3, loss 1.500, 4 tok/s" in shown
