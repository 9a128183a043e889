"""Going back to a step: the store is then that of a run which never went further."""

from __future__ import annotations

import functools
import math
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from builders import build_candidate, build_episode
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from properties import examples
from quaere.errors import BadInput
from quaere.records import Candidate, DropReason, Evidence, Support
from quaere.runs import Event, Run
from quaere.runs import run as run_module
from quaere.runs.run import ShardWriter

# A run as a list of things done, each at a step: ("episodes", step, how many), ("metrics", step, value), ...
Deed = tuple[str, int, Any]


def do(run: Run, deeds: list[tuple[int, Deed]]) -> None:
    for number, (kind, step, value) in deeds:
        if kind == "episodes":
            batch = [build_episode(f"e{number}-{i}", text=f"{number} {i} " * 20) for i in range(value)]
            run.add_episodes(batch, [{"n": float(i)} for i in range(value)], step=step, phase=f"phase {step % 2}")
        elif kind == "metrics":
            run.log_metrics(step, {"reward/mean": value, f"odd/{step}": math.inf})
        elif kind == "candidates":
            run.add_candidates([build_candidate(f"c{number}-{i}", step) for i in range(value)])
        else:
            run.add_event(step, "alarm", f"number {number}")


def all_reads(run: Run) -> dict[str, Any]:
    return {
        "index": run.index(),
        "episodes": list(run.episodes()),
        "metrics": {name: run.metrics(name) for name in run.metric_names()},
        "at": [run.metrics_at(step) for step in range(8)],
        "candidates": run.candidates(),
        "events": run.events(),
        "counts": run.count_episodes(),
        "shards": {path.name: path.read_bytes() for path in (run.path / "episodes").iterdir()},
    }


steps = st.integers(0, 6)
in_order = st.lists(st.tuples(st.just("episodes"), steps, st.integers(0, 3)), max_size=8).map(
    lambda deeds: sorted(deeds, key=lambda deed: deed[1])
)
in_any_order = st.lists(
    st.tuples(st.just("metrics"), steps, st.floats(allow_nan=False))
    | st.tuples(st.just("candidates"), steps, st.integers(0, 2))
    | st.tuples(st.just("events"), steps, st.none()),
    max_size=8,
)


@pytest.fixture(params=[64 << 20, 700], ids=["one shard", "many shards"])
def _shard_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "ShardWriter", functools.partial(ShardWriter, shard_bytes=request.param))


@pytest.mark.usefixtures("_shard_bytes")
@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
@given(in_order, in_any_order, st.integers(-1, 7), st.booleans())
@example([("episodes", n, 3) for n in range(6)], [], 2, False)
@example([("episodes", n, 3) for n in range(1, 6)], [], 0, True)
def test_a_truncated_run_equals_one_that_never_went_further(
    tmp_path: Path, ordered: list[Deed], others: list[Deed], step: int, reopen: bool
) -> None:
    deeds = list(enumerate([*ordered, *others]))
    shutil.rmtree(tmp_path / "far", ignore_errors=True)
    shutil.rmtree(tmp_path / "near", ignore_errors=True)
    far, near = Run.create(tmp_path / "far", "evolve"), Run.create(tmp_path / "near", "evolve")
    try:
        do(far, deeds)
        far.truncate_after(step)
        do(near, [(number, deed) for number, deed in deeds if deed[1] <= step])
        assert all_reads(far) == all_reads(near)
        if reopen:
            far.close()
            far = Run.open(far.path, write=True)
        later: list[tuple[int, Deed]] = [(100 + n, ("episodes", step + n, 2)) for n in (1, 2, 3)]
        for run in (far, near):
            do(run, [*later, (200, ("candidates", step + 1, 1)), (201, ("events", step + 1, None))])
        assert all_reads(far) == all_reads(near)
        far.truncate_after(7 + step)
        assert all_reads(far) == all_reads(near)  # there was nothing beyond
    finally:
        far.close()
        near.close()


def test_steps_of_episodes_never_go_back(tmp_path: Path) -> None:
    with Run.create(tmp_path / "r", "evolve") as run:
        run.add_episode(build_episode("a"), step=2)
        with pytest.raises(BadInput, match="run r has episodes of step 2: step 1 is earlier and cannot be added"):
            run.add_episode(build_episode("b"), step=1)
        run.truncate_after(1)
        run.add_episode(build_episode("b"), step=1)
        assert [(row.id, row.number) for row in run.index()] == [("b", 1)]


def test_a_reader_cannot_truncate(tmp_path: Path) -> None:
    Run.create(tmp_path / "r", "evolve").close()
    with Run.open(tmp_path / "r") as run, pytest.raises(BadInput, match="open for reading only"):
        run.truncate_after(0)


# ------------------------------------------------------------------------------------------------------------- killed

TRUNCATER = """
import os, signal, sys
from quaere.runs import Run, run as run_module

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

path, moment = sys.argv[1:]
with Run.open(path, write=True) as run:
    if moment == "before the cut":
        run_module.ShardWriter.cut = die
    elif moment == "in the cut":
        os.truncate = die
    else:
        run._database.set_trace_callback(lambda sql: die() if sql.startswith(moment) else None)
    run.truncate_after(2)
"""

MOMENTS = ["DELETE FROM episodes", "DELETE FROM events", "COMMIT", "before the cut", "in the cut"]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    root = tmp_path_factory.mktemp("written")
    deeds: list[tuple[int, Deed]] = [
        (step * 10 + number, (kind, step, value))
        for step in range(5)
        for number, (kind, value) in enumerate({"episodes": 3, "metrics": 0.5, "candidates": 2, "events": None}.items())
    ]
    with Run.create(root / "far", "evolve") as far, Run.create(root / "near", "evolve") as near:
        do(far, deeds)
        do(near, [(number, deed) for number, deed in deeds if deed[1] <= 2])
        yield {"far": far.path, "whole": all_reads(far), "near": all_reads(near)}


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_in_the_middle_it_is_called_again(tmp_path: Path, written: dict[str, Any], moment: str) -> None:
    path = shutil.copytree(written["far"], tmp_path / "far")
    done = subprocess.run([sys.executable, "-c", TRUNCATER, str(path), moment], check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    with Run.open(path) as run:  # it was dropped, or it was not: whoever reads now can read all there is
        reads = all_reads(run)
        expected = written["near"] if moment.endswith("cut") else written["whole"]
        assert {**reads, "shards": None} == {**expected, "shards": None}
        assert reads["shards"] == written["whole"]["shards"]
    with Run.open(path, write=True) as run:
        run.truncate_after(2)
        assert all_reads(run) == written["near"]


# ----------------------------------------------------------------------------------------- candidates, events, config


def test_candidates_come_back_in_order_and_by_filter(tmp_path: Path) -> None:
    reasons = get_args(DropReason)
    added = [build_candidate(f"c{9 - n}", n, iteration=n % 2, reason=reason) for n, reason in enumerate(reasons)]
    with Run.create(tmp_path / "r", "evolve") as run:
        run.add_candidates(added[:3])
        run.add_candidates([])
        run.add_candidates(added[3:])
    with Run.open(tmp_path / "r") as run:
        assert run.candidates() == added
        assert run.candidates(iteration=1) == [candidate for candidate in added if candidate.iteration == 1]
        assert run.candidates(kept=True) == added[:1]
        assert run.candidates(kept=False) == added[1:]
        assert [one for one in run.candidates(iteration=1, kept=False) if one.reason == "refused"] == [
            candidate for candidate in added if candidate.reason == "refused"
        ]


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
small = st.integers(-(2**63), 2**63 - 1)
any_evidence = st.builds(
    lambda doc_id, start, words: Evidence(doc_id, start, start + len(words), words), text, st.integers(0, 2**62), text
)
any_candidate = st.builds(
    Candidate,
    *(text, small, small, text, text, small, text, text, small, small),
    st.sampled_from(get_args(DropReason)),
    st.dictionaries(text, st.floats(), max_size=2),
    text,
    st.none() | any_evidence,
    st.none() | st.builds(Support, st.floats(), st.floats(), st.integers(0, 2**62)),
    st.lists(text, max_size=2).map(tuple),
    small,
    text,
)


@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(any_candidate, max_size=3, unique_by=lambda candidate: candidate.id))
def test_any_candidate_comes_back_the_same(tmp_path: Path, candidates: list[Candidate]) -> None:
    with Run.start(tmp_path, "test") as run:
        run.add_candidates(candidates)
        assert repr(run.candidates()) == repr(candidates)  # NaN equals nothing, but is written the same


def test_candidates_that_cannot_be_stored_leave_nothing(tmp_path: Path) -> None:
    with Run.create(tmp_path / "r", "evolve") as run:
        for broken in (build_candidate("a"), build_candidate("b", answer="\ud800"), build_candidate("b", hops=2**70)):
            with pytest.raises(BadInput, match="cannot write to the run"):
                run.add_candidates([build_candidate("a"), broken])
        assert run.candidates() == []


def test_episodes_carry_step_and_phase(tmp_path: Path) -> None:
    with Run.create(tmp_path / "r", "evolve") as run:
        run.add_episode(build_episode("before"))
        run.add_episodes([build_episode("a"), build_episode("b")], step=1, phase="proposer")
        run.add_episode(build_episode("c"), step=1, phase="attempts")
        run.add_episode(build_episode("d"), {"reward": 1.0}, step=2, phase="proposer")
        assert [(row.step, row.phase) for row in run.index()][:2] == [(0, ""), (1, "proposer")]
        assert [row.id for row in run.index(step=1)] == ["a", "b", "c"]
        assert [row.id for row in run.index(phase="proposer")] == ["a", "b", "d"]
        assert [row.id for row in run.index(step=0)] == ["before"]
        assert [episode.id for episode in run.episodes(step=1, phase="proposer")] == ["a", "b"]


def test_a_row_with_an_unwritable_phase_leaves_no_frame(tmp_path: Path) -> None:
    with Run.create(tmp_path / "r", "evolve") as run:
        with pytest.raises(BadInput, match="cannot write to the run"):
            run.add_episode(build_episode("a"), phase="\ud800")
        assert (run.path / "episodes" / "00000.jsonl.zst").stat().st_size == 0


def test_events_and_metrics_of_a_step(tmp_path: Path) -> None:
    with Run.create(tmp_path / "r", "evolve") as run:
        run.add_event(3, "alarm", "the entropy is low")
        run.add_event(2, "rollback", "went back to step 2")
        run.log_metrics(3, {"b": 2.0, "a": math.nan})
        run.log_metrics(2, {"b": -math.inf})
        assert run.events() == [Event(3, "alarm", "the entropy is low"), Event(2, "rollback", "went back to step 2")]
        assert list(run.metrics_at(3)) == ["a", "b"]
        assert math.isnan(run.metrics_at(3)["a"])
        assert run.metrics_at(2) == {"b": -math.inf}
        assert run.metrics_at(1) == {}


def test_the_config_lies_in_the_directory(tmp_path: Path) -> None:
    text = "model: smollm2-135m  # größer wäre besser\r\nseed: 1\n"
    with Run.create(tmp_path / "r", "evolve", {"model": "tiny"}, config=text) as run:
        assert run.config_text() == text
        run.replace_config("seed: 2\n")
        assert run.config_text() == "seed: 2\n"
        run.replace_config(text)
    assert (tmp_path / "r" / "config.yaml").read_bytes() == text.encode()
    with Run.open(tmp_path / "r") as run, pytest.raises(BadInput, match="open for reading only"):
        run.replace_config("seed: 3\n")
    (tmp_path / "r" / "config.yaml").write_bytes("größer".encode("latin-1"))
    with Run.open(tmp_path / "r") as run, pytest.raises(BadInput, match="is not text in UTF-8"):
        run.config_text()
    with Run.create(tmp_path / "e", "evolve", config="") as run:
        assert run.config_text() == ""
    with Run.create(tmp_path / "s", "ask") as run, pytest.raises(BadInput, match=r"run s has no config\.yaml"):
        run.config_text()


def test_a_run_of_an_older_schema_is_refused(tmp_path: Path) -> None:
    Run.create(tmp_path / "r", "ask").close()
    with sqlite3.connect(tmp_path / "r" / "run.db") as database:
        database.execute("PRAGMA user_version = 1")
    with pytest.raises(BadInput, match="has schema 1; this quaere reads 2 to 8"):
        Run.open(tmp_path / "r")
