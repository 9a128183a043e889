"""No link between pages of the documentation is broken: files are there, and so are the headings links lead to."""

import re
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/quaere/**/*.md")])
PARSE = cache(MarkdownIt("commonmark").enable("table").parse)  # a page is read for each link that leads to it
ATTRIBUTE = re.compile(r"""\b(?:href|src|srcset)=["']([^"'\s]+)""")
ANCHOR = re.compile(r"""\b(?:id|name)=["']([^"']+)["']""")


def inline(text):
    """Every piece of a page, with those inside paragraphs, headings and cells."""
    for token in PARSE(text):
        yield token
        yield from token.children or []


def read_links(text):
    """The targets of links and images, written as Markdown or as HTML; none of those in code."""
    for token in inline(text):
        if target := token.attrGet("href") or token.attrGet("src"):
            yield str(target)
        elif token.type in ("html_block", "html_inline"):
            yield from ATTRIBUTE.findall(token.content)


def read_anchors(text):
    """What `#...` may name: each heading as GitHub makes an anchor of it, and ids written in HTML."""
    seen = Counter()
    tokens = PARSE(text)
    for opening, heading in pairwise(tokens):
        if opening.type == "heading_open":
            said = "".join(part.content for part in heading.children if part.type in ("text", "code_inline"))
            slug = re.sub(r"[^\w\- ]", "", said.lower()).replace(" ", "-")
            yield f"{slug}-{seen[slug]}" if seen[slug] else slug
            seen[slug] += 1
    for token in inline(text):
        if token.type in ("html_block", "html_inline"):
            yield from ANCHOR.findall(token.content)


def broken(page, text):
    """The links of a page that lead nowhere."""
    for link in read_links(text):
        if re.match(r"[a-z][a-z0-9+.-]*:", link):
            continue  # to another site
        path, _, anchor = unquote(link).partition("#")
        target = page.parent / path if path else page
        if (path and not target.exists()) or not target.resolve().is_relative_to(ROOT.resolve()):
            yield link
        elif anchor and target.suffix == ".md":
            there = text if target == page else target.read_text(encoding="utf-8")
            if anchor not in read_anchors(there):
                yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_link_is_broken(page):
    assert list(broken(page, page.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "link",
    [
        "[gone](gone.md)",
        "![gone](figures/gone.svg)",
        "[gone][1]\n\n[1]: gone.md",
        "[gone](#nowhere)",
        "[gone](training.md#nowhere)",
        "| a |\n|---|\n| [gone](gone.md) |",
        'A picture: <img src="gone.svg">',
        "[outside](../../elsewhere.md)",
    ],
)
def test_a_broken_link_is_found(link):
    assert len(list(broken(ROOT / "docs/page.md", f"# Page\n\n{link}\n"))) == 1


@pytest.mark.parametrize(
    "link",
    [
        "[there](training.md), [there](../README.md#read-on) and [there](#what-is-not-in-the-paper-1)",
        "[elsewhere](https://example.org/gone.md)",
        "`[code](gone.md)`\n\n    [code](gone.md)\n\n```\n[code](gone.md)\n```",
        '<a id="here"></a>[there](#here)',
    ],
)
def test_a_link_that_holds_is_let_through(link):
    text = f"# What is *not* in the `paper`?\n\n## What is not in the paper\n\n{link}\n"
    assert list(broken(ROOT / "docs/page.md", text)) == []
