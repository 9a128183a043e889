"""Reports written by the oracle: correct ones to imitate, and flawed ones to learn assessing from, with their scores.

    found = find_facts(world, numbered_sources(turns))     # [Finding(fact=Fact(...), said="Ilse Varn", number=2), ...]
    draft = write_draft(world, gold, sources, dice)                          # every fact there, rightly cited
    draft = write_draft(world, gold, sources, dice, flaws=("false",))        # one or two claims are made up
    mark(draft, "factuality")                                                # 9 without a false claim, 6 with one
    explain(world, draft, dice, shown)  # ("Wrong: the composer of The Salt Ring is Ilse Varn.", "Nothing important.")

A passage states a fact only if the whole sentence was shown. The flaws of a draft are known claim by claim, and every
score is a function of them alone: equal reports get equal scores at any position, and a report with one more flaw never
gets a higher score.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, get_args

from msgspec import Struct, structs

from quaere.chat.statements import make_report
from quaere.errors import SamplingFailed
from quaere.records import Passage, Report, Source
from quaere.warmup.phrases import REPORT_FORMS, write_thought
from quaere.worlds import Fact, World
from quaere.worlds.dice import Dice
from quaere.worlds.names import capitalise
from quaere.worlds.open_questions import ReportLine, name_unknown, state_fact, unknown_relations

# Flaws of a report: false: a claim is made up; miscited: it cites a passage that does not state it; unresolved: it
# cites a passage that was never shown; uncited: nothing is cited; missing: most known facts are left out.
Flaw = Literal["false", "miscited", "unresolved", "uncited", "missing"]
FLAWS: tuple[Flaw, ...] = get_args(Flaw)

MIN_SENTENCES, MAX_SENTENCES = 4, 8
MIN_CLAIMS = 3
MAX_OWN, _MAX_OTHER = 6, 2
_JOIN_PERCENT = 20
_MAX_FLAWED = 2
_ENOUGH = 6  # facts about the things asked about that make a report complete


class Finding(Struct, frozen=True):
    """A fact that a shown passage states: its object as the passage names it, and the passage's number.

    Finding(fact=Fact(12, "opera_composer", 40, "Ilse Varn"), said="Ilse Varn", number=2)
    """

    fact: Fact
    said: str
    number: int

    @property
    def key(self) -> tuple[int, str]:
        """The fact's identity: subject and relation."""
        return self.fact.subject, self.fact.relation


def find_facts(world: World, sources: Mapping[int, Source]) -> list[Finding]:
    """Every fact these passages state, in order of the passages, without duplicates."""
    found: dict[tuple[int, str], Finding] = {}
    for number, source in sorted(sources.items()):
        for fact, said in facts_in(world, source.passage):
            found.setdefault((fact.subject, fact.relation), Finding(fact, said, number))
    return list(found.values())


def facts_in(world: World, passage: Passage) -> Iterable[tuple[Fact, str]]:
    """The facts whose sentences lie within this passage, with their objects as the passage names them."""
    entity = world.entity(passage.doc_id)
    for support in world.article(entity).supports:
        if passage.start <= support.evidence.start and support.evidence.end <= passage.end:
            fact = world.graph.fact(entity.index, support.relation)
            assert fact is not None  # the article has just stated it
            yield fact, support.mention


def is_shown(world: World, passages: Iterable[Passage], key: tuple[int, str]) -> bool:
    """True if one of these passages states this fact."""
    return any((fact.subject, fact.relation) == key for passage in passages for fact, _ in facts_in(world, passage))


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

    def bind(self, gold: ReportLine, sources: Mapping[int, Source]) -> Report:
        """The report as a record, with the sources it cites."""
        return make_report(gold.to_question(), self.text, sources.values())


def write_draft(
    world: World, gold: ReportLine, sources: Mapping[int, Source], dice: Dice, flaws: Sequence[Flaw] = ()
) -> Draft:
    """A report on the question from these sources, with these flaws.

    Raises SamplingFailed if the sources state too few facts.
    """
    named = [world.entity(entity).index for entity in gold.entities]
    own, others = sort_findings(find_facts(world, sources), named, dice)
    target = dice.between(MIN_SENTENCES, MAX_SENTENCES)
    most = 0 if "missing" in flaws else min(2, target - MIN_CLAIMS)
    gaps = draw_gaps(world, named, dice, most=most)
    room = 2 if "missing" in flaws else target - len(gaps)
    chosen = own[: min(MAX_OWN, room)]
    chosen += others[: room - len(chosen)] if "missing" not in flaws else []
    claims = _flaw(world, [Claim(one, one.said, (one.number,)) for one in chosen], sources, flaws, dice)
    text = _compose(world, named, claims, gaps, dice, joins=not flaws)
    return describe_draft(world, named, text, claims, len(gaps))


def describe_draft(world: World, named: Sequence[int], text: str, claims: Sequence[Claim], num_gaps: int = 0) -> Draft:
    """A text with its claims as a draft: what it covers of the things asked about, and what it misses."""
    known = [(index, fact.relation) for index in named for fact in world.graph.facts_of(index)]
    stated = {claim.finding.key for claim in claims if claim.flaw != "false"}
    return Draft(
        text=text,
        claims=tuple(claims),
        num_gaps=num_gaps,
        covered=tuple(key for key in known if key in stated),
        missed=tuple(key for key in known if key not in stated),
        num_named=len(named),
        num_treated=sum(any(claim.finding.fact.subject == index for claim in claims) for index in named),
    )


def sort_findings(found: Sequence[Finding], named: Sequence[int], dice: Dice) -> tuple[list[Finding], list[Finding]]:
    """The facts about the things asked about, taking turns between them; then facts about things linked to these.

    Raises SamplingFailed if there is nothing on one of the things asked about, or too little in all.
    """
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
    others = others[:_MAX_OTHER]
    if not all(by_subject):
        raise SamplingFailed("nothing was found about what was asked")
    if len(own) + len(others) < MIN_CLAIMS:
        raise SamplingFailed("too little was found")
    return own, others


def draw_gaps(world: World, named: Sequence[int], dice: Dice, *, least: int = 0, most: int) -> list[str]:
    """Phrases for facts about these things that no document states, as many as there are of `least` to `most`."""
    unknown = [(index, relation) for index in named for relation in unknown_relations(world.graph, index)]
    dice.shuffle(unknown)
    num = dice.between(least, most) if most > 0 else 0
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
    """A false value for the finding's fact: another entity or literal of the same kind."""
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
    return state_fact(world.graph, claim.finding.fact, claim.said, form=dice.below(6)).removesuffix(".")


def _compose(
    world: World, named: Sequence[int], claims: Sequence[Claim], gaps: Sequence[str], dice: Dice, *, joins: bool
) -> str:
    """The report's text: a paragraph on the things asked about, one on linked things and gaps, and the conclusion."""
    own = [claim for claim in claims if claim.finding.fact.subject in named]
    others = [claim for claim in claims if claim.finding.fact.subject not in named]
    admitted = [write_thought(REPORT_FORMS["gaps"], dice, {"gap": gap}, min_words=4, max_words=30) for gap in gaps]
    paragraphs = [_sentences(world, own, dice, joins), [*_sentences(world, others, dice, joins), *admitted]]
    body = [" ".join(sentences) for sentences in paragraphs if sentences]
    return "\n\n".join([*body, f"Conclusion: {conclude(world, named, claims, dice)}"])


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


def conclude(world: World, named: Sequence[int], claims: Sequence[Claim], dice: Dice) -> str:
    """The text of the conclusion: what the claims link the question's entities with."""
    linking = [claim for claim in claims if claim.finding.fact.object is not None]
    links = [[claim for claim in linking if claim.finding.fact.subject == index] for index in named]
    names = [world.graph.entities[index].name for index in named]
    slots, stated = {"X": names[0]}, ""
    if len(named) == 2 and links[0] and links[1] and links[0][0].said != names[1]:
        form, used = "conclude_pair", [links[0][0], links[1][0]]
        slots["Y"] = names[1]
    elif links[0]:
        form, used = "conclude_two_links" if len(links[0]) >= 2 else "conclude_link", links[0][:2]
    else:
        form, used = "conclude_literal", []
        own = next((claim for claim in claims if claim.finding.fact.subject == named[0]), None)
        if own is None:
            raise SamplingFailed("too little was found")
        stated = f"{_state(world, own, dice)}{cite(own.citations)}. "
    slots |= {slot: claim.said for slot, claim in zip("AB", used, strict=False)}
    slots["cite"] = cite([number for claim in used for number in claim.citations]) or " "
    concluded = write_thought(REPORT_FORMS[form], dice, slots, min_words=4, max_words=40).replace(" .", ".")
    return f"{stated}{concluded}" if stated else capitalise(concluded)


# ------------------------------------------------------------------------------------------------------- scores


def mark(draft: Draft, dimension: str) -> int:
    """The score of a draft on a dimension, from its known flaws; an unknown dimension is scored like factuality."""
    num_false = sum(claim.flaw == "false" for claim in draft.claims)
    num_cited = sum(not claim.flaw for claim in draft.claims)  # true, and the passage cited states them
    num_right = len(draft.claims) - num_false
    covered = _cover(draft)
    balance = draft.num_treated / draft.num_named
    by_name = {
        "factuality": 9 - 3 * num_false,
        "citation": round(9 * num_cited / len(draft.claims)),
        "coverage": round(1 + 8 * covered),
        "depth": round(1 + 8 * min(1.0, num_right / _ENOUGH)),
        "insight": round(3 + 4 * covered) - num_false,
        "coherence": 8 - num_false,
        "instruction": round(2 + 6 * covered * balance),
        "readability": 8 if len(draft.claims) > 2 else 7,
        "balance": round(1 + 7 * balance) - num_false,
        "uncertainty": (8 if draft.num_gaps else 4) - 2 * num_false,
    }
    return max(0, min(10, by_name.get(dimension, by_name["factuality"])))


def _cover(draft: Draft) -> float:
    """The share of known facts about the question's entities that the draft states; `_ENOUGH` facts count as all."""
    return min(1.0, len(draft.covered) / min(_ENOUGH, len(draft.covered) + len(draft.missed)))


def explain(world: World, draft: Draft, dice: Dice, shown: Sequence[Passage]) -> tuple[str, str]:
    """An assessor's two texts: verification of the claims, and gaps of the report.

    A claim is corrected only if a passage in `shown` states the true value.
    """

    def write(forms: Sequence[str], **slots: str) -> str:
        return write_thought(forms, dice, slots, min_words=1, max_words=30)

    said = []
    for claim in draft.claims:
        key = claim.finding.key
        if claim.flaw == "false" and is_shown(world, shown, key):
            said.append(write(REPORT_FORMS["wrong"], claim=describe(world, key), right=claim.finding.said))
        elif claim.flaw == "false":
            said.append(write(("Not confirmed: {claim}.",), claim=describe(world, key)))
        elif claim.flaw in ("miscited", "unresolved"):
            forms = REPORT_FORMS["miscited"] if claim.flaw == "miscited" else ("{n} leads nowhere.",)
            said.append(write(forms, n=f"[{claim.citations[0]}]"))
    if all(not claim.citations for claim in draft.claims):
        said.append(write(REPORT_FORMS["uncited"]))
    verification = " ".join(dict.fromkeys(said)) or write(REPORT_FORMS["holds"])
    if draft.missed and _cover(draft) < 1:
        return verification, write(REPORT_FORMS["lacks"], claim=describe(world, draft.missed[0]))
    return verification, write(REPORT_FORMS["complete"])


def describe(world: World, key: tuple[int, str]) -> str:
    """The fact as a phrase without its value: "the composer of The Salt Ring"."""
    return name_unknown(world.graph, *key)
