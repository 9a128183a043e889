"""Answers to a set of questions, scored; each episode is stored in a run, which goes on after a stop.

with open_stored(path, settings) as run:
    scores = await answer_questions(agent, questions, stored=run)
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from quaere.api.agent import OpenAgent, show_progress
from quaere.api.answer import refuse_all_failed
from quaere.api.printing import Progress
from quaere.chat.terminal_text import shorten_number
from quaere.errors import BadInput
from quaere.evaluation.qa.repeatable import find_repeatable
from quaere.evaluation.qa.scores import AnsweringScore, QuestionScore, evaluate, score_episode
from quaere.records import Episode, Question, SolveTask, Turn
from quaere.runs import Run
from quaere.runs.directory import list_command
from quaere.runs.rows import PLACE

_FREE = {"name", "max_rows"}  # may differ: neither changes what is asked, and fewer rows may be why it is run again
_LATER = {"index_fingerprint"}  # evaluations that were stopped before it was stored go on without it
_ABSTENTION = ("refused", "refused_answerable", "wrong", "wrong_at_80")
_EVIDENCE = ("present", "verbatim", "supported", "joint", "gold", "gold_joint")


async def answer_questions(
    agent: OpenAgent,
    questions: Sequence[Question],
    *,
    stored: Run | None = None,
    known: Sequence[Episode] = (),
    progress: bool | Progress = True,
    doing: str = "answering",
    on_stored: Callable[[], None] = lambda: None,
) -> list[QuestionScore]:
    """Answer the questions that neither the run nor `known` answers; every episode is stored as soon as it ends.

    Stored episodes in which the model or a search failed are no answers: they are asked again. `doing` names the work
    in the progress, and `on_stored` is called after each episode.
    """
    least = agent.min_confidence
    places = {question.id: {PLACE: float(place)} for place, question in enumerate(questions)}
    done = _take_answers(stored, questions, evidence=agent.cites, min_confidence=least) if stored else {}
    done |= await _recall(agent, [one for one in questions if one.id not in done], known, stored, places)
    left = [question for question in questions if question.id not in done]
    failed: list[Episode] = []
    rights = [score.exact_match for score in done.values() if score.answerable]
    started, num_tokens = time.monotonic(), 0

    with show_progress(doing, len(left), progress) as advance:

        def count(turn: Turn) -> None:
            nonlocal num_tokens
            num_tokens += turn.num_tokens + turn.note_tokens

        def keep(episode: Episode, score: QuestionScore) -> None:
            if stored:
                stored.add_episode(episode, score_metrics(score) | places[score.id])
                on_stored()
            failed.extend([episode] if episode.end == "failed" else [])
            rights.extend([score.exact_match] if score.answerable else [])
            rate = num_tokens / max(time.monotonic() - started, 1e-9)
            matched = f"EM {sum(rights) / len(rights):.3f}, " if rights else ""
            advance(f"{matched}{shorten_number(rate)} tok/s")

        how: dict[str, Any] = {"seed": agent.seed, "concurrency": agent.max_rows, "on_episode": keep, "on_turn": count}
        how |= {"attempts": agent.attempts, "min_confidence": least}
        scores = await evaluate(agent.policy, agent.protocol, agent.searcher, left, agent.limits, **how)
    if len(failed) == len(questions):
        refuse_all_failed(failed)
    done |= {score.id: score for score in scores}
    return [done[question.id] for question in questions]


async def _recall(
    agent: OpenAgent,
    questions: Sequence[Question],
    known: Sequence[Episode],
    stored: Run | None,
    places: Mapping[str, dict[str, float]],
) -> dict[str, QuestionScore]:
    """Scores of the known episodes that would be the same again, which are stored like others."""
    asked, protocol = {question.id: SolveTask(question) for question in questions}, agent.protocol.name
    same = [one for one in known if one.task == asked.get(one.id) and one.protocol == protocol]
    episodes = await find_repeatable(same, agent.searcher, agent.limits)
    least = agent.min_confidence
    scores = [score_episode(episode, evidence=agent.cites, min_confidence=least) for episode in episodes]
    if stored:
        stored.add_episodes(episodes, [score_metrics(score) | places[score.id] for score in scores])
    return {score.id: score for score in scores}


def score_metrics(score: QuestionScore | AnsweringScore) -> dict[str, float]:
    """The metrics that a run stores of a question, or of all of them: {"answer/exact_match": 1.0, "answer/f1": 1.0}."""
    is_rated = score.exact_match.num if isinstance(score, AnsweringScore) else score.answerable
    names = ("exact_match", "f1", "unanswered", "abstained") if is_rated else ("unanswered", "abstained")
    shares = {f"answer/{name}": getattr(score, name, None) for name in names}
    evidence = score.evidence if isinstance(score, AnsweringScore) else score
    shares |= {f"evidence/{name}": getattr(evidence, name, None) for name in _EVIDENCE}
    abstention = getattr(score, "abstention", None)
    shares |= {f"abstention/{name}": getattr(abstention, name, None) for name in _ABSTENTION}
    return {name: float(getattr(share, "mean", share)) for name, share in shares.items() if share is not None}


def open_stored(path: Path, settings: Mapping[str, Any], *, hint: str = "run it anew, without --resume") -> Run:
    """The run of a stopped evaluation, open for writing; BadInput with this `hint` if it has other settings."""
    stored = Run.open(path, write=True)
    try:
        if stored.info.kind != "eval":
            raise BadInput(f"{path} is no evaluation, but of kind {stored.info.kind}", hint=list_command(path.parent))
        now, before = msgspec.json.decode(msgspec.json.encode(settings)), stored.info.settings
        checked = [name for name in now if name not in _FREE and (name in before or name not in _LATER)]
        if said := say_changes(before, {name: now[name] for name in checked}):
            raise BadInput(f"{path} cannot go on with other settings: {said}", hint=hint)
        stored.note_end(None)
    except BaseException:
        stored.close()
        raise
    return stored


def say_changes(before: Mapping[str, Any], now: Mapping[str, Any], within: str = "") -> str:
    """The settings of `now` that were different, in words; "" if there are none.

    say_changes({"limits": {"topk": 3}, "limit": 40}, {"limits": {"topk": 5}, "limit": None}) ->
    "limits.topk was 3 and is 5; limit was 40 and is not set"
    """
    said = []
    for name, value in now.items():
        earlier = before.get(name)
        if isinstance(value, Mapping) and isinstance(earlier, Mapping):
            said.append(say_changes(earlier, {**dict.fromkeys(earlier), **value}, f"{within}{name}."))
        elif value != earlier:
            said.append(f"{within}{name} was {_say_value(earlier)} and is {_say_value(value)}")
    return "; ".join(filter(None, said))


def _say_value(value: object) -> str:
    if value in (None, "", []):
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _take_answers(stored: Run, questions: Sequence[Question], **how: Any) -> dict[str, QuestionScore]:
    """Scores of the answers that a run has stored, by question; its failures are dropped."""
    found = read_scores(stored, questions, **how)
    failed = {name for name, score in found.items() if score.end == "failed" or score.search_failed}
    stored.drop_episodes(failed)
    return {name: score for name, score in found.items() if name not in failed}


def read_scores(
    stored: Run, questions: Sequence[Question], *, evidence: bool, min_confidence: float = 0.0
) -> dict[str, QuestionScore]:
    """Scores of a run's stored episodes by question id; raises BadInput if one is of a question not in `questions`."""
    asked = {question.id: question for question in questions}
    found = {}
    for episode in stored.episodes():
        if not isinstance(episode.task, SolveTask) or asked.get(episode.id) != episode.task.question:
            raise BadInput(
                f"{stored.path} has an answer to {episode.id}, and the file of questions has no such question now",
                hint="run it anew, without --resume",
            )
        found[episode.id] = score_episode(episode, evidence=evidence, min_confidence=min_confidence)
    return found
