"""How the tag scanner's time grows with its text: unclosed tags, the worst case of a backtracking expression.

    python benchmarks/tags.py

Prints the time for 1/8 to 1 MB, its ratio to the time for half the text (2 is linear, 4 quadratic), and the peer: the
lazy regular expression most programs use for this, on texts it can still finish.
"""

from __future__ import annotations

import re
import time
from statistics import median

from quaere.chat.markup import find_blocks

NAMES = ("question", "tool_call", "answer")  # not "think": behind an unclosed thought nothing is looked for
LAZY = re.compile(r"<(question|tool_call|answer)>(.*?)</\1>", re.DOTALL)


def seconds(work, repeats=5):
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return median(taken)


def main() -> None:
    unit = "<question><answer><tool_call>"
    print(f"{'characters':>12} {'scanner ms':>12} {'ratio':>7} {'lazy regex ms':>15} {'ratio':>7}")
    before = {}
    for size in (8_192, 16_384, 32_768, 131_072, 262_144, 524_288, 1_048_576):
        text = (unit * (size // len(unit) + 1))[:size]
        row = {"scanner": seconds(lambda text=text: find_blocks(text, NAMES))}
        if size <= 32_768:
            row["lazy"] = seconds(lambda text=text: LAZY.findall(text), repeats=1)
        cells = [f"{size:>12,}"]
        for name, width in (("scanner", 12), ("lazy", 15)):
            taken, last = row.get(name), before.get(name)
            cells.append(f"{taken * 1e3:>{width}.2f}" if taken else " " * width)
            cells.append(f"{taken / last:>7.2f}" if taken and last and size != 131_072 else " " * 7)
        print(" ".join(cells))
        before = row


if __name__ == "__main__":
    main()
