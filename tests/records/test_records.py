"""What records compute from their fields, and what a field that a file leaves out means."""

import sys

import msgspec
import pytest

from quaere.records import (
    Answer,
    Assessment,
    Candidate,
    Dimension,
    DimensionRules,
    Episode,
    Evidence,
    Failure,
    Harness,
    Passage,
    ProcessRules,
    Question,
    Report,
    ReportTask,
    Rubric,
    Scores,
    Search,
    SearchResult,
    Segment,
    SolveTask,
    Source,
    Statement,
    Support,
    Turn,
    Weight,
    searches_needed,
)
from quaere.records.foreign_json import decode_json

QUESTION = Question("q1", "Who built the bridge?")
PASSAGE = Passage("rivers.md#0", "rivers.md", "The Oss", "The Oss rises at Korrin.", 0, 24)
SPAN = Evidence("rivers.md", 4, 7, "Oss")
CANDIDATE = Candidate("i0-g1", 1, 0, "i0-g1", "rivers.md", 3, "Where does the Oss rise?", "Korrin")


def changed(record, **fields):
    return msgspec.structs.replace(record, **fields)


# --------------------------------------------------------------------------------------------------- what is left out


@pytest.mark.parametrize(
    ("written", "type", "meant"),
    [
        ('{"type": "search", "queries": ["a"]}', Search, {"note": "", "about": 0}),
        ('{"id": "q", "text": "?"}', Question, {"answers": (), "hops": 0, "facts": 0, "searches": 0, "gold_ids": ()}),
        ('{"chance_with": 1, "chance_without": 0}', Support, {"num_samples": 0}),
        (
            '{"id": "c", "step": 1, "iteration": 0, "episode_id": "", "document_id": "", "hops": 1, "question": "",'
            ' "answer": ""}',
            Candidate,
            {"num_right": 0, "num_attempts": 0, "reason": "", "cluster": -1, "evidence": None, "support": None},
        ),
        (
            '{"index": 0, "text": "", "action": {"type": "answer", "text": ""}, "stop_reason": "length"}',
            Turn,
            {"failure": None, "num_tokens": 0, "start": 0, "acts_at": 0, "sample_s": 0.0, "search_s": 0.0},
        ),
        ('{"type": "report", "question": {"id": "q", "text": "?"}}', ReportTask, {"rubric": None, "number": 0}),
    ],
)
def test_what_a_file_leaves_out_is_unknown_or_nothing(written, type, meant):
    read = decode_json(written, type)
    assert {name: getattr(read, name) for name in meant} == meant


def test_a_harness_without_rules_of_its_own_has_those_of_score():
    harness = Harness(0, (Dimension("factuality", "True."), Dimension("coverage", "Whole.")))
    assert harness.dimensions == DimensionRules(k=4, must_include="factuality", weight_min=0.1, weight_max=0.5)
    assert harness.process == ProcessRules(
        require_search=True,
        require_verification=True,
        require_gap_analysis=True,
        citation_cross_check=True,
        min_tool_calls=1,
    )
    assert harness.find("coverage") == Dimension("coverage", "Whole.")
    assert harness.find("style") is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"id": "q"}', "missing required field `text`"),
        (b'{"id": "q", "text": 1}', "Expected `str`"),
        (b'{"id": "\xff", "text": ""}', "utf-8"),
        ("[" * 10 * sys.getrecursionlimit(), "nested too deeply"),
    ],
)
def test_json_from_outside_has_one_kind_of_fault(content, said):
    kind = Question if said != "nested too deeply" else object
    with pytest.raises(msgspec.DecodeError, match=said):
        decode_json(content, kind)


# --------------------------------------------------------------------------------------------- candidates and passages


def test_the_answers_and_the_question_of_a_candidate():
    asked = changed(CANDIDATE, aliases=("Korrin Vale",))
    assert asked.answers == ("Korrin", "Korrin Vale")
    assert changed(asked, answer="").answers == ()
    # Three hops by Dr. Zero's count are two facts; a person's count is that of the facts.
    assert asked.to_question() == Question("i0-g1", asked.question, asked.answers, hops=3, facts=2, searches=2)
    assert changed(asked, episode_id="").to_question().facts == 3


def test_the_reference_span_of_a_candidate_is_the_documents_where_it_was_found():
    assert changed(CANDIDATE, span="the oss").gold_span == "the oss"
    assert changed(CANDIDATE, span="the oss", evidence=SPAN).gold_span == "Oss"
    assert Support(chance_with=0.75, chance_without=0.25).value == 0.5


def test_who_a_candidate_comes_from_and_whether_it_was_kept():
    added = changed(CANDIDATE, episode_id="")
    given = changed(added, scores={"given": 1.0})
    assert [(one.added, one.given) for one in (CANDIDATE, added, given)] == [
        (False, False),
        (True, False),
        (False, True),
    ]
    assert CANDIDATE.kept
    assert not changed(CANDIDATE, reason="duplicate").kept


def test_hops_and_the_searches_they_take():
    assert [searches_needed(hops) for hops in range(5)] == [0, 1, 1, 2, 3]


def test_a_passage_is_shown_under_its_title_if_it_has_one():
    assert PASSAGE.titled_text == "The Oss\nThe Oss rises at Korrin."
    assert changed(PASSAGE, title="").titled_text == "The Oss rises at Korrin."


# ------------------------------------------------------------------------------------------------------------ episodes


def test_an_episode_counts_its_searches_and_knows_whether_one_failed():
    found = SearchResult("Oss", ())
    first = Turn(0, "", Search(("Oss", "Halm")), "stop_string", (found, found))
    second = Turn(1, "", Search(("Oss",)), "stop_string", (found,))
    last = Turn(2, "", Answer("Korrin"), "end_of_turn")
    segments = (Segment("prompt", (1, 2), (), (False, False)), Segment("model", (3,), (-0.5,), (True,)))
    played = Episode(
        "e", SolveTask(QUESTION), "p", "m", 0, segments, (first, second, last), Answer("Korrin"), "answered"
    )
    assert played.num_searches == 3
    assert changed(played, turns=()).num_searches == 0
    assert (played.token_ids, played.loss_mask) == ((1, 2, 3), (False, False, True))
    assert not played.search_failed
    for boundary, failed in (("search", True), ("limit", False)):
        broken = changed(second, failure=Failure(boundary, "timeout", "late"))
        assert changed(played, turns=(first, broken, last)).search_failed is failed


# ------------------------------------------------------------------------------------------------------------- reports


def report(*statements, sources=()):
    lines = tuple(Statement(text, 0, len(text), citations) for text, citations in statements)
    return Report(QUESTION, "", lines, tuple(Source(number, PASSAGE) for number in sources))


def test_citations_without_a_source_are_unresolved():
    written = report(("The Oss rises [1].", (1,)), ("It is long [2, 3].", (2, 3)), ("Very [1].", (1,)), sources=(1, 3))
    assert written.citations == (1, 2, 3, 1)
    assert written.unresolved == (2,)
    assert written.resolved_share == 0.75
    assert report(("The Oss rises.", ()), sources=(1,)).resolved_share == 0.0


def test_statements_that_repeat_an_earlier_one():
    same = ("The Oss rises [1].", (1,))
    assert report(same, ("It is long.", ()), same, same).repeated_share == 0.5
    assert report(same).repeated_share == 0.0 == report().repeated_share


@pytest.mark.parametrize(("text", "states"), [("It rises [2].", True), ("[1, 2].", False), ("[a].", True)])
def test_a_citation_alone_states_nothing(text, states):
    assert Statement(text, 0, len(text)).states is states


def test_rubrics_and_assessments_are_told_on_a_line_and_scores_found_by_number():
    assert Rubric("factuality", (Weight("coverage", 0.4),)).text == "factuality, coverage 0.4"
    first, second = Scores(1, {"factuality": 7.0, "coverage": 4.5}), Scores(2, {"factuality": 3.0})
    assessment = Assessment((first, second))
    assert assessment.text == "1: factuality 7, coverage 4.5; 2: factuality 3"
    assert [assessment.find(number) for number in (1, 2, 3)] == [first, second, None]
