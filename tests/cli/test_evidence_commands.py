"""`quaere ask --evidence` and `quaere eval --evidence --judge`: what a person reads, and what JSON holds."""

import json
from pathlib import Path

import pytest

import tiny
from quaere.chat.renderer import Renderer
from quaere.cli.main import main
from quaere.evaluation.qa.scores import read_evaluation
from quaere.rollout.policy import TokenPolicy
from quaere.runs import Run
from quaere.runs.rows import PLACE
from scripted import ScriptedSampler

SENTENCE = "Orsolya Venn built the Halm bridge in 1702."
CALL = '<tool_call>{"name": "search", "arguments": {"query_list": ["Halm bridge"]}}</tool_call>'
DOCUMENT = f"# Halm bridge\n\nIt crosses the Oss. {SENTENCE}\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("evidence")
    (root / "docs").mkdir()
    (root / "docs" / "halm.md").write_text(DOCUMENT)
    (root / "docs" / "oss.md").write_text("# The Oss\n\nThe Oss rises in the Korrin hills.\n")
    assert main(["index", str(root / "docs"), "--out", str(root / "index")]) == 0
    rows = [{"id": f"q{n}", "question": f"Who built bridge {n}?", "answers": ["Orsolya Venn"]} for n in range(3)]
    (root / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


@pytest.fixture
def says(monkeypatch):
    """Let whatever model is opened say these turns; the loop, the index and the search are the real ones."""

    def script(turns):
        tokenizer = tiny.tokenizer()

        def opened(model, **engine):
            return TokenPolicy(ScriptedSampler(tokenizer, turns, name=model), Renderer(tokenizer))

        monkeypatch.setattr("quaere.rollout.policy.open_policy", opened)

    return script


def cited(span, answer="Orsolya Venn"):
    return f"<evidence>{span}</evidence><answer>{answer}</answer>"


def ask(place, *more):
    where = ["--index", str(place / "index"), "--runs", str(place / "runs"), "--model", "scripted-one"]
    return main(["ask", *more, *where])


def shown(capsys):
    return " ".join(capsys.readouterr().out.split())


def test_the_span_is_shown_as_its_document_has_it(place, says, capsys):
    start = DOCUMENT.index(SENTENCE)
    says({"ask": [CALL, cited("Orsolya Venn  built the Halm bridge in 1702.")]})
    assert ask(place, "Who built it?", "--evidence") == 0
    found = f"found verbatim in [1] halm.md (Halm bridge), lines 1-3, characters {start} to {start + len(SENTENCE)}"
    assert f"Evidence: {SENTENCE} {found}" in shown(capsys)
    assert ask(place, "Who built it?", "--evidence", "--json") == 0
    assert json.loads(capsys.readouterr().out)["evidence"] == {
        "span": "Orsolya Venn  built the Halm bridge in 1702.",
        "verbatim": True,
        "text": SENTENCE,
        "doc_id": "halm.md",
        "title": "Halm bridge",
        "place": "lines 1-3",
        "start": start,
        "end": start + len(SENTENCE),
    }


@pytest.mark.parametrize("turns", [[CALL, cited("Venn built it\x1b[2J.")], [cited(SENTENCE)]], ids=["forged", "unseen"])
def test_a_span_that_was_not_returned_in_this_episode_is_not_found(place, says, capsys, turns):
    says({"ask": turns})
    assert ask(place, "Who built it?", "--evidence") == 0
    out = shown(capsys)
    assert "not found in anything it was shown" in out and "\x1b" not in out
    assert ask(place, "Who built it?", "--evidence", "--json") == 0
    evidence = json.loads(capsys.readouterr().out)["evidence"]
    assert evidence["verbatim"] is False and "doc_id" not in evidence


def test_no_span_is_said(place, says, capsys):
    says({"ask": [CALL, "<answer>Orsolya Venn</answer>"]})
    assert ask(place, "Who built it?", "--evidence") == 0
    assert "Evidence: it gave none" in shown(capsys)
    assert ask(place, "Who built it?") == 0
    assert "Evidence" not in shown(capsys)
    assert ask(place, "Who built it?", "--json") == 0
    assert json.loads(capsys.readouterr().out)["evidence"] is None


def test_without_a_quotation_the_sentence_that_contains_the_answer_is_shown(place, says, capsys):
    start = DOCUMENT.index(SENTENCE)
    says({"ask": [CALL, "<answer>orsolya venn</answer>"]})
    assert ask(place, "Who built it?") == 0
    where = f"halm.md (Halm bridge), lines 1-3, characters {start} to {start + len(SENTENCE)}"
    assert f"Found in: {SENTENCE} [1] {where}" in shown(capsys)
    assert ask(place, "Who built it?", "--json") == 0
    support = json.loads(capsys.readouterr().out)["support"]
    assert (support["text"], support["start"], support["place"]) == (SENTENCE, start, "lines 1-3")


@pytest.mark.parametrize("answer", ["Marta Oleen", "yes", "bui"])
def test_an_answer_in_no_sentence_is_said_to_be_in_none(place, says, capsys, answer):
    says({"ask": [CALL, f"<answer>{answer}</answer>"]})
    assert ask(place, "Who built it?") == 0
    assert "No sentence it was shown contains this answer" in shown(capsys)
    assert ask(place, "Who built it?", "--json") == 0
    assert json.loads(capsys.readouterr().out)["support"] is None


@pytest.mark.parametrize("more", [[], ["--evidence"], ["--json"]])
def test_no_answer_is_not_found_with_what_was_seen_and_an_exit_code_of_its_own(place, says, capsys, more):
    says({"ask": [CALL] * 20})
    assert ask(place, "Who built it?", *more) == 3
    said = capsys.readouterr()
    assert "quaere: not found in these documents (" in said.err and "  try: " in said.err
    if "--json" in more:
        assert json.loads(said.out)["answer"] is None
    else:
        assert "Passages seen:" in said.out and "halm.md (Halm bridge), lines 1-3" in " ".join(said.out.split())


def test_a_file_of_questions_gets_a_column(place, says, capsys):
    says({"q0": [CALL, cited(SENTENCE)], "q1": [cited("x")], "q2": ["<answer>?</answer>"]})
    assert ask(place, "--questions", str(place / "questions.jsonl"), "--evidence") == 0
    out = shown(capsys)
    assert "verbatim" in out and "not found" in out and "evidence of 1 found verbatim" in out


# -------------------------------------------------------------------------------------------------------------- eval


def evaluate(place, *more, judge=("--judge", "string", "--judge-items", "8")):
    where = ["--index", str(place / "index"), "--runs", str(place / "runs"), "--model", "scripted-one"]
    return main(["eval", "--questions", str(place / "questions.jsonl"), *where, *judge, *more])


def test_evidence_is_scored_and_its_judge_with_it(place, says, tmp_path, capsys):
    says({"q0": [CALL, cited(SENTENCE)], "q1": [CALL, cited(SENTENCE, "Kell")], "q2": ["<answer>?</answer>"]})
    assert evaluate(place, "--evidence", "--name", "cited", "--out", str(tmp_path / "cited.json")) == 0
    out = shown(capsys)
    assert "cited 66.7 [0.0, 100.0] 66.7 [0.0, 100.0] 66.7 [0.0, 100.0] 33.3 [0.0, 100.0] string check, not a" in out
    assert "judge accuracy of 'string check, not a judge': 8 questions (evaluation family" in out
    assert "answer in a statement about something else" in out
    stored = read_evaluation(tmp_path / "cited.json")
    assert stored.judging.judge == "string check, not a judge"
    assert stored.judging.validation.sensitivity.num == 8
    assert (stored.settings["protocol"], stored.settings["evidence"]) == ("eve-solver", True)
    assert [question.supported for question in stored.questions] == [True, True, False]

    says({f"q{number}": [CALL, cited(SENTENCE)] for number in range(3)})
    assert evaluate(place, "--evidence", "--name", "better", "--json", "--compare", str(tmp_path / "cited.json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["score"]["evidence"]["joint"]["mean"] == 1.0
    assert found["judging"]["num_unread"] == 0
    difference = found["compare"][0]["difference"]
    assert difference["joint"]["mean"] == pytest.approx(2 / 3) and difference["smallest"]["joint"] > 0.5
    with Run.open(found["run"]) as run:
        assert run.metrics("evidence/joint")[0].value == 1.0
        assert run.index()[0].metrics["evidence/verbatim"] == 1.0


def test_gold_passages_score_evidence_without_a_judge(place, says, tmp_path, capsys):
    """Two sets with gold and one without; q1 quotes the right passage for a wrong answer, q2 the wrong passage."""
    gold = {"q0": ["halm.md"], "q1": ["halm.md"], "q2": ["oss.md"], "q3": []}
    sets = {"q0": "whole", "q1": "whole", "q2": "part", "q3": "none"}
    rows = [
        {"id": name, "question": f"Who built bridge {name}?", "answers": ["Orsolya Venn"], "set": sets[name]}
        | {"gold_ids": ids}
        for name, ids in gold.items()
    ]
    asked = tmp_path / "gold.jsonl"
    asked.write_text("".join(json.dumps(row) + "\n" for row in rows))
    turns = {name: [CALL, cited(SENTENCE, "Kell" if name == "q1" else "Orsolya Venn")] for name in gold}

    def score(*more):
        says(turns)
        assert evaluate(place, "--questions", str(asked), "--evidence", "--json", *more, judge=()) == 0
        found = json.loads(capsys.readouterr().out)["score"]["evidence"]
        return [(found[name]["mean"], found[name]["num"]) for name in ("gold", "gold_joint")]

    assert score() == [(pytest.approx(2 / 3), 3), (pytest.approx(1 / 3), 3)]
    assert score("--gold-sets", "whole", "--out", str(tmp_path / "whole.json")) == [(1.0, 2), (0.5, 2)]
    stored = read_evaluation(tmp_path / "whole.json")
    assert [question.gold for question in stored.questions] == [True, True, None, None]
    assert stored.settings["gold_sets"] == ["whole"]
    assert main(["eval", "--compare", str(tmp_path / "whole.json"), str(tmp_path / "whole.items.jsonl.gz")]) == 0
    out = shown(capsys)
    assert "questions with gold gold % gold joint %" in out and "gold joint +0.0 [-84.2, +84.2]" in out
    assert evaluate(place, "--questions", str(asked), "--evidence", "--gold-sets", "all", judge=()) == 2
    assert "no question is of the set 'all'; there are none, part, whole" in capsys.readouterr().err


def test_a_judges_accuracy_comes_before_what_it_decided(place, says, capsys):
    says({f"q{number}": [CALL, cited(SENTENCE)] for number in range(3)})
    assert evaluate(place, "--evidence") == 0
    out = shown(capsys)
    assert out.index("judge accuracy of") < out.index("supported %")


def test_differences_stand_beside_the_smallest_that_could_have_been_shown(place, says, tmp_path, capsys):
    for name in ("one", "two"):
        says({f"q{number}": [CALL, cited(SENTENCE)] for number in range(3)})
        assert evaluate(place, "--evidence", "--name", name, "--out", str(tmp_path / f"{name}.json"), judge=()) == 0
    capsys.readouterr()
    assert main(["eval", "--compare", str(tmp_path / "one.json"), str(tmp_path / "two.json")]) == 0
    out = shown(capsys)
    # Three pairs alike: 2.80 * sqrt(1 / 4 / 3), and 1 - 0.025^(1/3) of all pairs may differ.
    assert "EM +0.0 [-70.8, +70.8] (80.9), F1 +0.0" in out and "verbatim +0.0 [-70.8, +70.8] (80.9)" in out
    assert "smallest difference that could be shown" in out and "judged by" in out and "no judge" in out


def test_a_model_judges_too_and_an_unreadable_one_is_told(place, monkeypatch, capsys):
    tokenizer = tiny.tokenizer()

    class Mumbler(ScriptedSampler):
        async def sample(self, session, token_ids, params):
            self._scripts = {**self._scripts, session: self._scripts.get(session, ["hm"] * 9)}
            return await super().sample(session, token_ids, params)

    def opened(model, **engine):
        turns = {} if model == "mumbler" else {f"q{number}": [CALL, cited(SENTENCE)] for number in range(3)}
        return TokenPolicy(Mumbler(tokenizer, turns, name=model), Renderer(tokenizer))

    monkeypatch.setattr("quaere.rollout.policy.open_policy", opened)
    assert evaluate(place, "--evidence", judge=("--judge", "mumbler", "--judge-items", "4")) == 0
    out = shown(capsys)
    assert "3 verdicts could not be read here; each counts as not supported" in out
    assert "not been shown to be better than chance" in out


def test_refusals(place, says, capsys):
    says({})
    assert evaluate(place) == 2
    assert "--judge grades evidence, so it needs --evidence" in capsys.readouterr().err
    for number in ("0", "401"):
        assert evaluate(place, "--evidence", judge=("--judge", "string", "--judge-items", number)) == 2
        assert "--judge-items must be between 1 and 400" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------------- not found

GUESS = {"ask": [CALL, "<answer>Orsolya Venn</answer>"]}


def test_an_answer_out_of_a_passage_about_something_else_is_not_found(place, says, capsys):
    says(GUESS)
    assert ask(place, "Which tavern brews the darkest beer of Skeld?", "--min-overlap", "0.5") == 3
    streams = capsys.readouterr()
    assert "Do not rely on it: the passage with this answer does not mention: Skeld\n" in streams.out
    assert "halm.md (Halm bridge)" in streams.out and "not found in these documents" in streams.err
    says({"ask": [CALL, "<answer>Brod Hask</answer>"]})
    assert ask(place, "Who built the Halm bridge?", "--min-overlap", "0.5") == 3
    said = capsys.readouterr().out
    assert said.count("o sentence it was shown contains this answer") == 1 and "mention" not in said


def test_a_search_engine_that_is_down_is_said_and_not_that_nothing_was_found(place, says, capsys):
    says({"ask": [CALL, CALL, "<answer>Orsolya Venn</answer>"]})
    where = ["--search", "web:searxng@http://127.0.0.1:9", "--runs", str(place / "runs"), "--model", "scripted-one"]
    assert main(["ask", "Who built the Halm bridge?", "--min-overlap", "0.5", *where]) == 2
    said = capsys.readouterr().err
    assert "quaere: the search engine searxng cannot be reached" in said and "not found" not in said


def test_an_answer_out_of_the_right_passage_is_found(place, says, capsys):
    says(GUESS)
    assert ask(place, "Who built the Halm bridge?", "--min-overlap", "1") == 0
    assert "do not rely on it" not in capsys.readouterr().out


def test_without_a_measured_overlap_every_answer_counts(place, says, capsys):
    says(GUESS)
    assert ask(place, "Which tavern brews the darkest beer of Skeld?", "--json") == 0
    assert json.loads(capsys.readouterr().out)["found"]
    assert ask(place, "Which tavern brews the darkest beer of Skeld?", "--json", "--min-overlap", "0.5") == 3
    found = json.loads(capsys.readouterr().out)
    assert found["answer"] == "Orsolya Venn" and not found["found"]


def test_a_table_marks_what_was_not_found(place, says, capsys, tmp_path):
    asked = ["Who built the Halm bridge?", "Who brews the beer of Skeld?"]
    rows = [{"id": f"q{n}", "question": text} for n, text in enumerate(asked)]
    (tmp_path / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    says({f"q{n}": GUESS["ask"] for n in range(2)})
    assert ask(place, "--questions", str(tmp_path / "asked.jsonl"), "--min-overlap", "0.5") == 0
    table = capsys.readouterr().out
    assert table.count("(not") == 1 and "2 questions, 2 answered, 1 of these not found" in table
    assert table.split()[:3] == ["question", "answer", "searches"]  # and no empty columns
    assert ask(place, "--questions", str(tmp_path / "asked.jsonl"), "--limit", "1") == 0
    assert "1 question, 1 answered" in capsys.readouterr().out
    says({f"q{n}": GUESS["ask"] for n in range(2)})
    assert ask(place, "--questions", str(place / "questions.jsonl"), "--limit", "1") == 0
    assert "question answer expected right searches" in shown(capsys)


def test_an_overlap_that_is_no_share_is_refused(place, capsys):
    assert ask(place, "Who?", "--min-overlap", "50") == 2
    assert "--min-overlap must be between 0 and 1, not 50.0" in capsys.readouterr().err


def test_the_built_in_model_has_a_measured_overlap_and_reads_pages_that_are_named_first():
    from quaere.dialects.notes import find_notes

    built_in, plain = find_notes("smollm2-135m"), find_notes("smollm2-135m-plain")
    assert (built_in.min_overlap, plain.min_overlap) == (0.6, 0.0)
    assert built_in.limits is not None and built_in.limits.titles_first
    assert plain.limits is None


def test_the_order_of_results_is_stored_with_the_run(place, says, capsys):
    says(GUESS)
    for option, ordered in (((), False), (("--titles-first",), True), (("--no-titles-first",), False)):
        assert ask(place, "Who built the Halm bridge?", "--json", *option) == 0
        with Run.open(Path(json.loads(capsys.readouterr().out)["run"])) as stored:
            assert stored.info.settings["titles_first"] is ordered


# ------------------------------------------------------------------------------------------------------ abstaining

SILENT = {"ask": [CALL, "<answer>Not in these documents.</answer>"]}


def test_an_abstention_is_said_in_one_line_with_the_queries(place, says, capsys):
    says(SILENT)
    assert ask(place, "Who brews the beer of Skeld?") == 3
    streams = capsys.readouterr()
    assert "quaere: not in these documents; searched for: Halm bridge" in " ".join(streams.err.split())
    assert "Answer: not in these documents" in streams.out and "abstained (2 turns, 1 search" in streams.out
    assert "Found in" not in streams.out and "No sentence" not in streams.out
    says(SILENT)
    assert ask(place, "Who brews the beer of Skeld?", "--json") == 3
    found = json.loads(capsys.readouterr().out)
    assert (found["abstained"], found["found"], found["support"]) == (True, False, None)
    assert found["answer"] == "Not in these documents." and found["searches"] == ["Halm bridge"]
    with Run.open(Path(found["run"])) as stored:
        assert stored.info.settings["abstention"] is True and stored.info.settings["min_confidence"] == 0.0


def test_without_abstention_the_phrase_is_an_answer_like_any_other(place, says, capsys):
    says(SILENT)
    assert ask(place, "Who brews the beer of Skeld?", "--json", "--no-abstention") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["abstained"], found["found"]) == (False, True)


def test_an_answer_of_low_confidence_is_kept_in_json_and_not_shown_as_the_answer(place, says, capsys):
    """Every token of the script has a probability of 0.37."""
    says(GUESS)
    assert ask(place, "Who built the Halm bridge?", "--min-confidence", "0.5") == 3
    streams = capsys.readouterr()
    assert "confidence of 0.37, below 0.5); searched for: Halm bridge" in " ".join(streams.err.split())
    assert "Answer: Orsolya Venn" not in streams.out and "Answer: not in these documents" in streams.out
    says(GUESS)
    assert ask(place, "Who built the Halm bridge?", "--min-confidence", "0.5", "--json") == 3
    found = json.loads(capsys.readouterr().out)
    assert (found["answer"], found["abstained"], found["found"]) == ("Orsolya Venn", True, False)
    assert found["confidence"] == pytest.approx(0.3679, abs=1e-4)
    says(GUESS)
    assert ask(place, "Who built the Halm bridge?", "--min-confidence", "0.3") == 0
    assert "Answer: Orsolya Venn" in capsys.readouterr().out


def test_an_answer_of_low_confidence_is_no_answer_in_the_table_nor_in_the_list_of_runs(place, says, capsys, tmp_path):
    (tmp_path / "one.jsonl").write_text(json.dumps({"id": "q0", "question": "Who built the Halm bridge?"}) + "\n")
    says({"q0": GUESS["ask"]})
    runs = ["--runs", str(tmp_path / "runs")]
    asked = ["--questions", str(tmp_path / "one.jsonl"), "--index", str(place / "index"), "--model", "scripted-one"]
    assert main(["ask", *asked, "--show", "--min-confidence", "0.5", *runs]) == 0
    shown = capsys.readouterr().out
    assert "Answer: not in these documents" in shown and "abstained (2 turns" in shown
    assert main(["runs", "list", "--json", *runs]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    assert (run["num_episodes"], run["num_answered"]) == (1, 0)


def test_a_table_counts_abstentions(place, says, capsys, tmp_path):
    rows = [{"id": f"q{n}", "question": "Who built the Halm bridge?"} for n in range(2)]
    (tmp_path / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    says({"q0": GUESS["ask"], "q1": SILENT["ask"]})
    assert ask(place, "--questions", str(tmp_path / "asked.jsonl")) == 0
    table = capsys.readouterr().out
    assert table.count("(abstained)") == 1 and "2 questions, 1 answered, 1 not in these documents" in table


def test_a_least_confidence_that_cannot_be_is_refused(place, capsys):
    assert ask(place, "Who?", "--min-confidence", "50") == 2
    assert "--min-confidence" in capsys.readouterr().err
    endpoint = "openai:gpt@http://127.0.0.1:9/v1"
    where = ["--index", str(place / "index"), "--runs", str(place / "runs"), "--model", endpoint]
    questions = place / "who.jsonl"
    questions.write_text('{"question": "Who?", "answers": ["Venn"]}')
    for asked in (["ask", "Who?"], ["eval", "--questions", str(questions)]):
        assert main([*asked, "--min-confidence", "0.5", *where]) == 2
        assert "confidence of answers cannot be measured" in capsys.readouterr().err


def test_an_evaluation_with_hidden_answers_counts_refusals_and_what_cannot_be_hidden(place, says, tmp_path, capsys):
    rows = [
        {"id": "q0", "question": "Who built the Halm bridge?", "answers": ["Orsolya Venn"]},
        {"id": "q1", "question": "Does the Oss rise in the Korrin hills?", "answers": ["yes"]},
        {"id": "q2", "question": "Who brews the beer of Skeld?", "answers": []},
    ]
    (tmp_path / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    turns = {"q0": GUESS["ask"], "q0-hidden": SILENT["ask"], "q1": ["<answer>yes</answer>"], "q2": GUESS["ask"]}
    says(turns)
    asked = ("--questions", str(tmp_path / "asked.jsonl"), "--hide-answers", "--abstention", "--json")
    assert evaluate(place, *asked, judge=()) == 0
    streams = capsys.readouterr()
    assert "1 of 3 questions are asked once: what they name, yes and no cannot be hidden" in streams.err
    found = json.loads(streams.out)
    assert (found["settings"]["abstention"], found["settings"]["hide_answers"]) == (True, True)
    assert found["score"]["exact_match"] == {"mean": 1.0, "low": pytest.approx(0.342, abs=1e-3), "high": 1.0, "num": 2}
    assert (found["score"]["abstention"]["refused"]["mean"], found["score"]["abstention"]["refused"]["num"]) == (0.5, 2)
    with Run.open(Path(found["run"])) as stored:
        hidden = stored.episode("q0-hidden")
        assert hidden.abstained and not [
            hit
            for turn in hidden.turns
            for result in turn.results
            for hit in result.hits
            if "Orsolya Venn" in hit.passage.text
        ]
        metrics = {row.id: row.metrics for row in stored.index()}
        assert (
            metrics["q0-hidden"] == {"answer/abstained": 1.0, PLACE: 1.0} and metrics["q0"]["answer/exact_match"] == 1.0
        )
        assert stored.metrics("abstention/refused")[0].value == 0.5

    # A stopped one goes on: the copy that was answered is not asked again.
    path = tmp_path / "stopped"
    with Run.create(path, "eval", found["settings"]) as run:
        run.add_episode(hidden)
    says({name: script for name, script in turns.items() if name != "q0-hidden"})
    assert evaluate(place, *asked, "--resume", str(path), judge=()) == 0
    assert json.loads(capsys.readouterr().out)["score"] == found["score"]


def test_an_evaluation_lets_a_model_abstain_only_if_it_was_taught_or_told_to(place, says, capsys):
    for more, allowed in (((), None), (("--abstention",), True), (("--no-abstention",), None)):
        says({f"q{n}": SILENT["ask"] for n in range(3)})
        assert evaluate(place, "--json", *more, judge=()) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["settings"]["abstention"] is allowed and found["settings"]["hide_answers"] is None
        assert found["score"]["answered"] == (0.0 if allowed else 1.0)
