"""The small copy of a real run (`benchmarks/results/wikipedia`), and how `benchmarks/shrink_run.py` makes one."""

import re
import shutil
from pathlib import Path

import pytest

from quaere.runs import Run
from quaere.runs.rows import EpisodeFilter
from viewing import add_episodes, make_episode, open_client, twin, write_run

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Copied, because a database that is read leaves files beside it."""
    return Path(shutil.copytree(ROOT / "benchmarks/results/wikipedia", tmp_path_factory.mktemp("real") / "runs"))


@pytest.fixture
def shrink_run(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import shrink_run

    return shrink_run


def test_every_episode_of_a_real_run_reads_as_a_conversation(real):
    client, states = open_client(real), set()
    with Run.open(real / "search-r1") as run:
        ids = [row.id for row in run.rows(EpisodeFilter())]
    for id in ids:
        page = twin(client, f"episode?id={id.replace('#', '%23')}", run="search-r1")
        states.add((page["shown"]["state"], page["shown"]["chips_are"]))
        for turn in page["turns"]:
            assert not re.search(r"</?(think|search|answer)>", turn["thought"])
            assert turn["thought"] or turn["kind"] in ("malformed", "answer", "abstained", "search")
        sources = [chip["text"] for chip in page["shown"]["chips"]] if page["shown"]["chips_are"] == "support" else []
        assert bool(page["cited"]) == bool(sources)
    assert len(ids) == 64 and {("answered", "support"), ("abstained", "seen")} <= states


def test_the_copy_of_a_run_names_no_path_and_no_more_than_it_has(real):
    with Run.open(real / "search-r1") as run:
        assert run.last_step() == 26 and run.count_episodes()[0] == 64
        assert "/" not in "".join(str(value) for value in run.info.settings.values())
        assert "CC BY-SA" in (real / "README.md").read_text(encoding="utf-8")
    assert sum(file.stat().st_size for file in real.rglob("*") if file.is_file()) < 500_000


def test_a_run_is_shrunk_to_the_first_questions_of_its_first_and_last_step(shrink_run, tmp_path):
    with Run.open(write_run(tmp_path / "whole", num_steps=3, index="/home/me/index"), write=True) as run:
        for step in (1, 2, 3):
            add_episodes(run, step=step, longest=40)
            run.add_episode(make_episode(f"more{step}", "q2"), {"reward/total": 1.0}, step=step, phase="solver")
        shrink_run.shrink(run, tmp_path / "small", 1)
        with Run.open(tmp_path / "small") as small:
            assert [row.id for row in small.rows(EpisodeFilter())] == [f"s{n}-a{m}" for n in (1, 3) for m in range(3)]
            assert small.info.settings["index"] == "index"
            for step in (1, 2, 3):
                assert small.metrics_at(step) == pytest.approx(run.metrics_at(step), nan_ok=True)
            assert [event.kind for event in small.events()] == [event.kind for event in run.events()]


@pytest.mark.parametrize(
    ("text", "short"),
    [("model: /data/models/form\n", "model: form\n"), ("a/b and/or 1/2", "a/b and/or 1/2"), ("/x", "/x")],
)
def test_paths_are_shortened_and_nothing_else(shrink_run, text, short):
    assert shrink_run.shorten(text) == short
