"""Reports that follow the rubric their writer is shown: each dimension of it changes one feature of the text.

    write_by_rubric(world, gold, sources, Rubric("factuality", (Weight("coverage", 0.4),)), dice)

    dimension     with it                                            without it
    coverage      up to six facts on what is asked about             three, or four on two things
    depth         facts with figures first, and linked facts         no linked facts
    uncertainty   one or two sentences on what no document says      none
    citation      a mark on every claim                              one for neighbouring claims of a passage
    coherence     facts as the passages have them, joining words     any order
    readability   a short sentence for every claim                   claims joined into longer sentences
    insight       a conclusion that goes on to further links         one sentence
    balance       as many facts on each thing, by turns              most of them on the first

Agreement can depend on a rubric only where reports do, so an evaluator has nothing to learn from writers who were not
taught this. Every draft is true, answers what was asked and cites its passages, so factuality and instruction change
nothing; nor do weights, so that what a writer has to learn stays simple.
"""

from collections.abc import Collection, Mapping, Sequence

from quaere.records import Rubric, Source
from quaere.warmup.oracle_reports import (
    MAX_OWN,
    MIN_CLAIMS,
    Claim,
    Draft,
    Finding,
    cite,
    conclude,
    describe_draft,
    draw_gaps,
    find_facts,
    sort_findings,
)
from quaere.warmup.phrases import REPORT_FORMS, write_thought
from quaere.worlds import World
from quaere.worlds.dice import Dice
from quaere.worlds.open_questions import ReportLine, state_fact

JOINING = ("Also", "Besides", "Moreover", "Further")
_JOIN_PERCENT = 80
_NUM_FORMS = 6
_NUM_FURTHER = 2  # sentences that insight adds to a conclusion


def write_by_rubric(world: World, gold: ReportLine, sources: Mapping[int, Source], rubric: Rubric, dice: Dice) -> Draft:
    """A report on the question from these sources that has the features the rubric asks for.

    Raises SamplingFailed if the sources state too few facts.
    """
    named, wanted = [world.entity(entity).index for entity in gold.entities], frozenset(rubric.dimensions)
    found = find_facts(world, sources)
    own, others = sort_findings(found, named, dice)
    chosen = _choose_own(own, named, wanted)
    chosen += others if "depth" in wanted else others[: max(0, MIN_CLAIMS - len(chosen))]
    if "coherence" in wanted:
        chosen.sort(key=lambda one: (_place(one, named), found.index(one)))
    claims = [Claim(one, one.said, (one.number,)) for one in chosen]
    gaps = draw_gaps(world, named, dice, least=1, most=2) if "uncertainty" in wanted else []
    return describe_draft(world, named, _Text(world, named, wanted, dice).write(claims, gaps), claims, len(gaps))


def _choose_own(own: Sequence[Finding], named: Sequence[int], wanted: Collection[str]) -> list[Finding]:
    """The facts to state about the things asked about; the rubric's dimensions set their number, order and shares."""
    by_thing = [[one for one in own if one.fact.subject == index] for index in named]
    if "depth" in wanted:
        by_thing = [sorted(each, key=lambda one: not _has_figure(one)) for each in by_thing]
    most = MAX_OWN if "coverage" in wanted else max(MIN_CLAIMS, 2 * len(named))
    if "balance" in wanted:
        share = min(most // len(named), *map(len, by_thing)) if len(named) > 1 else most
        shares = [share] * len(named)
    else:
        shares = [most - len(named) + 1, *[1] * (len(named) - 1)]
    chosen = [each[:num] for each, num in zip(by_thing, shares, strict=True)]
    turns = [each[at] for at in range(most) for each in chosen if at < len(each)]
    # Where the first thing has few facts, or the shares are small, further ones fill up what is wanted or needed.
    needed = most if "coverage" in wanted and "balance" not in wanted else MIN_CLAIMS
    return turns + [one for one in own if one not in turns][: max(0, needed - len(turns))]


def _place(finding: Finding, named: Sequence[int]) -> int:
    """The paragraph part a fact belongs to: its thing's number, or after all of them for a linked thing."""
    return named.index(finding.fact.subject) if finding.fact.subject in named else len(named)


def _has_figure(finding: Finding) -> bool:
    return any(character.isdigit() for character in finding.said)


class _Text:
    """The wording of a draft with the features in `wanted`."""

    def __init__(self, world: World, named: Sequence[int], wanted: Collection[str], dice: Dice) -> None:
        self.world, self.named, self.wanted, self.dice = world, named, wanted, dice

    def write(self, claims: Sequence[Claim], gaps: Sequence[str]) -> str:
        """A paragraph on the things asked about, one on linked things and gaps, and the conclusion."""
        own = [claim for claim in claims if claim.finding.fact.subject in self.named]
        others = [claim for claim in claims if claim not in own]
        forms = REPORT_FORMS["gaps"]
        admitted = [write_thought(forms, self.dice, {"gap": gap}, min_words=4, max_words=30) for gap in gaps]
        paragraphs = [self._sentences(own), [*self._sentences(others), *admitted]]
        body = [" ".join(sentences) for sentences in paragraphs if sentences]
        return "\n\n".join([*body, f"Conclusion: {self._conclude(claims)}"])

    def _sentences(self, claims: Sequence[Claim]) -> list[str]:
        """The sentences of a paragraph, which are at least two where it has several claims."""
        groups: list[list[Claim]] = []
        num_joins = 0 if "readability" in self.wanted else max(0, len(claims) - 2)
        for claim in claims:
            if groups and len(groups[-1]) == 1 and num_joins and self.dice.chance(_JOIN_PERCENT):
                groups[-1].append(claim)
                num_joins -= 1
            else:
                groups.append([claim])
        texts = [self._clauses(group) for group in groups]
        if "coherence" in self.wanted:
            texts = texts[:1] + [self._lead_on(text) for text in texts[1:]]
        cited = [tuple(number for claim in group for number in claim.citations) for group in groups]
        if "citation" in self.wanted:
            marks = [group[-1].citations for group in groups]
        else:
            marks = [() if {*now} == {*after} else now for now, after in zip(cited, [*cited[1:], ()], strict=False)]
        return [f"{text}{cite(numbers)}." for text, numbers in zip(texts, marks, strict=True)]

    def _clauses(self, group: Sequence[Claim]) -> str:
        """One or two claims as a sentence without its last mark; for `citation`, the first of two has its own."""
        first, *others = group
        mark = cite(first.citations) if "citation" in self.wanted else ""
        joined = [f"{mark}, and {self._state(other, joined=True)}" for other in others]
        return "".join([self._state(first), *joined])

    def _lead_on(self, text: str) -> str:
        is_fit = text.startswith("The ") and self.dice.chance(_JOIN_PERCENT)
        return f"{self.dice.pick(JOINING)}, the {text[4:]}" if is_fit else text

    def _state(self, claim: Claim, *, joined: bool = False) -> str:
        """A claim as a clause: the shortest for `readability`, else any; one that begins with "the" if `joined`."""
        graph, fact = self.world.graph, claim.finding.fact
        said = [state_fact(graph, fact, claim.said, form=form).removesuffix(".") for form in range(_NUM_FORMS)]
        if "readability" in self.wanted:
            return min(said, key=len)
        if not joined:
            return self.dice.pick(said)
        beginning = [f"the {text[4:]}" for text in said if text.startswith("The ")]
        return self.dice.pick(beginning or said)

    def _conclude(self, claims: Sequence[Claim]) -> str:
        """The conclusion; for `insight`, followed by a chain of two facts over a linked thing and by further facts."""
        said = conclude(self.world, self.named, claims, self.dice)
        if "insight" not in self.wanted:
            return said
        if chain := self._find_chain(claims):
            first, second = chain
            slots = {"X": self._name(first), "A": self._name(second), "B": second.said}
            slots["cite"] = cite([*first.citations, *second.citations])
            said += " " + write_thought(REPORT_FORMS["conclude_chain"], self.dice, slots, max_words=40)
        further = [claim for claim in claims if claim.said not in said][: _NUM_FURTHER - bool(chain)]
        return " ".join([said, *map(self._add, further)])

    def _add(self, claim: Claim) -> str:
        if claim.finding.fact.object is None:
            return f"{self._state(claim)}{cite(claim.citations)}."
        slots = {"X": self._name(claim), "A": claim.said, "cite": cite(claim.citations)}
        return write_thought(REPORT_FORMS["conclude_more"], self.dice, slots, max_words=40)

    def _name(self, claim: Claim) -> str:
        return self.world.graph.entities[claim.finding.fact.subject].name

    def _find_chain(self, claims: Sequence[Claim]) -> tuple[Claim, Claim] | None:
        """A claim on the first thing asked about, and one on what it names."""
        for first in claims:
            for second in claims:
                fact = second.finding.fact
                is_linked = first.finding.fact.object == fact.subject and fact.subject not in self.named
                if first.finding.fact.subject == self.named[0] and is_linked and fact.object != self.named[0]:
                    return first, second
        return None
