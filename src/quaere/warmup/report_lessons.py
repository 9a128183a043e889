"""Lessons of SCORE's dialect on a generated world: reports to write, rubrics to choose, reports to assess.

    research = Research(world, index, Limits(max_turns=8), style="brief", seed=0)
    attempt = research.draw("report")       # Attempt(id="report-w1-r0-00000", task=ReportTask(...), ...)

Searches are real, both in the lessons and in the reports to be assessed. A writer states only facts it was shown; an
assessor's text is a function of the flaws that were put into a report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from quaere.chat.prompt_style import PromptStyle
from quaere.chat.question_wordings import OpenKind
from quaere.dialects.registry import find_dialect
from quaere.dialects.report.assessment import count_searches
from quaere.dialects.report.report_writer import (
    bind_report,
    numbered_sources,
    write_assessment,
    write_entry,
    write_report,
    write_rubric,
    write_search,
)
from quaere.errors import BadInput, SamplingFailed
from quaere.records import (
    Assessment,
    AssessTask,
    Episode,
    Harness,
    Hints,
    Passage,
    ReportTask,
    Rubric,
    RubricTask,
    Search,
    SearchResult,
    Turn,
)
from quaere.rollout.episode import Limits
from quaere.search.index import Index
from quaere.warmup import report_phrases as words_research
from quaere.warmup.dialects import LessonKind
from quaere.warmup.findings import find_facts
from quaere.warmup.marks import describe, explain, mark
from quaere.warmup.oracle_reports import FLAWS, MIN_CLAIMS, Claim, Draft, Flaw, write_draft
from quaere.warmup.phrases import write_open_query, write_thought
from quaere.warmup.rubric_lessons import draw_harness, draw_hints, draw_rubric, think_of
from quaere.warmup.scripted_episodes import Attempt
from quaere.worlds import World
from quaere.worlds.dice import Dice
from quaere.worlds.names import strip_article
from quaere.worlds.open_questions import OpenGold, ask_open_questions

MIN_SEARCHES, MAX_SEARCHES = 2, 4
MIN_REPORTS, MAX_REPORTS = 2, 8
_FULL_PERCENT = 50  # of the assessments have MAX_REPORTS reports: as in training, and the hardest to keep in format
MAX_SCORES = 32  # scores per assessment (reports times dimensions), so that an assessment stays short
_RUBRIC_PERCENT = 60  # of the reports are shown their rubric
_SOUND_PERCENT = 30
_TWO_FLAWS_PERCENT = 25
_EACH_PERCENT = 30


class Research:
    """Draws attempts of SCORE's three kinds of lesson; no question is used twice."""

    def __init__(self, world: World, index: Index, limits: Limits, *, style: PromptStyle, seed: int) -> None:
        self.world = world
        self.index = index
        self.style: PromptStyle = style
        self.seed = seed
        self.topk = limits.topk
        self.max_searches = min(MAX_SEARCHES, limits.max_turns - 1)
        self._questions: Iterator[OpenGold] = ask_open_questions(world.graph, world.seed, 1 << 30)

    def draw(self, kind: LessonKind) -> Attempt:
        """The next lesson of this kind; raises BadInput when the world has no more questions."""
        while True:
            gold = self._next_question()
            dice = Dice(self.seed, "warmup", kind, gold.id)
            if kind == "report":
                return self._report(gold, dice)
            if kind == "rubric":
                return self._rubric(gold, dice)
            try:
                return self._assessment(gold, dice)
            except SamplingFailed:
                continue  # the sources state too few facts for reports on this question

    def _next_question(self) -> OpenGold:
        try:
            return next(self._questions)
        except BadInput as error:
            num = len(self.world.entities)
            raise BadInput(
                f"a world of {num} articles has too few open questions for this", hint="--articles 2000"
            ) from error

    # -------------------------------------------------------------------------------------------------- reports

    def _report(self, gold: OpenGold, dice: Dice) -> Attempt:
        rubric = _any_rubric(gold.kind, dice)[1] if dice.chance(_RUBRIC_PERCENT) else None
        task = ReportTask(gold.to_question(), rubric)
        protocol = find_dialect("report", "writer").open(style=self.style)
        script = _Writer(self.world, gold, dice, self.max_searches)
        return Attempt(f"report-{gold.id}", task, script, protocol, find_report_fault)

    # -------------------------------------------------------------------------------------------------- rubrics

    def _rubric(self, gold: OpenGold, dice: Dice) -> Attempt:
        golds = [gold, *(self._next_question() for _ in range(dice.below(3)))]
        harness = draw_harness(dice)
        hints = draw_hints(harness, dice)
        passages = self._look(gold, num=dice.below(3))
        task = RubricTask(f"rubric-{gold.id}", tuple(one.text for one in golds), harness, hints, passages)
        rubric = draw_rubric(harness, hints, [one.kind for one in golds], dice)
        text = write_rubric(think_of(rubric, hints, dice), rubric)
        return Attempt(
            task.id,
            task,
            lambda turns, news: text,
            find_dialect("report", "rubric").open(harness, style=self.style),
            lambda episode: _find_other(episode, rubric),
        )

    def _look(self, gold: OpenGold, num: int) -> tuple[Passage, ...]:
        """A sample of `num` passages found with the question."""
        hits = self.index.search([gold.text], num)[0] if num else []
        return tuple(hit.passage for hit in hits)

    # ---------------------------------------------------------------------------------------------- assessments

    def _assessment(self, gold: OpenGold, dice: Dice) -> Attempt:
        num_reports = MAX_REPORTS if dice.chance(_FULL_PERCENT) else dice.between(MIN_REPORTS, MAX_REPORTS)
        harness, rubric = _any_rubric(gold.kind, dice, max_k=min(6, MAX_SCORES // num_reports))
        drafts, reports = [], []
        for _ in range(num_reports):
            sources = numbered_sources(self._gather(gold, dice))
            drafts.append(write_draft(self.world, gold, sources, dice, _draw_flaws(dice)))
            reports.append(drafts[-1].bind(gold, sources))
        task = AssessTask(f"assess-{gold.id}", gold.to_question(), rubric, harness, tuple(reports))
        script = _Judge(self.world, gold, drafts, rubric, harness, dice, self.max_searches)
        assess = find_dialect("report", "assessment").open
        protocol = assess(rubric, num_reports, style=self.style, process=harness.process)
        return Attempt(task.id, task, script, protocol, lambda episode: _find_assessment_fault(episode, harness))

    def _gather(self, gold: OpenGold, dice: Dice) -> list[Turn]:
        """Turns with the searches that a writer would have made, without tokens."""
        turns: list[Turn] = []
        plan = _Plan(self.world, gold, dice, self.max_searches)
        while (query := plan.next_query(turns)) is not None:
            hits = tuple(self.index.search([query], self.topk)[0])
            turns.append(Turn(len(turns), "", Search((query,)), "stop_string", results=(SearchResult(query, hits),)))
        return turns


def _any_rubric(kind: OpenKind, dice: Dice, max_k: int = 6) -> tuple[Harness, Rubric]:
    harness = draw_harness(dice, max_k)
    return harness, draw_rubric(harness, Hints(), [kind], dice)


def _draw_flaws(dice: Dice) -> tuple[Flaw, ...]:
    """The flaws of a report: none, one or two."""
    if dice.chance(_SOUND_PERCENT):
        return ()
    flaws = list(FLAWS)
    dice.shuffle(flaws)
    return tuple(flaws[: 2 if dice.chance(_TWO_FLAWS_PERCENT) else 1])


# ------------------------------------------------------------------------------------------------------------- writing


class _Plan:
    """The searches of a writer: what the question names, then things that turned out to be linked to it."""

    def __init__(self, world: World, gold: OpenGold, dice: Dice, max_searches: int) -> None:
        self.world = world
        self.dice = dice
        self.named = [world.entity(entity).index for entity in gold.entities]
        self.num_searches = max(len(self.named), dice.between(min(MIN_SEARCHES, max_searches), max_searches))
        self.looked_up: list[tuple[str, int]] = []  # name and entity index of each thing

    def next_query(self, turns: Sequence[Turn]) -> str | None:
        """The next query; None when the report should be written."""
        if len(self.looked_up) == self.num_searches:
            return None
        number = len(self.looked_up)
        if number < len(self.named):
            entity = self.world.graph.entities[self.named[number]]
            target = (entity.name, entity.index)
        else:
            links = self._find_links(turns)
            if not links:
                return None
            target = self.dice.pick(links)
        self.looked_up.append(target)
        noun = self.world.graph.kind(target[1]).noun
        return write_open_query(target[0], noun, self.dice)

    def _find_links(self, turns: Sequence[Turn]) -> list[tuple[str, int]]:
        """Things found to be linked with those asked about and not looked up yet."""
        known = {index for _, index in self.looked_up}
        return [
            (finding.said, finding.fact.object)
            for finding in find_facts(self.world, numbered_sources(turns))
            if finding.fact.subject in self.named
            and finding.fact.object is not None
            and finding.fact.object not in known
        ]


class _Writer:
    """Script of a report writer: searches by the plan, then states the facts it was shown."""

    def __init__(self, world: World, gold: OpenGold, dice: Dice, max_searches: int) -> None:
        self.world = world
        self.gold = gold
        self.dice = dice
        self.plan = _Plan(world, gold, dice, max_searches)

    def __call__(self, turns: Sequence[Turn], news: str) -> str:
        query = self.plan.next_query(turns)
        if query is not None:
            number = len(turns)
            following = words_research.SECOND if number < len(self.plan.named) else words_research.FOLLOW
            forms = words_research.START if number == 0 else following
            thought = write_thought(forms, self.dice, {"X": self.plan.looked_up[-1][0]}, min_words=3)
            return write_search(thought, query)
        if len(turns) < min(MIN_SEARCHES, self.plan.num_searches):
            raise SamplingFailed("there was nothing to follow")
        draft = write_draft(self.world, self.gold, numbered_sources(turns), self.dice)
        thought = write_thought(words_research.WRITE, self.dice, {"X": self.plan.looked_up[0][0]}, min_words=3)
        return write_report(thought, draft.text)


def find_report_fault(episode: Episode) -> str:
    """Why a report should not be learnt from; "" if it is complete and every citation resolves."""
    fault = _find_failure(episode)
    if fault:
        return fault
    report = bind_report(episode)
    if report is None or not report.conclusion or not report.citations or report.unresolved:
        return "the report is not whole"
    return "" if len(report.statements) >= MIN_CLAIMS + 1 else "the report is short"


# --------------------------------------------------------------------------------------------------------- assessments


class _Judge:
    """Script of an assessor: searches for all reports, verifies one or two, and scores all by their known flaws."""

    def __init__(
        self,
        world: World,
        gold: OpenGold,
        drafts: Sequence[Draft],
        rubric: Rubric,
        harness: Harness,
        dice: Dice,
        max_searches: int,
    ) -> None:
        self.world = world
        self.gold = gold
        self.drafts = drafts
        self.rubric = rubric
        self.dice = dice
        self.searches = self._plan_searches(harness.process.min_tool_calls)[:max_searches]

    def __call__(self, turns: Sequence[Turn], news: str) -> str:
        if len(turns) < len(self.searches):
            thought, query = self.searches[len(turns)]
            return write_search(thought, query)
        shown = [hit.passage for turn in turns for result in turn.results for hit in result.hits]
        main = self.gold.entities[0]
        if all(passage.doc_id != main for passage in shown):
            raise SamplingFailed("nothing was found about what was asked")
        thought = write_thought(words_research.JUDGE, self.dice, {}, min_words=3)
        entries = (self._entry(number, draft, shown) for number, draft in enumerate(self.drafts, start=1))
        return write_assessment(thought, entries)

    def _plan_searches(self, min_calls: int) -> list[tuple[str, str]]:
        """Thoughts and queries: about all reports as often as the rules require, then about a doubtful one.

        If there are few reports, each is sometimes verified separately instead.
        """
        if len(self.drafts) <= MAX_SEARCHES - 1 and min_calls == 1 and self.dice.chance(_EACH_PERCENT):
            return [self._check_one(number) for number in range(1, len(self.drafts) + 1)]
        entities = [self.world.entity(entity) for entity in self.gold.entities]
        about_all = [entities[number % len(entities)] for number in range(max(min_calls, len(entities)))]
        searches = [
            (
                write_thought(words_research.CHECK_ALL, self.dice, {"X": entity.name}, min_words=3),
                write_open_query(entity.name, self.world.graph.kind(entity.index).noun, self.dice),
            )
            for entity in about_all
        ]
        doubtful = [number for number, draft in enumerate(self.drafts, start=1) if _find_doubt(draft).flaw]
        doubtful = doubtful or list(range(1, len(self.drafts) + 1))
        self.dice.shuffle(doubtful)
        return [*searches, *(self._check_one(number) for number in sorted(doubtful[: self.dice.between(1, 2)]))]

    def _check_one(self, number: int) -> tuple[str, str]:
        topic = describe(self.world, _find_doubt(self.drafts[number - 1]).finding.key)
        slots = {"r": str(number), "claim": topic}
        thought = write_thought(words_research.CHECK_ONE, self.dice, slots, min_words=3, max_words=25)
        return thought, f"[{number}] {strip_article(topic)}"

    def _entry(self, number: int, draft: Draft, shown: Sequence[Passage]) -> str:
        verification, gaps = explain(self.world, draft, self.dice, shown)
        return write_entry(number, verification, gaps, {name: mark(draft, name) for name in self.rubric.dimensions})


def _find_doubt(draft: Draft) -> Claim:
    """The claim most useful to verify: a false one, else one with a flaw, else the first."""
    return min(draft.claims, key=lambda claim: (claim.flaw != "false", not claim.flaw))


def _find_assessment_fault(episode: Episode, harness: Harness) -> str:
    fault = _find_failure(episode)
    if fault:
        return fault
    task, outcome = episode.task, episode.outcome
    assert isinstance(task, AssessTask)
    if not isinstance(outcome, Assessment) or len(outcome.reports) < len(task.reports):
        return "a report was left out"
    searched = count_searches(episode, len(task.reports))
    return "" if min(searched) >= harness.process.min_tool_calls else "too few searches"


def _find_other(episode: Episode, rubric: Rubric) -> str:
    return _find_failure(episode) or ("" if episode.outcome == rubric else "another rubric was read")


def _find_failure(episode: Episode) -> str:
    """The failure of a turn, or how the episode ended if without its last action; "" if neither."""
    failure = next((turn.failure for turn in episode.turns if turn.failure is not None), None)
    if failure is not None:
        return failure.message if failure.boundary == "model" else f"{failure.boundary}: {failure.kind}"
    return "" if episode.end == "answered" else episode.end
