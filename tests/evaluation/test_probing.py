"""What judges of reports are worth: good reports are good, spoiled ones are spoiled, and chance is called chance."""

import pytest

from quaere.evaluation.judges.corruptions import PARAPHRASES, SPOILING_CITATIONS, SPOILING_TEXT
from quaere.evaluation.judges.probes import (
    GOOD,
    Probe,
    _lower_first,
    _round_numbers,
    make_pairs,
    make_probes,
    make_reports,
    num_steps,
    probe_judges,
    score_checks,
)
from quaere.evaluation.reports.citations import Checked, CitationChecks
from quaere.evaluation.reports.criteria import Criteria, GradedDimension
from quaere.evaluation.reports.grades import ProxyGrader

NUM = 10


class Same:
    """Says the same of everything."""

    name = "same"

    def __init__(self, verdict="supported", grade=5.0):
        self.verdict, self.given = verdict, grade

    async def check(self, items, *, seed=0, advance=lambda: None):
        self.seeds = [seed]
        return [Checked(self.verdict) for _ in items]

    def criteria_of(self, given):
        return Criteria((GradedDimension("quality"),))

    async def grade(self, items, *, seed=0, advance=lambda: None):
        self.seeds = [seed]
        return [{} if self.given is None else {"quality": self.given} for _ in items]


def test_good_reports_are_whole_and_always_the_same():
    reports = make_reports(NUM)
    assert reports == make_reports.__wrapped__(NUM) and len(reports) == NUM
    for report in reports:
        assert all(report.text[one.start : one.end] == one.text for one in report.statements)
        assert report.unresolved == () and len(report.sources) == 4 and len(report.citations) >= 10
        assert report.text.endswith(report.conclusion) and report.conclusion


def test_some_good_reports_combine_two_sources_in_a_sentence():
    joined = [[one for one in report.statements if len(set(one.citations)) == 2] for report in make_reports(NUM)]
    assert {len(found) for found in joined} == {0, 1}
    (one, *_) = (found[0] for found in joined if found)
    assert "; " in one.text and one.text.endswith(" [1] [4].")


def test_a_sentence_says_the_same_in_other_words():
    assert _round_numbers("In 1702 its 1,204 stones and 86 steps of 347 ells.") == (
        "In 1702 its about 1,200 stones and 86 steps of about 350 ells."
    )
    assert _lower_first("The bridge is old.") == "the bridge is old."
    assert _lower_first("Orsolya Venn built it.") == "Orsolya Venn built it."


def test_every_kind_of_corruption_is_probed():
    kinds = [probe.kind for probe in make_probes(NUM)]
    assert kinds.count(GOOD) >= 10 * NUM
    for kind in SPOILING_CITATIONS:
        assert kinds.count(kind) >= NUM // 2
    assert {kind for _, kind, _ in make_pairs(NUM)} == set(SPOILING_TEXT)


async def test_checks_are_clearly_better_than_chance_on_corrupted_reports():
    advanced = []
    found = await probe_judges(CitationChecks(), ProxyGrader(), NUM, advance=lambda: advanced.append(1))
    assert len(advanced) == num_steps(NUM)
    assert found.citations.sensitivity.mean > 0.9
    assert found.citations.specificity.mean > 0.75
    assert found.citations.balanced.low > 0.8
    assert found.grades.preferred.low > 0.7  # Wilson's interval of 10 of 10 begins at 10 / 13.84
    right = {one.kind: one.right.mean for one in found.citations.by_kind}
    assert right["citation of another passage"] > 0.9 and right["number changed"] > 0.9
    assert found.citations_trusted and found.grades_trusted
    # Rules compare words: what says the same otherwise is missed, what says otherwise alike passes.
    assert found.citations.free.sensitivity.mean < 0.7 and found.citations.free.specificity.mean < 0.3
    assert not found.meaning_trusted


@pytest.mark.parametrize("verdict", ["supported", "unsupported", "unknown"])
async def test_a_judge_that_always_says_the_same_is_chance(verdict):
    judge, grader = Same(verdict), Same()
    found = await probe_judges(judge, grader, 4, seed=3)
    assert judge.seeds == grader.seeds == [3]
    assert found.citations.balanced.mean == found.grades.preferred.mean == 0.5
    assert not found.citations_trusted and not found.grades_trusted


async def test_a_judge_that_understands_is_told_from_one_that_compares_words():
    class Knowing(Same):
        async def check(self, items, *, seed=0, advance=lambda: None):
            true = {said for _, said, _ in PARAPHRASES} | {
                one.asked.statement for one in make_probes(4) if one.supports
            }
            return [Checked("supported" if item.statement in true else "unsupported") for item in items]

    found = await probe_judges(Knowing(), Same(), 4)
    assert found.citations.free.balanced.mean == 1.0 and found.meaning_trusted
    assert len({passage for passage, *_ in PARAPHRASES}) == len(PARAPHRASES) >= 16


async def test_a_judge_that_was_right_on_a_few_reports_is_not_trusted_for_sure():
    """A grader that prefers the one good report to all spoiled ones: Wilson's interval of 1 of 1 begins at 0.21."""

    class Preferring(Same):
        async def grade(self, items, *, seed=0, advance=lambda: None):
            good = {one.text for one in make_reports(1)}
            return [{"quality": 10.0 * (item.report.text in good)} for item in items]

    found = await probe_judges(CitationChecks(), Preferring(), 1)
    assert found.grades.preferred.mean == 1.0 and found.grades.preferred.low == pytest.approx(0.2065, abs=1e-4)
    assert not found.grades_trusted
    assert all(one.right.low < one.right.high for one in found.grades.by_kind)


async def test_grades_that_cannot_be_read_count_half_and_are_counted():
    found = await probe_judges(Same(), Same(grade=None), 4)
    assert found.grades.preferred.mean == 0.5 and found.grades.num_unread == 4 + len(make_pairs(4))


def test_agreement_by_hand():
    cited = make_probes(4)[0].asked
    swapped, number = SPOILING_CITATIONS[:2]
    rows = [(0, GOOD, "supported"), (0, GOOD, "unknown"), (0, swapped, "unsupported")]
    rows += [(1, GOOD, "supported"), (1, number, "supported"), (1, swapped, "unknown")]
    probes = [Probe(report, kind, cited, kind == GOOD) for report, kind, _ in rows]
    found = score_checks(probes, [Checked(verdict, is_read=verdict != "unknown") for _, _, verdict in rows])
    assert found.sensitivity.mean == 0.75  # 1 of 2, then 1 of 1
    assert found.specificity.mean == 0.75  # 1 of 1, then 1 of 2
    assert found.balanced.mean == 0.75 and found.num_unread == 2
    assert [(one.kind, one.right.mean) for one in found.by_kind] == [
        (GOOD, pytest.approx(2 / 3)),
        (SPOILING_CITATIONS[0], 1.0),
        (SPOILING_CITATIONS[1], 0.0),
    ]
