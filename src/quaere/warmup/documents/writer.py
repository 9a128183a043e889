"""Writes checked questions from an index: draft, word, check; then chains, comparisons and choices of checked facts.

    written = await write_questions(policy, index, WriterSettings(drafts=6000))
    written.questions[0]    # CheckedQuestion(id="halm#0:16", question="Who built the Halm bridge?", ...)

A question is kept if it is understood without its page: a search with it (or with a query that the model wrote from it)
finds its passage, the model calls it clear, answers it when shown that passage among three other hits, and never
answers it without. Questions that the documents do not answer are written and checked in unanswerable.py.
The model is used untrained, before any warm-up: the lessons of the warm-up are made from these questions.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Collection, Iterator, Sequence

from msgspec import Struct, structs

from quaere.errors import BadInput
from quaere.grouping import group_by
from quaere.rewards.answers import contains, normalise_answer
from quaere.rollout.policy import Policy
from quaere.search.index import Index
from quaere.warmup.documents import chains, comparisons
from quaere.warmup.documents.askable_facts import Fact
from quaere.warmup.documents.checked_question import (
    Batch,
    CheckedQuestion,
    Draft,
    Dropped,
    Journal,
    Worded,
    WriterSettings,
    Written,
    draw_drafts,
)
from quaere.warmup.documents.checks import (
    Examiner,
    Lines,
    Verdict,
    break_rules,
    has_answer,
    is_asking,
    names_any,
    names_subject,
    word_overlap,
)
from quaere.warmup.documents.page_names import FolderNames
from quaere.warmup.documents.prompt_examples import Form, Style
from quaere.warmup.documents.prompts import (
    describe_name,
    propose_answer,
    show_place,
    word_missing,
    word_pair,
    word_question,
)
from quaere.warmup.documents.unanswerable import draw_unanswerable, find_answered, find_fault_of_unanswerable
from quaere.worlds.dice import Dice

_WORDINGS = 3  # wordings of a comparison, per template
_STYLES: tuple[Style, ...] = ("everyday", "plain", "plain")  # wordings of a fact; the first that passes is kept
_NAMED_STYLES: tuple[Style, ...] = ("short", "everyday", "plain")  # for pages that others name; a short one names it
_NAMED_SHARE = 0.5  # share of drafts about pages that others name, as far as there are any
_LOOKS_PER_NAMED = 100  # passages looked at for each such draft: each takes a search, and there may be no such page
_FIRST, _BATCH, _AT_ONCE = 50, 512, 3  # facts in the first batch and in the others, and batches in flight
_DESCRIPTIONS = 3  # descriptions of a name
_BRIDGES_PER_DRAFT = 0.5  # names described for each drafted fact
_CHOICE_SHARE = 0.1  # share of single facts that are also asked as a choice, and of those asked for yes or no

Report = Callable[[str, int, int], None]


async def write_questions(
    policy: Policy,
    index: Index,
    settings: WriterSettings,
    report: Report = lambda doing, done, total: None,
    journal: Journal | None = None,
    documents: Collection[str] | None = None,
    exact: bool = False,
) -> Written:
    """Write questions about the index's documents; keep those that pass every check, without duplicates.

    With `documents`, facts of these alone are drafted. The writer stops early if the first facts give no question at
    all. Batches that are in the journal are not asked again, and count as time worked. With `exact`, batches are asked
    one after another, so that the questions do not depend on where an earlier call was killed; with `minutes`, the time
    still decides which batch is the last.
    """
    settings.check()
    writer = _Writer(policy, index, settings, report, journal, documents, at_once=1 if exact else _AT_ONCE)
    asked = await writer.ask_drafts()
    kept = [worded for worded in asked if worded.draft.kind == "single"]
    if not kept:
        return Written([], writer.dropped, writer.num_drafts)
    dice = Dice(settings.seed, "compositions")
    bridges = await asyncio.to_thread(chains.find_bridges, kept, index, settings.topk)
    dice.shuffle(bridges)
    bridges = bridges[: int(_BRIDGES_PER_DRAFT * settings.num_facts)]
    descriptions = await writer.describe(bridges)
    chained = await writer.ask_chains(list(chains.iterate_chains(bridges, descriptions)))
    pairs = comparisons.comparable_pairs(kept, dice)
    wordings = await writer.word_comparisons(pairs)
    compared = comparisons.comparison_questions(pairs, wordings)
    compared += comparisons.chained_comparisons(bridges, descriptions, wordings, dice)
    choices = await writer.ask_choices(kept, dice)
    questions = [*kept, *chained, *await writer.check_comparisons(compared), *choices]
    questions += [worded for worded in asked if worded.draft.kind == "unanswerable"]
    return Written([writer.finish(worded) for worded in questions], writer.dropped, writer.num_drafts)


class _Asking(Struct, frozen=True):
    """A batch of drafts, about pages that others name or not, and the minute after which it is no longer started."""

    drafts: Sequence[Draft]
    is_named: bool
    until: float

    @property
    def styles(self) -> tuple[Style, ...]:
        return _NAMED_STYLES if self.is_named else _STYLES


def _split(drafts: Sequence[Draft], is_named: bool, until: float) -> Iterator[_Asking]:
    """Split the drafts into batches; the first is small, because it decides whether the writer continues."""
    for first in (0, *range(_FIRST, len(drafts), _BATCH)):
        if some := drafts[first : first + _BATCH if first else _FIRST]:
            yield _Asking(some, is_named, until)


class _Writer:
    """Words and checks drafts; records the questions asked, and why questions were dropped."""

    def __init__(
        self,
        policy: Policy,
        index: Index,
        settings: WriterSettings,
        report: Report,
        journal: Journal | None,
        documents: Collection[str] | None,
        *,
        at_once: int,
    ) -> None:
        self.settings, self.report, self.journal = settings, report, journal
        self.lines = Lines(policy, seed=settings.seed, concurrency=settings.concurrency)
        self.examiner = Examiner(self.lines, index, settings)
        every = list(index.passages())
        self.folder_names = FolderNames(every)
        self.is_partial = documents is not None
        self.passages = [passage for passage in every if documents is None or passage.doc_id in documents]
        self.dropped: list[Dropped] = []
        self.num_drafts, self.at_once = 0, at_once
        self._asked: set[str] = set()
        self._began_at = time.monotonic() - (journal.seconds if journal else 0.0)

    # ----------------------------------------------------------------------------------------------------- single facts

    async def ask_drafts(self) -> list[Worded]:
        """The kept questions about single facts (some of pages that others name), and about what pages do not say."""
        num, minutes = self.settings.num_facts, self.settings.minutes or float("inf")
        named = await asyncio.to_thread(self._draw_named)
        drafted = {draft.id for draft in named}
        others = [draft for draft in draw_drafts(self.passages, num, self.settings.seed) if draft.id not in drafted]
        others = others[: num - len(named)]
        if not others and not named and self.is_partial:
            return []
        if not others and not named:
            raise BadInput("no passage of the index states a fact to ask about", hint="index documents with sentences")
        unsaid = draw_unanswerable(self.passages, self.settings.num_unanswerable, self.settings.seed)
        per_draft = minutes / (len(others) + len(named) + len(unsaid))
        batches = [*_split(others, False, per_draft * len(others))]
        batches += _split(named, True, per_draft * (len(others) + len(named)))
        batches += _split(unsaid, False, minutes)
        self.report("facts asked about", 0, self.settings.drafts)
        kept = await self._finish_batch(batches[0], 0)
        if not kept and len(batches[0].drafts) == _FIRST:
            return []
        kept += await self._finish_batches(batches, len(kept))
        new = self._keep_new(kept)
        await self.examiner.search([worded.question for worded in new])  # the journal stores no hits
        return new

    def _draw_named(self) -> list[Draft]:
        """Drafts about pages that other documents name: questions about them can end a chain."""
        num = int(_NAMED_SHARE * self.settings.num_facts)
        order = list(self.passages)
        Dice(self.settings.seed, "named pages").shuffle(order)
        order = order[: _LOOKS_PER_NAMED * num]

        def report(done: int) -> None:
            self.report("looking for pages that others name", done, len(order))

        named = list(itertools.islice(chains.iterate_named(order, self.examiner.index, report), num))
        return draw_drafts(named, num, self.settings.seed)

    async def _finish_batches(self, batches: Sequence[_Asking], num_kept: int) -> list[Worded]:
        """The kept questions of all batches after the first that are finished or start in time, several at once."""
        found: list[list[Worded]] = [[] for _ in batches]
        waiting = iter(range(1, len(batches)))

        async def work() -> None:
            for number in waiting:
                in_time = time.monotonic() <= self._began_at + 60 * batches[number].until
                if in_time or (self.journal and number in self.journal.batches):
                    found[number] = await self._finish_batch(batches[number], number)
                    so_far = num_kept + sum(map(len, found))
                    self.report(f"facts asked about ({so_far} kept)", self.num_drafts, self.settings.drafts)

        self.report(f"facts asked about ({num_kept} kept)", self.num_drafts, self.settings.drafts)
        await asyncio.gather(*(work() for _ in range(self.at_once)))
        return [worded for batch in found for worded in batch]

    async def _finish_batch(self, asking: _Asking, number: int) -> list[Worded]:
        """The kept questions of a batch: from the journal if it has the batch, else asked now and stored there."""
        finished = self.journal.batches.get(number) if self.journal else None
        if finished is None:
            kept = await self._ask_batch(asking, number)
            names = {draft.id for draft in asking.drafts}
            dropped = [item for item in self.dropped if item.id in names]
            finished = Batch(number, kept, dropped, time.monotonic() - self._began_at)
            if self.journal:
                self.journal.add(finished)
        else:
            self.dropped += finished.dropped
        self.num_drafts += len(asking.drafts)
        return finished.kept

    async def _ask_batch(self, asking: _Asking, number: int) -> list[Worded]:
        """Word and check a batch: one question per fact, its first wording that passes every check."""
        name = f"batch {number}"
        if asking.drafts[0].kind == "unanswerable":
            return await self._ask_unanswerable(name, asking.drafts)
        going: list[list[Worded]] = []  # of each fact, the wordings that are left
        for wordings in await self._word(name, asking):
            sound = [worded for worded in wordings if not _find_fault_of_single(worded)]
            if not sound:
                self._drop(wordings[-1], _find_fault_of_single(wordings[-1]))
            going.append(sound)
        found = await self._keep_found(name, going)
        going = [wordings for wordings in await self._keep_clear(name, found) if wordings]
        if asking.is_named:
            going = await asyncio.to_thread(self._put_far_first, going)
        kept: list[Worded] = []
        for turn in range(1, len(asking.styles) + 1):
            verdicts = await self.examiner.attempt(f"{name}, wording {turn}", [wordings[0] for wordings in going])
            tried = list(zip(going, verdicts, strict=True))
            kept += [_with_scores(wordings[0], verdict) for wordings, verdict in tried if not verdict.fault]
            for wordings, verdict in tried:
                if verdict.fault and len(wordings) == 1:
                    self._drop(wordings[0], verdict.fault)
            going = [wordings[1:] for wordings, verdict in tried if verdict.fault and len(wordings) > 1]
        return kept

    async def _ask_unanswerable(self, name: str, drafts: Sequence[Draft]) -> list[Worded]:
        """Word and check a batch of questions about what their pages do not say, one wording each."""
        facts = [draft.facts[0] for draft in drafts]
        prompts = [word_missing(show_place(fact.passage), fact.kind, self._choose_name(fact)) for fact in facts]
        lines = await self.lines.write(f"{name}: wording", prompts, self.settings.temperature)
        worded = [Worded(draft, line) for draft, line in zip(drafts, lines, strict=True)]
        sound = self._keep(worded, [find_fault_of_unanswerable(item) for item in worded])
        return self._keep(sound, await find_answered(self.examiner, name, sound))

    async def _word(self, name: str, asking: _Asking) -> list[list[Worded]]:
        subjects = [self._choose_name(draft.facts[0]) for draft in asking.drafts]
        prompts = [
            word_question(draft.facts[0], style, subject)
            for draft, subject in zip(asking.drafts, subjects, strict=True)
            for style in asking.styles
        ]
        lines = iter(await self.lines.write(f"{name}: wording", prompts, self.settings.temperature))
        placed = [[self._say_where(next(lines), draft.facts[0]) for _ in asking.styles] for draft in asking.drafts]
        return [
            [Worded(draft, line) for line in dict.fromkeys(own)]
            for draft, own in zip(asking.drafts, placed, strict=True)
        ]

    def _say_where(self, question: str, fact: Fact) -> str:
        """The question; one that names neither its page, nor its folder, nor an identifier begins with the folder's.

        "What command forms a cluster?" becomes "In LXD, what command forms a cluster?".
        """
        name = self.folder_names.find(fact.passage.doc_id)
        told = (name, *filter(None, (fact.name,)))
        if not name or contains(fact.answer, name) or names_any(question, told):
            return question
        first, _, rest = question.partition(" ")
        return f"In {name}, {first.lower() if is_asking(first) else first} {rest}" if rest else question

    def _put_far_first(self, by_fact: Sequence[Sequence[Worded]]) -> list[list[Worded]]:
        """Per fact, its wordings, those first that do not find their passage without a name: they can end a chain."""
        asked = [worded for wordings in by_fact for worded in wordings]
        far = {worded.question for worded, _ in chains.find_far(asked, self.examiner.index, self.settings.topk)}
        return [sorted(wordings, key=lambda worded: worded.question not in far) for wordings in by_fact]

    def _choose_name(self, fact: Fact) -> str:
        """The name that a question about the fact should contain: its page's or folder's; "" if it is in the answer."""
        name = fact.name or self.folder_names.find(fact.passage.doc_id)
        return "" if name and contains(fact.answer, name) else name

    async def _keep_found(self, name: str, by_fact: Sequence[Sequence[Worded]]) -> list[list[Worded]]:
        """Per fact, the wordings whose search finds its passage; else the first one, if the model's own query does."""
        within = self.settings.max_rank
        await self.examiner.search([worded.question for wordings in by_fact for worded in wordings])
        found = [
            [worded for worded in wordings if self.examiner.finds(worded.question, worded, within)]
            for wordings in by_fact
        ]
        missing = [at for at, wordings in enumerate(by_fact) if wordings and not found[at]]
        are_found = await self.examiner.find_by_own_queries(name, [by_fact[at][0] for at in missing], within)
        for at, is_found in zip(missing, are_found, strict=True):
            found[at] = [by_fact[at][0]] if is_found else []
            if not is_found:
                self._drop(by_fact[at][0], "its passage is not found")
        return found

    async def _keep_clear(self, name: str, by_fact: Sequence[Sequence[Worded]]) -> list[list[Worded]]:
        """Per fact, the wordings that the model judges clear and answered by the fact alone."""
        asked = [worded for wordings in by_fact for worded in wordings]
        is_clear = iter(await self.examiner.are_clear(name, asked))
        clear = [[worded for worded in wordings if next(is_clear)] for wordings in by_fact]
        for wordings, left in zip(by_fact, clear, strict=True):
            if wordings and not left:
                self._drop(wordings[-1], "is unclear")
        return clear

    # ----------------------------------------------------------------------------------------------------------- chains

    async def describe(self, bridges: Sequence[chains.Bridge]) -> dict[str, str]:
        """Checked descriptions of the bridges' names (`check_descriptions`), by the fact's id."""
        facts = list({bridge.fact.id: bridge.fact for bridge in bridges}.values())
        prompts = [describe_name(show_place(fact.passage), fact.answer) for fact in facts for _ in range(_DESCRIPTIONS)]
        lines = await self.lines.write("descriptions: wording", prompts, self.settings.temperature)
        described: dict[str, str] = {}
        for turn in range(_DESCRIPTIONS):
            cleaned = map(chains.clean_description, lines[turn::_DESCRIPTIONS])
            texts = {fact.id: text for fact, text in zip(facts, cleaned, strict=True)}
            tried = [
                (fact, texts[fact.id])
                for fact in facts
                if fact.id not in described and not chains.find_description_fault(texts[fact.id], fact.answer)
            ]
            are_good = await chains.check_descriptions(self.examiner, f"descriptions {turn + 1}", tried)
            described |= {fact.id: text for fact, text in itertools.compress(tried, are_good)}
        self.report(f"names described ({len(described)} kept)", len(facts), len(facts))
        return described

    async def ask_chains(self, asked: Sequence[Worded]) -> list[Worded]:
        """The chains that need two searches and that the model answers with both passages and never without."""
        self.num_drafts += len(asked)
        sound = self._keep_sound(asked)
        await self.examiner.search([worded.question for worded in sound])
        hits = self.examiner.hits
        near = [any(has_answer(passage, worded) for passage in hits[worded.question]) for worded in sound]
        far = self._keep(sound, ["one search finds the answer" if is_near else "" for is_near in near])
        verdicts = await self.examiner.attempt("chains", far, needed=1)
        kept = self._keep(far, [verdict.fault for verdict in verdicts])
        self.report(f"chains asked ({len(kept)} kept)", len(asked), len(asked))
        return [_with_scores(item, verdict) for item, verdict in zip(far, verdicts, strict=True) if not verdict.fault]

    # ------------------------------------------------------------------------------------------ comparisons and choices

    async def word_comparisons(self, pairs: Sequence[comparisons.Pair]) -> dict[tuple[str, Form], list[str]]:
        """Distinct wordings with slots for two names, by template and form; the model writes each for one pair."""
        asked = [pair for group in group_by(pairs, lambda pair: pair.key).values() for pair in group[:_WORDINGS]]
        prompts = [
            word_pair(pair.one.question, (pair.one.fact.name, pair.other.fact.name), pair.form) for pair in asked
        ]
        lines = await self.lines.write("comparison: wording", prompts, 0.0)
        read = [(pair.key, comparisons.read_wording(line, pair)) for pair, line in zip(asked, lines, strict=True)]
        distinct = dict.fromkeys((key, form) for key, form in read if form)
        return {key: [form for _, form in forms] for key, forms in group_by(distinct, lambda one: one[0]).items()}

    async def check_comparisons(self, compared: Sequence[Worded]) -> list[Worded]:
        """The comparisons whose pages a search finds. The model does not answer them: half of all guesses are right."""
        self.num_drafts += len(compared)
        sound = self._keep_sound(compared)
        names = [fact.name for item in sound for fact in item.draft.facts]
        await self.examiner.search([*(item.question for item in sound), *names])
        hits = {query: {passage.id for passage in found} for query, found in self.examiner.hits.items()}
        found = [
            all(fact.passage.id in hits[item.question] | hits[fact.name] for fact in item.draft.facts) for item in sound
        ]
        return self._keep(sound, ["" if each else "its passage is not found" for each in found])

    async def ask_choices(self, kept: Sequence[Worded], dice: Dice) -> list[Worded]:
        """Some single facts asked again as a choice of two answers, and as many as yes/no questions."""
        num, pool = int(_CHOICE_SHARE * len(kept)), list(kept)
        dice.shuffle(pool)
        by_document = group_by(self.passages, lambda passage: passage.doc_id)
        wrong = [
            (item, comparisons.find_wrong_answer(item, by_document[item.fact.passage.doc_id], dice))
            for item in pool[: 6 * num]  # several times what is kept
        ]
        able = [(item, other) for item, other in wrong if other]
        asked = able[1::2]
        prompts = [propose_answer(item.question, said) for item, other in asked for said in (item.fact.answer, other)]
        lines = await self.lines.write("yes-no: wording", prompts, 0.0)
        choices = [comparisons.make_choice(item, other) for item, other in able[::2]]
        confirmed = [comparisons.make_yes_no(item, *lines[2 * at : 2 * at + 2]) for at, (item, _) in enumerate(asked)]
        chosen: list[Worded] = []
        for name, made in (("choices", choices), ("yes-no", confirmed)):
            pairs = [pair for pair in made if pair][: 2 * num]
            self.num_drafts += len(pairs)
            verdicts = await self.examiner.read_both(name, pairs)
            self._keep([pair[0] for pair in pairs], [verdict.fault for verdict in verdicts])
            good = [pair for pair, verdict in zip(pairs, verdicts, strict=True) if not verdict.fault]
            # Variants alternate, so that the first answer is right as often as the second, and yes as often as no.
            chosen += [pair[number % 2] for number, pair in enumerate(good[:num])]
        return self._keep_new(chosen)

    # ----------------------------------------------------------------------------------------------------------- shared

    def finish(self, worded: Worded) -> CheckedQuestion:
        """The question as a line of the question file, with the number of searches it needs."""
        draft, num_facts = worded.draft, len(worded.draft.facts)
        return CheckedQuestion(
            id=draft.id,
            question=worded.question,
            answers=worded.answers,
            kind=draft.kind,
            facts=num_facts,
            searches=1 if self.examiner.finds(worded.question, worded) else num_facts,
            hops=num_facts,
            evidence=() if draft.kind == "unanswerable" else tuple(fact.evidence for fact in draft.facts),
            scores=worded.scores,
        )

    def _keep_sound(self, worded: Sequence[Worded]) -> list[Worded]:
        return self._keep_new(self._keep(worded, [break_rules(item) for item in worded]))

    def _keep_new(self, worded: Sequence[Worded]) -> list[Worded]:
        faults = []
        for text in (normalise_answer(item.question) for item in worded):
            faults.append("was asked already" if text in self._asked else "")
            self._asked.add(text)
        return self._keep(worded, faults)

    def _keep(self, worded: Sequence[Worded], faults: Sequence[str]) -> list[Worded]:
        for item, fault in zip(worded, faults, strict=True):
            if fault:
                self._drop(item, fault)
        return [item for item, fault in zip(worded, faults, strict=True) if not fault]

    def _drop(self, worded: Worded, reason: str) -> None:
        draft = worded.draft
        answer = draft.answers[0] if draft.answers else ""
        self.dropped.append(Dropped(draft.id, worded.question, answer, f"{draft.kind}: {reason}"))


def _find_fault_of_single(worded: Worded) -> str:
    """The rule that a question about one fact breaks, "" if none; it must also name its subject."""
    fact, fault = worded.fact, break_rules(worded)
    if not fault and not names_subject(worded.question, fact.passage, fact.sentence):
        fault = "does not name what it is about"
    return fault


def _with_scores(worded: Worded, verdict: Verdict) -> Worded:
    same = round(word_overlap(worded.question, worded.fact.sentence), 3)
    return structs.replace(worded, scores={"with_page": verdict.share, "closed_book": 0.0, "same_words": same})
