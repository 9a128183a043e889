"""Texts of half a megabyte that were read in quadratic time, which is hours: the limit only ends a test that hangs."""

import pytest

from quaere.search.chunks import ChunkSettings, cut
from quaere.search.corpus import Document
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
        ("<dl><dd>", ""),
        ("<dl><dt>a<dd>b", ""),
        ("<dt>a", ""),
        ("<ul><li>a", ""),
        ("<dl></ul>", ""),
        ("<table><tr><td>a", ""),
        ("<table><tr><th>a<th>b", "</table>"),
        ("<td rowspan=9999 colspan=9999>a<tr>", ""),
        ("<sup>2", ""),
        ("2<sup>3</sup>", ""),
        ("<a>a</a>|", ""),
        ("<div class='nav'>a", ""),
        ("<div class='nav", "'>"),
        ('<div class="', ">"),
        ("<pre> \n", ""),
        ("a<br>", ""),
        ("<h1>a<h2>b", ""),
        ("<main>a", ""),
        ("&#1", ""),
        ("&", ""),
    ],
)
def test_a_page_of_unfinished_markup(tmp_path, unit, end):
    page = tmp_path / "page.html"
    page.write_text(unit * (SIZE // len(unit)) + end)
    read = read_file(page)
    assert len(read.text) <= 8 * SIZE
    cut(Document("page.html", read.title, read.text, "file", read.parts, headings=read.headings), ChunkSettings())


@pytest.mark.parametrize(
    ("suffix", "unit"),
    [
        *((".md", unit) for unit in ("# a\n", "a\n\n---\n", "a|b\n-|-\n", "|-", "```\n", "(a)=\n", ": a\n", "a:\n\n")),
        *((".rst", unit) for unit in ("a\n---\n", "--- \n", "====\n")),
        *((".adoc", unit) for unit in ("= a\n", "[[a", "====\n")),
        *((".txt", unit) for unit in ("a\n", "a. ", "\n ", "- a\n", "a\u2029", "a b c\n  d e f\n")),
    ],
)
def test_a_text_of_marks(tmp_path, suffix, unit):
    path = tmp_path / f"text{suffix}"
    path.write_text(unit * (SIZE // len(unit)))
    read = read_file(path)
    passages = cut(Document("text", read.title, read.text, "file", headings=read.headings), ChunkSettings())
    assert all(len(passage.heading) <= 200 for passage in passages)


def test_a_letter_with_many_marks():
    acute, below = "\u0301", "\u0316"  # of different classes: normalisation sorts them
    assert fold("E" + (acute + below) * (SIZE // 2) + "s") == "es"
    hindi = "क" + "\u093c\u094d" * 100
    assert fold(hindi) == "क" + "\u093c" * 15 + "\u094d" * 15  # marks that are no accents are kept, up to 30
