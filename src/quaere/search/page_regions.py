"""Detection of page elements that are not main text: menus, banners, footers, readers' comments.

is_around("div", ' class="navheader"') == True

They are recognised by tag, role or class name. An id counts only if there is no class: documentation tools make ids
from headings, and "Navigation" may be a heading.
"""

from __future__ import annotations

import re
from functools import cache

_ROLES = frozenset({"navigation", "banner", "contentinfo", "search", "complementary", "menu", "menubar"})
_TAGS = frozenset({"nav", "footer"})
_REGIONS = frozenset({"aside", "div", "dl", "form", "header", "ol", "p", "section", "span", "table", "td", "ul"})
_WHERE = (
    "site|page|main|global|top|bottom|left|right|side|local|primary|secondary|header|footer|mobile|doc|docs|sphinx|user"
)
_WHAT = (
    r"nav(?:bar|igation|header|footer|links|path)?|menus?|menubar|sidebar|breadcrumbs?|toc|footer|banner|comments?|respond|"
    r"cookies?|share|sharing|social|related|newsletter|adverts?|advertisement|skip-?links?|headerlink|pagination|pager"
)
_NAME = re.compile(rf"(?:(?:{_WHERE})[-_]?)?(?:{_WHAT})(?:[-_](?:bar|box|list|menu|links|items?|wrapper|notice))?")


def is_around(tag: str, attributes: str) -> bool:
    """True if the element with this start tag is a menu, banner, footer or the like, and not main text."""
    if tag in _TAGS:
        return True
    if tag not in _REGIONS or "=" not in attributes:
        return False
    if read_attribute(attributes, "role").lower() in _ROLES:
        return True
    names = read_attribute(attributes, "class") or ("" if tag == "section" else read_attribute(attributes, "id"))
    return any(_NAME.fullmatch(name) for name in names.lower().split())


def read_attribute(attributes: str, name: str) -> str:
    """The value of an attribute, "" if there is none: `read_attribute(' class="toc"', "class") == "toc"`."""
    if name not in attributes.lower():
        return ""
    found = _attribute(name).search(attributes)
    return (found.group(1) or found.group(2) or found.group(3) or "") if found else ""


@cache
def _attribute(name: str) -> re.Pattern[str]:
    return re.compile(rf"""(?<![\w:-]){name}\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"'>]++))""", re.IGNORECASE)
