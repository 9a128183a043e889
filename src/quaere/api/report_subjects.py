"""Subjects of a question: what it names, under which names, and which texts name it.

    find_subjects("What connects the Oss with Halm?", [Passage(title="River Oss", ...)])
    -> [Subject("Oss", (("oss",), ("river", "oss"))), Subject("Halm", (("halm",),))]

Names are compared as terms, and whole: "Lower Halm Bridge" does not name the Halm Bridge.
"""

import re
from collections.abc import Sequence
from itertools import chain, islice

from msgspec import Struct

from quaere.chat.question_wordings import FORMS, PRACTICE_FORMS
from quaere.evaluation.reports.lexical import content_words
from quaere.records import Passage
from quaere.rollout.topic_questions import bare_title, find_phrases
from quaere.search.words import terms

Terms = tuple[str, ...]

_COMMON = 0.5  # share of the passages that have a name which says nothing: that of the product in its manual
_MIN_PASSAGES = 20  # with fewer, every name may be in most of them
_MAX_NAMES = 3  # other names of its subject that a passage may state
# Words of questions that ask for all that is known of something.
_ASKING = frozenset(content_words(" ".join(chain.from_iterable((*FORMS.values(), *PRACTICE_FORMS.values())))))
_TITLE = re.compile(r"(?<=\bDr|\bMr|\bMs|\bSt)\.(?= )")
_POSSESSIVE = re.compile("['’]s\\b")
_NAME = r"[A-Z][\w'’-]*+(?: (?:of (?:the )?|the )?[A-Z][\w'’-]*+)*+"
_OTHER_NAME = re.compile(
    rf"(?:, or|\b(?:called|nicknamed|formerly|known(?: \w++){{0,2}} as|knew \w++(?: \w++)? as)) (?:the )?({_NAME})"
)


class Subject(Struct, frozen=True):
    """Something that a question names; `forms` are its names, as terms.

    Subject("River Oss", forms=(("river", "oss"), ("oss",)))
    """

    name: str
    forms: tuple[Terms, ...]

    def is_title(self, title: str) -> bool:
        """True for the title of a document about the subject."""
        return any(form in self.forms for form in title_forms(title))

    def is_named(self, text: str) -> bool:
        """True if the text has a name of the subject that is no part of a longer name: not "Lower Halm Bridge"."""
        text = _POSSESSIVE.sub("", text)
        for start, end in reversed(find_phrases(text)):
            words = name_terms(text[start:end])
            if words not in self.forms and any(_find(form, words) is not None for form in self.forms):
                text = text[:start] + text[end:]
        words = tuple(terms(text))
        return any(_find(form, words) is not None for form in self.forms)


def find_subjects(text: str, passages: Sequence[Passage]) -> list[Subject]:
    """What a question names: titles of these passages, then its other capitalised names.

    A title of one word that the question does not capitalise counts only if there is no other subject. A name that is
    no title stands for every title that contains it ("the Oss" for "River Oss"), unless most passages have it.
    """
    text = _POSSESSIVE.sub("", _TITLE.sub("", text))  # or "Dr. Zero" is read as "Dr"
    asked = tuple(terms(text))
    titles = {words: one.title for one in passages for words in title_forms(one.title)}
    phrases = {name_terms(text[start:end]): text[start:end] for start, end in find_phrases(text)}
    phrases.pop(("i",), None)  # the one who asks
    capitals = {word for words in phrases for word in words}
    found: dict[range, Subject] = {}
    doubtful: list[Subject] = []
    longest_first = sorted(titles.items(), key=lambda one: -len(one[0]))
    for words, name in [*longest_first, *phrases.items()]:
        at = _find(words, asked)
        if at is None or any(place in covered for covered in found for place in range(at, at + len(words))):
            continue
        if words not in titles and _is_common(words, passages):
            continue
        is_known = words in titles
        others = title_forms(name) if is_known else [title for title in titles if _find(words, title) is not None]
        subject = Subject(bare_title(name) if is_known else name, tuple(dict.fromkeys((words, *others))))
        if len(words) > 1 or words[0] in capitals:
            found[range(at, at + len(words))] = subject
        else:
            doubtful.append(subject)
    return [found[place] for place in sorted(found, key=lambda place: place.start)] or doubtful


def asks_more(question: str, subjects: Sequence[Subject]) -> bool:
    """True if a question asks for something of its subjects, or names none; False for "What is known of the Oss?"."""
    named = {word for one in subjects for form in one.forms for word in content_words(" ".join(form))}
    return not subjects or not _ASKING.issuperset(set(content_words(question)) - named)


def _is_common(words: Terms, passages: Sequence[Passage]) -> bool:
    if len(passages) < _MIN_PASSAGES:
        return False
    num_with = sum(_find(words, tuple(terms(one.titled_text))) is not None for one in passages)
    return num_with > _COMMON * len(passages)


def find_other_names(subject: Subject, passages: Sequence[Passage]) -> list[str]:
    """Other names of the subject that documents about it state: "Halm, also called Halmgate, is a town"."""
    own = (passage.text for passage in passages if subject.is_title(passage.title))
    found = (match.group(1) for text in own for match in islice(_OTHER_NAME.finditer(text), _MAX_NAMES))
    return [name for name in dict.fromkeys(found) if name_terms(name) not in subject.forms]


def title_forms(title: str) -> list[Terms]:
    """The terms of a title and of the name in it.

    title_forms("r.his - GRASS manual") -> [("r", "his", "grass", "manual"), ("r", "his")]
    """
    return [words for words in dict.fromkeys(map(name_terms, (title, bare_title(title)))) if words]


def name_terms(name: str) -> Terms:
    """The terms of a name without function words at its start: name_terms("Although the Oss's") -> ("oss",)."""
    words = _POSSESSIVE.sub("", name).split()
    while len(words) > 1 and not content_words(words[0]):
        words = words[1:]
    return tuple(terms(" ".join(words)))


def _find(words: Terms, among: Terms) -> int | None:
    places = (at for at in range(len(among) - len(words) + 1) if among[at : at + len(words)] == words)
    return next(places, None) if words else None
