"""Scores of reports: repeats and their variance, questions as units, paired differences, files."""

import msgspec
import pytest

import tiny
from quaere.errors import BadInput, SamplingFailed
from quaere.evaluation.intervals import Interval, ratio_interval
from quaere.evaluation.judges.probes import probe_judges
from quaere.evaluation.reports.citations import Checked, CitationCheck, CitationChecks, Cited
from quaere.evaluation.reports.criteria import Criteria, GradedDimension, general_criteria
from quaere.evaluation.reports.grades import ProxyGrader
from quaere.evaluation.reports.report_sources import read_report_file, read_report_run
from quaere.evaluation.reports.scores import (
    OVERALL,
    SPECIFIC,
    VALID,
    Judges,
    ReportEvaluation,
    ReportScore,
    compare_reports,
    num_asked,
    open_judges,
    score_reports,
    summarise,
)
from quaere.records import Episode, Question, Report, ReportTask, SolveTask
from quaere.runs import Run
from reported import GOOD, HALM, make_report


class Moody:
    """Calls the first so many citations supported, and grades by the repeat: 4, then 6; "b" cannot be graded."""

    name = "moody"

    async def check(self, items, *, seed=0, advance=lambda: None):
        return [Checked("supported" if number < 2 + seed else "unsupported") for number, _ in enumerate(items)]

    def criteria_of(self, given):
        return given

    async def grade(self, items, *, seed=0, advance=lambda: None):
        grades = [dict.fromkeys(item.criteria.names, 4.0 + 2 * seed) for item in items]
        return [{} if item.report.question.id == "b" else one for item, one in zip(items, grades, strict=True)]


MOODY = Judges("moody", Moody(), Moody())
FOUR = "It has 12 arches [1]. It is old [1]. It is long [1]. It is wide [1]."


async def test_repeats_are_kept_with_their_variance():
    scores = await score_reports(MOODY, [make_report(FOUR)], [general_criteria()], repeats=2)
    (score,) = scores
    assert (score.id, score.valid, score.supported) == ("q1-r0", (0.5, 0.75), (2, 3))
    assert score.grades["insight"] == (4.0, 6.0) and score.overall == (4.0, 6.0)
    found = summarise(scores)
    assert found.measures[OVERALL].value.mean == 5.0
    assert found.measures[OVERALL].repeats == (4.0, 6.0)
    assert found.measures[OVERALL].variance == 2.0  # of 4 and 6
    assert found.measures[VALID].variance == pytest.approx(1 / 32)
    assert found.pooled.mean == 2.5 / 4
    assert found.verdicts == {"supported": 2, "unsupported": 2, "unknown": 0}
    once = summarise(await score_reports(MOODY, [make_report(FOUR)], [general_criteria()]))
    assert once.measures[OVERALL].variance is None


async def test_questions_are_the_units_and_what_cannot_be_graded_is_left_out():
    reports = [make_report(FOUR, id="a"), make_report(id="a"), make_report(FOUR, id="b"), make_report("", id="c")]
    scores = await score_reports(MOODY, reports, [general_criteria()] * 4)
    assert [score.id for score in scores] == ["a-r0", "a-r1", "b-r0", "c-r0"]
    found = summarise(scores)
    assert found.measures[VALID].value.num == 3 and found.measures[OVERALL].value.num == 2
    assert found.num_unread_grades == 4 and found.num_reports == 4
    assert scores[3].valid == (0.0,)


def test_unknown_citations_count_in_all_and_not_in_known_ones():
    def score(id, *verdicts):
        checks = tuple(CitationCheck(place, 1, verdict) for place, verdict in enumerate(verdicts))
        return ReportScore(id, id, 9, len(checks), 0, (0.0,), (verdicts.count("supported"),), checks=checks)

    found = summarise(
        [score("a", "supported", "unknown", "unknown"), score("b", "supported", "unsupported"), score("c")]
    )
    assert found.pooled.mean == pytest.approx(2 / 5)
    assert found.pooled_known.mean == pytest.approx(2 / 3)  # as DeepResearch Bench counts
    assert summarise([score("a", "unknown")]).pooled_known is None


async def test_specific_dimensions_are_put_together():
    dates = general_criteria([GradedDimension("dates", weight=2)])
    scores = await score_reports(MOODY, [make_report(id="a"), make_report(id="c")], [dates, general_criteria()])
    found = summarise(scores)
    assert list(found.measures) == [
        "coverage", "insight", "instruction_following", "clarity", SPECIFIC, OVERALL, VALID,
    ]  # fmt: skip
    assert found.measures[SPECIFIC].value.num == 1
    parts = summarise(await score_reports(MOODY, [make_report()], [dates], with_grades=False))
    assert list(parts.measures) == [VALID]
    parts = summarise(await score_reports(MOODY, [make_report()], [dates], with_citations=False))
    assert VALID not in parts.measures and parts.pooled is None


@pytest.mark.parametrize("parts", [{}, {"with_citations": False}, {"with_grades": False}])
async def test_what_is_asked_is_counted(parts):
    reports = [make_report(), make_report("It is old [9].")]
    both = {"with_citations": True, "with_grades": True} | parts
    advanced = []
    count = {"advance": lambda: advanced.append(1)}
    await score_reports(open_judges("checks"), reports, [general_criteria()] * 2, repeats=2, **count, **both)
    assert len(advanced) == num_asked(reports, 2, **both)


async def evaluation(name, texts, judge="checks"):
    agreement = await probe_judges(CitationChecks(), ProxyGrader(), 3)
    reports = [make_report(text, id=f"q{number}") for number, text in enumerate(texts)]
    scores = await score_reports(open_judges("checks"), reports, [general_criteria()] * len(reports))
    return ReportEvaluation(agreement, name, judge, {}, summarise(scores), tuple(scores))


async def test_paired_differences():
    worse = GOOD.replace("1702 [1]", "1703 [1]")
    ours, theirs = await evaluation("ours", [GOOD] * 5), await evaluation("theirs", [worse] * 4)
    found = compare_reports(ours, theirs)
    assert found.measures[VALID].num == 4
    assert found.measures[VALID].mean == pytest.approx(2 / 8)
    assert found.measures["cited"].mean == 0.0
    # By hand, (1.960 + 0.842) sqrt(s^2 / 4): with the pseudo-observations, four gains of 1/4 have s^2 = 0.25 - 0.2^2
    # and four of none 0.2, which is then scaled from 0 to 1 to the grades' 0 to 10.
    assert found.smallest[VALID] == pytest.approx(2.8016 * (0.21 / 4) ** 0.5, rel=1e-4)
    assert found.smallest["cited"] == pytest.approx(10 * 2.8016 * (0.2 / 4) ** 0.5, rel=1e-4)
    assert compare_reports(ours, await evaluation("other", [GOOD], judge="another")) is None
    same = compare_reports(ours, ours)
    assert all(interval.mean == 0 for interval in same.measures.values())


def test_a_ratio_of_sums():
    found = ratio_interval([3, 1], [4, 12])
    assert found.mean == 0.25 and found.low == pytest.approx(1 / 12) and found.high == 0.75
    # All of one question's, none of the other's: Wilson's interval of 1 of 1 begins at 1 / (1 + z^2).
    found = ratio_interval([2, 0], [2, 0])
    assert (found.mean, found.low, found.high, found.num) == (1.0, pytest.approx(1 / 4.8415, abs=1e-4), 1.0, 2)
    found = ratio_interval([0, 0, 0], [40, 9, 1])  # three reports, and not fifty citations
    assert (found.mean, found.low, found.high) == (0.0, 0.0, pytest.approx(3.8415 / 6.8415, abs=1e-4))
    # Of resamples without a whole nothing is seen: the others are of the first question alone, or of both.
    assert ratio_interval([1, 0], [2, 0]) == Interval(0.5, 0.5, 0.5, 2)
    with pytest.raises(ValueError, match="the sum of the wholes must be above 0"):
        ratio_interval([0], [0])


def test_report_files(tmp_path):
    path = tmp_path / "some.jsonl"
    path.write_bytes(b"\n".join(msgspec.json.encode(one) for one in (make_report(), make_report("", id="q2"))))
    found = read_report_file(path)
    assert (found.name, found.num_unfinished, found.reports[0]) == ("some", 1, make_report())
    assert len(read_report_file(path, 1).reports) == 1
    moved = msgspec.json.encode(msgspec.structs.replace(make_report(), text="x" + GOOD))
    for text, said in ((b"{}", "line 1: not a report"), (b"", "contains no report"), (moved, "do not match its text")):
        path.write_bytes(text)
        with pytest.raises(BadInput, match=said):
            read_report_file(path)


def test_the_reports_of_a_run(tmp_path):
    tasks = [SolveTask(Question("q", "Who?")), *(ReportTask(Question("q", "What?"), number=n) for n in range(3))]
    episodes = [Episode(f"e{n}", task, "p", "m", 0, (), (), None, "turn_limit") for n, task in enumerate(tasks)]
    for name, kept in (("reports", episodes), ("answers", episodes[:1])):
        with Run.create(tmp_path / name, "report") as run:
            run.add_episodes(kept)
    found = read_report_run(tmp_path / "reports")
    assert (found.name, len(found.reports), found.num_unfinished) == ("reports", 3, 3)
    assert found.reports[0] == Report(Question("q", "What?"), "")
    assert len(read_report_run(tmp_path / "reports", 2).reports) == 2
    with pytest.raises(BadInput, match="run answers contains no report"):
        read_report_run(tmp_path / "answers")


async def test_a_model_folder_is_a_judge(tmp_path):
    tiny.model().save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    judges = open_judges(f"model:{tmp_path}", guided=True, device="cpu", concurrency=4)
    try:
        (score,) = await score_reports(judges, [make_report("It is old [1].")], [Criteria((GradedDimension("a"),))])
    finally:
        await judges.stop()
    with pytest.raises(SamplingFailed):  # its model has been let go of
        await judges.citations.check([Cited("It is old.", HALM)])
    assert judges.citations.name == judges.grader.name == str(tmp_path)
    assert len(score.checks) == 1 and list(score.grades) == ["a"]


def test_judges_by_name():
    assert open_judges("checks").policy is None
    with pytest.raises(BadInput, match="unknown judge 'gpt'"):
        open_judges("gpt")
    assert Criteria((GradedDimension("a"),)).names == ("a",)
