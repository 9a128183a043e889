"""Markup is left out of a document's text, each character that stays has its place, and what is no markup stays."""

import pytest

from quaere.chat.plain_text import plain_text


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("set the [`core.port`](server) option", "set the `core.port` option"),
        ("see [the **new** guide](https://a.org/x(1)#y) first", "see the new guide first"),
        ("see {ref}`authentication` and {doc}`the guide <guide>`", "see authentication and the guide"),
        ("a {abbr}`NIC (Network interface controller)`", "a NIC (Network interface controller)"),
        ("{command}`ls *a*` and :func:`f`", "`ls *a*` and `f`"),
        ("*UPDATE:* _rdiff_'s **`--include`**", "UPDATE: rdiff's `--include`"),
        ('the <b>red</b> and <a href="x">blue</a> one', "the red and blue one"),
        (r"lp:\~aaron test\_a", "lp:~aaron test_a"),
        (r"\*not bold\* and \_name\_", "*not bold* and _name_"),
        ("*foo(3)* and *[a](b.md)*, *UPDATE (new):* done", "foo(3) and a, UPDATE (new): done"),
    ],
)
def test_markup_is_left_out(text, plain):
    found = plain_text(text)
    assert found.text == plain == "".join(text[place] for place in found.places)


@pytest.mark.parametrize(
    "text",
    [
        "enter `[a](b) *c* <b>d</b>`",
        "``a *b* ` c``",
        "name it <client> or <b>",
        "*.txt and *.md, *.c,*.h",
        "__init__ and a_b_c and 2 * 3 * 4",
        "a[0](x) and [1](y)",
        "*cal*endar and *curse*s",
        r"the `\` of C:\files",
        "int *foo(void*), which is new, and char *strcpy(char*, const char*)",
        "Enclose text in <em> and </em> tags.",
        "cmd [option](s), [a,b](c,d) and [a-z](foo|bar)",
    ],
)
def test_what_is_no_markup_stays(text):
    assert plain_text(text).text == text
