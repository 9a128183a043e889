"""The proposer's questions, from draft to curriculum: jobs, format scores, evidence, and every check of a question.

A proposal is one record, `Proposed`, which each stage extends:

    reward.read(episode)              the format score, and whether the solver should attempt the question
    trace(proposals, ...)             EVE: its evidence, and the guards that refuse it
    judge_form, judge_attempts        the reason for which the curriculum drops it
    make_candidate(proposed, ...)     the candidate that the run stores
"""

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct, structs

from quaere.chat.protocol import Protocol
from quaere.chat.spans import find_evidence, shown_passages
from quaere.chat.tags import find_blocks
from quaere.errors import BadInput
from quaere.records import (
    Candidate,
    DropReason,
    Episode,
    Evidence,
    Passage,
    Proposal,
    ProposeTask,
    Question,
    Search,
    Support,
    searches_needed,
)
from quaere.rewards.answers import Containment, normalise_answer, year_aliases
from quaere.rewards.guards import GUARDS, PAPER, Triple, count_earlier, guarded, refusals
from quaere.rewards.proposer import (
    BREVITY_TOKENS,
    BREVITY_WEIGHT,
    SPAN_WEIGHT,
    VALUE_WEIGHT,
    EvidenceCheck,
    FormatRule,
    FormatScore,
    InvalidRule,
    ProposerReward,
    TripleReward,
    format_score,
)
from quaere.rollout.episode import Job
from quaere.setting_types import NonNegativeFloat, PositiveInt
from quaere.training.step import Step


class Proposed(Struct, frozen=True):
    """An episode of the proposer with its format score, and its question if the solver should attempt it.

    The solver's attempts (`num_right` of `num_attempts`) and the reward follow in a recipe's `judge`. Where evidence is
    asked for, `triple` is what the guards see, `evidence` the span's place in a text that was shown (None if it is not
    verbatim), `refusals` are the guards that refuse it, and `support` is the verifier's result. `cluster` and
    `question_type` are the choices of a corpus selector.

        Proposed(episode=Episode(...), score=FormatScore(...), question=Question(id="i0-000001", text="Who ...?", ...))
    """

    episode: Episode
    score: FormatScore
    question: Question | None
    num_right: int = 0
    num_attempts: int = 0
    reward: ProposerReward = ProposerReward(0.0, 0.0, 0.0)
    triple: Triple = Triple("", "", "", 0, "", 1)
    evidence: Evidence | None = None
    refusals: tuple[str, ...] = ()
    support: Support | None = None
    cluster: int = -1
    question_type: str = ""

    @property
    def task(self) -> ProposeTask:
        """The document, and the number of hops asked for."""
        assert isinstance(self.episode.task, ProposeTask)
        return self.episode.task

    @property
    def written(self) -> Proposal:
        """Question, answer and span as written; "" for each if there are none."""
        return self.episode.outcome if isinstance(self.episode.outcome, Proposal) else Proposal("", "")

    @property
    def is_verbatim(self) -> bool:
        """True if a text that was shown contains the span."""
        return self.evidence is not None

    def measured(self) -> dict[str, float]:
        """Every component of the reward, as metrics for the store."""
        found = {
            "reward/total": self.reward.total,
            **{f"reward/{name}": value for name, value in structs.asdict(self.reward).items()},
            **{f"format/{name}": float(getattr(self.score, name)) for name in ("think", "tool", "answer", "valid")},
            "attempts/right": float(self.num_right),
            "attempts/num": float(self.num_attempts),
        }
        if isinstance(self.reward, TripleReward):
            found["evidence/verbatim"] = float(self.is_verbatim)
            found["evidence/tokens"] = float(self.triple.num_span_tokens)
            found["evidence/refused"] = float(bool(self.refusals))
            for name in ("chance_with", "chance_without", "value") if self.support else ():
                found[f"evidence/{name}"] = getattr(self.support, name)
            if self.cluster >= 0:
                found["selector/cluster"] = float(self.cluster)
        return found


def propose_jobs(protocol: Protocol, tasks: Sequence[ProposeTask], num_questions: int) -> list[Job]:
    """`num_questions` episodes per task; those of one task are adjacent."""
    return [
        Job(protocol, task, task.id if num_questions == 1 else f"{task.id}.{number}")
        for task in tasks
        for number in range(num_questions)
    ]


def read_proposal(
    episode: Episode,
    *,
    format_rule: FormatRule = "eve",
    invalid_rule: InvalidRule = "text",
    containment: Containment = "words",
    choices: bool = True,
) -> Proposed:
    """Format score of a proposer's episode, from its actions and the replies it received."""
    task = episode.task
    assert isinstance(task, ProposeTask)
    outcome = episode.outcome if isinstance(episode.outcome, Proposal) else Proposal("", "")
    calls = [turn for turn in episode.turns if isinstance(turn.action, Search)]
    sources = [task.document.titled_text] if task.document else []
    sources += [hit.passage.titled_text for turn in calls for result in turn.results for hit in result.hits]
    score = format_score(
        question=outcome.question,
        answer=outcome.answer,
        hops=task.hops,
        num_turns=len(episode.turns),
        num_planned_turns=sum(opens_with_plan(turn.text) for turn in episode.turns),
        num_valid_calls=len(calls),
        num_responses=sum(bool(turn.results) for turn in calls),
        sources=sources,
        format_rule=format_rule,
        invalid_rule=invalid_rule,
        containment=containment,
        choices=choices,
    )
    # A proposal written after a failed search is neither penalised nor attempted by the solver.
    if not score.valid or episode.search_failed:
        return Proposed(episode, score, None)
    facts = searches_needed(task.hops)
    accepted = (outcome.answer, *year_aliases(outcome.question, outcome.answer))
    return Proposed(
        episode, score, Question(episode.id, outcome.question, accepted, task.hops, facts=facts, searches=facts)
    )


def opens_with_plan(text: str) -> bool:
    """True if the turn starts with a non-empty thought.

    opens_with_plan("<think>I need the builder.</think><answer>Venn</answer>") -> True
    """
    first = next(iter(find_blocks(text, ("think",))), None)
    return first is not None and bool(first.content.strip()) and text.lstrip().startswith("<think>")


def _is_too_long(proposed: Proposed, max_words: int) -> bool:
    """True if the question has more than `max_words` words; never for 0."""
    return bool(max_words) and len(proposed.written.question.split()) > max_words


def best_samples(proposals: Sequence[Proposed], num_samples: int, max_words: int) -> list[Proposed]:
    """The best by format of each `num_samples` consecutive proposals; the first among equals.

    Order of preference: episodes without a failed search, then questions the filter could keep, then the format score.
    """

    def preference(item: Proposed) -> tuple[bool, bool, float]:
        return not item.episode.search_failed, item.score.valid and not _is_too_long(item, max_words), item.score.total

    starts = range(0, len(proposals), num_samples)
    return [max(proposals[start : start + num_samples], key=preference) for start in starts]


def keep_best(step: Step, proposals: Sequence[Proposed], num_samples: int, max_words: int) -> list[Proposed]:
    """The best of each `num_samples` consecutive proposals (`best_samples`); the other episodes are only stored."""
    best = best_samples(proposals, num_samples, max_words)
    chosen = {item.episode.id for item in best}
    for item in proposals:
        if item.episode.id not in chosen and not item.episode.search_failed:
            step.keep(item.episode, {"format/total": item.score.total})
    return best


def can_be_judged(proposed: Proposed, attempts: Sequence[Episode]) -> bool:
    """True if the proposal can be rewarded.

    It cannot if a search of the proposer failed, or if fewer than two of the solver's attempts had no failed search.
    """
    return not proposed.episode.search_failed and (proposed.question is None or len(attempts) >= 2)


# ------------------------------------------------------------------------------------------------------------- evidence


class EvidenceConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Evidence: what is asked for, how it is rewarded, and which guards refuse it.

        EvidenceConfig(check="zero_value", value_weight=0.5, brevity_weight=0.1, span_weight=0.3, guards=("verbatim",))

    Attributes:
        cite: Both roles are asked to quote their evidence. [EVE-Agent]
        check: A span that is in no text shown: zero_value: it earns neither value nor brevity; none: it is
            rewarded like any other; invalid: its proposal earns the format reward alone. [EVE-Agent]
        value_weight: Weight of the verifier's value in the proposer's reward: lambda_V. [EVE-Agent, Eq. 16]
        brevity_weight: Weight of the brevity bonus in the proposer's reward: lambda_B. [EVE-Agent, Eq. 16]
        brevity_tokens: Span length at which the brevity bonus is 0: L_max. [EVE-Agent, Eq. 15]
        span_weight: Weight of the quoted span in the solver's reward: lambda_E. [EVE-Agent, Eq. 19]
        gold: Spans that the solver's quotation is compared with: verbatim ones only, or any as it was written,
            also a made-up one (preset paper). [Quaere; EVE-Agent]
        paid: Quotations of the solver that earn the reward of span_weight: written: any; verbatim: only those in a
            text it was shown. [EVE-Agent; Quaere]
        guards: Names of the rules that refuse evidence which proves nothing (`rewards/guards.py`); the paper has
            none. [Quaere]
    """

    cite: bool = True
    check: EvidenceCheck = "zero_value"
    value_weight: NonNegativeFloat = VALUE_WEIGHT
    brevity_weight: NonNegativeFloat = BREVITY_WEIGHT
    brevity_tokens: PositiveInt = BREVITY_TOKENS
    span_weight: NonNegativeFloat = SPAN_WEIGHT
    gold: Literal["verbatim", "written"] = "verbatim"
    paid: Literal["written", "verbatim"] = "written"
    guards: tuple[str, ...] = PAPER


def check_evidence(config: EvidenceConfig) -> None:
    """Raise `BadInput` for an unknown guard, and for rewards and guards of evidence that is not asked for."""
    for name in config.guards:
        if name not in GUARDS:
            raise BadInput(f"evidence.guards: there is no guard {name!r}; choose from {', '.join(GUARDS)}")
    for name, off in {"value_weight": "0", "brevity_weight": "0", "span_weight": "0", "guards": "[]"}.items():
        if getattr(config, name) and not config.cite:
            raise BadInput(f"evidence.cite=false asks for no evidence: set evidence.{name}={off} as well")


def trace(proposals: Sequence[Proposed], config: EvidenceConfig, count_tokens: Callable[[str], int]) -> list[Proposed]:
    """Locate every span in the texts shown, and apply all guards except `needed`, which depends on the verifier.

    A proposal that is refused, or that lacks verbatim evidence where it is required (`check="invalid"`), is invalid
    from here on: the solver does not attempt it, and it earns its format part alone.
    """
    earlier = count_earlier([proposed.written.question for proposed in proposals])
    guards = [name for name in config.guards if name != "needed"]
    found = []
    for proposed, num_earlier in zip(proposals, earlier, strict=True):
        passages = shown_passages(proposed.episode)
        evidence = find_evidence(proposed.written.span, passages)
        span = evidence.text if evidence else proposed.written.span
        triple = _read_triple(proposed, passages, span, count_tokens(span), num_earlier)
        refused = refusals(triple, guards) if proposed.score.valid else ()
        is_lacking = config.check == "invalid" and config.cite and evidence is None
        found.append(_refuse(structs.replace(proposed, triple=triple, evidence=evidence), refused, is_lacking))
    return found


def _refuse(proposed: Proposed, refused: tuple[str, ...], is_lacking: bool = False) -> Proposed:
    if not refused and not is_lacking:
        return structs.replace(proposed, refusals=refused)
    score = structs.replace(guarded(proposed.score, refused), valid=False)
    return structs.replace(proposed, score=score, question=None, refusals=refused)


def _read_triple(
    proposed: Proposed, passages: Sequence[Passage], span: str, num_tokens: int, num_earlier: int
) -> Triple:
    """Question, answer and span, with the texts, thoughts and queries that the guards check."""
    task, turns = proposed.task, proposed.episode.turns
    searches = [turn.action for turn in turns if isinstance(turn.action, Search)]
    return Triple(
        question=proposed.written.question,
        answer=proposed.written.answer,
        span=span,
        num_span_tokens=num_tokens,
        document=task.document.text if task.document else "",
        hops=task.hops,
        returned=tuple(passage.text for passage in passages if passage != task.document),
        thoughts=tuple(block.content for turn in turns for block in find_blocks(turn.text, ("think",))[:1]),
        queries=tuple(query for search in searches for query in search.queries),
        num_earlier=num_earlier,
    )


def hear(proposed: Proposed, support: Support | None, config: EvidenceConfig) -> Proposed:
    """Add the verifier's result, and apply the guard `needed` to it if there is a result and the guard is on."""
    proposed = structs.replace(proposed, support=support)
    if support is None or "needed" not in config.guards:
        return proposed
    chances = {"chance_with": support.chance_with, "chance_without": support.chance_without}
    return _refuse(proposed, refusals(structs.replace(proposed.triple, **chances), ["needed"]))


# -------------------------------------------------------------------------------- which questions the solver trains on


def judge_form(proposed: Proposed, seen: set[str], max_words: int = 0) -> DropReason:
    """Reason to drop a question without attempts; "" if it passes. `seen` (normalised questions so far) is extended.

    A question of more than `max_words` words is invalid; 0 means no limit.
    """
    if proposed.episode.search_failed:
        return "unfinished"
    if proposed.score.leaked:
        return "leaked answer"
    if proposed.question is None or _is_too_long(proposed, max_words):
        return "invalid"
    text = normalise_answer(proposed.question.text)
    if text in seen:
        return "duplicate"
    seen.add(text)
    return ""


def remember_questions(candidates: Sequence[Candidate]) -> set[str]:
    """The normalised questions of those candidates that passed `judge_form`, as its `seen` in a resumed run."""

    def passed(item: Candidate) -> bool:
        if item.reason == "refused":  # only questions that passed `judge_form` are sent to the verifier
            return item.refusals == ("needed",)
        return bool(item.num_attempts) or item.reason not in ("unfinished", "leaked answer", "invalid")

    return {normalise_answer(item.question) for item in candidates if passed(item)}


def judge_attempts(num_right: int, num_attempts: int) -> DropReason:
    """Reason to drop a question by its attempts; "" if it is solved sometimes, as only such questions give a gradient.

    Attempts with a failed search do not count. With no attempt left the difficulty is unknown: "spoiled".

    judge_attempts(0, 5) == "never solved"; judge_attempts(5, 5) == "always solved"; judge_attempts(2, 5) == ""
    """
    if not num_attempts:
        return "spoiled"  # not "unfinished": a resumed run must know that the question passed `judge_form`
    if num_right == 0:
        return "never solved"
    return "always solved" if num_right == num_attempts else ""


def make_candidate(proposed: Proposed, *, step: int, iteration: int, reason: DropReason) -> Candidate:
    """The proposal as a candidate of the curriculum, for the store; `reason` is why it is dropped, "" if it is kept."""
    task, written, score = proposed.task, proposed.written, proposed.score
    return Candidate(
        id=proposed.episode.id,
        step=step,
        iteration=iteration,
        episode_id=proposed.episode.id,
        document_id=task.document.doc_id if task.document else "",
        hops=task.hops,
        question=written.question,
        answer=written.answer,
        num_right=proposed.num_right,
        num_attempts=proposed.num_attempts,
        reason=reason,
        scores={"format": score.total, "think": score.think, "tool": score.tool, "answer": score.answer},
        span=proposed.triple.span,
        evidence=proposed.evidence,
        support=proposed.support,
        refusals=proposed.refusals,
        cluster=proposed.cluster,
        question_type=proposed.question_type,
        aliases=year_aliases(written.question, written.answer),
    )


# -------------------------------------------------------------------------------------------- measures of a curriculum


def measure_verdicts(kept: Sequence[Candidate], curriculum: Sequence[Candidate]) -> dict[str, float]:
    """Metrics of how people's verdicts and added questions changed the curriculum that the run kept.

    measure_verdicts([a, b], [b, c, added])
    -> {"curriculum/questions": 3.0, "curriculum/rejected": 1.0, "curriculum/accepted": 1.0, "curriculum/added": 1.0}
    """
    num_added = sum(candidate.added for candidate in curriculum)
    num_accepted = sum(not candidate.kept for candidate in curriculum)
    return {
        "curriculum/questions": float(len(curriculum)),
        "curriculum/rejected": float(len(kept) - (len(curriculum) - num_accepted - num_added)),
        "curriculum/accepted": float(num_accepted),
        "curriculum/added": float(num_added),
    }


def measure_overlap(kept: Sequence[Candidate], earlier: Sequence[Candidate]) -> dict[str, float]:
    """The number of kept questions that are new, and the share of kept questions that repeat an earlier one.

    The share is left out if no question was kept. A question repeats another if its words are the same, or if it asks
    for the same answer about the same document.

        measure_overlap([same, other], [same]) -> {"curriculum/new": 1.0, "curriculum/overlap": 0.5}
    """
    known = {key for candidate in earlier for key in _keys(candidate)}
    num_new = sum(known.isdisjoint(_keys(candidate)) for candidate in kept)
    overlap = {"curriculum/overlap": 1 - num_new / len(kept)} if kept else {}
    return {"curriculum/new": float(num_new), **overlap}


_SAME_WORDS = 0.7  # share of the words of two questions that both have, from which on one nearly repeats the other


def measure_repeats(kept: Sequence[Candidate], earlier: Sequence[Candidate]) -> dict[str, float]:
    """The share of kept questions that nearly repeat an earlier one, or one before them in the list.

    Questions about one page, or with one answer, are compared by their words. Given ones are left out, since an
    iteration may be given the same again. {} if no other was kept.

        measure_repeats([a, nearly_a, b], []) -> {"curriculum/repeats": 0.333}
    """
    before, written = ([one for one in some if not one.given] for some in (earlier, kept))
    by_key: dict[tuple[str, str], list[set[str]]] = {}
    num_repeats = 0
    for number, candidate in enumerate([*before, *written]):
        words = set(normalise_answer(candidate.question).split())
        keys = (("page", candidate.document_id), ("answer", normalise_answer(candidate.answer)))
        groups = [by_key.setdefault(key, []) for key in keys if key[1]]
        is_near = any(len(words & other) >= _SAME_WORDS * len(words | other) for group in groups for other in group)
        num_repeats += is_near and number >= len(before)
        for group in groups:
            group.append(words)
    return {"curriculum/repeats": num_repeats / len(written)} if written else {}


def _keys(candidate: Candidate) -> set[tuple[str, ...]]:
    """Keys that a repeated question shares: its words and, if it has a document, the document with the answer."""
    words = {("words", normalise_answer(candidate.question))}
    fact = ("fact", candidate.document_id, normalise_answer(candidate.answer))
    return words | ({fact} if candidate.document_id else set())
