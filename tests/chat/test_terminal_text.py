"""Untrusted text for a terminal: nothing in it controls the terminal, and nothing of it is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.chat.terminal_text import printable, printable_line, shorten_number


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\r\n", "␛[31mred\n"),
        ("a\rb", "a␍b"),
        ("\x00\x1f\x7f", "␀␟␡"),
        ("\x80\x9f", "\\u0080\\u009f"),
        ("left\u202eright\ufeff", "left\\u202eright\\ufeff"),
        ("\ud800", "\\ud800"),
        ("tab\there ~é漢", "tab\there ~é漢"),
    ],
)
def test_what_controls_a_terminal_is_made_visible(text, shown):
    assert printable(text) == shown


@given(st.text(st.characters(exclude_categories=[])))
def test_no_text_controls_a_terminal(text):
    shown = printable(text)
    assert all(character.isprintable() or character in "\n\t" or ord(character) > 0x9F for character in shown)
    assert printable(shown) == shown
    assert "\n" not in printable_line(text) and "\t" not in printable_line(text)


def test_one_line():
    assert printable_line("no file a\nb\tc\r\n") == "no file a␊b c␊"


@pytest.mark.parametrize(
    ("value", "shown"), [(4.24, "4.2"), (0, "0.0"), (9.94, "9.9"), (9.96, "10"), (10, "10"), (41.3, "41")]
)
def test_short_numbers(value, shown):
    assert shorten_number(value) == shown
