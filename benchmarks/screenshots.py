"""Screenshots of the viewer's pages, for README and docs/viewer.md.

    python benchmarks/screenshots.py [--out docs/screenshots]

The run at a glance, its map and an episode are of a real run on manuals, of which benchmarks/results/manuals-run has a
small copy. What that run has not, tokens with their advantages and a curriculum, is of a run of EVE-Agent that is
trained first: two iterations on the village of the tests, a tiny model and a few documents, some minutes on one core.
The pages are those that `quaere view` serves, in Chromium, each as a PNG of few colours. It needs what `make browser`
installs, and Pillow.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

Pages = dict[str, str]
"""The address of each page to show, by the name of its file; after "#", what to scroll to."""

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
    parser.add_argument("--out", type=Path, default=ROOT / "docs/screenshots")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        with serve(unpack(Path(home))) as url:
            shoot(url, choose_learned(url), args.out)
        village = train(Path(home))
        with serve(village.parent) as url:
            shoot(url, choose_curriculum(village), args.out)
    total = sum(file.stat().st_size for file in args.out.glob("*.png"))
    print(f"{len(list(args.out.glob('*.png')))} screenshots, {total / 1000:.0f} kB")


def unpack(home: Path) -> Path:
    """The small copy of the real run."""
    with tarfile.open(ROOT / "benchmarks/results/manuals-run/manuals.tar.xz") as archive:
        archive.extractall(home, filter="data")
    return home / "manuals/run"


def train(home: Path) -> Path:
    """A run of EVE-Agent on the village that quotes."""
    import quoting
    from village_runs import make_quoting, run_eve

    (home / "village").mkdir()
    config = make_quoting(quoting.build(home / "village"), **SETTINGS)
    run_eve(home / "runs" / "eve-village", config)[0].close()
    return home / "runs/eve-village"


def choose_learned(url: str) -> Pages:
    """The run at a glance, its map, and the attempt after training at the second question that it learned.

    The answer to the first is in a table, which says less at a glance.
    """
    with urlopen(f"{url}/json/run/run") as reply:
        tried = json.load(reply)["glance"]["learned"][1]["after"]
    return {
        "run": "/run/run",
        "map": "/run/run/map?of=practised",
        "episode": f"/run/{tried['run']}/episode?id={quote(tried['episode'])}",
    }


def choose_curriculum(path: Path) -> Pages:
    """Pages of a run with a curriculum, and of an attempt whose tokens were stored with their advantages."""
    from quaere.api.run import Run
    from quaere.runs.rows import EpisodeFilter

    name = path.name
    with Run.open(path) as run:
        traced = [row for row in run.rows(EpisodeFilter(phase="solver")) if run.token_trace(row.id)]
        best = max(traced, key=lambda row: row.metrics.get("advantage", 0.0))
    return {
        "tokens": f"/run/{name}/episode?id={quote(best.id)}#tokens-title",
        "curriculum": f"/run/{name}/curriculum",
    }


def shoot(url: str, pages: Pages, out: Path) -> None:
    """Take the pictures; commands are hidden, since they have the paths of this machine."""
    from browsing import find_chromium, open_browser

    with open_browser(find_chromium()) as browser:
        view: dict[str, Any] = {"viewport": {"width": WIDTH, "height": HEIGHT}, "color_scheme": "light"}
        page = browser.new_context(**view).new_page()
        for name, address in pages.items():
            page.goto(url + address)
            if name == "tokens":
                page.keyboard.press("t")
            page.evaluate("for (const part of document.querySelectorAll('.command')) part.parentElement.hidden = true")
            page.evaluate("location.hash && document.querySelector(location.hash).scrollIntoView()")
            # The columns of a map stand on the right answers, with their steps below: all of it is shown.
            picture = page.screenshot(full_page=name == "map")
            (out / f"{name}.png").write_bytes(reduce_colours(picture))
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
