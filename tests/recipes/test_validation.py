"""Validation on held-back questions: which are held back, when they are asked, and what becomes of the best weights."""

import shutil
from hashlib import sha256

import pytest
from test_drzero_resume import contents, digest

from practice_runs import make_practice, run_practice
from quaere.cli.main import main
from quaere.dialects.notes import find_role
from quaere.disk import discard_folder
from quaere.errors import BadInput
from quaere.recipes.drzero import DrZero
from quaere.runs import Run, checkpoints
from quaere.runs.checkpoints import Best, find_checkpoints
from quaere.training.actors import Actors
from quaere.training.health import Alarm, Watch
from quaere.training.self_play import check_self_play, plan_self_play
from quaere.training.solver_phase import Validator
from quaere.training.step import Validated
from village_runs import Told, make_config, run_drzero

# Steps 1 (proposer), 2 and 3 (generation), 4 to 7 (solver); the same again as 8 to 14.
LOOP = {
    "iterations": 2,
    "proposer.steps": 1,
    "generation.candidates": 48,
    "generation.batch": 24,
    "generation.attempts": 0,
    "solver.steps": 4,
    "solver.batch": 6,  # enough that some question is answered in two ways, and there is something to learn
    "validation.share": 0.5,  # half of some 26 questions, where a tenth would be none
    "validation.every": 1,
    "checkpoints.every": 100,
    "checkpoints.keep": 1,
}
# By iteration: before the first step, then after each. First the best is in the middle, twice; then at the start.
SCORES = {0: [0.2, 0.3, 0.5, 0.5, 0.4], 1: [0.9, 0.1, 0.2, 0.3, 0.1]}


@pytest.fixture(scope="module", autouse=True)
def forgetful():
    """Later iterations may ask the same again: the village has too few questions for several validations."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("quaere.recipes.drzero.remember_kept", lambda earlier, **_: set())
        yield


def script(patch, scores=SCORES):
    """Validation is played for real, and then scored as `scores` say."""
    score = Validator._score

    async def scored(self, step, name):
        found = await score(self, step, name)
        place = 0 if name == "validation_start" else step.number + 1
        return Validated(scores[step.iteration][place], found.num_questions)

    patch.setattr(Validator, "_score", scored)


def steps_on_disk(folder):
    return [found.step for found in find_checkpoints(folder / "checkpoints")]


class Enough(Exception):
    """Nothing after this step is looked at."""


class Watcher(Told):
    """Remembers which checkpoints there were after each step, and the hashes of the newest one's weights."""

    def __init__(self, folder, last_step=None):
        super().__init__()
        self.folder, self.found, self.weights, self.best = folder, {}, {}, {}
        self.last_step = last_step

    def step(self, report):
        super().step(report)
        last = find_checkpoints(self.folder / "checkpoints")[-1]
        self.found[report.step] = steps_on_disk(self.folder)
        self.best[last.step] = last.best
        for role in ("proposer", "solver"):
            (file,) = (last.path / role).glob("*model.safetensors")
            self.weights[role, last.step] = sha256(file.read_bytes()).hexdigest()
        if report.step == self.last_step:
            raise Enough


@pytest.fixture(scope="module")
def straight(paths, tmp_path_factory):
    """A scripted run that was never stopped: its folder, and what was seen of it."""
    folder = tmp_path_factory.mktemp("straight") / "run"
    told = Watcher(folder)
    with pytest.MonkeyPatch.context() as patch:
        script(patch)
        run_drzero(folder, make_config(paths, **LOOP), told)[0].close()
    return folder, told


def test_the_best_weights_are_kept(straight):
    folder, told = straight
    # One checkpoint is kept, and the best; of the two best of the first iteration, the later.
    before = {1: [1], 2: [1], 3: [3], 4: [4], 5: [5], 6: [6], 7: [6, 7], 8: [8], 9: [8]}
    assert told.found == before | {10: [10], 11: [10, 11], 12: [10, 12], 13: [10, 13], 14: [10, 14]}
    assert [told.best[step] and told.best[step].step for step in (1, 3, 4, 5, 6, 7)] == [None, None, 4, 5, 6, 6]
    assert [told.best[step].step for step in (8, 10, 11, 14)] == [8, 10, 10, 10]
    assert (told.best[7].role, told.best[7].rating, told.best[14].rating) == ("solver", 0.5, 0.9)
    # Whoever asks for the run's weights gets them, unless the last are asked for.
    assert [find_role(folder, "solver", which).step for which in (None, "best", "last", 14)] == [10, 10, 14, 14]
    assert find_role(folder, "solver").best == told.best[14] and find_role(folder, "solver", "last").best is None
    assert find_role(folder, "proposer").step == 14


def check_gone_on_with(told):
    """The second iteration goes on from the best solver, which is not the last, and from the last proposer."""
    solver, proposer = ({step: told.weights[role, step] for step in told.best} for role in ("solver", "proposer"))
    assert solver[8] == solver[10] == solver[6]
    assert len({solver[step] for step in (3, 6, 7)}) == 3
    assert proposer[7] == proposer[1] != proposer[8]
    assert any("best weights by validation are those of step 6: rated 0.500" in note for note in told.notes)


def test_the_next_iteration_goes_on_with_the_best_weights(straight):
    check_gone_on_with(straight[1])


def test_the_next_iteration_goes_on_with_the_best_adapter(paths, tmp_path, monkeypatch):
    script(monkeypatch)
    told = Watcher(tmp_path / "run", last_step=11)  # the second iteration's solver has begun
    with pytest.raises(Enough):
        run_drzero(tmp_path / "run", make_config(paths, "adapter.rank=4", **LOOP), told)
    check_gone_on_with(told)


def test_what_a_person_sees_of_it(straight, paths, tmp_path, monkeypatch, capsys):
    script(monkeypatch)
    folder = tmp_path / "run"
    shutil.copytree(straight[0], folder)
    assert main(["runs", "show", str(folder)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    held = find_checkpoints(folder / "checkpoints")[-1].best.num_questions
    error = Best("solver", 10, 0.9, held).standard_error
    assert f"best: step 10, rated 0.900 ± {error:.3f} (standard error) on {held} validation questions" in said
    for which, step in (("best", 10), ("last", 14), ("14", 14)):
        out = tmp_path / which
        assert main(["export", str(folder), "--out", str(out), "--checkpoint", which]) == 0
        assert f"at step {step}" in capsys.readouterr().out
    assert main(["export", str(folder), "--out", str(tmp_path / "default")]) == 0
    assert f"at step 10, the best of {held} validation questions" in capsys.readouterr().out
    with pytest.raises(SystemExit) as caught:
        main(["export", str(folder), "--out", str(tmp_path / "none"), "--checkpoint", "first"])
    assert caught.value.code == 2
    assert "'first' is not a step (a whole number), best or last" in capsys.readouterr().err
    # Deleted by hand, the best is missed, and does not stop the run.
    shutil.rmtree(folder / "checkpoints" / "step-000010")
    told = run_drzero(folder, make_config(paths, **LOOP))[1]
    assert "the best checkpoint, of step 10, is gone: the solver keeps its last weights" in told.notes
    assert main(["export", str(folder), "--out", str(tmp_path / "gone")]) == 2
    assert "--checkpoint last" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------- asked for real


@pytest.fixture(scope="module")
def real(paths, tmp_path_factory):
    folder = tmp_path_factory.mktemp("real") / "run"
    config = make_config(paths, **{**LOOP, "iterations": 1, "validation.every": 3, "checkpoints.keep": 100})
    run_drzero(folder, config)[0].close()
    return folder


def check_held_back(folder, iteration, first, due):
    """The solver's four steps begin with `first`, and the questions that are held back are asked in those due alone."""
    with Run.open(folder) as run:
        kept = run.candidates(iteration=iteration, kept=True)
        steps = range(first - 3, first + 4)
        asked = {step: {row.task_id for row in run.index(step=step, phase="validation")} for step in steps}
        trained = {row.task_id for step in range(first, first + 4) for row in run.index(step=step, phase="solver")}
    assert {step for step in steps if asked[step]} == due
    (held,) = {frozenset(asked[step]) for step in due}
    assert len(held) == len(kept) // 2 >= 8
    assert trained and not trained & held and trained | held <= {item.id for item in kept}
    # The same share of both kinds of question is held back.
    for hops in (1, 2):
        group = [item.id for item in kept if item.hops == hops]
        assert abs(len(held & set(group)) - len(group) * len(held) / len(kept)) < 1


def test_held_back_questions_are_asked_when_due_and_never_trained_on(real, straight):
    check_held_back(real, 0, 4, {4, 6, 7})  # with the start, after three steps, after the last
    check_held_back(straight[0], 1, 11, {11, 12, 13, 14})


def test_what_is_measured_is_what_is_stored(real):
    with Run.open(real) as run:
        for step, name in ((4, "validation_start"), (6, "validation"), (7, "validation")):
            rows, metrics = run.index(step=step, phase="validation"), run.metrics_at(step)
            for part in ("exact_match", "f1"):
                mean = sum(row.metrics[f"answer/{part}"] for row in rows) / len(rows)
                assert metrics[f"{name}/{part}"] == pytest.approx(mean)
            assert metrics[f"{name}/searches"] == pytest.approx(sum(row.num_searches for row in rows) / len(rows))
            assert metrics[f"{name}/unanswered"] == pytest.approx(
                sum(row.end != "answered" for row in rows) / len(rows)
            )
            assert metrics[f"{name}/seconds"] > 0
        assert not any(name.startswith("validation") for name in run.metrics_at(5))
        found = {found.step: found.best for found in find_checkpoints(real / "checkpoints")}
        scores = {3: run.metrics_at(4)["validation_start/exact_match"]}
        scores |= {step: run.metrics_at(step)["validation/exact_match"] for step in (6, 7)}
        held = len(run.index(step=4, phase="validation"))
    # Validated weights are on disk, though no other step between the ends of phases is.
    assert sorted(found) == [0, 1, 3, 6, 7]
    best = max(scores, key=lambda step: (scores[step], step))
    assert found[7] == Best("solver", best, scores[best], held, pytest.approx(scores[best] * (1 - scores[best])))


def test_it_is_greedy_and_by_the_weights_the_step_ends_with(real, paths, tmp_path, monkeypatch):
    """Asked once more by a run that goes on from the checkpoint, the same is answered; its seeds are others."""
    with Run.open(real) as run:
        expected = {row.task_id: row.answer for row in run.index(step=6, phase="validation")}
    shutil.copytree(real, tmp_path / "run")
    for found in find_checkpoints(tmp_path / "run" / "checkpoints"):
        if found.step > 6:
            discard_folder(found.path)

    async def ask(validator, step):
        await validator._score(step, "validation")

    async def nothing(validator, step):
        pass

    monkeypatch.setattr(Validator, "before", ask)
    monkeypatch.setattr(Validator, "after", nothing)
    changes = {**LOOP, "iterations": 1, "validation.every": 3, "checkpoints.keep": 100}
    run, _ = run_drzero(tmp_path / "run", make_config(paths, **changes))
    assert {row.task_id: row.answer for row in run.index(step=7, phase="validation")} == expected
    run.close()


def test_without_validation_the_last_checkpoint_counts(paths, tmp_path, capsys):
    """As in the `paper` presets."""
    folder = tmp_path / "run"
    changes = {**LOOP, "iterations": 1, "proposer.steps": 0, "solver.steps": 1}
    run, _ = run_drzero(folder, make_config(paths, "validation.questions=0", **changes))
    assert not any(name.startswith("validation") for name in run.metric_names())
    assert not run.index(phase="validation")
    run.close()
    (last,) = find_checkpoints(folder / "checkpoints")
    assert (last.step, last.best, find_role(folder, "solver").step) == (3, None, 3)
    assert main(["export", str(folder), "--out", str(tmp_path / "out"), "--checkpoint", "best"]) == 2
    assert "the solver was not validated" in capsys.readouterr().err


def test_a_recipe_on_given_questions_validates_too(weighing_paths, tmp_path):
    """32 questions, of which half are held back: one epoch of the others in fours is four steps."""
    changes = {"solver.steps": 0, "validation.share": 0.5, "validation.every": 2}
    run = run_practice(tmp_path / "run", "search-r1", make_practice("search-r1", weighing_paths, **changes))
    held = {row.task_id for row in run.index(phase="validation")}
    trained = {row.task_id for row in run.index(phase="solver")}
    assert (len(held), len(trained), held & trained) == (16, 16, set())
    assert [metric.step for metric in run.metrics("validation/exact_match")] == [2, 4]
    assert [metric.step for metric in run.metrics("validation_start/exact_match")] == [1]
    run.close()
    best = find_checkpoints(tmp_path / "run" / "checkpoints")[-1].best
    assert find_role(tmp_path / "run", "").step == best.step


# ------------------------------------------------------------------------------------------- killed and rolled back


class Killed(BaseException):
    """Nobody catches it."""


def die_once(patch, owner, name, place_of, places):
    """Calls of this function die, each the first time that it is called at one of these places."""
    original, left = getattr(owner, name), set(places)

    def dies(*args):
        if (place := place_of(*args)) in left:
            left.remove(place)
            raise Killed
        return original(*args)

    patch.setattr(owner, name, dies)
    return left


@pytest.mark.slow
def test_killed_anywhere_it_ends_with_the_same_weights_store_and_best(straight, paths, tmp_path, monkeypatch):
    """In a validation, between a new checkpoint and the end of the old ones, and before the best is taken.

    The suite kills runs in `test_drzero_resume.py`.
    """
    config, num_kills = make_config(paths, **LOOP), 0
    script(monkeypatch)
    asked = [(4, "validation_start"), (6, "validation"), (7, "validation"), (11, "validation_start")]
    left = [
        die_once(monkeypatch, Validator, "_score", lambda validator, step, name: (step.step, name), asked),
        die_once(monkeypatch, checkpoints, "_prune", lambda root, keep: steps_on_disk(root.parent)[-1], (6, 7, 8, 11)),
        die_once(monkeypatch, Actors, "load_role", lambda actors, folder, role: folder.name, ("step-000006",)),
    ]
    while any(left):
        with pytest.raises(Killed):
            run_drzero(tmp_path / "run", config)
        num_kills += 1
    run_drzero(tmp_path / "run", config)[0].close()
    assert num_kills == 9
    assert digest(tmp_path / "run") == digest(straight[0])
    assert contents(tmp_path / "run") == contents(straight[0])
    mine, theirs = (find_checkpoints(folder / "checkpoints") for folder in (tmp_path / "run", straight[0]))
    assert [(found.step, found.state) for found in mine] == [(found.step, found.state) for found in theirs]


def test_a_rollback_forgets_a_best_that_it_discards(paths, tmp_path, monkeypatch):
    """Suspect from its second solver step on, the run goes back after the third: what was best in between is gone."""
    scores, num_checks = {0: [0.2, 0.3, 0.5, 0.4, 0.1]}, 0
    script(monkeypatch, scores)

    def check(watch, metrics, role):
        nonlocal num_checks
        num_checks += role == "solver"
        watch._counts = {"entropy": 1} if num_checks in (2, 3) else {}
        if num_checks != 3:
            return []
        scores[0] = [0.2, 0.3, 0.1, 0.1, 0.1]  # from then on
        return [Alarm("entropy", "sick")]

    monkeypatch.setattr(Watch, "check", check)
    folder = tmp_path / "run"
    told = Watcher(folder)
    changes = {**LOOP, "iterations": 1, "checkpoints.keep": 3, "health.policy": "rollback"}
    changes |= {"proposer.batch": 2, "proposer.attempts": 2}  # only the solver is looked at
    run_drzero(folder, make_config(paths, **changes), told)[0].close()
    assert [report.step for report in told.steps] == [1, 2, 3, 4, 5, 6, 5, 6, 7]
    assert any("went back from step 6 to step 4" in note for note in told.notes)
    last = find_checkpoints(folder / "checkpoints")[-1]
    assert (last.step, last.best.step, last.best.rating) == (7, 4, 0.3)
    assert find_role(folder, "solver").step == 4


# --------------------------------------------------------------------------------------------------- no longer rising


STOPPING = {**LOOP, "iterations": 4, "solver.steps": 1, "proposer.steps": 0, "stop_after": 2}


def run_rated(folder, config, curve):
    """A run whose validations rate the solver so, by iteration: at the start and after the last step, or not at all."""
    score = Validator._score

    async def scored(self, step, name):
        await score(self, step, name)
        rated = curve[step.iteration]
        return Validated(rated[name == "validation"], 8) if rated else None

    told = Told()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Validator, "_score", scored)
        run_drzero(folder, config, told)[0].close()
    return told


def test_a_run_stops_when_validation_no_longer_rises(paths, tmp_path):
    """The first iteration rises and the next two do not; a fourth would follow. Resumed, it stops at once.

    By the rating that chooses the checkpoint, not by exact match. Of 8 questions, 0.5 has a standard error of 0.177.
    """
    for _ in range(2):
        told = run_rated(tmp_path / "run", make_config(paths, **STOPPING), [(0.2, 0.4), (0.5, 0.6), (0.6, 0.3)])
        said = "stopped after iteration 3: validation no longer rises (0.200 to 0.400, 0.500 to 0.600, 0.600 to 0.600)"
        assert said in told.notes
    assert told.steps == []
    told = run_rated(
        tmp_path / "higher", make_config(paths, **STOPPING), [(0.2, 0.4), (0.5, 0.7), (0.6, 0.3), (0.4, 0.4)]
    )
    assert any(note.startswith("stopped after iteration 4") for note in told.notes)
    for changes in ({"validation.questions": 0}, {"solver.steps": 0}):
        with pytest.raises(BadInput, match="stop_after compares validations"):
            check_self_play(make_config(paths, **{"stop_after": 1, **changes}))


def test_an_iteration_that_is_not_validated_counts_neither_way(paths, tmp_path):
    told = run_rated(tmp_path / "run", make_config(paths, **STOPPING), [(0.6, 0.6), None, (0.6, 0.5), (0.2, 0.9)])
    said = "stopped after iteration 3: validation no longer rises (0.600 to 0.600, 0.600 to 0.600)"
    assert said in told.notes


def test_an_iteration_that_keeps_nothing_did_not_rise(paths, tmp_path, monkeypatch):
    async def drop_all(self, step, proposals, seen):
        return [(proposed, "invalid") for proposed in proposals]

    monkeypatch.setattr(DrZero, "screen", drop_all)
    told = run_rated(tmp_path / "run", make_config(paths, **STOPPING), [])
    said = "stopped after iteration 2: validation no longer rises (nothing learned, nothing learned)"
    assert said in told.notes


def test_iterations_too_small_to_validate_never_stop_a_run_which_says_so_once(paths, tmp_path):
    config = make_config(paths, **{**STOPPING, "validation.share": 0.01})
    told = run_rated(tmp_path / "run", config, [])
    assert not any("stopped after" in note for note in told.notes)
    plan = dict(plan_self_play(config))
    assert plan["stop_after"] == "never: no iteration has enough questions to validate"
    assert plan["validation"].startswith("none, as validation.share=0.01 of 48 questions")
    said = [note for note in told.notes if "stop_after" in note]
    assert said == ["iteration 1 has too few questions to validate, so stop_after does not count it"]
