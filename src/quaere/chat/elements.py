"""Parser of a small markup with attributes.

    read_markup('<report id="1"><gaps>A < B & "C"</gaps></report>', max_chars=1000, max_elements=10, max_depth=4)
    -> Element("report", {"id": "1"}, "", (Element("gaps", {}, 'A < B & "C"'),))

It is linear in the length of any text. Entities, comments, CDATA sections, declarations and processing instructions are
text (`&lt;` stays four characters), and so is everything else that is not a tag, because prose contains stray signs.
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


class _Open(Struct):
    """An element whose closing tag has not been read yet."""

    name: str
    attributes: dict[str, str]
    pieces: list[str] = []
    children: list[Element] = []

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
        given = [(key, double or single) for key, double, single in _ATTRIBUTES.findall(tag["attributes"] or "")]
        attributes = dict(given)
        # The nearest open element of this name; 0, the root, if there is none.
        place = next((place for place in range(len(stack) - 1, 0, -1) if stack[place].name == name), 0)
        is_unknown, is_double = known and name not in known, len(attributes) < len(given)
        if is_unknown or is_double or (tag["closed"] and (tag["empty"] or not place)):
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


def _close(stack: list[_Open], place: int) -> None:
    while len(stack) > place:
        closed = stack.pop().close()
        stack[-1].children.append(closed)
