"""A question for a year may be answered by the year of a date."""

import pytest

from quaere.rewards.answers import year_aliases, year_of


@pytest.mark.parametrize(
    ("text", "year"),
    [
        ("4 May 1702", 1702),
        ("May 1702", 1702),
        ("May 4, 1702", 1702),
        (" 1702 ", 1702),
        ("1702 horses", None),
        ("in 1702", None),
        ("0702", None),
        ("Halm", None),
        ("", None),
    ],
)
def test_only_a_date_has_a_year(text, year):
    assert year_of(text) == year


@pytest.mark.parametrize(
    ("question", "answer", "aliases"),
    [
        ("In which year was Venn born?", "4 May 1702", ("1702",)),
        ("Venn was born in which year?", "May 1702", ("1702",)),
        ("YEAR of Venn's birth?", "4 May 1702", ("1702",)),
        ("When was Venn born?", "4 May 1702", ()),
        ("How many years did it take?", "4 May 1702", ()),
        ("In which year was Venn born?", "1702", ()),
        ("In which year was Venn born?", " 1702\n", ()),
        ("Which year was hard?", "the flood", ()),
    ],
)
def test_the_year_is_accepted_where_it_is_asked_for(question, answer, aliases):
    assert year_aliases(question, answer) == aliases
