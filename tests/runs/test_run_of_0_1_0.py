"""What version 0.1.0 wrote: a run is opened and shown, and neither its training nor its model is used.

`tests/fixtures/run-0.1.0.tar.xz` holds a village, its model and a run of Dr. Zero (rank 4, stopped after its first
step), made by commit 2c0cdb7 with the settings of `tests/village_runs.py`.
"""

import re
import tarfile
from pathlib import Path

import pytest

from quaere.cli.main import main
from quaere.dialects.notes import read_notes
from quaere.errors import BadInput
from quaere.runs import Run

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
    assert "stopped after step 1" in said and "quaere evolve --resume" not in said
    assert main(["runs", "show", str(run), episodes[0].id]) == 0


@pytest.mark.parametrize(
    "command",
    [
        ["evolve", "--resume", "old-run/run"],
        ["export", "old-run/run", "--role", "solver", "--out", "out"],
    ],
    ids=lambda command: command[0],
)
def test_it_is_neither_resumed_nor_loaded(run, capsys, command):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert main(command) == 2
    said = capsys.readouterr().err
    assert re.fullmatch(r"quaere: run \S+ was written by version 0\.1\.0: .*\n  try: quaere evolve drzero\n", said)
    assert {path: path.read_bytes() for path in before} == before


def test_its_exports_are_refused(tmp_path):
    (tmp_path / "quaere.json").write_text('{"style": "brief", "protocol": "evalact"}')
    with pytest.raises(BadInput, match=r"quaere\.json was written by version 0\.1\.0"):
        read_notes(tmp_path)


def test_its_names_of_settings_are_unknown(capsys):
    assert main(["evolve", "drzero", "--set", "solver.protocol=evalact", "--print-config"]) == 2
    assert capsys.readouterr().err.startswith("quaere: unknown setting solver.protocol")
