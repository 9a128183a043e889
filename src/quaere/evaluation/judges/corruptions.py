"""Corruptions of reports, each of one known kind, for measuring the accuracy of judges.

    corrupt("number changed", report, random.Random(1))
    -> Corrupted(kind="number changed", report=Report(...), statement=4)

`SPOILING_CITATIONS` corrupt one cited statement, which a citation check should detect. `SPOILING_TEXT` are visible in
the text alone and should lower a grade. The result is None if the report lacks what the corruption needs (a number, a
second source).
"""

import random
import re
from collections.abc import Callable, Mapping

from msgspec import Struct, structs

from quaere.evaluation.reports.grades import conclusion_start
from quaere.evaluation.reports.lexical import MARK, name_runs, num_negations, number_runs, split_sentences
from quaere.records import Report, Statement

_DIGITS = re.compile(r"\d{1,6}")
_VERB = re.compile(
    r"\b(?:is|are|was|were|has|have|had|can|could|will|would|may|might|must|should|did|does|do)\b", re.IGNORECASE
)


class Corrupted(Struct, frozen=True):
    """A corrupted report; `statement` is the index of the corrupted statement, if it was a single one.

    Corrupted(kind="sentence negated", report=Report(...), statement=2)
    """

    kind: str
    report: Report
    statement: int | None = None


def corrupt(kind: str, report: Report, draw: random.Random) -> Corrupted | None:
    """The report with a corruption of this kind, with random choices from `draw`; None if it cannot be applied."""
    found = _WAYS[kind](report, draw)
    return Corrupted(kind, *found) if found else None


# ----------------------------------------------------------------------------------------------------- one statement


Found = tuple[Report, int | None] | None  # the corrupted report, and the statement if it is a single one


def _cite_another(report: Report, draw: random.Random) -> Found:
    documents = {source.number: source.passage.doc_id for source in report.sources}
    choices = [
        (place, other)
        for place in _cited_once(report)
        for other, doc_id in documents.items()
        if doc_id != documents.get(report.statements[place].citations[0])
    ]
    if not choices:
        return None
    place, other = draw.choice(choices)
    wrong = MARK.sub(lambda mark: _DIGITS.sub(str(other), mark.group()), report.statements[place].text)
    return rewrite(report, {place: (wrong, (other,))}), place


def _change_number(report: Report, draw: random.Random) -> Found:
    def change(text: str) -> str | None:
        runs = number_runs(_veil(text))
        if not runs:
            return None
        start, end = draw.choice(runs)
        return text[:start] + _other_number(text[start:end], draw) + text[end:]

    return _reword(report, draw, change)


def _other_number(written: str, draw: random.Random) -> str:
    """A different number that no rounding could give: years are shifted by 11 to 97, other numbers at least doubled."""
    whole, point, decimals = written.partition(".")
    value = int(whole.replace(",", ""))
    if len(whole) == 4 and not point:
        return str(value + draw.choice([-1, 1]) * draw.randint(11, 97))
    other = value * draw.randint(2, 4) + draw.randint(1, 9)
    return (f"{other:,}" if "," in whole else str(other)) + point + decimals


def _replace_name(report: Report, draw: random.Random) -> Found:
    known = [statement.text for statement in report.statements] + [one.passage.title for one in report.sources]
    names = sorted({text[start:end] for text in known for start, end in name_runs(text)})

    def change(text: str) -> str | None:
        runs = name_runs(_veil(text))
        others = [name for name in names if name not in text]
        if not runs or not others:
            return None
        start, end = draw.choice(runs)
        return text[:start] + draw.choice(others) + text[end:]

    return _reword(report, draw, change)


def negate(text: str) -> str:
    """The sentence with its first auxiliary verb negated, or prefixed by "It is not true that".

    An existing "not" is removed.

    negate("It was built in 1702 [1].") -> "It was not built in 1702 [1]."
    negate("Venn built it [1].") -> "It is not true that Venn built it [1]."
    """
    verb = _VERB.search(text)
    if verb is None:
        return f"It is not true that {text}"
    start, rest = text[: verb.end()], text[verb.end() :]
    is_negated = num_negations(rest[:5]) and rest.startswith(" not")
    return start + rest.removeprefix(" not") if is_negated else f"{start} not{rest}"


def _replace_sentence(report: Report, draw: random.Random) -> Found:
    """The statement's text replaced by that of a sentence that cites other documents; its own citations stay."""
    documents = {source.number: source.passage.doc_id for source in report.sources}
    cited = [{documents.get(number) for number in statement.citations} for statement in report.statements]
    words = [MARK.sub("", statement.text).strip() for statement in report.statements]
    choices = [
        (place, other)
        for place in _cited_once(report)
        for other in range(len(cited))
        if cited[other] and cited[place].isdisjoint(cited[other]) and words[place] != words[other]
    ]
    if not choices:
        return None
    place, other = draw.choice(choices)
    statement = report.statements[place]
    ending = words[other][-1:] if words[other][-1:] in ".!?。！？" else ""
    wrong = words[other].removesuffix(ending) + "".join(MARK.findall(statement.text)) + ending
    return rewrite(report, {place: (wrong, statement.citations)}), place


def _add_claim(report: Report, draw: random.Random) -> Found:
    """The statement joined with one that cites other documents; only its own citations stay."""
    swapped = _replace_sentence(report, draw)
    if swapped is None or swapped[1] is None:
        return None
    place = swapped[1]
    own, other = report.statements[place], MARK.sub("", swapped[0].statements[place].text).strip()
    said = MARK.sub("", own.text).strip().rstrip(".!?。！？")
    marks, claim = "".join(MARK.findall(own.text)), other.rstrip(".!?。！？")
    return rewrite(report, {place: (f"{said}; {claim}{marks}.", own.citations)}), place


def _cited_once(report: Report) -> list[int]:
    """Indices of statements with exactly one valid citation: only for these is the effect of a corruption certain."""
    known = {source.number for source in report.sources}
    edge = conclusion_start(report)  # a statement across it contains the word "Conclusion", which must not move
    return [
        place
        for place, one in enumerate(report.statements)
        if len(one.citations) == 1 and one.citations[0] in known and not one.start < edge < one.end
        if MARK.search(one.text) and MARK.sub("", one.text).strip()
    ]


def _veil(text: str) -> str:
    """The text with its citation marks replaced by as many spaces, so that character offsets stay the same."""
    return MARK.sub(lambda mark: " " * len(mark.group()), text)


def _reword(report: Report, draw: random.Random, change: Callable[[str], str | None]) -> Found:
    """The report with one statement changed: the first, in random order, that `change` can change."""
    places = _cited_once(report)
    for place in draw.sample(places, len(places)):
        statement = report.statements[place]
        wrong = change(statement.text)
        if wrong is not None and wrong != statement.text:
            return rewrite(report, {place: (wrong, statement.citations)}), place
    return None


# ----------------------------------------------------------------------------------------------------- the whole text


def _drop_citations(report: Report, draw: random.Random) -> Found:
    cited = [(place, one.text) for place, one in enumerate(report.statements) if one.citations]
    bare = rewrite(report, {place: (MARK.sub("", text), ()) for place, text in cited})
    return (bare, None) if bare.text != report.text else None


def _repeat_paragraph(report: Report, draw: random.Random) -> Found:
    """The report with a paragraph before the conclusion repeated three times."""
    limit = conclusion_start(report)
    spans = (match.span() for match in re.finditer(r"[^\n]+(?:\n[^\n]+)*", report.text))
    holding = [
        (start, end)
        for start, end in spans
        if end <= limit and any(start <= one.start and one.end <= end for one in report.statements)
    ]
    if not holding:
        return None
    start, end = draw.choice(holding)
    inside = [one for one in report.statements if start <= one.start and one.end <= end]
    again = f"\n\n{report.text[start:end]}"
    before = [one for one in report.statements if one.end <= end]
    after = [_moved(one, 2 * len(again)) for one in report.statements if one.end > end]
    copies = [_moved(one, number * len(again)) for number in (1, 2) for one in inside]
    text = report.text[:end] + 2 * again + report.text[end:]
    return structs.replace(report, text=text, statements=(*before, *copies, *after)), None


def _contradict_conclusion(report: Report, draw: random.Random) -> Found:
    start = conclusion_start(report)
    end = start + len(report.conclusion)
    leads = [max(0, start - one.start) for one in report.statements]  # characters of "Conclusion" and its colon
    edits = {
        place: (one.text[:lead] + negate(one.text[lead:]), one.citations)
        for place, (one, lead) in enumerate(zip(report.statements, leads, strict=True))
        if start < one.end <= end
    }
    if edits:
        return rewrite(report, edits), None
    if start == len(report.text) or any(one.end > start for one in report.statements):
        return None
    wrong = " ".join(negate(sentence) for sentence in split_sentences(report.conclusion))
    text = report.text[:start] + wrong + report.text[end:]
    return structs.replace(report, text=text, conclusion=wrong), None


def rewrite(report: Report, edits: Mapping[int, tuple[str, tuple[int, ...]]]) -> Report:
    """The report with some statements replaced; offsets and conclusion are updated.

    rewrite(report, {0: ("The Oss rises at Halm [2].", (2,))})
    """
    opening = conclusion_start(report)
    closing = opening + len(report.conclusion)
    pieces, statements = [], []
    bounds = {opening: opening, closing: closing}  # old to new offsets of the conclusion's ends
    done = shift = 0
    for place, statement in enumerate(report.statements):
        text, citations = edits.get(place, (statement.text, statement.citations))
        pieces += [report.text[done : statement.start], text]
        statements.append(Statement(text, statement.start + shift, statement.start + shift + len(text), citations))
        done = statement.end
        shift += len(text) - (statement.end - statement.start)
        for bound in bounds:
            if statement.end <= bound:
                bounds[bound] = bound + shift
    text = "".join(pieces) + report.text[done:]
    conclusion = text[bounds[opening] : bounds[closing]] if report.conclusion else ""
    return structs.replace(report, text=text, statements=tuple(statements), conclusion=conclusion)


def _moved(statement: Statement, by: int) -> Statement:
    return structs.replace(statement, start=statement.start + by, end=statement.end + by)


ADDED = "claim added"
_Ways = dict[str, Callable[[Report, random.Random], Found]]
_IN_CITATIONS: _Ways = {
    "citation of another passage": _cite_another,
    "number changed": _change_number,
    "name replaced by another": _replace_name,
    "sentence negated": lambda report, draw: _reword(report, draw, negate),
    "sentence replaced by another": _replace_sentence,
    ADDED: _add_claim,
}
_IN_TEXT: _Ways = {
    "sentence replaced by another": _replace_sentence,
    "citations dropped": _drop_citations,
    "paragraph repeated": _repeat_paragraph,
    "conclusion contradicted": _contradict_conclusion,
}
_WAYS = _IN_CITATIONS | _IN_TEXT
SPOILING_CITATIONS, SPOILING_TEXT, KINDS = tuple(_IN_CITATIONS), tuple(_IN_TEXT), tuple(_WAYS)

# -------------------------------------------------------------------------------------------------------- paraphrases

# Per passage one true and one false statement. The corrupted reports share most words with their sources, so rules that
# compare words do well on them. Here the true statements use other words and the false ones similar words, so only a
# judge that understands the text does well. The rules of `reports/citations.py` were not tuned on these, and must not
# be.


PARAPHRASES: tuple[tuple[str, str, str], ...] = (
    (
        "The ferry between Korrin and Tallow was closed in 1911 after the new iron bridge opened to traffic.",
        "Once people could cross by the iron bridge, the Korrin to Tallow ferry service ended in 1911.",
        "The ferry between Korrin and Tallow was closed because it had become unsafe.",
    ),
    (
        "Annual rainfall on the plateau averages 412 millimetres, most of it falling between May and July.",
        "The plateau gets roughly 410 mm of rain a year, mainly in early summer.",
        "Rainfall on the plateau is highest in winter.",
    ),
    (
        "The guild admitted women as full members for the first time in 1789, and Marta Oleen was the first of them.",
        "Marta Oleen became the guild's first female member in 1789.",
        "Marta Oleen was refused membership of the guild in 1789.",
    ),
    (
        "Copper from the Esker mine was shipped down the Oss to the smelters at Brill.",
        "The smelters at Brill received their copper by river from the Esker mine.",
        "The smelters at Brill shipped copper up the Oss to the Esker mine.",
    ),
    (
        "A survey of 1,204 households found that 63 percent heated with wood and 21 percent with coal.",
        "Nearly two thirds of the households surveyed used wood for heating.",
        "Coal was the most common fuel among the households surveyed.",
    ),
    (
        "The library lost some 9,000 volumes in the flood; the map collection, kept upstairs, was unharmed.",
        "Because they were stored on an upper floor, the maps survived the flood that ruined about 9,000 books.",
        "The flood destroyed the library's map collection.",
    ),
    (
        "Tests showed that the new alloy loses a third of its strength above 400 degrees.",
        "At temperatures beyond 400 degrees the alloy becomes markedly weaker.",
        "The alloy keeps its strength at temperatures above 400 degrees.",
    ),
    (
        "Governor Hask pardoned the rebels in the spring, against the advice of his council.",
        "The council had counselled against it, but Hask let the rebels go free in spring.",
        "On the advice of his council, Governor Hask pardoned the rebels in the spring.",
    ),
    (
        "The species nests on cliffs and has been seen inland only twice, in 1954 and 1987.",
        "Sightings away from the coast are extremely rare: only two are on record.",
        "The species is commonly seen inland.",
    ),
    (
        "Exports of linen doubled between 1820 and 1830, while those of wool fell by a tenth.",
        "In the decade from 1820 linen exports grew twofold as wool declined slightly.",
        "Exports of wool doubled between 1820 and 1830.",
    ),
    (
        "The tower is 68 metres high, four metres lower than the cathedral it was meant to outdo.",
        "At 68 metres the tower fell short of the cathedral.",
        "The tower, at 68 metres, is the tallest building of the town, above the cathedral.",
    ),
    (
        "The committee found no evidence that the fire had been started deliberately.",
        "Arson could not be proved, the committee concluded.",
        "The committee found evidence that the fire had been started deliberately.",
    ),
    (
        "Venn's first design, of 1698, was rejected; the second, with twelve arches, was built four years later.",
        "Only Venn's second plan, the one with twelve arches, was carried out.",
        "Venn's first design, of 1698, was built with twelve arches.",
    ),
    (
        "Trade with Nevin resumed in 1921 and by 1925 exceeded its level before the war.",
        "Four years after it restarted, commerce with Nevin had more than recovered.",
        "Trade with Nevin never recovered after the war.",
    ),
    (
        "The dialect has lost its dual forms, which survive only in two songs and a counting rhyme.",
        "Apart from a couple of songs and a rhyme, dual forms have vanished from the dialect.",
        "Dual forms are still in everyday use in the dialect.",
    ),
    (
        "Half of the grant was spent on salaries, a third on instruments and the rest on travel.",
        "Salaries took the largest part of the grant.",
        "Most of the grant was spent on travel.",
    ),
)
