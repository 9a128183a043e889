"""Accuracy of report judges, measured on good and corrupted reports before any of their scores is shown.

    agreement = await probe_judges(CitationChecks(), ProxyGrader(), num_reports=20)
    agreement.citations.balanced -> Interval(mean=0.93, low=0.91, high=0.95, num=20)

Good reports are built from a generated world with a fixed seed: sentences of its articles, lightly reworded, cut,
joined, rounded and framed, each with its citation. `corruptions.py` corrupts them. For the citation check we measure
the share of good citations called supported and of corrupted ones not called supported; for grades, how often the good
report of a pair is graded above the corrupted one. Scores of a judge no better than chance are not trusted.

The citation check is also measured on handwritten paraphrases (`PARAPHRASES`), which expose judges that only compare
words.
"""

import random
import re
from collections.abc import Sequence
from functools import cache
from itertools import islice
from statistics import fmean

from msgspec import Struct, structs

from quaere.evaluation.intervals import Interval, rate_interval
from quaere.evaluation.judges.corruptions import ADDED, PARAPHRASES, SPOILING_CITATIONS, SPOILING_TEXT, corrupt
from quaere.evaluation.judges.judge import Advance, idle
from quaere.evaluation.judges.judge_accuracy import Accuracy, Agreement, Probe, find_right, measure_accuracy
from quaere.evaluation.reports.citations import Checked, CitationChecks, CitationJudge, Cited, find_cited
from quaere.evaluation.reports.criteria import Criteria, general_criteria
from quaere.evaluation.reports.grades import Grader, Submission
from quaere.evaluation.reports.lexical import number_runs
from quaere.records import Passage, Question, Report, Source, Statement
from quaere.worlds.gold_questions import says
from quaere.worlds.graph import Entity
from quaere.worlds.world import World, generate_world

SEED = 5077
NUM_ARTICLES = 400
_NUM_SOURCES = 4
_PER_SOURCE = 3
GOOD = "good"


class CitationAgreement(Accuracy, frozen=True):
    """Accuracy of a citation judge on good and corrupted reports; `free` is its accuracy on paraphrases.

    CitationAgreement(sensitivity=Interval(...), specificity=Interval(...), balanced=Interval(...), by_kind=(...),
                      num_unread=0)
    """

    by_kind: tuple[Agreement, ...]
    num_unread: int
    free: Accuracy | None = None


class GradeAgreement(Struct, frozen=True):
    """Accuracy of a grader: the share of pairs in which the good report is graded above the corrupted one.

    Ties and pairs with an unreadable grade count as 0.5.

        GradeAgreement(preferred=Interval(...), by_kind=(...), num_unread=0)
    """

    preferred: Interval
    by_kind: tuple[Agreement, ...]
    num_unread: int


class JudgeAgreement(Struct, frozen=True):
    """Accuracy of the citation judge and of the grader, and the world they were measured on.

    `rules` is the accuracy of the rules on the same citations, if a model is the judge.

    JudgeAgreement(world="...", citations=CitationAgreement(...), grades=GradeAgreement(...))
    """

    world: str
    citations: CitationAgreement
    grades: GradeAgreement
    rules: CitationAgreement | None = None

    @property
    def citations_trusted(self) -> bool:
        """True if the interval of the citation check's balanced accuracy is above chance."""
        return self.citations.balanced.low > 0.5

    @property
    def meaning_trusted(self) -> bool:
        """True if the interval of the citation check's balanced accuracy on paraphrases is above chance."""
        return self.citations.free is not None and self.citations.free.balanced.low > 0.5

    @property
    def grades_trusted(self) -> bool:
        """True if the interval of the grader's preference for good reports is above chance."""
        return self.grades.preferred.low > 0.5


async def probe_judges(
    citations: CitationJudge, grader: Grader, num_reports: int = 20, *, seed: int = 0, advance: Advance = idle
) -> JudgeAgreement:
    """Measure both judges on good and corrupted reports; `advance` is called `num_steps(num_reports)` times."""
    agreed = await probe_citations(citations, num_reports, seed=seed, advance=advance)
    pairs = make_pairs(num_reports)
    criteria = grader.criteria_of(general_criteria())
    reports = [*make_reports(num_reports), *(spoiled for _, _, spoiled in pairs)]
    grades = await grader.grade([Submission(one, criteria) for one in reports], seed=seed, advance=advance)
    world = f"{num_reports} reports from a world of the evaluation family, seed {SEED}, {NUM_ARTICLES} articles"
    rules = None if isinstance(citations, CitationChecks) else await probe_citations(CitationChecks(), num_reports)
    return JudgeAgreement(world, agreed, _score_pairs(pairs, grades, num_reports, criteria), rules)


async def probe_citations(
    citations: CitationJudge, num_reports: int = 20, *, seed: int = 0, advance: Advance = idle
) -> CitationAgreement:
    """Measure a citation judge on good and corrupted reports, and on paraphrases."""
    probes = make_probes(num_reports)
    free = [Cited(said, passage) for passage, *both in PARAPHRASES for said in both]
    checked = await citations.check([*(probe.asked for probe in probes), *free], seed=seed, advance=advance)
    return structs.replace(score_checks(probes, checked[: len(probes)]), free=score_free(checked[len(probes) :]))


def num_steps(num_reports: int) -> int:
    """Number of items that `probe_judges` asks the judges about, for a progress bar."""
    return len(make_probes(num_reports)) + 2 * len(PARAPHRASES) + num_reports + len(make_pairs(num_reports))


def score_checks(probes: Sequence[Probe[Cited]], checked: Sequence[Checked]) -> CitationAgreement:
    """Accuracy overall and per kind; intervals resample reports, since citations of one report are correlated."""
    good, spoiled, by_kind = find_right(probes, [one.verdict == "supported" for one in checked])
    return CitationAgreement(
        by_kind=_agreed(by_kind, (GOOD, *SPOILING_CITATIONS)),
        num_unread=sum(not one.is_read for one in checked),
        free=None,
        **measure_accuracy(good, spoiled, rate_interval),
    )


def score_free(checked: Sequence[Checked]) -> Accuracy:
    """The judge's accuracy on paraphrases, whose results alternate: true statement, false statement.

    Intervals resample passages.
    """
    true = [float(one.verdict == "supported") for one in checked[::2]]
    false = [float(one.verdict != "supported") for one in checked[1::2]]
    return Accuracy(**measure_accuracy(true, false, rate_interval))


def _score_pairs(
    pairs: Sequence[tuple[int, str, Report]], grades: Sequence[dict[str, float]], num_good: int, criteria: Criteria
) -> GradeAgreement:
    overall = [criteria.overall(one) for one in grades]
    by_report: dict[int, list[float]] = {}
    by_kind: dict[str, list[float]] = {}
    for (number, kind, _), spoiled in zip(pairs, overall[num_good:], strict=True):
        good = overall[number]
        right = 0.5
        if good is not None and spoiled is not None and abs(good - spoiled) > 1e-9:
            right = float(good > spoiled)
        by_report.setdefault(number, []).append(right)
        by_kind.setdefault(kind, []).append(right)
    return GradeAgreement(
        preferred=rate_interval([fmean(values) for values in by_report.values()]),
        by_kind=_agreed(by_kind, SPOILING_TEXT),
        num_unread=sum(one is None for one in overall),
    )


def _agreed(by_kind: dict[str, list[float]], order: Sequence[str]) -> tuple[Agreement, ...]:
    return tuple(Agreement(kind, rate_interval(by_kind[kind])) for kind in order if kind in by_kind)


# ------------------------------------------------------------------------------------------------------------- probes


@cache
def make_probes(num_reports: int) -> tuple[Probe[Cited], ...]:
    """Every citation of the good reports, and one corrupted citation of every kind per report; deterministic."""
    probes = []
    draw, of_claims = random.Random(SEED), random.Random(SEED + 2)  # separate: other kinds draw as without `ADDED`
    for number, report in enumerate(make_reports(num_reports)):
        probes += [Probe(number, GOOD, cited, True) for _, cited in find_cited(report) if cited is not None]
        draws = {kind: of_claims if kind == ADDED else draw for kind in SPOILING_CITATIONS}
        spoiled = [one for kind in draws if (one := corrupt(kind, report, draws[kind]))]
        probes += [
            Probe(number, one.kind, cited, False)
            for one in spoiled
            for check, cited in find_cited(one.report)
            if check.statement == one.statement and cited is not None
        ]
    return tuple(probes)


@cache
def make_pairs(num_reports: int) -> tuple[tuple[int, str, Report], ...]:
    """One corrupted text of every kind per good report: (report number, kind, corrupted report)."""
    draw = random.Random(SEED + 1)
    return tuple(
        (number, kind, spoiled.report)
        for number, report in enumerate(make_reports(num_reports))
        for kind in SPOILING_TEXT
        if (spoiled := corrupt(kind, report, draw)) is not None
    )


# ------------------------------------------------------------------------------------------------------- good reports

_PRONOUNS = {"it": "", "he": "", "she": "", "its": "'s", "his": "'s", "her": "'s"}
_OTHER_WORDS = {
    "seldom": "rarely",
    "quietly": "silently",
    "small": "little",
    "often": "frequently",
    "built": "constructed",
    "raised": "lifted",
    "abolished": "ended",
    "measures": "extends",
    "remain": "are left",
    "complained": "grumbled",
    "every": "each",
    "claim": "maintain",
    "sold": "traded",
    "learned": "studied",
    "whole": "entire",
    "born": "brought into the world",
    "made": "produced",
    "kept": "held",
}
_FRAMES = ("{}", "{}", "According to the records, {}", "By all accounts {}", "Most likely {}")
_JOINT_PERCENT = 15
_CUT_PERCENT = 35


@cache
def make_reports(num_reports: int) -> tuple[Report, ...]:
    """`num_reports` good reports, each about an entity of the world and the entities linked to it; deterministic."""
    world = generate_world(SEED, NUM_ARTICLES)
    order = random.Random(SEED).sample(range(len(world.entities)), len(world.entities))
    linked = ((index, _subjects(world, world.entities[index])) for index in order)
    chosen = islice((one for one in linked if len(one[1]) == _NUM_SOURCES), num_reports)
    return tuple(
        _write_report(f"probe-{number}", world, subjects, random.Random(SEED + index))
        for number, (index, subjects) in enumerate(chosen)
    )


def _subjects(world: World, entity: Entity) -> list[Entity]:
    """The entity and the entities its facts refer to, at most `_NUM_SOURCES`."""
    linked = [world.entities[fact.object] for fact in world.facts_of(entity) if fact.object is not None]
    return list({one.id: one for one in (entity, *linked)}.values())[:_NUM_SOURCES]


def _write_report(name: str, world: World, subjects: Sequence[Entity], draw: random.Random) -> Report:
    """A report with a heading and a paragraph per source, and a conclusion that repeats two of its statements."""
    text = f"# {subjects[0].title}"
    statements: list[Statement] = []
    told: list[tuple[str, int]] = []

    def say(sentence: str, *numbers: int) -> None:
        nonlocal text
        said = sentence.rstrip(".") + "".join(f" [{number}]" for number in numbers) + "."
        statements.append(Statement(said, len(text), len(text) + len(said), numbers))
        text += said + " "

    for number, subject in enumerate(subjects, start=1):
        text += f"\n\n## {subject.title}\n\n"
        known = dict.fromkeys(support.evidence.text for support in world.article(subject).supports)
        for sentence in [_reword(fact, subject, draw) for fact in list(known)[:_PER_SOURCE]]:
            told.append((sentence, number))
            say(sentence, number)
    if draw.randrange(100) < _JOINT_PERCENT:  # a sentence that combines two sources
        (one, number), (other, another) = told[0], told[-1]
        say(f"{one.rstrip('.')}; {other}", number, another)
    text += "\n\nConclusion: "
    start = len(text)
    for sentence, number in draw.sample(told, 2):
        say(sentence, number)
    text = text.rstrip()
    others = ", ".join(one.name for one in subjects[1:])
    question = f"What is known of {subjects[0].name}, and of what is connected with it: {others}?"
    articles = (world.article(subject) for subject in subjects)
    passages = (Passage(f"{one.id}#0", one.id, one.title, one.text, 0, len(one.text)) for one in articles)
    sources = tuple(Source(number, passage) for number, passage in enumerate(passages, start=1))
    return Report(Question(name, question), text, tuple(statements), sources, text[start:])


def _reword(sentence: str, subject: Entity, draw: random.Random) -> str:
    clause = re.split(r", (?:and|while|although|after|though) |; ", sentence)[0]
    if draw.randrange(100) < _CUT_PERCENT and len(clause.split()) >= 6:
        sentence = clause.rstrip(".") + "."
    sentence = _round_numbers(_name_subject(sentence, subject))
    sentence = " ".join(_OTHER_WORDS.get(word, word) if draw.random() < 0.7 else word for word in sentence.split(" "))
    frame = "{}" if sentence.startswith("In the case of ") else draw.choice(_FRAMES)
    return frame.format(sentence if frame == "{}" else _lower_first(sentence))


def _name_subject(sentence: str, subject: Entity) -> str:
    """The sentence with its subject named, so that it can be understood alone."""
    if any(says(sentence, name) for name in subject.names):
        return sentence
    first, _, rest = sentence.partition(" ")
    if first.lower() in _PRONOUNS:
        return f"{subject.name[:1].upper()}{subject.name[1:]}{_PRONOUNS[first.lower()]} {rest}"
    return f"In the case of {subject.name}, {_lower_first(sentence)}"


def _round_numbers(sentence: str) -> str:
    """The sentence with numbers from 100 on, except years, rounded to tens."""
    for start, end in reversed(number_runs(sentence)):
        value = int(sentence[start:end].replace(",", "").partition(".")[0])
        if value >= 100 and (end - start != 4 or "," in sentence[start:end]):
            sentence = f"{sentence[:start]}about {round(value, -1):,}{sentence[end:]}"
    return sentence


def _lower_first(sentence: str) -> str:
    """The sentence with its first letter lowercased if the first word is an ordinary word and not a name."""
    first = sentence.split(" ", 1)[0]
    ordinary = {"The", "A", "An", "In", "From", "Every", "Its", "His", "Her", "As", "At", "After", "Below", "Of", "On"}
    return sentence[:1].lower() + sentence[1:] if first in ordinary else sentence
