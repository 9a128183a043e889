"""`quaere.learn`: from a folder of documents to a better agent, without labels.

    learned = learn("notes/", model="Qwen/Qwen2.5-1.5B-Instruct", out="notes-learned", minutes=30)
    learned.gain -> Interval(mean=0.07, low=0.01, high=0.13, num=169)
    Agent(learned.agent, learned.index)

Each stage has an output in the folder, written whole. A stage whose output is there is done, so the same call resumes:

    plan.json -> index/ -> questions.jsonl -> practice.jsonl, held.jsonl -> form/ -> before/, before.json -> run/
    -> after/, after.json -> agent/ -> report.html, report.json

With `update`, `learning_update.py` runs these stages for the documents that have changed since.
"""

from __future__ import annotations

import gc
import shlex
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import msgspec
from msgspec import structs

from quaere.api.agent import Agent, LimitOptions
from quaere.api.background import run_in_thread
from quaere.api.checked_questions import read_checked, summarise, write_checked, write_lines
from quaere.api.evaluation import Evaluation, evaluate
from quaere.api.evolution import evolve, export
from quaere.api.learned import Learned, count_solver_steps, describe_questions, draw_kinds, find_gain, find_index
from quaere.api.learning_plan import HELD, Plan, fit_steps, naming_form, obtain_plan, store_plan
from quaere.api.learning_request import ask_for
from quaere.api.learning_times import Answered
from quaere.api.printing import Progress, count, format_duration, no_progress
from quaere.api.run import Run
from quaere.api.warmup import warmup
from quaere.dialects.notes import Notes, config_notes, find_role, read_json
from quaere.disk import discard_folder, write_file
from quaere.errors import BadInput
from quaere.evaluation.qa.abstaining import add_hidden
from quaere.recipes.registry import find_recipe
from quaere.records import Episode, Question
from quaere.rewards.abstention import has_hidden_answer
from quaere.search.changed_documents import digest_documents
from quaere.search.index import open_index
from quaere.search.index_build import build_index
from quaere.training.exports import export_untrained
from quaere.training.progress import StepReport, describe_figures
from quaere.warmup.documents.checked_question import CheckedQuestion
from quaere.warmup.documents.held_back import (
    choose_documents,
    find_clusters,
    list_contents,
    list_documents,
    split_by_document,
)

if TYPE_CHECKING:
    from quaere.rollout.policy import Policy
    from quaere.warmup.imitation import TeachingStep

_LEAST_DOCUMENTS = 2
_LEAST_QUESTIONS = 8  # to practise on, and to measure with
_MOST_PREVIEWED = 20
_STORED_EVERY_S = 5.0
REPORT, DOCUMENTS, SECONDS, UPDATES = "report.json", "documents.json", "seconds.json", "updates"
_ANSWERED, _CHOICE = "answered.json", "agent.json"


def learn(
    sources: str | Path | Sequence[str | Path],
    *,
    model: str | Path,
    out: str | Path,
    minutes: float = 30,
    recipe: str = "search-r1",
    questions: str | Path | None = None,
    config: str | Path | None = None,
    settings: Mapping[str, object] | None = None,
    seed: int = 0,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    trainer: Literal["local", "tinker"] = "local",
    trainer_url: str = "",
    anyway: bool = False,
    update: bool = False,
    on_note: Callable[[str], None] = lambda line: None,
    on_progress: Progress = no_progress,
) -> Learned:
    """Train a model to answer questions about documents; after a kill, the same call continues.

    `sources` are folders, documents or one index. Questions are written and checked by the model, or those of the file
    `questions`. `settings` are the recipe's by name and overrule those of the YAML file `config`; "form.NAME" is a
    setting of `warmup` and "writer.NAME" one of the question writer. If the interval of the gain is not above 0, the
    agent is the model before reinforcement, except with `anyway`. With `trainer`, the model samples and is reinforced
    on the server at `trainer_url`. With `update` and otherwise the same arguments, a finished learning is refreshed
    after its documents have changed. `on_progress` is called with what is being done, how much of it is done, and how
    much there is.
    """
    how: dict[str, Any] = {"minutes": minutes, "recipe": recipe, "seed": seed, "device": device}
    how |= {"trainer": trainer, "trainer_url": trainer_url}
    asked = ask_for(sources, model, questions, config, settings, **how)
    folder = Path(out).expanduser().absolute()
    if update:
        from quaere.api.learning_update import open_update

        return open_update(asked, folder, on_note, on_progress).finish(anyway)
    plan = obtain_plan(asked, folder)
    return Learning(folder, plan, on_note, on_progress).finish(anyway)


def preview_questions(
    plan: Plan, *, on_note: Callable[[str], None] = lambda line: None, on_progress: Progress = no_progress
) -> list[CheckedQuestion]:
    """At most twenty questions about the documents of a plan, of all kinds, written on the spot; none is kept."""
    few = {"writer.drafts": 3 * _MOST_PREVIEWED, "writer.minutes": 0}
    with tempfile.TemporaryDirectory(prefix="quaere-learn-") as folder:
        small = structs.replace(plan, settings={**plan.settings, **few})
        return Learning(Path(folder), small, on_note, on_progress).preview()[:_MOST_PREVIEWED]


class Learning:
    """The stages of a plan in its folder; an update overrides some of them."""

    def __init__(self, out: Path, plan: Plan, note: Callable[[str], None], progress: Progress) -> None:
        self.out, self.plan, self.note, self._progress = out, plan, note, progress
        self.index = find_index(plan, out)
        self.form, self.run, self.agent = out / "form", out / "run", out / "agent"
        self.start = str(self.form) if plan.teaches_form else plan.model
        path = out / SECONDS
        self.seconds = read_json(path, dict[str, float]) if path.is_file() else {}
        self.stage = ""  # that is under way
        # When this call began it, up to when its time is stored, and when its agent was loaded.
        self.began_s = self.stored_s = self.opened_s = 0.0
        self.answered = Answered()  # by the first evaluation so far: it decides how many steps fit

    def finish(self, anyway: bool) -> Learned:
        """Do what is not done yet, stage by stage."""
        from quaere.api.learned_page import write_page

        if not (self.out / "after.json").exists():  # else all that takes time is done
            for name, said in self.plan.describe():
                self.note(f"{name}: {said}")
        self._stage("index", self.index, self._build_index)
        self._stage("questions", self.out / "questions.jsonl", self._write_questions)
        self._stage("split", self.out / HELD, self._hold_back)
        if self.plan.teaches_form:
            self._stage("form", self.form, self._teach_form)
        self._stage("before", self.out / "before.json", self._measure_start)
        self._reinforce()
        self._stage("after", self.out / "after.json", self._measure_end)
        learned = self._export(self._collect(anyway))
        write_page(learned, self.out / "report.html")
        write_file(self.out / REPORT, msgspec.json.format(msgspec.json.encode(learned, enc_hook=str), indent=1))
        return learned

    def preview(self) -> list[CheckedQuestion]:
        """Questions about the documents, with their kinds in turn."""
        self._stage("index", self.index, self._build_index)
        self._stage("questions", self.out / "questions.jsonl", self._write_questions)
        return draw_kinds(self._read("questions"))

    def _stage(self, name: str, output: Path, work: Callable[[Path], None]) -> None:
        if not output.exists():
            with self._timed(name):
                work(output)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        """Adds the time to that of earlier calls, now and then (`progress`) and also if the stage is stopped."""
        self.stage, self.began_s = name, time.monotonic()
        self.stored_s = self.began_s
        try:
            yield
        finally:
            self.store_time()
            self.stage = ""
            _free_memory()

    def progress(self, doing: str, done: int, total: int | None, stands: str = "") -> None:
        """Tell the progress, and store the time of the stage: a killed process cannot."""
        if self.stage and time.monotonic() - self.stored_s > _STORED_EVERY_S:
            self.store_time()
        self._progress(doing, done, total, stands)

    def store_time(self) -> None:
        """Store the time of the stage until now, and what the first evaluation has answered in it."""
        now_s = time.monotonic()
        self.add_seconds(self.stage, now_s - self.stored_s)
        self.stored_s = now_s
        if self.answered.num:
            write_file(self.out / _ANSWERED, msgspec.json.encode(self.answered))

    def add_seconds(self, name: str, seconds: float) -> None:
        """Add to the time of a stage."""
        self.seconds[name] = round(self.seconds.get(name, 0.0) + seconds, 2)
        write_file(self.out / SECONDS, msgspec.json.encode(self.seconds))

    # ------------------------------------------------------------------------------------------------------- questions

    def _build_index(self, path: Path) -> None:
        self.note("indexing the documents")
        index = build_index([Path(source) for source in self.plan.sources], path, progress=self.progress)
        self.note(f"{count(len(index), 'passage')} of {count(index.manifest.num_documents, 'document')}")
        if index.manifest.num_documents < _LEAST_DOCUMENTS:
            discard_folder(path)  # of the same call once there are more
            self._refuse_one()

    def _refuse_one(self) -> NoReturn:
        said = f"{', '.join(self.plan.sources)}: one document is not enough, as questions are held back by document"
        raise BadInput(said, hint="add documents, or split it into several files")

    def _write_questions(self, path: Path) -> None:
        index = open_index(self.index, check_sources=False)
        num_documents = index.manifest.num_documents
        if num_documents < _LEAST_DOCUMENTS:
            self._refuse_one()
        write_file(self.out / DOCUMENTS, msgspec.json.encode(digest_documents(index)))
        if self.plan.questions:
            write_lines(path, read_checked(Path(self.plan.questions)))
            return
        self.note(f"writing questions about {count(num_documents, 'document')}")
        self._write_checked(path, self.plan.model)

    def _write_checked(self, path: Path, model: str, documents: Collection[str] | None = None) -> None:
        """Let the model write questions about the documents, by default all."""

        def write(check: Callable[[], None]) -> None:
            def progress(doing: str, done: int, total: int | None, stands: str = "") -> None:
                check()
                self.progress(doing, done, total, stands)

            how: dict[str, Any] = {
                "device": self.plan.machine.device,
                "out": path,
                "dropped": self.out / "dropped.jsonl",
                "documents": documents,
                "load": self._find_loader(model),
                "exact": self.plan.is_exact,
            }
            settings = self.plan.writer_settings()
            written = write_checked(model, self.index, settings, **how, note=self.note, progress=progress)
            for line in summarise(written, path):
                self.note(line)

        run_in_thread(write)

    def _hold_back(self, path: Path) -> None:
        questions = self._read("questions")
        num = min(self.plan.num_held_back, len(questions) // 4)
        chosen = choose_documents(questions, num)
        practice, held, num_left_out = split_by_document(questions, list_documents, list_contents, chosen.__contains__)
        practice = self.plan.choose_practice(practice)
        clusters = find_clusters(held)
        measured = [clusters[one.id] for one in held if one.answers]
        least = min(len(practice), len(measured)) if self.plan.practises_given else len(measured)
        if least < _LEAST_QUESTIONS:
            answered = f"{len(measured)} with an answer to hold back"
            raise BadInput(
                f"{len(questions)} questions are too few: {len(practice)} to practise on and {answered}",
                hint="more documents, a larger --model, or more --minutes; with another --out",
            )
        given = "" if self.plan.practises_given else " but its own"
        write_lines(self.out / "practice.jsonl", practice)
        write_lines(path, held)
        sides = f"{len(held)} held back, {num_left_out} left out"
        self.note(f"{count(len(practice), 'question')} to practise on{given}, {sides}")
        num_clusters = len(set(measured))
        alone = ", and one shows no gain" if num_clusters == 1 else ""
        self.note(f"the interval of the gain is over {count(num_clusters, 'cluster')} of linked documents{alone}")

    def _read(self, name: str) -> list[CheckedQuestion]:
        return read_checked(self.out / f"{name}.jsonl")

    # -------------------------------------------------------------------------------------------------------- training

    def _teach_form(self, path: Path) -> None:
        self.note(f"teaching {self.plan.model} the form of an episode")

        def tell(step: TeachingStep) -> None:
            self.progress("teaching the form", step.step, step.num_steps, f"loss {step.loss:.3f}")

        given: dict[str, Any] = {"settings": self.plan.form_settings(), "on_step": tell, "on_note": self.note}
        with naming_form():
            warmup(self.plan.recipe, model=self.plan.model, out=path, **given)

    def _reinforce(self) -> None:
        told: dict[str, Any] = {"on_step": self._tell_step, "on_note": self.note}
        if self.run.exists():
            with Run.open(self.run) as run:
                if run.state().name != "done":
                    moved = {"trainer.url": self.plan.trainer_url} if self.plan.trainer_url else {}
                    with self._timed("reinforcement"):
                        run.resume(settings=moved, **told)
            return
        practice = str(self.out / "practice.jsonl")
        self.note(f"reinforcing; watch it with: quaere view {shlex.quote(str(self.run))}")
        with self._timed("reinforcement"):
            evolve(
                self.plan.recipe,
                index=self.index,
                model=self.start,
                questions=practice if find_recipe(self.plan.recipe).takes_questions else None,
                preset=self.plan.preset,
                settings=self.plan.training_settings(practice),
                out=self.run,
                **told,
            ).close()

    def _tell_step(self, report: StepReport) -> None:
        self.progress("reinforcing", report.step, report.num_steps, ", ".join(describe_figures(report)))

    # ------------------------------------------------------------------------------------------------------- measuring

    def _measure_start(self, path: Path) -> None:
        """The first evaluation, and the steps that fit into the time it leaves; both are stored once it is over."""
        timed, rows = self.out / _ANSWERED, self.plan.config(self.start).engine.max_rows
        earlier = read_json(timed, Answered) if timed.is_file() else Answered()  # by calls that were killed
        self.answered, answered_s = earlier, list[float]()

        def progress(doing: str, done: int, total: int | None, stands: str = "") -> None:
            answered_s.append(time.monotonic())
            self.answered = earlier.add(self.opened_s, answered_s, rows)
            self.progress(doing, done, total, stands)

        before = self._measure(self.start, path.stem, progress)
        self.store_time()
        if self.answered.num:
            # The last evaluation takes as long as all calls of this one, and the training loads the model, too.
            planned_s = self.seconds[self.stage] + self.opened_s - self.began_s
            left_s = 60 * self.plan.minutes - sum(self.seconds.values()) - planned_s
            self._change_steps(fit_steps(self.plan, self.answered.episode_s, left_s), left_s)
        self.answered = Answered()
        timed.unlink(missing_ok=True)
        before.write(path)

    def _measure_end(self, path: Path) -> None:
        self._measure(Run.open(self.run), path.stem).write(path)

    def _change_steps(self, fitted: Plan, left_s: float) -> None:
        """Store the plan with the steps that fit into the seconds that are left."""
        if fitted == self.plan:
            return
        store_plan(fitted, self.out)
        step = f"{count(fitted.steps, 'step')} of about {format_duration(fitted.machine.step_s)}"
        self.note(f"{step}, where {self.plan.steps} were planned: {format_duration(max(0.0, left_s))} are left")
        self.plan = fitted

    def _measure(
        self, model: str | Run, name: str, progress: Progress | None = None, known: Sequence[Episode] = ()
    ) -> Evaluation:
        config = self.plan.config(self.start)
        limits = {name: getattr(config.solver.limits, name) for name in LimitOptions.__annotations__}
        engine = {"device": self.plan.machine.device, "max_rows": config.engine.max_rows}
        engine |= {"deterministic": self.plan.is_exact}
        stored = self.out / name
        if self.plan.is_exact and stored.exists():
            discard_folder(stored)  # the questions that are left would be batched differently
        asked = self._list_asked()
        num_hidden = sum(has_hidden_answer(question.id) for question in asked)
        again = f", {num_hidden} of them again with the answer hidden" if num_hidden else ""
        self.note(f"measuring on {count(len(asked) - num_hidden, 'question')} held back{again}")
        load = self._find_loader(model)
        notes = self._note_prompts()
        prompts: dict[str, Any] = {
            name: getattr(notes, name) for name in ("dialect", "style", "evidence", "abstention")
        }
        prompts |= {"guided": False, "min_overlap": 0.0}
        with Agent(model, self.index, load=load, on_note=self.note, **prompts, **engine, **limits) as agent:
            self.opened_s = time.monotonic()
            how: dict[str, Any] = {"run": stored, "known": known, "on_progress": progress or self.progress}
            return evaluate(agent, asked, name=name, **how)

    def _note_prompts(self) -> Notes:
        """How the start and the end are both asked: as in training."""
        return config_notes(msgspec.to_builtins(self.plan.config(self.start)), self.plan.recipe)

    def _find_loader(self, model: str | Run) -> Callable[[], Policy] | None:
        """What opens the model on the trainer's server; None if it is computed here."""
        if self.plan.trainer == "local":
            return None
        from quaere.training.remote_actors import open_remote_policy

        folder = find_role(model.path, "solver").folder if isinstance(model, Run) else None
        return partial(open_remote_policy, self.plan.config(self.start), folder, self.note)

    def _list_asked(self) -> list[Question]:
        """The questions to measure with: those held back, each a second time with its answer hidden."""
        return add_hidden([question.to_question() for question in self._read("held")])[0]

    def _export(self, learned: Learned) -> Learned:
        """Write the agent unless it is there; `agent.json` says which it is, as `anyway` exchanges it."""
        choice, chosen = self.out / _CHOICE, {"trained": learned.is_trained}
        if self.agent.exists() and choice.is_file() and read_json(choice, dict[str, bool]) == chosen:
            return learned
        if self.agent.exists() and (self.out / UPDATES).exists():
            said = f"{self.out} was updated since, so the agent of its first learning is no longer exchanged"
            other = "without" if learned.is_trained else "with"
            raise BadInput(said, hint=f"the command {other} --anyway, or with --update")
        for name in (_CHOICE, REPORT):  # first: they must not speak of the next agent if this is killed
            (self.out / name).unlink(missing_ok=True)
        if self.agent.exists():
            discard_folder(self.agent)
        with self._timed("agent"):
            if learned.is_trained:
                export(self.run, self.agent, role="solver")
            else:
                self.note(f"{learned.gain.verdict}: the agent is the model before reinforcement")
                export_untrained(self.start, self._note_prompts(), self.agent)
        write_file(choice, msgspec.json.encode(chosen))
        return learned

    def _collect(self, anyway: bool) -> Learned:
        before, after = (Evaluation.read(self.out / f"{name}.json") for name in ("before", "after"))
        gain = find_gain(before, after, find_clusters(self._read("held")))
        assert gain is not None  # some have an answer
        return Learned(
            out=self.out,
            plan=self.plan,
            before=before,
            after=after,
            gain=gain,
            is_better=gain.low > 0,
            seconds=self.seconds,
            agent=self.agent,
            num_steps=count_solver_steps(self.run),
            is_trained=anyway or gain.low > 0,
            **describe_questions(self._read("questions"), before, after),
        )


def _free_memory() -> None:
    """Give back what a stage held on the GPU, as the next one loads a model of its own."""
    import torch

    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()
