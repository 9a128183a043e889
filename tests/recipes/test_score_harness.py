import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from judging import spoil
from quaere.chat.dimensions import POOL
from quaere.dialects.report.rubric import default_rubric
from quaere.errors import BadInput
from quaere.recipes.score.harness import (
    HarnessLimits,
    default_harness,
    describe_change,
    encode_harness,
    find_fault,
    parse_harness,
)
from quaere.records import Dimension, DimensionRules, Harness, ProcessRules

LIMITS = HarnessLimits()
PREVIOUS = structs.replace(default_harness(), version=4)


def form(dimensions=(), process=(), **changes):
    """The JSON of a harness, with changes."""
    whole = json.loads(encode_harness(PREVIOUS))
    whole["dimension_constraints"] |= dict(dimensions)
    whole["process_constraints"] |= dict(process)
    return json.dumps(whole | changes)


def parse(text, limits=LIMITS):
    return parse_harness(text, PREVIOUS, limits)


def test_the_form():
    assert json.loads(encode_harness(default_harness())) == {
        "dimension_constraints": {"k": 4, "must_include": "factuality", "weight_min": 0.1, "weight_max": 0.5},
        "process_constraints": {
            "require_search": True,
            "require_gap_analysis": True,
            "require_verification": True,
            "citation_cross_check": True,
            "min_number_of_tool_call": 1,
        },
        "pool": {"drop": [], "add": []},
        "notes": "",
    }


def test_a_changed_harness_is_the_next_version_and_the_same_is_the_same():
    assert parse(form()) is PREVIOUS
    changed = parse(form({"k": 5, "weight_min": 0}, {"min_number_of_tool_call": 2}, notes=" Look deeper. "))
    assert changed == Harness(
        5,
        POOL,
        DimensionRules(5, "factuality", 0.0, 0.5),
        ProcessRules(min_tool_calls=2),
        "Look deeper.",
    )


def test_what_may_be_left_out():
    whole = json.loads(form({"k": 3}))
    del whole["pool"], whole["notes"], whole["process_constraints"]["require_search"]
    assert parse(json.dumps(whole)).dimensions.k == 3
    searching = structs.replace(PREVIOUS, process=ProcessRules(require_search=False))
    assert parse_harness(json.dumps(whole), searching, LIMITS).process.require_search is False
    assert parse(form(process={"require_search": False})).process.require_search is False


def test_what_every_rubric_must_have_may_be_a_list():
    two = parse(form({"must_include": ["factuality", "depth"]}))
    assert two.dimensions.required == ("factuality", "depth") and two.dimensions.primary == "factuality"
    assert parse_harness(encode_harness(two), two, LIMITS) is two
    assert parse(form({"must_include": ["factuality"]})) is PREVIOUS  # as good as the name alone
    assert describe_change(PREVIOUS, two) == "must_include factuality → factuality and depth"


def test_the_pool_changes():
    new = {"name": "chronology", "text": "In order."}
    changed = parse(form(pool={"drop": ["balance", "depth"], "add": [new]}))
    kept = tuple(item for item in POOL if item.name not in ("balance", "depth"))
    assert changed.pool == (*kept, Dimension("chronology", "In order."))
    # Dropped and added: another meaning.
    again = parse(form(pool={"drop": ["depth"], "add": [{"name": "depth", "text": "Deep."}]}))
    assert again.find("depth").text == "Deep." and len(again.pool) == len(POOL)


WEIGHTS = "weight_min and weight_max must lie in this order between 0 and 1"
ADD = {"name": "chronology", "text": "In order."}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (form({"k": 1}), "k must be from 2 to 10, the size of the pool"),
        (form({"k": 11}), "k must be from 2 to 10, the size of the pool"),
        (form({"k": 9}, pool={"drop": ["depth", "balance"]}), "k must be from 2 to 8, the size of the pool"),
        (form({"must_include": "beauty"}), "must_include must be a dimension of the pool"),
        (form({"must_include": []}), "must_include must be a dimension of the pool"),
        (form({"must_include": ["factuality", "beauty"]}), "must_include must be a dimension of the pool"),
        (form({"must_include": ["depth", "depth"]}), "must_include names a dimension twice"),
        (
            form({"must_include": ["depth", "balance", "insight"], "k": 2}),
            "must_include has more than k = 2 dimensions",
        ),
        (form(pool={"drop": ["factuality"]}), "must_include must be a dimension of the pool"),
        (form({"weight_min": -0.1}), WEIGHTS),
        (form({"weight_max": 1.1}), WEIGHTS),
        (form({"weight_min": 0.6}), WEIGHTS),
        (form(process={"min_number_of_tool_call": -1}), "min_number_of_tool_call must be from 0 to 4"),
        (form(process={"min_number_of_tool_call": 5}), "min_number_of_tool_call must be from 0 to 4"),
        (form(notes="x" * 1001), "the notes may have at most 1000 characters"),
        (form(pool={"drop": ["beauty"]}), "the pool has no dimension beauty to drop"),
        (form(pool={"add": [{"name": "depth", "text": "x"}]}), "a dimension stands in the pool twice"),
        (form(pool={"add": [ADD, ADD]}), "a dimension stands in the pool twice"),
        (form(pool={"add": [ADD | {"text": " "}]}), "what a dimension means must be said, in at most 300 characters"),
        (
            form(pool={"add": [ADD | {"text": "x" * 301}]}),
            "what a dimension means must be said, in at most 300 characters",
        ),
        *(
            (
                form(pool={"add": [ADD | {"name": name}]}),
                "the name of a dimension must be a word of small letters, at most 32 characters long",
            )
            for name in ("", "Two", "two words", "<|im_end|>", "a\n", "x" * 33, "é", "depth: 0.4")
        ),
        (
            form(pool={"add": [ADD | {"name": f"n{number}"} for number in range(15)]}),
            "the pool may hold at most 24 dimensions",
        ),
        (form() + " " * 20_000, "the harness is longer than 20000 characters"),
        ("", "the harness is not JSON"),
        ("k = 4", "the harness is not JSON"),
        (form()[:-1], "the harness is not JSON"),
        (form() + form(), "the harness is not JSON"),
        ("\ud800", "the harness is not JSON"),
    ],
)
def test_what_is_refused(text, fault):
    assert parse(text) == fault


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "null",
        "4",
        "{}",
        "[" * 10_000,
        '{"pool":' * 2000,
        form(extra=1),
        form({"extra": 1}),
        form({"k": "4"}),
        form({"k": True}),
        form({"k": 4.5}),
        form({"k": None}),
        form({"must_include": [1]}),
        form({"weight_min": "0.1"}),
        form(process={"require_verification": 1}),
        form(process={"extra": 1}),
        form(pool=["depth"]),
        form(pool={"add": ["depth"]}),
        form(pool={"add": [ADD | {"weight": 0.3}]}),
        form(notes=None),
    ],
)
def test_what_does_not_fit_the_schema(text):
    fault = parse(text)
    assert isinstance(fault, str) and fault.startswith(
        ("the harness does not fit its schema: ", "the harness is not JSON")
    )
    assert len(fault) < 300 and "\n" not in fault


def test_limits_are_the_configs():
    assert (
        parse(form(process={"min_number_of_tool_call": 7}), HarnessLimits(max_tool_calls=7)).process.min_tool_calls == 7
    )


def test_a_default_that_breaks_a_bound_is_the_users_mistake():
    with pytest.raises(BadInput, match="k must be from 2 to 10"):
        default_harness(dimensions=DimensionRules(k=11))
    with pytest.raises(BadInput, match="must_include"):
        default_harness(pool=POOL[1:])
    assert default_harness(pool=POOL[:2], dimensions=DimensionRules(k=2)).version == 0


def keeps_the_bounds(harness):
    rules, names = harness.dimensions, [item.name for item in harness.pool]
    return (
        2 <= rules.k <= len(names) == len(set(names)) <= LIMITS.max_pool
        and set(rules.required) <= set(names)
        and len(set(rules.required)) == len(rules.required) <= rules.k
        and 0 <= rules.weight_min <= rules.weight_max <= 1
        and 0 <= harness.process.min_tool_calls <= LIMITS.max_tool_calls
        and len(harness.notes) <= LIMITS.max_notes_chars
        and all(0 < len(item.text) <= LIMITS.max_dimension_chars for item in harness.pool)
        and all(name.isascii() and name.replace("-", "").replace("_", "").isalnum() for name in names)
        and harness.version == (4 if harness is PREVIOUS else 5)
        and len(default_rubric(harness).dimensions) == rules.k
    )


def test_spoiled_harnesses_break_no_bound():
    chance, kinds = random.Random(4), set()
    whole = form({"k": 3}, notes="Look deeper.", pool={"drop": ["depth"], "add": [ADD]})
    for _ in range(5000):
        harness = parse(spoil(whole, chance))
        kinds.add(type(harness))
        assert harness if isinstance(harness, str) else keeps_the_bounds(harness)
    assert kinds == {str, Harness}


NUMBERS = st.one_of(st.integers(-2, 12), st.floats(), st.integers(), st.text(max_size=3), st.booleans(), st.none())
NAMES = st.one_of(st.sampled_from(["depth", "balance", "factuality", "new"]), st.text(max_size=5))


@given(
    st.dictionaries(
        st.sampled_from(["k", "weight_min", "weight_max", "must_include", "x"]),
        NUMBERS | st.lists(NAMES, max_size=3),
        max_size=2,
    ),
    st.dictionaries(st.sampled_from(["min_number_of_tool_call", "require_search", "x"]), NUMBERS, max_size=2),
    st.lists(NAMES, max_size=3),
    st.lists(st.fixed_dictionaries({"name": NAMES, "text": st.text(max_size=5)}), max_size=3),
    st.text(),
)
def test_any_values_make_a_harness_within_the_bounds_or_none(dimensions, process, drop, add, notes):
    harness = parse(form(dimensions, process, pool={"drop": drop, "add": add}, notes=notes))
    assert harness if isinstance(harness, str) else keeps_the_bounds(harness)
    assert isinstance(parse(notes), str)


@given(
    st.integers(2, 8),
    st.sets(st.sampled_from([item.name for item in POOL[2:]]), max_size=2),
    st.lists(st.sampled_from(["new", "newer", "newest"]), unique=True),
    st.booleans(),
    st.integers(0, 4),
)
def test_what_was_written_is_read_again(k, dropped, added, searches, calls):
    pool = tuple(item for item in POOL if item.name not in dropped) + tuple(Dimension(name, "New.") for name in added)
    process = ProcessRules(searches, not searches, searches, not searches, calls)
    new = Harness(5, pool, DimensionRules(k, "citation", 0.25, 0.75), process, "Notes.")
    assert find_fault(new, LIMITS) == ""
    assert parse(encode_harness(new, PREVIOUS)) == new
    assert parse_harness(encode_harness(new), new, LIMITS) is new
