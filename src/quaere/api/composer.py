"""Reports composed of sentences of the documents, word for word and each with its citation; no model is needed.

    episode = await Composer(searcher).play(ReportTask(Question("q1", "What is known of the Oss?")))
    bind_report(episode).text -> "## River Oss\\n\\nThe Oss rises at Korrin [1]. ..."

A question names its subjects: titles of documents found for it, and capitalised names but for one that most passages
have. "What is known of the Oss?" asks for all that is known of them: question and subjects are searched for, and a
sentence of a passage found is a *finding* if it, or the title above it, names a subject. A question that asks more, or
has no subject, is answered by the passages nearest to it: their sentences with most of its words are the findings, rare
words counting more; but if no passage names what the question names, there are none. Findings are written document by
document, in reading order; one that several documents have is written once and cites them. A report with fewer
documents or sentences than it should have is filled up with what is nearest to its findings. With an outline, the
findings are collected for every heading, whose own words they must have too.

An episode of a composer has the form of a writer's, so it is stored, shown, bound and graded in the same way.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct, structs

from quaere.api.report_subjects import Subject, Terms, asks_more, find_other_names, find_subjects, name_terms
from quaere.chat.plain_text import plain_text
from quaere.chat.statements import extract_conclusion, find_citations, split_statements
from quaere.chat.terminal_text import UNPRINTABLE
from quaere.dialects.report.report_writer import numbered_sources
from quaere.evaluation.reports.joining import Joiner, Pair
from quaere.evaluation.reports.lexical import content_words
from quaere.grouping import group_by
from quaere.records import Answer, Episode, Hit, Passage, ReportTask, Search, SearchResult, Task, Turn
from quaere.rollout.topic_questions import find_phrases
from quaere.search.searcher import Searcher
from quaere.search.words import count_words, terms

PROTOCOL, MODEL = "report-writer", "composer"  # of its episodes
TOPK = 100  # passages per search; more than a model is shown, because reading them costs little
MIN_DOCUMENTS = 3  # with fewer, documents on names that the findings mention are added
MIN_SENTENCES = 6  # with fewer, sentences beside the findings are added, and none are joined
MAX_DOCUMENTS = 24  # of a section
_MAX_OF_SUBJECT, _MAX_OF_OTHER, _MAX_OF_LINKED = 24, 4, 2  # sentences of a document, by what it is about
_MAX_LINKS, _LINKS_TOPK = 12, 5  # names that are followed, and passages per search for them
_MIN_SHARE = 0.5  # of the words of a heading that a finding has
_NEAREST, _MAX_OF_NEAREST = 8, 5  # passages that may answer a question, and sentences of each
_MIN_TOLD = 12  # with fewer sentences, further passages are read
_MIN_NEAR = 0.2  # of the question's words that such a passage has
_MIN_WORDS, _MAX_WORDS = 4, 60
_MAX_CITED = 3  # passages that a sentence cites if several documents have it
_ENDING = re.compile(r"[.!…。！]+[\"'”’»)\]*_」』）]*+$")
# A line that introduces one line of code, and that line.
_CODE = re.compile(r"(?m)^(\S[^\n]*:)[ \t]*\n(?:[ \t]*\n)?(?: {4,}|\t)([^\n`]{2,100})(?=\n[ \t]*\n|\s*\Z)")
_EDGE_MARKS = re.compile(r"^(?:\[[0-9, \t]*+\][ \t]*+)++|(?:[ \t]*+\[[0-9, \t]*+\])++$")
# The middle of a sentence, a row of a table, an entry of a list of contents ("Lots in Account window, 9.24."), or what
# breaks off in two dots.
_UNFIT = re.compile(r"^[^\w\"'“‘«(*_`]|^[\"'“‘«(*_`]*+[a-z]|^\W*+$| \| |, \d+(?:\.\d+)++\.$|(?<!\.)\.\.\W*$")


class Finding(Struct, frozen=True):
    """A sentence of a passage, `text`, on one line; it begins at `start` of the passage.

    Finding("The Oss rises at Korrin.", passage=Passage(id="rivers.md#0", ...), start=0, score=2.0)
    """

    text: str
    passage: Passage
    start: int
    score: float = 0.0


class Wanted(Struct, frozen=True):
    """What a section is about: its subjects, and other words, with their weights, of which a finding has a share.

    Wanted(subjects=(Subject("River Oss", ...),), words={"bridg": 2.1}, min_share=0.5)
    """

    subjects: tuple[Subject, ...]
    words: Mapping[str, float] = {}
    min_share: float = 0.0

    def is_possible(self, passage: Passage) -> bool:
        """False if the passage cannot have a finding; much quicker than reading its sentences."""
        said = frozenset(terms(passage.titled_text))
        return not self.subjects or any(said.issuperset(form) for subject in self.subjects for form in subject.forms)

    def score(self, one: Finding) -> float:
        """How many subjects the sentence or a title above it names, plus its share of `words`; 0: no finding."""
        above = one.passage.title, one.passage.heading
        num_named = sum(
            subject.is_title(above[0]) or subject.is_named(above[1]) or subject.is_named(one.text)
            for subject in self.subjects
        )
        share = self.share(f"{above[0]} {above[1]} {one.text}")
        if not self.subjects and self.share(one.passage.titled_text) >= self.min_share:
            return share
        return num_named + share if share >= self.min_share and (num_named or not self.subjects) else 0.0

    def share(self, text: str) -> float:
        """The share of the words' weight that a text has; without words, 1 if there are subjects."""
        if not self.words:
            return float(bool(self.subjects))
        said = frozenset(content_words(text))
        return sum(weight for word, weight in self.words.items() if word in said) / sum(self.words.values())


def _wanted(text: str, subjects: tuple[Subject, ...], min_share: float, passages: Sequence[Passage]) -> Wanted:
    """What these words ask for; a word that few of the passages have weighs more."""
    named = {word for subject in subjects for form in subject.forms for word in content_words(" ".join(form))}
    words = frozenset(content_words(text)) - named
    num_with = Counter(word for one in passages for word in words & frozenset(content_words(one.titled_text)))
    return Wanted(subjects, {word: math.log(1 + len(passages) / max(1, num_with[word])) for word in words}, min_share)


class Composer(Struct, frozen=True):
    """Writes reports without a model; `outline` has the headings of their sections, the question alone by default.

    With a `joiner`, a model joins findings that follow each other in a passage, where a judge agrees.

    Composer(searcher, outline=("Source of the Oss", "Bridges"))
    """

    searcher: Searcher
    outline: tuple[str, ...] = ()
    topk: int = TOPK
    joiner: Joiner | None = None

    async def play(self, task: Task, *, episode_id: str = "", on_turn: Callable[[Turn], None] | None = None) -> Episode:
        """The episode of one report; without any finding it has no outcome."""
        assert isinstance(task, ReportTask)
        draft = _Draft(self.searcher, self.topk)
        await draft.write(task.question.text, self.outline)
        if self.joiner:
            await draft.join(self.joiner)
        turns = draft.turns()
        text = draft.text(turns)
        if text:
            turns.append(Turn(len(turns), text, Answer(text), "end_of_turn"))
        if on_turn:
            for turn in turns:
                on_turn(turn)
        given = (episode_id or task.id, task, PROTOCOL, MODEL, 0, (), tuple(turns))
        return Episode(*given, Answer(text), "answered") if text else Episode(*given, None, "turn_limit")

    async def play_many(self, tasks: Sequence[Task]) -> AsyncIterator[Episode]:
        """The episodes of several reports, in their order."""
        for task in tasks:
            yield await self.play(task)

    async def close(self) -> None:
        """Release what is searched, and the model that joins sentences."""
        try:
            await self.searcher.close()
        finally:
            if self.joiner:
                await self.joiner.stop()


class _Section(Struct):
    heading: str  # "" for a report without an outline
    documents: list[list[Finding]]


class _Draft:
    """One report in progress: what was searched, and the findings by section and document."""

    def __init__(self, searcher: Searcher, topk: int) -> None:
        self.searcher, self.topk = searcher, topk
        self.searches: list[list[SearchResult]] = []
        self.sections: list[_Section] = []
        self.missing: list[str] = []
        self._cited: dict[Terms, list[Passage]] = {}  # the passages that have a sentence, by its words

    async def write(self, question: str, outline: Sequence[str]) -> None:
        """Search, and collect the findings of every section."""
        found = await self._search([question, *outline])
        subjects = find_subjects(question, found)
        headings = {heading: find_subjects(heading, found) for heading in outline}
        named = {one.name: one for one in (*subjects, *(one for own in headings.values() for one in own))}
        found += await self._search(list(named))
        others = {name: find_other_names(one, found) for name, one in named.items()}
        found += await self._search([name for names in others.values() for name in names])

        def known(own: Sequence[Subject]) -> tuple[Subject, ...]:
            forms = {one.name: tuple(map(name_terms, others[one.name])) for one in own}
            return tuple(structs.replace(one, forms=(*one.forms, *forms[one.name])) for one in own)

        for heading, own in headings.items():
            self._add(heading, found, _wanted(heading, known(own or subjects), _MIN_SHARE, found))
        if outline:
            return
        if asks_more(question, subjects):
            self._add_nearest(question, known(subjects), found)
        else:
            self._add("", found, _wanted(question, known(subjects), 0.0, found))
        await self._fill(known(subjects), found)

    async def _search(self, queries: Sequence[str], topk: int = 0) -> list[Passage]:
        """The passages found, best first and without repetitions; the search is recorded."""
        asked = [query for query in dict.fromkeys(queries) if query.strip()]
        if not asked:
            return []
        hits = await self.searcher.search(asked, topk or self.topk)
        self.searches.append([SearchResult(query, tuple(found)) for query, found in zip(asked, hits, strict=True)])
        return list(dict.fromkeys(hit.passage for found in hits for hit in found))

    def _add(self, heading: str, passages: Sequence[Passage], wanted: Wanted) -> None:
        """Add a section with the findings in these passages; what has none is missing."""
        found = [
            structs.replace(one, score=score)
            for passage in filter(wanted.is_possible, dict.fromkeys(passages))
            for one in read_sentences(passage)
            if (score := wanted.score(one))
        ]
        documents = []
        for own in group_by(found, lambda one: one.passage.doc_id).values():
            titled = [subject.is_title(own[0].passage.title) for subject in wanted.subjects]
            place = titled.index(True) if True in titled else len(titled)
            documents.append((place, -max(one.score for one in own), own))
        documents.sort(key=lambda one: one[:2])  # stable, so equal ones stay in the order of the search
        num_titled = Counter(place for place, _, _ in documents)  # many documents may be called "README"
        chosen = [
            self._choose(own, max(_MAX_OF_OTHER, _MAX_OF_SUBJECT // num_titled[place] * (place < len(wanted.subjects))))
            for place, _, own in documents[:MAX_DOCUMENTS]
        ]
        kept = [own for own in chosen if own]
        if found:  # a section whose findings all stand above repeats the best one
            self.sections.append(_Section(heading, kept or [[max(found, key=lambda one: one.score)]]))
        subjects = [one.name for one in wanted.subjects if not any(map(Wanted((one,)).score, found))]
        self.missing += subjects if not heading else [] if found else [heading]

    def _add_nearest(self, question: str, subjects: Sequence[Subject], passages: Sequence[Passage]) -> None:
        """Add what the passages nearest to a question say; nothing if none of them names what it names."""
        self.missing += [one.name for one in subjects if not any(one.is_named(each.titled_text) for each in passages)]
        if len(self.missing) == len(subjects) > 0:
            return
        wanted = _wanted(question, (), _MIN_NEAR, passages)
        documents: dict[str, list[Finding]] = {}
        num_told = 0
        for number, passage in enumerate(passages):
            if number >= _NEAREST and num_told >= _MIN_TOLD:
                break
            if wanted.share(passage.titled_text) >= _MIN_NEAR:
                found = [structs.replace(one, score=wanted.score(one)) for one in read_sentences(passage)]
                kept = self._choose(found, _MAX_OF_NEAREST)
                documents.setdefault(passage.doc_id, []).extend(kept)
                num_told += len(kept)
        if num_told:
            self.sections.append(_Section("", [sorted(own, key=_place) for own in documents.values() if own]))

    def _choose(self, found: list[Finding], most: int) -> list[Finding]:
        """The best findings of a document that no other has, in reading order; one that another has is cited there."""
        best: list[Finding] = []
        for one in sorted(found, key=lambda one: -one.score):
            key = tuple(terms(one.text))
            if key in self._cited:
                self._cited[key] = list(dict.fromkeys([*self._cited[key], one.passage]))[:_MAX_CITED]
            elif len(best) < most:
                best.append(one)
                self._cited[key] = [one.passage]
        return sorted(best, key=_place)

    async def _fill(self, subjects: Sequence[Subject], found: Sequence[Passage]) -> None:
        """Add to a report what is nearest to its findings, while it has less than it should.

        First documents on names that the findings mention, then some that have half of the subjects' words, then
        sentences beside the findings.
        """
        names = [one.text[start:end] for one in self._written() for start, end in find_phrases(one.text)]
        names = [name for name in dict.fromkeys(names) if not any(one.is_named(name) for one in subjects)][:_MAX_LINKS]
        linked = await self._search(names, _LINKS_TOPK) if self._num_documents() < MIN_DOCUMENTS else []
        for name in names:
            self._add_document(linked, Wanted((Subject(name, (name_terms(name),)),)))
        related = _wanted(" ".join(one.name for one in subjects), (), _MIN_SHARE, found)
        for _ in range(MIN_DOCUMENTS if related.words else 0):
            self._add_document(found, related)
        self._add_neighbours()

    def _num_documents(self) -> int:
        return len({one.passage.doc_id for one in self._written()})

    def _add_document(self, passages: Sequence[Passage], wanted: Wanted) -> None:
        """Add the first unused document that has something wanted, if the report has too few."""
        used = {one.passage.doc_id for one in self._written()}
        others = (one for one in passages if one.doc_id not in used and wanted.is_possible(one))
        told = next(filter(None, ([one for one in read_sentences(two) if wanted.score(one)] for two in others)), [])
        if self.sections and len(used) < MIN_DOCUMENTS and (kept := self._choose(told, _MAX_OF_LINKED)):
            self.sections[0].documents.append(kept)

    def _add_neighbours(self) -> None:
        """Add the sentences nearest to the findings in their passages, while there are fewer than there should be."""
        near = []
        for own in self._documents():
            for one in own:
                around = read_sentences(one.passage)
                place = [each.start for each in around].index(one.start)
                near += [(abs(number - place), own, each) for number, each in enumerate(around)]
        num_missing = MIN_SENTENCES - len(list(self._written()))
        for _, own, each in sorted(near, key=lambda one: one[0]):  # stable, so the first document's come first
            if num_missing > 0 and (key := tuple(terms(each.text))) not in self._cited:
                self._cited[key] = [each.passage]
                own.append(each)
                own.sort(key=_place)
                num_missing -= 1

    async def join(self, joiner: Joiner) -> None:
        """Replace pairs of findings by a sentence that says both, where the joiner has one and enough are left."""
        num_more = len(list(self._written())) - MIN_SENTENCES
        if num_more <= 0:
            return
        pairs = [(own, one, two) for own in self._documents() for one, two in self._pairs(own)]
        said = await joiner.join([Pair(one.text, two.text, one.passage.titled_text) for _, one, two in pairs])
        for (own, one, _), text in zip(pairs, said, strict=True):
            if num_more > 0 and _is_usable(text):
                at = own.index(one)
                own[at : at + 2] = [structs.replace(one, text=text)]
                self._cited[tuple(terms(text))] = self._passages(one)
                num_more -= 1

    def _pairs(self, own: Sequence[Finding]) -> Iterator[tuple[Finding, Finding]]:
        """Pairs of consecutive findings that cite the same passages; each finding is in at most one pair."""
        left = iter(pairwise(own))
        for one, two in left:
            if self._passages(one) == self._passages(two) and _follow(one, two):
                yield one, two
                next(left, None)

    def turns(self) -> list[Turn]:
        """The searches as turns; of their results, the passages that are cited, in the order of the report."""
        cited = list(dict.fromkeys(passage for one in self._written() for passage in self._passages(one)))
        turns = []
        for number, results in enumerate(self.searches):
            kept = []
            for result in results:
                scores = {hit.passage: hit.score for hit in result.hits}
                kept.append(SearchResult(result.query, tuple(Hit(one, scores[one]) for one in cited if one in scores)))
            action = Search(tuple(result.query for result in results))
            turns.append(Turn(number, "", action, "end_of_turn", tuple(kept)))
        return turns

    def text(self, turns: Sequence[Turn]) -> str:
        """The report; "" without a finding."""
        numbers = {source.passage: number for number, source in numbered_sources(turns).items()}
        parts = []
        for section in self.sections:
            level = "##"
            if section.heading:
                parts.append(f"## {_heading(section.heading)}")
                level = "###"
            for own in section.documents:
                parts.append(f"{level} {_heading(own[0].passage.title or own[0].passage.doc_id)}")
                told = ((one.text, [_number(each, numbers) for each in self._passages(one)]) for one in own)
                parts.append(" ".join(cite(sentence, *cited) for sentence, cited in told))
        if parts and self.missing:
            parts += ["## Not found", " ".join(f"Nothing was found on {_heading(one)}." for one in self.missing)]
        return "\n\n".join(parts)

    def _passages(self, one: Finding) -> list[Passage]:
        return self._cited[tuple(terms(one.text))]

    def _documents(self) -> list[list[Finding]]:
        return [own for section in self.sections for own in section.documents]

    def _written(self) -> Iterable[Finding]:
        return (one for own in self._documents() for one in own)


# ------------------------------------------------------------------------------------------------------------ sentences


def read_sentences(passage: Passage) -> list[Finding]:
    """The sentences of a passage that can be cited: whole, of a usual length, and read as one statement each.

    Markup is left out. A sentence that introduces a line of code is followed by it: "Make one so: `lxc snapshot`." A
    citation mark of the document's own would be read as one of the report, so "[3]" becomes "(3)" and is left out at
    the ends. What the reader of reports would not read as one statement with one citation is left out.
    """
    said = [(statement.start, statement.text) for statement in split_statements(passage.text)]
    for match in _CODE.finditer(passage.text):
        lead = match[1].rpartition(". ")[2]
        said.append((match.end(1) - len(lead), f"{lead} `{match[2].strip()}`."))
    found = []
    for start, written in sorted(said):
        text = " ".join(plain_text(_EDGE_MARKS.sub("", written)).text.split())
        for mark in find_citations(text):
            text = f"{text[: mark.start]}({text[mark.start + 1 : mark.end - 1]}){text[mark.end :]}"
        if _is_usable(text):
            found.append(Finding(text, passage, start))
    return found


def _place(one: Finding) -> tuple[int, int]:
    return one.passage.start, one.start


def _follow(one: Finding, two: Finding) -> bool:
    """True if the second is the passage's next sentence, so that its pronouns mean what they meant."""
    starts = [each.start for each in split_statements(one.passage.text)]
    return (one.start, two.start) in pairwise(starts)


def _is_usable(text: str) -> bool:
    if not _MIN_WORDS <= count_words(text) <= _MAX_WORDS or _UNFIT.search(text) or UNPRINTABLE.search(text):
        return False
    cited = cite(text, 1)
    again = split_statements(f"{cited} {cited}")  # twice: the next sentence must not be taken for a part of it
    return bool(_ENDING.search(text)) and [(one.text, one.citations) for one in again] == [(cited, (1,))] * 2


def cite(sentence: str, *numbers: int) -> str:
    """The sentence with a citation before its full stop: cite("It is short.", 2, 5) -> "It is short [2, 5]."."""
    ending = _ENDING.search(sentence)
    at = ending.start() if ending else len(sentence)
    return f"{sentence[:at].rstrip()} [{', '.join(map(str, numbers))}]{sentence[at:]}"


def _number(passage: Passage, numbers: dict[Passage, int]) -> int:
    """The passage's number; two passages of one id, of which one begins with the other, have the same."""
    if passage in numbers:
        return numbers[passage]
    return next(number for other, number in numbers.items() if other.id == passage.id)


def _heading(text: str) -> str:
    """A title as a heading of the report: one line without citations, and not the heading of a conclusion."""
    words = UNPRINTABLE.sub(" ", text).translate(str.maketrans("[]", "()")).split()
    line = " ".join(words).lstrip("#>*-+ ") or "Untitled"
    is_taken = extract_conclusion(f"A.\n\n## {line}\n\nB.\n\nC.") != "C."
    return f"Document {line}" if is_taken else line
