"""Report episodes: several reports per question, each bound to the passages it was shown.

jobs = write_jobs(ReportWriter(), questions, rubrics, 8, "i0-r3")
groups = await write_reports(stage, step, "actor", jobs, limits)      # one group of `Written` a question
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from quaere.chat.protocol import Protocol
from quaere.dialects.report.report_writer import bind_report
from quaere.records import Episode, Question, Report, ReportTask, Rubric
from quaere.rewards.reports import check_report, consistency_score, diversity_score
from quaere.rollout.episode import Job, Limits
from quaere.training.phases.stage import Stage
from quaere.training.step import Step

NAME = "reports"  # prefix of the episodes' metrics


class Written(Struct, frozen=True):
    """A report episode; `report` is None if the report was not finished.

    Written(episode=Episode(...), report=Report(...))
    """

    episode: Episode
    report: Report | None

    @property
    def conclusion(self) -> str:
        """The report's conclusion; "" if it was not finished."""
        return self.report.conclusion if self.report else ""


def write_jobs(
    protocol: Protocol, questions: Sequence[Question], rubrics: Sequence[Rubric | None], num_reports: int, name: str
) -> list[Job]:
    """`num_reports` episodes per question, with the rubric at the same index; those of one question are adjacent.

    write_jobs(ReportWriter(), [question], [rubric], 2, "i0-r3")[1].episode_id == "i0-r3-q1-r1"
    """
    tasks = [
        ReportTask(question, rubric, number)
        for question, rubric in zip(questions, rubrics, strict=True)
        for number in range(num_reports)
    ]
    return [Job(protocol, task, f"{name}-{task.id}") for task in tasks]


async def write_reports(
    stage: Stage, step: Step, role: str, jobs: Sequence[Job], limits: Limits
) -> list[list[Written]]:
    """Play the jobs; returns the reports of each question in order, without episodes in which a search failed."""
    played = await stage.play(step, role, jobs, limits, name=NAME)
    groups: dict[str, list[Written]] = {_question(job.task).id: [] for job in jobs}
    for episode in played.episodes:
        if not episode.search_failed:
            groups[_question(episode.task).id].append(Written(episode, bind_report(episode)))
    return list(groups.values())


def _question(task: object) -> Question:
    assert isinstance(task, ReportTask)
    return task.question


def measure_report(written: Written) -> dict[str, float]:
    """Metrics of one report that need no judge.

    measure_report(written) -> {"report/finished": 1.0, "report/citations": 4.0, "check/resolved": 1.0, ...}
    """
    report = written.report
    if report is None:
        return {"report/finished": 0.0}
    counts = {
        "report/finished": 1.0,
        "report/citations": float(len(report.citations)),
        "report/words": float(len(report.text.split())),
        "report/repeated": report.repeated_share,
    }
    return counts | check_report(report).parts


def measure_groups(groups: Sequence[Sequence[Written]], measured: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Metrics of a batch of reports: means of the reports' metrics, similarity of conclusions and diversity of texts.

    An unfinished report has no citations and counts as 0 in the citation checks.

        measure_groups(groups, measured) -> {"check/resolved": 0.6, "consistency/mean": 0.4, "diversity/mean": 0.7, ...}
    """
    means: dict[str, float] = {}
    for name in dict.fromkeys(name for values in measured for name in values):
        unfinished = 0.0 if name.startswith("check/") else None
        found = [values.get(name, unfinished) for values in measured]
        known = [value for value in found if value is not None]
        means[name] = sum(known) / len(known)
    agreements = [consistency_score([item.conclusion for item in group]) for group in groups]
    spreads = [diversity_score([item.report.text for item in group if item.report]) for group in groups]
    for name, values in (("consistency/mean", agreements), ("diversity/mean", spreads)):
        if told := [value for value in values if value is not None]:
            means[name] = sum(told) / len(told)
    return means
