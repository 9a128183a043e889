"""Chains: questions that join two checked facts by a name (the bridge), so that answering takes two searches.

    second = Worded(..., question="When was Orsolya Venn born?")
    find_bridges([second], index, topk=10)   -> [Bridge(fact=Fact(..., answer="Orsolya Venn"), second=second)]
    chain(bridge, "the builder of Halm Bridge").question -> "When was the builder of Halm Bridge born?"

The second question is a checked one. In another document that contains a name or identifier of that question, the model
finds a description of it; the description replaces the name. Documents with a hyperlink to the question's document come
first, and are used even if the link's text is another name. The writer checks the description and the chain separately,
and keeps the chain only if a search with its question does not return the passage of the answer.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from quaere.chat.statements import split_statements
from quaere.records import Passage, Statement
from quaere.rewards.answers import contains
from quaere.search.index import Index
from quaere.search.link_graph import Backlink
from quaere.warmup.documents.askable_facts import Fact, find_spans, page_name
from quaere.warmup.documents.checked_question import Draft, Worded
from quaere.warmup.documents.checks import Examiner, search_all, shares_words, word_overlap

_HANDLES = ("name", "identifier", "option")  # kinds of span that other documents may name
_MAX_HANDLES = 2  # names of a question that are tried
_MAX_SOURCES = 8  # passages that describe one name of one question
_TOPK = 40  # passages searched for a name
_NAMES_AT_ONCE = 256
_MIN_CHARS = 4  # letters of a name: shorter ones are mostly ordinary words
_MAX_ANCHORS = 200  # hyperlinks to a page that are looked at: some pages have thousands
_MAX_ANCHOR_WORDS = 6
_QUALIFIED = re.compile(r"\([^()]*\)(?:$| [-–|] )")  # "Sarah Connor (singer)", "Rick Wilson (jockey) - Family"
_MIN_SAID = 4  # plain words of a statement outside the anchor: a list of hyperlinks ("See also") describes nothing
_PLAIN = re.compile(r"(?<!\S)[(\"“]?[a-z]{2,}[)\"”,.;:]*(?!\S)")
# Link texts that give a place and no name: "Section 8.6", "Table 2".
_NUMBERED = re.compile(r"(?:section|chapter|appendix|part|table|figure|example|page|step)\W+(?:\w\.)?\d", re.IGNORECASE)


class Bridge(Struct, frozen=True):
    """A link between a checked question and another document: the first half of a chain.

    The answer of `fact` is the `name` in the question of `second`, or the text of a hyperlink to its page.

        Bridge(Fact(..., answer="Orsolya Venn"), Worded(..., "When was Orsolya Venn born?"), name="Orsolya Venn")
    """

    fact: Fact
    second: Worded
    name: str


def find_handles(worded: Worded) -> list[str]:
    """Names in a question that another document may use for the same thing; each occurs once in the question.

    find_handles(Worded(..., "When was Orsolya Venn born?")) == ["Orsolya Venn"]
    """
    passage, question = worded.fact.passage, worded.question
    if _QUALIFIED.search(passage.title):
        return []  # other pages have that name too
    trail = [page_name(part) for part in (passage.title, *reversed(passage.heading.split(" > ")))]
    inside = [question[start:end] for kind, start, end in find_spans(question) if kind in _HANDLES]
    handles = dict.fromkeys(name.removeprefix("The ") for name in (*trail, *inside) if len(name) >= _MIN_CHARS)
    once = [name for name in handles if len(_pattern(name).findall(question)) == 1]
    return [name for name in once if contains(passage.titled_text, name)]


def iterate_named(
    passages: Sequence[Passage], index: Index, report: Callable[[int], None] = lambda done: None
) -> Iterator[Passage]:
    """The passages whose page is named by another document, in order; the index is searched lazily, in blocks.

    Only questions about such pages can be the second half of a chain. `report` is called with the passages looked at.
    """
    is_named: dict[str, bool] = {"": False}  # by name
    for first in range(0, len(passages), _NAMES_AT_ONCE):
        report(first)
        named = [(passage, _find_page_name(passage)) for passage in passages[first : first + _NAMES_AT_ONCE]]
        new = {name: passage for passage, name in named if name not in is_named}
        for (name, passage), hits in zip(new.items(), search_all(index, list(new), _TOPK), strict=True):
            is_named[name] = any(_names_page(hit.passage, passage, name) for hit in hits)
        yield from (passage for passage, name in named if is_named[name])


def _find_page_name(passage: Passage) -> str:
    """The name that other documents may use for the page; "" if it has none, or if the name is a common word."""
    name = page_name(passage.title).removeprefix("The ")
    is_common = len(name) < _MIN_CHARS or (name.isalpha() and (name[1:].islower() or name.isupper()))
    return "" if is_common or _QUALIFIED.search(passage.title) else name


def _names_page(other: Passage, passage: Passage, name: str) -> bool:
    is_candidate = other.doc_id != passage.doc_id and name in other.text and name not in other.title
    return is_candidate and _pattern(name).search(other.text) is not None


def find_far(worded: Sequence[Worded], index: Index, topk: int) -> list[tuple[Worded, str]]:
    """Pairs of question and name such that a search with the question minus the name does not return its passage.

    If the search returned it, a chain that hides the name would need only one search.
    """
    named = [(item, name) for item in worded for name in find_handles(item)[:_MAX_HANDLES]]
    queries = [_pattern(name).sub("", item.question) for item, name in named]
    return [
        (item, name)
        for (item, name), hits in zip(named, search_all(index, queries, topk), strict=True)
        if all(hit.passage.id != item.fact.passage.id for hit in hits)
    ]


def find_bridges(kept: Sequence[Worded], index: Index, topk: int) -> list[Bridge]:
    """For each question and name in it, passages of other documents that contain the name and not the answer.

    Passages with a hyperlink to the question's document come first. Questions whose passage is among the `topk` hits
    even without the name are left out.
    """
    named = find_far(kept, index, topk)
    bridges: list[Bridge] = []
    for (worded, name), hits in zip(named, search_all(index, [name for _, name in named], _TOPK), strict=True):
        anchors = itertools.islice(index.links_to(worded.fact.passage.doc_id), _MAX_ANCHORS)
        linked = (_read_anchor(anchor, worded, name) for anchor in anchors)
        found = (_find_mention(hit.passage, name) for hit in hits if contains(hit.passage.text, name))
        facts = (fact for fact in itertools.chain(linked, found) if fact and _leads(fact, worded, name))
        bridges += [Bridge(fact, worded, name) for fact in itertools.islice(_drop_repeated(facts), _MAX_SOURCES)]
    return bridges


def find_shown_bridge(second: Worded, question: str, shown: Iterable[Passage]) -> Bridge | None:
    """The bridge that a rewording of `second` rests on, None if there is none.

    A name of its question is missing from the rewording, and a shown passage of another document says something of it.
    Among several, the sentence that has most of the rewording's words is taken.

        find_shown_bridge(Worded(..., "When was Orsolya Venn born?"), "When was the builder of Halm born?", [halm])
        -> Bridge(fact=Fact(..., sentence="Orsolya Venn built Halm.", answer="Orsolya Venn"), second=..., name=...)
    """
    missing = [name for name in find_handles(second) if not contains(question, name)]
    found = [
        Bridge(fact, second, name)
        for passage in shown
        for name in missing
        if (fact := _find_mention(passage, name)) and _leads(fact, second, name)
    ]
    return max(found, key=lambda bridge: word_overlap(question, bridge.fact.sentence), default=None)


def _drop_repeated(facts: Iterable[Fact]) -> Iterator[Fact]:
    """The facts without those of a passage that already gave one."""
    seen: set[str] = set()
    for fact in facts:
        if fact.passage.id not in seen:
            seen.add(fact.passage.id)
            yield fact


def _leads(fact: Fact, worded: Worded, name: str) -> bool:
    """True if the fact's passage is of another document, has another title than the name, and lacks the answer."""
    source, shown = fact.passage, fact.passage.titled_text
    is_other = source.doc_id != worded.fact.passage.doc_id
    is_untitled = not any(contains(source.title, each) for each in (name, fact.answer))
    return is_other and is_untitled and not any(contains(shown, said) for said in worded.answers)


def _find_mention(source: Passage, name: str) -> Fact | None:
    """The first statement of the passage with the name, as a fact whose answer is the name; None if there is none."""
    found = ((said, _pattern(name).search(said.text)) for said in split_statements(source.text))
    return next(
        (
            _make_fact(source, said, said.start + match.start("name"), said.start + match.end("name"))
            for said, match in found
            if match
        ),
        None,
    )


def _read_anchor(link: Backlink, worded: Worded, name: str) -> Fact | None:
    """A fact from a link to the question's page; its answer is the name if the link's text contains it.

    Otherwise the answer is the whole link text, if `name` is the page's own name; None if it is not, or not a name.
    """
    source, start, end = link.passage, link.start, link.end
    said = next((each for each in split_statements(source.text) if each.start <= start and end <= each.end), None)
    if said is None:
        return None
    anchor = source.text[start:end]
    if found := _pattern(name).search(anchor):
        start, end = start + found.start("name"), start + found.end("name")
    elif link.to_part or name != page_name(worded.fact.passage.title).removeprefix("The "):
        return None  # `name` is not the page's own name, so the link's text does not stand for it
    elif not contains(anchor, name) and not _is_name(said, start, end, worded.question):
        return None
    num_plain = len(_PLAIN.findall(said.text)) - len(_PLAIN.findall(source.text[start:end]))
    return _make_fact(source, said, start, end) if num_plain >= _MIN_SAID else None


def _is_name(said: Statement, start: int, end: int, question: str) -> bool:
    """True if the link text is short, contains a name, and does not occur in the question."""
    start, end = start - said.start, end - said.start
    anchor = said.text[start:end]
    is_short = len(anchor) >= _MIN_CHARS and len(anchor.split()) <= _MAX_ANCHOR_WORDS
    if not is_short or _NUMBERED.match(anchor) or contains(question, anchor):
        return False
    # An identifier usually names a part ("limits.cpu") and not the page.
    return any(kind == "name" and first < end and start < last for kind, first, last in find_spans(said.text))


def _make_fact(source: Passage, said: Statement, start: int, end: int) -> Fact:
    # The end is part of the id: two names may begin at one place ("Halm", "Halm Bridge").
    name_id = f"{source.id}:{start}-{end}"
    return Fact(name_id, source, page_name(source.title), said.text, said.start, start, end, "name")


def _pattern(name: str) -> re.Pattern[str]:
    """Pattern of the name as whole words, including a "the" before it: a description brings its own article."""
    return re.compile(rf"(?<![\w-])(?:[Tt]he )?(?P<name>{re.escape(name)})(?![\w-])")


def chain(bridge: Bridge, description: str) -> Worded | None:
    """The second question with the description for the name; None if the description has a word of the answer."""
    second = bridge.second
    question, count = _pattern(bridge.name).subn(lambda found: description, second.question)
    if count != 1 or shares_words(description, second.answers[-1], ()):
        return None
    return word_chain(bridge, question[0].upper() + question[1:])


def word_chain(bridge: Bridge, question: str) -> Worded:
    """The chain over this bridge with this question, which must not contain the bridge's name."""
    first, second = bridge.fact, bridge.second
    draft = Draft(f"{first.id}>{second.fact.id}", "chain", (first, second.fact), second.answers, hidden=bridge.name)
    return Worded(draft, question)


# -------------------------------------------------------------------------------------------------------- descriptions


def find_description_fault(description: str, name: str) -> str:
    """Why a line cannot replace a name inside a question, in a few words; "" if it can.

    find_description_fault("Orsolya Venn", "Orsolya Venn") == "is no description"
    """
    words = description.split()
    is_phrase = 3 <= len(words) <= 20 and words[0] in ("the", "a", "an")
    if not is_phrase or re.search(r"[?!:;]", description) or description.count('"') % 2:
        return "is no description"
    return "names what it should describe" if shares_words(description, name, ()) else ""


def clean_description(line: str) -> str:
    """A description in the form for the middle of a question: lower-case article, no full stop.

    clean_description("The builder of Halm.") == "the builder of Halm"
    """
    line = line.rstrip(".").strip()
    return line[:1].lower() + line[1:] if line.startswith(("The ", "A ", "An ")) else line


def cut_description(bridge: Bridge, question: str) -> str:
    """What a rewording has in place of the bridge's name, as `chain` puts it there; "" if more than the name differs.

    cut_description(Bridge(..., name="Orsolya Venn"), "When was the builder of Halm born?") == "the builder of Halm"
    """
    given = bridge.second.question
    found = _pattern(bridge.name).search(given)
    start, end = (given[: found.start()], given[found.end() :]) if found else ("", given)
    middle = question[len(start) : len(question) - len(end)]
    return clean_description(middle) if (start + middle + end).lower() == question.lower() else ""


async def check_descriptions(examiner: Examiner, name: str, described: Sequence[tuple[Fact, str]]) -> list[bool]:
    """Per name (a fact's answer) and description, whether the description leads to the name.

    A search with it finds the fact's passage, the model calls it clear, and reads the name in the passage.
    """
    asked = [
        Worded(Draft(fact.id, "single", (fact,), (fact.answer,)), f"Who or what is {text}?") for fact, text in described
    ]
    await examiner.search([worded.question for worded in asked])
    led = [at for at, worded in enumerate(asked) if examiner.finds(worded.question, worded)]
    clear = await examiner.are_clear(name, [asked[at] for at in led])
    led = list(itertools.compress(led, clear))
    shares = await examiner.read(name, [asked[at] for at in led])
    good = set(itertools.compress(led, shares))
    return [at in good for at in range(len(asked))]


def iterate_chains(bridges: Sequence[Bridge], descriptions: dict[str, str]) -> Iterator[Worded]:
    """The chains of all bridges that have a description."""
    made = (chain(one, descriptions[one.fact.id]) for one in bridges if one.fact.id in descriptions)
    return (worded for worded in made if worded)
