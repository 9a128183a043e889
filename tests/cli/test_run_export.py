"""`quaere runs export --to trackio`: the steps of a run that is over."""

import sys

import pytest

from quaere.cli.main import main
from quaere.runs import Run
from quaere.training.progress import replay_steps
from viewing import write_run
from village_runs import Told


def test_every_step_is_told_with_its_alarms(tmp_path):
    told = Told()
    with Run.open(write_run(tmp_path / "alpha")) as run:
        assert replay_steps(run, told) == 6
    assert [one.step for one in told.steps] == [1, 2, 3, 4, 5, 6]
    assert [one.metrics["reward/mean"] for one in told.steps] == pytest.approx([0.1 * step for step in range(1, 7)])
    assert [len(one.alarms) for one in told.steps] == [0, 0, 0, 1, 0, 0]


def test_trackio_has_the_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # read as it is imported
    pytest.importorskip("trackio", reason="Trackio is not installed")
    from trackio.sqlite_storage import SQLiteStorage

    write_run(tmp_path / "exported-run")
    assert not main(["runs", "export", str(tmp_path / "exported-run"), "--to", "trackio"])
    assert "trackio show" in capsys.readouterr().err
    (record,) = [one for one in SQLiteStorage.get_run_records("quaere") if one["name"] == "exported-run"]
    logs = SQLiteStorage.get_logs("quaere", "exported-run", run_id=record["id"])
    assert [log["step"] for log in logs] == [1, 2, 3, 4, 5, 6] and logs[-1]["reward/mean"] == pytest.approx(0.6)


def test_without_trackio_the_line_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "trackio", None)
    write_run(tmp_path / "alpha")
    assert main(["runs", "export", str(tmp_path / "alpha"), "--to", "trackio"]) == 2
    assert "[trackio]" in capsys.readouterr().err


def test_a_run_without_steps_has_nothing_for_trackio(tmp_path, capsys):
    Run.create(tmp_path / "asked", "ask").close()
    assert main(["runs", "export", str(tmp_path / "asked"), "--to", "trackio"]) == 2
    assert "it was not a training" in capsys.readouterr().err
