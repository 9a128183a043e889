"""Reports written by the oracle: correct ones to imitate, and flawed ones to learn assessing from.

    draft = write_draft(world, gold, sources, dice)                          # every fact there, rightly cited
    draft = write_draft(world, gold, sources, dice, flaws=("false",))        # one or two claims are made up
    draft.claims[0].flaw                                                     # "false"

The flaws of a draft are known claim by claim, so its right scores can be computed (`marks.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from msgspec import Struct, structs

from quaere.chat.statements import extract_conclusion, split_statements
from quaere.errors import SamplingFailed
from quaere.records import Report, Source
from quaere.warmup import report_phrases as words_research
from quaere.warmup.findings import Finding, find_facts
from quaere.warmup.phrases import write_thought
from quaere.worlds import Fact, World
from quaere.worlds.dice import Dice
from quaere.worlds.fact_sentences import name_unknown, state_fact, unknown_relations
from quaere.worlds.names import capitalise
from quaere.worlds.open_questions import OpenGold

Flaw = Literal["false", "miscited", "unresolved", "uncited", "missing"]
"""Flaws of a report: false: a claim is made up; miscited: it cites a passage that does not state it; unresolved: it
cites a passage that was never shown; uncited: nothing is cited; missing: most known facts are left out."""
FLAWS: tuple[Flaw, ...] = get_args(Flaw)

MIN_SENTENCES, MAX_SENTENCES = 4, 8
MIN_CLAIMS = 3
_MAX_OWN, _MAX_OTHER = 6, 2
_JOIN_PERCENT = 20
_MAX_FLAWED = 2


class Claim(Struct, frozen=True):
    """A fact as a draft states it: `said` is the claimed value, `citations` the cited numbers, `flaw` the error in it.

    Claim(finding=Finding(...), said="Ilse Varn", citations=(2,), flaw="")
    """

    finding: Finding
    said: str
    citations: tuple[int, ...]
    flaw: Flaw | Literal[""] = ""


class Draft(Struct, frozen=True):
    """A report with its known claims and flaws.

    `covered` and `missed` are facts about the things asked about, by subject and relation: those that the report states
    correctly, and the others.

    Draft(text="The composer of The Salt Ring is Ilse Varn [2]. ...", claims=(Claim(...),), num_gaps=1,
          covered=((12, "opera_composer"),), missed=((12, "premiere"),), num_named=1, num_treated=1)
    """

    text: str
    claims: tuple[Claim, ...]
    num_gaps: int  # sentences that admit that something is not known
    covered: tuple[tuple[int, str], ...]
    missed: tuple[tuple[int, str], ...]
    num_named: int
    num_treated: int

    def bind(self, gold: OpenGold, sources: Mapping[int, Source]) -> Report:
        """The report as a record, with the sources it cites."""
        statements = split_statements(self.text)
        cited = {number for statement in statements for number in statement.citations}
        kept = tuple(source for number, source in sources.items() if number in cited)
        return Report(gold.to_question(), self.text, statements, kept, extract_conclusion(self.text))


def write_draft(
    world: World, gold: OpenGold, sources: Mapping[int, Source], dice: Dice, flaws: Sequence[Flaw] = ()
) -> Draft:
    """A report on the question from these sources, with these flaws.

    Raises SamplingFailed if the sources state too few facts.
    """
    named = [world.entity(entity).index for entity in gold.entities]
    found = find_facts(world, sources)
    own, others = _sort_findings(found, named, dice)
    if any(all(finding.fact.subject != index for finding in own) for index in named):
        raise SamplingFailed("nothing was found about what was asked")
    if len(own) + len(others) < MIN_CLAIMS:
        raise SamplingFailed("too little was found")
    target = dice.between(MIN_SENTENCES, MAX_SENTENCES)
    gaps = _draw_gaps(world, named, dice, most=0 if "missing" in flaws else min(2, target - MIN_CLAIMS))
    room = 2 if "missing" in flaws else target - len(gaps)
    chosen = own[: min(_MAX_OWN, room)]
    chosen += others[: room - len(chosen)] if "missing" not in flaws else []
    claims = _flaw(world, [Claim(one, one.said, (one.number,)) for one in chosen], sources, flaws, dice)
    text = _compose(world, gold, named, claims, gaps, dice, joins=not flaws)
    known = [(index, fact.relation) for index in named for fact in world.graph.facts_of(index)]
    stated = {claim.finding.key for claim in claims if claim.flaw != "false"}
    return Draft(
        text=text,
        claims=tuple(claims),
        num_gaps=len(gaps),
        covered=tuple(key for key in known if key in stated),
        missed=tuple(key for key in known if key not in stated),
        num_named=len(named),
        num_treated=sum(any(claim.finding.fact.subject == index for claim in claims) for index in named),
    )


def _sort_findings(found: Sequence[Finding], named: Sequence[int], dice: Dice) -> tuple[list[Finding], list[Finding]]:
    """The facts about the things asked about, taking turns between them; then facts about things linked to these."""
    by_subject = [[finding for finding in found if finding.fact.subject == index] for index in named]
    for findings in by_subject:
        dice.shuffle(findings)
    longest = max(map(len, by_subject))
    own = [findings[at] for at in range(longest) for findings in by_subject if at < len(findings)]
    objects = {finding.fact.object for finding in own}
    others = [
        finding
        for finding in found
        if finding.fact.subject not in named and (finding.fact.object in named or finding.fact.subject in objects)
    ]
    dice.shuffle(others)
    return own, others[:_MAX_OTHER]


def _draw_gaps(world: World, named: Sequence[int], dice: Dice, most: int) -> list[str]:
    """Phrases for facts about these things that no document states."""
    unknown = [(index, relation) for index in named for relation in unknown_relations(world.graph, index)]
    dice.shuffle(unknown)
    num = dice.between(0, most) if most > 0 else 0
    return [name_unknown(world.graph, index, relation) for index, relation in unknown[:num]]


# ---------------------------------------------------------------------------------------------------------------- flaws


def _flaw(
    world: World, claims: list[Claim], sources: Mapping[int, Source], flaws: Sequence[Flaw], dice: Dice
) -> list[Claim]:
    """The claims with these flaws added: each kind on one or two separate claims, `uncited` on all claims."""
    sound = list(range(len(claims)))
    dice.shuffle(sound)
    for flaw in [flaw for flaw in flaws if flaw in ("false", "miscited", "unresolved")]:
        for _ in range(dice.between(1, max(1, min(_MAX_FLAWED, len(claims) // 2)))):
            if sound:
                at = sound.pop()
                claims[at] = _spoil(world, claims[at], sources, flaw, dice)
    if "uncited" in flaws:
        claims = [
            structs.replace(claim, citations=(), flaw="false" if claim.flaw == "false" else "uncited")
            for claim in claims
        ]
    return claims


def _spoil(world: World, claim: Claim, sources: Mapping[int, Source], flaw: Flaw, dice: Dice) -> Claim:
    if flaw == "false":
        return structs.replace(claim, said=_other_value(world, claim.finding, dice), flaw=flaw)
    right = sources[claim.finding.number].passage.doc_id
    wrong = [number for number, source in sources.items() if source.passage.doc_id != right]
    if flaw == "miscited" and wrong:
        return structs.replace(claim, citations=(dice.pick(wrong),), flaw=flaw)
    return structs.replace(claim, citations=(max(sources) + dice.between(1, 4),), flaw="unresolved")


def _other_value(world: World, finding: Finding, dice: Dice) -> str:
    """A false value of the same kind."""
    graph, fact = world.graph, finding.fact
    if fact.object is not None:
        members = graph.members[graph.kind(fact.object).name]
        return graph.entities[dice.pick([index for index in members if index != fact.object])].name
    values = {
        other.value
        for index in graph.members[graph.kind(fact.subject).name]
        if (other := graph.fact(index, fact.relation)) is not None
    }
    return dice.pick(sorted(values - {fact.value, finding.said}) or ["nobody knows what"])


# -------------------------------------------------------------------------------------------------------------- wording


def cite(numbers: Sequence[int]) -> str:
    """The citation that follows a sentence's last word.

    cite((3, 1)) == " [1, 3]"; cite(()) == ""
    """
    return f" [{', '.join(map(str, sorted(set(numbers))))}]" if numbers else ""


def _state(world: World, claim: Claim, dice: Dice) -> str:
    """The claim as a sentence without citation and full stop."""
    fact = claim.finding.fact
    stated = Fact(fact.subject, fact.relation, fact.object, fact.value)
    return state_fact(world.graph, stated, claim.said, form=dice.below(6)).removesuffix(".")


def _compose(
    world: World,
    gold: OpenGold,
    named: Sequence[int],
    claims: Sequence[Claim],
    gaps: Sequence[str],
    dice: Dice,
    *,
    joins: bool,
) -> str:
    """The report's text: a paragraph on the things asked about, one on linked things and gaps, and the conclusion."""
    own = [claim for claim in claims if claim.finding.fact.subject in named]
    others = [claim for claim in claims if claim.finding.fact.subject not in named]
    admitted = [write_thought(words_research.GAPS, dice, {"gap": gap}, min_words=4, max_words=30) for gap in gaps]
    paragraphs = [_sentences(world, own, dice, joins), [*_sentences(world, others, dice, joins), *admitted]]
    body = [" ".join(sentences) for sentences in paragraphs if sentences]
    return "\n\n".join([*body, f"Conclusion: {_conclude(world, gold, named, claims, dice)}"])


def _sentences(world: World, claims: Sequence[Claim], dice: Dice, joins: bool) -> list[str]:
    """One sentence per claim; sometimes two claims are joined into one sentence."""
    sentences: list[str] = []
    at = 0
    while at < len(claims):
        stated, citations = _state(world, claims[at], dice), claims[at].citations
        following = _state(world, claims[at + 1], dice) if at + 1 < len(claims) else ""
        if joins and following.startswith("The ") and dice.chance(_JOIN_PERCENT):
            stated, citations = f"{stated}, and the {following[4:]}", (*citations, *claims[at + 1].citations)
            at += 1
        sentences.append(f"{stated}{cite(citations)}.")
        at += 1
    return sentences


def _conclude(world: World, gold: OpenGold, named: Sequence[int], claims: Sequence[Claim], dice: Dice) -> str:
    """The conclusion: what the things asked about are linked with, according to the claims."""
    links = [[claim for claim in claims if _links(claim, index)] for index in named]
    names = [world.graph.entities[index].name for index in named]
    slots = {"X": names[0]}
    used: list[Claim] = []
    if len(named) == 2 and links[0] and links[1] and links[0][0].said != names[1]:
        forms, used = words_research.CONCLUDE_PAIR, [links[0][0], links[1][0]]
        slots |= {"Y": names[1], "A": used[0].said, "B": used[1].said}
    elif len(links[0]) >= 2:
        forms, used = words_research.CONCLUDE_TWO_LINKS, links[0][:2]
        slots |= {"A": used[0].said, "B": used[1].said}
    elif links[0]:
        forms, used = words_research.CONCLUDE_LINK, links[0][:1]
        slots |= {"A": used[0].said}
    else:
        forms = words_research.CONCLUDE_LITERAL
        used = [claim for claim in claims if claim.finding.fact.subject == named[0]][:1]
        if not used:
            raise SamplingFailed("too little was found")
        stated = _state(world, used[0], dice)
        concluded = write_thought(forms, dice, slots | {"cite": " "}, min_words=4, max_words=40).replace(" .", ".")
        return f"{stated}{cite(used[0].citations)}. {concluded}"
    slots["cite"] = cite([number for claim in used for number in claim.citations]) or " "
    return capitalise(write_thought(forms, dice, slots, min_words=4, max_words=40).replace(" .", "."))


def _links(claim: Claim, index: int) -> bool:
    return claim.finding.fact.subject == index and claim.finding.fact.object is not None
