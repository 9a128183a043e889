"""The prompts of report writer and evaluator say what the rules say, and quote what comes from outside."""

import pytest

from quaere.chat.protocol import Quoted
from quaere.dialects.report.assessment import Assessor
from quaere.dialects.report.evaluator_prompts import assessment_form, assessment_system, pool_parts, rubric_system
from quaere.dialects.report.report_writer import (
    BRIEF_SYSTEM,
    FULL_SYSTEM,
    GUIDED_SYSTEM,
    describe_rubric,
    report_system,
    worked_reports,
)
from quaere.records import (
    AssessTask,
    Dimension,
    DimensionRules,
    Harness,
    Hints,
    ProcessRules,
    Question,
    Report,
    Rubric,
    Weight,
)

POOL = (Dimension("factuality", "It is true."), Dimension("coverage", "It is whole."), Dimension("style", ""))
RUBRIC = Rubric("factuality", (Weight("coverage", 0.4), Weight("style", 0.25)))
NO_RULES = ProcessRules(
    require_search=False,
    require_verification=False,
    require_gap_analysis=False,
    citation_cross_check=False,
    min_tool_calls=0,
)


def words(parts):
    return "".join(part if isinstance(part, str) else part.text for part in parts)


def test_each_style_has_its_system_prompt():
    assert report_system("full", guided=False) == FULL_SYSTEM
    assert report_system("brief", guided=False) == BRIEF_SYSTEM
    assert report_system("full", guided=True) == report_system("brief", guided=True) == GUIDED_SYSTEM


def test_a_rubric_is_described_with_its_weights_and_in_full_with_its_meanings():
    assert words(describe_rubric(RUBRIC, POOL, "brief")) == "\n\nJudged by factuality, coverage 0.4, style 0.25."
    assert words(describe_rubric(RUBRIC, POOL, "full")) == (
        "\n\nThe report will be judged by:\n- factuality (above all): It is true."
        "\n- coverage (weight 0.4): It is whole.\n- style (weight 0.25)"
    )
    for style in ("brief", "full"):
        quoted = {part.text for part in describe_rubric(RUBRIC, POOL, style) if isinstance(part, Quoted)}
        assert quoted >= {"factuality", "coverage", "style"}


def test_the_rules_of_a_rubric_are_said():
    rules = DimensionRules(k=3, must_include="coverage", weight_min=0.125, weight_max=0.5)
    assert rubric_system("brief", rules) == (
        "Choose a rubric: coverage and 2 more, each with a weight from 0.125 to 0.5. Think, then write the rubric."
    )
    full = rubric_system("full", rules)
    assert "Take exactly 3 different dimensions" in full and "coverage among them" in full
    assert "first coverage, then lines" in full and "a weight from 0.125 to 0.5" in full


def test_the_pool_is_shown_with_the_advice_there_is():
    harness = Harness(0, POOL, DimensionRules(k=2))
    hints = Hints(required=("coverage",), explore=("style", "factuality"))
    assert words(pool_parts(harness, hints, "brief")) == (
        "Dimensions:\nfactuality, coverage, style\nTake, if it fits: coverage\nTry: style, factuality\n"
    )
    assert words(pool_parts(harness, Hints(avoided=("style",)), "full")) == (
        "Dimensions:\n- factuality: It is true.\n- coverage: It is whole.\n- style: \nLeave out, if you can: style\n"
    )


@pytest.mark.parametrize(
    ("rule", "style", "said"),
    [
        ("require_search", "full", "Search before you assess"),
        ("require_verification", "full", "write under <verification>"),
        ("require_gap_analysis", "full", "write under <gaps>"),
        ("citation_cross_check", "full", "look whether that source says so"),
        ("require_search", "brief", "Search first."),
        ("require_verification", "brief", "Say what held."),
        ("require_gap_analysis", "brief", "Name gaps."),
        ("citation_cross_check", "brief", "Check what is cited."),
    ],
)
def test_only_rules_that_hold_are_said(rule, style, said):
    for process in (ProcessRules(), NO_RULES):
        text = assessment_system(style, RUBRIC, 2, scale=5, separate_validity=False, process=process)
        assert (said in text) == getattr(process, rule)


@pytest.mark.parametrize("style", ["brief", "full"])
def test_notes_of_the_harness_and_what_counts_as_verified_are_said_in_every_style(style):
    harness = Harness(0, POOL, notes="Look deeper.")
    task = AssessTask("a", Question("q", "Why?"), RUBRIC, harness, (Report(Question("q", "Why?"), "So."),))
    shared, each = (Assessor(RUBRIC, 1, style=style, verification=how) for how in ("shared", "each"))
    assert "Look deeper." in shared.opening(task)[1].text
    said = {"brief": "for each, by its number.", "full": "only those with its number count."}[style]
    assert said in each.opening(task)[0].text and said not in shared.opening(task)[0].text


def test_how_often_to_search_is_said_if_at_all():
    def prompt(style, calls):
        rules = ProcessRules(min_tool_calls=calls)
        return assessment_system(style, RUBRIC, 2, scale=5, separate_validity=False, process=rules)

    assert "at least" not in prompt("full", 0) and "at least" not in prompt("brief", 0)
    assert "at least 1 search for each" in prompt("full", 1) and "at least 2 searches for each" in prompt("full", 2)
    assert "at least 1 time for each" in prompt("brief", 1) and "at least 2 times for each" in prompt("brief", 2)


def test_what_is_scored_and_on_which_scale():
    def prompt(style, num_reports, separate_validity):
        rules = ProcessRules()
        return assessment_system(
            style, RUBRIC, num_reports, scale=7.5, separate_validity=separate_validity, process=rules
        )

    assert "from 0 to 7.5 on factuality, coverage, style. " in prompt("brief", 1, False)
    assert "on factuality, coverage, style, validity. " in prompt("brief", 1, True)
    assert "every report, 1, in" in prompt("full", 1, False) and "every report, 1 to 3, in" in prompt("full", 3, False)
    for separate in (True, False):
        form = assessment_form(RUBRIC, separate_validity=separate)
        assert form in prompt("full", 3, separate)
        assert form.count('<score dimension="') == 3
        assert ("<validity>S</validity>" in form) == ("Validity says" in form) == separate


def test_worked_reports_cite_the_passages_they_were_shown():
    messages = worked_reports()
    assert [message.role for message in messages] == ["user", "assistant"] * 4
    for shown, report in zip(messages[2::4], messages[3::4], strict=True):
        for number in (1, 2, 3):
            title = words(shown.parts).partition(f"[{number}]\n")[2].partition("\n")[0]
            assert f"[{number}] {title}: " in words(report.parts)
