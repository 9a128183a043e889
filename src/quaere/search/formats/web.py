"""HTML without what stands around the text: menus, banners, footers."""

from __future__ import annotations

import re

from quaere.search.extracted import FileText, TextBuilder
from quaere.search.formats.text import decode
from quaere.search.pages import read_page
from quaere.search.titles import choose_title

_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)


def read_html(data: bytes, limit: int) -> FileText:
    """A page, block by block."""
    declared = _CHARSET.search(data[:4096])
    markup, encoding = decode(data, declared.group(1).decode("ascii", "ignore") if declared else None)
    page, text = read_page(markup), TextBuilder(limit)
    text.add_blocks(page.blocks)
    return text.build(choose_title(page.title, page.heading), encoding)
