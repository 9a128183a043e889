"""`quaere.learn(..., update=True)`: what was learned is refreshed after documents have changed.

    learned = learn("notes/", model="Qwen/Qwen2.5-1.5B-Instruct", out="notes-learned", update=True)
    learned.update.retired[0] -> Retired("halm.md#0:16", "Who built Halm?", ..., reason="its evidence is gone")

Each update is a folder of `learn` of its own, whose source is the index and whose model is the agent until then:

    updates/1/ plan.json, changed.json, documents.json, start/ -> kept.jsonl, retired.jsonl -> new.jsonl
    -> questions.jsonl -> practice.jsonl, held.jsonl -> before.json -> run/ -> after.json -> agent/ -> update.json

At the end DIR/agent is exchanged for the new agent at once. An update without `update.json` is not finished.

It is planned to take less than a tenth of the first learning's time: a sample of the questions held back is asked, the
old agent's answers are those of its last evaluation where its searches still find the same, and the steps are as many
of the planned ones as then fit.
"""

import hashlib
import math
import shlex
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from quaere.api.background import run_in_thread
from quaere.api.checked_questions import read_checked, recheck_questions, write_lines
from quaere.api.evaluation import Evaluation
from quaere.api.evolution import export
from quaere.api.learned import Learned, Update, find_gain, find_index
from quaere.api.learning import DOCUMENTS, REPORT, SECONDS, UPDATES, Learning
from quaere.api.learning_plan import PLAN, Plan, find_plan, store_plan
from quaere.api.learning_request import Asked
from quaere.api.printing import Progress, count
from quaere.api.run import Run
from quaere.dialects.notes import read_json
from quaere.disk import discard_folder, link_file, new_folder, write_file
from quaere.errors import BadInput
from quaere.evaluation.intervals import Interval
from quaere.recipes.registry import find_recipe
from quaere.records import Episode, Question
from quaere.rewards.answers import normalise_answer
from quaere.search.changed_documents import ChangedDocuments, digest_documents, find_changed
from quaere.search.index import open_index, update_hint
from quaere.search.index_build import update_index
from quaere.warmup.documents.checked_question import CheckedQuestion
from quaere.warmup.documents.held_back import (
    Contents,
    choose_documents,
    find_clusters,
    list_contents,
    list_documents,
    split_by_document,
)
from quaere.warmup.documents.stale_questions import Retired
from quaere.worlds.dice import Dice

_SHARE = 10  # an update drafts and trains at most this part of the first learning
_TIME_SHARE = 12  # and is planned for this part of its time, so that a tenth is enough if some stages take longer
_START_STEPS = 2  # what training takes before its first step, in steps
_LEAST_MEASURED = 50  # questions held back
_LEAST_S = 0.01  # of a stage
_FRESH_HELD = 4  # one in so many questions about new documents is held back
_PLANNED = ("solver.steps", "writer.drafts", "writer.minutes")  # settings that an update decides
_CHANGED, _UPDATE = "changed.json", "update.json"


class Cost(Struct, frozen=True):
    """What the first learning took: in all, to write questions, for a step, and for a question of an evaluation.

    Cost(total_s=1740.0, writing_s=500.0, step_s=14.2, question_s=0.4)
    """

    total_s: float
    writing_s: float
    step_s: float
    question_s: float


class _Outcome(Struct, frozen=True):
    """What an update needs of the report before: is the agent the reinforced one?"""

    is_trained: bool


class _Changed(ChangedDocuments, frozen=True, kw_only=True):
    """The changed documents, and the fingerprint of the index that has them."""

    fingerprint: str


def open_update(asked: Asked, root: Path, note: Callable[[str], None], progress: Progress) -> Learning:
    """The update of a finished learning in the folder `root`: the one under way, else a new one.

    The index is updated first. An update under way is begun again if the documents have changed meanwhile.
    """
    began_s = time.monotonic()
    plan = _find_finished(asked, root)
    index = find_index(plan, root)
    num_done = len(list((root / UPDATES).glob(f"*/{_UPDATE}")))
    earlier = root / UPDATES / str(num_done) if num_done else root
    if not (earlier / DOCUMENTS).is_file():
        raise BadInput(f"{root} is of a version that did not record its documents", hint="learn with another --out")
    if index == root / "index":
        update_index(index, progress)
    _require_agent(root, num_done)
    opened = open_index(index, check_sources=False)
    digests = digest_documents(opened)
    found = find_changed(read_json(earlier / DOCUMENTS, dict[str, str]), digests)
    if not found.touched:
        hint = "change documents first" if index == root / "index" else update_hint(index)
        raise BadInput(f"nothing changed: 0 of {count(found.num_documents, 'document')}", hint=hint)
    out = root / UPDATES / str(num_done + 1)
    changed = _Changed(**structs.asdict(found), fingerprint=opened.fingerprint)
    if out.exists() and read_json(out / _CHANGED, _Changed) != changed:
        note(f"the documents have changed again: {out} is begun anew")
        _take(out / "start", root / "agent")  # the new one, if it was killed just before its end
        discard_folder(out)
    cost = read_cost(plan, root)
    if not out.exists():
        small = plan_update(structs.replace(plan, drafts=_count_drafts(plan, root)), changed, out, index, cost)
        _begin(out, small, changed, digests, root / "agent")
    small = read_json(out / PLAN, Plan)
    refresh = _Refresh(out, small, note, progress, earlier=earlier, writer=plan.model, cost=cost)
    refresh.add_seconds("index", time.monotonic() - began_s)
    return refresh


def _find_finished(asked: Asked, root: Path) -> Plan:
    """The plan of the learning; BadInput if it is not finished, or cannot be updated."""
    if not (root / PLAN).is_file() or not (root / REPORT).is_file():
        said = "is not finished" if (root / PLAN).is_file() else "has nothing that was learned"
        raise BadInput(f"{root} {said}, so there is nothing to update", hint="the same command without --update")
    plan = find_plan(asked, root)
    if plan.trainer != "local":
        merged = f"quaere export {shlex.quote(str(root / 'run'))} --role solver --merge --out WARM"
        raise BadInput(
            "a trainer begins with the model that it serves, and an update with the agent",
            hint=f"{merged}, quaere trainer start skyrl --model WARM, then --model WARM and another --out",
        )
    return plan


def _require_agent(root: Path, num_done: int) -> None:
    """Raise BadInput if the agent is gone, with the command that brings it back."""
    if (root / "agent").is_dir():
        return
    made = (root / UPDATES / str(number) / "agent" for number in range(num_done, 0, -1))
    last = next((path for path in made if path.is_dir()), None)
    hint = "the same command without --update" if last is None else shlex.join(["cp", "-r", str(last), f"{root}/agent"])
    raise BadInput(f"{root} has lost its agent", hint=hint)


def _count_drafts(plan: Plan, root: Path) -> int:
    """The drafts of the first learning: those kept or dropped; the planned ones if its questions were given."""
    if plan.questions:
        return plan.drafts
    return sum((root / name).read_bytes().count(b"\n") for name in ("questions.jsonl", "dropped.jsonl"))


def read_cost(plan: Plan, root: Path) -> Cost:
    """What a finished learning took, by the times of its stages; a kill may have lost one, which then counts little."""
    seconds = read_json(root / SECONDS, dict[str, float])
    writing_s, before_s, training_s, after_s = (
        max(_LEAST_S, seconds.get(name, 0.0)) for name in ("questions", "before", "reinforcement", "after")
    )
    num_asked = 2 * len(Evaluation.read(root / "before.json").questions)
    return Cost(sum(seconds.values()), writing_s, training_s / plan.steps, (before_s + after_s) / num_asked)


def plan_update(plan: Plan, changed: ChangedDocuments, out: Path, index: Path, cost: Cost) -> Plan:
    """The plan of an update: a tenth of the steps, and drafts in proportion to the changed documents, at most a tenth.

    20,000 drafts and 48 steps for 200 documents, of which 6 changed: 600 drafts and 4 steps. As many questions held
    back are measured as the rest of the time allows; all in deterministic mode, which no time may change.
    """
    share = min(1 / _SHARE, len(changed.readable) / max(1, changed.num_documents))
    settings: dict[str, Any] = {name: value for name, value in plan.settings.items() if name not in _PLANNED}
    if not find_recipe(plan.recipe).takes_questions:  # it writes its own
        config = plan.config()
        for name in ("proposer.steps", "generation.candidates"):
            if num := attrgetter(name)(config):
                settings[name] = max(1, num // _SHARE)
    steps = max(1, plan.steps // _SHARE)
    left_s = cost.total_s / _TIME_SHARE - share * cost.writing_s - steps * cost.step_s
    num_measured = max(_LEAST_MEASURED, int(left_s / cost.question_s))
    return structs.replace(
        plan,
        sources=(str(index),),
        model=str(out / "start"),
        teaches_form=False,
        questions="",
        settings=settings,
        minutes=cost.total_s / 60 / _TIME_SHARE,
        drafts=max(1, math.floor(plan.drafts * share)),
        writer_minutes=plan.writer_minutes / _SHARE,
        steps=steps,
        machine=structs.replace(plan.machine, step_s=round(cost.step_s, 2)),
        num_measured=0 if plan.is_exact else num_measured,
    )


def fit_update(plan: Plan, cost: Cost, left_s: float) -> Plan:
    """The plan with as many of its steps as the seconds that are left have room for; at least one."""
    return structs.replace(plan, steps=max(1, min(plan.steps, int(left_s / cost.step_s) - _START_STEPS)))


def _begin(out: Path, plan: Plan, changed: _Changed, digests: dict[str, str], agent: Path) -> None:
    """Make the folder of an update, whole or not at all; the agent is linked, as its folder is exchanged at the end."""
    out.parent.mkdir(exist_ok=True)
    with new_folder(out) as folder:
        shutil.copytree(agent, folder / "start", copy_function=link_file)
        (folder / DOCUMENTS).write_bytes(msgspec.json.encode(digests))
        (folder / _CHANGED).write_bytes(msgspec.json.encode(changed))
        store_plan(plan, folder)


class _Refresh(Learning):
    """The stages of an update; `earlier` is the folder of the learning or update before, `writer` the first model."""

    def __init__(
        self,
        out: Path,
        plan: Plan,
        note: Callable[[str], None],
        progress: Progress,
        *,
        earlier: Path,
        writer: str,
        cost: Cost,
    ) -> None:
        super().__init__(out, plan, note, progress)
        self.earlier, self.writer, self.cost = earlier, writer, cost
        self.agent = out.parent.parent / "agent"
        self.changed = read_json(out / _CHANGED, _Changed)

    def finish(self, anyway: bool) -> Learned:
        """Do what is not done yet; `update.json` comes last."""
        learned = super().finish(anyway)
        write_file(self.out / _UPDATE, msgspec.json.format(msgspec.json.encode(learned.update), indent=1))
        return learned

    # ------------------------------------------------------------------------------------------------------- questions

    def _write_questions(self, path: Path) -> None:
        if not (kept := self.out / "kept.jsonl").exists():
            self._recheck(kept)
        new = self.out / "new.jsonl"
        if not self.changed.readable:
            write_lines(new, [])  # documents were only removed
        elif not new.exists():
            self.note(f"writing questions about {count(len(self.changed.readable), 'document')}")
            self._write_checked(new, self.writer, self.changed.readable)
        write_lines(path, [*self._read("kept"), *self._read_new()])

    def _recheck(self, path: Path) -> None:
        questions = read_checked(self.earlier / "questions.jsonl")
        how: dict[str, Any] = {"model": self.writer, "index": self.index, "note": self.note}
        how |= {"settings": self.plan.writer_settings(), "device": self.plan.machine.device}
        how["exact"] = self.plan.is_exact
        found = run_in_thread(lambda check: recheck_questions(questions, self.changed.touched, check=check, **how))
        num_checked = len(found.checked) + len(found.retired)
        self.note(f"{count(num_checked, 'question')} checked again, {len(found.retired)} retired")
        write_lines(self.out / "retired.jsonl", found.retired)
        write_lines(path, [*found.untouched, *found.checked])

    def _read_new(self) -> list[CheckedQuestion]:
        """The new questions, without those that were asked before about the same fact or in the same words."""
        kept = self._read("kept")
        ids, texts = {one.id for one in kept}, {normalise_answer(one.question) for one in kept}
        new = self._read("new")
        return [one for one in new if one.id not in ids and normalise_answer(one.question) not in texts]

    def _hold_back(self, path: Path) -> None:
        """Documents stay on their side; of new ones some are held back. As many old questions are practised as new."""
        held_before, known = (_list_all(self._read_earlier(name)) for name in ("held.jsonl", "questions.jsonl"))
        new = self._read_new()
        fresh = [one for one in new if not known.intersection(list_documents(one))]
        chosen = choose_documents(fresh, len(fresh) // _FRESH_HELD) if fresh else frozenset()
        is_held = (held_before | chosen).__contains__
        practice, held, _ = split_by_document([*self._read("kept"), *new], list_documents, list_contents, is_held)
        ids = {one.id for one in new}
        practice = self.plan.choose_practice(practice)
        old_practice, new_practice = (
            [one for one in practice if (one.id in ids) == is_new] for is_new in (False, True)
        )
        old_held = [one for one in held if one.id not in ids]
        practised = Contents(text for one in self._read_earlier("practice.jsonl") for text in list_contents(one))
        new_held = [one for one in held if one.id in ids and not any(map(practised.is_repeated_by, list_contents(one)))]
        if not any(one.answers for one in (*old_held, *new_held)):
            raise BadInput("no question is left to measure with: the agent stays", hint="learn with another --out")
        Dice(self.plan.seed, "mixed", self.out.name).shuffle(old_practice)
        practice = new_practice + old_practice[: len(new_practice)]
        write_lines(self.out / "practice.jsonl", practice)
        write_lines(path, old_held + new_held)
        sides = f"{len(old_held)} old and {len(new_held)} new held back"
        self.note(f"{count(len(practice), 'question')} to practise on, {len(new_practice)} of them new; {sides}")

    def _read_earlier(self, name: str) -> Iterator[CheckedQuestion]:
        """The questions of this file in the folders of the first learning and of the updates since."""
        before = range(1, int(self.out.name))
        for folder in (self.out.parent.parent, *(self.out.with_name(str(number)) for number in before)):
            yield from read_checked(folder / name)

    # ------------------------------------------------------------------------------------------- training and measuring

    def _list_asked(self) -> list[Question]:
        """All new questions held back up to half of the sample, and old ones; the same ones in every update.

        Those with an answer come first, as only they show a gain.
        """
        held = sorted(self._read("held"), key=lambda one: (not one.answers, hashlib.sha256(one.id.encode()).digest()))
        num, kept = self.plan.num_measured or len(held), {one.id for one in self._read("kept")}
        old, new = ([one for one in held if (one.id in kept) == is_old] for is_old in (True, False))
        new = new[: max(num // 2, num - len(old))]
        return [one.to_question() for one in (*old[: num - len(new)], *new)]

    def _measure_start(self, path: Path) -> None:
        """Measure the old agent, and reduce the planned steps to those that fit into the time that is left."""
        before = self._measure(self.start, path.stem, known=self._recall())
        if not self.plan.is_exact:
            self.store_time()
            left_s = 60 * self.plan.minutes - sum(self.seconds.values()) - len(before.questions) * self.cost.question_s
            self._change_steps(fit_update(self.plan, self.cost, left_s), left_s)
        before.write(path)

    def _recall(self) -> list[Episode]:
        """The episodes of the agent's last evaluation; a deterministic one cannot be taken from another batch."""
        is_trained = read_json(self.earlier / REPORT, _Outcome).is_trained
        stored = self.earlier / ("after" if is_trained else "before")
        if self.plan.is_exact or not stored.is_dir():
            return []
        with Run.open(stored) as run:
            return list(run.episodes())

    def _reinforce(self) -> None:
        if self.plan.practises_given and not self._read("practice"):
            self.note("there is nothing new to practise on: the agent stays as it is")
            return
        super()._reinforce()

    def _measure_end(self, path: Path) -> None:
        if self.run.exists():
            super()._measure_end(path)
        else:
            write_file(path, (self.out / "before.json").read_bytes())

    def _collect(self, anyway: bool) -> Learned:
        learned = super()._collect(anyway)
        old = {one.id for one in self._read("kept")}
        measured = (learned.before, learned.after, find_clusters(self._read("held")))
        regression = find_gain(*measured, old.__contains__)
        retired = msgspec.json.Decoder(Retired).decode_lines((self.out / "retired.jsonl").read_bytes())
        touched = [one for one in self._read("kept") if self.changed.touched.intersection(list_documents(one))]
        found = Update(
            documents=ChangedDocuments(*(getattr(self.changed, name) for name in ChangedDocuments.__struct_fields__)),
            num_checked=len(retired) + len(touched),
            retired=retired,
            num_new=len(self._read_new()),
            regression=regression,
            gain=find_gain(*measured, lambda name: name not in old),
            is_worse=regression is None or is_loss(regression),
        )
        is_taken = self.run.exists() and (anyway or not found.is_worse)
        if self.run.exists() and not is_taken:
            lost = "worse at old questions held back" if regression else "no old question is held back"
            self.note(f"{lost}: the agent stays as it is")
        return structs.replace(learned, update=found, is_trained=is_taken)

    def _export(self, learned: Learned) -> Learned:
        """Exchange the agent for the new one at once, if it is taken."""
        if not learned.is_trained:
            return learned
        made = self.out / "agent"
        if not made.exists():
            with self._timed("agent"):
                export(self.run, made, role="solver")
        _take(made, self.agent)
        return learned


def _take(weights: Path, agent: Path) -> None:
    """Exchange the agent for these weights at once."""
    with new_folder(agent) as folder:
        shutil.copytree(weights, folder, dirs_exist_ok=True, copy_function=link_file)


def is_loss(difference: Interval) -> bool:
    """True if the interval is below 0; if it is [-1, 1], as few documents can have it, it says nothing: by the mean."""
    says_nothing = (difference.low, difference.high) == (-1, 1)
    return (difference.mean if says_nothing else difference.high) < 0


def _list_all(questions: Iterable[CheckedQuestion]) -> set[str]:
    """The documents that the questions are about."""
    return {name for question in questions for name in list_documents(question)}
