"""What can be seen of a run's settings without a model: whole phases with actors that do not think."""

import asyncio
import tempfile
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import tiny
from observing import SEGMENTS, proposal
from quaere.dialects.roles import Solver
from quaere.dialects.tool_call import ToolCallSolver
from quaere.errors import QuaereError, TrainingStopped
from quaere.recipes.drawn_documents import Documents
from quaere.recipes.drzero import DrZero
from quaere.records import Answer, Episode, ProposeTask, Question
from quaere.rollout.policy import derive_seed
from quaere.runs import Run
from quaere.runs.checkpoints import find_checkpoints
from quaere.training.actors import Played, open_actors
from quaere.training.rollouts import Stage
from quaere.training.run_setup import open_run
from quaere.training.settings import (
    AdapterSettings,
    CheckpointSettings,
    HealthSettings,
    LearnerSettings,
    RunConfig,
    ValidationSettings,
)
from quaere.training.solver_phase import practise
from quaere.training.step import Step
from quaere.training.training_run import TrainingRun
from village_runs import Told

# ------------------------------------------------------------------------------------------------------- what is played


class Acting:
    """Actors without weights: notes what each role is asked for, and lets it write what its task's name decides."""

    def __init__(self):
        self.asked = []

    async def play(self, role, jobs, searcher, limits, *, seed, params=None):
        shown = [(job.episode_id, job.task, job.protocol.opening(job.task)) for job in jobs]
        self.asked.append((role, shown, limits, seed, params))
        return Played([self.write(job) for job in jobs], [])

    def weights_changed(self, role):
        pass

    def write(self, job):
        luck = derive_seed(0, job.episode_id)
        if isinstance(job.task, ProposeTask):
            words = "very " * (60 if luck % 5 == 0 else 0)  # some questions are too long
            return proposal(f"Who built the {words}old bridge {luck}?", job.task, num_queries=luck % 3)
        answer = Answer("Venn" if luck % 3 == 0 else "Oss")
        return Episode(job.episode_id, job.task, "s", "m", 0, SEGMENTS, (), answer, "answered")


class Training:
    """A training run of which only the steps are real: what is kept and learned in each is noted."""

    def __init__(self, config=None):
        self.config, self.actors, self.store = config or RunConfig(), Acting(), self
        self.reporter = SimpleNamespace(note=lambda text: None)
        self.done = []

    async def iterate(self, count, work, *, stop_after=0):
        for iteration in range(count):
            await work(iteration)

    def steps(self, iteration, phase, count, *, role="", settings=None, carry_on=False):
        for number in range(count):
            learned = []
            learner = SimpleNamespace(step=lambda samples, kept=learned: kept.extend(samples) or {})
            step = Step(len(self.done) + 1, iteration, phase, number, number, learner)
            yield step
            self.done.append((iteration, phase, step.candidates, step.measured, learned))

    def candidates(self, *, iteration=None, kept=None):
        stored = [one for _, _, candidates, _, _ in self.done for one in candidates]
        found = [one for one in stored if iteration is None or one.iteration == iteration]
        return [one for one in found if kept is None or one.kept == kept]

    def curriculum(self, iteration):
        return self.candidates(iteration=iteration, kept=True)

    def phase_values(self, step, name):
        return []

    def take_best(self, role):
        pass

    def skip(self, count):
        pass


class Numbers:
    """Passages that are called by their numbers."""

    def __len__(self):
        return 50

    def passage(self, number):
        return tiny.passage(f"text {number}", title=f"title {number}")


def evolved(config):
    """A whole run of Dr. Zero in which nobody thinks: everything that was asked, kept and learned from."""
    training = Training(config)
    documents = Documents(Numbers(), config.proposer)
    asyncio.run(DrZero(config, training, tiny.ListSearcher(), first=documents, second=documents).evolve())
    return training.actors.asked, training.done


def practised(config, validation=None):
    """A solver's phase on forty questions: what was asked, what it was worth, what was learned from."""
    training = Training()
    questions = [Question(f"q{number}", f"Who built {number}?", ("Venn",)) for number in range(40)]
    options = {"questions": questions, "validation": validation or ValidationSettings(questions=0)}
    stage = Stage(training.actors, tiny.ListSearcher())
    asyncio.run(practise(training, stage, 0, config, solver=Solver(ToolCallSolver()), **options))
    return training.actors.asked, training.done


# ------------------------------------------------------------------------------------------------------- what is opened


def opened(config):
    """What a run of this config opens: the index, the search engine, the roles."""
    calls = []

    def note(name):
        async def end():
            pass

        ending = SimpleNamespace(close=end, policy=SimpleNamespace(stop=end))
        return lambda *given, **options: calls.append((name, given, options)) or ending

    async def run():
        async with open_run(config, ("solver",), SimpleNamespace(note=None)):
            pass

    names = ("open_index", "open_searcher", "LocalSearcher", "open_actors")
    with mock.patch.multiple("quaere.training.run_setup", **{name: note(name) for name in names}):
        asyncio.run(run())
    return [(name, given if name != "LocalSearcher" else (), options) for name, given, options in calls]


def engaged(engine):
    """What a model is loaded with, for sampling and as the base of adapters."""
    calls = []
    load = lambda *given, **options: calls.append((given[1:], options))  # noqa: E731
    here = {"resolve_model": lambda name, **_: SimpleNamespace(tokenizer="t")}
    sampler = SimpleNamespace(engine=SimpleNamespace(note=""))
    over = lambda model, decode, **options: calls.append(options) or sampler  # noqa: E731
    with (
        mock.patch.multiple("quaere.training.actors", **here),
        mock.patch("transformers.AutoTokenizer.from_pretrained", return_value=tiny.tokenizer()),
        mock.patch("quaere.policies.native.sampler.NativeSampler.over", over),
        mock.patch("quaere.policies.native.bridge.load_model", load),
        mock.patch("quaere.training.adapters.add_adapters", return_value=None),
        mock.patch("quaere.training.actors.TokenPolicy", return_value=None),
    ):
        try:
            actors = open_actors(RunConfig(model="m", engine=engine, adapter=AdapterSettings(rank=4)), ("solver",))
        except QuaereError as error:  # there is no such device
            return str(error)
    return calls, actors.concurrency


# ------------------------------------------------------------------------------------------------------- what surrounds


class Weightless(Acting):
    """Actors with an empty file for weights."""

    def learner(self, role, settings, num_steps):
        return SimpleNamespace(save_optimizer=lambda file: None, load_optimizer=lambda file: None)

    def save(self, folder):
        (folder / "weights").write_bytes(b"")

    def load(self, folder):
        pass

    def saved_at(self, folder):
        pass


def surrounded(checkpoints=CheckpointSettings(), health=HealthSettings()):  # noqa: B008 (both are frozen)
    """A phase of six steps whose policy collapses in the fourth: checkpoints, events, when the update is measured."""
    with tempfile.TemporaryDirectory() as folder, Run.create(Path(folder) / "run", "evolve") as store:
        config = RunConfig(checkpoints=checkpoints, health=health)
        training, due = TrainingRun(config, store, Weightless(), Told(), 6), []

        async def iterate(iteration):
            steps = training.steps(iteration, "solver", 6, role="solver", settings=LearnerSettings())
            for step in steps:
                due.append((step.number, step.measures_update))
                step.metrics["policy/entropy"] = 0.0 if step.number >= 3 else 1.0

        try:
            asyncio.run(training.iterate(1, iterate))
        except TrainingStopped as error:
            due.append(str(error).replace(folder, ""))
        found = [checkpoint.step for checkpoint in find_checkpoints(store.path / "checkpoints")]
        return due, found, [(event.step, event.kind) for event in store.events()]
