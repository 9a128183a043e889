"""A run that version 0.1.0 wrote and did not finish: it is opened, shown and gone on with.

`tests/fixtures/run-0.1.0.tar.xz` holds a village, its model and a run of Dr. Zero (rank 4, stopped after its first
step), made by commit 2c0cdb7 with the settings of `tests/village_runs.py`.
"""

import tarfile
from pathlib import Path

import pytest

from quaere.cli.main import main
from quaere.runs import Run
from quaere.runs.checkpoints import find_checkpoints

FIXTURE = Path(__file__).parents[1] / "fixtures/run-0.1.0.tar.xz"


@pytest.fixture
def run(tmp_path, monkeypatch):
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)  # its config names the model and the index from here
    return tmp_path / "old-run/run"


def test_it_is_opened_and_shown(run, capsys):
    with Run.open(run) as stored:
        assert stored.info.version == "0.1.0"
        episodes = list(stored.episodes())
        assert len(episodes) == len(stored.index()) == 32
        assert [metric.step for metric in stored.metrics("reward/mean")] == [1]
    assert main(["runs", "show", str(run)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "stopped after step 1" in said and "quaere evolve --resume" in said
    assert main(["runs", "show", str(run), episodes[0].id]) == 0


def test_it_goes_on_to_its_end(run, capsys):
    first = find_checkpoints(run / "checkpoints")[-1].path.name
    assert main(["evolve", "--resume", str(run)]) == 0
    assert "going on after step 1 of 6" in capsys.readouterr().err
    with Run.open(run) as stored:
        assert [metric.step for metric in stored.metrics("step/seconds")] == [1, 2, 3, 4, 5, 6]
        assert stored.candidates(kept=True)
    last = find_checkpoints(run / "checkpoints")[-1].path.name
    assert (first, last) == ("step-000001", "step-000006")
