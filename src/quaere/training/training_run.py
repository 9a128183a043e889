"""The loop around every recipe's training steps: store, health, checkpoints, progress.

    for step in training.steps(iteration, "proposer", 50, role="proposer", settings=LearnerSettings()):
        ...                                   # the recipe's own work
        step.metrics |= step.learner.step(samples)

After the loop body, the step is stored, checked by the health watch, saved if a checkpoint is due, and reported. Steps
that a checkpoint already contains are skipped, so a resumed run executes the same loop from the start. Random draws in
a step derive from its place in the run, never from earlier events in the process.
"""

import shlex
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct, structs

from quaere.disk import discard_folder, link_file
from quaere.errors import BadInput, TrainingStopped
from quaere.rollout.policy import derive_seed
from quaere.runs import Run
from quaere.runs.checkpoints import (
    Best,
    Checkpoint,
    find_checkpoints,
    newest_checkpoint,
    prune_checkpoints,
    save_checkpoint,
    verify_checkpoint,
)
from quaere.training.actors import RolePlay
from quaere.training.health import FIRST_STEPS, FOLLOWED, Alarm, Watch, describe_useless
from quaere.training.learner import OPTIMIZER_FILE, Learner
from quaere.training.progress import Part, Reporter, StepProgress, StepReport, stop_requested
from quaere.training.settings import LearnerSettings, RunConfig
from quaere.training.step import Step, measure_memory, measure_pace
from quaere.training.tinker_learner import TinkerLearner

MOST_LOST = 3
"""Steps in a row without an answered search after which a run stops: each costs its replays, and teaches at most what
needs no search. One or two may be an engine that is started again.
"""

# The rating of a phase's first weights, its standard error, and the rating of the best weights so far.
_START, _ERROR, _KEPT = "validation_start/rating", "validation_start/rating_error", "validation/kept"


class Memory(Protocol):
    """State of a recipe that is saved with every checkpoint."""

    def save(self, folder: Path) -> None:
        """Write the state to files in this folder."""

    def load(self, folder: Path) -> None:
        """Restore what `save` wrote."""


class RolledBack(Exception):
    """The run was rolled back to an earlier checkpoint; the recipe restarts its loops."""


class _State(Struct, frozen=True):
    """The run's state in a checkpoint's manifest.

    _State(phase="solver", iteration=0, watch={"entropy": 2}, suspect=False, role="solver")
    """

    phase: str
    iteration: int
    watch: dict[str, int]  # state of the health watch
    suspect: bool  # True if any health condition held
    best: Best | None = None
    role: str = ""  # whose optimizer the checkpoint has; "" if it has none


class TrainingRun:
    """Store, checkpoints, health watch and progress around a recipe's steps."""

    def __init__(
        self,
        config: RunConfig,
        store: Run,
        actors: RolePlay,
        reporter: Reporter,
        num_steps: int,
        *,
        read_document: Callable[[str], str] | None = None,
        memory: Memory | None = None,
    ) -> None:
        self.config = config
        self.store = store
        self.actors = actors
        self.reporter = reporter
        self.num_steps = num_steps
        self.read_document = read_document  # for checking evidence before it is stored
        self._watch = Watch(config.health)
        self._memory = memory
        self._position = 0  # steps done
        self._cursor = 0  # steps that the loops have requested so far
        self._num_rollbacks = 0
        self._num_lost = 0  # steps in a row in which searches failed, and none was answered
        self._learner: Learner | TinkerLearner | None = None
        self._best: Best | None = None
        self._restored: Path | None = None  # optimizer file of the phase in which the run was resumed
        self._num_iterations = 1
        self._carried = CarriedOptimizers()
        self._step: Step | None = None  # the step in progress
        actors.on_progress = partial(self._tell, "playing")

    # ----------------------------------------------------------------------------------------------- start and resume

    def begin(self) -> None:
        """Resume from the newest checkpoint, or save the first one. Call it once, before the loops."""
        newest = newest_checkpoint(self._root, self.reporter.note, lambda found: _read_state(found) is not None)
        if newest is None:
            if done := self.store.metrics("run/iteration"):  # starting over would delete them
                raise BadInput(
                    f"{self.store.path} has {done[-1].step} steps but no checkpoint to resume from; "
                    "nothing was changed",
                    hint=f"restore {self._root} from a backup, or start a new run",
                )
            self.store.truncate_after(0)
            self._save("", 0)
            return
        prune_checkpoints(self._root, self.config.checkpoints.keep)  # a kill may have come before it
        self._restore(newest)
        if self._position > self.num_steps:
            taken = f"{self._position} steps are taken, and the settings ask for {self.num_steps}"
            self.reporter.note(f"{taken}: none is left to take, and none is undone")
            return
        self.reporter.note(f"going on after step {self._position} of {self.num_steps}")

    async def iterate(
        self, num_iterations: int, iterate: Callable[[int], Awaitable[None]], *, stop_after: int = 0
    ) -> None:
        """Call `iterate` for every iteration, after resuming from the newest checkpoint; start over after a rollback.

        Finished steps are skipped, so a resumed run executes the same loops as a new one. With `stop_after`, it ends
        after that many iterations in a row in which validation did not rise.
        """
        self._num_iterations = num_iterations
        self.begin()
        while True:
            self._cursor = 0
            try:
                for iteration in range(num_iterations):
                    await iterate(iteration)
                    if stop_after and self._has_stopped_rising(iteration, stop_after):
                        break
                return
            except RolledBack:
                continue

    def steps(
        self,
        iteration: int,
        phase: str,
        count: int,
        *,
        role: str = "",
        settings: LearnerSettings | None = None,
        carry_on: bool = False,
    ) -> Iterator[Step]:
        """The remaining steps of a phase. With `role` and `settings`, that role is trained in them.

        With `carry_on`, the role's optimizer keeps its moments and its place in the learning-rate schedule from the
        previous iteration. Otherwise both are reset.
        """
        first, self._cursor = self._cursor, self._cursor + count
        self._carried.plan(role, is_carried=carry_on and iteration + 1 < self._num_iterations)
        if self._position >= self._cursor:
            return
        done = max(0, self._position - first)
        self._open_phase(role, settings, count, is_new=done == 0, carry_on=carry_on and iteration > 0)
        for number in range(done, count):
            if stop_requested():
                raise KeyboardInterrupt  # between two steps: everything played is stored, and its checkpoint saved
            # The seed derives from the place in the run, so that a resumed step makes the same draws. It includes the
            # number of rollbacks: with the same draws, a rolled-back run would repeat the steps that led to the alarm.
            seed = derive_seed(self.config.seed, self._num_rollbacks, iteration, phase, number)
            due = _is_due(self.config.health.update_every, number, count)
            place = (first + number + 1, iteration, phase, number, seed)
            step = Step(*place, self._learner, measures_update=due, num_traced=self.config.traced_episodes)
            started, self._step = time.perf_counter(), step
            yield step
            step.metrics |= measure_pace(step.metrics, time.perf_counter() - started)
            self._finish(step, role, count)

    def phase_values(self, step: Step, name: str) -> list[float]:
        """Values of a metric in this phase up to this step, read from the store so that they survive a resume."""
        first = step.step - step.number
        stored = [metric.value for metric in self.store.metrics(name) if first <= metric.step < step.step]
        return [*stored, step.metrics[name]] if name in step.metrics else stored

    def _has_stopped_rising(self, iteration: int, stop_after: int) -> bool:
        """True if validation rose in none of the last `stop_after` iterations; a note then shows the whole curve.

        Iterations that were not validated are left out.
        """
        rises = [self._describe_rise(number) for number in range(iteration + 1)]
        curve = [rise for rise in rises if rise is not None]
        if rises[-1] is None:
            if len(curve) == iteration:  # the first of them
                self.reporter.note(
                    f"iteration {iteration + 1} has too few questions to validate, so stop_after does not count it"
                )
            return False
        last = curve[-stop_after:]
        if len(last) < stop_after or any(has_risen for has_risen, _ in last):
            return False
        said = ", ".join(said for _, said in curve)
        self.reporter.note(f"stopped after iteration {iteration + 1}: validation no longer rises ({said})")
        return True

    def _describe_rise(self, iteration: int) -> tuple[bool, str] | None:
        """Whether validation rose in an iteration, and from where to where; None if it was not validated.

        Iterations have different validation questions, so each is compared with its own start. The kept weights are the
        best of several validations, so they must be better by more than the start's standard error.
        """
        phase = float(self.store.number_phase("solver"))
        places = zip(self.store.metrics("run/iteration"), self.store.metrics("run/phase"), strict=True)
        steps = {one.step for one, other in places if (one.value, other.value) == (iteration, phase)}
        if not steps:
            return False, "nothing learned"
        start, error, kept = (
            [one.value for one in self.store.metrics(name) if one.step in steps] for name in (_START, _ERROR, _KEPT)
        )
        if not (start and kept):
            return None
        return kept[-1] > start[0] + error[0], f"{start[0]:.3f} to {kept[-1]:.3f}"

    def skip(self, count: int) -> None:
        """Count the next `count` planned steps as done, without running them."""
        self._cursor += count

    def take_best(self, role: str) -> None:
        """At the end of a role's phase, restore its best weights by validation instead of the last.

        The last checkpoint of the phase still has the last weights. A run resumed from it calls this again; one resumed
        from a later phase has the best weights in its checkpoint.
        """
        best, is_end = self._best, self._position == self._cursor
        if not is_end or best is None or best.role != role or best.step == self._position:
            return
        found = next((found for found in find_checkpoints(self._root) if found.step == best.step), None)
        if found is None:  # pruning never deletes it, so a person did
            self.reporter.note(f"the best checkpoint, of step {best.step}, is gone: the {role} keeps its last weights")
            self._best = None
            return
        try:
            verify_checkpoint(found)
        except BadInput as error:
            self.reporter.note(f"{error}; it was the best one, and the {role} keeps its last weights")
            self._best = None
            return
        self.actors.load_role(found.path, role)
        self.reporter.note(
            f"the {role}'s best weights by validation are those of step {best.step}: "
            f"rated {best.rating:.3f} (standard error {best.standard_error:.3f}, {best.num_questions} questions)"
        )

    # -------------------------------------------------------------------------------------------------------- details

    @property
    def _root(self) -> Path:
        return self.store.path / "checkpoints"

    def _open_phase(
        self, role: str, settings: LearnerSettings | None, count: int, *, is_new: bool, carry_on: bool
    ) -> None:
        self._learner = self.actors.learner(role, settings, count) if role and settings else None
        if self._learner:
            self._learner.on_batch = lambda done, count, seconds: self._tell(
                "learning", role, num_done=done, num_all=count, seconds=seconds
            )
        if is_new:
            self._watch.reset()
            if self._best and self._best.role == role:
                self._best = None  # phases have different validation questions, so their scores are not comparable
            if self._learner and carry_on and not self._carried.load(self._learner, role):
                # Only if carrying on was switched on in the middle of a run.
                self.reporter.note(f"the {role}'s optimizer starts anew: no checkpoint has the state to go on with")
        elif self._learner and self._restored:
            self._learner.load_optimizer(self._restored)
        self._restored = None

    def _finish(self, step: Step, role: str, count: int) -> None:
        place = {"run/iteration": float(step.iteration), "run/phase": self.store.number_phase(step.phase)}
        step.metrics |= {**measure_memory(), **place}
        self.store.add_episodes(step.episodes, step.measured, step=step.step, phase=step.phase)
        self.store.add_traces(step.step, step.traces)
        validated, scores = [episode for episode, _ in step.validation], [scores for _, scores in step.validation]
        self.store.add_episodes(validated, scores, step=step.step, phase="validation")
        self.store.add_candidates(step.candidates, read_document=self.read_document)
        self._best = self._choose_best(step, role)
        self.store.log_metrics(step.step, step.metrics)
        if role:
            # Before the checkpoint: otherwise it would link the previous weights, and the sampler would keep them.
            self.actors.weights_changed(role)
        alarms = [*step.alarms, *(self._watch.check(step.metrics, role) if role else [])]
        for alarm in alarms:
            self.store.add_event(step.step, alarm.kind, alarm.message)
        self._position = step.step
        if step.num_searches or step.search_failure:
            self._num_lost = 0 if step.num_searches else self._num_lost + 1
        is_end = step.number + 1 == count or stop_requested() or self._num_lost == MOST_LOST
        if is_end or step.validated_after or step.step % self.config.checkpoints.every == 0:
            self._tell("saving", role)
            self._save(step.phase, step.iteration, role, suspect=bool(step.alarms))
        self.reporter.step(
            StepReport(
                step=step.step,
                num_steps=self.num_steps,
                iteration=step.iteration,
                phase=step.phase,
                phase_step=step.number + 1,
                num_phase_steps=count,
                metrics=step.metrics,
                alarms=tuple(alarm.message for alarm in alarms),
            )
        )
        self._say_if_useless(step)
        if self._num_lost == MOST_LOST:
            self._stop_searching(step)
        if alarms:
            self._act_on(alarms)

    def _tell(self, part: Part, role: str, **amounts: Any) -> None:
        if step := self._step:
            self.reporter.progress(StepProgress(step.step, self.num_steps, step.phase, part, role, **amounts))

    def _say_if_useless(self, step: Step) -> None:
        """After the run's first steps, report a note if no episode followed the protocol, so that the user can act."""
        if step.iteration == 0 and step.number + 1 == FIRST_STEPS and step.phase in FOLLOWED:
            shares, settings = self.phase_values(step, FOLLOWED[step.phase][0]), self.store.info.settings
            recipe, model = str(settings.get("recipe", "drzero")), str(settings.get("model", "the model"))
            if line := describe_useless(step.phase, shares, recipe, model):
                self.reporter.note(line)

    def _stop_searching(self, step: Step) -> None:
        """Stop the run, since no search of its last steps was answered; after its last step, only say so."""
        said = f"step {step.step}: every search of {MOST_LOST} steps in a row failed: {step.search_failure}"
        if step.step >= self.num_steps:  # to resume it would do nothing
            self.reporter.note(f"{said}; no step is left to take")
            return
        hint = f"when searches work again: quaere evolve --resume {shlex.quote(str(self.store.path))}"
        raise TrainingStopped(said, hint=hint)

    def _choose_best(self, step: Step, role: str) -> Best | None:
        """The best checkpoint after this step; among equals the later, which was trained on more.

        Its rating and that of the phase's start are metrics of the step.
        """
        best = self._best
        if best and best.role != role:
            # `take_best` restored its weights and they have not changed since, so this checkpoint has them as well.
            best = structs.replace(best, step=step.step)
        if before := step.validated_before:
            best = Best(role, self._position, before.rating, before.num_questions, before.variance)
            step.metrics |= {_START: best.rating, _ERROR: best.standard_error}
        after = step.validated_after
        if after and (best is None or after.rating >= best.rating):
            best = Best(role, step.step, after.rating, after.num_questions, after.variance)
        if after and best:
            step.metrics[_KEPT] = best.rating
        return best

    def _act_on(self, alarms: list[Alarm]) -> None:
        said = "; ".join(alarm.message for alarm in alarms)
        if self.config.health.policy == "stop":
            raise TrainingStopped(
                f"step {self._position}: {said}",
                hint=f"quaere evolve --resume {shlex.quote(str(self.store.path))} --set K=V --force",
            )
        if self.config.health.policy == "rollback":
            self._roll_back(said)

    def _roll_back(self, said: str) -> None:
        """Restore the newest healthy checkpoint and raise RolledBack; the steps after it then have other seeds.

        Raises TrainingStopped after too many rollbacks, or if no healthy checkpoint is left. `said` are the alarms.
        """
        if self._num_rollbacks >= self.config.health.max_rollbacks:
            raise TrainingStopped(f"step {self._position}: {said}; {self._num_rollbacks} rollbacks did not help")
        good = newest_checkpoint(self._root, self.reporter.note, lambda found: not _read_state(found).suspect)
        if good is None:
            raise TrainingStopped(f"step {self._position}: {said}; no healthy checkpoint is left to roll back to")
        for found in find_checkpoints(self._root):
            if found.step > good.step:
                discard_folder(found.path)
        line = f"went back from step {self._position} to step {good.step}: {said}"
        self.store.add_event(good.step, "rollback", line)
        self._restore(good)
        self.reporter.note(line)
        raise RolledBack

    def _save(self, phase: str, iteration: int, role: str = "", *, suspect: bool = False) -> None:
        state = _State(phase, iteration, self._watch.state(), suspect or self._watch.suspect, self._best, role)
        kept, write = msgspec.to_builtins(state), partial(self._write, role=role)
        saved = save_checkpoint(self._root, self._position, write, kept, keep=self.config.checkpoints.keep)
        self.actors.saved_at(saved.path)
        self._carried.find(saved.path, role)

    def _write(self, folder: Path, role: str) -> None:
        self.actors.save(folder)
        if self._memory is not None:
            self._memory.save(folder)
        if self._learner is not None:
            self._learner.save_optimizer(folder / OPTIMIZER_FILE)
        self._carried.save(folder, role)

    def _restore(self, checkpoint: Checkpoint) -> None:
        self.actors.load(checkpoint.path)
        if self._memory is not None:
            self._memory.load(checkpoint.path)
        self.store.truncate_after(checkpoint.step)
        state = _read_state(checkpoint)
        self._watch.restore(state.watch)
        self._carried.find(checkpoint.path, state.role)
        # Counted from the store's events, which are written at once: a checkpoint's state would be older.
        self._num_rollbacks = sum(event.kind == "rollback" for event in self.store.events())
        self._position = checkpoint.step
        self._best = checkpoint.best
        optimizer = checkpoint.path / OPTIMIZER_FILE
        self._restored = optimizer if optimizer.exists() else None


def _read_state(checkpoint: Checkpoint) -> _State:
    try:
        return msgspec.convert(checkpoint.state, _State)
    except msgspec.ValidationError as error:
        raise BadInput(f"checkpoint {checkpoint.path} is damaged: its state is invalid ({error})") from error


def _is_due(every: int, number: int, count: int) -> bool:
    """True at each `every`-th of the `count` steps of a phase and at the last; never if `every` is 0."""
    return every > 0 and ((number + 1) % every == 0 or number + 1 == count)


# ----------------------------------------------------------------- optimizer states that a later iteration goes on with


_PREFIX, _SUFFIX = "carried-", ".safetensors"


@dataclass
class CarriedOptimizers:
    """Optimizer states that roles keep from one iteration to the next, as files in the newest checkpoint."""

    _roles: set[str] = field(default_factory=set)
    _files: dict[str, Path] = field(default_factory=dict)

    def plan(self, role: str, *, is_carried: bool) -> None:
        """Set whether the optimizer state at the end of the role's phase is kept for a later iteration."""
        if is_carried:
            self._roles.add(role)
        else:
            self._roles.discard(role)

    def load(self, learner: Learner | TinkerLearner, role: str) -> bool:
        """Load the role's kept optimizer state into the learner; False if the newest checkpoint has none."""
        if role not in self._files:
            return False
        learner.load_optimizer(self._files[role])
        return True

    def save(self, folder: Path, role: str) -> None:
        """Hard-link the kept states into a new checkpoint, except that of `role`, which is in training."""
        for other, file in self._files.items():
            if other in self._roles and other != role:
                link_file(file, folder / f"{_PREFIX}{other}{_SUFFIX}")

    def find(self, folder: Path, role: str) -> None:
        """Record the state files of the newest checkpoint: the kept ones, and that of `role`, which is in training."""
        carried = sorted(folder.glob(f"{_PREFIX}*{_SUFFIX}"))
        self._files = {file.name.removeprefix(_PREFIX).removesuffix(_SUFFIX): file for file in carried}
        if (folder / OPTIMIZER_FILE).exists():
            self._files[role] = folder / OPTIMIZER_FILE
