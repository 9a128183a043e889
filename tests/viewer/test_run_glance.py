"""A run at a glance: before and after, what was learned, what is still wrong, and the kinds that fail."""

import json
import math
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from evaluated import passage, search
from quaere.dialects.registry import open_solver
from quaere.evaluation.intervals import clustered_difference, paired_difference, unpaired_difference
from quaere.evaluation.qa.differences import compare
from quaere.evaluation.qa.scores import Evaluation, score_answering, score_episode, write_evaluation
from quaere.records import Answer, Episode, Question, SolveTask
from quaere.rewards.abstention import ABSTENTION, AbstentionRewards, has_hidden_answer, hide_answers
from quaere.runs import Run
from quaere.runs.rows import EpisodeFilter, Outcome
from quaere.viewer.attempt_groups import is_right
from quaere.viewer.measurements import find_best_step, try_outcomes
from quaere.viewer.plot import Series
from quaere.viewer.run_folder import open_folder
from viewing import (
    add_scored,
    make_candidate,
    make_episode,
    open_client,
    twin,
    write_eval,
    write_learning,
    write_refusing,
    write_run,
)

RIGHT = "Orsolya Venn"


def glance_of(folder, name):
    return twin(open_client(folder), f"/run/{name}")["glance"]


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    write_learning(folder / "validated")
    write_learning(folder / "practised", validated=False)
    return folder


# ------------------------------------------------------------------------------------------------------------ headline


def test_validation_is_compared_question_by_question(learned):
    glance = glance_of(learned, "validated")
    headline = glance["headline"]
    assert (headline["before"]["mean"], headline["after"]["mean"], headline["is_held_back"]) == (0.5, 1.0, True)
    expected = paired_difference([1.0, 1.0], [0.0, 1.0])
    assert (headline["gain"]["mean"], headline["gain"]["num"]) == (expected.mean, 2) == (0.5, 2)
    assert (headline["since"], headline["until"]) == ("before step 1", "after step 4")
    assert glance["curve"]["series"] == {"name": "held back", "steps": [0, 4], "values": [0.5, 1.0]}
    (one,) = glance["learned"]
    assert one["asked"]["id"] == "h1" and one["asked"]["answers"] == [RIGHT, RIGHT]
    assert (one["before"]["answer"], one["after"]["answer"]) == ("x", RIGHT)
    assert one["before"]["episode"] == "i0-s0-validation_start-h1-a0"
    page = open_client(learned).get("/run/validated").text
    for text in ("50.0 →", "100.0 %", "held-back questions", "Not shown to be better", "2 min", "no alarm"):
        assert text in page


def test_practice_is_compared_between_the_first_and_the_last_steps(learned):
    """By hand: 1/4 + 3/4 + 0 + 3/4 of four questions at first; 3/4 + 3/4 + 0 + 1/4 at last."""
    glance = glance_of(learned, "practised")
    headline = glance["headline"]
    assert (headline["before"]["mean"], headline["after"]["mean"]) == (0.4375, 0.4375)
    assert (headline["is_held_back"], headline["gain"]["num"], headline["gain"]["mean"]) == (False, 8, 0.0)
    assert glance["curve"]["title"] == "Practised questions answered right"
    assert [(one["asked"]["id"], one["before"]["step"], one["after"]["step"]) for one in glance["learned"]] == [
        ("q1", 1, 4)
    ]
    assert (glance["learned"][0]["before"]["share"], glance["learned"][0]["after"]["share"]) == (0.25, 0.75)
    assert [one["asked"]["id"] for one in glance["wrong"]] == ["q3"] and glance["num_wrong"] == 1
    assert glance["seconds"] == 120.0 and twin(open_client(learned), "/run/practised")["num_searches"] == 64
    assert "Nothing held back was measured twice" in open_client(learned).get("/run/practised").text


def test_questions_that_were_lost_are_counted_too(learned):
    assert glance_of(learned, "practised")["num_lost"] == 1 and glance_of(learned, "validated")["num_lost"] == 0
    client = open_client(learned)
    assert "mostly right at the end, 1 the other way round" in client.get("/run/practised").text
    assert twin(client, "/run/practised/map")["num_lost"] == 1
    assert "1 were right at first only: they were lost" in client.get("/run/practised/map").text


@pytest.mark.parametrize(
    ("start", "after", "step"),
    [
        (0.5, {4: 0.56, 8: 0.61, 12: 0.55}, 8),
        (0.5, {4: 0.61, 8: 0.61, 12: 0.55}, 8),  # among equals the later
        (0.5, {4: 0.5, 8: 0.6}, None),  # the last one
        (0.7, {4: 0.6, 8: 0.5}, 0),  # the weights it began with
    ],
)
def test_the_best_step_is_that_of_training(start, after, step):
    lines = {
        "validation_start/exact_match": Series("", [1], [start]),
        "validation/exact_match": Series("", [*after], [*after.values()]),
    }
    assert find_best_step(lines) == step
    assert find_best_step({}) is None


def test_where_abstaining_is_allowed_the_best_step_is_that_of_the_rating():
    values = {"exact_match": [0.4, 0.38, 0.35], "rating": [0.4, 0.48, 0.5]}
    lines = {}
    for part, (start, *after) in values.items():
        lines[f"validation_start/{part}"] = Series("", [1], [start])
        lines[f"validation/{part}"] = Series("", [4, 8], after)
    assert find_best_step(lines) is None  # the last one; by exact match it would be the start


def test_refusing_a_question_that_was_written_without_an_answer_is_right(tmp_path):
    """Its id does not say so, the metrics do."""
    task = SolveTask(Question("halm#0:16-unanswerable", "How long is it?", ()))
    solver = open_solver("search-r1", abstention=AbstentionRewards())
    outcomes = (Answer("Not in these documents.", abstained=True), Answer("5 m"))
    turns = (search(passage("It is old.", "halm")),)
    with Run.create(tmp_path / "run", "evolve") as run:
        for number, outcome in enumerate(outcomes):
            episode = Episode(f"e{number}", task, "search-r1-solver", "m", 0, (), turns, outcome, "answered")
            run.add_episode(episode, solver.pay(episode), step=1, phase="solver")
        assert [(one.is_right, one.is_abstained) for one in run.outcomes()] == [(1, 1), (0, 0)]
        assert [is_right(row) for row in run.index()] == [True, False]


def test_attempts_at_a_proposers_steps_are_no_practice(tmp_path):
    with Run.create(tmp_path / "run", "evolve") as run:
        add_scored(run, 1, {"q1": ["x"]}, phase="generation")
        for step in (2, 3, 4):
            run.log_metrics(step, {"answer/exact_match": 1.0})
            add_scored(run, step, {"q1" if step == 4 else f"p{step}": [RIGHT]})
    glance = glance_of(tmp_path, "run")
    assert glance["num_learned"] == 0 and glance["headline"]["before"]["mean"] == 1.0


def test_the_attempt_that_stands_for_others_did_as_most_did(tmp_path):
    with Run.create(tmp_path / "run", "evolve") as run:
        add_scored(run, 1, {"q1": ["x", "y", "y", RIGHT], "q2": ["x", RIGHT, RIGHT]})
        outcomes = run.outcomes()
    tried = try_outcomes("run", outcomes)
    assert (tried["q1"].answer, tried["q1"].share, tried["q1"].num) == ("y", 0.25, 4)
    assert (tried["q2"].answer, tried["q2"].share) == (RIGHT, 2 / 3)


def test_a_refusal_is_right_where_the_answer_was_hidden(tmp_path):
    hidden = hide_answers(Question("q1", "Who built it?", (RIGHT,)))
    assert has_hidden_answer(hidden.id) and not has_hidden_answer("q1")
    write_refusing(tmp_path / "run")
    glance = glance_of(tmp_path, "run")
    assert (glance["headline"]["before"]["mean"], glance["headline"]["after"]["mean"]) == (0.0, 0.5)
    assert glance["has_hidden"] and [one["asked"]["id"] for one in glance["learned"]] == [hidden.id]
    assert [(row["kind"], row["after"]["mean"]) for row in glance["kinds"]] == [("other", 0.0), ("answer hidden", 1.0)]
    client = open_client(tmp_path)
    assert "answered right or rightly refused" in client.get("/run/run").text
    step = glance["learned"][0]["after"]["step"]
    lines = twin(client, "/run/run/questions")["page"]["items"]
    found = {(one["group"]["task_id"], one["group"]["step"]): (one["num_right"], one["num_abstained"]) for one in lines}
    assert found == {(hidden.id, 1): (0, 0), (hidden.id, 2): (1, 1), ("q1", 1): (0, 1), ("q1", 2): (0, 1)}
    group = twin(client, f"/run/run/group?task={hidden.id}&step={step}")["sections"][0]
    assert group["num_right"] == group["num_attempts"] and all(one["is_abstained"] for one in group["attempts"])
    assert "rightly refused" in client.get(f"/run/run/group?task={hidden.id}&step={step}").text
    for page in ("questions", f"step/{step}"):
        assert "answer hidden: refusing is right" in client.get(f"/run/run/{page}").text


def test_a_learning_is_measured_by_the_runs_beside_its_training(tmp_path):
    write_learning(tmp_path / "run")
    write_eval(tmp_path / "before", ["x", RIGHT, None, "x"])
    write_eval(tmp_path / "after", [RIGHT, RIGHT, None, "x"])
    folder = open_folder(str(tmp_path / "run"))
    assert (folder.only, list(folder.paths())) == ("run", ["run", "before", "after"])
    whole = open_folder(str(tmp_path))
    assert (whole.only, whole.root, whole.paths()) == (folder.only, folder.root, folder.paths())
    client = open_client(tmp_path / "run")
    glance = twin(client, "/run/run")["glance"]
    assert (glance["headline"]["before"]["mean"], glance["headline"]["after"]["mean"]) == (0.25, 0.5)
    assert glance["headline"]["gain"]["mean"] == 0.25 and glance["num_measured"] == 4
    assert {asked["answer_kind"] for one in glance["wrong"] for asked in [one["asked"]]} == {"name"}
    (one,) = glance["learned"]
    assert (one["before"]["run"], one["before"]["answer"], one["after"]["run"]) == ("before", "x", "after")
    assert one["asked"]["answers"] == [RIGHT, RIGHT]
    for tried in (one["before"], one["after"]):
        assert client.get(f"/run/{tried['run']}/episode?id={tried['episode']}").status_code == 200
    shown = twin(client, "/run/run/map")
    assert (shown["of"], [column["label"] for column in shown["columns"]]) == ("held", ["before", "after"])
    assert (shown["num_right"], shown["num_learned"]) == (2, 1)
    assert '<ol class="panel beside">' in client.get("/run/run/map").text  # few cells and a text, so several in a line
    cells = re.findall(r'<a class="cell \w+" href="([^"]*)"', client.get("/run/run/map").text)
    assert len(cells) == 8
    for address in cells:
        assert client.get(address.replace("&amp;", "&")).status_code == 200
    write_learning(tmp_path / "other")
    assert list(open_folder(str(tmp_path / "other")).paths()) == ["other"]
    assert open_folder(str(tmp_path)).only == ""  # a folder of runs, which may have any names


def test_the_gain_of_a_learning_is_shown_over_documents_as_on_its_own_page(tmp_path):
    """Twelve questions about four documents; eight are right after, and none before."""
    write_learning(tmp_path / "run")
    sides = {"before": ["x"] * 12, "after": [RIGHT] * 5 + ["x"] + [RIGHT, "x"] * 3}
    for name, answers in sides.items():
        write_eval(tmp_path / name, answers)
    spans = [{"doc_id": f"{number // 3}.md", "start": 0, "end": 1, "text": "x"} for number in range(12)]
    counts = {"answers": ["x"], "kind": "single", "facts": 1, "searches": 1, "hops": 1}
    rows = [
        {"id": f"q{number}", "question": f"Who built {number}?", **counts, "evidence": [span]}
        for number, span in enumerate(spans)
    ]
    (tmp_path / "held.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    gains = [float(answer == RIGHT) for answer in sides["after"]]
    expected = clustered_difference(gains, [0.0] * 12, [number // 3 for number in range(12)])
    client = open_client(tmp_path / "run")
    found = twin(client, "/run/run")["glance"]["headline"]["gain"]
    assert (found["low"], found["high"]) == pytest.approx((expected.low, expected.high))
    address = "/evaluations/compare?of=after&of=before"
    (first, *_) = twin(client, address)["rows"]
    assert first["difference"] == found and "paired difference over documents" in client.get(address).text
    assert first["smallest"] == pytest.approx((found["high"] - found["low"]) / 2 * 2.80 / 1.96)  # over documents, too
    assert twin(client, "/compare?run=before&run=after")["difference"]["difference"] == found
    (tmp_path / "held.jsonl").unlink()
    client = open_client(tmp_path / "run")
    found = twin(client, "/run/run")["glance"]["headline"]["gain"]
    assert found["low"] == paired_difference(gains, [0.0] * 12).low


def test_pages_below_that_of_a_learning_have_its_name(tmp_path):
    write_learning(tmp_path / "notes-learned/run")
    write_eval(tmp_path / "notes-learned/before", ["x"])
    client = open_client(tmp_path / "notes-learned")
    for page in ("map", "questions", "step/1", "group?task=q1"):
        assert '<a href="/run/run' in (text := client.get(f"/run/run/{page}").text) and ">notes-learned</a>" in text
    assert ">notes-learned</a>" in client.get("/").text and ">before</a>" in client.get("/run/before/questions").text


def test_a_learning_has_the_intervals_of_its_own_report(tmp_path):
    write_learning(tmp_path / "run")
    results = {"before": [RIGHT, "x"] * 12, "after": ["x"] * 5 + [RIGHT] * 19}
    stored = {}
    for name, answers in results.items():
        path = write_eval(tmp_path / name, answers)
        with Run.open(path) as run:
            scores = [score_episode(episode, evidence=False) for episode in run.episodes()][::-1]
        stored[name] = Evaluation(name, "tiny", {}, score_answering(scores), tuple(scores))
    (written, reported) = compare_measured(tmp_path / "run"), compare(stored["after"], stored["before"]).exact_match
    assert (written["mean"], written["low"]) != (reported.mean, reported.low)  # the order of the run
    for name, evaluation in stored.items():
        write_evaluation(evaluation, tmp_path / f"{name}.json")
    client = open_client(tmp_path / "run")
    page = twin(client, "/evaluation?of=after")["score"]["exact_match"]
    listed = twin(client, "/evaluations")["page"]["items"]
    assert [one["exact_match"] for one in listed if one["name"] == "after"] == [page]
    assert twin(client, "/run/after")["scores"]["exact_match"] == page
    assert compare_measured(tmp_path / "run") == msgspec.to_builtins(reported)


def compare_measured(path):
    return glance_of(path, "run")["headline"]["gain"]


def test_a_measurement_that_has_just_begun_is_left_out(tmp_path):
    write_learning(tmp_path / "run")
    write_eval(tmp_path / "before", ["x"])
    write_eval(tmp_path / "after", [])
    assert glance_of(tmp_path / "run", "run")["headline"]["since"] == "before step 1"


def test_questions_that_were_measured_only_once_are_no_gain(tmp_path):
    with Run.create(tmp_path / "run-a", "evolve") as run:
        for step, task in ((1, "h1"), (2, "h2")):
            name = "validation_start" if step == 1 else "validation"
            run.log_metrics(step, {f"{name}/exact_match": 1.0})
            add_scored(run, step, {task: [RIGHT]}, phase="validation", start=step == 1)
    assert glance_of(tmp_path, "run-a")["headline"] is None
    assert open_client(tmp_path).get("/run/run-a").status_code == 200


def test_a_run_without_scored_answers_has_a_curve_and_no_gain(tmp_path):
    write_run(tmp_path / "alpha")
    glance = glance_of(tmp_path, "alpha")
    assert glance["headline"] is None and glance["curve"]["title"] == "Mean reward"
    page = open_client(tmp_path).get("/run/alpha").text
    assert "no gain to show" in page and "What it asks itself" in page


# ----------------------------------------------------------------------------------------------- questions and kinds


def test_questions_are_shown_with_their_evidence_and_their_kinds_in_turn(tmp_path):
    (tmp_path / "given").mkdir()
    line = '{{"id":"g{0}","question":"Who built g{0}?","answers":["Venn"],"searches":{1},"evidence":[{2}]}}\n'
    proof = '{"doc_id":"halm.md","start":0,"end":9,"text":"Venn did."}'
    lines = "".join(line.format(number, 1 if number < 12 else 2, proof) for number in range(14))
    path = write_learning(tmp_path / "runs" / "given", validated=False)
    (path / "questions.jsonl").write_text(lines)
    asks = glance_of(tmp_path / "runs", "given")["asks"]
    assert [one["id"] for one in asks[:4]] == ["g0", "g12", "g1", "g13"] and len(asks) == 10
    assert (asks[1]["kind"], asks[1]["sentence"], asks[1]["document"]) == ("2 searches", "Venn did.", "halm.md")
    (path / "questions.jsonl").write_text("no JSON")
    assert glance_of(tmp_path / "runs", "given")["asks"] == []


def test_kinds_that_fail_come_first(tmp_path):
    path = write_learning(tmp_path / "run-a", validated=False)
    with Run.open(path, write=True) as run:
        made = [make_candidate(id, 0) for id in ("q1", "q2", "q3", "q4")]
        kinds = ("causal", "causal", "temporal", "temporal")
        typed = zip(made, kinds, strict=True)
        run.add_candidates([structs.replace(one, question_type=kind) for one, kind in typed])
    glance = glance_of(tmp_path, "run-a")
    shares = [(row["kind"], row["before"]["mean"], row["after"]["mean"]) for row in glance["kinds"]]
    assert shares == [("temporal", 0.375, 0.125), ("causal", 0.5, 0.75)]
    assert glance["asks"][0]["sentence"] == "Orsolya Venn built it."
    page = open_client(tmp_path).get("/run/run-a").text
    table = page.partition('<table class="kinds">')[2]
    assert table.index("temporal") < table.index("causal")


# ------------------------------------------------------------------------------------------------------------- parity

SCORES = st.sampled_from([0.0, 1.0, 0.5, math.nan])


@given(st.lists(st.tuples(SCORES, st.sampled_from([None, 0.0, 1.0]), st.sampled_from(["x", ABSTENTION, None]))))
def test_outcomes_are_those_of_the_parsed_metrics(tmp_path_factory, scores):
    with Run.create(tmp_path_factory.mktemp("runs") / "run", "evolve") as run:
        for number, (right, abstained, answer) in enumerate(scores):
            parts = {"reward/total": 1.0, "answer/exact_match": right} | (
                {} if abstained is None else {"answer/abstained": abstained}
            )
            episode = make_episode(f"e{number}", answer=answer or "", ends=answer is not None)
            run.add_episodes([episode, make_episode(f"other{number}")], [parts, {"reward/total": 1.0}], step=number)
        naive = [
            Outcome(
                row.id,
                row.task_id,
                row.question,
                ABSTENTION if row.metrics.get("answer/abstained") == 1 else row.answer,
                row.step,
                row.phase,
                int(row.metrics["answer/exact_match"] == 1),
                int(row.metrics.get("answer/abstained") == 1),
            )
            for row in run.rows(EpisodeFilter())
            if "answer/exact_match" in row.metrics
        ]
        assert run.outcomes() == naive
        assert run.outcomes(steps=[0, 2]) == [one for one in naive if one.step in (0, 2)]
        assert run.outcomes(task_ids=["q1"]) == naive and run.outcomes(task_ids=["q9"]) == run.outcomes(steps=[]) == []


def test_an_unpaired_difference_by_hand():
    assert unpaired_difference([1, 1], [0, 0, 0]) == unpaired_difference([1.0, 1.0], [0.0, 0.0, 0.0])
    found = unpaired_difference([1, 1], [0, 0, 0])
    # Wilson's intervals of 2 of 2 and of 0 of 3 begin at 2 / (2 + z^2) and end at z^2 / (3 + z^2), with z^2 = 3.8415.
    below = ((3.8415 / 5.8415) ** 2 + (3.8415 / 6.8415) ** 2) ** 0.5
    assert (found.mean, found.high, found.num) == (1.0, 1.0, 5) and found.low == pytest.approx(1 - below, abs=1e-4)
    found = unpaired_difference([1, 0] * 50, [0] * 100)
    # The standard error of one half of 100 is 0.05; none of 100 has no spread, but may be 0.037.
    assert found.mean == 0.5 and found.low == pytest.approx(0.5 - (0.1**2 + 0.037**2) ** 0.5, abs=0.005)
    assert found.high == pytest.approx(0.6, abs=0.02)
    found = unpaired_difference([1, 0] * 50, [1, 0, 0, 0] * 25)
    assert found.mean == 0.25 and found.low == pytest.approx(0.25 - 1.96 * (0.0025 + 0.001875) ** 0.5, abs=0.02)


@given(*[st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=1, max_size=20)] * 2)
def test_an_unpaired_difference_includes_its_mean_and_changes_sign_with_its_sides(ours, theirs):
    found, other = unpaired_difference(ours, theirs), unpaired_difference(theirs, ours)
    assert found.low <= found.mean <= found.high
    assert found.mean == pytest.approx(sum(ours) / len(ours) - sum(theirs) / len(theirs))
    assert found.mean == pytest.approx(-other.mean)
