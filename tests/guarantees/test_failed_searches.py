"""R8: a failed search is never rewarded, in any recipe that searches.

One episode in three is dictated to search for what the engine fails at, in its first try and in every replay, and then
to give the right answer, to propose a sound question, to cite the record or to score a report: what pays best. None of
them is paid, compared with others, learned from or counted as an attempt.
"""

import re
import zlib

import pytest

import newsroom
import quoting
import village
import weighing
from dictating import dictating
from practice_runs import make_practice, run_practice
from quaere.dialects.closed_book import ClosedBook
from quaere.dialects.evalact import EvaluateSolver
from quaere.dialects.tag_dialects import TagSolver
from quaere.errors import SearchFailed
from quaere.recipes.registry import RECIPES
from quaere.records import AssessTask, ProposeTask, ReportTask, RubricTask
from quaere.search.searcher import LocalSearcher
from quaere.training.learner import Learner
from score_runs import make_reports, run_reports
from village_runs import make_config, make_quoting, run_drzero, run_eve

DEAD = "unplugged"
ROOMY = {"sequence_tokens": 4096, "turn_tokens": 1024, "tool_response_tokens": 128}
UNSEARCHED = {"r1", "sft"}  # their solvers cannot search
ONE_STEP = {"solver.steps": 1, "search.replays": 1, "search.wait_s": 0.0, "checkpoints.every": 100}
QUERY = re.compile(r'(\["|"query": "|<search>)')


def is_dead(job):
    """One job in three, and the same in every replay."""
    return zlib.crc32(job.episode_id.partition("~")[0].encode()) % 3 == 0


def solve(job):
    """Right where the search fails and in the first attempt of a group; in any dialect."""
    (right, *_) = job.task.question.answers
    wrong = next(name for name in village.PEOPLE if name != right)
    if isinstance(job.protocol, ClosedBook):
        return [f"<answer>{right if job.protocol.span else wrong}</answer>"]
    bridge = next(name for name in village.BRIDGES if name in job.task.question.text)
    answer = right if is_dead(job) or job.episode_id.partition("~")[0].endswith("a0") else wrong
    ending = f"{village.THINK}<answer>{answer}</answer>"
    if isinstance(job.protocol, TagSolver):
        note = {"evalrar-solver": "evaluate", "autorefine-solver": "refine"}.get(job.protocol.name)
        noted = f"<{note}>It is {right}.</{note}>" if note else ""
        return [f"<search>{bridge}</search>", noted + ending]
    if isinstance(job.protocol, EvaluateSolver):
        scored = [] if is_dead(job) else [weighing.GOOD]  # what failed waits for no evaluation
        return [weighing.SEARCH.format(bridge), *scored, ending]
    quoted = f"<evidence>{quoting.DEEDS['built'].format(answer)}</evidence>" if job.protocol.evidence else ""
    return [village.SEARCH.format(bridge), f"{village.THINK}{quoted}<answer>{answer}</answer>"]


def propose(job):
    """A sound question where the search fails, and else one in two; the others give their answer away.

    Every question is more than a hop away and takes a search.
    """
    number = village.BRIDGES.index(job.task.document.doc_id)
    about = village.next_bridge(number)
    answer = village.builder(about) if is_dead(job) or number % 2 else village.BRIDGES[about]
    if not job.protocol.evidence:
        return village.write_proposal(about, 2, "built", answer)
    return quoting.write_proposal(number, 2, "built", answer, quoting.DEEDS["built"].format(village.builder(about)))


def report(job):
    """The record is cited in every other report, and where the search fails."""
    cites = is_dead(job) or job.task.number % 2 == 0
    written = newsroom.REPORT.format(1, newsroom.WORDS[0]) if cites else newsroom.UNCITED
    return [f"<search>{job.task.question.text}</search>", written]


def assess(job):
    """Reports that cite the record are scored high in every dimension of the rubric."""
    entries = []
    for place, shown in enumerate(job.task.reports, start=1):
        score = 9 if newsroom.cites_record(shown) else 1
        scores = (f'<score dimension="{name}">{score}</score>' for name in job.task.rubric.dimensions)
        entries.append(f'<report id="{place}">{"".join(scores)}</report>')
    return [f"<search>{job.task.question.text}</search>", f"<assessment>{''.join(entries)}</assessment>"]


def script(job):
    """What is written, with a query that the engine fails at in one job of three."""
    by_task = {ProposeTask: propose, ReportTask: report, AssessTask: assess, RubricTask: newsroom.dictate}
    first, *rest = by_task.get(type(job.task), solve)(job)
    return [QUERY.sub(rf"\1{DEAD} ", first) if is_dead(job) else first, *rest]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Untaught models: what they write is dictated."""
    rooms = {"village": village, "quoting": quoting, "weighing": weighing, "newsroom": newsroom}
    return {name: room.build(tmp_path_factory.mktemp(name), 0) for name, room in rooms.items()}


def start(name, places, folder):
    if name in ("drzero", "eve"):
        make, run, room = (
            (make_config, run_drzero, "village") if name == "drzero" else (make_quoting, run_eve, "quoting")
        )
        limits = {"proposer.limits": village.LIMITS | ROOMY, "solver.limits": village.LIMITS | ROOMY}
        changes = {"proposer.hop_ratio": (0, 1), "proposer.steps": 1, **limits, **ONE_STEP}
        return run(folder, make(places[room], **changes))[0]
    if name in ("score", "report-grpo", "report-dpo"):
        limits = newsroom.LIMITS | ROOMY
        changes = {"solver.limits": limits, "evaluator.limits": limits, **ONE_STEP}
        judged = ["judge=model"] if name != "score" else []
        return run_reports(folder, name, make_reports(name, places["newsroom"], *judged, **changes))
    changes = {"solver.limits": weighing.LIMITS | ROOMY, **ONE_STEP}
    return run_practice(folder, name, make_practice(name, places["weighing"], **changes))


@pytest.mark.parametrize("name", [name for name in RECIPES if name not in UNSEARCHED])
def test_a_failed_search_is_never_rewarded(name, places, tmp_path, monkeypatch):
    search, step = LocalSearcher.search, Learner.step
    learned = []

    async def fail_sometimes(self, queries, topk):
        if any(DEAD in query for query in queries):
            raise SearchFailed("the retriever did not answer within 1 s", kind="timeout")
        return await search(self, queries, topk)

    def note(self, samples, *given, **options):
        learned.extend(sample.token_ids for sample in samples)
        return step(self, samples, *given, **options)

    monkeypatch.setattr(LocalSearcher, "search", fail_sometimes)
    monkeypatch.setattr(Learner, "step", note)
    with dictating(script):
        run = start(name, places, tmp_path / "run")
    rows = run.index()
    episodes = {row.id: run.episode(row.id) for row in rows}
    failed = [row for row in rows if episodes[row.id].search_failed]
    ends = {episodes[row.id].end for row in failed}
    assert len(failed) >= 6 and "answered" in ends, "what would pay best is there"
    assert all(row.metrics == {"episode/spoiled": 1.0} for row in failed)
    assert not any("episode/spoiled" in row.metrics for row in rows if row not in failed)
    assert learned, "and the others are learned from"
    assert not {tuple(episodes[row.id].token_ids) for row in failed} & {tuple(ids) for ids in learned}
    for candidate in run.candidates():
        group = [row for row in rows if row.task_id == candidate.id and row.step == candidate.step]
        group = [row for row in group if "proposer" not in row.protocol and "closed" not in row.protocol]
        assert candidate.num_attempts == sum(row not in failed for row in group)
        assert not (candidate.reason == "" and episodes[candidate.id].search_failed)
