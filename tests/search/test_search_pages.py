"""Pages of HTML: what is tag and what is text, on pages that are whole and on pages that are not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.search.formats.web import read_page

TAGS = "title script pre p br h2 ul ol li dl dt dd table tr th td sup a nav main".split()
PIECES = [*"< > a p / ! -- = \" ' &#".split(), " ", "x.", *(f"<{tag}>" for tag in TAGS), *(f"</{tag}>" for tag in TAGS)]


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("a < b and c > d, x<3", "a < b and c > d, x<3"),
        ("<a title=\"x > y\" href='>'>in</a> out", "in out"),
        ("<p\nclass = 'x'>one</p ><br/>two", "one\n\ntwo"),
        ("one<!-- <p> -- > no --><!-->two<!DOCTYPE html><?php no ?>", "onetwo"),
        ("<![CDATA[no]]>one<![foo[no]>two</3>", "onetwo"),  # the standard library's parser raised on the second
        ("<SCRIPT>if (a</b) '<p>'</Script >one<style>no", "one"),
        ("<svg><p>no</svg>one<template/>two", "onetwo"),
        ("&lt;p&gt; caf&eacute; &#233; &#xe9;", "<p> café é é"),
        ("&#" + "9" * 5000 + "; &#" + "0" * 5000 + "65;", "\ufffd \ufffd"),
        ("one <b two", "one <b two"),  # no tag: it ends nowhere
        ("one <!-- two", "one <!-- two"),  # nor is this a comment
        ("one <!-- two <p>three", "one"),  # as in browsers
        ('<a href="x>one<p>two', "one\n\ntwo"),  # a quote that is never closed is none
        ('one<a b="x>two">three<a b="x>four', "onethreefour"),
        ('<a b="x>one"<i>two', "two"),
    ],
)
def test_tags_are_told_from_text(markup, text):
    assert title_and_text(markup) == ("", text)


def title_and_text(markup):
    page = read_page(markup)
    return page.title, page.text


def test_a_title_ends_with_the_next_tag():
    assert title_and_text("<title>The Oss</title>It rises.") == ("The Oss", "It rises.")
    assert title_and_text("<title>The</b> Oss</title>") == ("The Oss", "")  # the end of what has not begun is no tag
    assert title_and_text("<title>The <svg><title>no</title></svg>") == ("The", "")
    assert title_and_text("<title>A < B &amp; C<p>one") == ("A < B & C", "one")


@given(st.lists(st.sampled_from(PIECES)))
def test_anything_is_read(pieces):
    page = read_page("".join(pieces))
    assert "  " not in page.title
    assert all(block.text.strip() for block in page.blocks)
