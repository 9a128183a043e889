"""Numbers that carry their bounds: what is said of a value that breaks them, and that no setting goes without."""

import math
from typing import Annotated, Literal

import pytest
from msgspec import Meta, Struct, inspect, structs

from quaere.errors import BadInput
from quaere.recipes.registry import RECIPES, find_recipe
from quaere.setting_types import (
    Fraction,
    FractionBelowOne,
    GroupSize,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    ProperFraction,
    SignedFraction,
    Wait,
    check_settings,
    check_value,
    is_section,
)
from quaere.training.settings import SearchSettings
from quaere.warmup.documents.checked_question import WriterSettings

Weights = Annotated[tuple[NonNegativeInt, ...], Meta(min_length=1)]


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        (PositiveInt, 0, "must be at least 1, not 0"),
        (PositiveInt, 1.5, "must be a whole number of at least 1, not 1.5"),
        (PositiveInt, True, "must be a whole number of at least 1, not true"),
        (PositiveInt, None, "must be a whole number of at least 1, not empty"),
        (NonNegativeInt, -1, "must be at least 0, not -1"),
        (PositiveFloat, 0, "must be above 0, not 0"),
        (PositiveFloat, float("nan"), "must be above 0, not nan"),
        (NonNegativeFloat, -0.5, "must be at least 0, not -0.5"),
        (Wait, float("inf"), "must be between 0 and 86400, not inf"),
        (Wait, float("nan"), "must be between 0 and 86400, not nan"),
        (Fraction, 1.5, "must be between 0 and 1, not 1.5"),
        (Fraction, "half", "must be a number between 0 and 1, not 'half'"),
        (SignedFraction, -1.5, "must be between -1 and 1, not -1.5"),
        (PositiveFraction, 0.0, "must be above 0 and at most 1, not 0.0"),
        (FractionBelowOne, 1, "must be at least 0 and below 1, not 1"),
        (ProperFraction, 1, "must be above 0 and below 1, not 1"),
        (GroupSize, 1, "must be at least 2, not 1: group-relative advantages need two attempts"),
        (NonNegativeInt | Literal["all"], -1, "must be at least 0, not -1"),
        (NonNegativeInt | Literal["all"], "some", "must be a whole number of at least 0 or all, not 'some'"),
        (Weights, [], "must be a list of 1 or more whole numbers of at least 0, not []"),
        (Weights, [1, -1], "must be a list of 1 or more whole numbers of at least 0, not [1, -1]"),
    ],
)
def test_one_line_says_what_is_wrong_and_what_is_right(kind, value, says):
    with pytest.raises(BadInput) as caught:
        check_value(kind, value, "solver.setting")
    assert str(caught.value) == f"solver.setting {says}"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (PositiveInt, 1),
        (PositiveInt, 2**70),
        (NonNegativeInt, 0),
        (PositiveFloat, 1e-9),
        (NonNegativeFloat, 0.0),
        (Fraction, 0.0),
        (Fraction, 1.0),
        (SignedFraction, -1.0),
        (PositiveFraction, 1.0),
        (FractionBelowOne, 0.0),
        (ProperFraction, 0.5),
        (GroupSize, 2),
        (NonNegativeInt | Literal["all"], "all"),
    ],
)
def test_a_bound_itself_is_allowed_where_it_is_included(kind, value):
    assert check_value(kind, value, "setting") == value


class Inner(Struct, frozen=True):
    batch: PositiveInt = 8


class Outer(Struct, frozen=True):
    ratio: tuple[int, ...] = (1, 2)
    inner: Inner = Inner()


def test_settings_built_in_python_are_checked_under_their_full_names():
    check_settings(Outer())
    with pytest.raises(BadInput, match=r"^inner\.batch must be at least 1, not 0$"):
        check_settings(Outer(inner=Inner(0)))
    with pytest.raises(BadInput, match=r"^solver\.inner\.batch must be at least 1, not 0$"):
        check_settings(Outer(inner=Inner(0)), "solver")
    with pytest.raises(BadInput, match=r"^ratio must be a list of whole numbers, not \('a',\)$"):
        check_settings(Outer(ratio=("a",)))


# -------------------------------------------------------------------------------------------------- every recipe's

# Any number is a seed. A harness is checked as a whole, whoever hands it in (`find_fault`).
UNBOUNDED = {"seed", "harness.dimensions", "harness.process"}


def unbounded_settings(config, prefix=""):
    for field in structs.fields(config):
        name = prefix + field.name
        if name in UNBOUNDED:
            continue
        if is_section(field.type):
            yield from unbounded_settings(getattr(config, field.name), f"{name}.")
        elif has_unbounded_number(inspect.type_info(field.type)):
            yield name


def has_unbounded_number(kind):
    match kind:
        case inspect.Metadata(type=inner) | inspect.VarTupleType(item_type=inner):
            return has_unbounded_number(inner)
        case inspect.UnionType(types=parts) | inspect.TupleType(item_types=parts):
            return any(map(has_unbounded_number, parts))
        case inspect.IntType() | inspect.FloatType():
            return kind.ge is None and kind.gt is None
        case _:
            return False


@pytest.mark.parametrize("name", RECIPES)
def test_every_number_of_a_recipe_has_a_bound_in_its_type(name):
    assert list(unbounded_settings(find_recipe(name).schema())) == []


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (SearchSettings(wait_s=math.inf), "wait_s must be between 0 and 86400, not inf"),
        (WriterSettings(minutes=math.inf), "minutes must be between 0 and 525600, not inf"),
    ],
)
def test_a_time_that_must_end_is_finite(settings, says):
    with pytest.raises(BadInput, match=f"^{says}$"):
        check_settings(settings)


@pytest.mark.parametrize("name", RECIPES)
def test_the_defaults_keep_their_own_bounds(name):
    check_settings(find_recipe(name).schema())
