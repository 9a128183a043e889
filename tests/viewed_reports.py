"""A run with reports for tests: two on one question, scored by an evaluator in two passes, under two harnesses."""

from msgspec import structs

from quaere.chat.dimensions import POOL
from quaere.dialects.report.report_writer import bind_report
from quaere.recipes.score.harness import HarnessVersion, Versions
from quaere.records import (
    Answer,
    Assessment,
    AssessTask,
    Dimension,
    DimensionRules,
    Episode,
    Harness,
    Hit,
    Malformed,
    Passage,
    Question,
    ReportTask,
    Rubric,
    Scores,
    Search,
    SearchResult,
    Segment,
    Turn,
    Weight,
)
from quaere.runs import Run

TEXTS = ("The Oss rises at Korrin.", "It is a short river.")
RUBRIC = Rubric("factuality", (Weight("coverage", 0.4),))
HARNESSES = (Harness(0, POOL), Harness(1, POOL, DimensionRules(k=2)))


def make_report_episode(id, question, *, title="", text="It rises at Korrin [1]. It is short [2, 7].", ends=True):
    hits = tuple(
        Hit(Passage(f"{name}#0", name, f"Title {title}", said + title, 0, len(said + title)), 1.0)
        for name, said in zip(("oss.md", "more.md"), TEXTS, strict=True)
    )
    found = SearchResult(f"the Oss {title}", hits)
    turns = [Turn(0, f"<search>the Oss {title}</search>", Search((f"the Oss {title}",)), "stop_string", (found,))]
    final = Answer(f"{text} {title}\n\nConclusion: short {title}")
    action = final if ends else Malformed("no report")
    turns.append(Turn(1, f"<answer>{final.text}</answer>", action, "stop_string"))
    segments = (Segment("prompt", (1, 2), (), (False, False)),)
    task = ReportTask(question, RUBRIC)
    end = "answered" if ends else "turn_limit"
    return Episode(id, task, "report-writer", "tiny", 7, segments, tuple(turns), final if ends else None, end)


def make_assessment(id, reports, *, title="", place=1):
    task = AssessTask(id, reports[0].question, RUBRIC, HARNESSES[1], tuple(reports))
    said = Assessment(
        tuple(
            Scores(number, {"factuality": 6.0 + number, "coverage": 4.0}, f"[1] says so {title}", f"No dates {title}")
            for number in range(1, len(reports) + 1)
        )
    )
    turns = (
        Turn(0, "s", Search(("Korrin",), about=place), "stop_string", (SearchResult("Korrin", ()),)),
        Turn(1, "a", said, "stop_string"),
    )
    segments = (Segment("prompt", (1, 2), (), (False, False)),)
    return Episode(id, task, "report-assessor", "tiny", 7, segments, turns, said, "answered")


def add_reports(run, *, title="", step=1, name="r"):
    """Two finished reports and one that was not, with their assessments."""
    question = Question(f"q{step}", f"What is known of the Oss? {title}")
    episodes = [
        make_report_episode(f"{name}{step}-0", question, title=title),
        make_report_episode(f"{name}{step}-1", question, title=title, text="Nothing is known."),
        make_report_episode(f"{name}{step}-2", question, title=title, ends=False),
    ]
    reports = [bind_report(episode) for episode in episodes[:2]]
    metrics = [
        {"reward/total": 0.6, "score/factuality": 7.5, f"odd {title}": 1.0},
        {"reward/total": 0.1, "score/factuality": 7.5},
        {"reward/total": 0.0},
    ]
    run.add_episodes(episodes, metrics, step=step, phase="actor")
    passes = [
        make_assessment(f"{name}{step}-a0", reports, title=title),
        make_assessment(f"{name}{step}-a1", reports[::-1], title=title, place=2),
    ]
    run.add_episodes(passes, [{}, {}], step=step, phase="actor")


def write_reports_run(path, *, index="", titles=("",)):
    """A run of SCORE with a step for each title; its index has the first of the two documents that are cited."""
    settings = {"recipe": "score", "model": "tiny"} | ({"index": str(index)} if index else {})
    with Run.create(path, "evolve", settings, config="model: tiny\n") as run:
        run.log_metrics(1, {"reward/mean": 0.3})
        for step, title in enumerate(titles, start=1):
            add_reports(run, title=title, step=step)
    for step, harness in enumerate(HARNESSES):
        pool = (*harness.pool, Dimension(f"odd {titles[0]}", titles[0])) if step else harness.pool
        changed = structs.replace(harness, notes=titles[0], pool=pool)
        Versions(path).append(HarnessVersion(step, changed, why=f"why {titles[0]}", fault=titles[-1]))
    return path
