"""Texts of half a megabyte that were read in quadratic time, which is hours: the limit only ends a test that hangs."""

import pytest

from quaere.search.files import read_file
from quaere.search.words import fold

SIZE = 1 << 19
pytestmark = pytest.mark.timeout(60)


def test_a_heading_with_many_spaces_inside(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# a" + " " * SIZE + "x ## \n")
    assert read_file(page).title == "a x"


@pytest.mark.parametrize(
    ("unit", "end"),
    [
        ("<a ", ""),
        ("<a ", ">"),
        ("<a =", ">"),
        ('<a b=">" ', ""),
        ("<a b='\">", ""),
        ("</a", ""),
        ("</", ">"),
        ("<!--", ""),
        ("<!--", ">"),
        ("<![", ""),
        ("<?", ""),
        ("<script>", ""),
        ("<title>a<", ""),
        ("&#1", ""),
        ("&", ""),
    ],
)
def test_a_page_of_unfinished_markup(tmp_path, unit, end):
    page = tmp_path / "page.html"
    page.write_text(unit * (SIZE // len(unit)) + end)
    assert len(read_file(page).text) <= SIZE


def test_a_letter_with_many_marks():
    acute, below = "\u0301", "\u0316"  # of different classes: normalisation sorts them
    assert fold("E" + (acute + below) * (SIZE // 2) + "s") == "es"
    hindi = "क" + "\u093c\u094d" * 100
    assert fold(hindi) == "क" + "\u093c" * 15 + "\u094d" * 15  # marks that are no accents are kept, up to 30
