"""Hardening: Dr. Zero whose proposer rewords checked questions (`proposer.task=harden` or `reword`).

    repeat:
        the solver attempts some checked facts, and those it answers sometimes are chosen       (hardening.attempts)
        the proposer learns to reword them, so that they need one search more             (reward: gate x difficulty)
        the trained proposer rewords further facts
        the solver learns to answer the new questions

The proposer gets a page, a question about it and its answer, all checked by `quaere questions --checked`. It searches
for a second page (`harden`) or is given one (`reword`), and puts what that says in place of a name, so the answer stays
true if the description leads back to the page. Whether it does is decided by the code that checks the chains of `quaere
questions --checked`, before the solver attempts anything: a rewording that is refused earns 0, and none earns less.
"""

import asyncio
import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack

from msgspec import Struct, structs

from quaere.chat.spans import shown_passages
from quaere.errors import BadInput
from quaere.recipes.drawn_documents import Documents
from quaere.recipes.drzero import DrZero
from quaere.records import Candidate, Passage, ProposeTask, Question, searches_needed
from quaere.rewards.answers import contains, exact_match_score
from quaere.rollout.policy import Policy, derive_seed, open_policy
from quaere.runs import Run
from quaere.search.index import Index
from quaere.search.searcher import Searcher
from quaere.training.given import read_given, take_given
from quaere.training.progress import Reporter
from quaere.training.proposals import Proposed, remember_questions
from quaere.training.run_setup import open_run
from quaere.training.self_play import ROLES, SelfPlayConfig, count_documents, count_steps
from quaere.training.settings import HardeningConfig
from quaere.training.step import Step
from quaere.training.training_run import TrainingRun
from quaere.warmup.documents.askable_facts import Fact, page_name
from quaere.warmup.documents.chains import (
    check_descriptions,
    cut_description,
    find_bridges,
    find_description_fault,
    find_shown_bridge,
    word_chain,
)
from quaere.warmup.documents.checked_question import Worded, WriterSettings, recall_singles
from quaere.warmup.documents.checks import UNREAD, Examiner, Lines, break_rules, has_answer

HOPS = 3  # Dr. Zero's count of a question of two facts: the page that describes, and the page of the answer
# The checks of a rewording, in order; the first that fails is its refusal.
GATES = (
    "proposal",  # a question was written
    "answer",  # its answer is that of the given question
    "pages",  # a page was shown that says something of a name which is no longer in the question
    "wording",  # the writer's rules: one question, with a description for that name, without title or answer
    "description",  # a search with the description shows that passage; the examiner calls it clear and reads the name
    "leads",  # a search with the question shows the page that describes
    "far",  # and neither the page of the answer nor another passage with the answer
    "read",  # the examiner answers it with both passages among others
    "unknown",  # and hardly ever without them
)


# ---------------------------------------------------------------------------------------------------------------- facts


class CheckedFact(Struct, frozen=True):
    """A checked question with the fact that it asks for, and passages of other documents that describe a name in it.

    CheckedFact(question=Question(id="venn#0:16", text="When was Orsolya Venn born?", ...), worded=Worded(...),
                sources=(Passage(...),))
    """

    question: Question
    worded: Worded
    sources: tuple[Passage, ...] = ()


def find_hardenable(
    questions: Sequence[Question], index: Index, topk: int, held: Collection[str] = ()
) -> list[CheckedFact]:
    """The questions about single facts that can be reworded, each with its fact.

    Another document says something of a name in them, and a search without that name does not find their passage. The
    ids are those that the writer gave them, by which their facts are found again. Neither document is one of `held`.
    """
    known = recall_singles({one.id: one.text for one in questions if one.answers}, index.passages())
    worded = {one.draft.id: one for one in known}
    found = [CheckedFact(question, worded[question.id]) for question in questions if question.id in worded]
    found = [fact for fact in found if fact.worded.fact.passage.doc_id not in held]
    sources: dict[str, dict[str, Passage]] = {}  # by question and passage
    for bridge in find_bridges([fact.worded for fact in found], index, topk):
        source = bridge.fact.passage
        if source.doc_id not in held and find_shown_bridge(bridge.second, "", [source]):
            sources.setdefault(bridge.second.draft.id, {})[source.id] = source
    return [
        structs.replace(fact, sources=tuple(sources[fact.question.id].values()))
        for fact in found
        if fact.question.id in sources
    ]


def order_facts(facts: Sequence[CheckedFact], seed: int) -> list[CheckedFact]:
    """The facts in random order, one of each page first, then a second of each, and so on."""
    order = sorted(facts, key=lambda fact: derive_seed(seed, "facts", fact.question.id))
    nums: Counter[str] = Counter()
    ranked = []
    for fact in order:
        page = fact.worded.fact.passage.doc_id
        ranked.append((nums[page], fact))
        nums[page] += 1
    return [fact for _, fact in sorted(ranked, key=lambda each: each[0])]


def choose_pool(facts: Sequence[CheckedFact], iteration: int, size: int, num_written: int) -> list[CheckedFact]:
    """The facts of an iteration: the next `size` in order, so that none comes again before all were asked about.

    If an iteration takes all facts, the last ones, which are those of the solver's questions (`split_facts`), change
    first.
    """
    stride = size if size < len(facts) else min(num_written, len(facts) // 2)
    return [facts[(iteration * stride + place) % len(facts)] for place in range(min(size, len(facts)))]


def split_facts(facts: Sequence[CheckedFact], num: int) -> tuple[Sequence[CheckedFact], Sequence[CheckedFact]]:
    """The facts that the proposer learns on, and those of the solver's questions: the last `num`, at most half.

    A single fact is used for both.
    """
    num = min(num, len(facts) // 2)
    return (facts[:-num], facts[-num:]) if num else (facts, facts)


# ----------------------------------------------------------------------------------------------------------------- gate


class Reworded(Struct, frozen=True):
    """A rewording as a chain of two facts, and the description that it has in place of a name.

    Reworded(Worded(..., question="When was the builder of Halm Bridge born?"), "the builder of Halm Bridge")
    """

    chain: Worded
    description: str

    @property
    def described(self) -> Fact:
        """The fact on the describing page, whose answer is the name that the description replaces."""
        return self.chain.draft.facts[0]


def read_rewording(proposed: Proposed, fact: CheckedFact) -> Reworded | str:
    """The rewording as a chain of two facts, or the first gate that refuses it by its text and the pages shown."""
    written = proposed.written
    if not written.question:
        return "proposal"
    if not exact_match_score(written.answer, fact.question.answers):
        return "answer"
    given = (proposed.task.beside,) if proposed.task.beside else ()
    bridge = find_shown_bridge(fact.worded, written.question, (*given, *shown_passages(proposed.episode)))
    if bridge is None:
        return "pages"
    found = Reworded(word_chain(bridge, written.question), cut_description(bridge, written.question))
    title = page_name(fact.worded.fact.passage.title)
    is_told = bool(title) and contains(written.question, title)
    is_broken = break_rules(found.chain) or find_description_fault(found.description, bridge.fact.answer)
    return "wording" if is_told or is_broken else found


class Gate:
    """Decides which rewordings are questions that need one search more and have the same answer.

    await Gate(index, HardeningConfig(), lambda: policy, 32).check(proposals, facts, seed=7) -> [Proposed(...), ...]
    """

    def __init__(self, index: Index, config: HardeningConfig, get_policy: Callable[[], Policy], rows: int) -> None:
        self.index, self.config, self.get_policy, self.rows = index, config, get_policy, rows

    async def check(self, proposals: Sequence[Proposed], facts: Sequence[CheckedFact], seed: int) -> list[Proposed]:
        """The proposals; those that pass have a question for the solver, the others the gate that refused them.

        A proposal with a failed search has neither, because it cannot be judged.
        """
        read = [
            "" if item.episode.search_failed else read_rewording(item, fact)
            for item, fact in zip(proposals, facts, strict=True)
        ]
        faults = iter(await self._examine([found for found in read if isinstance(found, Reworded)], seed))
        settled = []
        for proposed, found in zip(proposals, read, strict=True):
            refused = found if isinstance(found, str) else next(faults)
            passed = found.chain if isinstance(found, Reworded) and not refused else None
            settled.append(_settle(proposed, passed, refused))
        return settled

    async def _examine(self, reworded: Sequence[Reworded], seed: int) -> list[str]:
        """Per rewording, the first gate of searches and answers that refuses it; "" if it passes all."""
        config = self.config
        settings = WriterSettings(
            tries=config.tries, min_right=math.ceil(config.min_read * config.tries - 1e-9), topk=config.topk
        )
        lines = Lines(self.get_policy(), seed=seed, concurrency=self.rows)
        max_known = math.floor(config.max_known * config.tries + 1e-9)
        examiner = Examiner(lines, self.index, settings, max_known=max_known)
        described = [(item.described, item.description) for item in reworded]
        lead = await check_descriptions(examiner, "descriptions", described)
        chains = [item.chain for item in reworded]
        await examiner.search([chain.question for chain in itertools.compress(chains, lead)])
        faults = [
            judge_search(examiner.hits[chain.question], chain) if leads else "description"
            for chain, leads in zip(chains, lead, strict=True)
        ]
        left = [at for at, fault in enumerate(faults) if not fault]
        verdicts = await examiner.attempt("rewordings", [chains[at] for at in left], needed=settings.min_right)
        for at, verdict in zip(left, verdicts, strict=True):
            if verdict.fault:
                faults[at] = "read" if verdict.fault == UNREAD else "unknown"
        return faults


def judge_search(shown: Sequence[Passage], worded: Worded) -> str:
    """The search gate ("leads" or "far") that refuses a rewording whose search shows these passages; "" if none."""
    first, last = (fact.passage.doc_id for fact in worded.draft.facts)
    if all(passage.doc_id != first for passage in shown):
        return "leads"
    return "far" if any(passage.doc_id == last or has_answer(passage, worded) for passage in shown) else ""


def _settle(proposed: Proposed, worded: Worded | None, refused: str) -> Proposed:
    """The proposal with a question if it passed the gate (`worded`), else with the gate that refused it.

    A refused proposal may still have a valid form: the alarm `validity` is about proposals that are none.
    """
    if worded is None:
        return structs.replace(proposed, question=None, refusals=(refused,) if refused else ())
    score = structs.replace(proposed.score, valid=True)
    assert proposed.task.given is not None
    num = searches_needed(HOPS)
    evidence = tuple(fact.evidence for fact in worded.draft.facts)
    accepted = tuple(dict.fromkeys((*proposed.task.given.answers, *worded.answers)))
    question = Question(
        proposed.episode.id, proposed.written.question, accepted, HOPS, evidence, facts=num, searches=num
    )
    return structs.replace(proposed, score=score, question=question)


def measure_gates(refusals: Sequence[tuple[str, ...]]) -> dict[str, float]:
    """Share of the rewordings that pass each gate and all gates before it.

    measure_gates([(), ("read",), ("proposal",), ()])["gate/far"] == 0.75
    """
    failed = [GATES.index(refused[0]) if refused else len(GATES) for refused in refusals]
    if not failed:
        return {}
    return {f"gate/{name}": sum(at > place for at in failed) / len(failed) for place, name in enumerate(GATES)}


# ------------------------------------------------------------------------------------------------------------- the loop


class Hardening(DrZero):
    """A run of Dr. Zero whose proposer rewords checked questions."""

    def __init__(
        self,
        config: SelfPlayConfig,
        training: TrainingRun,
        searcher: Searcher,
        *,
        documents: Documents,
        facts: Sequence[CheckedFact],
        gate: Gate,
    ) -> None:
        # The reward is gate x difficulty, by attempts with as many searches as needed; given questions are the facts.
        is_strict = config.proposer.reward.needed_searches is not False
        reward = structs.replace(config.proposer.reward, format_weight=0.0, needed_searches=is_strict)
        config = structs.replace(
            config,
            proposer=structs.replace(config.proposer, reward=reward),
            generation=structs.replace(config.generation, given=""),
        )
        super().__init__(config, training, searcher, first=documents, second=documents)
        self.facts, self.gate = {fact.question.id: fact for fact in facts}, gate
        self._order = order_facts(facts, config.seed)

    async def iterate(self, iteration: int) -> None:
        """One iteration: facts, and all three phases."""
        await self.rate_facts(iteration)
        await super().iterate(iteration)

    async def rate_facts(self, iteration: int) -> None:
        """Let the solver attempt the iteration's facts; those it answers sometimes are kept as candidates."""
        num_attempts = self.config.proposer.hardening.attempts
        if not num_attempts:
            return
        for step in self.training.steps(iteration, "facts", 1):
            seen = remember_questions(self.training.store.candidates(iteration=iteration))
            await take_given(
                step,
                self.training,
                self.stage,
                self.asking,
                self.limits,
                [fact.question for fact in self._pool(iteration)],
                seen,
                attempts=num_attempts,
                max_words=self.config.generation.max_words,
            )
            kept = sum(candidate.kept for candidate in step.candidates)
            step.metrics["facts/sometimes"] = kept / max(1, len(step.candidates))
            if not kept:
                self.training.reporter.note(
                    f"iteration {iteration + 1}: the solver answers none of {len(step.candidates)} facts sometimes, "
                    "so all are reworded"
                )

    def draw(self, step: Step, numbers: Sequence[int]) -> list[ProposeTask]:
        """Tasks about the facts with these numbers; the proposer does not learn on those that generation takes."""
        is_trained = self.config.proposer.steps > 0
        learned, held = split_facts(self._chosen(step.iteration), self._num_written if is_trained else 0)
        facts = held if step.phase == "generation" else learned
        name = f"i{step.iteration}{step.phase[0]}"
        tasks = []
        for number in numbers:
            turn, place = divmod(number, len(facts))  # a fact that comes again comes with the next page
            fact = facts[place]
            beside = fact.sources[turn % len(fact.sources)] if self.config.proposer.task == "reword" else None
            page = fact.worded.fact.passage
            tasks.append(ProposeTask(f"{name}-{number:06d}", page, HOPS, given=fact.question, beside=beside))
        return tasks

    async def judge(self, step: Step, proposals: Sequence[Proposed]) -> list[Proposed]:
        """Let the solver attempt the rewordings that pass the gate, and reward them."""
        return await super().judge(step, await self._check(step, proposals))

    async def examine(self, step: Step, proposals: Sequence[Proposed], seen: set[str]) -> list[Candidate]:
        """The rewordings as candidates of the curriculum: kept, or dropped with a reason."""
        screened = await self.screen(step, await self._check(step, proposals), seen)
        made = []
        for proposed, reason in screened:
            given = proposed.task.given
            assert given is not None
            candidate = self.record(step, proposed, "refused" if proposed.refusals else reason)
            question = proposed.question or given
            others = tuple(answer for answer in question.answers if answer != candidate.answer)
            needed = searches_needed(HOPS)
            made.append(structs.replace(candidate, aliases=others, searches=needed, proof=question.evidence))
        return made

    async def _check(self, step: Step, proposals: Sequence[Proposed]) -> list[Proposed]:
        """The proposals after the gate, whose metrics are added to the step."""
        facts = [self.facts[item.task.given.id] for item in proposals if item.task.given]
        checked = await self.gate.check(proposals, facts, derive_seed(step.seed, "gate"))
        step.metrics |= measure_gates([item.refusals for item in checked if not item.episode.search_failed])
        return checked

    @property
    def _num_written(self) -> int:
        """Number of facts for which an iteration's generation writes questions."""
        return count_documents(self.config.generation, self.config.proposer)

    def _pool(self, iteration: int) -> list[CheckedFact]:
        proposer = self.config.proposer
        size = max(1, proposer.steps * proposer.batch + self._num_written)
        return choose_pool(self._order, iteration, size, self._num_written)

    def _chosen(self, iteration: int) -> list[CheckedFact]:
        """The facts of the iteration's pool that the solver answers sometimes; all if it attempted none or none is."""
        pool = self._pool(iteration)
        if not self.config.proposer.hardening.attempts:
            return pool
        kept = self.training.store.candidates(iteration=iteration, kept=True)
        asked = {candidate.question for candidate in kept if candidate.given}
        return [fact for fact in pool if fact.question.text in asked] or pool


async def train(config: SelfPlayConfig, store: Run, reporter: Reporter) -> None:
    """Train from the run's last checkpoint, or from the start; close all resources at the end."""
    hardening = config.proposer.hardening
    async with open_run(config, ROLES, reporter) as opened, AsyncExitStack() as stack:
        given = read_given(store)
        documents = Documents(opened.index, config.proposer)
        facts = await asyncio.to_thread(find_hardenable, given, opened.index, hardening.topk, documents.held)
        if not facts:
            raise BadInput(
                f"none of the {len(given)} questions of {config.generation.given} can be reworded: no other document "
                "that is not held back says something of a name in them",
                hint="generation.given=FILE is a file of `quaere questions --checked` about the same index",
            )
        reporter.note(f"{len(facts)} of {len(given)} given questions can be reworded")
        actors, engine, examiner = opened.actors, config.engine, None
        if hardening.examiner:
            examiner = open_policy(hardening.examiner, device=engine.device, mode=engine.mode, max_rows=engine.max_rows)
            stack.push_async_callback(examiner.stop)

        def get_policy() -> Policy:
            if examiner is None:
                actors.become("solver")
            return examiner or actors.policy

        gate = Gate(opened.index, hardening, get_policy, engine.max_rows)
        training = TrainingRun(config, store, actors, reporter, count_steps(config), read_document=opened.read_document)
        await Hardening(config, training, opened.searcher, documents=documents, facts=facts, gate=gate).evolve()
