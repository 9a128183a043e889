"""A training run as a person sees it on the command line."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from builders import build_candidate, build_episode
from msgspec import structs

from quaere.cli.main import build_parser
from quaere.cli.run_view import render_state
from quaere.errors import BadInput
from quaere.recipes.score.harness import HarnessVersion, Statistics, Versions, default_harness
from quaere.runs import Run, RunState
from quaere.runs.checkpoints import save_checkpoint
from quaere.runs.rows import PHASES
from quaere.runs.summaries import CandidateCount, Change, PhaseSummary, count_candidates, summarise_phases


def call(*argv: str) -> None:
    args = build_parser("runs").parse_args(["runs", *argv])
    args.run(args)


HOSTILE = "\x1b[2J[bold]x[/bold] \u202eevil"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Two iterations of a proposer's steps, one of generation, and a solver's; a checkpoint and half of one."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("QUAERE_RUNS", str(tmp_path))
    plan = [(0, 0), (0, 0), (0, 1), (0, 2), (0, 2), (1, 0), (1, 1), (1, 2)]
    with Run.create(tmp_path / "evolve-1", "evolve", {"recipe": "drzero", "model": "tiny"}, config="seed: 1\n") as run:
        for step, (iteration, phase) in enumerate(plan, start=1):
            name = ("proposer", "generation", "solver")[phase]
            run.add_episode(build_episode(f"e{step}"), step=step, phase=name)
            metrics = {"run/iteration": iteration, "run/phase": phase, "step/seconds": 2.0}
            if phase != 1:
                metrics |= {"reward/mean": step / 10, "policy/entropy": 1 / step, "reward/format": 0.5}
            run.log_metrics(step, metrics)
        reasons = ("", "never solved", "", "always solved", "never solved")
        run.add_candidates([build_candidate(f"c{n}", 3, reason=reason) for n, reason in enumerate(reasons)])
        run.add_candidates([build_candidate("c9", 7, iteration=1, question=HOSTILE, num_attempts=0)])
        run.add_event(5, "entropy", "the solver's entropy is below 0.02 for 3 steps")
        run.note_end(RunState("stopped"))
    save_checkpoint(run.path / "checkpoints", 5, lambda folder: (folder / "weights").touch(), {})
    (run.path / "checkpoints" / "step-000008").mkdir()
    (run.path / "checkpoints" / "step-000008" / "manifest.json").write_bytes(b"half a manif")
    return run


def test_phases_are_cut_where_iteration_or_phase_changes(run: Run) -> None:
    with Run.open(run.path) as opened:
        phases = summarise_phases(opened)
        counts = count_candidates(opened)
    assert [(phase.iteration, phase.phase, phase.first_step, phase.last_step) for phase in phases] == [
        (0, "proposer", 1, 2),
        (0, "generation", 3, 3),
        (0, "solver", 4, 5),
        (1, "proposer", 6, 6),
        (1, "generation", 7, 7),
        (1, "solver", 8, 8),
    ]
    assert phases[0].metrics["reward/mean"] == Change(first=0.1, last=0.2)
    assert phases[1].metrics == {"step/seconds": Change(2.0, 2.0)}
    assert counts == [
        CandidateCount(iteration=0, num_kept=2, dropped={"never solved": 2, "always solved": 1}),
        CandidateCount(iteration=1, num_kept=1, dropped={}),
    ]


def test_metrics_without_phases_are_one_phase(tmp_path: Path) -> None:
    with Run.create(tmp_path / "r", "test") as run:
        assert summarise_phases(run) == []
        run.log_metrics(2, {"a": 1.0})
        run.log_metrics(5, {"a": 3.0, "b": 4.0})
        changes = {"a": Change(1.0, 3.0), "b": Change(4.0, 4.0)}
        assert summarise_phases(run) == [PhaseSummary(None, "", first_step=2, last_step=5, metrics=changes)]


def test_show_a_training_run(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    call("show", "evolve-1")
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[1:3] == ["  recipe: drzero", "  model: tiny"]
    assert lines[3:5] == ["  stopped after step 8", f"  go on with: quaere evolve --resume {run.path}"]
    assert [line.split() for line in lines[6:9]] == [
        ["phase", "steps", "reward/mean", "policy/entropy"],
        ["0", "proposer", "1-2", "0.100→0.200", "1.000→0.500"],
        ["0", "generation", "3"],
    ]
    assert lines[10].split() == ["1", "proposer", "6", "0.600", "0.167"]
    assert lines[14:] == [
        "iteration 0: 5 candidates, 2 kept; dropped: 2 never solved, 1 always solved",
        "iteration 1: 1 candidate, 1 kept",
        "",
        "step 5  entropy: the solver's entropy is below 0.02 for 3 steps",
        "",
        "checkpoints: step-000005",
        "8 episodes, 8 answered; 6 metrics",
        f"  quaere runs show {run.path} EPISODE",
        f"  quaere runs show {run.path} --episodes [STEP]",
        f"  quaere runs show {run.path} --metrics 'reward/*'",
        f"  quaere runs show {run.path} --candidates",
    ]


def test_show_what_a_solver_had_to_learn_from(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with Run.open(run.path, write=True) as opened:
        figures = {"informative": 12.0, "informative_share": 0.375, "per_minute": 60.0}
        asked = {"distinct": 32.0, "epochs": 0.5, "searches_needed": 2.0}
        opened.log_metrics(4, {f"groups/{name}": value for name, value in figures.items()})
        opened.log_metrics(5, {f"groups/{name}": 2 * value for name, value in figures.items()})
        opened.log_metrics(5, {f"questions/{name}": value for name, value in asked.items()})
        opened.log_metrics(4, {"solver/searches": 1.75})
        opened.log_metrics(5, {"solver/searches": 1.0})
        opened.log_metrics(8, {"groups/informative": 0.0})
    call("show", "evolve-1")
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert (
        "0 solver: informative groups 12.000→24.000 a step, 0.375→0.750 of all, 60.000→120.000 a minute; "
        "32 different questions, 0.50 epochs; searches 1.750→1.000 of 2.000→2.000 needed" in lines
    )
    assert "1 solver: informative groups 0.000 a step" in lines


def test_show_a_training_run_as_json(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    call("show", "evolve-1", "--json")
    shown = json.loads(capsys.readouterr().out)
    assert shown["run"]["settings"] == {"recipe": "drzero", "model": "tiny"}
    assert shown["phases"][2] == {
        "iteration": 0,
        "phase": "solver",
        "first_step": 4,
        "last_step": 5,
        "metrics": {
            "policy/entropy": {"first": 0.25, "last": 0.2},
            "reward/format": {"first": 0.5, "last": 0.5},
            "reward/mean": {"first": 0.4, "last": 0.5},
            "step/seconds": {"first": 2.0, "last": 2.0},
        },
    }
    assert shown["candidates"][0]["dropped"] == {"never solved": 2, "always solved": 1}
    assert shown["events"] == [
        {"step": 5, "kind": "entropy", "message": "the solver's entropy is below 0.02 for 3 steps"}
    ]
    assert shown["checkpoints"] == ["step-000005"]
    assert (shown["num_episodes"], shown["num_answered"], len(shown["metrics"])) == (8, 8, 6)


def test_the_phases_of_a_real_run_fit_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = ("reward/mean", "passes/mean", "policy/entropy", "mismatch/mean")
    with Run.create(tmp_path / "r", "evolve") as run:
        for step in (100, 149):
            run.log_metrics(step, {"run/iteration": 2, "run/phase": 1, **dict.fromkeys(names, 0.12345)})
        run.log_metrics(150, {"run/iteration": 2, "run/phase": 7, **dict.fromkeys(names, 2e-5)})
    call("show", str(tmp_path / "r"))
    lines = capsys.readouterr().out.splitlines()
    header, *rows = lines[lines.index("") + 1 :]
    assert header.split() == ["phase", "steps", *names]
    assert rows[0].split() == ["2", "generation", "100-149", *["0.123→0.123"] * 4]
    assert rows[1].split() == ["2", "phase", "7", "150", *["2e-05"] * 4]  # a phase nobody has named yet


def test_the_main_figures_of_report_runs_have_a_line_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Run.create(tmp_path / "r", "evolve") as run:
        phase = {"run/iteration": 0.0, "run/phase": float(PHASES.index("reports"))}
        run.log_metrics(1, phase | {"reward/mean": 0.5})
    call("show", str(tmp_path / "r"))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["reports,", "step", "1", "metric"] in lines and ["reward", "0.500", "reward/mean"] in lines
    with Run.open(run.path, write=True) as opened:
        opened.log_metrics(3, phase | {"reward/mean": -0.25})
    call("show", str(tmp_path / "r"))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["reports,", "steps", "1", "to", "3", "metric"] in lines
    assert ["reward", "0.500→-0.250", "reward/mean"] in lines


def test_only_a_run_that_failed_is_red() -> None:
    states = RunState("failed"), RunState("done"), RunState("stopped")
    assert [render_state(state)[0].style for state in states] == ["red", "green", "green"]


def test_a_run_that_has_only_begun_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    Run.create(tmp_path / "r", "evolve").close()
    call("show", str(tmp_path / "r"))
    text = capsys.readouterr().out
    assert "checkpoints: none\n0 episodes, 0 answered; 0 metrics\n" in text
    assert f"quaere runs show {tmp_path / 'r'} EPISODE" in text


def test_many_events_show_the_newest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Run.create(tmp_path / "r", "evolve") as run:
        for step in range(1, 24):
            run.add_event(step, "entropy", "low")
    call("show", str(tmp_path / "r"))
    text = capsys.readouterr().out
    assert "3 earlier events (--json shows all)" in text
    assert "step 3  entropy" not in text
    assert text.count("entropy: low") == 20


def test_one_event_too_many_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Run.create(tmp_path / "r", "evolve") as run:
        for step in range(1, 22):
            run.add_event(step, "entropy", "low")
    call("show", str(tmp_path / "r"))
    assert "1 earlier event (--json shows all)" in capsys.readouterr().out


def test_metrics_by_name_and_pattern(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    call("show", "evolve-1", "--metrics", "reward/mean")
    assert capsys.readouterr().out.splitlines()[:2] == ["reward/mean\t1\t0.1", "reward/mean\t2\t0.2"]
    call("show", "evolve-1", "--metrics", "reward/*", "reward/mean", "policy/entropy")
    names = [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()]
    assert list(dict.fromkeys(names)) == ["reward/format", "reward/mean", "policy/entropy"]
    assert len(names) == 3 * 6
    with Run.open(run.path, write=True) as opened:
        opened.log_metrics(9, {"odd": math.nan})
    call("show", "evolve-1", "--metrics", "odd", "reward/mea?", "--json")
    shown = json.loads(capsys.readouterr().out)
    assert shown["odd"] == [{"step": 9, "value": None}]
    assert shown["reward/mean"][-1] == {"step": 8, "value": 0.8}
    with pytest.raises(BadInput, match="run evolve-1 has no metric reward/maen") as caught:
        call("show", "evolve-1", "--metrics", "reward/maen")
    assert caught.value.hint == f"did you mean reward/mean? see: quaere runs show {run.path} --metrics '*'"


def test_candidates(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    call("show", "evolve-1", "--candidates")
    text = capsys.readouterr().out
    assert not set(text) & set("\x1b\u202e")
    lines = [line.rstrip() for line in text.splitlines()]
    assert lines[0].split() == ["episode", "question", "answer", "hops", "searches", "right", "dropped"]
    assert lines[2].startswith("c1") and lines[2].endswith("2         1    2/5  never solved")
    assert lines[6].startswith("c9       ␛[2J[bold]x[/bold]")
    assert lines[-1] == "6 candidates, 3 kept"
    call("show", "evolve-1", "--candidates", "--json")
    shown = json.loads(capsys.readouterr().out)
    assert len(shown) == 6
    assert (shown[1]["id"], shown[1]["reason"], shown[1]["scores"]) == ("c1", "never solved", {"format": 1.0})


def test_episodes_of_a_training_run(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    call("show", "evolve-1", "--episodes")
    text = capsys.readouterr().out
    assert f"8 episodes, 8 answered; quaere runs show {run.path} EPISODE" in text
    call("show", "evolve-1", "--episodes", "4", "--json")
    (row,) = json.loads(capsys.readouterr().out)["episodes"]
    assert (row["id"], row["step"], row["phase"]) == ("e4", 4, "solver")
    call("show", "evolve-1", "e4")
    assert "Answer: Orsolya Venn" in capsys.readouterr().out


def test_what_contradicts_itself_is_refused(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadInput, match="leave EPISODE out"):
        call("show", "evolve-1", "e1", "--candidates")
    with pytest.raises(SystemExit):
        call("show", "evolve-1", "--candidates", "--episodes")
    assert "not allowed with" in capsys.readouterr().err


def test_what_a_harness_changed_to_and_why(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    first = default_harness()
    stricter = structs.replace(first, version=1, dimensions=structs.replace(first.dimensions, k=5))
    versions = Versions(run.path)
    versions.append(HarnessVersion(0, first, why="default"))
    versions.append(HarnessVersion(2, first, Statistics(step=2), why="calm"))
    versions.append(HarnessVersion(4, stricter, Statistics(step=4), why="saturated"))
    versions.append(HarnessVersion(6, stricter, Statistics(step=6), fault=f"no JSON: {HOSTILE}"))
    call("show", "evolve-1")
    out = capsys.readouterr().out
    lines = [line.rstrip() for line in out.splitlines()]
    start = lines.index(
        "harness 0 from the start: k 4 of 10, must_include factuality, weights 0.1 to 0.5, min_tool_calls 1"
    )
    assert lines[start + 1] == "step 4  harness 1, saturated: k 4 → 5"  # a look that changed nothing is only counted
    assert lines[start + 2].startswith("step 6  the harness stays as it is: no JSON: ␛[2J[bold]x[/bold]")
    assert lines[start + 3].startswith("looked at 3 times")
    assert "\x1b" not in out
