"""TensorBoard, W&B and Trackio really written, and a clear word where they are not installed."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from quaere.errors import BadInput, ExtraMissing, install_hint
from quaere.runs import Run
from quaere.training import progress as writers
from quaere.training.progress import StepReport, TensorBoardReporter, TrackioReporter, WandbReporter, open_writers


def report(step: int, reward: float, *alarms: str) -> StepReport:
    return StepReport(
        step=step,
        num_steps=9,
        iteration=0,
        phase="proposer",
        phase_step=step,
        num_phase_steps=9,
        metrics={"reward/mean": reward, "loss/policy": math.nan},
        alarms=alarms,
    )


def read_events(folder: Path) -> Any:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    return events


def scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in read_events(folder).Scalars(name)]


def texts(folder: Path, name: str) -> list[tuple[int, str]]:
    found = read_events(folder).Tensors(f"{name}/text_summary")
    return [(event.step, event.tensor_proto.string_val[0].decode()) for event in found]


# ------------------------------------------------------------------------------------------------------- TensorBoard


def test_tensorboard_shows_what_was_told(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (writer,) = open_writers(["tensorboard", "tensorboard"], tmp_path)
    writer.note("the proposer begins")
    writer.step(report(1, 0.25))
    folder = tmp_path / "tensorboard"
    assert scalars(folder, "reward/mean") == [(1, 0.25)]  # at once, not when it is closed
    writer.step(report(2, 0.5, "the entropy is low"))
    writer.note("done")
    writer.close()
    assert scalars(folder, "reward/mean") == [(1, 0.25), (2, 0.5)]
    assert all(math.isnan(value) for _, value in scalars(folder, "loss/policy"))
    assert texts(folder, "alarms") == [(2, "the entropy is low")]
    assert texts(folder, "notes") == [(1, "the proposer begins"), (2, "done")]


def test_tensorboard_forgets_the_steps_that_are_taken_again(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    writer = TensorBoardReporter(tmp_path)
    for step in (1, 2, 3):
        writer.step(report(step, 0.25))
    writer.step(report(2, 0.75))  # rolled back
    writer.close()
    assert scalars(tmp_path, "reward/mean") == [(1, 0.25), (2, 0.75)]


def test_a_writer_that_was_told_nothing_writes_nothing(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    writer = TensorBoardReporter(tmp_path / "tensorboard")
    writer.close()
    assert not (tmp_path / "tensorboard").exists()


# --------------------------------------------------------------------------------------------------------------- W&B


def test_wandb_writes_beside_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    Run.create(tmp_path / "evolve-1", "evolve", {"model": "tiny"}).close()
    (writer,) = open_writers(["wandb"], tmp_path / "evolve-1")
    assert isinstance(writer, WandbReporter)
    writer.note("the proposer begins")
    for step in (1, 2, 1):
        writer.step(report(step, 0.5, "the entropy is low"))
    writer.close()
    (written,) = (tmp_path / "evolve-1" / "wandb").glob("offline-run-*/*.wandb")
    content = written.read_bytes()
    assert b"reward/mean" in content
    assert b"tiny" in content


def test_wandb_draws_curves_over_the_step_that_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own counter only goes up, and a run that is rolled back takes a step again."""
    told: list[Any] = []
    run = SimpleNamespace(
        define_metric=lambda name, **options: told.append((name, options)),
        log=lambda metrics: told.append((metrics["run/step"], metrics["reward/mean"])),
        alert=lambda title, text: told.append((title, text)),
    )
    fake = SimpleNamespace(init=lambda **options: told.append(options) or run, Settings=lambda **options: options)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setenv("WANDB_MODE", "offline")
    writer = WandbReporter("quaere", "evolve-1", {"model": "tiny"}, folder=tmp_path)
    writer.step(report(2, 0.25))
    writer.step(report(1, 0.5, "the entropy is low"))
    opened, *rest = told
    assert (opened["name"], opened["group"], opened["dir"]) == ("evolve-1", "evolve-1", str(tmp_path))
    assert (opened["config"], opened["mode"]) == ({"model": "tiny"}, "offline")
    assert rest == [("*", {"step_metric": "run/step"}), (2, 0.25), (1, 0.5), ("step 1", "the entropy is low")]


def test_nothing_is_sent_unless_the_user_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert writers._wandb_mode() == "offline"
    (tmp_path / "netrc").write_text("machine other.example login user password secret\n")
    assert writers._wandb_mode() == "offline"
    monkeypatch.setenv("WANDB_BASE_URL", "https://other.example")
    assert writers._wandb_mode() == "online"
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert writers._wandb_mode() == "disabled"
    monkeypatch.delenv("WANDB_MODE")
    (tmp_path / "netrc").write_text("nonsense\n")
    assert writers._wandb_mode() == "offline"
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    assert writers._wandb_mode() == "online"


# ----------------------------------------------------------------------------------------------------------- Trackio


class FakeTrackio(SimpleNamespace):
    """Keeps what it is told, and talks as the real one does."""

    def __init__(self) -> None:
        super().__init__(opened=[], logged=[], alerts=[], num_finished=0)

    def init(self, **options: Any) -> Any:
        print("* Trackio project initialized")
        self.opened.append(options)
        return self

    def log(self, metrics: dict[str, float], step: int) -> None:
        self.logged.append((step, metrics["reward/mean"]))

    def alert(self, title: str, text: str) -> None:
        print(title)
        self.alerts.append((title, text))

    def finish(self) -> None:
        print("* Run finished")
        self.num_finished += 1


def test_trackio_is_told_and_stdout_is_left_to_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = FakeTrackio()
    monkeypatch.setitem(sys.modules, "trackio", fake)
    with Run.create(tmp_path / "evolve-1", "evolve", {"model": "tiny"}) as run:
        (writer,) = open_writers(["trackio"], tmp_path / "evolve-1")
        run.log_metrics(1, {"reward/mean": 0.25})
    writer.note("the proposer begins")
    writer.step(report(1, 0.25, "the entropy is low"))
    writer.close()
    (again,) = open_writers(["trackio"], tmp_path / "evolve-1")
    again.close()
    assert [(one["name"], one["resume"], one["config"]) for one in fake.opened] == [
        ("evolve-1", "never", {"model": "tiny"}),
        ("evolve-1", "allow", {"model": "tiny"}),
    ]
    assert (fake.logged, fake.alerts, fake.num_finished) == ([(1, 0.25)], [("step 1", "the entropy is low")], 2)
    # In a notebook no page is shown, and no figures of the machine are logged beside the run's.
    assert not any(one[name] for one in fake.opened for name in ("embed", "auto_log_gpu", "auto_log_cpu"))
    assert capsys.readouterr().out == ""


def test_a_run_that_goes_on_is_one_run_of_trackio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # read as it is imported
    pytest.importorskip("trackio")
    from trackio.sqlite_storage import SQLiteStorage

    for goes_on, steps in ((False, (1, 2)), (True, (3,))):
        writer = TrackioReporter("quaere", "evolve-1", {"model": "tiny"}, goes_on=goes_on)
        for step in steps:
            writer.step(report(step, step / 4))
        writer.close()
    (record,) = SQLiteStorage.get_run_records("quaere")
    logs = SQLiteStorage.get_logs("quaere", "evolve-1", run_id=record["id"])
    assert [(log["step"], log["reward/mean"]) for log in logs] == [(1, 0.25), (2, 0.5), (3, 0.75)]


# ------------------------------------------------------------------------------------------------- what is not there


@pytest.mark.parametrize(
    ("name", "module"), [("tensorboard", "torch.utils.tensorboard"), ("wandb", "wandb"), ("trackio", "trackio")]
)
def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str
) -> None:
    Run.create(tmp_path / "r", "evolve").close()
    monkeypatch.setitem(sys.modules, module, None)  # importing it now fails
    with pytest.raises(ExtraMissing, match=f"needs {name}") as caught:
        open_writers([name], tmp_path / "r")
    assert caught.value.hint == install_hint(name)


def test_an_unknown_writer_is_refused_before_any_is_opened(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="unknown writer mlflow; the writers are tensorboard, wandb and trackio"):
        open_writers(["wandb", "mlflow"], tmp_path)
    assert open_writers([], tmp_path) == []


def test_no_writer_is_opened_when_one_of_them_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    monkeypatch.setattr(writers, "TensorBoardReporter", opened.append)
    monkeypatch.setitem(sys.modules, "wandb", None)
    Run.create(tmp_path / "r", "evolve").close()
    with pytest.raises(ExtraMissing):
        open_writers(["tensorboard", "wandb"], tmp_path / "r")
    assert not opened
