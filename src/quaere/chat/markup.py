"""Parser for the small markup that a policy writes: elements, attributes and text, but no other part of XML.

    read_markup('<report id="1"><gaps>A < B & "C"</gaps></report>', max_chars=1000, max_elements=10, max_depth=4)
    -> Element("report", {"id": "1"}, "", (Element("gaps", {}, 'A < B & "C"'),))

Entities, comments, CDATA sections, declarations and processing instructions are read as text: `&lt;` stays four
characters. So is everything else that is not a tag, because prose contains stray signs. The scan is linear in the
length of the text: a tag ends before the next `<`, the stack is at most `max_depth` deep, and no text is read twice.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from msgspec import Struct

_NAME = r"[A-Za-z][A-Za-z0-9_-]{0,31}+"
# Values hold no angle brackets, so that matching a tag never reads past the next one: else the scan is quadratic.
_ATTRIBUTE = rf"""({_NAME})\s{{0,4}}+=\s{{0,4}}+(?:"([^"<>]{{0,200}}+)"|'([^'<>]{{0,200}}+)')"""
_ATTRIBUTES = re.compile(_ATTRIBUTE)
_TAG = re.compile(
    rf"<(?:/(?P<closed>{_NAME})|(?P<opened>{_NAME})(?P<attributes>(?:\s{{1,8}}+{_ATTRIBUTE}){{0,8}}+))"
    r"\s{0,8}+(?P<empty>/?)>"
)


class Element(Struct, frozen=True):
    """An element; `text` is the text directly in it, without that of its children.

    Element("score", {"dimension": "coverage"}, "7")
    """

    name: str
    attributes: dict[str, str]
    text: str
    children: tuple[Element, ...] = ()

    def find_all(self, name: str) -> tuple[Element, ...]:
        """Children with this name, in order."""
        return tuple(child for child in self.children if child.name == name)


class _Open:
    """An element whose closing tag has not been read yet."""

    def __init__(self, name: str, attributes: dict[str, str]) -> None:
        self.name = name
        self.attributes = attributes
        self.pieces: list[str] = []
        self.children: list[Element] = []

    def close(self) -> Element:
        return Element(self.name, self.attributes, "".join(self.pieces).strip(), tuple(self.children))


def read_markup(
    text: str, *, max_chars: int, max_elements: int, max_depth: int, known: Collection[str] = ()
) -> Element | str:
    """The single element that the text consists of, or the reason why the text cannot be parsed.

    With `known`, only these names are read as tags. A closing tag closes the nearest open element of its name and all
    elements left open inside it; if none is open, the tag is text. So a fault inside one element does not spoil its
    siblings.

        read_markup("<a><b>left open</a>", max_chars=99, max_elements=9, max_depth=9)
        -> Element("a", {}, "", (Element("b", {}, "left open"),))
        read_markup("<a>", max_chars=99, max_elements=9, max_depth=9) -> "an element is not closed"
    """
    if len(text) > max_chars:
        return "the markup is too long"
    stack = [_Open("", {})]  # the root: the text as a whole
    num_elements = position = 0
    for tag in _TAG.finditer(text):
        name = tag["opened"] or tag["closed"]
        attributes = _read_attributes(tag["attributes"] or "")
        place = _find_open(stack, name)
        if (known and name not in known) or attributes is None or (tag["closed"] and (tag["empty"] or not place)):
            continue  # not a tag: it stays part of the text
        stack[-1].pieces.append(text[position : tag.start()])
        position = tag.end()
        if tag["closed"]:
            _close(stack, place)
            continue
        num_elements += 1
        if num_elements > max_elements:
            return "the markup holds too many elements"
        if len(stack) > max_depth:
            return "the markup is nested too deeply"
        stack.append(_Open(name, attributes))
        if tag["empty"]:
            _close(stack, len(stack) - 1)
    if len(stack) > 1:
        return "an element is not closed"
    whole = stack[0].close()
    if len(whole.children) != 1 or whole.text or text[position:].strip():
        return "the markup must be one element with nothing around it"
    return whole.children[0]


def _find_open(stack: list[_Open], name: str) -> int:
    """Stack index of the nearest open element with this name; 0 (the root, which has no name) if there is none."""
    return next((place for place in range(len(stack) - 1, 0, -1) if stack[place].name == name), 0)


def _close(stack: list[_Open], place: int) -> None:
    while len(stack) > place:
        closed = stack.pop().close()
        stack[-1].children.append(closed)


def _read_attributes(text: str) -> dict[str, str] | None:
    """Attributes by name; None if one is given twice."""
    found = [(name, double or single) for name, double, single in _ATTRIBUTES.findall(text)]
    return dict(found) if len(dict(found)) == len(found) else None
