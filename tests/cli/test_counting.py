"""How far a command has come, where there is no terminal."""

import pytest

from quaere.api import printing as module
from quaere.api.printing import count, counting, format_duration


def test_things_of_one_kind_are_counted(monkeypatch, capsys):
    monkeypatch.setattr(module, "LOG_S", 0.0)
    monkeypatch.setattr(module, "format_duration", lambda seconds: "1 s")
    with counting("writing", 3) as advance:
        for said in ("well", "", ""):
            advance(said)
    assert capsys.readouterr().err == "writing: 1 of 3, well\nwriting: 2 of 3, about 1 s left\nwriting: 3 of 3\n"


def test_what_does_not_take_long_says_nothing(capsys):
    with counting("writing", 2) as advance:
        advance("well")
    assert capsys.readouterr().err == ""


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
