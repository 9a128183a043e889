"""Splits a report into sentences with their citations, and extracts its conclusion.

    split_statements("# The Oss\\n\\nIt rises at Korrin [2]. Dr. Venn says so [1, 3].")
    -> (Statement("It rises at Korrin [2].", 11, 34, (2,)), Statement("Dr. Venn says so [1, 3].", 35, 59, (1, 3)))

All functions are linear in the length of any text: quantifiers are possessive (`++`, `*+`), and a run of full stops is
read once.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from msgspec import Struct

from quaere.records import Question, Report, Source, Statement

MAX_CITATION = 10**9
"""Larger numbers are read as this one: no writer is shown so many passages, so the citation stays unresolved."""

_CITE = r"\[[ \t]*+[0-9]++(?:[ \t]*+,[ \t]*+[0-9]++)*+[ \t]*+\]"
_CITATION = re.compile(_CITE)
_CITATIONS_NEXT = re.compile(rf"(?:[ \t]*+{_CITE})++")
_SPACED_CITATION = re.compile(rf"[ \t]?{_CITE}")
_DIGITS = re.compile("[0-9]+")


class Citation(Struct, frozen=True):
    """A citation in a text: `text[start:end]` is a number in brackets, or several separated by commas.

    Citation(start=20, end=26, numbers=(1, 3))
    """

    start: int
    end: int
    numbers: tuple[int, ...]


def find_citations(text: str) -> list[Citation]:
    """All citations in the text. `[n]` and `[n, m]` are citations; anything else in brackets is text.

    find_citations("Short [2], see [note] and [1, 3].")
    -> [Citation(start=6, end=9, numbers=(2,)), Citation(start=26, end=32, numbers=(1, 3))]
    """
    return [
        Citation(found.start(), found.end(), tuple(map(_read_number, _DIGITS.findall(found.group()))))
        for found in _CITATION.finditer(text)
    ]


def strip_citations(text: str) -> str:
    """The text without its citations and the space before each.

    strip_citations("It is short [2].") -> "It is short."
    """
    return _SPACED_CITATION.sub("", text).strip()


def _read_number(digits: str) -> int:
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) < len(str(MAX_CITATION)) else MAX_CITATION


# -------------------------------------------------------------------------------------------------------- statements


def split_statements(text: str) -> tuple[Statement, ...]:
    """The sentences of a text with their offsets and citations.

    List items are split like paragraphs. Headings, labels and rules are statements only if they cite: so every citation
    of the text belongs to exactly one statement. Citations right after a full stop belong to the sentence before it, if
    that sentence has none yet and another sentence begins after them.

        split_statements("It is short.[2] [1] says so.")[0].citations -> (2,)
    """
    return tuple(
        Statement(said, start, end, tuple(number for cite in find_citations(said) for number in cite.numbers))
        for block in _blocks(text)
        for start, end in _sentences(text, *block)
        if (said := text[start:end])
    )


_WHOLE = re.compile(rf"[.!?…؟۔।॥։።。！？][\"'”’»“‘«)\]*_」』）]*+(?:[ \t]*+{_CITE})*+$")


def keep_whole_sentences(text: str) -> str:
    """The whole sentences of a text that was cut off, up to the first repeated one.

    A small model often repeats itself until it is cut off. Citations are ignored when sentences are compared.

        keep_whole_sentences("It rises at Korrin [1]. It is short. It is sh") -> "It rises at Korrin [1]. It is short."
        keep_whole_sentences("It is short [1]. It is so. It is short [2]. It is so.") -> "It is short [1]. It is so."
    """
    said: set[str] = set()
    end = 0
    for statement in split_statements(text):
        words = " ".join(_CITATION.sub(" ", statement.text).split())
        if words in said or not _WHOLE.search(statement.text):
            break
        said.add(words)
        end = statement.end
    return text[:end]


_MARKER = re.compile(r"[ \t]*+(?:>[ \t]*+)*+(?:#{1,6}[ \t]++|[-*+•–][ \t]++|[0-9]{1,3}[.)][ \t]++)?")
_CONCLUSION = r"[*_]{0,3}(?:[0-9]{1,2}[.)][ \t]*+)?(?:final |overall )?conclusions?[*_]{0,3}[ \t]*+"
_LABEL = re.compile(rf"(?i:{_CONCLUSION}:[*_]{{0,3}})")
_ENDED = tuple('.!?…:؟۔।॥։።。！？”"')
_MAX_LABEL_WORDS = 8


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of every paragraph and list item, without markers.

    A line without a marker continues an unfinished line before it if it begins in lower case, or if the line before was
    full.
    """
    start = end = at = 0  # the current block, empty if start and end are equal, and the start of the line
    before, lines = "", text.split("\n")
    for line, width in zip(lines, _widths(lines), strict=True):
        begins, ends = at + _marker_end(line), at + len(line.rstrip())
        has_marker = begins - at > len(line) - len(line.lstrip())
        is_wrapped = not has_marker and goes_on(before, line, width)
        before = line
        if not (is_wrapped and start < end and not text.endswith(_ENDED, start, end)):
            if start < end:
                yield start, end
            is_heading = begins < ends and _is_heading(line[: ends - at], line[begins - at : ends - at])
            start = end = ends if is_heading else begins
        end = max(end, ends)
        at += len(line) + 1
    if start < end:
        yield start, end


def _widths(lines: list[str]) -> list[int]:
    """For each line the length of the longest line of its paragraph."""
    widths: list[int] = []
    for _, paragraph in groupby(lines, key=lambda line: bool(line.strip())):
        lengths = [len(line.rstrip()) for line in paragraph]
        widths += [max(lengths)] * len(lengths)
    return widths


def _marker_end(line: str) -> int:
    marker = _MARKER.match(line)
    return marker.end() if marker else 0


def _is_heading(line: str, content: str) -> bool:
    """True if the line is a heading or a label rather than a statement. A line with a citation is a statement."""
    if _CITATION.search(content):
        return False
    is_bold = len(content) > 4 and content[:2] == content[-2:] and content[:2] in ("**", "__") and "." not in content
    is_label = content.rstrip("*_").endswith(":") and len(content.split()) <= _MAX_LABEL_WORDS
    return line.lstrip(" \t>").startswith("#") or is_bold or is_label


# End of a sentence: full stops and closing quotes or brackets, before white space, a citation or the end of the text.
# German and other quotations close with “ ‘ «, French ones with a space and ». Danda (Hindi), Arabic, Urdu, Armenian
# and Ethiopic marks end sentences too.
_END = re.compile(
    r"(?<![.!?…؟۔।॥։።])[.!?…؟۔।॥։።]++[\"'”’»“‘«)\]*_]*+(?:[ \u00a0\u202f]»(?=[\s.,]|$))?+(?=\s|\[[ \t]?[0-9]|$)"
    r"|(?<![。！？])[。！？]++[”’」』）]*+"
)
_SPACE = re.compile(r"\s*+")
_ABBREVIATIONS = frozenset(
    "approx ca capt cf co col corp dr eds eg esp est ft gen gov hon ie inc incl jr lt ltd maj mr mrs ms mt mme prof "
    "rep rev sen sgt sr sra st vs bzw evtl ggf inkl sog vgl jan feb mar apr jun jul aug sep sept oct nov dec".split()
)
_BEFORE_NUMBERS = frozenset("no nos fig figs eq eqs vol vols ch sec p pp art par nr abb abs bd kap tab al".split())
_NUMBER_NEXT = re.compile(r"\(?[0-9]")
_INITIAL_NEXT = re.compile(r"[^\W\d_]\.")
_AFTER_ORDINALS = tuple(
    "Januar Jänner Februar März April Mai Juni Juli August September Oktober November Dezember Jahrhundert".split()
)
_TAIL_CHARS = 12  # longer than any abbreviation, and than what follows ordinals


def _sentences(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    label = _LABEL.match(text, start, end)
    cursor = label.end() if label else start
    for found in _END.finditer(text, cursor, end):
        stop = _sentence_end(text, found, cursor, end)
        if stop is not None:
            yield from _trimmed(text, cursor, stop)
            cursor = stop
    yield from _trimmed(text, cursor, end)


def _sentence_end(text: str, found: re.Match[str], start: int, end: int) -> int | None:
    """End of the sentence, with the citations after its full stop; None if the full stop does not end a sentence."""
    cited = _CITATIONS_NEXT.match(text, found.end(), end)
    behind = cited.end() if cited else found.end()
    space = _SPACE.match(text, behind, end)
    following = text[space.end() : min(space.end() + _TAIL_CHARS, end)] if space else ""
    before = text[max(start, found.start() - _TAIL_CHARS) : found.start()]
    if cited:
        # Citations that belong to the next sentence: "[2] says so", or before their own in this text.
        is_next = following and (following[0].islower() or _CITATION.search(text, start, found.start()))
        return found.end() if is_next else behind
    goes_on = following[:1].islower() or (found.group() == "." and is_abbreviation(before, following))
    return None if goes_on else behind


def is_abbreviation(before: str, following: str) -> bool:
    """True if the full stop after `before` belongs to an abbreviation, an initial or a German ordinal.

    is_abbreviation("said Dr", "V") -> True; is_abbreviation("see No", "5") -> True
    is_abbreviation("am 3", "Oktober 1990") -> is_abbreviation("gilt z", "B. dort") -> True
    """
    *earlier, last = before.split() or [""]
    word = last.lstrip("([\"'“‘*_")
    initials = word.split(".")
    if all(len(letter) == 1 and letter.isalpha() for letter in initials):
        is_pair = bool(_INITIAL_NEXT.match(following) or (earlier and _INITIAL_NEXT.fullmatch(earlier[-1])))
        return following != "" and (word[-1].isupper() or len(initials) > 1 or is_pair)
    if word.isdigit():
        return len(word) <= 2 and following.startswith(_AFTER_ORDINALS)
    is_before_number = word.lower() in _BEFORE_NUMBERS and _NUMBER_NEXT.match(following) is not None
    return word.lower() in _ABBREVIATIONS or is_before_number


def _trimmed(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The span without surrounding white space, if it has a letter or digit."""
    said = text[start:end]
    if any(character.isalnum() for character in said):
        yield end - len(said.lstrip()), start + len(said.rstrip())


# -------------------------------------------------------------------------------------------------------- conclusion

# "Conclusion:" at the start of a line or a sentence, or a heading "Conclusion".
_CONCLUDES = re.compile(
    rf"(?im:(?:^[ \t]*+(?:#{{1,6}}[ \t]*+)?|(?<=[.!?\]*][ \t])){_CONCLUSION}:[*_]{{0,3}}"
    rf"|^[ \t]*+(?:#{{1,6}}[ \t]++|(?=\*\*|__)){_CONCLUSION}$)"
)
_TITLE = re.compile(r"(?m)^[ \t]*+#{1,6}[ \t]")
_END_MATTER = re.compile(
    r"(?im)^[ \t]*+(?:#{1,6}[ \t]*+)?[*_]{0,3}(?:sources?|references|bibliography|works cited)[*_]{0,3}"
    r"[ \t]*+:?[*_]{0,3}[ \t]*+$"
)
_PARAGRAPHS = re.compile(r"\n[ \t]*+\n")


def extract_conclusion(text: str) -> str:
    """The text after the last "Conclusion:" or heading "Conclusion"; without one, the last paragraph.

    The conclusion ends at the next heading or list of sources.

        extract_conclusion("The Oss rises at Korrin [2].\\n\\nConclusion: It is short.") -> "It is short."
        extract_conclusion("## Conclusion\\nIt is short.\\n\\n## Sources\\n[2] Oss") -> "It is short."
    """
    marks = list(_CONCLUDES.finditer(text))
    if marks:
        rest = text[marks[-1].end() :]
        ends = [found.start() for pattern in (_TITLE, _END_MATTER) if (found := pattern.search(rest))]
        concluded = rest[: min(ends, default=len(rest))].strip()
        if concluded:
            return concluded
        text = text[: marks[-1].start()]  # the heading has no text below it: look for the last paragraph before it
    listed = list(_END_MATTER.finditer(text))
    if listed and text[: listed[-1].start()].strip():
        text = text[: listed[-1].start()]
    paragraphs = [part.strip() for part in _PARAGRAPHS.split(text) if part.strip()]
    stated = [part for part in paragraphs if "\n" in part or not _is_heading(part, part[_marker_end(part) :])]
    return (stated or paragraphs or [""])[-1]


def make_report(question: Question, text: str, sources: Iterable[Source]) -> Report:
    """The report with this text: its statements, its conclusion, and those of the sources that it cites."""
    statements = split_statements(text)
    cited = {number for statement in statements for number in statement.citations}
    kept = tuple(source for source in sources if source.number in cited)
    return Report(question, text, statements, kept, extract_conclusion(text))


# --------------------------------------------------------------------------------------------------- hard-wrapped lines

_MIN_CHARS, _MAX_CHARS = 55, 120  # a shorter line was not full, and a longer one was never wrapped
# What always begins a new line: list items, table rows, headings, quotations, fields, directives, options, rules.
_OWN_LINE = re.compile(
    r"[ \t]*+(?:[-*+•–o·][ \t]|(?:[0-9]{1,3}|[a-zA-Z])[.)][ \t]|\((?:[0-9]{1,3}|[a-zA-Z])\)[ \t]|\[[0-9]{1,3}\]"
    r"|\||#{1,6}[ \t]|>|:\w[\w -]*+:(?=\s|$)|\.\. |==|--|```|~~~|[{}@$%])"
)
_LINE_ENDED = re.compile(r"[.!?…:;؟۔।॥։።。！？][\"'”’»“‘«)\]*_`]*+$")


def starts_own_line(line: str) -> bool:
    """True if the line cannot be the middle of a sentence: it opens an item, a row, a heading or the like."""
    return _OWN_LINE.match(line) is not None


def goes_on(line: str, following: str, width: int) -> bool:
    """True if a sentence goes on from a line to the next; `width` is the length of the longest line around.

    That is so if the next line begins in lower case, or if its first word would not have fitted into the line.
    """
    line = line.rstrip()
    if not line or _LINE_ENDED.search(line[-8:]) or starts_own_line(following) or line.lstrip()[:1] in ("|", "#"):
        return False
    first = next(iter(following.split(maxsplit=1)), "")
    is_full = _MIN_CHARS <= len(line) <= _MAX_CHARS and width <= _MAX_CHARS and len(line) + 1 + len(first) > width
    return first[:1].islower() or is_full
