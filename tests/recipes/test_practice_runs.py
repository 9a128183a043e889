"""Recipes on given questions as a person meets them: start, look, evaluate, ask, export, stop and go on."""

import json
import shutil

import pytest
from test_drzero_resume import contents, digest

from practice_runs import SMALL, make_practice, run_practice
from quaere.cli.main import main
from quaere.dialects.notes import find_role, read_notes
from quaere.runs import Run
from quaere.runs.checkpoints import find_checkpoints
from village import BRIDGES
from village_runs import SMALL as SMALL_LOOP
from village_runs import Told
from weighing import LIMITS

RECIPES = ("evalact", "evalrar", "search-r1", "autorefine")


@pytest.fixture(scope="module")
def place(weighing_paths, tmp_path_factory):
    root = tmp_path_factory.mktemp("practice")
    loop = {**SMALL_LOOP, "solver.limits": LIMITS, "proposer.limits": LIMITS, "proposer.steps": 1, "proposer.batch": 4}
    loop |= {"solver.steps": 1, "generation.candidates": 6, "generation.attempts": 0, "proposer.attempts": 2}
    for name, values in (("small", {**SMALL, "solver.steps": 1}), ("loop", loop)):
        lines = [f"{key}: {json.dumps(value)}" for key, value in values.items()]
        (root / f"{name}.yaml").write_text("\n".join(lines), encoding="utf-8")
    return root, [str(path) for path in weighing_paths]


def evolve(place, name, *more, config="small"):
    root, (index, model, _) = place
    where = ["--index", index, "--model", model, "--config", root / f"{config}.yaml", "--runs", root]
    return main(["evolve", name, *map(str, [*where, *more])])


@pytest.fixture(scope="module")
def runs(place):
    """A step of each recipe, and of Dr. Zero with a solver that evaluates."""
    root, (_, _, questions) = place
    for name in RECIPES:
        assert evolve(place, name, "--questions", questions, "--out", root / name) == 0
    loop = ("--solver-dialect", "evalact", "--out", root / "loop")
    assert evolve(place, "drzero", *loop, config="loop") == 0
    return root


# --------------------------------------------------------------------------------------------------- given questions


@pytest.mark.parametrize("name", RECIPES)
def test_a_run_speaks_its_dialect_learns_and_keeps_its_questions(runs, place, name):
    with Run.open(runs / name) as run:
        rows, first = run.index(), run.metrics_at(1)
        assert run.info.settings["questions"] == place[1][2]
    assert {row.protocol for row in rows} == {f"{name}-solver"} and len(rows) == 4 * 4
    assert {row.phase for row in rows} == {"solver"}
    wanted = {
        "reward/mean",
        "answer/exact_match",
        "gradient/norm",
        "loss/policy",
        "solver/searches",
        "solver/model_tokens",
    }
    wanted |= {"search-r1": set(), "evalact": {"evaluate/auroc", "evaluate/ece", "evaluate/constant"}}.get(
        name, {"reward/note", "format/held"}
    )
    assert wanted <= set(first)
    assert first["solver/answered"] > 0.8
    kept = (runs / name / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(kept) == 32
    checkpoints = find_checkpoints(runs / name / "checkpoints")
    weights = [found.path / "solver" / "model.safetensors" for found in (checkpoints[0], checkpoints[-1])]
    assert weights[0].read_bytes() != weights[1].read_bytes()
    assert main(["runs", "show", str(runs / name)]) == 0


def test_what_a_dry_run_says(place, tmp_path, capsys):
    index, model, questions = place[1]
    where = ["--index", index, "--model", model, "--questions", questions, "--runs", str(tmp_path)]
    assert main(["evolve", "evalact", *where, "--preset", "paper", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "32, each seen 2 times" in said and "at most 42 turns and 20 searches" in said
    assert "2 steps of 32 questions; a step plays 160 episodes" in said and "memory" in said
    assert main(["evolve", "evalact", *where, "--preset", "demo", "--dry-run", "--json"]) == 0
    assert "solver phase" in json.loads(capsys.readouterr().out)
    assert not list(tmp_path.iterdir())


def test_a_run_without_steps_is_done(place, tmp_path, capsys):
    """The warm-up alone, as the page of EvalAct has it."""
    args = ["--questions", place[1][2], "--set", "solver.steps=0", "--set", "epochs=0", "--out", tmp_path / "run"]
    assert evolve(place, "evalact", *args) == 0
    assert "done; look at it with" in capsys.readouterr().err
    with Run.open(tmp_path / "run") as run:
        assert (run.state().name, run.last_step()) == ("done", 0)
    assert [found.step for found in find_checkpoints(tmp_path / "run" / "checkpoints")] == [0]


def test_print_config_holds_the_questions_and_the_dialect(place, capsys):
    assert evolve(place, "evalrar", "--questions", place[1][2], "--print-config") == 0
    said = capsys.readouterr().out
    assert f"questions: {place[1][2]}" in said and "dialect: evalrar" in said


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["evalact"], "no questions are given"),
        (["evalact", "--questions", "nowhere"], "nowhere is neither a question file nor a run"),
        (["drzero", "--questions", "nowhere"], "drzero writes its own questions"),
        (["eve", "--questions", "nowhere"], "eve writes its own questions"),
        (["evalact", "--set", "solver.limits.max_turns=2"], "solver.limits.max_turns must be at least 3 for evalact"),
    ],
)
def test_bad_input_is_one_clear_line(place, tmp_path, capsys, args, said):
    config = "loop" if args[0] in ("drzero", "eve") else "small"
    assert evolve(place, args[0], *args[1:], "--out", tmp_path / "run", config=config) == 2
    error = capsys.readouterr().err
    assert said in error and error.startswith("quaere: ") and error.count("\n") <= 2
    assert not (tmp_path / "run").exists()


def test_a_model_that_was_taught_another_dialect_is_refused(place, tmp_path, capsys):
    shutil.copytree(place[1][1], tmp_path / "warm")
    warmup = tmp_path / "warm" / "warmup.json"
    warmup.write_text('{"style": "brief", "recipe": "drzero"}', encoding="utf-8")
    args = ["--questions", place[1][2], "--model", tmp_path / "warm", "--dry-run"]
    assert evolve(place, "evalact", *args) == 2
    said = capsys.readouterr().err
    assert "taught the dialect drzero, not evalact" in said
    assert "quaere warmup evalact --also drzero" in said
    warmup.write_text('{"style": "brief", "recipe": "drzero", "base_model": "blank"}', encoding="utf-8")
    assert evolve(place, "evalact", *args) == 2
    assert f"try: quaere evolve drzero --model {tmp_path / 'warm'}" in capsys.readouterr().err  # it can learn no other
    warmup.write_text('{"style": "brief", "recipe": "drzero"}', encoding="utf-8")
    loop = ["--model", tmp_path / "warm", "--solver-dialect", "evalrar", "--dry-run"]
    assert evolve(place, "drzero", *loop, config="loop") == 2
    assert "quaere warmup drzero --also evalrar --model" in capsys.readouterr().err
    warmup.write_text('{"style": "brief", "recipe": "drzero", "also": ["evalact"]}', encoding="utf-8")
    assert evolve(place, "evalact", *args) == 0
    assert read_notes(tmp_path / "warm").dialect is None  # it knows two
    warmup.write_text('{"style": "brief", "recipe": "evalact"}', encoding="utf-8")
    assert read_notes(tmp_path / "warm").dialect == "evalact"


def test_a_solver_that_is_given_its_questions_needs_no_proposer_s_dialect(place, tmp_path):
    shutil.copytree(place[1][1], tmp_path / "warm")
    (tmp_path / "warm" / "warmup.json").write_text('{"style": "brief", "recipe": "search-r1"}', encoding="utf-8")
    alone = ["iterations=1", "proposer.steps=0", "generation.candidates=0", "generation.attempts=0"]
    given = [f"generation.given={place[1][2]}", *alone]
    args = ["--model", tmp_path / "warm", "--solver-dialect", "search-r1", "--dry-run"]
    args += [word for setting in given for word in ("--set", setting)]
    assert evolve(place, "drzero", *args, config="loop") == 0
    assert evolve(place, "drzero", *args, "--set", "proposer.steps=1", config="loop") == 2


# --------------------------------------------------------------------------------------- questions that a run wrote


def test_dr_zero_trains_a_solver_that_evaluates(runs):
    with Run.open(runs / "loop") as run:
        protocols = {(row.phase, row.protocol) for row in run.index()}
        last = run.metrics_at(3)
    assert protocols == {
        ("proposer", "drzero-proposer"),
        ("proposer", "evalact-solver"),
        ("generation", "drzero-proposer"),
        ("solver", "evalact-solver"),
    }
    assert {"format/held", "evaluate/per_search", "reward/answer"} <= set(last)


def test_the_questions_dr_zero_wrote_train_another(runs, place):
    """By the run's name; with what people said of them."""
    with Run.open(runs / "loop") as run:
        curriculum = {candidate.id for candidate in run.curriculum()}
    assert evolve(place, "evalrar", "--questions", "loop", "--out", runs / "second") == 0
    with Run.open(runs / "second") as run:
        assert {row.task_id for row in run.index()} <= curriculum
        assert run.index() and run.info.settings["questions"] == str(runs / "loop")


def test_dr_zero_with_the_evaluations_of_evalrar(place, tmp_path):
    args = ["--solver-dialect", "evalrar", "--out", tmp_path / "run"]
    assert evolve(place, "drzero", *args, config="loop") == 0
    with Run.open(tmp_path / "run") as run:
        assert {row.protocol for row in run.index(phase="solver")} == {"evalrar-solver"}
        assert {"reward/note", "reward/answer"} <= set(run.metrics_at(3))


def test_eve_with_the_evaluations_of_evalact(place, tmp_path):
    """The dialect keeps its evidence; a broken format earns nothing, a span neither."""
    more = ["evidence.value_weight=0", "proposer.hop_ratio=[1]", "phase_b_documents=same", "solver.attempts=4"]
    more += ["evidence.gold=written"]  # the toy quotes what stands nowhere
    args = [part for value in more for part in ("--set", value)]
    args += ["--solver-dialect", "evalact", "--out", tmp_path / "run"]
    assert evolve(place, "eve", *args, config="loop") == 0
    with Run.open(tmp_path / "run") as run:
        rows = run.index(phase="solver")
        spans = [run.episode(row.id).outcome.span for row in rows if run.episode(row.id).outcome]
    assert {row.protocol for row in rows} == {"evalact-solver"}
    assert any(spans)
    for row in rows:
        paid = row.metrics
        assert paid["reward/total"] == pytest.approx(paid["reward/answer"] + paid["reward/span"])
        assert paid["format/held"] or paid["reward/total"] == 0
    assert any(row.metrics["reward/span"] > 0 for row in rows)
    assert find_role(tmp_path / "run", "solver").notes.evidence


# ------------------------------------------------------------------------------------------ after the training is over


def test_a_run_and_its_export_are_asked_as_they_were_trained(runs, place, tmp_path, capsys):
    index, _, questions = place[1]
    out = tmp_path / "out"
    assert main(["export", str(runs / "evalact"), "--out", str(out)]) == 0
    told = json.loads((out / "quaere.json").read_text(encoding="utf-8"))
    assert (told["dialect"], told["evaluation"]["bad_score"]) == ("evalact", "format_fail")
    capsys.readouterr()
    asked = ["--questions", questions, "--index", index, "--runs", str(tmp_path), "--limit", "3", "--json"]
    found = []
    for who in (["--run", str(runs / "evalact")], ["--model", str(out)]):
        assert main(["eval", *who, *asked]) == 0
        found.append(json.loads(capsys.readouterr().out))
    for one in found:
        assert one["settings"]["protocol"] == "evalact-solver"
        assert one["settings"]["limits"]["max_turns"] == LIMITS["max_turns"]
    assert found[0]["score"] == found[1]["score"]
    assert main(["ask", "Who built Halm?", "--model", str(out), "--index", index, "--runs", str(tmp_path)]) in (0, 3)
    assert "gives it" in capsys.readouterr().out
    other = [*asked, "--model", str(out), "--solver-dialect", "search-r1"]
    assert main(["eval", *other]) == 0
    found = json.loads(capsys.readouterr().out)["settings"]
    # Limits it was trained under in another dialect say nothing about this one.
    assert (found["protocol"], found["limits"]["max_turns"]) == ("search-r1-solver", 5)
    assert main(["eval", *other, "--guided"]) == 2
    assert "only the tool-call dialect can be guided" in capsys.readouterr().err


# --------------------------------------------------------------------------------------------------- killed, gone on


class Stopped(Exception):
    """Somebody pulled the plug."""


class Deadly(Told):
    """Stops when the first step has been reported."""

    def step(self, report):
        raise Stopped


def test_stopped_it_ends_with_the_same_weights_and_store(weighing_paths, tmp_path):
    """All weights are trained, so the KL term's reference is not in the checkpoint; and the questions are gone."""
    index, model, questions = weighing_paths
    given = tmp_path / "given.jsonl"
    given.write_bytes(questions.read_bytes())
    config = make_practice("evalact", (index, model, given), "solver.learner.kl_beta=0.5")
    run_practice(tmp_path / "straight", "evalact", config).close()
    with pytest.raises(Stopped):
        run_practice(tmp_path / "stopped", "evalact", config, Deadly())
    assert find_checkpoints(tmp_path / "stopped" / "checkpoints")[-1].step == 1
    given.unlink()
    run_practice(tmp_path / "stopped", "evalact", config).close()
    assert digest(tmp_path / "stopped") == digest(tmp_path / "straight")
    assert contents(tmp_path / "stopped") == contents(tmp_path / "straight")


@pytest.mark.parametrize(("dialect", "allowed"), [("evalact", False), ("search-r1", False), ("search-r1", True)])
def test_documents_that_the_index_lacks_judge_no_search(weighing_paths, tmp_path, dialect, allowed):
    """They would call every search bad; a dialect that scores searches says so, and one that may abstain does not."""
    index, model, questions = weighing_paths
    rows = [json.loads(line) for line in questions.read_text(encoding="utf-8").splitlines()]
    named = [
        row | {"gold_ids": [BRIDGES[number // 2] if number % 4 else "elsewhere"]} for number, row in enumerate(rows)
    ]
    given = tmp_path / "given.jsonl"
    given.write_text("".join(json.dumps(row) + "\n" for row in named), encoding="utf-8")
    changes = "solver.steps=1", f"solver.abstention.allowed={str(allowed).lower()}"
    told, config = Told(), make_practice(dialect, (index, model, given), *changes)
    run_practice(tmp_path / "run", dialect, config, told).close()
    said = [note for note in told.notes if "the index does not have" in note]
    start = "8 of 32 questions name documents that the index does not have: their searches are judged by the answers"
    assert said == ([start] if dialect == "evalact" else [])


def test_a_run_keeps_the_questions_it_began_with(runs, place, capsys):
    resume = ["evolve", "--resume", str(runs / "search-r1")]
    assert main([*resume, "--set", "questions=others.jsonl", "--force"]) == 2
    assert "questions of a run cannot be changed" in capsys.readouterr().err
    assert main(resume) == 0
    assert "going on after step 1 of 1" in capsys.readouterr().err
