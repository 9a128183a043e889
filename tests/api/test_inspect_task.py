"""`inspect eval quaere/answer`: the scores are those of an evaluation of the same agent."""

import pytest

import quaere
from weighing import LIMITS

inspect_ai = pytest.importorskip("inspect_ai")


def test_inspect_gives_the_scores_of_an_evaluation(weighing_paths, tmp_path):
    from quaere.api.inspect_task import answer

    index, model, questions = map(str, weighing_paths)
    how = {"dialect": "search-r1", "style": "brief", "device": "cpu", **LIMITS}
    (log,) = inspect_ai.eval(
        answer(agent=model, questions=questions, index=index, limit=12, **how),
        model="none",
        log_dir=str(tmp_path),
        display="none",
    )
    assert log.status == "success", log.error
    with quaere.Agent(model, index, **how) as agent:
        score = quaere.evaluate(agent, questions, limit=12, progress=False).score
    found = {one.scorer: one.metrics["mean"].value for one in log.results.scores}
    assert found == pytest.approx({"exact_match": score.exact_match.mean, "token_f1": score.f1.mean})
    assert 0 < score.exact_match.mean < 1
    assert sum(sample.store["num_searches"] for sample in log.samples) == 12 * score.mean_searches


def test_without_an_index_it_answers_from_memory(weighing_paths, tmp_path):
    from quaere.api.inspect_task import answer

    _, model, questions = map(str, weighing_paths)
    task = answer(agent=model, questions=questions, limit=2, device="cpu", turn_tokens=8)
    (log,) = inspect_ai.eval(task, model="none", log_dir=str(tmp_path), display="none")
    assert log.status == "success" and [sample.store["num_searches"] for sample in log.samples] == [0, 0]
