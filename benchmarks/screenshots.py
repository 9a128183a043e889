"""Screenshots of the viewer's pages, for README and docs/viewer.md.

    python benchmarks/screenshots.py [--runs FOLDER] [--run NAME] [--out docs/screenshots]

Without --runs, a run of EVE-Agent is trained first: two iterations on the village of the tests, a tiny model and a few
documents, some minutes on one core. The pages are those that `quaere view` serves, in Chromium, each as a PNG of few
colours. It needs what `make browser` installs, and Pillow.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

WIDTH, HEIGHT = 1180, 760
NUM_COLOURS = 160
SETTINGS = {
    "iterations": 2,
    "traced_episodes": 4,
    "proposer.steps": 6,
    "proposer.batch": 12,
    "proposer.learner.learning_rate": 3e-4,
    "generation.batch": 16,
    "verify_candidates": True,
    "solver.steps": 8,
    "solver.learner.learning_rate": 3e-4,
    "checkpoints.every": 4,
    "engine.mode": "fast",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, metavar="FOLDER", help="a folder of runs; without it, one is trained")
    parser.add_argument("--run", metavar="NAME", default="eve-village", help="the run whose pages are shown")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/screenshots")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        folder = args.runs or train(Path(home))
        args.out.mkdir(parents=True, exist_ok=True)
        with serve(folder) as url:
            shoot(url, choose_pages(folder / args.run), args.out)
    total = sum(file.stat().st_size for file in args.out.glob("*.png"))
    print(f"{len(list(args.out.glob('*.png')))} screenshots, {total / 1000:.0f} kB")


def train(home: Path) -> Path:
    """A run of EVE-Agent on the village that quotes."""
    import quoting
    from village_runs import make_quoting, run_eve

    (home / "village").mkdir()
    config = make_quoting(quoting.build(home / "village"), **SETTINGS)
    run_eve(home / "runs" / "eve-village", config)[0].close()
    return home / "runs"


def choose_pages(path: Path) -> dict[str, tuple[str, str]]:
    """The address of each page to show, by the name of its file, and what to scroll to."""
    from quaere.api.run import Run
    from quaere.runs.rows import EpisodeFilter
    from quaere.viewer.transcript import EpisodeQuery, read_episode

    name = path.name
    with Run.open(path) as run:
        rows = [row for row in run.rows(EpisodeFilter(phase="solver")) if run.token_trace(row.id)]
        quoted = [row for row in rows if read_episode(run, name, EpisodeQuery(row.id)).quotation == "verbatim"]
        best = max(quoted or rows, key=lambda row: row.metrics.get("advantage", 0.0))
        item = max(run.candidates(), key=lambda one: (one.evidence is not None, one.support is not None, one.kept))
    return {
        "run": (f"/run/{name}", ""),
        "map": (f"/run/{name}/map", ""),
        "group": (f"/run/{name}/group?task={best.task_id}&step={best.step}", ""),
        "episode": (f"/run/{name}/episode?id={best.id}", "#turns-title"),
        "tokens": (f"/run/{name}/episode?id={best.id}", "#tokens-title"),
        "curriculum": (f"/run/{name}/curriculum", ""),
        "item": (f"/run/{name}/item?id={item.id}", ""),
    }


def shoot(url: str, pages: dict[str, tuple[str, str]], out: Path) -> None:
    """Take the pictures; commands are hidden, since they have the paths of this machine."""
    from browsing import find_chromium, open_browser

    with open_browser(find_chromium()) as browser:
        view: dict[str, Any] = {"viewport": {"width": WIDTH, "height": HEIGHT}, "color_scheme": "light"}
        page = browser.new_context(**view).new_page()
        for name, (address, place) in pages.items():
            page.goto(url + address)
            page.evaluate("for (const part of document.querySelectorAll('.command')) part.parentElement.hidden = true")
            if place:
                page.evaluate("place => document.querySelector(place).scrollIntoView()", place)
            (out / f"{name}.png").write_bytes(reduce_colours(page.screenshot()))
            print(f"{name}.png  {address}")


def reduce_colours(png: bytes) -> bytes:
    """The same picture with few colours: text and lines stay as they are, and the file is a third as large."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    small = io.BytesIO()
    image.quantize(NUM_COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        small, "PNG", optimize=True
    )
    return small.getvalue()


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    from quaere.serving.server import ServerSettings
    from quaere.viewer.app import make_view_server
    from quaere.viewer.run_folder import open_folder

    server = make_view_server(open_folder(str(folder)), ServerSettings(port=0))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield server.url
    server.should_exit = True
    thread.join(timeout=30)


if __name__ == "__main__":
    main()
