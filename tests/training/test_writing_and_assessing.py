"""Several reports a question, and their assessment: orders, scores mapped back, searches counted, places measured."""

import pytest

import tiny
from judging import HARNESS, QUESTION, RUBRIC, assessment, entry
from quaere.chat.renderer import Renderer
from quaere.chat.statements import split_statements
from quaere.dialects.report.report_writer import ReportWriter, bind_report
from quaere.records import Assessment, AssessTask, Episode, Question, Report, Rubric, Scores, Statement
from quaere.rollout.episode import Limits
from quaere.rollout.policy import TokenPolicy
from quaere.training.actors import Played
from quaere.training.assessments import (
    Assessed,
    Verdict,
    Viewing,
    assess_reports,
    correlate,
    draw_order,
    measure_assessments,
    measure_places,
    measure_spread,
    view_reports,
)
from quaere.training.report_run import (
    EvaluatorConfig,
    Written,
    measure_groups,
    measure_report,
    write_jobs,
    write_reports,
)
from quaere.training.rollouts import Stage
from quaere.training.step import Step
from scripted import ScriptedSampler

pytest.importorskip("sklearn")

LIMITS = Limits(max_turns=4, turn_tokens=2000, sequence_tokens=1 << 20, tool_response_tokens=400, max_searches=9)


class Scripted:
    """Stands in for the actors: episodes are played for real, and what is written is read from a script."""

    def __init__(self, script):
        self.script = script

    async def play(self, role, jobs, searcher, limits, *, seed, params=None):
        from quaere.rollout.episode import run_many

        tokenizer = tiny.tokenizer()
        policy = TokenPolicy(ScriptedSampler(tokenizer, self.script(jobs)), Renderer(tokenizer))
        self.params = params
        episodes = [episode async for episode in run_many(policy, jobs, searcher, limits, seed=seed)]
        return Played(episodes, [episode for episode in episodes if episode.search_failed])


def stage(script, searcher=None):
    return Stage(Scripted(script), searcher or tiny.ListSearcher())


def step():
    return Step(1, 0, "reports", 0, 7, None)


# ------------------------------------------------------------------------------------------------------------- writing


async def test_reports_are_written_in_groups_and_bound_to_what_was_shown():
    questions = [Question("a", "What of a?"), Question("b", "What of b?")]
    jobs = write_jobs(ReportWriter(), questions, [RUBRIC, None], 2, "i0-r0")
    assert [job.episode_id for job in jobs] == ["i0-r0-a-r0", "i0-r0-a-r1", "i0-r0-b-r0", "i0-r0-b-r1"]
    assert [job.task.rubric for job in jobs] == [RUBRIC, RUBRIC, None, None]
    texts = ["It is old [1].\n\nConclusion: Old.", "It is new [4].\n\nConclusion: New.", None, "Conclusion: Nothing."]

    def script(jobs):
        return {
            job.episode_id: ["<search>bridge</search>", f"<answer>{text}</answer>" if text else "no tags", *["hm"] * 2]
            for job, text in zip(jobs, texts, strict=True)
        }

    at = step()
    groups = await write_reports(stage(script), at, "actor", jobs, LIMITS)
    assert [[item.conclusion for item in group] for group in groups] == [["Old.", "New."], ["", "Nothing."]]
    assert groups[0][0].report.resolved_share == 1 and groups[0][1].report.unresolved == (4,)
    assert groups[1][0].report is None
    assert at.metrics["reports/episodes"] == 4 and at.metrics["reports/answered"] == 0.75
    measured = [measure_report(item) for group in groups for item in group]
    assert measured[2] == {"report/finished": 0.0}
    whole = measure_groups(groups, measured)
    assert whole["report/finished"] == 0.75
    assert whole["report/repeated"] == 0
    assert whole["check/resolved"] == pytest.approx(1 / 4)  # one that was never finished cites nothing
    assert whole["consistency/mean"] == 0.0 and whole["diversity/mean"] > 0


def test_statements_that_were_made_before_are_counted():
    said = ["It is old [1].", "It is long.", "It is old [1].", "It is old [1]."]
    report = Report(QUESTION, " ".join(said), tuple(Statement(text, 0, len(text)) for text in said))
    assert report.repeated_share == 0.5
    assert Report(QUESTION, "").repeated_share == 0


async def test_a_report_that_a_failed_search_spoiled_is_nobodys():
    from quaere.errors import SearchFailed

    class Dead:
        async def search(self, queries, topk):
            raise SearchFailed("gone", kind="unreachable")

    jobs = write_jobs(ReportWriter(), [QUESTION], [None], 2, "i0-r0")
    turns = ["<search>bridge</search>", "<answer>It is old. Conclusion: Old.</answer>"]
    at = step()
    groups = await write_reports(
        stage(lambda jobs: {job.episode_id: turns for job in jobs}, Dead()), at, "x", jobs, LIMITS
    )
    assert groups == [[]]
    assert [kept["episode/spoiled"] for kept in at.measured] == [1.0, 1.0]


# ----------------------------------------------------------------------------------------------------------- assessing


def reports(num, question=QUESTION):
    return [
        Report(question, f"Report {number}.", split_statements(f"Report {number}."), (), f"C {number}.")
        for number in range(num)
    ]


def test_orders_depend_on_seed_question_and_pass_alone():
    groups = [reports(6), reports(6, Question("q2", "?"))]
    viewings = view_reports(groups, [RUBRIC] * 2, HARNESS, passes=2, name="i0-r0", seed=3)
    again = view_reports(groups, [RUBRIC] * 2, HARNESS, passes=2, name="i0-r9", seed=3)
    assert [viewing.order for viewing in viewings] == [viewing.order for viewing in again]
    assert len({viewing.order for viewing in viewings}) == 4
    assert [viewing.task.id for viewing in viewings] == ["i0-r0-q1-a0", "i0-r0-q1-a1", "i0-r0-q2-a0", "i0-r0-q2-a1"]
    for viewing in viewings:
        assert sorted(viewing.order) == list(range(6))
        texts = [report.text for report in viewing.task.reports]
        assert texts == [f"Report {number}." for number in viewing.order]


def test_no_reports_no_pass():
    assert view_reports([[], reports(1)], [RUBRIC] * 2, HARNESS, passes=1, name="x", seed=0)[0].order == (0,)


def test_every_place_is_as_likely():
    firsts = [draw_order(4, seed)[0] for seed in range(400)]
    assert all(70 < firsts.count(number) < 130 for number in range(4))


def scoring(score_of, searches="<search>all of them</search>", leave_out=()):
    """An evaluator that looks at every report shown and scores it by its text."""

    def script(jobs):
        turns = {}
        for job in jobs:
            entries = [
                entry(place, scores=[score_of(report.text, place)] * 3)
                for place, report in enumerate(job.task.reports, start=1)
                if report.text not in leave_out
            ]
            turns[job.episode_id] = [*([searches] if searches else []), assessment(*entries)]
        return turns

    return script


HOW = EvaluatorConfig(limits=LIMITS)


async def test_scores_come_back_to_the_reports_they_belong_to():
    viewings = view_reports([reports(4)], [RUBRIC], HARNESS, passes=3, name="i0-r0", seed=5)
    assert len({viewing.order for viewing in viewings}) > 1
    playing = stage(scoring(lambda text, place: int(text[7])))  # report 3 is worth 3, wherever it stands
    at = step()
    assessed = await assess_reports(playing, at, "actor", viewings, HOW)
    assert [verdict.scores.scores["coverage"] for verdict in assessed.verdicts["q1"]] == [0, 1, 2, 3]
    assert [verdict.scores.number for verdict in assessed.verdicts["q1"]] == [1, 2, 3, 4]
    assert {verdict.num_searches for verdict in assessed.verdicts["q1"]} == {1}
    assert playing.actors.params.temperature == 0.8
    assert at.metrics["assessments/episodes"] == 3


async def test_a_search_counts_for_the_report_it_is_about():
    viewings = view_reports([reports(3)], [RUBRIC], HARNESS, passes=1, name="i0-r0", seed=5)
    assessed = await assess_reports(
        stage(scoring(lambda text, place: 5, searches="<search>[2] it</search>")), step(), "actor", viewings, HOW
    )
    looked_into = [verdict.num_searches for verdict in assessed.verdicts["q1"]]
    assert looked_into == [int(viewings[0].order.index(number) == 1) for number in range(3)]


async def test_what_was_not_judged_has_no_verdict():
    viewings = view_reports([reports(3)], [RUBRIC], HARNESS, passes=2, name="i0-r0", seed=5)
    some = scoring(lambda text, place: 5, leave_out=["Report 1."])
    assessed = await assess_reports(stage(some), step(), "actor", viewings, HOW)
    assert [verdict is None for verdict in assessed.verdicts["q1"]] == [False, True, False]
    unread = await assess_reports(
        stage(lambda jobs: {job.episode_id: ["hm"] * 4 for job in jobs}), step(), "actor", viewings, HOW
    )
    assert unread.verdicts["q1"] == [None] * 3
    assert measure_assessments(unread, 10.0) == {"assessments/readable": 0.0, "assessments/judged": 0.0}


async def test_an_evaluator_that_goes_by_places_is_found_out():
    groups = [reports(4, Question(f"q{number}", "?")) for number in range(6)]
    viewings = view_reports(groups, [RUBRIC] * 6, HARNESS, passes=2, name="i0-r0", seed=5)

    async def bias(score_of):
        assessed = await assess_reports(stage(scoring(score_of)), step(), "actor", viewings, HOW)
        return measure_places(assessed.passes, 10.0)

    first_is_best = await bias(lambda text, place: 9 - 2 * place)
    assert first_is_best["position/correlation"] == pytest.approx(-1)
    assert first_is_best["position/first_minus_last"] == pytest.approx(0.6)
    fair = await bias(lambda text, place: 2 * int(text[7]))
    assert abs(fair["position/correlation"]) < 0.4
    assert await bias(lambda text, place: 5) == {"position/first_minus_last": 0.0}  # nothing varies


def assessed_with(*groups):
    verdicts = {
        f"q{number}": [Verdict(Scores(1, {"factuality": score}), 1) if score is not None else None for score in group]
        for number, group in enumerate(groups)
    }
    return Assessed([], verdicts)


def test_spread_and_ceiling_by_hand():
    measured = measure_spread(assessed_with([10.0, 8.0], [5.0, 5.0, None], [9.6]), 10.0)
    assert measured["scores/mean"] == pytest.approx((1.0 + 0.8 + 0.5 + 0.5 + 0.96) / 5)
    assert measured["scores/spread"] == pytest.approx((0.1 + 0.0) / 2)  # a question with one report says nothing
    assert measured["scores/ceiling"] == pytest.approx(2 / 5)
    assert measured["scores/num"] == 5


def test_places_of_reports_that_were_left_out_are_passed_over():
    task = AssessTask("a", QUESTION, Rubric("factuality"), HARNESS, tuple(reports(3)))

    def judged(*scores):
        found = tuple(Scores(place, {"factuality": score}) for place, score in scores)
        return Viewing(task, (0, 1, 2)), Episode("a", task, "p", "m", 0, (), (), Assessment(found), "answered")

    one = judged((1, 9.0))
    assert measure_places([one], 10.0) == {}
    two = judged((1, 9.0), (2, 5.0))
    assert measure_places([two], 10.0) == {"position/correlation": pytest.approx(-1)}  # the last place is not known


def test_correlation():
    assert correlate([1, 2, 3], [2, 4, 6]) == pytest.approx(1)
    assert correlate([1, 2, 3], [5, 5, 5]) is None and correlate([1], [1]) is None


def test_reports_of_other_tasks_cannot_be_bound():
    with pytest.raises(TypeError):
        bind_report(Episode("a", AssessTask("a", QUESTION, RUBRIC, HARNESS, ()), "p", "m", 0, (), (), None, "failed"))


def test_what_was_never_finished_concludes_nothing():
    assert Written(None, None).conclusion == ""
