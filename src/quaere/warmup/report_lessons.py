"""Lessons of SCORE's dialect on a generated world: reports to write, rubrics to choose, reports to assess.

    research = Research(world, index, Limits(max_turns=8), style="brief", seed=0)
    attempt = research.draw("report")       # Attempt(id="report-w1-r0-00000", task=ReportTask(...), ...)

Searches are real, both in the lessons and in the reports to be assessed. A writer states only facts it was shown, and
follows the rubric if it is shown one (`rubric_drafts.py`); an assessor's text is a function of the flaws that were put
into a report.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

from quaere.chat.protocol import PromptStyle
from quaere.dialects.registry import find_dialect
from quaere.dialects.report.assessment import count_searches
from quaere.dialects.report.evaluator_prompts import Verification
from quaere.dialects.report.report_writer import bind_report, numbered_sources, write_entry, write_rubric, write_turn
from quaere.errors import BadInput, SamplingFailed
from quaere.records import Assessment, AssessTask, Episode, ReportTask, Rubric, RubricTask, Search, SearchResult, Turn
from quaere.rollout.episode import Limits
from quaere.search.index import Index
from quaere.warmup.dialects import LessonKind
from quaere.warmup.oracle_reports import (
    FLAWS,
    MIN_CLAIMS,
    Claim,
    Draft,
    Flaw,
    describe,
    explain,
    find_facts,
    mark,
    write_draft,
)
from quaere.warmup.phrases import REPORT_FORMS, write_open_query, write_thought
from quaere.warmup.rubric_drafts import write_by_rubric
from quaere.warmup.rubric_lessons import draw_any_rubric, draw_harness, draw_hints, draw_rubric, think_of
from quaere.warmup.scripted_episodes import Attempt, find_failure
from quaere.worlds import Entity, World
from quaere.worlds.dice import Dice
from quaere.worlds.names import strip_article
from quaere.worlds.open_questions import ReportLine, ask_open_questions

MIN_SEARCHES, MAX_SEARCHES = 2, 4
MIN_REPORTS, MAX_REPORTS = 2, 8
_FULL_PERCENT = 50  # of the assessments have MAX_REPORTS reports: as in training, and the hardest to keep in format
MAX_SCORES = 32  # scores per assessment (reports times dimensions), so that an assessment stays short
_RUBRIC_PERCENT = 60  # of the reports are shown their rubric
_SOUND_PERCENT = 30
_TWO_FLAWS_PERCENT = 25
_EACH_PERCENT = 30
_BY_NUMBER_PERCENT = 40  # of the assessments whose every report must have a search of its own


class Research:
    """Draws attempts of SCORE's three kinds of lesson; no question is used twice."""

    def __init__(
        self, world: World, index: Index, limits: Limits, *, style: PromptStyle, seed: int, ignore_rubrics: bool = False
    ) -> None:
        self.world, self.index, self.seed, self.topk = world, index, seed, limits.topk
        self.ignore_rubrics = ignore_rubrics
        self.style: PromptStyle = style
        self.max_turns, self.max_searches = limits.max_turns, min(MAX_SEARCHES, limits.max_turns - 1)
        self._questions: Iterator[ReportLine] = ask_open_questions(world.graph, world.seed, 1 << 30)

    def draw(self, kind: LessonKind) -> Attempt:
        """The next lesson of this kind; raises BadInput when the world has no more questions."""
        draw = {"report": self._report, "rubric": self._rubric, "assessment": self._assessment}[kind]
        while True:
            gold = self._next_question()
            with suppress(SamplingFailed):  # the sources state too few facts for reports on this question
                return draw(gold, Dice(self.seed, "warmup", kind, gold.id))

    def _next_question(self) -> ReportLine:
        try:
            return next(self._questions)
        except BadInput as error:
            said = f"a world of {len(self.world.entities)} articles has too few open questions for this"
            raise BadInput(said, hint="--articles 2000") from error

    def _report(self, gold: ReportLine, dice: Dice) -> Attempt:
        rubric = draw_any_rubric(gold.kind, dice)[1] if dice.chance(_RUBRIC_PERCENT) else None
        task = ReportTask(gold.to_question(), rubric)
        protocol = find_dialect("report", "writer").open(style=self.style)
        followed = None if self.ignore_rubrics else rubric
        script = _Writer(self.world, gold, dice, self.max_searches, followed)
        return Attempt(f"report-{gold.id}", task, script, protocol, _find_report_fault)

    def _rubric(self, gold: ReportLine, dice: Dice) -> Attempt:
        golds = [gold, *(self._next_question() for _ in range(dice.below(3)))]
        harness = draw_harness(dice)
        hints = draw_hints(harness, dice)
        num_shown = dice.below(3)
        passages = tuple(hit.passage for hit in self.index.search([gold.question], num_shown)[0]) if num_shown else ()
        task = RubricTask(f"rubric-{gold.id}", tuple(one.question for one in golds), harness, hints, passages)
        rubric = draw_rubric(harness, hints, [one.kind for one in golds], dice)
        text = write_rubric(think_of(rubric, hints, dice), rubric)
        protocol = find_dialect("report", "rubric").open(harness, style=self.style)

        def find_fault(episode: Episode) -> str:
            return find_failure(episode) or ("" if episode.outcome == rubric else "another rubric was read")

        return Attempt(task.id, task, lambda turns, news: text, protocol, find_fault)

    def _assessment(self, gold: ReportLine, dice: Dice) -> Attempt:
        num_reports = MAX_REPORTS if dice.chance(_FULL_PERCENT) else dice.between(MIN_REPORTS, MAX_REPORTS)
        harness, rubric = draw_any_rubric(gold.kind, dice, max_k=min(6, MAX_SCORES // num_reports))
        drafts, reports = [], []
        for _ in range(num_reports):
            sources = numbered_sources(self._gather(gold, dice))
            drafts.append(write_draft(self.world, gold, sources, dice, _draw_flaws(dice)))
            reports.append(drafts[-1].bind(gold, sources))
        task = AssessTask(f"assess-{gold.id}", gold.to_question(), rubric, harness, tuple(reports))
        is_fit = num_reports * harness.process.min_tool_calls < self.max_turns
        by_number = is_fit and Dice(self.seed, "by number", gold.id).chance(_BY_NUMBER_PERCENT)
        verification: Verification = "each" if by_number else "shared"
        script = _Judge(self.world, gold, task, drafts, dice, self.max_searches, verification)
        assess = find_dialect("report", "assessment").open
        protocol = assess(rubric, num_reports, style=self.style, process=harness.process, verification=verification)
        find_fault = partial(_find_assessment_fault, verification=verification)
        return Attempt(task.id, task, script, protocol, find_fault)

    def _gather(self, gold: ReportLine, dice: Dice) -> list[Turn]:
        """Run the searches that a writer would make; returns them as turns with results but without tokens."""
        turns: list[Turn] = []
        plan = _Plan(self.world, gold, dice, self.max_searches)
        while (query := plan.next_query(turns)) is not None:
            hits = tuple(self.index.search([query], self.topk)[0])
            turns.append(Turn(len(turns), "", Search((query,)), "stop_string", results=(SearchResult(query, hits),)))
        return turns


def _draw_flaws(dice: Dice) -> tuple[Flaw, ...]:
    if dice.chance(_SOUND_PERCENT):
        return ()
    flaws = list(FLAWS)
    dice.shuffle(flaws)
    return tuple(flaws[: 2 if dice.chance(_TWO_FLAWS_PERCENT) else 1])


# ------------------------------------------------------------------------------------------------------------- writing


class _Plan:
    """Chooses a writer's searches: the entities that the question names, then entities that facts link to them."""

    def __init__(self, world: World, gold: ReportLine, dice: Dice, max_searches: int) -> None:
        self.world, self.gold, self.dice = world, gold, dice
        self.named = [world.entity(entity).index for entity in gold.entities]
        self.num_searches = max(len(self.named), dice.between(min(MIN_SEARCHES, max_searches), max_searches))
        self.looked_up: list[tuple[str, int]] = []  # name and entity index of each thing

    def next_query(self, turns: Sequence[Turn]) -> str | None:
        """The next query; None if the searches are done and the report should be written."""
        number = len(self.looked_up)
        if number < len(self.named):
            name, index = self.world.graph.entities[self.named[number]].name, self.named[number]
        elif number < self.num_searches and (related := self._find_related(turns)):
            name, index = self.dice.pick(related)
        else:
            return None
        self.looked_up.append((name, index))
        return write_open_query(name, self.world.graph.kind(index).noun, self.dice)

    def _find_related(self, turns: Sequence[Turn]) -> list[tuple[str, int]]:
        """Name and index of entities that facts found so far link to the question's, except those looked up already."""
        known = {index for _, index in self.looked_up}
        found = find_facts(self.world, numbered_sources(turns))
        facts = [(one.said, one.fact.object) for one in found if one.fact.subject in self.named]
        return [(name, index) for name, index in facts if index is not None and index not in known]


class _Writer(_Plan):
    """Script of a report writer: searches by the plan, then states the facts it was shown, as the rubric asks."""

    def __init__(
        self, world: World, gold: ReportLine, dice: Dice, max_searches: int, rubric: Rubric | None = None
    ) -> None:
        super().__init__(world, gold, dice, max_searches)
        self.rubric = rubric
        if rubric is not None and "depth" in rubric.dimensions:  # it needs facts on linked things
            self.num_searches = max(len(self.named), max_searches)

    def __call__(self, turns: Sequence[Turn], news: str) -> str:
        query = self.next_query(turns)
        if query is not None:
            form = "start" if not turns else "second" if len(turns) < len(self.named) else "follow"
            slots = {"X": self.looked_up[-1][0]}
            return write_turn(write_thought(REPORT_FORMS[form], self.dice, slots, min_words=3), "search", query)
        if len(turns) < min(MIN_SEARCHES, self.num_searches):
            raise SamplingFailed("there was nothing to follow")
        given = self.world, self.gold, numbered_sources(turns)
        if self.rubric is None:
            draft = write_draft(*given, self.dice)
            thought = write_thought(REPORT_FORMS["write"], self.dice, {"X": self.looked_up[0][0]}, min_words=3)
        else:
            draft = write_by_rubric(*given, self.rubric, self.dice)
            slots = {"d": ", ".join(self.rubric.dimensions)}
            thought = write_thought(REPORT_FORMS["write_judged"], self.dice, slots, min_words=3)
        return write_turn(thought, "answer", draft.text)


def _find_report_fault(episode: Episode) -> str:
    """Why a report should not be learnt from; "" if it is complete and every citation resolves."""
    if fault := find_failure(episode):
        return fault
    report = bind_report(episode)
    if report is None or not report.conclusion or not report.citations or report.unresolved:
        return "the report is not whole"
    return "" if len(report.statements) >= MIN_CLAIMS else "the report is short"


# --------------------------------------------------------------------------------------------------------- assessments


class _Judge:
    """Script of an assessor: searches about all reports, verifies one or two, and scores all by their known flaws."""

    def __init__(
        self,
        world: World,
        gold: ReportLine,
        task: AssessTask,
        drafts: Sequence[Draft],
        dice: Dice,
        max_searches: int,
        verification: Verification = "shared",
    ) -> None:
        self.world, self.gold, self.drafts, self.dice = world, gold, drafts, dice
        self.rubric, min_calls = task.rubric, task.harness.process.min_tool_calls
        if verification == "each":
            numbers = range(1, len(drafts) + 1)
            self.searches = [self._check_one(number, at) for number in numbers for at in range(min_calls)]
        else:
            self.searches = self._plan_searches(min_calls)[:max_searches]

    def __call__(self, turns: Sequence[Turn], news: str) -> str:
        if len(turns) < len(self.searches):
            thought, query = self.searches[len(turns)]
            return write_turn(thought, "search", query)
        shown = [hit.passage for turn in turns for result in turn.results for hit in result.hits]
        if all(passage.doc_id != self.gold.entities[0] for passage in shown):
            raise SamplingFailed("nothing was found about what was asked")
        thought = write_thought(REPORT_FORMS["judge"], self.dice, {}, min_words=3)
        entries = []
        for number, draft in enumerate(self.drafts, start=1):
            scores = {name: mark(draft, name) for name in self.rubric.dimensions}
            entries.append(write_entry(number, *explain(self.world, draft, self.dice, shown), scores))
        return write_turn(thought, "assessment", "".join(["\n", *entries]))

    def _plan_searches(self, min_calls: int) -> list[tuple[str, str]]:
        """The searches as (thought, query): as many about all reports as required, then about a doubtful one.

        If there are few reports, each is sometimes verified separately instead.
        """
        if len(self.drafts) <= MAX_SEARCHES - 1 and min_calls == 1 and self.dice.chance(_EACH_PERCENT):
            return [self._check_one(number) for number in range(1, len(self.drafts) + 1)]
        entities = [self.world.entity(entity) for entity in self.gold.entities]
        about_all = [entities[number % len(entities)] for number in range(max(min_calls, len(entities)))]
        searches = [self._check_all(entity) for entity in about_all]
        doubtful = [
            number for number, draft in enumerate(self.drafts, start=1) if any(claim.flaw for claim in draft.claims)
        ]
        doubtful = doubtful or list(range(1, len(self.drafts) + 1))
        self.dice.shuffle(doubtful)
        return [*searches, *(self._check_one(number) for number in sorted(doubtful[: self.dice.between(1, 2)]))]

    def _check_all(self, entity: Entity) -> tuple[str, str]:
        thought = write_thought(REPORT_FORMS["check_all"], self.dice, {"X": entity.name}, min_words=3)
        return thought, write_open_query(entity.name, self.world.graph.kind(entity.index).noun, self.dice)

    def _check_one(self, number: int, at: int = 0) -> tuple[str, str]:
        claims = sorted(self.drafts[number - 1].claims, key=_doubt)
        topic = describe(self.world, claims[at % len(claims)].finding.key)
        slots = {"r": str(number), "claim": topic}
        thought = write_thought(REPORT_FORMS["check_one"], self.dice, slots, min_words=3, max_words=25)
        return thought, f"[{number}] {strip_article(topic)}"


def _doubt(claim: Claim) -> tuple[bool, bool]:
    """Sorts claims by how useful it is to verify them: false ones, then those with another flaw, then the rest."""
    return claim.flaw != "false", not claim.flaw


def _find_assessment_fault(episode: Episode, verification: Verification = "shared") -> str:
    if fault := find_failure(episode):
        return fault
    task, outcome = episode.task, episode.outcome
    assert isinstance(task, AssessTask)
    if not isinstance(outcome, Assessment) or len(outcome.reports) < len(task.reports):
        return "a report was left out"
    searched = count_searches(episode, len(task.reports), verification)
    return "" if min(searched) >= task.harness.process.min_tool_calls else "too few searches"
