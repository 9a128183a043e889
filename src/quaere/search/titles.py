"""Detection of meaningless titles that programs write into files by default.

choose_title("Microsoft Word - minutes_v3.doc", "Minutes of the bridge board") == "Minutes of the bridge board"
"""

from __future__ import annotations

import re

_MAX_CHARS = 200
_PROGRAM = re.compile(r"microsoft (?:word|excel|powerpoint|office)\b", re.IGNORECASE)
_FILE_NAME = re.compile(
    r"\.(?:docx?|dotx?|rtf|odt|pptx?|odp|xlsx?|ods|pdf|html?|tex|dvi|ps|indd|qxd|pages|tmp|txt|md)$", re.IGNORECASE
)
_EMPTY_NAMES = re.compile(
    r"(?:untitled|unnamed|unbenannt|ohne titel|sans titre|sin título|sem título|senza titolo"
    r"|без названия|無題|无标题|제목 없음"
    r"|no title|document|dokument|documento|slide|folie|diapositive?|diapositiva|presentation|präsentation|présentation"
    r"|powerpoint[ -]?(?:presentation|präsentation)|présentation powerpoint|book|mappe|classeur|sheet|tabelle|feuil"
    r"|page|new page|title|titel)"
    r"(?:[ _-]?(?:document|dokument|page|presentation))?[ _-]?\(?\d{0,4}\)?",
    re.IGNORECASE,
)


def choose_title(*candidates: str) -> str:
    """The first of these that says something, on one line; "" if none does."""
    lines = (" ".join(candidate.split())[:_MAX_CHARS] for candidate in candidates)
    return next((line for line in lines if not is_junk(line)), "")


def is_junk(title: str) -> bool:
    """True for an empty title, a program's default, and the name of a file.

    [is_junk(title) for title in ("Slide 1", "Document1", "report_v2.docx", "Slide rules")] == [True, True, True, False]
    """
    says_something = any(character.isalnum() for character in title)
    return (
        not says_something
        or _PROGRAM.match(title) is not None
        or _FILE_NAME.search(title) is not None
        or _EMPTY_NAMES.fullmatch(title) is not None
    )
