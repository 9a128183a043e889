"""How many examples a property is tried with."""

from hypothesis import settings

FULL = 100  # hypothesis's own number, which the full profile keeps


def examples(number):
    """Settings for this many examples under the full profile, and for that share of them that the loaded one tries.

    @settings(max_examples=examples(80))  # with the quick profile, of 25 examples: 20
    """
    return max(1, number * settings.default.max_examples // FULL)
