"""Lessons in scoring searches: a model's own attempts, played again with evaluations that are true.

    lessons = await play_judged(own.attempts, searcher, renderer, "evalact", Limits())

The questions are checked ones, so it is known which sentences their answers rest on. Every attempt, right or wrong, is
played again: its searches are made anew, and a program writes the evaluation of each by what it returned; its score is
the value of the search (`rewards/self_evaluation.py`). About half of the searches should be bad ones. So an attempt is
played in one of these ways:

    own        as it was
    spoilt     it begins with a query that belongs to another question
    withheld   no search returns passages with the answer or the evidence or, half of the time, others of the documents
               with the evidence
    asked      the question itself is the only query, if too many searches are bad

A replay is dropped if one of its searches returned an accepted answer without the evidence: most such passages state
the fact, so "found nothing" would be false, and some do not, so "found it" would be, too.

Loss is on the evaluations alone, except in an attempt that is a good lesson as a whole. Such an attempt is played as it
was, then spoilt, and then with its evidence withheld if there are too few bad searches. If the query of another
question found nothing and a later one did, the spoilt one shows how to go on after a low score, so its loss is on all
turns but that query. Without such lessons a model answered with the words of its evaluation ("none of this answers
it"). If an attempt rightly abstains from a question that cannot be answered, none of its searches counts as good.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct, field, structs

from quaere.chat.protocol import Protocol, was_searched
from quaere.chat.renderer import Renderer
from quaere.records import Answer, Episode, Evaluate, Evidence, Hit, Passage, Question, Search, SolveTask, Turn
from quaere.rewards.abstention import ABSTENTION, hide_answers, is_hidden
from quaere.rewards.answers import contains
from quaere.rewards.self_evaluation import ALL, NOTHING, PAGE, SOME, holds, is_good, value_searches
from quaere.rollout.episode import Limits
from quaere.search.searcher import Searcher
from quaere.warmup import phrases as words
from quaere.warmup.dialects import Dialect, solver_turns
from quaere.warmup.scripted_episodes import Attempt, Demonstrations, demonstrate, judge
from quaere.worlds.dice import Dice

NAME = "judged"
_MAX_SURPLUS = 2  # bad searches more than good ones before attempts are replaced
_SPARE_HITS = 20  # further hits of a search from which passages are withheld
_MAX_PROOF_WORDS = 40
_MAX_NOTE_WORDS = 60
_EVALUATIONS = words.load_forms("evaluations")
# What an evaluation says, by the value of the search; some forms need nothing but the number of a passage.
_FORMS: Mapping[int, tuple[str, ...]] = {
    ALL: _EVALUATIONS["found"] + _EVALUATIONS["whole"],
    SOME: _EVALUATIONS["partial"],
    PAGE: _EVALUATIONS["article"],
    NOTHING: _EVALUATIONS["useless"],
}

ReplayKind = Literal["own", "spoilt", "withheld", "asked"]


class Judged(Struct, frozen=True):
    """The lessons, and the number of searches by their value.

    Judged(lessons=Demonstrations(...), values=Counter({10: 40, 1: 38, 5: 9, 8: 7}))
    """

    lessons: Demonstrations = field(default_factory=Demonstrations)
    values: Counter[int] = field(default_factory=Counter)

    @property
    def num_good(self) -> int:
        """The number of searches that returned missing evidence."""
        return sum(num for value, num in self.values.items() if is_good(value))

    @property
    def num_bad(self) -> int:
        """The number of all other searches."""
        return self.values.total() - self.num_good


async def play_judged(
    attempts: Sequence[Episode],
    searcher: Searcher,
    renderer: Renderer,
    dialect: Dialect,
    protocol: Protocol,
    limits: Limits,
    *,
    whole: frozenset[str] = frozenset(),
    shuffled: bool = False,
    seed: int = 0,
) -> Judged:
    """Play attempts again with true evaluations; those without a search, or of a question without evidence, are not.

    The attempts with an id in `whole` are learnt from as a whole, whether they are played again or not. `shuffled` is
    the control: an evaluation has the value of a search drawn at random from those so far.
    """
    judged = Judged()
    queries = [(attempt.task.id, query) for attempt in attempts for query in _queries(attempt)]
    room = structs.replace(limits, max_turns=limits.max_turns + protocol.turns_per_search)
    for attempt in attempts:
        assert isinstance(attempt.task, SolveTask)
        question, dice, is_whole = attempt.task.question, Dice(seed, "judged", attempt.id), attempt.id in whole
        if not _can_judge(attempt, is_whole=is_whole):
            judged.lessons.episodes.extend([attempt] if is_whole else [])
            continue
        for kind in _choose(judged, dice, is_whole=is_whole, has_answers=bool(question.answers)):
            script = _Replay(attempt, dialect, protocol, dice, values=judged.values, shuffled=shuffled)
            if kind == "spoilt":
                script.add_search(_pick_other(queries, question.id, dice))
            elif kind == "asked":
                script.searches.clear()
                script.add_search(question.text)
            source = _Withholding(searcher, question, pages=dice.chance(50)) if kind == "withheld" else searcher
            played = Attempt(f"{attempt.id}-{kind}", attempt.task, script, protocol)
            episode = await demonstrate(played, source, renderer, room, name=NAME)
            if not script.given:
                judged.lessons.dropped["no search was evaluated"] += 1
                continue
            if script.is_doubtful:
                judged.lessons.dropped["the answer was found elsewhere"] += 1
                continue
            judged.values.update(script.given)
            is_lesson = is_whole and not judge(episode, "solver", dialect)
            learnt = _lesson_turns(episode, kind, script.given) if is_lesson else evaluations(episode)
            judged.lessons.episodes.append(mask_others(episode, learnt))
    return judged


def _can_judge(attempt: Episode, *, is_whole: bool) -> bool:
    """True if an attempt has searches, it is known what they should find, and an answer to end with."""
    assert isinstance(attempt.task, SolveTask)
    question = attempt.task.question
    ends = bool(question.answers) or isinstance(attempt.outcome, Answer)
    # Without evidence and answers there is nothing to find; an attempt that says so is a good lesson.
    is_known = bool(question.evidence) or (is_whole and not question.answers)
    return bool(_queries(attempt)) and ends and is_known


def _choose(judged: Judged, dice: Dice, *, is_whole: bool, has_answers: bool) -> Iterator[ReplayKind]:
    """How to play an attempt: as it was while bad searches are about as many as good ones, else to balance them.

    A good lesson is played as it was, then spoilt, and then to balance; the last depends on the searches before it.
    """
    surplus = judged.num_bad - judged.num_good
    if is_whole or 0 <= surplus <= _MAX_SURPLUS:
        yield "own"
    else:
        yield "asked" if surplus > 0 else dice.pick(("spoilt", "withheld"))
    if is_whole and has_answers:
        yield "spoilt"
        if judged.num_bad < judged.num_good:
            yield "withheld"


def _lesson_turns(episode: Episode, kind: ReplayKind, values: Sequence[int]) -> Sequence[Turn]:
    """The turns to learn from in a play of a good lesson, whose searches had these values."""
    if kind == "own":
        return episode.turns
    first, *later = map(is_good, values)
    # Otherwise it would show how to search on after a good search, or how to guess after bad ones alone.
    return episode.turns[1:] if kind == "spoilt" and not first and any(later) else evaluations(episode)


def evaluations(episode: Episode) -> list[Turn]:
    """The turns that evaluate a search."""
    return [turn for turn in episode.turns if isinstance(turn.action, Evaluate)]


def mask_others(episode: Episode, turns: Sequence[Turn]) -> Episode:
    """The episode with loss on these of its turns alone."""
    kept = {place for turn in turns for place in range(turn.start, turn.start + turn.num_tokens)}
    segments, start = [], 0
    for segment in episode.segments:
        mask = tuple(flag and start + place in kept for place, flag in enumerate(segment.loss_mask))
        segments.append(structs.replace(segment, loss_mask=mask))
        start += len(segment.token_ids)
    return structs.replace(episode, segments=tuple(segments))


def _pick_other(queries: Sequence[tuple[str, str]], own: str, dice: Dice) -> str:
    """A query for another question than `own`, if a few draws find one; `queries` are by question."""
    drawn = [dice.pick(queries) for _ in range(8)]
    return next((query for name, query in drawn if name != own), drawn[0][1])


def _queries(attempt: Episode) -> list[str]:
    return [query for turn in attempt.turns if isinstance(turn.action, Search) for query in turn.action.queries]


class _Withholding:
    """A searcher that leaves out the passages with the question's evidence or, with `pages`, all of their documents.

    It also leaves out those that contain an accepted answer, if that can be hidden.
    """

    def __init__(self, searcher: Searcher, question: Question, *, pages: bool) -> None:
        self._searcher, self._evidence, self._pages = searcher, question.evidence, pages
        self._hidden = hide_answers(question)

    async def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """The other passages of each search."""
        found = await self._searcher.search(queries, topk + _SPARE_HITS)
        return [[hit for hit in hits if not self._is_withheld(hit.passage)][:topk] for hits in found]

    async def close(self) -> None:
        """Do nothing: the searcher belongs to the caller."""

    def _is_withheld(self, passage: Passage) -> bool:
        if self._hidden is not None and is_hidden(passage, self._hidden):
            return True
        return any(holds(passage, span) or self._is_near(passage, span) for span in self._evidence)

    def _is_near(self, passage: Passage, span: Evidence) -> bool:
        """True for a passage with a part of the sentence and, with `pages`, for any of its document."""
        overlaps = span.start < passage.end and passage.start < span.end
        return span.doc_id == passage.doc_id and (self._pages or overlaps)


class _Replay:
    """Script of an attempt: its searches one after another, the true evaluation of each, and its last turn."""

    def __init__(
        self,
        attempt: Episode,
        dialect: Dialect,
        protocol: Protocol,
        dice: Dice,
        *,
        values: Counter[int],
        shuffled: bool,
    ) -> None:
        assert isinstance(attempt.task, SolveTask)
        self._question, self._dice, self._turns = attempt.task.question, dice, solver_turns(dialect)
        self._values, self._shuffled = values, shuffled
        self.given: list[int] = []  # the values of its searches
        self.is_doubtful = False  # a search without missing evidence returned a passage with an accepted answer
        self._hidden = hide_answers(self._question)
        self.searches = list(self._read_searches(attempt, protocol))
        last = attempt.turns[-1]
        is_answer = isinstance(last.action, Answer) and last.text.endswith(protocol.stop)
        right = next(iter(self._question.answers), ABSTENTION)
        self._ending = last.text if is_answer else self._turns.answer("", right)

    def _read_searches(self, attempt: Episode, protocol: Protocol) -> Iterator[str]:
        for turn in attempt.turns:
            if isinstance(turn.action, Search) and was_searched(turn):
                rewritten = self._turns.search("", turn.action.queries[0])
                yield turn.text if turn.text.endswith(protocol.stop) else rewritten

    def add_search(self, query: str) -> None:
        """Begin with a search for this."""
        self.searches.insert(0, self._turns.search("", query))

    def __call__(self, turns: Sequence[Turn], news: str) -> str:
        if turns and was_searched(turns[-1]):
            return self._evaluate(turns)
        num_made = sum(isinstance(turn.action, Search) for turn in turns)
        refused = bool(turns) and turns[-1].failure is not None
        return self._ending if refused or num_made >= len(self.searches) else self.searches[num_made]

    def _evaluate(self, turns: Sequence[Turn]) -> str:
        searched = [turn for turn in turns if was_searched(turn)]
        shown = [[hit.passage for result in turn.results for hit in result.hits] for turn in searched]
        value = (value_searches(self._question, shown) or [NOTHING])[-1]
        self.given.append(value)
        self.is_doubtful |= not is_good(value) and bool(self._list_missing(shown)) and self._has_answer(shown[-1])
        if self._shuffled:
            value = self._dice.pick(sorted([*self._values.elements(), *self.given]))
        ask = self._question.text
        slots = self._find_proof(shown) | {"ask": _plain(ask[:1].lower() + ask[1:])}
        text = words.write_thought(_FORMS[value], self._dice, slots, min_words=1, max_words=_MAX_NOTE_WORDS)
        return self._turns.evaluation("", text, value)

    def _has_answer(self, passages: Sequence[Passage]) -> bool:
        """True if one of the passages contains an accepted answer, where that tells anything (`hide_answers`)."""
        return self._hidden is not None and any(is_hidden(passage, self._hidden) for passage in passages)

    def _list_missing(self, shown: Sequence[Sequence[Passage]]) -> list[Evidence]:
        """The evidence that no search before the last returned."""
        earlier = [passage for passages in shown[:-1] for passage in passages]
        return [span for span in self._question.evidence if not any(holds(one, span) for one in earlier)]

    def _find_proof(self, shown: Sequence[Sequence[Passage]]) -> dict[str, str]:
        """Slots of `phrases.py`: the number of the passage with new evidence, its sentence, and the answer in it."""
        new = self._list_missing(shown)
        places = list(enumerate(shown[-1], start=1))
        held = [(rank, span.text) for rank, one in places for span in new if holds(one, span)]
        near = [(rank, "") for rank, one in places if any(span.doc_id == one.doc_id for span in new)]
        rank, sentence = [*held, *near, (1, "")][0]
        proof = _plain(sentence) if len(sentence.split()) <= _MAX_PROOF_WORDS else ""
        answer = next((one for one in self._question.answers if contains(proof, one)), "")
        return {"n": str(rank), "S": proof, "F": _plain(answer)}


def _plain(text: str) -> str:
    """The text in one line without double quotes, each of which would need a backslash inside JSON."""
    return " ".join(text.replace('"', "'").split())
