"""`quaere evolve` as a person meets it: start, watch, stop, go on, look, export."""

import json
import shlex
import shutil
import signal
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from msgspec import structs

import tiny
import village_runs
from dictating import dictating
from quaere.cli import terminal
from quaere.cli.main import build_parser, main
from quaere.errors import TrainingStopped
from quaere.recipes.registry import find_recipe
from quaere.runs import Run
from quaere.runs.checkpoints import find_checkpoints
from quaere.training import progress as writers
from quaere.training import run_setup as opening
from quaere.training.actors import Actors
from quaere.training.estimate import estimate_run
from quaere.training.progress import StepReport
from quaere.training.training_run import TrainingRun
from village_runs import SMALL


@pytest.fixture(scope="module")
def place(village_paths, tmp_path_factory):
    root = tmp_path_factory.mktemp("evolve")
    index, model = village_paths
    lines = [f"{key}: {json.dumps(value)}" for key, value in SMALL.items()]
    (root / "small.yaml").write_text("\n".join(lines), encoding="utf-8")
    return root, ["--index", str(index), "--model", str(model), "--config", str(root / "small.yaml")]


def evolve(*args):
    return main(["evolve", *map(str, args)])


@pytest.fixture(scope="module")
def told(place):
    """What a run says to programs; others look at the run itself."""
    root, args = place
    with redirect_stdout(StringIO()) as said:
        assert evolve("drzero", *args, "--out", root / "run", "--json") == 0
    return said.getvalue()


@pytest.fixture(scope="module")
def run_path(place, told):
    return place[0] / "run"


def test_the_village_can_be_written_with_its_settings(village_paths, tmp_path, monkeypatch, capsys):
    """As docs/curriculum.md has it; the model is that of the other tests."""
    monkeypatch.setattr(village_runs, "build", lambda folder: village_paths)
    village_runs.write_village(tmp_path / "village")
    assert evolve("drzero", "--config", tmp_path / "village" / "village.yaml", "--dry-run") == 0
    assert "16 candidates" in capsys.readouterr().out


def test_it_tells_every_step_as_json(told):
    lines = [json.loads(line) for line in told.splitlines()]
    steps = [line for line in lines if line["event"] == "step"]
    assert [line["phase"] for line in steps] == ["proposer"] * 2 + ["generation"] * 2 + ["solver"] * 2
    assert steps[0]["metrics"]["reward/mean"] >= 0


def test_a_run_can_be_seen_asked_and_exported(place, run_path, capsys, tmp_path):
    assert main(["runs", "show", str(run_path)]) == 0
    assert "candidates" in capsys.readouterr().out
    assert main(["curriculum", str(run_path), "quality", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num"] == len(Run.open(run_path).candidates(kept=True))
    out = tmp_path / "solver"
    assert main(["export", str(run_path), "--role", "solver", "--merge", "--out", str(out)]) == 0
    asked = ["ask", "Who built Halm?", "--model", str(out), "--index", place[1][1], "--runs", str(tmp_path)]
    assert main([*asked, "--max-turns", "2", "--turn-tokens", "16"]) in (0, 3)  # it may find no answer


def test_going_on_with_a_finished_run_changes_nothing(run_path, capsys):
    before = Run.open(run_path).count_episodes()
    assert evolve("--resume", run_path) == 0
    assert Run.open(run_path).count_episodes() == before
    assert "going on after step 6 of 6" in capsys.readouterr().err


def test_a_run_that_is_there_is_resumed_and_not_begun_again(place, run_path, capsys):
    before = contents(run_path)
    assert evolve("drzero", *place[1], "--out", run_path) == 2
    said, hint = capsys.readouterr().err.splitlines()[-2:]
    assert said == f"quaere: {run_path} is a run already"
    assert hint == f"  try: quaere evolve --resume {run_path}, or choose another --out"
    assert contents(run_path) == before


def test_a_changed_config_is_refused_unless_forced(run_path, tmp_path, capsys):
    run_path = shutil.copytree(run_path, tmp_path / "run")  # other tests go on with the run as it was
    assert evolve("--resume", run_path, "--set", "solver.steps=3") == 2
    assert "solver.steps: 2 -> 3" in capsys.readouterr().err
    assert evolve("--resume", run_path, "--set", "solver.steps=3", "--force") == 0
    assert "solver 3/3" in capsys.readouterr().err
    assert "steps: 3" in (run_path / "config.yaml").read_text(encoding="utf-8")


def contents(folder):
    """All files but those that SQLite makes for a reader."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("run.db-"))
    return {path: path.read_bytes() for path in files}


def test_a_stopped_run_can_be_looked_at_and_changes_nothing(run_path, capsys):
    changed = ["--resume", run_path, "--set", "solver.steps=3", "--force"]
    before = contents(run_path)
    assert evolve(*changed, "--print-config") == 0
    assert "\n  steps: 3\n" in capsys.readouterr().out
    assert evolve(*changed, "--dry-run", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["goes on"] == "after step 6" and said["solver phase"].startswith("3 steps of 4 questions")
    assert evolve(*changed[:-1], "--dry-run") == 2
    assert "the config has changed: solver.steps: 2 -> 3" in capsys.readouterr().err
    assert contents(run_path) == before


def test_fewer_steps_than_are_taken_are_said_to_be_enough(run_path, tmp_path, capsys):
    run_path = shutil.copytree(run_path, tmp_path / "run")
    assert evolve("--resume", run_path, "--set", "solver.steps=1", "--force") == 0
    said = capsys.readouterr().err
    assert "6 steps are taken, and the settings ask for 5: none is left to take" in said
    assert "going on" not in said and Run.open(run_path).last_step() == 6


def test_weights_of_another_model_are_one_clear_line(run_path, tmp_path, capsys):
    run_path = shutil.copytree(run_path, tmp_path / "run")
    wide = tmp_path / "wide"
    tiny.model(hidden_size=96).save_pretrained(wide)
    tiny.tokenizer().save_pretrained(wide)
    assert evolve("--resume", run_path, "--model", wide, "--force") == 2
    error = capsys.readouterr().err
    assert "belongs to another model" in error and "--model M --force" in error and "Traceback" not in error


def test_a_run_keeps_the_questions_it_was_given(place, tmp_path, capsys):
    mine = tmp_path / "mine.jsonl"
    mine.write_text('{"question": "Who built Halm?", "answers": ["Venn", "O. Venn"], "hops": 1}\n')
    alone = [f"generation.given={mine}", "proposer.steps=0", "generation.attempts=0", "solver.steps=1"]
    given = [word for value in alone for word in ("--set", value)]
    assert evolve("drzero", *place[1], *given, "--dry-run") == 0
    assert "1 join the first iteration's curriculum" in capsys.readouterr().out
    assert evolve("drzero", *place[1], *given, "--out", tmp_path / "run") == 0
    mine.unlink()
    assert evolve("--resume", tmp_path / "run", "--dry-run") == 0
    assert "1 join the first iteration's curriculum" in capsys.readouterr().out
    assert evolve("--resume", tmp_path / "run") == 0
    capsys.readouterr()
    assert main(["curriculum", str(tmp_path / "run"), "show", "given-q1"]) == 0
    shown = capsys.readouterr().out
    assert "answer: Venn or O. Venn" in shown and "the run: kept it" in shown and "quaere runs show" not in shown
    assert main(["curriculum", str(tmp_path / "run"), "--min", "given=1"]) == 0
    assert "Who built Halm?" in capsys.readouterr().out
    assert evolve("--resume", tmp_path / "run", "--set", "generation.given=other.jsonl", "--force") == 2
    assert "generation.given of a run cannot be changed" in capsys.readouterr().err
    assert evolve("drzero", *place[1], "--questions", "x.jsonl", "--out", tmp_path / "new") == 2
    assert "generation.given=FILE" in capsys.readouterr().err


def test_print_config_gives_a_file_that_can_be_used(place, tmp_path, capsys):
    assert evolve("drzero", *place[1], "--set", "seed=5", "--print-config") == 0
    (tmp_path / "all.yaml").write_text(capsys.readouterr().out, encoding="utf-8")
    assert evolve("drzero", "--config", tmp_path / "all.yaml", "--print-config") == 0
    assert capsys.readouterr().out == (tmp_path / "all.yaml").read_text(encoding="utf-8")


def test_a_dry_run_knows_the_time_of_a_step_from_an_earlier_run(place, run_path, tmp_path, capsys):
    def time_said(*args):
        assert evolve("drzero", *place[1], "--dry-run", "--json", *args) == 0
        return json.loads(capsys.readouterr().out)["time"]

    with Run.open(run_path) as run:
        seconds = sorted(metric.value for metric in run.metrics("step/seconds"))
    known = time_said("--runs", run_path.parent)
    assert f" a step, by the {len(seconds)} steps of {run_path} (same recipe and model" in known
    assert seconds[0] - 0.1 <= float(known.split(" s a step")[0]) <= seconds[-1] + 0.1
    assert time_said("--runs", tmp_path).startswith("not known before the first step")
    shutil.copytree(place[1][3], tmp_path / "other")
    other = time_said("--runs", run_path.parent, "--model", tmp_path / "other")
    assert other.startswith("not known before the first step")


@pytest.mark.parametrize("preset", ["paper", "single-gpu", "demo"])
def test_a_dry_run_says_what_would_run_and_leaves_nothing(place, tmp_path, capsys, preset):
    args = [*place[1][:4], "--preset", preset, "--runs", tmp_path]
    assert evolve("drzero", *args, "--dry-run") == 0
    said = capsys.readouterr().out
    assert "memory" in said and "episodes a document" in said
    if preset == "paper":
        assert "50 steps of 256 documents; a step plays 256 + 1280 episodes" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["drzero"], "no model is given"),
        (["drzero", "--model", "./nowhere"], "no index is given"),
        (["drzero", "--set", "proposer.stepz=3"], "proposer.steps"),
        (["drzero", "--set", "proposer.steps=many"], "whole number"),
        (["drzero", "--preset", "papr"], "paper"),
        (["drzero", "--config", "nowhere.yaml"], "nowhere.yaml"),
        (["--resume", "nowhere"], "no run nowhere"),
        ([], "name a recipe"),
    ],
)
def test_bad_input_is_one_clear_line(args, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert evolve(*args) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith("quaere: ") and error.count("\n") <= 2
    assert not list(tmp_path.iterdir())


def test_a_model_that_is_not_there_leaves_no_run_behind(place, tmp_path, capsys):
    assert evolve("drzero", "--index", place[1][1], "--model", "./nowhere", "--out", tmp_path / "run") == 2
    assert "no model directory" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_model_is_prompted_as_it_was_taught_and_other_prompts_are_refused(place, tmp_path, capsys):
    shutil.copytree(place[1][3], tmp_path / "warm")
    (tmp_path / "warm" / "warmup.json").write_text('{"style": "full"}', encoding="utf-8")
    args = ["--index", place[1][1], "--model", tmp_path / "warm", "--config", place[1][5], "--out", tmp_path / "run"]
    assert 'prompts: "brief"' in Path(place[1][5]).read_text()
    assert evolve("drzero", *args, "--print-config") == 0
    assert "\nprompts: full\n" in capsys.readouterr().out
    assert evolve("drzero", *args, "--set", "prompts=brief") == 2
    assert "--set prompts=full" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


# ------------------------------------------------------------------------------------- what surrounds the training


def training(monkeypatch, train):
    """Runs of drzero are trained by this instead; all around it is as ever."""
    recipe = structs.replace(find_recipe("drzero"), train=train)
    for place in ("quaere.cli.evolve", "quaere.api.evolution"):
        monkeypatch.setattr(f"{place}.find_recipe", lambda name: recipe)


async def one_step(config, store, reporter):
    """A step in which something was learned."""
    metrics = {"gradient/norm": 1.0, "reward/mean": 0.5}
    store.log_metrics(1, metrics)
    reporter.step(StepReport(1, 1, 0, "solver", 1, 1, metrics))


class Window:
    """A writer that says what it is told."""

    def __init__(self, folder):
        self.folder = folder

    def step(self, report):
        print(f"written to {self.folder.name}: {report.step}")

    def note(self, line):
        pass

    def progress(self, progress):
        pass

    def close(self):
        pass


def test_a_resumed_run_writes_to_where_it_wrote(place, tmp_path, monkeypatch, capsys):
    training(monkeypatch, one_step)
    monkeypatch.setattr(writers, "TensorBoardReporter", Window)
    monkeypatch.setattr(writers, "_import_writer", lambda name: None)
    assert evolve("drzero", *place[1], "--out", tmp_path / "run", "--writer", "tensorboard") == 0
    assert capsys.readouterr().out == "written to tensorboard: 1\n"
    assert evolve("--resume", tmp_path / "run") == 0
    assert capsys.readouterr().out == "written to tensorboard: 1\n"
    assert evolve("--resume", tmp_path / "run", "--writer", "tensorboard") == 0
    assert capsys.readouterr().out == "written to tensorboard: 1\n"  # named twice, written once


def test_a_writer_that_is_added_on_the_way_is_remembered_too(place, tmp_path, monkeypatch, capsys):
    training(monkeypatch, one_step)
    monkeypatch.setattr(writers, "TensorBoardReporter", Window)
    monkeypatch.setattr(
        writers, "TrackioReporter", lambda project, name, settings, goes_on: Window(tmp_path / "trackio")
    )
    monkeypatch.setattr(writers, "_import_writer", lambda name: None)
    assert evolve("drzero", *place[1], "--out", tmp_path / "run", "--writer", "tensorboard") == 0
    assert evolve("--resume", tmp_path / "run", "--writer", "trackio") == 0
    capsys.readouterr()
    assert evolve("--resume", tmp_path / "run") == 0
    assert capsys.readouterr().out == "written to tensorboard: 1\nwritten to trackio: 1\n"
    assert Run.open(tmp_path / "run").info.settings["writers"] == ["tensorboard", "trackio"]


def test_a_run_goes_on_where_its_writer_is_not_installed(place, tmp_path, monkeypatch, capsys):
    training(monkeypatch, one_step)
    with monkeypatch.context() as installed:
        installed.setattr(writers, "TensorBoardReporter", Window)
        installed.setattr(writers, "_import_writer", lambda name: None)
        assert evolve("drzero", *place[1], "--out", tmp_path / "run", "--writer", "tensorboard") == 0
    monkeypatch.setitem(writers._MODULES, "tensorboard", "quaere.nowhere")
    capsys.readouterr()
    assert evolve("--resume", tmp_path / "run") == 0
    assert "nothing is written to tensorboard" in capsys.readouterr().err


def test_a_dry_run_checks_the_writer(place, monkeypatch, capsys):
    monkeypatch.setitem(writers._MODULES, "tensorboard", "quaere.nowhere")
    assert evolve("drzero", *place[1], "--writer", "tensorboard", "--dry-run") == 2
    assert "writing to TensorBoard needs tensorboard" in capsys.readouterr().err


def test_a_dry_run_counts_the_batch_that_is_learned_from(place, monkeypatch):
    counted = []

    def estimate(model, *, num_samples, **rest):
        counted.append(num_samples)
        return estimate_run(model, num_samples=num_samples, **rest)

    monkeypatch.setattr(opening, "estimate_run", estimate)
    assert evolve("drzero", *place[1], "--set", "proposer.questions=2", "--dry-run") == 0
    assert counted == [8 * 2, 4 * 3]  # documents by questions, questions by attempts


def test_another_recipe_does_not_go_on_with_a_run(run_path, capsys):
    assert evolve("eve", "--resume", run_path) == 2
    said = capsys.readouterr().err
    assert f"{run_path} is a run of drzero, not of eve" in said and said.count("\n") == 2
    assert evolve("drzero", "--resume", run_path) == 0


# ------------------------------------------------------------------------------------------------ how a run ends


def test_a_model_that_cannot_follow_the_protocol_is_told_to_be_taught(place, tmp_path, capsys):
    few = ["--set", "proposer.steps=3", "--set", "proposer.batch=2", "--set", "generation.candidates=2"]
    with dictating(lambda job: ["I would rather not."] * 9):
        assert evolve("drzero", *place[1], *few, "--out", tmp_path / "run") == 2
    model, said = place[1][3], capsys.readouterr().err
    assert f"no episode of the first 3 steps wrote a valid question: {model} may need `quaere warmup drzero" in said
    assert f"nothing was learned: no question was kept, because {model} never followed the protocol" in said
    assert f"try: quaere warmup drzero --model {model} --out DIR, then quaere evolve drzero" in said
    assert "done; look" not in said
    assert main(["runs", "show", str(tmp_path / "run")]) == 0
    assert "failed after step 4: nothing was learned" in capsys.readouterr().out.replace("\n", " ")


def test_a_model_that_was_warmed_up_is_not_told_to_be_warmed_up(place, tmp_path, capsys):
    shutil.copytree(place[1][3], tmp_path / "warm")
    (tmp_path / "warm" / "warmup.json").write_text('{"style": "brief", "recipe": "drzero"}')
    few = ["--set", "proposer.steps=3", "--set", "proposer.batch=2", "--set", "generation.candidates=2"]
    warm = ["--model", tmp_path / "warm", "--set", "prompts=brief", "--out", tmp_path / "run"]
    with dictating(lambda job: ["I would rather not."] * 9):
        assert evolve("drzero", *place[1], *few, *warm) == 2
    said = capsys.readouterr().err
    assert f"no episode of the first 3 steps wrote a valid question, though {tmp_path / 'warm'} was warmed up" in said
    assert "never followed the protocol, though it was warmed up" in said
    assert f"try: quaere runs show {tmp_path / 'run'} --episodes" in said
    assert "quaere warmup" not in said


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("smollm2-135m", "the warm-up of smollm2-135m taught the dialect search-r1, not drzero"),
        ("smollm2-135m-plain", "smollm2-135m-plain is too small to speak the dialect drzero without a warm-up"),
    ],
)
def test_a_built_in_model_that_does_not_speak_the_dialect_is_refused_at_once(place, tmp_path, capsys, model, said):
    assert evolve("drzero", *place[1], "--model", model, "--out", tmp_path / "run") == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 2
    hint = error.splitlines()[1].strip().removeprefix("try: ").split(", then --model DIR")
    words = shlex.split(hint[0])
    assert hint[1:] == [""] and words[:3] == ["quaere", "warmup", "drzero"]
    parsed = build_parser().parse_args(words[1:])
    assert parsed.model == "smollm2-135m-plain"
    assert not (tmp_path / "run").exists()


def test_questions_that_are_all_dropped_are_no_matter_of_the_protocol(place, tmp_path, monkeypatch, capsys):
    async def train(config, store, reporter):
        store.log_metrics(1, {"proposer/valid": 0.5})

    training(monkeypatch, train)
    assert evolve("drzero", *place[1], "--out", tmp_path / "run") == 2
    said = capsys.readouterr().err
    assert "nothing was learned: no question was kept" in said and "--candidates" in said and "warmup" not in said


def shown(path, capsys):
    """What `runs show` says of a run's state, for people on one line and for programs."""
    assert main(["runs", "show", str(path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert main(["runs", "show", str(path), "--json"]) == 0
    return text, json.loads(capsys.readouterr().out)


def test_a_run_says_how_it_stands_and_how_to_go_on(place, tmp_path, monkeypatch, capsys):
    path, seen = tmp_path / "run", []

    async def interrupted(config, store, reporter):
        await one_step(config, store, reporter)
        seen.append(shown(path, capsys))
        raise KeyboardInterrupt

    async def failing(config, store, reporter):
        raise TrainingStopped("the gradient is not finite")

    async def killed(config, store, reporter):
        shutil.copytree(path, tmp_path / "killed")

    training(monkeypatch, interrupted)
    assert evolve("drzero", *place[1], "--out", path) == 130
    (running, _), (stopped, row) = seen[0], shown(path, capsys)
    assert "running after step 1" in running and "go on with" not in running
    assert f"stopped after step 1 go on with: quaere evolve --resume {path}" in stopped
    assert row["state"] == {"name": "stopped", "why": ""} and row["next"] == f"quaere evolve --resume {path}"
    training(monkeypatch, failing)
    assert evolve("--resume", path) == 2
    failed, row = shown(path, capsys)
    assert "failed after step 1: the gradient is not finite go on with: quaere evolve" in failed
    assert row["state"] == {"name": "failed", "why": "the gradient is not finite"}
    training(monkeypatch, killed)
    assert evolve("--resume", path) == 0
    done, row = shown(path, capsys)
    assert f"done after step 1 take the model out with: quaere export {path}" in done
    assert row["state"]["name"] == "done"
    assert "stopped after step 1" in shown(tmp_path / "killed", capsys)[0]


# ---------------------------------------------------------------------------------------------------------- Ctrl-C


def press_ctrl_c(monkeypatch, times, *, one_press_s=0):
    """So often, in the first part of the next step that is played."""
    monkeypatch.setattr(terminal, "ONE_PRESS_S", one_press_s)
    play, presses = Actors.play, iter(range(times))

    async def interrupted(self, *args, **options):
        for _ in presses:
            signal.raise_signal(signal.SIGINT)
        return await play(self, *args, **options)

    monkeypatch.setattr(Actors, "play", interrupted)


def learned(path):
    """What a run wrote and measured, but for times and memory."""
    with Run.open(path) as run:
        names = [name for name in run.metric_names() if name.split("/")[0] in ("reward", "loss", "gradient", "passes")]
        values = {name: [(metric.step, repr(metric.value)) for metric in run.metrics(name)] for name in names}
        return values, [episode.segments for episode in run.episodes()]


@pytest.mark.parametrize("signals", [1, 2])  # `timeout --signal=INT` sends two at once
def test_the_first_ctrl_c_lets_the_step_end_and_saves_it(place, run_path, tmp_path, monkeypatch, capfd, signals):
    path, seldom = tmp_path / "run", ["--set", "checkpoints.every=100"]
    with monkeypatch.context() as pressed:
        press_ctrl_c(pressed, signals, one_press_s=60)
        assert evolve("drzero", *place[1], "--out", path, *seldom) == 130
    said = capfd.readouterr().err
    assert "stopping after the step under way, once its checkpoint is saved; press Ctrl-C again to stop now" in said
    assert f"stopped; go on with: quaere evolve --resume {path}" in said
    assert [found.step for found in find_checkpoints(path / "checkpoints")] == [0, 1]
    assert Run.open(path).state().name == "stopped" and Run.open(path).last_step() == 1
    assert evolve("--resume", path) == 0
    assert learned(path) == learned(run_path)


def test_the_second_ctrl_c_stops_at_once_and_keeps_what_was_saved(place, tmp_path, monkeypatch, capfd):
    path = tmp_path / "run"
    with monkeypatch.context() as pressed:
        press_ctrl_c(pressed, 2)
        assert evolve("drzero", *place[1], "--out", path) == 130
    said = capfd.readouterr().err
    assert "stopping; a step that is broken off is taken again from the last checkpoint" in said
    assert f"stopped; go on with: quaere evolve --resume {path}" in said
    assert [found.step for found in find_checkpoints(path / "checkpoints")] == [0]
    assert Run.open(path).state().name == "stopped" and Run.open(path).last_step() == 0


def test_a_stop_before_the_first_step_plays_none(place, tmp_path, monkeypatch, capfd):
    def load(self):
        signal.raise_signal(signal.SIGINT)
        begin(self)

    begin = TrainingRun.begin
    monkeypatch.setattr(TrainingRun, "begin", load)
    assert evolve("drzero", *place[1], "--out", tmp_path / "run") == 130
    assert Run.open(tmp_path / "run").last_step() == 0
