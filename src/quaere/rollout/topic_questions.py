"""Open-ended questions about the documents of an index, generated from templates or rewritten by a model.

    drawn = draw_open_questions(index, num=40, seed=7)
    drawn[0]    # OpenQuestion(id="5f2c1a-00000", question="What is known of River Oss?", kind="overview", ...)
    rewritten, faults = await rewrite_questions(policy, index, drawn, temperature=0.8)

Every question is about documents that a search for the topic's name returns, and no two questions are equal.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct, structs

from quaere.chat.question_wordings import FORMS, KINDS, PAIRED, OpenKind, QuestionWriter, fill_form, find_question_fault
from quaere.errors import BadInput, SamplingFailed
from quaere.policies.sampler import SamplingParams
from quaere.records import Passage, Proposal, ProposeTask
from quaere.rollout.episode import Job, Limits, run_many
from quaere.rollout.policy import Policy
from quaere.search.index import Index
from quaere.search.searcher import NoSearcher
from quaere.search.words import terms
from quaere.worlds.dice import Dice

TEMPLATE = "template"
_LIMITS = Limits(max_turns=1, turn_tokens=192, sequence_tokens=2048)


class OpenQuestion(Struct, frozen=True):
    """A line of a question file: question, kind, topics, the documents about the topics, and who wrote the question.

    {"id": "5f2c1a-00003", "question": "What connects River Oss with Halm?", "kind": "connection",
     "topics": ["River Oss", "Halm"], "doc_ids": ["rivers.md", "halm.md"], "writer": "template"}
    """

    id: str
    question: str
    kind: OpenKind
    topics: tuple[str, ...]
    doc_ids: tuple[str, ...]
    writer: str = TEMPLATE


def draw_open_questions(
    index: Index, num: int, seed: int, *, topk: int = 5, report: Callable[[int], None] = lambda num_drawn: None
) -> list[OpenQuestion]:
    """`num` different questions from templates.

    A document is reused only after every document has a question, and then with another kind or template. A topic is
    used only if a search for its name returns its document among the first `topk` results. Raises BadInput if the index
    has too few topics.
    """
    if num < 1:
        raise BadInput(f"the number of questions must be at least 1, not {num}", hint="--num 1 or more")
    topics, dice = Topics(index, seed, topk), Dice(seed, "open questions")
    drawn: list[OpenQuestion] = []
    asked: set[str] = set()
    for kind, number in _rounds(len(topics), dice):
        topic = topics.find(number)
        worded = _word(topics, topic, kind, dice, asked) if topic else None
        if worded is None:
            continue
        asked.add(_key(worded.question))
        drawn.append(structs.replace(worded, id=f"{index.fingerprint[:6]}-{len(drawn):05d}"))
        report(len(drawn))
        if len(drawn) == num:
            return drawn
    hint = f"--num {len(drawn)}, or index more documents" if drawn else "index documents that have titles"
    raise BadInput(f"the documents allow only {len(drawn)} different open questions, not {num}", hint=hint)


def _rounds(num_topics: int, dice: Dice) -> Iterator[tuple[OpenKind, int]]:
    """Pairs (kind, topic number): each round pairs every topic with one kind, shifted by one in the next round."""
    kinds = list(KINDS)
    dice.shuffle(kinds)
    num_forms = max(map(len, FORMS.values()))
    for round_ in range(len(kinds) * num_forms):
        for number in range(num_topics):
            yield kinds[(round_ + number) % len(kinds)], number


def _word(topics: Topics, topic: Topic, kind: OpenKind, dice: Dice, asked: set[str]) -> OpenQuestion | None:
    """A question of this kind that is not in `asked`; None if the topic has none left."""
    others = _others(topics, topic, kind)
    if kind in PAIRED and not others:
        return None
    forms = list(FORMS[kind])
    dice.shuffle(forms)
    other: Topic | str = dice.pick(others) if others else ""
    name = other.name if isinstance(other, Topic) else other
    for form in forms:
        text = fill_form(form, X=topic.name, Y=name)
        if _key(text) not in asked:
            found = other.doc_ids[:1] if isinstance(other, Topic) else ()
            return OpenQuestion("", text, kind, (topic.name, *([name] if name else [])), (*topic.doc_ids[:1], *found))
    return None


def _others(topics: Topics, topic: Topic, kind: OpenKind) -> Sequence[Topic | str]:
    """Candidates for the second topic of a paired question: topics, or terms of the first topic's document."""
    found: dict[OpenKind, Callable[[Topic], Sequence[Topic | str]]] = {
        "comparison": topics.similar,
        "connection": topics.linked,
        "detail": lambda topic: [one for one in topics.terms(topic.passage) if one.lower() != topic.name.lower()],
    }
    return found[kind](topic) if kind in found else []


def _key(question: str) -> str:
    """Key that is equal for questions with the same words in any order ("How do A and B compare", "... B and A")."""
    return " ".join(sorted(terms(question)))


# ------------------------------------------------------------------------------------------------- written by a model


async def rewrite_questions(
    policy: Policy,
    index: Index,
    drawn: Sequence[OpenQuestion],
    *,
    temperature: float,
    guided: bool = False,
    seed: int = 0,
    concurrency: int = 32,
    report: Callable[[int], None] = lambda num_done: None,
) -> tuple[list[OpenQuestion], Counter[str]]:
    """Questions as the model words them after reading the topic's document.

    Where a rewrite is unusable, the template's question stays. The counter holds the reasons why rewrites were refused.
    A rewritten question is about one topic.
    """
    passages = {question.id: _show(index, question) for question in drawn}
    protocol = QuestionWriter({question.id: question.topics[0] for question in drawn}, guided=guided)
    jobs = [Job(protocol, ProposeTask(question.id, passages[question.id], hops=0)) for question in drawn]
    params = SamplingParams(temperature=temperature)
    written, faults = list(drawn), Counter[str]()
    taken = {_key(question.question) for question in drawn}
    episodes = run_many(policy, jobs, NoSearcher(), _LIMITS, seed=seed, params=params, concurrency=concurrency)
    number, failures = 0, []
    async for episode in episodes:
        before, text = drawn[number], episode.outcome.question if isinstance(episode.outcome, Proposal) else ""
        fault = _find_fault(text, before, passages[before.id], taken)
        failures += [turn.failure for turn in episode.turns if turn.failure and episode.end == "failed"]
        if fault:
            faults[fault] += 1
        else:
            taken.add(_key(text))
            written[number] = structs.replace(
                before,
                question=text,
                kind="overview" if before.kind in PAIRED else before.kind,
                topics=before.topics[:1],
                doc_ids=before.doc_ids[:1],
                writer=policy.name,
            )
        number += 1
        report(number)
    if failures and len(failures) == len(drawn):
        # No request succeeded: this is an outage, and must not be reported as faults of the model's questions.
        raise SamplingFailed(failures[0].message)
    return written, faults


def _show(index: Index, question: OpenQuestion) -> Passage:
    hits = index.search([question.topics[0]], 20)[0]
    return next(hit.passage for hit in hits if hit.passage.doc_id == question.doc_ids[0])


def _find_fault(text: str, before: OpenQuestion, passage: Passage, taken: set[str]) -> str:
    if not text:
        return "no question was written"
    return find_question_fault(text, before.topics[0], passage) or ("was asked already" if _key(text) in taken else "")


# --------------------------------------------------------------------------------------------------------------- topics

_MAX_READ = 100_000  # passages read for titles; of a larger index, evenly spaced passages
_MAX_CHARS = 20_000  # characters of a document that are scanned for names
_MAX_TITLE_WORDS, _MAX_TITLE_CHARS = 12, 100
_NUM_TERMS = 4
_MAX_TOLD = 30  # words of the first sentence used as the query for similar documents
_MIN_LETTERS = 4  # minimum length of a term
_WORD = re.compile(r"\w[\w'’-]*")
_CAPITAL = r"[A-Z\u00C0-\u00DE\u0391-\u03A9\u0410-\u042F][\w'’-]*"
# "River Oss", "Order of the Grey Heron"
_PHRASE = re.compile(rf"{_CAPITAL}(?: (?:(?:of the|of|de la|de|von|van der|van|du|del|di) )?{_CAPITAL})*")
# Words that are capitalised only at the start of a sentence.
_SMALL = frozenset(
    "a an and as at but by for from he her his if in is it its no of on or she so the they to we".split()
)
_SENTENCE = re.compile(r"[^.!?\n]+")
_NUMBERED = re.compile(r"^(?:(?:chapter|section|appendix|part)\s+[\dA-Z]+[.:]?|\d+(?:\.\d+)*\.?)\s+", re.IGNORECASE)
_SITE = re.compile(r" [-–|] [^-–|]+$")
_FILE_NAME = re.compile(r"\.\w{1,5}$|_|^\W*$|^[\d\W]+$")


class Topic(Struct, frozen=True):
    """A subject to ask about, and the documents about it. `passage` belongs to the first of `doc_ids`.

    Topic(name="River Oss", doc_ids=("rivers.md",), passage=Passage(id="rivers.md#0", ...))
    """

    name: str
    doc_ids: tuple[str, ...]
    passage: Passage


class Topics:
    """The topics of an index, shuffled by the seed."""

    def __init__(self, index: Index, seed: int, topk: int = 5) -> None:
        self.index, self.topk = index, topk
        self._openings: list[Passage] = []  # first passage of one document per name
        self._doc_ids: dict[str, list[str]] = {}  # document ids by the name of the page
        self._by_words: dict[tuple[str, ...], Passage] = {}
        first: dict[str, Passage] = {}
        for passage in self._read():
            first.setdefault(passage.doc_id, passage)
        for passage in first.values():
            name = _name(passage)
            key = name or f"#{passage.doc_id}"
            if key not in self._doc_ids:
                self._openings.append(passage)
                if name and (words := _words(name)):
                    self._by_words.setdefault(words, passage)
            self._doc_ids.setdefault(key, []).append(passage.doc_id)
        Dice(seed, "topics").shuffle(self._openings)
        self._found: dict[int, Topic | None] = {}

    def __len__(self) -> int:
        """Number of candidate topics; `find` returns None for those that no search finds."""
        return len(self._openings)

    def find(self, number: int) -> Topic | None:
        """Topic `number`: the page's name, or a term of a document without title; None if no search finds it."""
        if number not in self._found:
            opening = self._openings[number]
            titled = self._titled(opening)
            names = [titled] if titled else [self._topic(term, opening) for term in self.terms(opening)]
            self._found[number] = next(self._grounded(names), None)
        return self._found[number]

    def _grounded(self, topics: Iterable[Topic]) -> Iterator[Topic]:
        """Topics whose name, used as a query, returns one of their documents; that document is moved to the front."""
        for topic in topics:
            hits = self.index.search([topic.name], self.topk)[0]
            found = next((hit.passage for hit in hits if hit.passage.doc_id in topic.doc_ids), None)
            if found is not None:
                others = tuple(doc_id for doc_id in topic.doc_ids if doc_id != found.doc_id)
                yield Topic(topic.name, (found.doc_id, *others), found)

    def linked(self, topic: Topic) -> list[Topic]:
        """Topics whose titles occur verbatim in this topic's document and that a search finds."""
        words = tuple(_WORD.findall(self._document(topic.doc_ids[0])))
        longest = max(map(len, self._by_words), default=0)
        found: dict[str, Topic] = {}
        for at in range(len(words)):
            for length in range(min(longest, len(words) - at), 0, -1):
                opening = self._by_words.get(_bare(words[at : at + length]))
                other = self._titled(opening) if opening is not None else None
                if other and other.name != topic.name and not set(other.doc_ids) & set(topic.doc_ids):
                    found.setdefault(other.name, other)
                    break
        return list(self._grounded(found.values()))

    def similar(self, topic: Topic) -> list[Topic]:
        """Titled topics whose documents are similar to the first sentence of this topic's passage."""
        sentence = _SENTENCE.search(topic.passage.text)
        told = [word for word in terms(sentence[0] if sentence else "") if word not in terms(topic.name)]
        hits = self.index.search([" ".join(told[:_MAX_TOLD]) or topic.name], 2 * self.topk)[0]
        openings = {hit.passage.title: hit.passage for hit in hits if hit.passage.doc_id not in topic.doc_ids}
        others = [self._titled(self._by_words.get(_words(_name(one)), one)) for one in openings.values()]
        return list(self._grounded(other for other in others if other and other.name != topic.name))

    def terms(self, opening: Passage) -> list[str]:
        """The most frequent names in a document outside its title: capitalised phrases, else its most frequent words.

        ["Korrin Vale", "Grey Water"]
        """
        text, title = self._document(opening.doc_id), opening.title.lower()
        counts = Counter(text[start:end] for start, end in find_phrases(text))
        phrases = [phrase for phrase in counts if len(phrase) >= _MIN_LETTERS and phrase.lower() not in title]
        if not phrases:
            words = Counter(word for word in terms(text) if len(word) >= _MIN_LETTERS and word not in title)
            return sorted(words, key=lambda word: (-words[word] * len(word), word))[:_NUM_TERMS]
        return sorted(phrases, key=lambda phrase: (-counts[phrase], -phrase.count(" "), phrase))[:_NUM_TERMS]

    # -------------------------------------------------------------------------------------------------- reading

    def _read(self) -> Iterator[Passage]:
        if len(self.index) <= _MAX_READ:
            return self.index.passages()
        return map(self.index.passage, range(0, len(self.index), -(-len(self.index) // _MAX_READ)))

    def _titled(self, opening: Passage) -> Topic | None:
        name = _name(opening)
        return self._topic(name, opening) if name else None

    def _topic(self, name: str, opening: Passage) -> Topic:
        return Topic(name, tuple(self._doc_ids.get(name, [opening.doc_id])), opening)

    def _document(self, doc_id: str) -> str:
        return self.index.document(doc_id)[:_MAX_CHARS]


def is_title(title: str) -> bool:
    """True if the title is a name that can be asked about, not a file name, a number or a whole sentence.

    is_title("River Oss"), not is_title("notes_2.md"), not is_title("")
    """
    fits = 1 <= len(title.split()) <= _MAX_TITLE_WORDS and len(title) <= _MAX_TITLE_CHARS
    return fits and len(title.strip()) > 1 and _FILE_NAME.search(title) is None


def bare_title(title: str) -> str:
    """The title without numbering and without the section or web site that its end names.

    bare_title("5.1. Types of Accounts") == "Types of Accounts"; bare_title("r.his - GRASS manual") == "r.his"
    """
    title = title.strip()
    bare = _NUMBERED.sub("", _SITE.sub("", title))
    return bare if len(bare) > 1 else title


def _name(passage: Passage) -> str:
    """The name of the passage's page; "" if its title is not a name."""
    return bare_title(passage.title) if is_title(passage.title) else ""


def _words(title: str) -> tuple[str, ...]:
    return _bare(tuple(_WORD.findall(title)))


def _bare(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words without a leading "The", which running text lowercases or omits; () if the first word is lowercase."""
    if len(words) > 1 and words[0] in ("The", "the"):
        words = words[1:]
    return words if words and not words[0][0].islower() else ()


def _is_name(text: str, match: re.Match[str]) -> bool:
    """False for a single word that may be capitalised only because it starts a sentence."""
    before = text[max(0, match.start() - 4) : match.start()].rstrip(" \t\"'“(")
    return " " in match[0] or (bool(before) and before[-1] not in ".!?\n:#>*-")


def find_phrases(text: str) -> list[tuple[int, int]]:
    """(start, end) of each name in a text: adjacent capitalised words, without a small word that starts a sentence.

    find_phrases("On Mondays the Korrin Vale is dry.") -> [(3, 10), (15, 26)]
    """
    return [_drop_small(match) for match in _PHRASE.finditer(text) if _is_name(text, match)]


def _drop_small(match: re.Match[str]) -> tuple[int, int]:
    """Span of the match without a leading small word: "On Mondays" becomes "Mondays"."""
    first, _, rest = match[0].partition(" ")
    start = match.start() + len(first) + 1 if rest and first.lower() in _SMALL else match.start()
    return start, match.end()
