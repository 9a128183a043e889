"""The same weights score the same in training's validation and in `quaere eval`, question by question."""

import asyncio

import msgspec

from practice_runs import make_practice, run_practice
from quaere.api.suite import Engine, run_suite
from quaere.api.suite_file import Suite, SuiteMethod, SuiteModel, SuiteSet
from quaere.rollout.question_files import read_questions
from quaere.runs import Run


def test_validation_and_evaluation_agree_on_every_question(weighing_paths, tmp_path):
    index, _, questions = map(str, weighing_paths)
    changes = {"solver.steps": 1, "validation.share": 0.5, "validation.every": 1}
    config = make_practice("search-r1", weighing_paths, **changes)
    with run_practice(tmp_path / "run", "search-r1", config) as run:
        played = [one for one in run.episodes(phase="validation") if "-validation-" in one.id]  # after the step
    held = {episode.task.question.id for episode in played}
    rows = [question for question in read_questions(questions) if question.id in held]
    assert len(rows) == len(played) >= 8
    lines = [{"id": row.id, "question": row.text, "answers": row.answers, "hops": row.hops} for row in rows]
    (tmp_path / "held.jsonl").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    suite = Suite(
        sets=(SuiteSet("held", str(tmp_path / "held.jsonl"), index),),
        models=(SuiteModel("trained", run=str(tmp_path / "run"), checkpoint="last"),),
        methods=(SuiteMethod("own"),),
    )
    engine = Engine(device="cpu", deterministic=True, max_rows=config.engine.max_rows)
    (row,) = asyncio.run(run_suite(suite, tmp_path / "out", engine=engine, progress=False))
    with Run.open(tmp_path / "out" / "trained-own-held") as run:
        asked = {episode.task.question.id: episode for episode in run.episodes()}
    assert asked.keys() == held
    for episode in played:
        again = asked[episode.task.question.id]
        assert (again.token_ids, again.outcome, again.end) == (episode.token_ids, episode.outcome, episode.end)
    with Run.open(tmp_path / "run") as run:
        assert row.exact_match.mean == run.metrics("validation/exact_match")[-1].value
    assert any(episode.outcome for episode in played)  # otherwise nothing was compared
