"""EVE-Agent, from top to bottom (the paper's Algorithms 1 and 2): Dr. Zero (`drzero.py`) with evidence.

    repeat:
        phase A    the proposer learns to write questions with evidence that helps the frozen solver       (HRPO)
        then       the trained proposer writes triples about documents that were held out
        phase B    the solver learns to answer them and to quote its evidence                              (GRPO)
        between    the selector, if there is one, learns which topics and types of question earn reward

No question, answer or demonstration written by a person is used. The preset `paper` has the paper's values, and every
choice the paper leaves open is one value:

    evidence.check=none                 a span is rewarded wherever it comes from (others: zero_value, invalid)
    evidence.value_weight=0             no verifier (lambda_V); evidence.brevity_weight=0: no brevity (lambda_B)
    evidence.span_weight=0              the solver is rewarded for its answer alone (lambda_E)
    evidence.paid=verbatim              the solver's span is rewarded only if it is in a text that it was shown
    proposer.reward.invalid_rule=algorithm
    prompt_source=questions             documents that a file of questions leads to; or prompt_source=selector
    phase_b_documents=same              the solver's questions are about the proposer's own documents
    verifier.form=teacher_forced        or hosted, with verifier.model=openai:NAME@URL
    selector.run_score=rescale          selector.previous_mean="arm mean"
    selector.learns=yield               not of the paper: all draws count, and the bandits learn after every step

With `evidence.cite=false`, its three weights 0, `phase_b_documents=same`, and `generation.questions`, `iterations`,
`max_grad_norm` and `proposer.reward.format_rule` as there, it equals Dr. Zero bit for bit.
"""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from importlib.util import find_spec
from typing import Literal

from msgspec import structs

from quaere.chat.protocol import Quoted
from quaere.chat.spans import find_evidence, shown_passages
from quaere.dialects.roles import Solver
from quaere.errors import BadInput
from quaere.recipes import drzero
from quaere.recipes.drawn_documents import Documents, Shard, find_passages, read_held, split_documents
from quaere.recipes.drzero import DrZero
from quaere.recipes.passage_clusters import embed_index, sklearn_missing
from quaere.recipes.registry import Recipe
from quaere.recipes.selector import Selector, SelectorSettings, last_reward, pulled_questions
from quaere.records import Answer, Candidate, DropReason, Episode, SolveTask, Support
from quaere.rewards.abstention import original_id
from quaere.rewards.guards import OURS
from quaere.rewards.proposer import brevity_score, span_reward, triple_reward
from quaere.rollout.policy import ChatPolicy
from quaere.rollout.question_files import read_questions
from quaere.runs import Run
from quaere.search.searcher import Searcher
from quaere.setting_types import PositiveInt, ProperFraction
from quaere.training.evidence import (
    EvidenceConfig,
    Verifier,
    VerifierSettings,
    check_evidence,
    hear,
    measure_guards,
    open_hosted,
    trace,
)
from quaere.training.progress import Reporter
from quaere.training.proposals import Proposed, ProposerConfig, RewardConfig, can_be_judged
from quaere.training.rollouts import Passages
from quaere.training.run_setup import Opened, check_openable, open_run
from quaere.training.self_play import (
    ROLES,
    GenerationConfig,
    SelfPlayConfig,
    check_self_play,
    count_steps,
    needed_dialects,
    plan_self_play,
    refuse_hardening,
)
from quaere.training.settings import LearnerSettings
from quaere.training.solver_phase import SolverConfig
from quaere.training.step import Step
from quaere.training.training_run import TrainingRun

_UNKNOWN = ("unfinished", "spoiled")  # a search failed, so nothing is known about the question
MAX_GRAD_NORM = 0.1  # EVE-Agent's value; Dr. Zero's tables have two

# ------------------------------------------------------------------------------------------------------------- settings


class EveConfig(SelfPlayConfig, frozen=True, forbid_unknown_fields=True):
    """Settings of an EVE-Agent run: those of Dr. Zero, and evidence.

        EveConfig(model="smollm2-135m", index="demo/index", iterations=1)

    Attributes:
        prompt_source: How the proposer's documents are drawn: uniformly, by searching with the questions of a
            file, or by the corpus selector. [EVE-Agent, Sec. 3.3]
        prompt_questions: The file of questions for `prompt_source=questions`. [EVE-Agent]
        phase_b_documents: Documents of the solver's questions: held-out ones, or the same as the proposer's.
            [EVE-Agent]
        held_out_share: Share of the documents that the proposer's phase asks nothing about, kept for the solver's
            questions; searches find all documents in both phases. [EVE-Agent]
        verify_candidates: Verify the evidence of the solver's questions too; no reward depends on it. [Quaere]
    """

    iterations: PositiveInt = 1
    proposer: ProposerConfig = ProposerConfig(
        reward=RewardConfig(format_rule="eve"), learner=LearnerSettings(max_grad_norm=MAX_GRAD_NORM)
    )
    solver: SolverConfig = SolverConfig(learner=LearnerSettings(max_grad_norm=MAX_GRAD_NORM))
    generation: GenerationConfig = GenerationConfig(questions=5)
    prompt_source: Literal["uniform", "questions", "selector"] = "uniform"
    prompt_questions: str = ""  # a file or hub:OWNER/NAME, for prompt_source=questions
    phase_b_documents: Literal["held-out", "same"] = "held-out"
    held_out_share: ProperFraction = 0.2
    evidence: EvidenceConfig = EvidenceConfig()
    verifier: VerifierSettings = VerifierSettings()
    verify_candidates: bool = False
    selector: SelectorSettings = SelectorSettings()

    @property
    def verifies_proposals(self) -> bool:
        """True if a reward or guard of the proposer's phase depends on the verifier."""
        return self.evidence.cite and (self.evidence.value_weight != 0 or "needed" in self.evidence.guards)

    @property
    def verifies_candidates(self) -> bool:
        """True if the verifier is asked about the solver's questions."""
        return self.evidence.cite and (self.verify_candidates or "needed" in self.evidence.guards)

    @property
    def proposer_range(self) -> tuple[float, float]:
        """The least and the greatest reward of a proposer."""
        value, brevity = self.evidence.value_weight, self.evidence.brevity_weight
        return -value, self.proposer.reward.format_weight + 1 + value + brevity

    @property
    def solver_range(self) -> tuple[float, float]:
        """The least and the greatest reward of a solver."""
        return 0.0, 1 + self.evidence.span_weight


# Dr. Zero's presets, without settings of which EVE-Agent keeps its default: one iteration, one sample of a question.
_DRZERO = {
    preset: {name: value for name, value in values.items() if name not in ("iterations", "generation.samples")}
    for preset, values in drzero.PRESETS.items()
}
_SHORT = {"sequence_tokens": 704, "tool_response_tokens": 160}
# As in Dr. Zero's presets: larger gradients than EVE-Agent's, and Quaere's guards.
_OURS = {
    "evidence.guards": OURS,
    "verify_candidates": True,
    "proposer.learner.max_grad_norm": 1.0,
    "solver.learner.max_grad_norm": 1.0,
}
_ROOM = {
    "proposer.limits.turn_tokens": 256,  # 64 more than in Dr. Zero's: a turn has room for the quoted sentence
    "solver.limits.turn_tokens": 224,
    "solver.limits.sequence_tokens": 5120,
    "generation.batch": 250,
}
# The settings that each preset changes. The guards are Quaere's, not the paper's.
PRESETS: dict[str, dict[str, object]] = {
    "paper": {
        **_DRZERO["paper"],
        "evidence.gold": "written",  # the paper compares with whatever span the proposer wrote
    },
    "single-gpu": {**_DRZERO["single-gpu"], **_OURS, "generation.batch": 60},
    "large-gpu": {**_DRZERO["large-gpu"], **_OURS, **_ROOM},
    "selector": {
        **_DRZERO["large-gpu"],
        **_OURS,
        **_ROOM,
        "iterations": 3,
        "prompt_source": "selector",
        "selector.learns": "yield",
    },
    "demo": {
        **_DRZERO["demo"],
        "evidence.guards": OURS,
        "verify_candidates": True,
        "verifier.samples": 2,
        "verifier.turn_tokens": 24,
        "verifier.guided": True,
        "generation.questions": 2,
        "proposer.limits": {"max_turns": 2, "turn_tokens": 128, **_SHORT},
        "solver.limits": {"max_turns": 3, "turn_tokens": 112, **_SHORT, "topk": 1},
    },
}


def check_config(config: EveConfig) -> None:
    """Raise `BadInput` for values out of bounds and for values that contradict each other."""
    check_self_play(config)
    read_held(config.proposer.held_back)
    refuse_hardening(config, "eve")
    config.verifier.check()
    config.selector.check()
    check_evidence(config.evidence)
    if (config.prompt_source == "questions") != bool(config.prompt_questions):
        raise BadInput("prompt_source=questions and prompt_questions=FILE must be set together, or neither")
    if config.prompt_source == "selector" and config.selector.learns == "yield" and not config.generation.attempts:
        raise BadInput(
            "selector.learns=yield counts questions that the solver answers sometimes, and generation.attempts=0 makes "
            "no attempts: set generation.attempts=4 or so"
        )
    if config.prompt_source != "uniform" and not config.proposer.document:
        raise BadInput(f"prompt_source={config.prompt_source} chooses documents: it needs proposer.document=true")


# -------------------------------------------------------------------------------------------------------------- rewards


def judge_triple(proposed: Proposed, config: EveConfig) -> Proposed:
    """A proposal with its reward (Eq. 16 to 18). An invalid one is not attempted and earns its format part alone."""
    evidence, reward_config = config.evidence, config.proposer.reward
    reward = triple_reward(
        proposed.score,
        proposed.num_right,
        max(2, proposed.num_attempts),  # one that is not attempted has no right attempt; the reward needs 2 or more
        value=proposed.support.value if proposed.support else 0.0,
        num_span_tokens=proposed.triple.num_span_tokens,
        is_verbatim=proposed.is_verbatim,
        evidence_check=evidence.check,
        value_weight=evidence.value_weight,
        brevity_weight=evidence.brevity_weight,
        brevity_tokens=evidence.brevity_tokens,
        num_easy=proposed.num_easy,
        shape=reward_config.shape,
        format_weight=reward_config.format_weight,
    )
    return structs.replace(proposed, reward=reward)


def pay_cited_answer(
    episode: Episode, curriculum: Mapping[str, Candidate], evidence: EvidenceConfig, solver: Solver
) -> dict[str, float]:
    """The solver's reward: its dialect's reward for the answer plus the overlap of its span with the proposer's.

    Eq. 19 to 21; with tool-call the reward for the answer is exact match. A span earns nothing with an abstention,
    nor where the dialect gives reward 0 for a broken format (`gated`), nor with `evidence.paid=verbatim` if it is in no
    text shown.
    """
    assert isinstance(episode.task, SolveTask)
    answer = episode.outcome if isinstance(episode.outcome, Answer) else Answer("")
    name = episode.task.question.id
    candidate = curriculum.get(name) or curriculum[original_id(name)]
    # A made-up span proves nothing: a solver that repeats it would be rewarded for inventing evidence. A span that a
    # person added is accepted unchecked.
    is_made_up = candidate.evidence is None and not candidate.added
    gold_span = "" if is_made_up and evidence.gold == "verbatim" else candidate.gold_span
    paid = dict(solver.pay(episode))
    is_verbatim = find_evidence(answer.span, shown_passages(episode)) is not None
    is_unproven = evidence.paid == "verbatim" and not is_verbatim
    is_unpaid = episode.abstained or is_unproven or (solver.gated and not paid["format/held"])
    span = 0.0 if is_unpaid else span_reward(answer.span, gold_span, evidence.span_weight)
    return {
        "reward/answer": paid["reward/total"],
        **paid,
        "reward/span": span,
        "reward/total": paid["reward/total"] + span,
        "evidence/present": float(bool(answer.span)),
        "evidence/verbatim": float(is_verbatim),
    }


# ------------------------------------------------------------------------------------------------------------- the loop


class Eve(DrZero):
    """A run of EVE-Agent: Dr. Zero's phases; every proposal's evidence is traced, guarded and verified."""

    config: EveConfig

    def __init__(
        self,
        config: EveConfig,
        training: TrainingRun,
        searcher: Searcher,
        *,
        first: Documents,
        second: Documents,
        selector: Selector | None = None,
        scorer: ChatPolicy | None = None,
    ) -> None:
        super().__init__(config, training, searcher, first=first, second=second, evidence=config.evidence.cite)
        self.selector = selector
        self.verifier = Verifier(self.stage, config.evidence, config.verifier, scorer)

    async def iterate(self, iteration: int) -> None:
        """One iteration: phase A, the triples, phase B, and the selector between iterations."""
        await super().iterate(iteration)
        self.teach_selector(iteration)

    async def judge(self, step: Step, proposals: Sequence[Proposed]) -> list[Proposed]:
        """Let solver and verifier judge the triples, and reward them (Algorithm 1).

        Triples with too many failed searches, or without the verifier's result where it is needed, are left out.
        """
        config, triples = self.config.proposer, trace(proposals, self.config.evidence, self.count_tokens)
        asked = [traced.question for traced in triples]
        attempts = await self.stage.attempt(step, self.asking, asked, config.attempts, self.limits)
        supports = await self.verify(step, triples, self.config.verifies_proposals)
        judged = [
            self.judge_traced(traced, group, support)
            for traced, group, support in zip(triples, attempts, supports, strict=True)
            if can_be_judged(traced, group)
            and not (self.config.verifies_proposals and self.verifier.is_silent(traced, support))
        ]
        useful = [item.reward.difficulty > 0 for item in judged]
        self.count_draws(self.first, judged, useful)
        step.metrics |= measure_guards([item.refusals for item in judged], self.config.evidence.guards)
        return judged

    async def examine(self, step: Step, proposals: Sequence[Proposed], seen: set[str]) -> list[Candidate]:
        """The triples as candidates of the curriculum: kept, or dropped with a reason."""
        triples = trace(proposals, self.config.evidence, self.count_tokens)
        screened = await self.screen(step, triples, seen)
        wanted = [structs.replace(item, question=None) if reason else item for item, reason in screened]
        supports = await self.verify(step, wanted, self.config.verifies_candidates)
        made = [
            self.decide(step, traced, reason, support)
            for (traced, reason), support in zip(screened, supports, strict=True)
        ]
        step.metrics |= measure_guards([item.refusals for item in made], self.config.evidence.guards)
        known = [(item, one.kept) for item, one in zip(triples, made, strict=True) if one.reason not in _UNKNOWN]
        self.count_draws(self.second, [item for item, _ in known], [kept for _, kept in known])
        return made

    def paid_solver(self, curriculum: Sequence[Candidate]) -> Solver:
        """The solver, rewarded for its answer and its evidence (Algorithm 2)."""
        gold = {candidate.id: candidate for candidate in curriculum}
        pay = partial(pay_cited_answer, curriculum=gold, evidence=self.config.evidence, solver=self.solver)
        return structs.replace(self.solver, pay=pay)

    def count_draws(self, documents: Documents, proposals: Sequence[Proposed], useful: Sequence[bool]) -> None:
        """Tell the selector, if there is one, which of its choices led to a question that the solver can learn from."""
        if self.selector and documents.chosen:
            self.selector.count([documents.chosen[item.task.id] for item in proposals], [float(one) for one in useful])

    def teach_selector(self, iteration: int) -> None:
        """Update the selector's bandits with the kept questions and the last rewards of both roles."""
        if self.selector is None:
            return
        store = self.training.store
        self.selector.learn(
            iteration,
            pulled_questions(store, iteration),
            proposer_reward=last_reward(store, iteration, "proposer"),
            solver_reward=last_reward(store, iteration, "solver"),
            proposer_range=self.config.proposer_range,
            solver_range=self.config.solver_range,
        )

    # --------------------------------------------------------------------------------------- parts of a judgement

    async def verify(self, step: Step, triples: Sequence[Proposed], is_wanted: bool) -> list[Support | None]:
        """The value of each span to the solver; None for all if `is_wanted` is false."""
        return await self.verifier.ask(step, triples) if is_wanted else [None] * len(triples)

    def judge_traced(self, traced: Proposed, group: list[Episode], support: Support | None) -> Proposed:
        """The proposal with its reward, by the solver's attempts (`group`) and the verifier's result (`support`)."""
        traced = hear(traced, support, self.config.evidence)
        if choice := self.first.chosen.get(traced.task.id):
            traced = structs.replace(traced, cluster=choice.cluster)
        return judge_triple(self.count_attempts(traced, group), self.config)

    def decide(self, step: Step, traced: Proposed, reason: DropReason, support: Support | None) -> Candidate:
        """The proposal as a candidate of the curriculum, kept or dropped, after the verifier's result (`support`)."""
        evidence = self.config.evidence
        traced = hear(traced, support, evidence)
        if traced.refusals and reason in ("", "invalid"):
            reason = "refused"
        if choice := self.second.chosen.get(traced.task.id):
            traced = structs.replace(traced, cluster=choice.cluster, question_type=choice.question_type)
        made = self.record(step, traced, reason)
        if not evidence.cite:
            return made
        brevity = brevity_score(traced.triple.num_span_tokens, evidence.brevity_tokens)
        return structs.replace(made, scores=made.scores | {"brevity": brevity})

    def count_tokens(self, text: str) -> int:
        """The number of tokens of a text in the proposer's tokenizer."""
        return len(self.stage.actors.policy.renderer.encode_parts((Quoted(text),))) if text else 0


# --------------------------------------------------------------------------------------------------------- registration


async def train(config: EveConfig, store: Run, reporter: Reporter) -> None:
    """Train from the run's last checkpoint, or from the start; close all resources at the end."""
    async with open_run(config, ROLES, reporter) as opened, AsyncExitStack() as stack:
        scorer = open_hosted(config.verifier) if config.verifier.form == "hosted" else None
        if scorer:
            stack.push_async_callback(scorer.stop)
        selector = None
        if config.prompt_source == "selector":
            selector = Selector(embed_index(opened.index, store.path / "embeddings"), config.selector, config.seed)
        first, second = await _open_shards(config, opened, selector)
        training = TrainingRun(
            config,
            store,
            opened.actors,
            reporter,
            count_steps(config),
            read_document=opened.read_document,
            memory=selector,
        )
        documents = {"first": first, "second": second}
        await Eve(config, training, opened.searcher, **documents, selector=selector, scorer=scorer).evolve()


async def _open_shards(config: EveConfig, opened: Opened, selector: Selector | None) -> tuple[Documents, Documents]:
    """The documents of phase A, and those of the solver's questions."""
    passages: Passages = opened.index
    if config.prompt_source == "questions":
        found = await find_passages(config.prompt_questions, opened.searcher)
        passages = Shard(found.__getitem__, range(len(found)))
    if config.phase_b_documents == "same":
        same = Documents(passages, config.proposer, None, selector)
        return same, same
    masks = split_documents(passages, config.held_out_share, config.seed)
    first, second = (Documents(passages, config.proposer, mask, selector) for mask in masks)
    return first, second


def check(config: EveConfig) -> None:
    """Raise `BadInput` for settings that cannot be run, before anything is loaded."""
    check_config(config)
    if config.prompt_source == "selector" and find_spec("sklearn") is None:
        raise sklearn_missing()
    if config.prompt_source == "questions":
        read_questions(config.prompt_questions)
    check_openable(config, "eve", needed_dialects(config, "eve" if config.evidence.cite else "drzero"))


def plan(config: EveConfig) -> list[tuple[str, str]]:
    """The run's plan as lines of name and text: what it would do, and the most that a step costs."""
    evidence, verifier = config.evidence, config.verifier
    asked = "not asked"
    whom = {"proposer's": config.verifies_proposals, "solver's": config.verifies_candidates}
    if any(whom.values()):
        turns = f"{verifier.form}: {2 * verifier.samples} single turns"
        cost = "teacher-forced: 2 passes" if verifier.form == "teacher_forced" else turns
        asked = f"{cost} for each valid question of the {' and '.join(name for name in whom if whom[name])} phase"
    documents = "the same documents" if config.phase_b_documents == "same" else f"{config.held_out_share:.0%} held out"
    lines = [
        ("evidence", f"check {evidence.check}; guards: {', '.join(evidence.guards) or 'none'}"),
        ("verifier", asked),
        ("documents", f"{config.prompt_source}; triples about {documents}"),
    ]
    return [*plan_self_play(config), *lines]


EVE = Recipe(
    name="eve",
    summary="Dr. Zero with evidence: who asks and who answers must quote what proves it",
    schema=EveConfig,
    presets=PRESETS,
    check=check,
    plan=plan,
    train=train,
    solver_protocol=lambda config: drzero.solver_protocol(config, evidence=config.evidence.cite),
)
