import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from judging import HARNESS, QUESTION, RUBRIC, RUBRIC_TEXT, spoil
from quaere.chat.protocol import Acted, Quoted
from quaere.dialects.report.rubric import MAX_RUBRIC_CHARS, RubricChooser, default_rubric, read_rubric
from quaere.records import (
    DimensionRules,
    Hints,
    Malformed,
    Rubric,
    RubricTask,
    SolveTask,
    Weight,
)
from tiny import passage

PRIMARY = "factuality must stand without a weight, and no other dimension may"
WEIGHT = "a weight must be a number from 0.1 to 0.5"
UNKNOWN = "a line names no dimension of the list"
COUNT = "the rubric must have exactly 3 dimensions"


@pytest.mark.parametrize(
    "text",
    [
        RUBRIC_TEXT,
        "<rubric>factuality\ncoverage: 0.4\ninsight: 0.2</rubric>",
        "<rubric>\n\n- factuality \n- coverage : .4\n\n* insight:0.20</rubric> and more",
        "<rubric>coverage: 0.4\nfactuality\ninsight: 0.2</rubric>",
        "<think><rubric>depth</rubric></think><rubric>factuality\ncoverage: 0.4\ninsight: 0.2</rubric>",
        "<rubric>factuality\ncoverage: 0.4\ninsight: 0.2</rubric><rubric>depth</rubric>",
    ],
)
def test_rubrics_that_are_read(text):
    assert read_rubric(text, HARNESS) == RUBRIC
    assert RubricChooser(HARNESS).read(text) == RUBRIC


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "there is no rubric"),
        ("factuality\ncoverage: 0.4\ninsight: 0.2", "there is no rubric"),
        ("<think><rubric>factuality</rubric></think>", "there is no rubric"),
        ("<rubric>factuality\ncoverage: 0.4\ninsight: 0.2", "the rubric block is not closed"),
        ("<rubric></rubric>", COUNT),
        ("<rubric>factuality\ncoverage: 0.4</rubric>", COUNT),
        ("<rubric>factuality\ncoverage: 0.4\ninsight: 0.2\ndepth: 0.2</rubric>", COUNT),
        ("<rubric>factuality\ncoverage: 0.4\ncoverage: 0.2</rubric>", "a dimension stands in the rubric twice"),
        ("<rubric>factuality\nfactuality: 0.4\ninsight: 0.2</rubric>", "a dimension stands in the rubric twice"),
        ("<rubric>factuality: 0.4\ncoverage: 0.4\ninsight: 0.2</rubric>", PRIMARY),
        ("<rubric>coverage\nfactuality: 0.4\ninsight: 0.2</rubric>", PRIMARY),
        ("<rubric>factuality\ncoverage\ninsight: 0.2</rubric>", PRIMARY),
        ("<rubric>coverage: 0.3\ndepth: 0.4\ninsight: 0.2</rubric>", PRIMARY),
        ("<rubric>factuality\nbeauty: 0.4\ninsight: 0.2</rubric>", UNKNOWN),
        ("<rubric>factuality\n: 0.4\ninsight: 0.2</rubric>", UNKNOWN),
        ("<rubric>I choose factuality\ncoverage: 0.4\ninsight: 0.2</rubric>", UNKNOWN),
        *(
            (f"<rubric>factuality\ncoverage: {weight}\ninsight: 0.2</rubric>", WEIGHT)
            for weight in ("0.51", "0.09", "7", "-0.4", "nan", "inf", "", ".", "0,4", "1e-1", "0.4.1", "0.4: 0.4", "٣")
        ),
        ("<rubric>factuality\n" + " " * MAX_RUBRIC_CHARS + "</rubric>", "the rubric is too long"),
    ],
)
def test_rubrics_that_break_a_rule(text, reason):
    assert read_rubric(text, HARNESS) == Malformed(reason)


def test_weights_at_the_bounds_are_within():
    text = "<rubric>factuality\ncoverage: 0.1\ninsight: 0.5</rubric>"
    assert read_rubric(text, HARNESS).weights == (Weight("coverage", 0.1), Weight("insight", 0.5))


def keeps_the_rules(rubric, harness):
    rules, names = harness.dimensions, rubric.dimensions
    pool = {item.name for item in harness.pool}
    return (
        rubric.primary == rules.primary
        and set(rules.required) <= set(names)
        and len(names) == len(set(names)) == rules.k
        and set(names) <= pool
        and all(rules.weight_min <= item.weight <= rules.weight_max for item in rubric.weights)
    )


def test_the_default_is_valid_and_always_the_same():
    assert default_rubric(HARNESS) == Rubric("factuality", (Weight("citation", 0.3), Weight("coverage", 0.3)))
    other = structs.replace(HARNESS, dimensions=DimensionRules(2, "citation", 0.2, 0.2))
    assert default_rubric(other) == Rubric("citation", (Weight("factuality", 0.2),))
    for k in range(2, 11):
        assert keeps_the_rules(default_rubric(_with_k(k)), _with_k(k))


def test_all_that_is_required_is_in_a_rubric_and_only_the_first_without_a_weight():
    harness = structs.replace(HARNESS, dimensions=DimensionRules(3, ("factuality", "insight")))
    kept, lacking = (f"<rubric>factuality\ncoverage: 0.4\n{name}: 0.2</rubric>" for name in ("insight", "depth"))
    assert read_rubric(kept, harness) == Rubric("factuality", (Weight("coverage", 0.4), Weight("insight", 0.2)))
    assert read_rubric(lacking, harness) == Malformed("the rubric must have insight")
    assert default_rubric(harness) == Rubric("factuality", (Weight("insight", 0.3), Weight("citation", 0.3)))
    system, _ = RubricChooser(harness).opening(RubricTask("r", ("Why?",), harness))
    assert "factuality and insight among them" in system.text
    brief, _ = RubricChooser(harness, style="brief").opening(RubricTask("r", ("Why?",), harness))
    assert brief.text.startswith("Choose a rubric: factuality, insight and 1 more, each with a weight")


def _with_k(k):
    return structs.replace(HARNESS, dimensions=DimensionRules(k=k))


def test_spoiled_rubrics_break_no_rule():
    chance = random.Random(1)
    num_read = 0
    for _ in range(2500):
        read = read_rubric(spoil(RUBRIC_TEXT, chance), HARNESS)
        if isinstance(read, Rubric):
            num_read += 1
            assert keeps_the_rules(read, HARNESS)
        else:
            assert isinstance(read, Malformed) and read.reason
    assert 0 < num_read < 2500


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["factuality", "coverage", "insight", "depth", "x", ""]),
            st.one_of(st.none(), st.floats().map(str), st.text(max_size=5)),
        ),
        max_size=5,
    ),
    st.text(max_size=20),
)
def test_any_lines_are_a_rubric_within_the_rules_or_none(lines, around):
    text = "\n".join(name if weight is None else f"{name}: {weight}" for name, weight in lines)
    read = read_rubric(f"{around}<rubric>{text}</rubric>{around}", HARNESS)
    assert isinstance(read, Malformed) or keeps_the_rules(read, HARNESS)


def rubric_task(**changes):
    given = {"questions": (QUESTION.text,), "harness": HARNESS, **changes}
    return RubricTask("r0", **given)


def test_the_opening_says_what_is_allowed_and_quotes_what_comes_from_outside():
    harness = structs.replace(HARNESS, notes="Look deeper </rubric>")
    hints = Hints(required=("coverage",), avoided=("balance",), explore=("depth",))
    task = rubric_task(harness=harness, hints=hints, passages=(passage("<rubric>\nbalance\n</rubric>"),))
    system, user = RubricChooser(harness).opening(task)
    assert "exactly 3" in system.text and "from 0.1 to 0.5" in system.text and "factuality" in system.text
    for words in (
        "Take, if it fits: coverage",
        "Leave out, if you can: balance",
        "Try: depth",
        "- uncertainty: It says",
    ):
        assert words in user.text
    assert "\nA document, 1:\nHalm\n" in user.text
    quoted = {part.text for part in user.parts if isinstance(part, Quoted)}
    assert {"Look deeper </rubric>", QUESTION.text, "Halm\n<rubric>\nbalance\n</rubric>"} <= quoted
    assert not any("<" in part for part in user.parts if isinstance(part, str))


def test_a_brief_opening_names_the_same_rules():
    system, user = RubricChooser(HARNESS, style="brief").opening(rubric_task())
    assert system.text == (
        "Choose a rubric: factuality and 2 more, each with a weight from 0.1 to 0.5. Think, then write the rubric."
    )
    assert user.text.startswith("Dimensions:\nfactuality, citation, ") and QUESTION.text in user.text
    assert len(user.text) < 250


def test_a_chooser_takes_its_own_tasks_only():
    chooser = RubricChooser(HARNESS)
    with pytest.raises(TypeError):
        chooser.opening(SolveTask(QUESTION))
    with pytest.raises(ValueError, match="differs from the harness"):
        chooser.opening(rubric_task(harness=_with_k(2)))


def test_a_reply_says_what_was_wrong():
    said = RubricChooser(HARNESS).reply(Acted(Malformed(COUNT))).text
    assert COUNT in said and "<rubric>" in said
