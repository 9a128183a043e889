"""The oracle's scores of a draft, worked out by hand."""

import pytest

from quaere.warmup.oracle_reports import Claim, Draft, Finding, mark
from quaere.worlds import Fact


def draft(*flaws, num_missed=0, num_treated=2, num_gaps=0):
    """A draft on two things with a claim for each flaw ("" for none); true claims cover a fact each."""
    found = [Finding(Fact(place, "source", None, "Oss"), "Oss", 1) for place in range(len(flaws))]
    claims = tuple(Claim(one, "Oss", (1,), flaw) for one, flaw in zip(found, flaws, strict=True))
    covered = tuple((place, "source") for place, flaw in enumerate(flaws) if flaw != "false")
    missed = tuple((place, "mouth") for place in range(num_missed))
    return Draft("...", claims, num_gaps, covered, missed, num_named=2, num_treated=num_treated)


DRAFTS = {
    "whole": draft("", "", "", "", "", "", num_gaps=1),
    "short": draft("", "", num_missed=2),  # half of what is known
    "one-sided": draft("", "", "", num_treated=1),
    "false": draft("", "", "false", num_missed=2),
    "miscited": draft("", "", "", "miscited"),
    "all false": draft("false", "false", "false", "false", num_missed=4),
}
SCORES = {
    "factuality": (9, 9, 9, 6, 9, 0),
    "citation": (9, 9, 9, 6, 7, 0),
    "coverage": (9, 5, 9, 5, 9, 1),
    "depth": (9, 4, 5, 4, 6, 1),
    "insight": (7, 5, 7, 4, 7, 0),
    "coherence": (8, 8, 8, 7, 8, 4),
    "instruction": (8, 5, 5, 5, 8, 2),
    "readability": (8, 7, 8, 8, 8, 8),
    "balance": (8, 8, 4, 7, 8, 4),
    "uncertainty": (8, 4, 4, 2, 4, 0),
    "unknown to it": (9, 9, 9, 6, 9, 0),
}


@pytest.mark.parametrize("dimension", SCORES)
def test_a_draft_is_scored_by_its_flaws(dimension):
    assert tuple(mark(each, dimension) for each in DRAFTS.values()) == SCORES[dimension]
