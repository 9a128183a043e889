"""Rewards of both roles in a step of EVE-Agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from quaere.chat.spans import find_evidence, shown_passages
from quaere.dialects.solver_dialect import Solver
from quaere.recipes.eve.config import EveConfig, EvidenceConfig
from quaere.recipes.eve.traces import Traced
from quaere.records import Answer, Candidate, Episode, SolveTask, Support
from quaere.rewards.evidence import TripleReward, brevity_score, cited_answer_reward, triple_reward
from quaere.training.phases.proposals import Proposed


class JudgedTriple(Struct, frozen=True):
    """A proposal with the results of solver and verifier, and its reward.

    JudgedTriple(Traced(...), num_right=2, num_attempts=5, support=Support(0.8, 0.2, 5), reward=TripleReward(...),
                 cluster=-1)
    """

    traced: Traced
    num_right: int
    num_attempts: int
    support: Support | None
    reward: TripleReward
    cluster: int  # chosen by the selector; -1 without one

    @property
    def proposed(self) -> Proposed:
        """The proposal itself."""
        return self.traced.proposed

    def measured(self) -> dict[str, float]:
        """Every component of the reward, as metrics for the store."""
        found = {
            "reward/total": self.reward.total,
            "reward/format": self.reward.format,
            "reward/difficulty": self.reward.difficulty,
            "reward/value": self.reward.value,
            "reward/brevity": self.reward.brevity,
            **self.proposed.measured(),
            "attempts/right": float(self.num_right),
            "attempts/num": float(self.num_attempts),
            "evidence/verbatim": float(self.traced.is_verbatim),
            "evidence/tokens": float(self.traced.triple.num_span_tokens),
            "evidence/refused": float(bool(self.traced.refusals)),
        }
        if self.support is not None:
            found["evidence/chance_with"] = self.support.chance_with
            found["evidence/chance_without"] = self.support.chance_without
            found["evidence/value"] = self.support.value
        if self.cluster >= 0:
            found["selector/cluster"] = float(self.cluster)
        return found


def judge_triple(
    traced: Traced, rights: Sequence[float], support: Support | None, config: EveConfig, cluster: int = -1
) -> JudgedTriple:
    """A proposal with its reward (Eq. 16 to 18).

    An invalid proposal is not attempted and earns its format part alone.
    """
    evidence, reward_config = config.evidence, config.proposer.reward
    num_right, num_attempts = int(sum(rights)), len(rights)
    reward = triple_reward(
        traced.proposed.score,
        num_right,
        max(2, num_attempts),  # an unattempted proposal has no right attempt; the reward needs a number of at least 2
        value=support.value if support else 0.0,
        num_span_tokens=traced.triple.num_span_tokens,
        is_verbatim=traced.is_verbatim,
        evidence_check=evidence.check,
        value_weight=evidence.value_weight,
        brevity_weight=evidence.brevity_weight,
        brevity_tokens=evidence.brevity_tokens,
        shape=reward_config.shape,
        format_weight=reward_config.format_weight,
    )
    return JudgedTriple(traced, num_right, num_attempts, support, reward, cluster)


def candidate_scores(traced: Traced, config: EveConfig) -> dict[str, float]:
    """Scores of a candidate to store besides its format score."""
    return {"brevity": brevity_score(traced.triple.num_span_tokens, config.evidence.brevity_tokens)}


def pay_cited_answer(
    episode: Episode, curriculum: Mapping[str, Candidate], evidence: EvidenceConfig, solver: Solver
) -> dict[str, float]:
    """The solver's reward: its dialect's reward for the answer plus the overlap of its span with the proposer's.

    Eq. 19 to 21; with tool-call the reward for the answer is exact match. If the dialect gives reward 0 for a broken
    format (`gated`), the span earns nothing either, nor with `evidence.paid=verbatim` if it is in no text shown.
    """
    assert isinstance(episode.task, SolveTask)
    question = episode.task.question
    answer = episode.outcome if isinstance(episode.outcome, Answer) else Answer("")
    candidate = curriculum[question.id]
    # A made-up span proves nothing: a solver that repeats it would be paid for inventing evidence. What a person added
    # is taken at their word.
    is_made_up = candidate.evidence is None and not candidate.added
    gold_span = "" if is_made_up and evidence.gold == "verbatim" else candidate.gold_span
    cited = cited_answer_reward(answer.text, question.answers, answer.span, gold_span, span_weight=evidence.span_weight)
    paid = dict(solver.pay(episode))
    is_verbatim = find_evidence(answer.span, shown_passages(episode)) is not None
    is_unpaid = (solver.gated and not paid["format/held"]) or (evidence.paid == "verbatim" and not is_verbatim)
    span = 0.0 if is_unpaid else cited.span
    return {
        "reward/answer": paid["reward/total"],
        **paid,
        "reward/span": span,
        "reward/total": paid["reward/total"] + span,
        "evidence/present": float(bool(answer.span)),
        "evidence/verbatim": float(is_verbatim),
    }
