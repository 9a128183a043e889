"""HTML without what stands around the article: menus, banners, footers.

trafilatura finds the article where it is installed; without it, and where it finds nothing, the whole page is read.
"""

from __future__ import annotations

import logging
import re

from quaere.search.extracted import FileText, TextBuilder
from quaere.search.formats.text import decode
from quaere.search.pages import read_page
from quaere.search.titles import choose_title

_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_HEADING = re.compile(r"<h[1-3](?=[\s>])", re.IGNORECASE)
_HEADING_END = re.compile(r"</h[1-3]", re.IGNORECASE)
_MAX_ARTICLE_CHARS = 1 << 20  # trafilatura needs some ten seconds for as much
_TABLE_RULE = re.compile(r"[|\s:-]++")


def read_html(data: bytes, limit: int) -> FileText:
    """A page: its article if one can be told from the rest, else all that a reader sees."""
    declared = _CHARSET.search(data[:4096])
    markup, encoding = decode(data, declared.group(1).decode("ascii", "ignore") if declared else None)
    title, seen = read_page(markup)
    text = TextBuilder(limit)
    text.add_paragraphs(find_article(markup) or seen.split("\n\n"))
    return text.build(choose_title(title, find_heading(markup)), encoding)


def find_heading(markup: str) -> str:
    """The text of the first heading of a page; "" if there is none."""
    start = _HEADING.search(markup)
    end = _HEADING_END.search(markup, start.end()) if start else None
    return " ".join(read_page(markup[start.start() : end.start()])[1].split()) if start and end else ""


def find_article(markup: str) -> list[str]:
    """The paragraphs of the article on a page; none if there is no article, or no trafilatura to find it."""
    if len(markup) > _MAX_ARTICLE_CHARS:
        return []
    try:
        import trafilatura
    except ImportError:
        return []
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)  # it logs every page that holds no article
    try:
        found = trafilatura.extract(markup, favor_recall=True, fast=True, include_comments=False)
    # It meets whatever markup the page has, in recursive functions and another parser: the page itself is still there.
    except Exception:
        return []
    lines = (found or "").split("\n")
    return [line.strip() for line in lines if line.strip() and not _TABLE_RULE.fullmatch(line)]
