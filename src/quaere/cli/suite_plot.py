"""The plot of a suite: exact match against minutes, with a panel for each set, as SVG.

draw_rows(rows) == '<svg xmlns="http://www.w3.org/2000/svg" width="640" height="520" ...'
"""

from collections import defaultdict
from collections.abc import Sequence
from xml.sax.saxutils import escape

from quaere.api.suite_table import Row
from quaere.viewer.plot import nice_ticks, short

WIDTH, LEAST_HEIGHT, LINE = 640, 260, 14
LEFT, RIGHT, TOP, BOTTOM = 48, 220, 28, 40  # margins: the names of the rows are on the right


def draw_rows(rows: Sequence[Row]) -> str:
    """A panel for each set: every row is a numbered point with its interval, hollow if the row is marked."""
    panels: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        panels[row.set].append(row)
    height = max(LEAST_HEIGHT, TOP + BOTTOM + LINE * max(map(len, panels.values())))
    drawn = (
        f'<g transform="translate(0 {number * height})">\n{_draw_panel(name, found, height)}\n</g>'
        for number, (name, found) in enumerate(panels.items())
    )
    size = f'width="{WIDTH}" height="{height * len(panels)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">'
    return "\n".join((head, '<rect width="100%" height="100%" fill="white"/>', *drawn, "</svg>\n"))


def _draw_panel(title: str, rows: Sequence[Row], height: int) -> str:
    right, bottom = WIDTH - RIGHT, height - BOTTOM
    x_ticks = nice_ticks(0.0, max(0.01, *(row.seconds / 60 for row in rows)))
    y_ticks = nice_ticks(0.0, max(1.0, *(100 * row.exact_match.high for row in rows)))

    def x_of(minutes: float) -> float:
        return round(LEFT + (right - LEFT) * minutes / x_ticks[-1], 1)

    def y_of(percent: float) -> float:
        return round(bottom - (bottom - TOP) * percent / y_ticks[-1], 1)

    devices = ", ".join(dict.fromkeys(str(row.settings.get("device", "")) for row in rows))
    parts = [f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="gray"/>']
    parts += [_write(x_of(tick), bottom + LINE, short(tick), "middle") for tick in x_ticks]
    parts += [_write(LEFT - 6, y_of(tick) + 4, short(tick), "end") for tick in y_ticks]
    parts += [_write(LEFT, TOP - 12, f"{title}: EM %"), _write(LEFT, bottom + 2 * LINE, f"minutes on {devices}")]
    for number, row in enumerate(rows, start=1):
        x, found = x_of(row.seconds / 60), row.exact_match
        low, middle, top = (y_of(100 * share) for share in (found.low, found.mean, found.high))
        fill, mark = ("white", " *") if row.differs else ("black", "")
        parts.append(f'<path d="M{x} {low}V{top}" stroke="black"/>')
        parts.append(f'<circle cx="{x}" cy="{middle}" r="3" fill="{fill}" stroke="black"/>')
        parts.append(_write(x + 5, middle - 4, str(number)))
        parts.append(_write(right + 24, TOP + LINE * (number - 1), f"{number} {row.model}, {row.method}{mark}"))
    return "\n".join(parts)


def _write(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
