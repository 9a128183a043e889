"""The verifier: the value of a proposal's evidence to the current solver, in one of three forms."""

from __future__ import annotations

from collections.abc import Sequence

from quaere.dialects.solver_dialect import solver_reward
from quaere.policies.sampler import SamplingParams
from quaere.recipes.eve.config import EveConfig
from quaere.recipes.eve.traces import Traced, claim_of
from quaere.records import Support
from quaere.rollout.policy import ChatPolicy
from quaere.search.searcher import NoSearcher
from quaere.training.phases.stage import Stage
from quaere.training.phases.verification import Claim, read_supports, score_supports, verification_jobs, verify_claims
from quaere.training.step import Step


class Verifier:
    """Asks the solver, or a frozen scorer, each question with its span and without it.

    await Verifier(stage, config).ask(step, triples) -> [Support(0.8, 0.2, 5), None]
    """

    def __init__(self, stage: Stage, config: EveConfig, scorer: ChatPolicy | None = None) -> None:
        self.stage = stage
        self.config = config
        self.scorer = scorer  # used by the hosted form only

    async def ask(self, step: Step, triples: Sequence[Traced]) -> list[Support | None]:
        """The value of each span; None if the verifier was not asked or gave no result."""
        claims = [claim_of(traced, self.config.evidence) for traced in triples]
        asked = [claim for claim in claims if claim is not None]
        supports = await self._verify(step, asked) if asked else []
        found = {claim.id: support for claim, support in zip(asked, supports, strict=True)}
        return [found[claim.id] if claim else None for claim in claims]

    def is_silent(self, traced: Traced, support: Support | None) -> bool:
        """True if the verifier was asked and gave no result, so that the value of the span is unknown."""
        return support is None and claim_of(traced, self.config.evidence) is not None

    async def _verify(self, step: Step, claims: list[Claim]) -> list[Support | None]:
        settings = self.config.verifier
        if settings.form == "hosted":
            assert self.scorer is not None
            return await verify_claims(self.scorer, claims, settings, name=step.name, seed=step.seed)
        if settings.form == "teacher_forced":
            self.stage.actors.become("solver")
            policy, longest = self.stage.actors.policy, settings.sequence_tokens
            return await score_supports(policy, claims, guided=settings.guided, sequence_tokens=longest)
        jobs = verification_jobs(claims, settings.samples, step.name, guided=settings.guided)
        params = SamplingParams(temperature=settings.temperature)
        played = await self.stage.play(
            step, "solver", jobs, settings.limits, searcher=NoSearcher(), name="verifier", params=params
        )
        for episode in played.episodes:
            step.keep(episode, {"answer/exact_match": solver_reward(episode)})
        return read_supports(played.episodes, settings.samples)
