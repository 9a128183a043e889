"""Writes checked questions from an index: draft, word, check, compose, check again.

    written = await write_questions(policy, index, WriterSettings(drafts=6000))
    written.questions[0]    # CheckedQuestion(id="halm#0:16", question="Who built the Halm bridge?", ...)

The model is used untrained, before any warm-up: the lessons of the warm-up are made from these questions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct, structs

from quaere.errors import BadInput
from quaere.records import Evidence, Question
from quaere.rewards.answers import normalise_answer
from quaere.rollout.policy import Policy
from quaere.search.index import Index
from quaere.setting_types import NonNegativeFloat, PositiveInt, check_settings
from quaere.warmup.documents.checks import Lines, Tried, count_right, find_fault
from quaere.warmup.documents.compositions import (
    Pair,
    chain_questions,
    chained_comparisons,
    clean_description,
    comparable_pairs,
    comparison_questions,
    find_description_fault,
    linked_pairs,
    read_wording,
)
from quaere.warmup.documents.drafts import Draft, QuestionKind, Worded, is_choice, single_drafts
from quaere.warmup.documents.links import Pages
from quaere.warmup.documents.prompts import Form, describe_answer, word_pair, word_question
from quaere.worlds.dice import Dice

_QUERIES_AT_ONCE = 256
_WORDINGS = 3  # wordings of a comparison per template
_TRIES_AT_WORDING = 2  # a question that breaks a rule is worded again: a third of first wordings do not name their page


class WriterSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the question writer: the number of drafted facts and the thresholds of the checks.

    Of `tries` answers with the page, at least `min_right` must be right; of `tries` without it, none. A page counts as
    found if a search with the question, or with the page's name, returns it among the first `topk`.

        WriterSettings(drafts=6000, tries=5, min_right=3, topk=3)
    """

    drafts: PositiveInt = 6000
    tries: PositiveInt = 5
    min_right: PositiveInt = 3
    topk: PositiveInt = 3
    temperature: NonNegativeFloat = 0.7
    seed: int = 0
    concurrency: PositiveInt = 32

    def check(self) -> None:
        """Raise `BadInput` for values out of bounds and for `min_right` above `tries`."""
        check_settings(self)
        if self.min_right > self.tries:
            raise BadInput(f"min_right must be at most tries ({self.tries}), not {self.min_right}")


class CheckedQuestion(Struct, frozen=True):
    """A line of a question file: a question whose answer stands in the documents, and its check results.

    `facts` is the number of facts it combines, `searches` the number of searches it needs: 1 if a search with the
    question itself returns the page that states the answer. `hops` repeats `facts` for programs that read `hops`.

        {"id": "halm#0:16", "question": "Who built the Halm bridge?", "answers": ["Orsolya Venn"], "kind": "single",
         "facts": 1, "searches": 1, "hops": 1, "evidence": [...], "scores": {"with_page": 1.0, "closed_book": 0.0}}
    """

    id: str
    question: str
    answers: tuple[str, ...]
    kind: QuestionKind
    facts: int
    searches: int
    hops: int
    evidence: tuple[Evidence, ...]
    scores: dict[str, float] = {}

    @property
    def is_choice(self) -> bool:
        """True if a guess is right half of the time."""
        return is_choice(self.kind)

    @property
    def deciding(self) -> tuple[Evidence, ...]:
        """The evidence that must be read to answer: of a chain the last sentence, else all of them."""
        return self.evidence[-1:] if self.kind == "chain" else self.evidence

    def to_question(self) -> Question:
        """The record that a solver is given."""
        return Question(
            self.id,
            self.question,
            self.answers,
            self.hops,
            self.evidence,
            facts=self.facts,
            searches=self.searches,
        )


class Written(Struct, frozen=True):
    """The questions that were kept, and the number of dropped ones by kind and reason.

    Written(questions=[...], dropped=Counter({"single: answered without the page": 12}), num_drafts=6000)
    """

    questions: list[CheckedQuestion]
    dropped: Counter[str]
    num_drafts: int


async def write_questions(
    policy: Policy,
    index: Index,
    settings: WriterSettings,
    report: Callable[[str, int, int], None] = lambda doing, done, total: None,
) -> Written:
    """Write questions about the index's documents; keep those that pass every check, without duplicates."""
    settings.check()
    lines = Lines(policy, seed=settings.seed, concurrency=settings.concurrency, report=report)
    writer = _Writer(lines, index, settings)
    singles = single_drafts(Pages(index), settings.drafts, settings.seed)
    if not singles:
        raise BadInput(
            "no document of the index has both a title that is a name and a sentence with a fact to ask about",
            hint="index documents that have titles",
        )
    kept = await writer.check("single", await writer.word(singles))
    dice = Dice(settings.seed, "compositions")
    links, pairs = linked_pairs(kept, dice), comparable_pairs(kept, dice)
    descriptions = await writer.describe([first for first, _ in links])
    wordings = await writer.word_comparisons(pairs)
    chains = await writer.check("chain", chain_questions(links, descriptions))
    choices = comparison_questions(pairs, wordings) + chained_comparisons(links, descriptions, wordings, dice)
    compared = await writer.check("comparison", choices)
    questions = [writer.finish(worded) for worded in (*kept, *chains, *compared)]
    return Written(questions, writer.dropped, writer.num_drafts)


class _Writer:
    """Takes drafts through wording and checks; records the questions asked and the reasons of dropped ones."""

    def __init__(self, lines: Lines, index: Index, settings: WriterSettings) -> None:
        self.lines = lines
        self.index = index
        self.settings = settings
        self.dropped: Counter[str] = Counter()
        self.num_drafts = 0
        self._asked: set[str] = set()
        self._reached: dict[str, bool] = {}  # by question: whether one search with it returns the page of the answer

    async def word(self, drafts: Sequence[Draft]) -> list[Worded]:
        """Each draft with the question that the model wrote for it."""
        worded: dict[str, Worded] = {}
        for number in range(_TRIES_AT_WORDING):
            going = [draft for draft in drafts if draft.id not in worded or _break_rules(worded[draft.id])]
            prompts = [word_question(draft.facts[0]) for draft in going]
            name = "single: wording" if not number else "single: wording again"
            written = await self.lines.write(name, prompts, self.settings.temperature)
            worded |= {draft.id: Worded(draft, line) for draft, line in zip(going, written, strict=True)}
        return list(worded.values())

    async def check(self, name: str, worded: Sequence[Worded]) -> list[Worded]:
        """The questions that pass every check. Comparisons are not attempted: half of all guesses at them are right."""
        self.num_drafts += len(worded)
        worded = self._keep(worded, [self._find_fault(item) for item in worded])
        worded = self._keep(worded, self._find_pages(worded))
        asked = [item for item in worded if not item.draft.is_choice]
        asked = await self._try_with_page(f"{name}: with the page", asked)
        asked = await self._try_from_memory(f"{name}: from memory", asked)
        return [*asked, *(item for item in worded if item.draft.is_choice)]

    async def describe(self, worded: Iterable[Worded]) -> dict[str, str]:
        """By draft, a description that names the page and from which the model, shown the page, gives the answer."""
        asked = list({item.draft.id: item for item in worded}.values())
        prompts = [describe_answer(item.question, item.draft.facts[0].answer) for item in asked]
        lines = await self.lines.write("description: wording", prompts, 0.0)
        descriptions = {item.draft.id: clean_description(line) for item, line in zip(asked, lines, strict=True)}
        tried = [
            Worded(structs.replace(item.draft, kind="description"), f"Who or what is {descriptions[item.draft.id]}?")
            for item in asked
        ]
        tried = self._keep(tried, [find_description_fault(descriptions[item.draft.id]) for item in tried])
        tried = self._keep(tried, [self._find_fault(item) for item in tried])
        led = await self._try_with_page("description: with the page", tried)
        return {item.draft.id: descriptions[item.draft.id] for item in led}

    async def word_comparisons(self, pairs: Sequence[Pair]) -> dict[tuple[str, Form], list[str]]:
        """By template and form, distinct wordings with slots for two names, each written for one pair."""
        by_key: dict[tuple[str, Form], list[Pair]] = {}
        for pair in pairs:
            by_key.setdefault(pair.key, []).append(pair)
        asked = [pair for group in by_key.values() for pair in group[:_WORDINGS]]
        prompts = [
            word_pair(pair.one.question, (pair.one.draft.names[0], pair.other.draft.names[0]), pair.form)
            for pair in asked
        ]
        lines = await self.lines.write("comparison: wording", prompts, 0.0)
        wordings: dict[tuple[str, Form], list[str]] = {}
        for pair, line in zip(asked, lines, strict=True):
            form = read_wording(line, pair)
            if form and form not in wordings.setdefault(pair.key, []):
                wordings[pair.key].append(form)
        return wordings

    def finish(self, worded: Worded) -> CheckedQuestion:
        """The question as it is kept, with the number of searches it needs."""
        draft = worded.draft
        num_facts = len(draft.facts)
        return CheckedQuestion(
            id=draft.id,
            question=worded.question,
            answers=worded.answers,
            kind=draft.kind,
            facts=num_facts,
            searches=1 if self._reached[worded.question] else num_facts,
            hops=num_facts,
            evidence=tuple(fact.evidence for fact in draft.facts),
            scores=worded.scores,
        )

    def _keep(self, worded: Sequence[Worded], faults: Sequence[str]) -> list[Worded]:
        self.dropped.update(f"{item.draft.kind}: {fault}" for item, fault in zip(worded, faults, strict=True) if fault)
        return [item for item, fault in zip(worded, faults, strict=True) if not fault]

    def _find_fault(self, worded: Worded) -> str:
        fault = _break_rules(worded)
        if fault:
            return fault
        text = normalise_answer(worded.question)
        if text in self._asked:
            return "was asked already"
        self._asked.add(text)
        return ""

    def _find_pages(self, worded: Sequence[Worded]) -> list[str]:
        """A fault per question, "" if every page is found: by its name, or by the question itself."""
        by_question = self._search([item.question for item in worded])
        by_name = self._search([fact.name for item in worded for fact in item.draft.facts])
        faults, names = [], iter(by_name)
        for item, found in zip(worded, by_question, strict=True):
            self._reached[item.question] = all(fact.passage.id in found for fact in item.draft.told_by)
            reached = [fact.passage.id in (*found, *next(names)) for fact in item.draft.facts]
            faults.append("" if all(reached) else "its page is not found")
        return faults

    def _search(self, queries: Sequence[str]) -> list[list[str]]:
        found: list[list[str]] = []
        for first in range(0, len(queries), _QUERIES_AT_ONCE):
            hits = self.index.search(queries[first : first + _QUERIES_AT_ONCE], self.settings.topk)
            found += [[hit.passage.id for hit in row] for row in hits]
        return found

    async def _try_with_page(self, name: str, worded: Sequence[Worded]) -> list[Worded]:
        """The questions answered right when shown their pages: greedily, and `min_right` times in all."""
        settings, fault = self.settings, "not answered with the page"
        rights = await self._count(f"{name}, greedily", worded, 1, 0.0, with_texts=True)
        going = self._keep(worded, ["" if right else fault for right in rights])
        rights = await self._count(name, going, settings.tries - 1, 1.0, with_texts=True)
        scored = _score(going, "with_page", [(right + 1) / settings.tries for right in rights])
        return self._keep(scored, ["" if right + 1 >= settings.min_right else fault for right in rights])

    async def _try_from_memory(self, name: str, worded: Sequence[Worded]) -> list[Worded]:
        """The questions never answered right without their pages."""
        fault, going = "answered without the page", list(worded)
        for tries, temperature in ((1, 0.0), (self.settings.tries - 1, 1.0)):
            rights = await self._count(f"{name}, {tries}", going, tries, temperature, with_texts=False)
            going = self._keep(going, [fault if right else "" for right in rights])
        return _score(going, "closed_book", [0.0] * len(going))

    async def _count(
        self, name: str, worded: Sequence[Worded], tries: int, temperature: float, *, with_texts: bool
    ) -> list[int]:
        if not tries:
            return [0] * len(worded)
        items = [Tried(item.question, item.answers, item.draft.texts) for item in worded]
        return await count_right(self.lines, name, items, tries=tries, temperature=temperature, with_texts=with_texts)


def _break_rules(worded: Worded) -> str:
    """The rule that a wording breaks; "" if it breaks none."""
    draft = worded.draft
    answer = "" if draft.is_choice else draft.answers[0]
    return find_fault(worded.question, names=draft.names, answer=answer, hidden=draft.hidden)


def _score(worded: Sequence[Worded], name: str, values: Sequence[float]) -> list[Worded]:
    return [
        structs.replace(item, scores=item.scores | {name: value}) for item, value in zip(worded, values, strict=True)
    ]
