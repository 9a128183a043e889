"""How a run stands, and what to type to go on: in `runs list` and `runs show`, for people and for programs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import build_episode

from quaere.cli.main import main
from quaere.errors import NotFound, TrainingStopped
from quaere.runs import Run, RunState, list_runs

WRITER = """
import sys
from quaere.runs import Run

with Run.create(sys.argv[1], sys.argv[2]) as run:
    print("at work", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("QUAERE_RUNS", str(tmp_path))
    return tmp_path


def read(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["runs", *words]) == 0
    out = capsys.readouterr().out
    return json.loads(out) if "--json" in words else out


def leave(path: Path, kind: str, error: BaseException | None = None) -> RunState:
    """How a run stands whose `with` was left like this."""
    try:
        with Run.create(path, kind) as run:
            run.add_episode(build_episode())
            if error:
                raise error
    except BaseException as raised:
        assert raised is error
    return Run.open(path).state()


def test_a_run_knows_how_it_was_left(root: Path) -> None:
    assert leave(root / "a", "eval") == RunState("done")
    assert leave(root / "b", "eval", KeyboardInterrupt()) == RunState("stopped")
    assert leave(root / "c", "eval", asyncio.CancelledError()) == RunState("stopped")
    assert leave(root / "d", "eval", ValueError("no\n such  model")) == RunState("failed", "no such model")
    assert leave(root / "e", "eval", ValueError()) == RunState("failed", "ValueError")
    assert leave(root / "f", "ask", NotFound("not found in these documents")) == RunState("done")


def test_what_was_noted_is_not_noted_over(root: Path) -> None:
    with Run.create(root / "a", "evolve") as run:
        run.note_end(RunState("failed", "the gradient is not finite"))
    assert Run.open(root / "a").state() == RunState("failed", "the gradient is not finite")


@pytest.mark.parametrize("kind", ["evolve", "eval"])
def test_a_run_is_running_only_while_its_process_lives(
    root: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    command = [sys.executable, "-c", WRITER, str(root / "r"), kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == b"at work\n"
        (row,) = read(capsys, "list", "--json")
        assert row["state"]["name"] == "running" and row["next"] == ""
        assert read(capsys, "show", "r", "--json")["state"]["name"] == "running"
        os.kill(writer.pid, signal.SIGKILL)
    (row,) = read(capsys, "list", "--json")
    assert row["state"] == {"name": "stopped", "why": ""}
    assert row["next"] == (f"quaere evolve --resume {root / 'r'}" if kind == "evolve" else "")


def test_the_list_says_why_and_what_to_type(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leave(root / "my run", "evolve", TrainingStopped("no gradient"))
    leave(root / "eval-1", "eval", ValueError("no \x1b[2J model"))
    leave(root / "evolve-2", "evolve")
    said = read(capsys, "list")
    assert f"my run failed: no gradient; go on with: quaere evolve --resume '{root}/my run'\n" in said
    assert "eval-1 failed: no ␛[2J model\n" in said
    assert "evolve-2 done" not in said  # nothing is left to be done about it
    rows = {row["id"]: row for row in read(capsys, "list", "--json")}
    assert rows["evolve-2"]["next"] == f"quaere export {root}/evolve-2 --merge --out DIR"
    assert rows["my run"]["state"] == {"name": "failed", "why": "no gradient"}


def test_a_run_of_episodes_shows_its_state_too(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leave(root / "ask-1", "ask", KeyboardInterrupt())
    assert "\n  stopped\n" in read(capsys, "show", "ask-1")
    assert read(capsys, "show", "ask-1", "--json")["state"] == {"name": "stopped", "why": ""}


def test_of_runs_that_never_noted_their_end_nothing_is_claimed(root: Path) -> None:
    leave(root / "ask-1", "ask")
    database = sqlite3.connect(root / "ask-1" / "run.db")
    with database:
        database.execute("UPDATE runs SET ended = ''")  # as earlier versions left it
    database.close()
    (row,) = list_runs(root)
    assert row.state == RunState("unknown")
