"""`benchmarks/terminal_recording.py`: a recording as an animated SVG, and the one of `quaere learn`."""

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[1]
TEXT = "{http://www.w3.org/2000/svg}text"


@pytest.fixture
def recording(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import terminal_recording

    return terminal_recording


def rows_of(svg):
    return ["".join(text.itertext()) for text in ElementTree.fromstring(svg).iter(TEXT)]


def test_lines_appear_in_their_order_and_waits_are_shortened(recording):
    assert recording.shorten_waits([0.0, 0.0, 60.0, 65.0, 65.0, 165.0]) == pytest.approx([0.0, 0.0, 1.5, 2.0, 2.1, 4.6])
    assert recording.shorten_waits([0.0]) == [0.0]


def test_every_word_of_a_long_line_is_in_one_of_its_rows(recording):
    words = [f"word{number}" for number in range(60)]
    rows = recording.wrap("  " + " ".join(words))
    assert max(map(len, rows)) <= recording.NUM_COLUMNS and " ".join(rows).split() == words
    assert recording.wrap("") == [""] and "".join(recording.wrap("x" * 300)).replace(" ", "") == "x" * 300


def test_text_is_text(recording):
    line = '$ quaere "<b>&amp;</b>" +5.9 [<script>]'
    svg = recording.draw([recording.Line(0.0, line), recording.Line(1.0, "ask it: quaere ask </svg>")])
    assert rows_of(svg) == [line, "ask it: quaere ask </svg>"]
    assert "<script" not in svg


def test_the_last_screen_is_what_is_seen_without_an_animation(recording):
    num_rows = recording.NUM_ROWS + 5
    svg = recording.draw([recording.Line(float(number), str(number)) for number in range(num_rows)])
    assert f".s{{transform:translateY({-5 * recording.LINE_HEIGHT}px)" in svg
    assert re.findall(r"translateY\((-?\d+)px\)}}", svg)[-1] == str(-5 * recording.LINE_HEIGHT)
    assert "prefers-reduced-motion" in svg and "<script" not in svg


def test_a_command_is_recorded(recording, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = "import os, sys; print(os.getcwd() + '/run'); print('é', file=sys.stderr)"
    lines = recording.record([sys.executable, "-c", said])
    assert lines[0].time_s == 0.0 and {line.text for line in lines[1:]} == {"run", "é"}
    recording.write_recording(tmp_path / "r.jsonl", lines)
    assert recording.read_recording(tmp_path / "r.jsonl") == lines
    with pytest.raises(SystemExit, match="3"):
        recording.record([sys.executable, "-c", "raise SystemExit(3)"])


def test_the_picture_of_learn_is_that_of_its_recording(recording):
    picture = recording.PICTURE.read_text(encoding="utf-8")
    assert picture == recording.draw(recording.read_recording(recording.RECORDING))
    assert len(picture.encode()) < 60_000 and rows_of(picture)[0].startswith("$ quaere learn")
