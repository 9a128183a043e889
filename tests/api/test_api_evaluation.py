"""`quaere.evaluate` and `quaere.report` with an agent."""

import pytest
from msgspec import structs

import quaere
from backups import SENTENCE, TURNS, call

ASKED = quaere.Question("q1", "When?", answers=("May 2019",))


@pytest.fixture
def index(notes):
    return quaere.Index.build("notes/", "notes-index")


def test_an_agent_is_scored_on_a_file_of_questions(index, says, capsys):
    says(TURNS)
    with quaere.Agent("a-model", index) as agent:
        result = quaere.evaluate(agent, "questions.jsonl", progress=False)
        part = quaere.evaluate(agent, "questions.jsonl", limit=1, name="first", progress=False)
    assert result.score.exact_match.mean == 0.5 and result.score.evidence is None
    assert [score.exact_match for score in result.questions] == [1.0, 0.0]
    assert (result.name, result.model, part.name, part.score.exact_match.mean) == ("a-model", "a-model", "first", 1.0)
    assert (result.settings["questions"], result.settings["evidence"]) == ("questions.jsonl", False)
    assert capsys.readouterr() == ("", "")
    result.table(part)
    said = capsys.readouterr().out
    assert "EM %" in said and "first" in said and "a-model - first, over 1 shared questions: EM +0.0" in said
    assert result.compare(part).exact_match.mean == 0.0


def test_a_result_is_written_and_read_again(index, says, tmp_path):
    says(TURNS)
    with quaere.Agent("a-model", index) as agent:
        result = quaere.evaluate(agent, [quaere.Question("q1", "When?", answers=("May 2019",))], progress=False)
    assert result.settings["questions"] is None  # they are of no file
    result.write(tmp_path / "result.json")
    again = quaere.Evaluation.read(tmp_path / "result.json")
    assert again == result and isinstance(again, quaere.Evaluation)


def test_an_evaluation_with_a_run_goes_on_in_it(index, says, tmp_path):
    says(TURNS)
    with quaere.Agent("a-model", index) as agent:
        whole = quaere.evaluate(agent, "questions.jsonl", run=tmp_path / "run", progress=False)
        parts = []
        again = quaere.evaluate(
            agent, "questions.jsonl", run=tmp_path / "run", on_progress=lambda *part: parts.append(part)
        )
    assert again == whole and parts == []  # nothing was asked again
    with quaere.Run.open(tmp_path / "run") as run:
        assert sorted(row.id for row in run.index()) == sorted(score.id for score in whole.questions)
    for changed, said in (({"deterministic": True}, "batched differently"), ({"max_turns": 2}, "other settings")):
        with quaere.Agent("a-model", index, **changed) as agent, pytest.raises(quaere.BadInput, match=said):
            quaere.evaluate(agent, "questions.jsonl", run=tmp_path / "run")


def test_evidence_is_judged_by_a_judge_whose_accuracy_is_measured_first(index, says):
    says(TURNS)
    with quaere.Agent("a-model", index, evidence=True) as agent:
        result = quaere.evaluate(agent, "questions.jsonl", judge="string", judge_items=4, progress=False)
    evidence = result.score.evidence
    assert (evidence.present.mean, evidence.verbatim.mean, evidence.joint.mean) == (1.0, 1.0, 0.5)
    assert result.judging.validation.balanced.num == 4


@pytest.mark.parametrize(
    ("questions", "options", "said"),
    [
        ("nowhere.jsonl", {}, "nowhere.jsonl"),
        ([], {}, "there is no question to evaluate: the list is empty"),
        ([quaere.Question("q1", "Who?"), quaere.Question("q1", "When?")], {}, "two questions have the id q1"),
        (["When?"], {}, "a JSONL file or a list of Question"),
        ([ASKED, structs.replace(ASKED, id="q1-hidden")], {"hide_answers": True}, "there is a question q1-hidden"),
        ("questions.jsonl", {"judge": "string"}, "nothing to judge without evidence"),
    ],
)
def test_what_cannot_be_scored_is_refused(index, says, questions, options, said):
    says(TURNS)
    with quaere.Agent("a-model", index) as agent, pytest.raises(quaere.BadInput, match=said):
        quaere.evaluate(agent, questions, **options)


def test_questions_are_asked_again_with_their_answers_hidden(index, says, capsys):
    says([call("backups"), "<answer>not in these documents</answer>"])
    with quaere.Agent("a-model", index) as agent:
        result = quaere.evaluate(agent, [ASKED, quaere.Question("q2", "Who?")], hide_answers=True, progress=False)
    assert [score.id for score in result.questions] == ["q1", "q1-hidden", "q2"]
    assert (result.settings["abstention"], result.settings["hide_answers"]) == (True, True)
    assert (result.score.abstention.refused.mean, result.score.abstention.refused_answerable.mean) == (1.0, 1.0)
    result.table()
    assert "3 questions, 2 of them without an answer" in capsys.readouterr().out


def test_the_answer_of_most_attempts_is_scored_and_one_of_too_few_is_an_abstention(index, says, tmp_path):
    """q1: the right answer in two of four attempts; q2: in one of four, after a wrong one, so it is not even chosen."""
    right, wrong, silent = TURNS, ["<answer>Oss</answer>"], ["<answer>not in these documents</answer>"]
    attempts = {"q1": [silent, right, wrong, right], "q2": [wrong, right, silent, silent]}
    scripts = {f"{name}-a{n}": turns for name, tried in attempts.items() for n, turns in enumerate(tried)}
    asked = [ASKED, structs.replace(ASKED, id="q2")]
    for least, scores in (
        (None, [(1.0, False, 0.5), (0.0, False, 0.25)]),
        (0.4, [(1.0, False, 0.5), (0.0, True, 0.25)]),
    ):
        says(None, scripts)
        with quaere.Agent("a-model", index, attempts=4, min_confidence=least) as agent:
            result = quaere.evaluate(agent, asked, run=tmp_path / f"run-{least}", progress=False)
            again = quaere.evaluate(agent, asked, run=tmp_path / f"run-{least}", progress=False)
        assert [(one.exact_match, one.abstained, one.confidence) for one in result.questions] == scores
        assert again == result and result.questions[1].answer == "Oss"
    with quaere.Agent("a-model", index) as agent, pytest.raises(quaere.BadInput, match="attempts was 4 and is not set"):
        quaere.evaluate(agent, asked, run=tmp_path / "run-None")


def test_nothing_can_be_hidden_from_a_closed_book(says):
    says(TURNS)
    with quaere.Agent("a-model", closed_book=True) as agent, pytest.raises(quaere.BadInput, match="is shown none"):
        quaere.evaluate(agent, [ASKED], hide_answers=True)


# ------------------------------------------------------------------------------------------------------------ reports

SEARCH = "<search>backups</search>"
WRITTEN = f"<answer>{SENTENCE} [1] They run at night [2].</answer>"


def test_a_report_is_written_with_its_sources(index, says, tmp_path):
    says([SEARCH, WRITTEN])
    seen = []
    with quaere.Agent("a-model", index) as agent:
        written = quaere.report(
            agent, "What of the backups?", out=tmp_path / "report.html", topk=1, on_turn=seen.append, strict=False
        )
        assert quaere.report(agent, "What of the backups?").files == ()
    assert SENTENCE in written.text == str(written) and written.files == (tmp_path / "report.html",)
    assert SENTENCE in written.files[0].read_text()
    assert [source.passage.doc_id for source in written.report.sources] == ["ops.md"]
    assert written.report.unresolved == (2,) and written.episode.turns == tuple(seen)


def test_an_episode_without_a_report_leaves_no_file(index, says, tmp_path):
    says([SEARCH] * 2)
    with quaere.Agent("a-model", index) as agent:
        written = quaere.report(agent, "What?", out=tmp_path / "report.md", max_turns=2)
    assert written.report is None and written.text == "" and written.files == ()
    assert not (tmp_path / "report.md").exists()


def test_a_report_can_rest_on_any_search_function(says, tmp_path):
    says([SEARCH, WRITTEN])
    with quaere.Agent("a-model", search=lambda query: [SENTENCE]) as agent:
        written = quaere.report(agent, "What of the backups?", out=tmp_path / "out")
    assert [path.suffix for path in written.files] == [".md", ".html"]


def test_an_index_alone_gives_a_composed_report(index, tmp_path):
    written = quaere.report(index, "What of the backups?", out=tmp_path / "out", to=("docx",), outline=("Backups",))
    assert SENTENCE.rstrip(".") in written.text and [path.name for path in written.files] == ["report.docx"]
    assert not written.report.unresolved and written.episode.model == "composer"
    assert quaere.report(index.path, "What of Xyzzy?").report is None
    with pytest.raises(quaere.BadInput, match="a model must write the report"):
        quaere.report(index, "What of the backups?", compose=False)


def test_what_cannot_be_written_is_refused(index, says):
    says([call("x")])
    with quaere.Agent("a-model", index) as agent:
        with pytest.raises(quaere.BadInput, match=r"must end in \.md, \.html"):
            quaere.report(agent, "What?", out="report.odt")
        with pytest.raises(quaere.BadInput, match=r"did you mean topk\?"):
            quaere.report(agent, "What?", topkk=2)
    with quaere.Agent("a-model", closed_book=True) as agent, pytest.raises(quaere.BadInput, match="search"):
        quaere.report(agent, "What?")
