import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judging import PIECES, assessment, entry, spoil
from quaere.chat.elements import Element, read_markup

BOUNDS = {"max_chars": 1000, "max_elements": 10, "max_depth": 4}
AROUND = "the markup must be one element with nothing around it"


@pytest.mark.parametrize(
    ("text", "element"),
    [
        ("<a/>", Element("a", {}, "")),
        (" <a> x </a>\n", Element("a", {}, "x")),
        ("<a>1<b>2</b>3</a>", Element("a", {}, "13", (Element("b", {}, "2"),))),
        ("<a id=\"1\" kind='two words'>x</a >", Element("a", {"id": "1", "kind": "two words"}, "x")),
        ("<a n = '\"'>x</a>", Element("a", {"n": '"'}, "x")),
        ("<a><b/><b>2</b></a>", Element("a", {}, "", (Element("b", {}, ""), Element("b", {}, "2")))),
        # Prose: what is no tag is text.
        ('<a>1 < 2 & "so" on > <</a>', Element("a", {}, '1 < 2 & "so" on > <')),
        ("<a>&lt;b&gt; &#65; &amp;</a>", Element("a", {}, "&lt;b&gt; &#65; &amp;")),
        ("<a><!-- no --><?no?><![CDATA[no]]></a>", Element("a", {}, "<!-- no --><?no?><![CDATA[no]]>")),
        ("<a><b x=1></a>", Element("a", {}, "<b x=1>")),
        ('<a><b x="1" x="2"></a>', Element("a", {}, '<b x="1" x="2">')),
        ('<a><b x="<"></a>', Element("a", {}, '<b x="<">')),
        ("<a></b></a>", Element("a", {}, "</b>")),
        # A closing tag closes what is open inside it, and nothing beside it.
        ("<a><b>x</a>", Element("a", {}, "", (Element("b", {}, "x"),))),
        ("<a><b><c>1</b>2</a>", Element("a", {}, "2", (Element("b", {}, "", (Element("c", {}, "1"),)),))),
        ("<a><a>1</a></a>", Element("a", {}, "", (Element("a", {}, "1"),))),
    ],
)
def test_what_is_read(text, element):
    assert read_markup(text, **BOUNDS) == element


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", AROUND),
        ("words", AROUND),
        ("<a/><b/>", AROUND),
        ("so: <a/>", AROUND),
        ("<a/> so", AROUND),
        ("<a/> </a>", AROUND),
        ('<!DOCTYPE x [<!ENTITY y "z">]><a>&y;</a>', AROUND),
        ("<a>", "an element is not closed"),
        ("<a><b></b>", "an element is not closed"),
        ("<a>" * 5 + "</a>" * 5, "the markup is nested too deeply"),
        ("<a>" + "<b/>" * 10 + "</a>", "the markup holds too many elements"),
        ("<a>" + "x" * 1000 + "</a>", "the markup is too long"),
    ],
)
def test_what_is_refused(text, reason):
    assert read_markup(text, **BOUNDS) == reason


def test_bounds_are_met_exactly():
    assert read_markup("<a>" * 4 + "</a>" * 4, **BOUNDS).name == "a"
    assert len(read_markup("<a>" + "<b/>" * 9 + "</a>", **BOUNDS).children) == 9
    assert len(read_markup("<a>" + "x" * 993 + "</a>", **BOUNDS).text) == 993


def test_names_that_are_not_known_are_text():
    known = read_markup("<a><search>q</search> <b>1</b></a>", **BOUNDS, known=("a", "b"))
    assert known == Element("a", {}, "<search>q</search>", (Element("b", {}, "1"),))
    assert known.find_all("b") == known.children


def count(element):
    return 1 + sum(map(count, element.children))


def depth(element):
    return 1 + max(map(depth, element.children), default=0)


@given(st.lists(st.one_of(st.sampled_from(("<a>", "</a>", "<b>", "</b>", *PIECES)), st.text(max_size=5)), max_size=30))
def test_any_text_is_read_within_bounds_or_refused(pieces):
    text = "<a>" + "".join(pieces) + "</a>"
    read = read_markup(text, **BOUNDS)
    if isinstance(read, Element):
        assert len(text) <= 1000 and count(read) <= 10 and depth(read) <= 4
        assert set(read.text) <= set(text)
    else:
        assert read


def test_what_one_element_lacks_does_not_spoil_the_next():
    whole = assessment(entry(1).replace("</gaps>", ""), entry(2))
    root = read_markup(whole, max_chars=10_000, max_elements=100, max_depth=8)
    assert [len(item.find_all("score")) for item in root.children] == [0, 3]


def test_hostile_texts_of_hundreds_of_kilobytes_are_read_to_the_end():
    """Each is one that a reader with backtracking, recursion or entities would not come back from."""
    many = {"max_chars": 2_000_000, "max_elements": 10**6, "max_depth": 8}
    for piece in ("<", "<a ", '<a b="', "</", "<a b='c' ", "&a;", "</b>", "<a b = ", "<!--"):
        body = piece * (300_000 // len(piece))
        assert read_markup(f"<r>{body}</r>", **many) == Element("r", {}, body.strip())
    assert read_markup("<a>" * 300_000, **many) == "the markup is nested too deeply"


def test_spoiled_markup_is_read_or_refused():
    chance = random.Random(7)
    whole = assessment(entry(1), entry(2))
    for _ in range(1000):
        assert read_markup(spoil(whole, chance), max_chars=10_000, max_elements=100, max_depth=8)
