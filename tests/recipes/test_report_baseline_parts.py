"""Parts of the report baselines without a run: what a model's scores pay, and what DPO learns from which pairs."""

import asyncio
import math
from types import SimpleNamespace

import pytest

from judging import QUESTION, report
from quaere.recipes.report_baselines import FixedJudge, Paid, ReportDpoConfig, ReportGrpoConfig
from quaere.records import Assessment, Episode, ReportTask, Scores, Search, SearchResult, Segment, Turn
from quaere.training.report_run import EvaluatorConfig, Research, Written
from quaere.training.step import Step

TOOK = Turn(0, "", Search(("Halm",)), "stop_string", results=(SearchResult("Halm", ()),))  # a search about all reports


def written(name, text=""):
    """An episode of a prompt and two tokens, and its report; none without a text."""
    segments = (Segment("prompt", (1,), (0.0,), (False,)), Segment("model", (2, 3), (-1.0, -1.0), (True, True)))
    episode = Episode(name, ReportTask(QUESTION), "report-writer", "m", 0, segments, (), None, "answered")
    return Written(episode, report(text) if text else None)


def open_judge(config, play=None):
    return FixedJudge(config, Research(config, None, SimpleNamespace(play=play), [QUESTION]))


def make_step(learner=None, seed=5):
    return Step(1, 0, "reports", 0, seed, learner)


# ----------------------------------------------------------------------------------------------------- a model's scores

SCORES = {"good": (9.0, 5.0, 2.0), "poor": (3.0, 0.0, 6.0)}  # factuality, coverage, and a validity of its own


def grade(seen):
    """A judge that searches once and scores the reports by their texts; none that it does not know."""

    async def play(step, role, jobs, limits, **_):
        episodes = []
        for job in jobs:
            seen.append([shown.text for shown in job.task.reports])
            known = [(place, SCORES[text]) for place, text in enumerate(seen[-1], 1) if text in SCORES]
            told = tuple(
                Scores(place, {"factuality": first, "coverage": second}, validity=own)
                for place, (first, second, own) in known
            )
            end = Assessment(told)
            episodes.append(Episode(job.episode_id, job.task, "a", role, 0, (), (TOOK,), end, "answered"))
        return SimpleNamespace(episodes=episodes, spoiled=[])

    return play


@pytest.mark.parametrize(
    ("validity", "rewards"),
    [
        # 0.9 (1 + 0.4 of 0.5) and 0.3 (1 + 0); an unfinished report earns 0.
        ("base_dimension", {"a": 1.08, "c": 0.3, "d": 0.0}),
        # 0.2 (1 + 0.4 of 0.5) and 0.6 (1 + 0).
        ("separate", {"a": 0.24, "c": 0.6, "d": 0.0}),
    ],
)
def test_a_report_earns_what_the_judge_says_and_one_it_does_not_score_is_left_out(validity, rewards):
    config = ReportGrpoConfig(
        judge="model", fixed_rubric="factuality, coverage 0.4", evaluator=EvaluatorConfig(validity=validity)
    )
    group = [written("a", "good"), written("b", "unknown"), written("c", "poor"), written("d")]
    step = make_step()
    paid = asyncio.run(open_judge(config, grade([])).judge(step, [group]))
    assert {item.written.episode.id: item.reward for item in paid} == pytest.approx(rewards)
    measured = {name: step.metrics[name] for name in ("assessments/judged", "verification/searches", "scores/mean")}
    # Of three finished reports two have scores: (0.9 + 0.5) / 2 and (0.3 + 0) / 2.
    expected = {"assessments/judged": 2 / 3, "verification/searches": 1.0, "scores/mean": 0.425}
    assert measured == pytest.approx(expected)


def test_a_search_about_all_reports_verifies_none_where_each_needs_its_own():
    how = EvaluatorConfig(verification="each")
    config, step = ReportGrpoConfig(judge="model", fixed_rubric="factuality, coverage 0.4", evaluator=how), make_step()
    paid = asyncio.run(open_judge(config, grade([])).judge(step, [[written("a", "good"), written("c", "poor")]]))
    assert [item.reward for item in paid] == [0.0, 0.0] and step.metrics["verification/searches"] == 0


def test_the_judge_sees_the_reports_in_another_order_each_step():
    config, seen = ReportGrpoConfig(judge="model"), []
    group = [written(name, name) for name in "abcdef"]
    for seed in (1, 1, 2):
        asyncio.run(open_judge(config, grade(seen)).judge(make_step(seed=seed), [group]))
    first, again, other = seen
    assert sorted(first) == list("abcdef") and first == again != other


# ------------------------------------------------------------------------------------------------------------------ dpo


class Learner:
    """A learner with these log-probs, now and in the initial model, by episode; it keeps what it is given."""

    settings = None

    def __init__(self, now, before):
        self.now, self.before = now, before
        self.samples = []

    def score(self, samples):
        return [self.now[sample.episode_id] for sample in samples]

    def score_reference(self, samples):
        return [self.before[sample.episode_id] for sample in samples]

    def step(self, samples, how=None):
        self.samples += samples
        return {"gradient/norm": 0.25, "batch/model_tokens": 2.0 * len(samples)}


def test_dpo_learns_from_the_best_and_the_worst_report_of_each_question():
    rewards = [{"a": 0.2, "b": 0.8, "c": 0.5}, {"d": 0.9, "e": 0.1}, {"f": 0.5, "g": 0.5}]
    paid = [
        Paid(written(name), place, {"reward/total": reward})
        for place, group in enumerate(rewards)
        for name, reward in group.items()
    ]
    # Log-ratios of whole reports: 1.5 for b, 0.5 for a, 0 for d and 2 for e.
    now = {"a": [-0.5, -1.0], "b": [-0.5, 0.0], "d": [-1.0, -1.0], "e": [-0.25, -0.75]}
    before = {"a": [-1.0, -1.0], "b": [-1.0, -1.0], "d": [-0.5, -1.5], "e": [-1.0, -2.0]}
    learner = Learner(now, before)
    step = make_step(learner)
    advantages, kept = open_judge(ReportDpoConfig()).prefer(step, paid, 0.5)
    assert [item.written.episode.id for item in kept] == ["b", "d", "a", "e"]
    assert [sample.episode_id for sample in learner.samples] == ["b", "d", "a", "e"]
    # 2 beta sigmoid(-beta margin), the margins being 1 and -2.
    pulls = [1 / (1 + math.exp(0.5)), 1 / (1 + math.exp(-1.0))]
    expected = [pulls[0], pulls[1], -pulls[0], -pulls[1]]
    assert advantages.values.tolist() == pytest.approx(expected)
    assert [sample.advantages[-1] for sample in learner.samples] == pytest.approx(expected)
    assert step.metrics["dpo/pairs"] == 2 and step.metrics["gradient/norm"] == 0.25
    assert step.metrics["dpo/margin"] == pytest.approx(0.5 * (1 - 2) / 2)
    assert step.metrics["dpo/accuracy"] == 0.5
