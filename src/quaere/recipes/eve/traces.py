"""Evidence of proposals: each span located in the text the proposer was shown, and checked by the guards."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct, structs

from quaere.chat.spans import find_evidence, shown_passages
from quaere.chat.tags import find_blocks
from quaere.recipes.eve.config import EvidenceConfig
from quaere.records import Evidence, Passage, Proposal, ProposeTask, Search, Support
from quaere.rewards.guards import Triple, count_earlier, guarded, refusals
from quaere.training.phases.proposals import Proposed
from quaere.training.phases.verification import Claim

CountTokens = Callable[[str], int]


class Traced(Struct, frozen=True):
    """A proposal with its evidence: its location (None if it is not verbatim), and the guards that refuse it.

    Traced(proposed=Proposed(...), triple=Triple(...), evidence=Evidence("w7-000012", 118, 163, "..."), refusals=())
    """

    proposed: Proposed
    triple: Triple
    evidence: Evidence | None
    refusals: tuple[str, ...] = ()

    @property
    def is_verbatim(self) -> bool:
        """True if a text that was shown contains the span."""
        return self.evidence is not None


def trace(proposals: Sequence[Proposed], config: EvidenceConfig, count_tokens: CountTokens) -> list[Traced]:
    """Locate every span, and refuse what a guard refuses before the solver attempts it.

    A proposal that is refused, or that lacks verbatim evidence where it is required (`check="invalid"`), is invalid
    from here on: the solver does not attempt it, and it earns its format part alone.
    """
    earlier = count_earlier([proposed.text for proposed in proposals])
    # The guard "needed" depends on the verifier, which is asked later (`hear`).
    guards = [name for name in config.guards if name != "needed"]
    found = []
    for proposed, num_earlier in zip(proposals, earlier, strict=True):
        passages = shown_passages(proposed.episode)
        outcome = proposed.episode.outcome
        span = outcome.span if isinstance(outcome, Proposal) else ""
        evidence = find_evidence(span, passages)
        triple = read_triple(proposed, passages, evidence.text if evidence else span, count_tokens, num_earlier)
        refused = refusals(triple, guards) if proposed.score.valid else ()
        is_lacking = config.check == "invalid" and config.cite and evidence is None
        found.append(_judged(Traced(proposed, triple, evidence), refused, is_lacking))
    return found


def _judged(traced: Traced, refused: tuple[str, ...], is_lacking: bool) -> Traced:
    proposed = traced.proposed
    if refused or is_lacking:
        score = structs.replace(guarded(proposed.score, refused), valid=False)
        proposed = structs.replace(proposed, score=score, question=None)
    return structs.replace(traced, proposed=proposed, refusals=refused)


def read_triple(
    proposed: Proposed, passages: Sequence[Passage], span: str, count_tokens: CountTokens, num_earlier: int
) -> Triple:
    """Question, answer and span, with the texts, thoughts and queries that the guards check."""
    episode = proposed.episode
    task, outcome = episode.task, episode.outcome
    assert isinstance(task, ProposeTask)
    written = outcome if isinstance(outcome, Proposal) else Proposal("", "")
    searches = [turn.action for turn in episode.turns if isinstance(turn.action, Search)]
    first = [block.content for turn in episode.turns for block in find_blocks(turn.text, ("think",))[:1]]
    return Triple(
        question=written.question,
        answer=written.answer,
        span=span,
        num_span_tokens=count_tokens(span),
        document=task.document.text if task.document else "",
        hops=task.hops,
        returned=tuple(passage.text for passage in passages if passage != task.document),
        thoughts=tuple(first),
        queries=tuple(query for search in searches for query in search.queries),
        num_earlier=num_earlier,
    )


def claim_of(traced: Traced, config: EvidenceConfig) -> Claim | None:
    """The claim for the verifier about this proposal; None if its result would not matter."""
    proposed = traced.proposed
    if proposed.question is None or not (traced.is_verbatim or config.check == "none"):
        return None
    return Claim(proposed.question.id, proposed.question.text, proposed.question.answers, traced.triple.span)


def hear(traced: Traced, support: Support | None, config: EvidenceConfig) -> Traced:
    """The proposal after the verifier's result, which may be a further reason to refuse it."""
    if support is None or "needed" not in config.guards:
        return traced
    chances = {"chance_with": support.chance_with, "chance_without": support.chance_without}
    triple = structs.replace(traced.triple, **chances)
    return _judged(traced, refusals(triple, ["needed"]), is_lacking=False)
