"""The loop around steps, with roles that have no weights: what is restored, rolled back, told and noted."""

import asyncio
from contextlib import suppress
from types import SimpleNamespace

import pytest

from quaere.errors import TrainingStopped
from quaere.runs import Run
from quaere.runs.summaries import summarise_phases
from quaere.training.health import Alarm, describe_useless
from quaere.training.learner import OPTIMIZER_FILE
from quaere.training.progress import StepProgress
from quaere.training.settings import CheckpointSettings, HealthSettings, LearnerSettings, RunConfig
from quaere.training.training_run import CarriedOptimizers, TrainingRun
from village_runs import Told


class Learner:
    """Its optimizer is the number of updates it has made."""

    def __init__(self):
        self.num_steps = 0
        self.on_batch = None

    def save_optimizer(self, file):
        file.write_text(str(self.num_steps))

    def load_optimizer(self, file):
        self.num_steps = int(file.read_text())


class Roles:
    """Roles without weights."""

    def learner(self, role, settings, num_steps):
        return Learner()

    def save(self, folder):
        (folder / "weights").write_bytes(b"")

    def load(self, folder):
        pass

    saved_at = weights_changed = load


class Count:
    """The memory of a recipe: a number."""

    def __init__(self):
        self.value = 0

    def save(self, folder):
        (folder / "count").write_text(str(self.value))

    def load(self, folder):
        self.value = int((folder / "count").read_text())


def train(folder, work, num_steps=4, *, memory=None, **health):
    """Begin or go on with a phase of the solver in which every step does this work; what was told and stored."""
    told = Told()
    opened = Run.open(folder, write=True) if folder.exists() else Run.create(folder, "evolve", {"model": "M"})
    with opened as store:
        config = RunConfig(checkpoints=CheckpointSettings(every=1), health=HealthSettings(**health))
        training = TrainingRun(config, store, Roles(), told, num_steps, memory=memory)

        async def iterate(iteration):
            for step in training.steps(iteration, "solver", num_steps, role="solver", settings=LearnerSettings()):
                work(step)

        with suppress(InterruptedError):
            asyncio.run(training.iterate(1, iterate))
        return SimpleNamespace(
            told=told,
            events=store.events(),
            steps=[metric.step for metric in store.metrics("run/iteration")],
        )


def stop_at(number):
    def stop(step):
        if step.step == number:
            raise InterruptedError

    return stop


# --------------------------------------------------------------------------------------------------- resume, roll back


def test_a_run_that_goes_on_has_its_memory_and_its_optimizer_again(tmp_path):
    memories, seen = (Count(), Count()), []

    def work(memory, last):
        def learn(step):
            stop_at(last)(step)
            seen.append((step.step, memory.value, step.learner.num_steps))
            memory.value += 10
            step.learner.num_steps += 1

        return learn

    for memory, last in zip(memories, (3, 9), strict=True):
        train(tmp_path / "run", work(memory, last), memory=memory)
    assert seen == [(1, 0, 0), (2, 10, 1), (3, 20, 2), (4, 30, 3)]


def test_a_step_whose_phase_raised_an_alarm_is_no_step_to_go_back_to(tmp_path):
    """Step 3 raises it, once: the run goes back to step 2 and takes it again; of the first one nothing stays."""
    taken = []

    def work(step):
        taken.append(step.step)
        if taken == [1, 2, 3]:
            step.alarms.append(Alarm("curriculum", "nothing new"))

    done = train(tmp_path / "run", work, policy="rollback")
    assert taken == [1, 2, 3, 3, 4]
    assert done.steps == [1, 2, 3, 4]
    assert [(event.step, event.kind, event.message) for event in done.events] == [
        (2, "rollback", "went back from step 3 to step 2: nothing new")
    ]


def test_a_carried_optimizer_lies_in_the_checkpoints_of_other_phases_and_no_other_does(tmp_path):
    """The proposer's is carried, the solver's is not. In its own phase a role's state is saved by its learner."""
    folders = {role: tmp_path / role for role in ("proposer", "generation", "solver", "proposer again")}
    for folder in folders.values():
        folder.mkdir()
    for role in ("proposer", "solver"):
        (folders[role] / OPTIMIZER_FILE).write_text({"proposer": "3", "solver": "5"}[role])
    carried, learner = CarriedOptimizers(), Learner()
    carried.plan("proposer", is_carried=True)
    for name, role in zip(folders, ("proposer", "", "solver", "proposer"), strict=True):
        carried.save(folders[name], role)
        carried.find(folders[name], role)
        if name == "solver":
            assert carried.load(learner, "proposer") and learner.num_steps == 3
    found = {name: sorted(file.name for file in folder.glob("carried-*")) for name, folder in folders.items()}
    between = ["carried-proposer.safetensors"]
    assert found == {"proposer": [], "generation": between, "solver": between, "proposer again": []}
    assert not carried.load(learner, "solver")


# ------------------------------------------------------------------------------------------------------- what is told


def test_an_update_in_progress_is_told_with_its_micro_batches(tmp_path):
    done = train(tmp_path / "run", lambda step: step.learner.on_batch(3, 8, 0.5), 1)
    assert done.told.progressed == [
        StepProgress(1, 1, "solver", "learning", "solver", num_done=3, num_all=8, seconds=0.5),
        StepProgress(1, 1, "solver", "saving", "solver"),
    ]


@pytest.mark.parametrize("shares", [(0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.5), (0.0, 0.5, 0.0, 0.0)])
def test_three_steps_without_an_answer_are_spoken_of_once(tmp_path, shares):
    def work(step):
        step.metrics["solver/answered"] = shares[step.number]

    notes = [note for note in train(tmp_path / "run", work).told.notes if "no episode" in note]
    if any(shares[:3]):
        assert notes == []
    else:
        assert notes == [
            "no episode of the first 3 steps gave an answer: M may need `quaere warmup drzero --model M --out DIR`"
        ]


def test_what_was_not_measured_is_not_called_useless():
    assert describe_useless("proposer", [], "drzero", "M") == ""


@pytest.mark.parametrize(
    ("recipe", "command"),
    [
        ("eve", "quaere warmup eve --model M --out DIR"),
        ("report-dpo", "quaere warmup score --model M --out DIR"),
        ("r1", "quaere evolve sft --set solver.dialect=cot --model M ..."),  # no warm-up teaches to search nothing
    ],
)
def test_what_teaches_a_model_the_form_depends_on_the_recipe(recipe, command):
    assert describe_useless("solver", [0.0, 0.0], recipe, "M").endswith(f"M may need `{command}`")


def test_searches_that_fail_until_the_last_step_are_said_and_stop_no_run(tmp_path):
    """It has nothing left to do, so no command that resumes it is proposed; one step earlier there is one."""

    def fail(step):
        step.search_failure = "the server is down"

    ended = train(tmp_path / "ended", fail, 3)
    said = "step 3: every search of 3 steps in a row failed: the server is down; no step is left to take"
    assert ended.told.notes[-1] == said and ended.steps == [1, 2, 3]
    with pytest.raises(TrainingStopped) as stop:
        train(tmp_path / "stopped", fail, 4)
    assert str(stop.value) == said.partition(";")[0] and "--resume" in stop.value.hint


def test_nothing_is_traced_unless_it_is_asked_for(tmp_path):
    traced = []
    train(tmp_path / "run", lambda step: traced.append(step.num_traced), 2)
    assert traced == [0, 0]


def test_a_phase_may_have_any_name(tmp_path):
    """Its number comes after those of the known phases, and the run knows the name that belongs to it."""
    for folder in (tmp_path / "run", tmp_path / "run"):  # begun, then gone on with
        opened = Run.open(folder, write=True) if folder.exists() else Run.create(folder, "evolve", {"model": "M"})
        with opened as store:
            training = TrainingRun(RunConfig(), store, Roles(), Told(), 3)

            async def iterate(iteration, training=training):
                for phase in ("debate", "solver", "vote"):
                    for _ in training.steps(iteration, phase, 1):
                        pass

            asyncio.run(training.iterate(1, iterate))
    with Run.open(tmp_path / "run") as store:
        assert [phase.phase for phase in summarise_phases(store)] == ["debate", "solver", "vote"]
        assert [metric.value for metric in store.metrics("run/phase")] == [4.0, 2.0, 5.0]
