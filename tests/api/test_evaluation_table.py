"""The table of `quaere eval`, on results made by hand."""

import json
from pathlib import Path

import pytest
from msgspec import structs

from quaere.api.evaluation import Evaluation
from quaere.api.evaluation_table import print_json, print_results
from quaere.evaluation.intervals import Interval
from quaere.evaluation.judges.judge_accuracy import Agreement, Validation
from quaere.evaluation.qa.scores import Judging, QuestionScore, name_apart, score_answering
from quaere.records import Evidence

SURE, UNSURE = Interval(0.9, 0.8, 1.0, 40), Interval(0.6, 0.5, 0.7, 40)


def score(name, right, **more):
    usual = {"facts": 1, "answer": "Venn", "f1": right, "end": "answered", "num_turns": 2, "num_malformed": 0}
    usual |= {"num_searches": 1, "num_tokens": 50, "search_failed": False}
    return QuestionScore(id=name, question=f"{name}?", exact_match=right, **{**usual, **more})


def evaluation(name, *scores, judging=None):
    return Evaluation(name, name, {}, score_answering(scores), tuple(scores), judging)


def judging(balanced=SURE, **more):
    trust = Validation(SURE, SURE, balanced, "a world", (Agreement("answer alone", UNSURE),), num_unread=0)
    return Judging("string", trust, **{"num_unread": 0, **more})


def printed(capsys, *evaluations):
    *others, ours = evaluations
    print_results(ours, others, None)
    said = capsys.readouterr().out
    assert all(len(line) <= 120 for line in said.splitlines())
    return " ".join(said.split())


def test_scores_and_costs(capsys):
    said = printed(capsys, evaluation("warm", score("a", 1.0, searches_needed=2), score("b", 0.0, num_turns=3)))
    assert "warm 2 50.0 [0.0, 100.0] 50.0 [0.0, 100.0] 1.00 of 2.00 needed 100.0%" in said
    assert said.endswith("2 questions; 2.50 turns and 50 tokens an episode; 0 malformed turns")
    one = evaluation("warm", score("a", 0.0, num_malformed=1), score("b", 1.0))
    assert printed(capsys, one).endswith("; 1 malformed turn")
    for unasked in ("fact", "present", "judge", "smallest difference", "failed", "unanswered", "gold"):
        assert unasked not in said


def test_searches_and_those_needed_are_of_the_same_questions(capsys):
    """A question whose answer is hidden needs none that could be counted; what is answered is of all."""
    known = [score(name, 1.0, searches_needed=2, num_searches=2) for name in "ab"]
    others = [score("c", 1.0, num_searches=0), score("d", 0.0, answerable=False, num_searches=0, searches_needed=2)]
    found = evaluation("warm", *known, *others)
    assert found.score.mean_searches == 1.0
    said = printed(capsys, found)
    assert "warm 3 100.0" in said and "2.00 of 2.00 needed 100.0% of 4" in said


def test_a_result_of_another_index_is_marked(capsys):
    def searched(name, fingerprint):
        return structs.replace(evaluation(name, score("a", 1.0)), settings={"index_fingerprint": fingerprint})

    unknown = evaluation("older", score("a", 1.0))
    said = printed(
        capsys, unknown, searched("cot", ""), searched("old", "5f"), searched("base", "c0"), searched("warm", "c0")
    )
    assert "old * 1" in said and "* old: with another index, not comparable with warm" in said
    assert said.count(" * ") == 2
    print_json(searched("warm", "c0"), [searched("old", "5f"), searched("cot", "")], None)
    assert [one["differs"] for one in json.loads(capsys.readouterr().out)["compare"]] == [["index"], []]


def test_results_of_one_name_are_called_by_their_files():
    base, warm = evaluation("base", score("a", 1.0)), evaluation("warm", score("a", 1.0))
    paths = [Path(name) for name in ("rag/dev.json", "cot/dev.json", "warm.json")]
    found = name_apart(list(zip(paths, [base, base, warm], strict=True)))
    assert [one.name for one in found] == [str(paths[0]), str(paths[1]), "warm"]
    assert [one.name for one in name_apart([(paths[2], warm)], "warm")] == [str(paths[2])]
    assert [one.name for one in name_apart([(paths[2], warm)], "base")] == ["warm"]


def test_a_file_has_lines_of_120_columns(capsys):
    """Not of 80, as where nobody knows how wide they may be: tables would be wrapped."""
    scores = [score(f"q{facts}", 1.0, facts=facts) for facts in range(1, 5)]
    print_results(evaluation("warm" * 10, *scores), [], None)
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("warm" * 10))
    assert len(row) > 100 and row.split()[-2:] == ["1.00", "100.0%"]


def test_by_facts_where_they_differ(capsys):
    scores = [score("a", 1.0), score("b", 0.0, facts=2), score("c", 0.0, facts=0)]
    said = printed(capsys, evaluation("base", score("a", 0.0)), evaluation("warm", *scores))
    assert "EM % by group questions base warm facts unknown 1 0.0 [0.0, 79.3] 1 fact 1 100.0 [20.7, 100.0]" in said
    assert "2 facts 1 0.0 [0.0, 79.3]" in said
    assert "by group" not in printed(capsys, evaluation("warm", score("a", 1.0), score("b", 1.0)))


def test_by_kind_and_by_searches_needed(capsys):
    kinds = ["yes/no", "choice", "name", "name"]
    scores = [score(f"q{n}", n % 2, kind=kind, searches_needed=1 + n // 3) for n, kind in enumerate(kinds)]
    said = printed(capsys, evaluation("warm", *scores))
    assert "yes/no 1 0.0 [0.0, 79.3] choice 1 100.0 [20.7, 100.0] name 2 50.0 [0.0, 100.0]" in said
    assert "1 search 3 33.3 [0.0, 100.0] 2 searches 1 100.0" in said
    # Searches that are as many as the facts would say the same twice.
    same = [score(f"q{n}", 1.0, facts=n, searches_needed=n) for n in (1, 2)]
    assert "2 facts" in (said := printed(capsys, evaluation("warm", *same))) and "2 searches" not in said


def test_results_of_other_questions_say_their_number_and_many_have_no_intervals(capsys):
    ours = evaluation("warm", *(score(f"q{n}", 1.0, kind=kind) for n, kind in enumerate(["name", "name", "number"])))
    base = evaluation("base", score("q0", 0.0, kind="name"), score("q1", 0.0, kind="number"))
    assert "name 2 0.0 [0.0, 79.3] of 1 100.0 [34.2, 100.0]" in printed(capsys, base, ours)
    assert "name 2 0.0 of 1 0.0 of 1 0.0 of 1 0.0 of 1 100.0" in printed(capsys, base, base, base, base, ours)


def test_a_gain_is_shown_without_closed_questions_and_a_constant_is_named(capsys):
    """Ten yes/no questions, to which the base says "no" and ours "yes"; of two others one is gained."""

    def closed(n, taken):
        more = {"kind": "yes/no", "right_option": "yes" if n < 8 else "no", "option": taken, "answer": taken}
        return score(f"q{n}", float(more["right_option"] == taken), **more)

    names = {"a": (0.0, 1.0), "b": (1.0, 1.0)}
    base, ours = (
        evaluation(
            said,
            *(closed(n, taken) for n in range(10)),
            *(score(name, rights[place], kind="name") for name, rights in names.items()),
        )
        for place, (said, taken) in enumerate((("base", "no"), ("warm", "yes")))
    )
    said = printed(capsys, base, ours)
    assert "EM +58.3 [" in said and "EM without yes/no and choices +50.0 [" in said
    assert 'base says "no" to 10 of 10 yes/no questions; "no" is right for 2' in said
    assert 'warm says "yes" to 10 of 10 yes/no questions; "yes" is right for 8' in said


def test_paired_differences_and_results_that_share_no_question(capsys):
    ours = evaluation("warm", score("a", 1.0), score("b", 1.0))
    base, odd = evaluation("base", score("a", 0.0), score("b", 0.0)), evaluation("odd", score("c", 0.0))
    said = printed(capsys, base, odd, ours)
    assert "warm - base, over 2 shared questions: EM +100.0 [-68.4, +100.0] (" in said
    assert "warm and odd share no answerable question" in said
    assert said.count("the smallest difference that could be shown") == 1
    assert "smallest difference" not in printed(capsys, odd, ours)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"search_failed": True}, "search failed in 1 episode; each counts as wrong"),
        ({"end": "failed"}, "the model failed in 1 episode"),
        ({"end": "turn_limit"}, "50.0% of the questions were left unanswered"),
        ({"num_malformed": 3}, "3 malformed turns"),
    ],
)
def test_what_went_wrong_is_said(capsys, more, said):
    assert said in printed(capsys, evaluation("warm", score("a", 0.0, **more), score("b", 1.0)))


def cited(name, supported=None, gold=None):
    quoted = {"span": "Venn built it.", "evidence": Evidence("d", 0, 14, "Venn built it.")}
    return score(name, 1.0, supported=supported, gold=gold, **quoted)


def test_evidence_comes_after_the_accuracy_of_its_judge(capsys):
    said = printed(capsys, evaluation("warm", cited("a", True), cited("b", False), judging=judging()))
    assert "judge accuracy of 'string': 40 questions (a world)" in said
    assert "answer alone 60.0 [50.0, 70.0] 40" in said
    assert said.index("answer alone") < said.index("present %")
    assert "50.0 [0.0, 100.0] string" in said  # joint, and who judged
    assert "better than chance: do not rely" not in said and "could not be read" not in said
    assert "warm 100.0 [34.2, 100.0] 100.0 [34.2, 100.0] no judge" in printed(
        capsys, evaluation("warm", cited("a"), cited("b"))
    )


def test_a_judge_that_is_no_better_than_chance_is_called_so(capsys):
    told = judging(balanced=UNSURE, num_unread=2)
    said = printed(capsys, evaluation("warm", cited("a", True), judging=told))
    assert "do not rely on `supported`" in said
    assert "2 verdicts could not be read here; each counts as not supported" in said


def test_gold_where_it_is_known(capsys):
    said = printed(capsys, evaluation("base", cited("a")), evaluation("warm", cited("a", gold=True), cited("b")))
    assert "warm 1 100.0 [20.7, 100.0] 100.0 [20.7, 100.0]" in said
    assert "gold: the span is verbatim of a gold passage" in said


# -------------------------------------------------------------------------------------------------------------- layout


def test_a_table_has_a_line_for_each_result_and_two_spaces_between_columns(capsys):
    print_results(evaluation("warm", score("a", 1.0)), [], None)
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()[:2]] == [
        "result  questions  EM %                 F1 %                 searches  answered",
        "warm    1          100.0 [20.7, 100.0]  100.0 [20.7, 100.0]  1.00      100.0%",
    ]


def test_a_long_name_is_wrapped_at_120_columns_and_numbers_are_not(capsys):
    scores = [score(f"q{facts}", 1.0, facts=facts) for facts in range(1, 5)]
    print_results(evaluation("a model with a very long name, " * 8, *scores), [], None)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) == 120
    assert sum(line.count("100.0 [20.7, 100.0]") for line in lines) == 4


def test_on_a_terminal_warnings_are_yellow_and_remarks_dim(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    scores = [cited("a", True), score("b", 0.0, span="", end="failed")]
    scores.append(score("c", 0.0, span="", end="turn_limit", search_failed=True))
    told = judging(balanced=UNSURE, num_unread=1)
    print_results(evaluation("warm", *scores, judging=told), [evaluation("base", score("a", 0.0))], None)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "\x1b[33m" in line] == [
        f"\x1b[33m{words}\x1b[0m"
        for words in (
            "this judge has not been shown to be better than chance: do not rely on `supported`",
            "1 verdict could not be read here; each counts as not supported",
            "search failed in 1 episode; each counts as wrong",
            "the model failed in 1 episode; each counts as wrong",
            "33.3% of the questions were left unanswered at a limit of turns or tokens",
        )
    ]
    assert [line[4:19] for line in lines if line.startswith("\x1b[2m")] == ["in brackets the", "3 questions; 2."]


def test_abstention_of_one_result_by_kind_and_of_several_without(capsys):
    abstained = {"answer": "not in these documents", "abstained": True}
    found = [
        score("a", 1.0, confidence=0.9, kind="name"),
        score("b", 0.0, **abstained, kind="number"),
        score("c", 0.0, **abstained, kind="number", answerable=False),
    ]
    said = printed(capsys, evaluation("warm", *found))
    assert "abstention unanswerable refused % answerable refused % wrong of answered % wrong at 80 %" in said
    assert "warm 100.0 [20.7, 100.0] 50.0 [0.0, 100.0] 0.0 [0.0, 79.3] 33.3" in said
    assert " number 100.0 [20.7, 100.0] 100.0 [20.7, 100.0] 50.0" in said
    curve = "10, 20, ... 100 % of all questions are answered: warm: 0, 0, 0, 25, 25, 25, 33, 33, 33, 33"
    assert curve in said and "3 questions, 1 of them without an answer" in said
    other = evaluation("base", score("a", 1.0), score("b", 1.0), score("c", 0.0, answerable=False))
    said = printed(capsys, other, evaluation("warm", *found))
    assert " number " not in said.split("EM % by group")[0]
    # Each says of how many, where it is not of those before.
    assert "over 2 shared questions: EM -50.0 [-100.0, +100.0] (" in said
    assert "unanswerable refused +100.0 [-100.0, +100.0] of 1, right answers lost" in said
    assert "right answers lost to abstention 50.0 [0.0, 100.0]" in said


def test_a_result_of_unanswerable_questions_has_no_exact_match(capsys):
    said = printed(capsys, evaluation("warm", score("a", 0.0, answerable=False, abstained=True)))
    assert "warm 0 1.00 0.0% of 1" in said and "warm 100.0 [20.7, 100.0] 0.0" in said
