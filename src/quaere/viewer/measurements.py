"""A run's questions before and after: measured twice, or practised at the first steps and at the last.

find_measured(run, "notes", lines, results).after["q1"] -> Tried("notes", "i0-s3-q1-a0", 4, "Brod", share=0.25, num=8)

In this order of preference: what `quaere learn` measured before and after the run, with questions that share no
document with those practised on; the run's own validation, with questions held back from training; else its practice,
whose first and last questions are different ones.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import zip_longest

import msgspec
from msgspec import Struct

from quaere.api.printing import count
from quaere.api.run import Run
from quaere.disk import read_regular
from quaere.evaluation.intervals import Interval
from quaere.grouping import group_by
from quaere.records import Candidate, Evidence, SolveTask
from quaere.rewards.abstention import has_hidden_answer
from quaere.runs.rows import Outcome
from quaere.viewer.evaluation_pages import EvaluationResults, Result
from quaere.viewer.plot import Series
from quaere.viewer.run_folder import LEARN_RUN, MEASUREMENTS, NotShown

VALIDATION = "validation"  # the phase of the answers to questions held back ...
_START = "validation_start"  # ... and, in the ids of episodes, what precedes a phase's first step
RIGHT = "answer/exact_match"
HIDDEN = "answer hidden"  # the kind of question that is to be refused
_PART = 5  # practice: the first and the last fifth of the steps ...
_MOST_STEPS = 10  # ... but of no more steps than these, whose episodes have to be read
_COPIES = ("questions.jsonl", "given.jsonl")  # a run's copy of its questions
_MAX_COPY_BYTES = 8_000_000  # a larger copy takes too long to read
_MOST_READ = 300  # questions among which some are chosen to show


class Asked(Struct, frozen=True):
    """A question with its accepted answers and the sentence that proves them, where they are known.

    `answer_kind` is the kind of answer that it asks for, such as "yes/no".

    Asked("q1", "Who built the Halm bridge?", ["Orsolya Venn"], "1 search", "Orsolya Venn built it.", "halm.md", "name")
    """

    id: str
    question: str
    answers: list[str] = []
    kind: str = ""
    sentence: str = ""
    document: str = ""
    answer_kind: str = ""

    @property
    def kinds(self) -> str:
        """Both kinds in words: "yes/no, 1 search"."""
        return ", ".join(filter(None, (self.answer_kind, self.kind)))


class Tried(Struct, frozen=True):
    """Attempts at a question at one step: the share that was right, and one of them.

    Tried(run="notes", episode="i0-s3-q1-a0", step=4, answer="Brod", share=0.25, num=8)
    """

    run: str
    episode: str
    step: int
    answer: str | None
    share: float
    num: int = 1
    is_abstained: bool = False


class Measured(Struct, frozen=True):
    """Attempts before and after by question id; `earlier` are those that `after` is compared with question by question.

    `since` and `until` say when: "before step 1", "after step 30"; `best_step` is the step of the weights that were
    measured after, None if it is the last one. `refused` are the shares of unanswerable questions
    that were refused before and after, [] where these count among the others.
    """

    before: dict[str, Tried]
    after: dict[str, Tried]
    earlier: dict[str, Tried]
    asked: dict[str, Asked]
    is_held_back: bool
    since: str
    until: str
    refused: list[Interval] = []
    best_step: int | None = None
    course: Series | None = None  # shares of right answers in between, where the questions were the same
    clusters: dict[str, Hashable] = {}  # clusters of questions that depend on each other, by question id, if known


def find_measured(run: Run, name: str, lines: Mapping[str, Series], results: EvaluationResults) -> Measured | None:
    """The best measurements of a run before and after; None if it was not measured twice. `lines` are its metrics."""
    learned = read_learning(results, name, find_best_step(lines))
    return learned or _read_validation(run, name, lines) or _read_practice(run, name, lines)


def read_learning(results: EvaluationResults, name: str, best_step: int | None = None) -> Measured | None:
    """What `quaere learn` measured before and after its run `name`; None for the run of another command."""
    if name != LEARN_RUN or not set(MEASUREMENTS) <= set(results.names()):
        return None
    try:
        before, after = map(results.find, MEASUREMENTS)
    except NotShown:  # it has just begun to measure
        return None
    tried = [_try_result(result) for result in (before, after)]
    asked = {
        item.id: Asked(item.id, after.texts[item.id], kind=name_kind(item.searches_needed), answer_kind=item.kind)
        for item in after.scored.items
    }
    scores = [result.scored.score.abstention for result in (before, after)]
    refused = [score.refused for score in scores if score and score.refused]
    said = (True, "before", "after training", refused, best_step)
    return Measured(tried[0], tried[1], tried[0], asked, *said, clusters=results.find_clusters())


def find_best_step(lines: Mapping[str, Series]) -> int | None:
    """The step whose weights the last phase kept, the best by validation; None if it is the last, or is not known.

    The rule is that of training: among equals the later. The step before the first stands for the weights before it.
    """
    start, after = (lines.get(f"{name}/rating") or lines.get(f"{name}/exact_match") for name in (_START, VALIDATION))
    if start is None or after is None:
        return None
    first = start.steps[-1]
    later = {step: value for step, value in zip(after.steps, after.values, strict=True) if step >= first}
    scores = {first - 1: start.values[-1], **later}
    best = max(scores, key=lambda step: (scores[step], step))
    return best if best < max(scores) else None


def _try_result(result: Result) -> dict[str, Tried]:
    return {
        item.id: Tried(
            result.run, result.episodes[item.id], 0, item.answer, item.exact_match, is_abstained=item.abstained
        )
        for item in result.scored.items
        if item.answerable
    }


def _read_validation(run: Run, name: str, lines: Mapping[str, Series]) -> Measured | None:
    """The validations of the last phase that has two: other phases have other questions."""
    first, last = (lines.get(f"{name}/exact_match") for name in (_START, VALIDATION))
    if first is None or last is None or last.steps[-1] < first.steps[-1]:
        return None
    start = first.steps[-1]
    steps = [step for step in last.steps if step >= start]
    held = [one for one in run.outcomes(steps={start, *steps}) if one.phase == VALIDATION]
    at = group_by(held, lambda one: start - 1 if is_start(one) else one.step)
    rows = [at.get(step, []) for step in (start - 1, *steps)]
    tried = [try_outcomes(name, of) for of in rows]
    shares = [sum(one.share for one in of.values()) / max(1, len(of)) for of in tried]
    return Measured(
        before=tried[0],
        after=tried[-1],
        earlier=tried[0],
        asked=find_asked(run, rows[-1]),
        is_held_back=True,
        since=f"before step {start}",
        until=f"after step {steps[-1]}",
        course=Series("held back", [start - 1, *steps], shares),
    )


def _read_practice(run: Run, name: str, lines: Mapping[str, Series]) -> Measured | None:
    steps = lines[RIGHT].steps if RIGHT in lines else []
    if len(steps) < 2:
        return None
    size = min(max(1, len(steps) // _PART), _MOST_STEPS)
    parts = steps[:size], steps[-size:]
    first, last = ([one for one in run.outcomes(steps=part) if one.phase != VALIDATION] for part in parts)
    after = try_outcomes(name, last)
    before = {*steps[:-size]}  # a proposer's steps have attempts, too
    earlier = [one for one in run.outcomes(task_ids=after) if one.step in before and one.phase != VALIDATION]
    said = [f"{'step' if size == 1 else 'steps'} {part[0]}{f' to {part[-1]}' * (size > 1)}" for part in parts]
    return Measured(
        before=try_outcomes(name, first),
        after=after,
        earlier=try_outcomes(name, earlier),
        asked=find_asked(run, [*first, *last]),
        is_held_back=False,
        since=f"at {said[0]}",
        until=f"at {said[1]}",
    )


def try_outcomes(run: str, outcomes: Iterable[Outcome]) -> dict[str, Tried]:
    """The attempts by question, at the first step that each question has."""
    tried = {}
    for id, all_of in group_by(outcomes, lambda one: one.task_id).items():
        group = [one for one in all_of if one.step == all_of[0].step]
        shown, share = find_typical(group), sum(one.is_right for one in group) / len(group)
        tried[id] = Tried(run, shown.id, shown.step, shown.answer, share, len(group), bool(shown.is_abstained))
    return tried


def find_typical(group: Sequence[Outcome]) -> Outcome:
    """The attempt to show for a group: a right one if most are right, else one with the commonest wrong answer."""
    right = [one for one in group if one.is_right]
    alike = group_by([one for one in group if not one.is_right], lambda one: one.answer).values()
    return (right if 2 * len(right) > len(group) else max(alike, key=len))[0]


def is_start(one: Outcome) -> bool:
    """True for an answer to a held-back question before the first step of a phase."""
    return one.phase == VALIDATION and f"-{_START}-" in one.id


# ----------------------------------------------------------------------------------------------------------- questions


def find_asked(run: Run, outcomes: Sequence[Outcome]) -> dict[str, Asked]:
    """What the run knows of the questions of these attempts, by id: from its curriculum, else from its copy of them."""
    texts = {one.task_id: one.question for one in outcomes}
    known = {each.id: _describe(each) for each in run.find_candidates(texts)}
    if len(known) < len(texts):
        known |= {each.id: each for each in _read_copy(run) if each.id in texts}
    hidden = {id: Asked(id, text, kind=HIDDEN) for id, text in texts.items() if has_hidden_answer(id)}
    return {id: known.get(id, Asked(id, text)) for id, text in texts.items()} | hidden


def read_asks(run: Run, most: int) -> list[Asked]:
    """Some questions of the curriculum, those with evidence first and their kinds in turn; [] if there is none."""
    found = [_describe(each) for each in run.first_candidates(_MOST_READ)] or _read_copy(run)[:_MOST_READ]
    proven = [each for each in found if each.sentence] or found
    return take_turns(proven)[:most]


def take_turns(asked: Iterable[Asked]) -> list[Asked]:
    """The questions with their kinds in turn, so that the first ones are of all kinds."""
    kinds = sorted(group_by(asked, lambda each: each.kind).items())
    return [each for turn in zip_longest(*(of for _, of in kinds)) for each in turn if each is not None]


def read_accepted(run: Run, episode: str) -> list[str]:
    """The accepted answers of an episode's question."""
    task = run.episode(episode).task
    return list(task.question.answers) if isinstance(task, SolveTask) else []


def name_kind(num_searches: int) -> str:
    """The kind of a question by the searches it needs: "2 searches", "" if unknown."""
    return count(num_searches, "search") if num_searches else ""


def _describe(candidate: Candidate) -> Asked:
    proof = candidate.evidence or next(iter(candidate.proof[-1:]), None)
    kind = candidate.question_type or name_kind(candidate.num_searches)
    sentence, document = (proof.text, proof.doc_id) if proof else ("", "")
    return Asked(candidate.id, candidate.question, list(candidate.answers), kind, sentence, document)


class _Copied(Struct):
    """A line of a run's copy of its questions; its other fields are not shown."""

    id: str
    question: str
    answers: list[str] = []
    searches: int = 0
    evidence: list[Evidence] = []


def _read_copy(run: Run) -> list[Asked]:
    for path in (run.path / name for name in _COPIES):
        try:
            if path.is_file() and path.stat().st_size <= _MAX_COPY_BYTES:
                lines = msgspec.json.Decoder(_Copied).decode_lines(read_regular(path))
                return [_describe_copied(line) for line in lines]
        except (OSError, msgspec.DecodeError):  # the page shows the run without it
            continue
    return []


def _describe_copied(line: _Copied) -> Asked:
    sentence, document = (line.evidence[-1].text, line.evidence[-1].doc_id) if line.evidence else ("", "")
    return Asked(line.id, line.question, line.answers, name_kind(line.searches), sentence, document)
