"""`quaere runs delete`: what goes, what stays, and what is refused."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest
from builders import build_episode

from quaere.cli.main import main
from quaere.errors import BadInput
from quaere.runs import Run
from quaere.runs.checkpoints import find_checkpoints, save_checkpoint
from quaere.runs.summaries import delete_folders

BEST = {"role": "solver", "exact_match": 0.5, "num_questions": 64}


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QUAERE_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def make_run(path: Path) -> Path:
    with Run.create(path, "evolve") as run:
        run.add_episode(build_episode())
    Run.open(path).close()  # SQLite keeps a file beside the database for those who only read
    return path


def make_checkpoints(path: Path, num: int = 4) -> Path:
    """Checkpoints with a linked base: the last calls the second the best, those before it the first."""
    folder = path / "checkpoints"
    for step in range(1, num + 1):

        def write(target: Path, step: int = step) -> None:
            (target / "weights").write_bytes(b"x" * 1000 * step)
            if step == 1:
                (target / "base").write_bytes(b"b" * 5000)
            else:
                os.link(folder / "step-000001" / "base", target / "base")

        save_checkpoint(folder, step, write, {"best": {**BEST, "step": 2 if step == num else 1}})
    return folder


def typed(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """A person at a terminal."""
    stdin = io.StringIO(answer)
    monkeypatch.setattr(stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", stdin)


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_runs_are_deleted_and_their_size_is_said(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third = (make_run(root / name) for name in ("a", "b", "c"))
    sizes = [size(path) for path in (first, second)]
    assert main(["runs", "delete", "a", str(second), "a", "--yes"]) == 0
    assert [path.exists() for path in (first, second, third)] == [False, False, True]
    assert os.listdir(root) == ["c"]  # nothing hidden is left either
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"a: deleted, {sizes[0] / 1e6:.2f} MB freed" and said[2].endswith("freed in all")
    size_of_third = size(third)
    assert main(["runs", "delete", "c", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "deleted": [{"path": str(third), "num_bytes": size_of_third}],
        "num_bytes": size_of_third,
    }


@pytest.mark.parametrize(
    ("answer", "stays"), [("y\n", False), ("YES\n", False), ("n\n", True), ("\n", True), ("", True)]
)
def test_a_terminal_is_asked(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str, stays: bool
) -> None:
    path = make_run(root / "a")
    typed(monkeypatch, answer)
    assert main(["runs", "delete", "a"]) == 0
    said = capsys.readouterr()
    assert str(path) in said.err and "delete this for good? [y/N]" in said.err
    assert path.exists() == stays == ("nothing was deleted" in said.err)


def test_nothing_is_deleted_where_nobody_can_be_asked(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_run(root / "a")
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert main(["runs", "delete", "a"]) == 2
    assert "--yes" in capsys.readouterr().err and path.exists()


# ------------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize("options", [[], ["--checkpoints"]])
def test_a_running_run_is_refused_and_none_of_the_others_deleted(
    root: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    idle = make_run(root / "a")
    make_checkpoints(idle)
    before = size(root)
    with Run.create(root / "b", "evolve"):
        assert main(["runs", "delete", "a", "b", "--yes", *options]) == 2
    assert "run b is running" in capsys.readouterr().err
    assert len(find_checkpoints(idle / "checkpoints")) == 4 and size(root) >= before


def test_what_is_no_run_is_refused(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    assert main(["runs", "delete", str(tmp_path / "precious"), "--yes"]) == 2
    (tmp_path / "precious" / "run.db").write_text("no database")
    assert main(["runs", "delete", str(tmp_path / "precious"), "--yes"]) == 2
    (tmp_path / "precious" / "run.db").unlink()
    (tmp_path / "precious" / "run.db").symlink_to(make_run(root / "a") / "run.db")
    assert main(["runs", "delete", str(tmp_path / "precious"), "--yes"]) == 2
    assert "is a link" in capsys.readouterr().err
    outer = make_run(tmp_path / "outer")
    make_run(outer / "inner")
    assert main(["runs", "delete", str(outer), "--yes"]) == 2
    assert "holds other runs (inner)" in capsys.readouterr().err
    assert (tmp_path / "precious" / "file").exists() and (root / "a").exists() and (outer / "inner").exists()


def test_what_cannot_be_deleted_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(root / "a")
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    with pytest.raises(BadInput, match=r"not everything in .*/a could be deleted: the rest lies in "):
        delete_folders([root / "a"])
    assert not (root / "a").exists()  # nothing that looks like a run, but is not whole, stays under its name


def test_no_link_is_followed(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, elsewhere = make_run(root / "a"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_bytes(b"x" * 10**6)
    (root / "link").symlink_to(path)
    assert main(["runs", "delete", "link", "--yes"]) == 2
    assert "is a link" in capsys.readouterr().err and path.exists()
    (path / "notes").symlink_to(elsewhere)
    (path / "episodes" / "file").symlink_to(elsewhere / "file")
    assert main(["runs", "delete", "a", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_bytes"] < 10**6
    assert (elsewhere / "file").exists() and not path.exists()


# -------------------------------------------------------------------------------------------------------- checkpoints


def test_the_best_and_the_last_checkpoint_stay(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_run(root / "a")
    folder = make_checkpoints(path)
    (folder / "step-000003").rename(folder / "step-000003.damaged")
    gone = [folder / "step-000001", folder / "step-000003.damaged"]
    freed = sum((one / name).stat().st_size for one in gone for name in ("weights", "manifest.json"))
    assert main(["runs", "delete", "a", "--checkpoints", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_bytes"] == freed  # the base is still linked from those that stay
    assert sorted(os.listdir(folder)) == ["step-000002", "step-000004"]
    assert (folder / "step-000004" / "base").stat().st_size == 5000
    assert Run.open(path).count_episodes() == (1, 1)


def test_no_checkpoint_is_deleted_for_a_damaged_one(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_checkpoints(make_run(root / "a"))
    (folder / "step-000004" / "weights").write_bytes(b"y" * 4000)
    assert main(["runs", "delete", "a", "--checkpoints", "--yes"]) == 2
    assert "step-000004 is damaged" in capsys.readouterr().err
    assert len(os.listdir(folder)) == 4


def test_checkpoints_behind_a_link_are_left_alone(root: Path, tmp_path: Path) -> None:
    path = make_run(root / "a")
    make_checkpoints(path).rename(tmp_path / "kept")
    (path / "checkpoints").symlink_to(tmp_path / "kept")
    assert main(["runs", "delete", "a", "--checkpoints", "--yes"]) == 2
    assert len(os.listdir(tmp_path / "kept")) == 4


def test_a_run_without_checkpoints_has_none_to_spare(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(root / "a")
    assert main(["runs", "delete", "a", "--checkpoints", "--yes"]) == 0
    assert capsys.readouterr().out == "a: checkpoints deleted, 0.00 MB freed\n"
