"""Evaluation of short answers: greedy episodes with the code that training uses, then exact match and F1.

    scores = await evaluate(policy, ToolCallSolver(), searcher, questions, Limits())
    score_answering(scores).exact_match -> Interval(mean=0.31, low=0.27, high=0.35, num=500)

If the protocol asks for evidence, each score keeps the quoted span and its location in the passages shown, and a judge
may decide whether the span supports the accepted answer:

    scores, num_unread = await judge_spans(StringCheck(), scores, questions)
    score_answering(scores).evidence.joint -> Interval(mean=0.22, low=0.18, high=0.26, num=500)

An `Evaluation` is stored in a file with the score of every question, so that later ones can be compared with it
question by question. A file of items (`items`) is smaller and can be compared as well; `read_scored` reads both.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field, structs

from quaere.chat.protocol import Protocol
from quaere.chat.spans import find_evidence, shown_passages
from quaere.disk import write_file
from quaere.errors import BadInput
from quaere.evaluation.intervals import Interval, rate_interval
from quaere.evaluation.judges.judge import Citation, Judge
from quaere.evaluation.judges.judge_accuracy import Validation
from quaere.evaluation.qa.abstaining import AbstentionScore, score_abstention
from quaere.evaluation.qa.answer_kinds import KINDS, Constant, describe_answer, find_constants
from quaere.evaluation.qa.items import (
    Described,
    EvidenceScore,
    Item,
    hash_text,
    items_name,
    quotes_gold,
    read_items,
    score_evidence,
)
from quaere.policies.sampler import SamplingParams
from quaere.records import LIMIT_ENDS, Answer, EndReason, Episode, Evidence, Malformed, Question, SolveTask, Turn
from quaere.records.foreign_json import decode_json
from quaere.rewards.answers import exact_match_score, f1_score
from quaere.rollout.episode import Job, Limits
from quaere.rollout.policy import Policy
from quaere.rollout.voting import run_voted
from quaere.search.json_lines import is_rows_file
from quaere.search.searcher import Searcher


class QuestionScore(Described, frozen=True):
    """The score of one question. `answer` is None if the episode ended without one.

    An episode in which a search failed counts as wrong whatever its answer: the policy did not see what it searched
    for, and a score must not rise because the search engine was down.

    `span` is the evidence as written: "" if none was given, None if none was requested. `evidence` is its location in a
    passage returned in that episode, and `supported` the judge's decision, None if not judged. `gold` is True if the
    span is in a gold passage and contains an accepted answer, None if the gold is unknown (`quotes_gold`). `facts` is
    the number of facts the question combines (in JSON under the older name `hops`), and `searches_needed` the number of
    searches it needs; 0 means unknown. The other fields are those of `Described`.

        QuestionScore(id="q1", question="Who built the Halm bridge?", facts=1, answer="Venn", exact_match=0.0, f1=0.67,
                      end="answered", num_turns=2, num_malformed=0, num_searches=1, num_tokens=57, search_failed=False)
    """

    id: str
    question: str
    facts: int = field(name="hops")
    answer: str | None
    exact_match: float
    f1: float
    end: EndReason
    num_turns: int
    num_malformed: int
    num_searches: int
    num_tokens: int
    search_failed: bool
    span: str | None = None
    evidence: Evidence | None = None
    supported: bool | None = None
    set: str = ""
    searches_needed: int = 0

    @property
    def item(self) -> Item:
        """The score without the texts of question and span, for comparing and aggregating."""
        shared = {name: getattr(self, name) for name in Item.__struct_fields__ if name != "text_hash"}
        return Item(text_hash=hash_text(self.question), **shared)

    @property
    def present(self) -> bool | None:
        """True if a span was given; None if none was requested."""
        return None if self.span is None else bool(self.span)

    @property
    def verbatim(self) -> bool | None:
        """True if the span is in a passage that was shown; None if none was requested."""
        return None if self.span is None else self.evidence is not None


class FactScore(Struct, frozen=True):
    """Scores of the questions that combine `facts` facts; 0 means unknown.

    FactScore(facts=2, exact_match=Interval(...), f1=Interval(...))
    """

    facts: int = field(name="hops")
    exact_match: Interval
    f1: Interval


class GroupScore(Struct, frozen=True):
    """Scores of a group of questions: those with one kind of answer, or those that need the same number of searches.

    GroupScore(name="yes/no", exact_match=Interval(...), f1=Interval(...))
    """

    name: str
    exact_match: Interval
    f1: Interval


class AnsweringScore(Struct, frozen=True):
    """Scores of a whole question set. Means are per episode; tokens are those the policy wrote.

    Exact match, F1, their groups and evidence are over questions with accepted answers; without one, `num` is 0.

    AnsweringScore(exact_match=Interval(...), f1=Interval(...), by_facts=(FactScore(...),), answered=0.98,
                   mean_searches=1.4, mean_turns=2.5, mean_tokens=81.0, num_malformed=12, num_search_failed=0,
                   num_failed=0)
    """

    exact_match: Interval
    f1: Interval
    by_facts: tuple[FactScore, ...] = field(name="by_hops")  # the old name, so that older results can be read
    answered: float  # share of the episodes that ended with an answer; an abstention is none
    mean_searches: float
    mean_turns: float
    mean_tokens: float
    num_malformed: int  # turns that could not be parsed
    num_search_failed: int  # episodes in which a search failed
    num_failed: int  # episodes in which the policy itself failed
    evidence: EvidenceScore | None = None  # None if no evidence was requested
    mean_searches_needed: float | None = None  # over the questions for which it is known
    unanswered: float | None = None  # share ended by a limit without an answer; None if not measured
    by_kind: tuple[GroupScore, ...] = ()  # by kind of answer, where it is known
    by_searches: tuple[GroupScore, ...] = ()  # by the number of searches needed, where it is known
    constants: tuple[Constant, ...] = ()  # of each set and closed kind, the most frequent answer
    abstention: AbstentionScore | None = None  # None without abstentions, unanswerable questions and confidences


class Judging(Struct, frozen=True):
    """The judge of the spans, its accuracy, and how many of its outputs could not be parsed.

    Judging(judge="string check, not a judge", validation=Validation(...), num_unread=0)
    """

    judge: str
    validation: Validation
    num_unread: int  # each counts as "not supported"


class Evaluation(Struct, frozen=True):
    """A stored evaluation: model, settings, scores overall and per question; written as JSON.

    Evaluation(name="warm", model="warm-model", settings={"style": "brief"}, score=AnsweringScore(...),
               questions=(QuestionScore(...), ...))
    """

    name: str
    model: str
    settings: dict[str, Any]
    score: AnsweringScore
    questions: tuple[QuestionScore, ...]
    judging: Judging | None = None

    @property
    def items(self) -> tuple[Item, ...]:
        """The result of every question, for comparison."""
        return tuple(score.item for score in self.questions)


class ItemEvaluation(Struct, frozen=True):
    """An evaluation read from a file of items: enough to show and compare it, without its settings.

    ItemEvaluation(name="warm", score=AnsweringScore(...), items=(Item(...), ...))
    """

    name: str
    score: AnsweringScore
    items: tuple[Item, ...]
    settings: dict[str, Any] = {}
    judging: None = None


Scored = Evaluation | ItemEvaluation


async def evaluate(
    policy: Policy,
    protocol: Protocol,
    searcher: Searcher,
    questions: Sequence[Question],
    limits: Limits,
    *,
    seed: int = 0,
    concurrency: int = 32,
    attempts: int = 1,
    min_confidence: float = 0.0,
    on_episode: Callable[[Episode, QuestionScore], None] = lambda episode, score: None,
    on_turn: Callable[[Turn], None] | None = None,
) -> list[QuestionScore]:
    """Answer every question greedily and score it; scores are in the order of the questions.

    With several `attempts`, they are sampled, and the answer that most of them give is scored. An answer whose
    confidence is below `min_confidence` counts as an abstention.

    `on_episode` is called with each episode as soon as it ends: what it stores survives a run that is killed, also if
    an earlier question takes long.
    """
    jobs = [Job(protocol, SolveTask(question)) for question in questions]
    scores: dict[str, QuestionScore] = {}

    def keep(episode: Episode) -> None:
        score = score_episode(episode, evidence=getattr(protocol, "evidence", False), min_confidence=min_confidence)
        on_episode(episode, score)
        scores[score.id] = score

    greedy = SamplingParams(temperature=0.0)
    played = run_voted(
        policy,
        jobs,
        searcher,
        limits,
        attempts=attempts,
        seed=seed,
        params=greedy,
        concurrency=concurrency,
        on_episode=keep,
        on_turn=on_turn,
    )
    return [scores[episode.id] async for episode in played]


def score_episode(episode: Episode, *, evidence: bool = False, min_confidence: float = 0.0) -> QuestionScore:
    """Exact match and F1 of an episode's answer, counts of turns, searches and tokens, and evidence if requested.

    An answer whose confidence is below `min_confidence` counts as an abstention.
    """
    if not isinstance(episode.task, SolveTask):
        raise TypeError(f"episode {episode.id} cannot be scored: its task is not a SolveTask")
    question = episode.task.question
    answer = episode.outcome.text if isinstance(episode.outcome, Answer) else None
    span = episode.outcome.span if isinstance(episode.outcome, Answer) else ""
    abstains = episode.abstains(min_confidence)
    counts = answer is not None and not abstains and not episode.search_failed and bool(question.answers)
    confidence = episode.confidence
    shown = shown_passages(episode) if evidence else []
    unread = [turn for turn in episode.turns if isinstance(turn.action, Malformed) and turn.stop_reason != "failed"]
    return QuestionScore(
        id=question.id,
        question=question.text,
        facts=question.facts or question.hops,
        answer=answer,
        exact_match=exact_match_score(answer or "", question.answers) if counts else 0.0,
        f1=f1_score(answer or "", question.answers) if counts else 0.0,
        end=episode.end,
        num_turns=len(episode.turns),
        num_malformed=len(unread),
        num_searches=episode.num_searches,
        num_tokens=sum(turn.num_tokens + turn.note_tokens for turn in episode.turns),
        search_failed=episode.search_failed,
        span=span if evidence else None,
        evidence=find_evidence(span, shown),
        set=question.set,
        searches_needed=question.searches,
        gold=quotes_gold(span, question, [] if episode.search_failed else shown) if evidence else None,
        abstained=abstains,
        answerable=bool(question.answers),
        confidence=None if confidence is None else round(confidence, 4),
        **describe_answer(question.text, question.answers or question.hidden, answer),
    )


async def judge_spans(
    judge: Judge, scores: Sequence[QuestionScore], questions: Sequence[Question]
) -> tuple[list[QuestionScore], int]:
    """The scores with the judge's decision on every span, and the number of unreadable outputs.

    A missing span, a span of an episode in which a search failed and one for a question without accepted answers count
    as not supported without a call of the judge.
    """
    asked = {
        score.id: Citation(question.text, question.answers, score.span)
        for score, question in zip(scores, questions, strict=True)
        if score.span and score.answerable and not score.search_failed
    }
    verdicts = await judge.judge(list(asked.values()))
    said = dict(zip(asked, verdicts, strict=True))
    judged = [structs.replace(score, supported=said.get(score.id) is True) for score in scores]
    return judged, sum(verdict is None for verdict in verdicts)


def score_answering(found: Sequence[QuestionScore] | Sequence[Item]) -> AnsweringScore:
    """Aggregate scores over all questions, overall, per number of facts and searches, and per kind of answer."""
    scores = [score.item if isinstance(score, QuestionScore) else score for score in found]
    rated = [score for score in scores if score.answerable]
    num = len(scores)
    needed = [score.searches_needed for score in rated if score.searches_needed]
    facts = {str(number): number for number in sorted({score.facts for score in rated})}
    return AnsweringScore(
        **_rate(rated),
        by_facts=tuple(FactScore(facts[one.name], one.exact_match, one.f1) for one in _group(rated, facts, "facts")),
        answered=sum(score.end == "answered" and not score.abstained for score in scores) / num,
        mean_searches=sum(score.num_searches for score in scores) / num,
        mean_turns=sum(score.num_turns for score in scores) / num,
        mean_tokens=sum(score.num_tokens for score in scores) / num,
        num_malformed=sum(score.num_malformed for score in scores),
        num_search_failed=sum(score.search_failed for score in scores),
        num_failed=sum(score.end == "failed" for score in scores),
        evidence=score_evidence(rated) if rated else None,
        mean_searches_needed=sum(needed) / len(needed) if needed else None,
        unanswered=sum(score.end in LIMIT_ENDS for score in scores) / num,
        by_kind=_group(rated, {kind: kind for kind in KINDS}, "kind"),
        by_searches=_group(rated, {str(number): number for number in sorted(set(needed))}, "searches_needed"),
        constants=find_constants(rated),
        abstention=score_abstention(scores),
    )


def _group(scores: Sequence[Item], values: Mapping[str, object], field: str) -> tuple[GroupScore, ...]:
    """Scores by the value of a field; `values` maps group names to values, and groups without items are left out."""
    chosen = {name: [score for score in scores if getattr(score, field) == value] for name, value in values.items()}
    return tuple(GroupScore(name, **_rate(some)) for name, some in chosen.items() if some)


def _rate(scores: Sequence[Item]) -> dict[str, Interval]:
    if not scores:
        return dict.fromkeys(("exact_match", "f1"), Interval(0.0, 0.0, 1.0, 0))
    return {name: rate_interval([getattr(score, name) for score in scores]) for name in ("exact_match", "f1")}


def write_evaluation(evaluation: Evaluation, path: Path) -> None:
    """Write the evaluation as JSON; an existing file is replaced atomically."""
    write_file(path, msgspec.json.format(msgspec.json.encode(evaluation), indent=1))


def read_evaluation(path: Path) -> Evaluation:
    """The evaluation in a file written by `write_evaluation`; raises BadInput if the file cannot be read as one."""
    try:
        return decode_json(path.read_bytes(), Evaluation)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise BadInput(f"{path} is not an evaluation: {error}", hint="quaere eval ... --out FILE.json") from error


def read_scored(path: Path) -> Scored:
    """A result to compare with: an evaluation (one JSON object) or a file of items (JSON Lines)."""
    if not is_rows_file(path):
        return read_evaluation(path)
    items = read_items(path)
    return ItemEvaluation(items_name(path), score_answering(items), tuple(items))


def name_apart(read: Sequence[tuple[Path, Scored]], taken: str = "") -> list[Scored]:
    """Results read from files; those that share a name, or whose name is `taken`, are named after their files."""
    num = Counter([taken, *(result.name for _, result in read)])
    return [structs.replace(result, name=str(path)) if num[result.name] > 1 else result for path, result in read]


def has_other_index(result: Scored, other: Scored) -> bool:
    """True if the two searched different indexes; False if that is not known, or one of them searched none."""
    found = {one.settings.get("index_fingerprint") for one in (result, other)} - {None, ""}
    return len(found) > 1
