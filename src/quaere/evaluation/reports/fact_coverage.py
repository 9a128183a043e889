"""Fact coverage of a report: which known facts of a world it states, which it proves, which gaps it admits.

    facts = read_facts(Path("questions.jsonl"))              # as `quaere questions --world DIR` writes them
    knowing = know_report(report, facts.find(report.question.text))
    knowing.told_share, knowing.proven_share                 # 0.75, 0.5

Only rules are used, no judge. A fact is *told* by a statement that names its subject (or is clearly about it) and its
object. It is *proven* if that statement cites passages that contain the sentence proving the fact. The relation between
the two is not checked: "the Halm is tied to Venn" tells that Venn built it. Wrong statements are not counted: without
understanding the text, a wrong value cannot be distinguished from another true fact.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from quaere.chat.spans import locate_span
from quaere.evaluation.intervals import Interval, ratio_interval
from quaere.evaluation.reports.citations import CitationCheck
from quaere.evaluation.reports.lexical import (
    KnownNames,
    Words,
    content_words,
    find_names,
    lower_words,
    name_runs,
    num_negations,
    split_clauses,
    split_words,
    strip_marks,
)
from quaere.grouping import group_by
from quaere.records import Evidence, Passage, Report, Statement
from quaere.search.words import terms
from quaere.worlds.open_questions import KnownFact, ReportLine

MIN_GAP_SHARE = 0.6  # minimum share of a gap's words in the statement that admits it

_PRONOUN = re.compile(r"\b(?:it|its|he|him|his|she|her|hers|they|them|their)\b", re.IGNORECASE)
_ADMITS = re.compile(
    r"\b(?:unknown|undocumented|unrecorded|unstated|unspecified|unclear|missing|silent|nothing|lacking"
    r"|(?:not|never|nowhere|n['’]t)\s+(?:\w+\s+)?(?:document|know|record|state|give|mention|tell|told|sa[iy]|found|find|name"
    r"|specif|clear|available|reveal|disclose|report|preserve|attest|cover|contain|include|answer|provide)\w*"
    r"|no\s+(?:\w+\s+)?(?:passage|document|source|record|article|information|evidence|mention|data|detail|account)s?)\b",
    re.IGNORECASE,
)


class FactTold(Struct, frozen=True):
    """A known fact, and the indices of the statements that state it (`told_by`) and that also cite its proof.

    FactTold(entity="e7-000012", relation="source", told_by=(0, 4), proven_by=(0,))
    """

    entity: str
    relation: str
    told_by: tuple[int, ...] = ()
    proven_by: tuple[int, ...] = ()


class Knowing(Struct, frozen=True):
    """Fact coverage of one report: every known fact in order, and the gaps (unknown facts) that the report admits.

    Knowing(facts=(FactTold(...),), num_gaps=2, admitted=("the length of the Oss",))
    """

    facts: tuple[FactTold, ...]
    num_gaps: int = 0
    admitted: tuple[str, ...] = ()

    @property
    def told_share(self) -> float | None:
        """Share of the known facts that the report tells (recall); None if no facts are known."""
        return _share(sum(bool(fact.told_by) for fact in self.facts), len(self.facts))

    @property
    def proven_share(self) -> float | None:
        """Share of the known facts that the report tells and proves; None if no facts are known."""
        return _share(sum(bool(fact.proven_by) for fact in self.facts), len(self.facts))

    @property
    def admitted_share(self) -> float | None:
        """Share of the gaps (what no document says) that the report admits; None if there are none."""
        return _share(len(self.admitted), self.num_gaps)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


# --------------------------------------------------------------------------------------------------------- facts told


class _Target(Struct, frozen=True):
    """A known fact, the names of its subject and of its object, and the words of its sentences."""

    fact: KnownFact
    subject: frozenset[Words]
    object: frozenset[Words]
    words: frozenset[str]

    def is_twin(self, other: _Target) -> bool:
        """True for another relation between the same two things: names alone cannot tell the two facts apart."""
        is_same = self.subject & other.subject and self.object & other.object
        is_reversed = self.subject & other.object and self.object & other.subject
        return self.fact.relation != other.fact.relation and bool(is_same or is_reversed)


class _Known:
    """The known facts of a question with their names and words extracted, for matching against statements."""

    def __init__(self, line: ReportLine) -> None:
        self.line = line
        self.names = KnownNames(line.facts)
        self.targets = [
            _Target(
                fact,
                subject=frozenset(map(split_words, fact.names)),
                object=frozenset(map(split_words, fact.answers)),
                words=frozenset(content_words(f"{fact.statement} {fact.evidence.text}")),
            )
            for fact in line.facts
        ]
        self.of_subjects = frozenset[Words]().union(*(target.subject for target in self.targets))
        self.ordinary = frozenset[str]().union(
            *(lower_words(text) for fact in line.facts for text in (fact.statement, fact.evidence.text))
        )

    def is_of_twin(self, target: _Target, words: frozenset[str]) -> bool:
        """True if `words` has a word that only a twin of the fact has, and no word that only the fact has."""
        twins = (other for other in self.targets if other.is_twin(target))
        return any(words & (one.words - target.words) and not words & (target.words - one.words) for one in twins)

    def subjects_in(self, named: Collection[Words]) -> frozenset[str]:
        """Ids of the entities that have facts and a name among `named`."""
        return frozenset(one.fact.entity for one in self.targets if not one.subject.isdisjoint(named))


class _Piece(Struct, frozen=True):
    """A part of a statement: the names in it, and its subjects, stated in it or carried over from the part before."""

    text: str
    named: frozenset[Words]
    subjects: frozenset[str]


def know_report(report: Report, line: ReportLine) -> Knowing:
    """Fact coverage of a report: which facts of the question it tells and proves, and which gaps it admits.

    know_report(report, line).told_share -> 0.75
    """
    known = _Known(line)
    sources = {source.number: source.passage for source in report.sources}
    cited = [
        [sources[number] for number in dict.fromkeys(statement.citations) if number in sources]
        for statement in report.statements
    ]
    told = [_find_told(statement, cited[place], known) for place, statement in enumerate(report.statements)]
    places = group_by(((number, place) for place, numbers in enumerate(told) for number in numbers), lambda one: one[0])
    found = []
    for number, fact in enumerate(line.facts):
        told_by = tuple(place for _, place in places.get(number, ()))
        proven_by = tuple(place for place in told_by if proves(cited[place], fact))
        found.append(FactTold(fact.entity, fact.relation, told_by, proven_by))
    gaps, is_alone = dict.fromkeys(line.unknown), len(line.entities) == 1
    admitted = [gap for gap in gaps if any(_admits(statement.text, gap, is_alone) for statement in report.statements)]
    return Knowing(tuple(found), len(gaps), tuple(admitted))


def _find_told(statement: Statement, cited: Sequence[Passage], known: _Known) -> list[int]:
    """Indices of the facts that a statement tells; neighbouring statements have no influence."""
    text = strip_marks(statement.text)
    pieces = _cut(text, known)
    others = frozenset(find_names(text, known.ordinary))
    words = frozenset(content_words(text))

    def tells(piece: _Piece, target: _Target) -> bool:
        if piece.named.isdisjoint(target.object) or _denies(piece.text, target, known):
            return False
        return target.fact.entity in piece.subjects or _is_about(piece, target, others, cited, known)

    return [
        number
        for number, target in enumerate(known.targets)
        if not known.is_of_twin(target, words) and any(tells(piece, target) for piece in pieces)
    ]


def _cut(text: str, known: _Known) -> list[_Piece]:
    """The whole statement as one piece, or its clauses if it mentions several subjects with a relation in common.

    A clause that names no subject continues with those of the clause before; a clause that consists only of names
    belongs to the next clause ("Venn and Brod were born in Halm").
    """
    named = known.names.find(text)
    subjects = known.subjects_in(named)
    relations = [{fact.relation for fact in known.line.facts if fact.entity == entity} for entity in sorted(subjects)]
    if not any(one & other for place, one in enumerate(relations) for other in relations[:place]):
        return [_Piece(text, named, subjects)]
    pieces: list[_Piece] = []
    current, before = frozenset[str](), ""
    for clause in split_clauses(text):
        whole = f"{before}, {clause}" if before else clause
        named = known.names.find(whole)
        before = whole if named <= known.of_subjects and not _rest(whole, named) else ""
        if not before:
            current = known.subjects_in(named) or current
            pieces.append(_Piece(whole, named, current))
    return pieces


def _rest(text: str, named: Collection[Words]) -> set[str]:
    """Content words of a text outside of names."""
    return set(content_words(text)) - {word for name in named for word in content_words(" ".join(name))}


def _denies(text: str, target: _Target, known: _Known) -> bool:
    """True if the object is named only in negated clauses, unlike in the sentence that proves the fact."""
    return _is_denied(text, target, known) and not _is_denied(target.fact.evidence.text, target, known)


def _is_denied(text: str, target: _Target, known: _Known) -> bool:
    clauses = [one for one in split_clauses(text) if not known.names.find(one).isdisjoint(target.object)]
    return all(num_negations(clause) % 2 for clause in clauses or [text])


def _is_about(piece: _Piece, target: _Target, names: frozenset[str], cited: Sequence[Passage], known: _Known) -> bool:
    """True if a piece that does not name the fact's subject is clearly about it ("It has 16 arches [1].").

    That is the case if it cites the subject's own document and names no other subject. It is also the case if the
    question is about this subject alone and the piece names nothing else; it must then refer to the subject ("its", a
    surname), unless the object is not a name and no other document is cited.
    """
    fact = target.fact
    objects = {other.fact.entity for other in known.targets if other.subject & target.object}
    if piece.subjects - objects or not target.subject.isdisjoint(known.names.sort(piece.text)[1]):
        return False
    if any(passage.doc_id == fact.evidence.doc_id for passage in cited):
        return True
    own, given = ({word for name in some for word in terms(name)} for some in (fact.names, fact.answers))
    if known.line.entities != (fact.entity,) or not names <= own | given:
        return False
    is_name = any(name_runs(answer) for answer in fact.answers)
    return bool(names & (own - given) or _PRONOUN.search(piece.text)) or not (is_name or cited)


def proves(passages: Iterable[Passage], fact: KnownFact) -> bool:
    """True if these passages together contain the whole sentence that proves the fact.

    Passages of its document must cover the span together. If the document has another id in the index, it is recognised
    by its title, and one passage must contain the sentence.
    """
    evidence, reached = fact.evidence, fact.evidence.start
    own = list(passages)
    if any(passage.title == fact.title and locate_span(evidence.text, passage.text) for passage in own):
        return True
    for passage in sorted((one for one in own if _agrees(one, evidence)), key=lambda one: one.start):
        if passage.start <= reached:
            reached = max(reached, passage.end)
    return reached >= evidence.end


def _agrees(passage: Passage, evidence: Evidence) -> bool:
    """True if the passage is of the same document and equal to the evidence where both overlap."""
    start, end = max(passage.start, evidence.start), min(passage.end, evidence.end)
    return (
        passage.doc_id == evidence.doc_id
        and start < end
        and passage.text[start - passage.start : end - passage.start]
        == evidence.text[start - evidence.start : end - evidence.start]
    )


def _admits(statement: str, gap: str, is_alone: bool) -> bool:
    """True if the statement says that nothing is known of this gap.

    It must name the subject of the gap, unless the question has no other subject.
    """
    text, names = strip_marks(statement), set(find_names(gap, frozenset()))
    is_named = names <= set(terms(text)) or (is_alone and not find_names(text, lower_words(gap)))
    if not is_named or not _ADMITS.search(text):
        return False
    wanted = set(content_words(gap)) - {word for name in names for word in content_words(name)}
    return bool(wanted) and len(wanted & set(content_words(text))) >= MIN_GAP_SHARE * len(wanted)


# ----------------------------------------------------------------------------------------------------- judge accuracy


class JudgeTruth(Struct, frozen=True):
    """Accuracy of a citation judge against the known facts; shares over reports, None if there are none.

    JudgeTruth(num_proving=80, num_others=12, proving=Interval(...), others=Interval(...))
    """

    num_proving: int  # citations of a passage that proves a fact their statement tells
    num_others: int  # citations of a passage that names no object of the facts their statement tells
    proving: Interval | None  # share of the proving citations called supported (sensitivity)
    others: Interval | None  # share of the other citations not called supported (specificity)


def label_citations(report: Report, line: ReportLine, knowing: Knowing) -> dict[tuple[int, int], bool]:
    """True or False for each citation of a statement that tells known facts, by (statement, number): a proof or not.

    True if the passage proves one of the facts, whatever else the statement says. False if it names the objects of
    none, and no other passage cited by the statement proves any. Citations in between get no label.
    """
    sources = {source.number: source.passage for source in report.sources}
    proven = {place for fact in knowing.facts for place in fact.proven_by}
    telling = [(place, fact) for told, fact in zip(knowing.facts, line.facts, strict=True) for place in told.told_by]
    found = {}
    for place, told in group_by(telling, lambda one: one[0]).items():
        # All single words, since a passage may call Orsolya Venn just Venn.
        objects = {word for _, fact in told for answer in fact.answers for word in split_words(answer)}
        for citation in (number for number in report.statements[place].citations if number in sources):
            passage = sources[citation]
            if any(proves([passage], fact) for _, fact in told):
                found[place, citation] = True
            elif place not in proven and objects.isdisjoint(split_words(passage.titled_text)):
                found[place, citation] = False
    return found


def judge_truth(
    checks: Sequence[Sequence[CitationCheck]], labels: Sequence[Mapping[tuple[int, int], bool]]
) -> JudgeTruth | None:
    """Accuracy of the judge's decisions on all reports against the labels; None if there are no labels."""
    said: dict[bool, list[list[bool]]] = {True: [], False: []}  # by label and report, whether the judge was right
    for verdicts, known in zip(checks, labels, strict=True):
        by_place = {(check.statement, check.citation): check.verdict == "supported" for check in verdicts}
        for truth, reports in said.items():
            reports.append(
                [by_place[key] is truth for key, label in known.items() if label is truth and key in by_place]
            )
    wholes = {truth: [len(one) for one in reports] for truth, reports in said.items()}
    proving, others = (
        ratio_interval([sum(one) for one in said[truth]], wholes[truth]) if any(wholes[truth]) else None
        for truth in (True, False)
    )
    return JudgeTruth(sum(wholes[True]), sum(wholes[False]), proving, others) if proving or others else None
