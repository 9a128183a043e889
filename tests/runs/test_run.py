"""The store: what goes in comes out, by id and in order; one process writes, others read."""

from __future__ import annotations

import fcntl
import math
import os
import re
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from properties import examples
from quaere.errors import UPDATE_HINT, BadInput
from quaere.records import (
    Answer,
    Boundary,
    EndReason,
    Episode,
    Evaluate,
    Evidence,
    Failure,
    Hit,
    Malformed,
    Origin,
    Passage,
    Proposal,
    ProposeTask,
    Question,
    Search,
    SearchResult,
    Segment,
    SolveTask,
    StopReason,
    Turn,
)
from quaere.runs import Metric, Run, directory, find_run, list_runs, runs_root
from quaere.runs.directory import is_locked, read_frame
from quaere.runs.rows import EpisodeFilter, Frame
from quaere.runs.run import ShardWriter

MakeEpisode = Callable[..., Episode]

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
real = st.floats(allow_nan=False, allow_infinity=False)
whole = st.integers(-(2**63), 2**64 - 1)


def few(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(values, max_size=2).map(tuple)


passages = st.builds(Passage, text, text, text, text, whole, whole)
questions = st.builds(Question, text, text, few(text), whole, few(st.builds(Evidence, text, whole, whole, text)))
tasks = st.builds(SolveTask, questions) | st.builds(ProposeTask, text, passages, whole)
proposals = st.builds(Proposal, text, text)
answers = st.builds(Answer, text, text, text)
actions = st.builds(Search, few(text), text) | answers | proposals | st.builds(Malformed, text, text)
actions |= st.builds(Evaluate, text, real)
results = st.builds(SearchResult, text, few(st.builds(Hit, passages, real)))
failures = st.builds(Failure, st.sampled_from(get_args(Boundary)), text, text)
stops = st.sampled_from(get_args(StopReason))
turns = st.builds(Turn, whole, text, actions, stops, few(results), text, st.none() | failures, *[whole] * 3, real, real)
segments = st.builds(Segment, st.sampled_from(get_args(Origin)), few(whole), few(real), few(st.booleans()))
ends = st.sampled_from(get_args(EndReason))
any_episode = st.builds(
    Episode, text, tasks, text, text, whole, few(segments), few(turns), st.none() | answers | proposals, ends
)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(any_episode, max_size=3, unique_by=lambda episode: episode.id), st.booleans())
def test_any_episode_comes_back_the_same(tmp_path: Path, episodes: list[Episode], together: bool) -> None:
    with Run.start(tmp_path, "test") as run:
        if together:
            run.add_episodes(episodes)
        else:
            for episode in episodes:
                run.add_episode(episode)
        assert list(run.episodes()) == episodes
    with Run.open(run.path) as run:
        assert [run.episode(episode.id) for episode in reversed(episodes)] == episodes[::-1]
        assert [row.id for row in run.index()] == [episode.id for episode in episodes]


def test_a_run_says_what_it_is(tmp_path: Path) -> None:
    with Run.create(tmp_path / "ask-1", "ask", {"model": "tiny", "limits": {"max_turns": 3}}):
        pass
    info = Run.open(tmp_path / "ask-1").info
    assert (info.id, info.kind) == ("ask-1", "ask")
    assert info.settings == {"model": "tiny", "limits": {"max_turns": 3}}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", info.created)
    assert info.version
    with Run.open(tmp_path / "ask-1", write=True) as run:
        run.change_settings({"model": "larger"})
        assert run.info.settings == {"model": "larger", "limits": {"max_turns": 3}}
    assert Run.open(tmp_path / "ask-1").info.settings == run.info.settings


def test_the_index_knows_the_episode_without_reading_it(tmp_path: Path, make_episode: MakeEpisode) -> None:
    with Run.create(tmp_path / "r", "ask") as run:
        run.add_episode(make_episode("a"), metrics={"seconds": 2.5, "odd": math.nan})
        (row,) = run.index()
    assert (row.number, row.id, row.task_id, row.question) == (1, "a", "q1", "Who built the Halm bridge?")
    assert (row.answer, row.num_turns, row.num_searches, row.num_tokens) == ("Orsolya Venn", 2, 1, 5)
    assert row.metrics["seconds"] == 2.5
    assert math.isnan(row.metrics["odd"])


def test_filters_narrow_the_list(tmp_path: Path, make_episode: MakeEpisode) -> None:
    with Run.create(tmp_path / "r", "ask") as run:
        run.add_episodes(
            [
                make_episode("a"),
                make_episode("b", end="turn_limit", outcome=None),
                make_episode("c", protocol="tags"),
                make_episode("d", end="failed", outcome=None, protocol="tags"),
            ]
        )
        assert [row.id for row in run.index(answered=True)] == ["a", "c"]
        assert [row.id for row in run.index(answered=False)] == ["b", "d"]
        assert [row.id for row in run.index(end="failed")] == ["d"]
        assert [episode.id for episode in run.episodes(protocol="tags", answered=True)] == ["c"]
        assert run.count_episodes() == (4, 2)


def test_an_answer_below_the_runs_confidence_is_counted_as_an_abstention(
    tmp_path: Path, make_episode: MakeEpisode
) -> None:
    """Of attempts that agree by a half, and whoever adds the episode: no metric is given here."""
    silent = Answer("Not in these documents.", abstained=True)
    with Run.create(tmp_path / "r", "ask", {"min_confidence": 0.5}) as run:
        run.add_episodes(
            [
                make_episode("sure", agreement=0.5),
                make_episode("unsure", agreement=0.25),
                make_episode("silent", agreement=1.0, outcome=silent),
                make_episode("none", outcome=None, end="turn_limit", agreement=0.25),
            ]
        )
        assert run.count_episodes() == (4, 1) and run.count_all() == (4, 1, 4)
        assert [row.id for row in run.index(answered=True)] == ["sure"]
        assert [row.id for row in run.index() if row.is_abstained] == ["unsure", "silent"]
        assert [group.num_answered for group in run.groups(EpisodeFilter())] == [1]
    with Run.create(tmp_path / "other", "ask", {"min_confidence": None}) as run:
        run.add_episode(make_episode("unsure", agreement=0.25))
        assert run.min_confidence == 0.0 and run.count_episodes() == (1, 1)


def test_the_phrase_is_an_answer_where_abstaining_was_not_allowed(tmp_path: Path, make_episode: MakeEpisode) -> None:
    """Runs of earlier versions have the words alone."""
    with Run.create(tmp_path / "r", "ask") as run:
        run.add_episode(make_episode("a", outcome=Answer("not in these documents")))
        assert run.count_episodes() == (1, 1) and not run.index()[0].is_abstained
    with closing(sqlite3.connect(tmp_path / "r" / "run.db")) as database, database:
        database.execute("UPDATE episodes SET metrics = '{}'")
    with Run.open(tmp_path / "r") as run:
        assert run.count_episodes() == (1, 0) and run.index()[0].is_abstained


def test_the_best_paid_episodes_come_first(tmp_path: Path, make_episode: MakeEpisode) -> None:
    with Run.create(tmp_path / "r", "train") as run:
        for id, reward in (("a", 1.0), ("b", 0.25), ("c", math.nan), ("d", 0.5)):
            run.add_episode(make_episode(id), metrics={"reward/total": reward})
        run.add_episode(make_episode("e"), metrics={"seconds": 9.0})
        assert run.best_paid("reward/total", 2) == ["a", "d"]
        assert run.best_paid("reward/total", 9) == ["a", "d", "b"]
        run.add_episode(make_episode("f"), metrics={"reward/total": 0.1}, phase="proposer")
        assert run.best_paid("reward/total", 1, "proposer") == ["f"]  # though others earned more


def test_metrics_are_kept_by_step(tmp_path: Path) -> None:
    with Run.create(tmp_path / "r", "train") as run:
        run.log_metrics(2, {"reward/mean": 0.5})
        run.log_metrics(1, {"reward/mean": 0.25, "loss/policy": math.nan, "grad/norm": math.inf})
        run.log_metrics(2, {"reward/mean": 0.75})
    with Run.open(tmp_path / "r") as run:
        assert run.metrics("reward/mean") == [Metric(step=1, value=0.25), Metric(step=2, value=0.75)]
        assert math.isnan(run.metrics("loss/policy")[0].value)
        assert run.metrics("grad/norm") == [Metric(step=1, value=math.inf)]
        assert run.metric_names() == ["grad/norm", "loss/policy", "reward/mean"]
        assert run.metrics("nothing") == []


def test_shards_are_ordinary_zstd_files_that_roll_over(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path / "episodes", {}, shard_bytes=40)
    frames = [writer.append([b'{"n":%d}' % n, b"{}"]) for n in range(6)]
    writer.close()
    assert {frame.shard for frame in frames} == {0, 1, 2}
    assert [read_frame(tmp_path / "episodes", frame)[0] for frame in frames] == [b'{"n":%d}' % n for n in range(6)]
    lines = b""
    for path in sorted((tmp_path / "episodes").iterdir()):
        with zstandard.open(path, "rb") as stream:
            lines += stream.read()
    assert lines.count(b"\n") == 12


# -------------------------------------------------------------------------------------------------- what is refused


def test_an_episode_id_is_taken_once(tmp_path: Path, make_episode: MakeEpisode) -> None:
    with Run.create(tmp_path / "r", "ask") as run:
        run.add_episode(make_episode("a"))
        for batch in ([make_episode("a")], [make_episode("b"), make_episode("b")]):
            with pytest.raises(BadInput, match="already has an episode"):
                run.add_episodes(batch)
        assert [episode.id for episode in run.episodes()] == ["a"]


@pytest.mark.parametrize("broken", [{"segments": (Segment("model", (1,), (math.nan,), (True,)),)}, {"model": "\ud800"}])
def test_what_could_not_be_read_back_is_not_stored(
    tmp_path: Path, make_episode: MakeEpisode, broken: dict[str, object]
) -> None:
    with Run.create(tmp_path / "r", "ask") as run:
        with pytest.raises(BadInput, match="episode a cannot be stored"):
            run.add_episodes([make_episode("fine"), make_episode("a", **broken)])
        assert run.count_episodes() == (0, 0)


def test_an_unknown_episode_names_the_nearest(tmp_path: Path, make_episode: MakeEpisode) -> None:
    """And the run by its path: its folder may have been renamed."""
    Run.create(tmp_path / "r", "ask").close()
    with Run.open((tmp_path / "r").rename(tmp_path / "a b"), write=True) as run:
        run.add_episode(make_episode("ask-10"))
        with pytest.raises(BadInput, match=r"^run r has no episode ask-1O\n") as caught:
            run.episode("ask-1O")
    assert caught.value.hint == f"did you mean ask-10? see: quaere runs show '{tmp_path}/a b'"


def test_a_run_is_not_created_over_something_else(tmp_path: Path) -> None:
    Run.create(tmp_path / "r", "ask").close()
    with pytest.raises(BadInput, match=r"cannot write .*: it exists already"):
        Run.create(tmp_path / "r", "ask")
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


def test_started_runs_never_share_a_name(tmp_path: Path) -> None:
    names = []
    for _ in range(3):
        with Run.start(tmp_path, "ask") as run:
            names.append(run.path.name)
            assert run.info.id == run.path.name
    assert len(set(names)) == 3
    assert re.fullmatch(r"ask-\d{8}-\d{6}", names[0])
    assert all(re.fullmatch(r"ask-\d{8}-\d{6}(-[23])?", name) for name in names)


def test_a_reader_cannot_write(tmp_path: Path, make_episode: MakeEpisode) -> None:
    Run.create(tmp_path / "r", "ask").close()
    with Run.open(tmp_path / "r") as run:
        with pytest.raises(BadInput, match="open for reading only"):
            run.add_episode(make_episode())
        with pytest.raises(BadInput, match="open for reading only"):
            run.log_metrics(1, {"a": 1.0})


def test_one_process_writes_while_others_read(tmp_path: Path, make_episode: MakeEpisode) -> None:
    with Run.create(tmp_path / "r", "ask") as writer, Run.open(tmp_path / "r") as reader:
        with pytest.raises(BadInput, match=f"run r is being written by process {os.getpid()}"):
            Run.open(tmp_path / "r", write=True)
        program = "import sys; from quaere.runs import Run; Run.open(sys.argv[1], write=True)"
        done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "r")], capture_output=True, check=False)
        assert b"is being written by process" in done.stderr
        for number in range(3):
            writer.add_episode(make_episode(f"ask-{number}"))
            assert reader.count_episodes() == (number + 1, number + 1)
            assert reader.episode(f"ask-{number}") == make_episode(f"ask-{number}")
    with Run.open(tmp_path / "r", write=True) as run:
        run.add_episode(make_episode("later"))


@pytest.mark.parametrize("name", ["notes.txt", "episodes/00007.jsonl.zst"])
def test_a_run_with_a_link_in_it_is_read_and_not_written_to(tmp_path: Path, name: str) -> None:
    Run.create(tmp_path / "r", "ask").close()
    (tmp_path / "mine").touch()
    (tmp_path / "r" / name).symlink_to(tmp_path / "mine")
    Run.open(tmp_path / "r").close()
    with pytest.raises(BadInput, match="is a symbolic link; a run can only be written to if"):
        Run.open(tmp_path / "r", write=True)


def test_a_writer_that_cannot_write_leaves_no_lock(tmp_path: Path) -> None:
    Run.create(tmp_path / "r", "ask").close()
    with sqlite3.connect(tmp_path / "r" / "run.db") as database:
        database.execute("CREATE TRIGGER no BEFORE UPDATE ON runs BEGIN SELECT RAISE(ABORT, 'never'); END")
    with pytest.raises(BadInput, match="cannot write to the run") as caught:
        Run.open(tmp_path / "r", write=True)
    assert not is_locked(tmp_path / "r"), caught  # held, it would be let go of with the error at the latest


def test_a_writer_waits_for_whoever_only_looks_whether_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Run.create(tmp_path / "r", "ask").close()
    monkeypatch.setattr(directory, "_LOOK_S", 60)  # on a busy machine an instant is long
    with open(tmp_path / "r" / directory.LOCK) as looked_at:
        fcntl.flock(looked_at, fcntl.LOCK_SH)
        threading.Timer(0.02, fcntl.flock, (looked_at, fcntl.LOCK_UN)).start()
        Run.open(tmp_path / "r", write=True).close()


def test_a_run_in_a_folder_that_nobody_can_write_is_readable(
    tmp_path: Path, make_episode: MakeEpisode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Run.create(tmp_path / "r", "ask") as run:
        run.add_episode(make_episode("a"))
    os.chmod(tmp_path / "r", stat.S_IRUSR | stat.S_IXUSR)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # which root is never told
    try:
        with Run.open(tmp_path / "r") as run:
            assert run.episode("a").id == "a"
            assert sorted(path.name for path in run.path.glob("run.db*")) == ["run.db"]
    finally:
        os.chmod(tmp_path / "r", stat.S_IRWXU)


# ---------------------------------------------------------------------------------------------------- torn and damaged


def test_bytes_that_no_row_points_at_are_cut_off(tmp_path: Path, make_episode: MakeEpisode) -> None:
    with Run.create(tmp_path / "r", "ask") as run:
        run.add_episode(make_episode("a"))
    shard = tmp_path / "r" / "episodes" / "00000.jsonl.zst"
    indexed = shard.stat().st_size
    with shard.open("ab") as stream:
        stream.write(b"half a frame")
    (tmp_path / "r" / "episodes" / "00001.jsonl.zst").write_bytes(b"a shard that was never indexed")
    with Run.open(tmp_path / "r") as run:
        assert run.episode("a") == make_episode("a")
        assert shard.stat().st_size > indexed  # readers touch nothing
    with Run.open(tmp_path / "r", write=True) as run:
        assert shard.stat().st_size == indexed
        assert not (tmp_path / "r" / "episodes" / "00001.jsonl.zst").exists()
        run.add_episode(make_episode("b"))
        assert [episode.id for episode in run.episodes()] == ["a", "b"]


def test_a_row_that_cannot_be_committed_leaves_no_frame(tmp_path: Path, make_episode: MakeEpisode) -> None:
    with Run.create(tmp_path / "r", "ask") as run:
        run.add_episode(make_episode("a"))
        shard = tmp_path / "r" / "episodes" / "00000.jsonl.zst"
        size = shard.stat().st_size
        with sqlite3.connect(tmp_path / "r" / "run.db") as other:
            other.execute("CREATE TRIGGER refuse BEFORE INSERT ON episodes BEGIN SELECT RAISE(ABORT, 'no room'); END")
        with pytest.raises(BadInput, match=r"cannot write to the run .*: no room"):
            run.add_episode(make_episode("b"))
        assert shard.stat().st_size == size
        with sqlite3.connect(tmp_path / "r" / "run.db") as other:
            other.execute("DROP TRIGGER refuse")
        run.add_episode(make_episode("b"))
        assert [episode.id for episode in run.episodes()] == ["a", "b"]


def test_a_shard_that_cannot_be_begun_is_begun_by_the_next_append(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource", reason="limits on open files exist on POSIX only")
    writer = ShardWriter(tmp_path / "episodes", {}, shard_bytes=1)
    first = writer.append([b"{}"])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            writer.append([b"[]"])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    second = writer.append([b"[]"])
    writer.close()
    assert (second.shard, second.offset) == (1, 0)
    assert [read_frame(tmp_path / "episodes", frame) for frame in (first, second)] == [[b"{}"], [b"[]"]]


def test_an_interrupted_append_leaves_no_torn_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = ShardWriter(tmp_path / "episodes", {})
    with monkeypatch.context() as patch:

        def interrupt(handle: int) -> None:
            raise KeyboardInterrupt

        patch.setattr("quaere.runs.run.os", SimpleNamespace(**vars(os) | {"fsync": interrupt}))
        with pytest.raises(KeyboardInterrupt):
            writer.append([b"{}"])
    frame = writer.append([b"[]"])
    writer.close()
    assert read_frame(tmp_path / "episodes", frame) == [b"[]"]


def test_a_full_disk_leaves_no_torn_frame(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource", reason="limits on file size exist on POSIX only")
    writer = ShardWriter(tmp_path / "episodes", {})
    first = writer.append([b"{}"])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (first.length + 1000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            writer.append([os.urandom(50_000).hex().encode()])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    second = writer.append([b"[]"])
    writer.close()
    assert second.offset == first.length
    assert [read_frame(tmp_path / "episodes", frame) for frame in (first, second)] == [[b"{}"], [b"[]"]]


def test_a_damaged_shard_is_named(tmp_path: Path, make_episode: MakeEpisode) -> None:
    with Run.create(tmp_path / "r", "ask") as run:
        run.add_episode(make_episode("a"))
        run.add_episode(make_episode("b"))
    shard = tmp_path / "r" / "episodes" / "00000.jsonl.zst"
    content = bytearray(shard.read_bytes())
    content[len(content) // 4] ^= 0xFF
    shard.write_bytes(content)
    with Run.open(tmp_path / "r") as run:
        with pytest.raises(BadInput, match=r"00000\.jsonl\.zst at byte 0 are damaged"):
            run.episode("a")
        assert run.episode("b") == make_episode("b")  # its frame is whole
    shard.write_bytes(content[:-5])
    with pytest.raises(BadInput, match="episodes are lost"):
        Run.open(tmp_path / "r", write=True)


def test_frames_beyond_the_file_are_damage_not_nonsense(tmp_path: Path) -> None:
    (tmp_path / "00000.jsonl.zst").write_bytes(b"")
    with pytest.raises(BadInput, match="damaged"):
        read_frame(tmp_path, Frame(shard=0, offset=10, length=10))


@pytest.mark.parametrize(
    ("content", "message"), [(None, "is not a run directory"), (b"not a database" * 100, "cannot be read")]
)
def test_a_directory_that_is_no_run_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "run.db").write_bytes(content)
    with pytest.raises(BadInput, match=message):
        Run.open(tmp_path)


def test_a_run_of_a_newer_schema_is_refused(tmp_path: Path) -> None:
    Run.create(tmp_path / "r", "ask").close()
    with sqlite3.connect(tmp_path / "r" / "run.db") as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(BadInput, match="has schema 99; this quaere reads 2 to 8") as caught:
        Run.open(tmp_path / "r")
    assert caught.value.hint == UPDATE_HINT


# ------------------------------------------------------------------------------------------------------- many runs


def test_runs_are_listed_and_found(tmp_path: Path, make_episode: MakeEpisode, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list_runs(tmp_path / "nowhere") == []
    with Run.create(tmp_path / "ask-1", "ask") as run:
        run.add_episodes([make_episode("a"), make_episode("b", end="failed", outcome=None)])
        (summary,) = list_runs(tmp_path)  # while it is being written
    assert (summary.id, summary.kind, summary.num_episodes, summary.num_answered) == ("ask-1", "ask", 2, 1)
    assert summary.num_bytes > 0
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.db").write_bytes(b"x" * 200)
    (tmp_path / "notes").mkdir()
    listed = {summary.id: summary for summary in list_runs(tmp_path)}
    assert set(listed) == {"ask-1", "broken"}
    assert "cannot be read" in listed["broken"].problem

    assert find_run(tmp_path, "ask-1") == tmp_path / "ask-1"
    assert find_run(Path("elsewhere"), str(tmp_path / "ask-1")) == tmp_path / "ask-1"
    with pytest.raises(BadInput, match=r"^no run ask-l in ") as caught:
        find_run(tmp_path, "ask-l")
    assert caught.value.hint == f"did you mean ask-1? see: quaere runs list --runs {tmp_path}"
    with pytest.raises(BadInput, match=r"^no run notes/other(?! in)"):
        find_run(tmp_path, "notes/other")
    (tmp_path / "ask-1").rename(tmp_path / "notes" / "run")  # as `quaere learn` has it
    with pytest.raises(BadInput, match="notes is no run, but contains one") as caught:
        find_run(tmp_path, "notes")
    assert caught.value.hint == f"name {tmp_path / 'notes' / 'run'}"

    monkeypatch.delenv("QUAERE_RUNS", raising=False)
    assert runs_root() == Path("runs")
    monkeypatch.setenv("QUAERE_RUNS", "/srv/runs")
    assert runs_root() == Path("/srv/runs")
    assert runs_root("mine") == Path("mine")
