"""A terminal recording as an animated SVG: docs/figures/learn.svg, which shows `quaere learn`.

    make demo                                                              # the model and the index of the command
    python benchmarks/terminal_recording.py record -- quaere learn demo/seed-0/index --minutes 2 ...
    python benchmarks/terminal_recording.py draw

`record` runs a command and writes its lines with their times to benchmarks/results/learn-recording.jsonl; `draw` makes
the picture of them. Waiting is shortened. The picture needs no script: each line appears by a CSS animation, which
repeats. A reader who prefers no motion, and a program that animates nothing, see the last screen.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import time
from html import escape
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RECORDING = ROOT / "benchmarks/results/learn-recording.jsonl"
PICTURE = ROOT / "docs/figures/learn.svg"

NUM_COLUMNS, NUM_ROWS = 104, 31
CHAR_WIDTH, LINE_HEIGHT, MARGIN, BAR = 7.85, 18, 16, 30
LEAST_WAIT_S, LONGEST_WAIT_S, TYPING_S, HOLD_S = 0.1, 2.5, 1.5, 7.0
SPEED = 10.0  # waiting is this much shorter than it was
# What is coloured: the prompt, a gain with its interval, commands to go on with.
COLOURS = (
    ("prompt", re.compile(r"^\$ ")),
    ("good", re.compile(r"\+\d+\.\d \[.*")),
    ("next", re.compile(r"quaere \w+ .*")),
)
STYLE = """
text { font: 13px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d7dce5; white-space: pre; }
.prompt { fill: #7fd6a0; font-weight: 700; } .good { fill: #7fd6a0; } .next { fill: #8cb8ff; }
.l, .s { animation: SECONDSs step-end infinite; }
@media (prefers-reduced-motion: reduce) { .l, .s { animation: none; } }
"""


class Line(NamedTuple):
    """A line of a terminal, and when it was written, in seconds from the start.

    Line(12.5, "step 3  exact match 0.41")
    """

    time_s: float
    text: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("record", "draw"))
    parser.add_argument("command", nargs="*", help="with record: the command to run, after --")
    args = parser.parse_args()
    if args.what == "record":
        write_recording(RECORDING, record(args.command))
    PICTURE.write_text(draw(read_recording(RECORDING)), encoding="utf-8")
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size / 1000:.0f} kB")


# ------------------------------------------------------------------------------------------------------------ recording


def record(command: list[str]) -> list[Line]:
    """Run a command and return its lines, the command itself first; both streams, in the order they were written.

    Paths are relative to the working directory.
    """
    began = time.monotonic()
    lines = [Line(0.0, "$ " + " ".join(command))]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": str(NUM_COLUMNS)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        for text in process.stdout:
            print(text, end="", flush=True)
            lines.append(Line(round(time.monotonic() - began, 2), text.rstrip().replace(f"{Path.cwd()}/", "")))
    if process.returncode:
        raise SystemExit(process.returncode)
    return lines


def write_recording(path: Path, lines: list[Line]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def read_recording(path: Path) -> list[Line]:
    return [Line(*json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


# -------------------------------------------------------------------------------------------------------------- picture


def draw(lines: list[Line]) -> str:
    """The recording as an SVG of `NUM_ROWS` rows, which scrolls where there are more."""
    rows = [Line(line.time_s, part) for line in lines for part in wrap(line.text)]
    starts = shorten_waits([row.time_s for row in rows])
    seconds = starts[-1] + HOLD_S
    width = NUM_COLUMNS * CHAR_WIDTH + 2 * MARGIN
    height = BAR + min(len(rows), NUM_ROWS) * LINE_HEIGHT + MARGIN
    texts = [_draw_row(number, row.text) for number, row in enumerate(rows)]
    frames = [_appear(number, 100 * start / seconds) for number, start in enumerate(starts) if start]
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img" \
aria-label="A terminal: {escape(lines[0].text[:80])}">
<style>{STYLE.replace("SECONDS", f"{seconds:.1f}")}{"".join(frames)}
{_scroll(starts, seconds)}</style>
<rect width="100%" height="100%" rx="8" fill="#14171c"/>
<g fill="#4a5261"><circle cx="18" cy="15" r="5"/><circle cx="36" cy="15" r="5"/><circle cx="54" cy="15" r="5"/></g>
<svg y="{BAR}" width="100%" height="{height - BAR - MARGIN // 2}" overflow="hidden"><g class="s">
{chr(10).join(texts)}
</g></svg>
</svg>
"""


def wrap(text: str) -> list[str]:
    """A line as rows of at most `NUM_COLUMNS` characters; all but the first are indented."""
    rows, rest = [], text
    while len(rest) > NUM_COLUMNS:
        cut = rest.rfind(" ", len(rest) - len(rest.lstrip()) + 1, NUM_COLUMNS + 1)
        cut = cut if cut > 0 else NUM_COLUMNS
        rows.append(rest[:cut])
        rest = "    " + rest[cut:].lstrip()
    return [*rows, rest]


def shorten_waits(times_s: list[float]) -> list[float]:
    """When each row appears: the command at once, what follows after it was read, with all waits shortened."""
    gaps = [after - before for before, after in pairwise(times_s)]
    waits = [min(max(gap / SPEED, LEAST_WAIT_S), LONGEST_WAIT_S) for gap in gaps]
    first = next((place for place, gap in enumerate(gaps) if gap > 0), 0)
    waits[: first + 1] = [0.0] * first + [TYPING_S] * bool(waits)
    return [0.0, *accumulate(waits)]


def _draw_row(number: int, text: str) -> str:
    y = (number + 1) * LINE_HEIGHT - 5
    return f'<text class="l" style="animation-name:l{number}" x="{MARGIN}" y="{y}">{_colour(text)}</text>'


def _colour(text: str) -> str:
    for name, pattern in COLOURS:
        if found := pattern.search(text):
            before, match, after = text[: found.start()], found[0], text[found.end() :]
            return f'{escape(before)}<tspan class="{name}">{escape(match)}</tspan>{escape(after)}'
    return escape(text)


def _appear(number: int, percent: float) -> str:
    return f"\n@keyframes l{number}{{0%{{opacity:0}}{percent:.2f}%{{opacity:1}}}}"


def _scroll(starts: list[float], seconds: float) -> str:
    """The rule that moves rows out at the top as others appear; the last screen is where the group stands by itself."""
    num_over = max(0, len(starts) - NUM_ROWS)
    moves = {start: -LINE_HEIGHT * max(0, place - NUM_ROWS + 1) for place, start in enumerate(starts)}
    frames = "".join(f"{100 * start / seconds:.2f}%{{transform:translateY({y}px)}}" for start, y in moves.items())
    return f".s{{transform:translateY({-LINE_HEIGHT * num_over}px);animation-name:s}}\n@keyframes s{{{frames}}}"


if __name__ == "__main__":
    main()
