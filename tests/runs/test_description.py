"""The description of a run: written whole or not at all, read at once where that is safe, and its writer named."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from quaere.errors import BadInput
from quaere.runs import Run
from quaere.runs.directory import hold_idle
from quaere.runs.summaries import read_brief


def test_a_writer_that_has_ended_is_not_named_as_the_one_at_work(tmp_path: Path) -> None:
    Run.create(tmp_path / "r", "ask").close()
    with hold_idle(tmp_path / "r"), pytest.raises(BadInput, match="run r is being written by another process"):
        Run.open(tmp_path / "r", write=True)


def test_a_run_that_a_full_disk_has_no_room_for_is_not_created(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource", reason="limits on file size exist on POSIX only")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(BadInput, match="cannot write the database of run r: "):
            Run.create(tmp_path / "r", "ask")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not (tmp_path / "r").exists()


def test_a_run_without_its_description_is_damaged(tmp_path: Path) -> None:
    Run.create(tmp_path / "r", "ask").close()
    with sqlite3.connect(tmp_path / "r" / "run.db") as database:
        database.execute("DELETE FROM runs")
    with pytest.raises(BadInput, match="is damaged: its table `runs` has no valid row"):
        _ = Run.open(tmp_path / "r").info


def test_a_description_is_read_at_once_unless_it_may_be_elsewhere(tmp_path: Path) -> None:
    """In a log that is not yet copied into the file, or behind a link, which could point to any file."""
    with Run.create(tmp_path / "r", "ask") as run:
        assert read_brief(str(run.path)) is None
    assert read_brief(str(run.path)) == run.info
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "run.db").symlink_to(run.path / "run.db")
    assert read_brief(str(tmp_path / "linked")) is None
