"""Demonstrations: episodes whose turns are written by a script, as the tokens a policy would see and sample.

No model sampled the script's text, so its text is encoded to tokens. Everything else (prompt, joints between turns,
replies, masks, limits) comes from `run_episode` itself, so it equals what the policy sees in its own episodes.

An episode is learnt from only if its answer and format are right and its quotations are exact. A policy's own evidence
may differ in white space and curly quotes, but a demonstration teaches exact copying.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import Struct, field, structs

from quaere.chat.markup import first_fault
from quaere.chat.protocol import PromptStyle, Protocol
from quaere.chat.renderer import Renderer
from quaere.chat.spans import find_evidence, shown_passages
from quaere.dialects import registry
from quaere.dialects.registry import find_dialect, find_taught
from quaere.dialects.roles import is_right
from quaere.errors import BadInput, SamplingFailed
from quaere.policies.sampler import Sampled, SamplingParams
from quaere.records import Answer, Episode, Proposal, ProposeTask, SolveTask, Task, Turn
from quaere.rewards.guards import MAX_SENTENCE_WORDS, Triple, holds_answer, says_more, travelled, verbatim
from quaere.rollout.episode import Limits, run_episode
from quaere.rollout.policy import TokenPolicy
from quaere.search.searcher import Searcher
from quaere.training.proposals import read_proposal
from quaere.warmup.dialects import Dialect, Role, cites, roles_of, solver_turns

# Writes the next turn's text from the turns so far and the text added to the context since the last turn (on the
# first turn: the whole prompt). It raises SamplingFailed to give up.
Script = Callable[[Sequence[Turn], str], str]


class Attempt(Struct, frozen=True):
    """A demonstration to be played: its task, the script that writes it, its protocol, and its check.

    `find_fault` returns in a few words why an episode should be dropped, "" if it should be kept.

        Attempt(id="solver-2-w1-q00000", task=SolveTask(...), script=..., protocol=ToolCallSolver(), find_fault=...)
    """

    id: str
    task: Task
    script: Script
    protocol: Protocol
    find_fault: Callable[[Episode], str] = lambda episode: ""


class Demonstrations(Struct, frozen=True):
    """Episodes to learn from, and the number of dropped episodes by reason.

    Demonstrations(episodes=[Episode(...)], dropped=Counter({"not found": 12}))
    """

    episodes: list[Episode] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)

    def take(self, episode: Episode, fault: str) -> bool:
        """Keep an episode if `fault` is "", else count the fault; returns True if it is kept."""
        if fault:
            self.dropped[fault] += 1
        else:
            self.episodes.append(episode)
        return not fault


class _Writer:
    """A `TokenSampler` that returns a script's turns, as tokens, instead of sampling from a model."""

    lockstep = False

    def __init__(self, name: str, renderer: Renderer, script: Script) -> None:
        self.name = name
        self.turns: list[Turn] = []
        self._renderer = renderer
        self._script = script
        self._num_seen = 0

    def open(self, session: str) -> None:
        """Does nothing: there is only one session."""

    def close(self, session: str) -> None:
        """Does nothing: no state is held."""

    async def sample(self, session: str, token_ids: Sequence[int], params: SamplingParams) -> Sampled:
        """The script's next turn as tokens. Its text must end with a stop string, as a policy's turn would."""
        text = self._script(self.turns, self._renderer.decode(token_ids[self._num_seen :]))
        self._num_seen = len(token_ids)
        if not text.endswith(params.stop):
            raise SamplingFailed("a demonstrated turn must end with a stop string")
        ids = tuple(self._renderer.write_turn(text))
        if set(ids[:-1]) & set(params.stop_token_ids):  # the last may be the end of a call
            raise SamplingFailed("a demonstrated turn contains a control token")
        cut = ids[: params.max_tokens]
        # These tokens were not sampled, so they have no log-probs.
        return Sampled(cut, (0.0,) * len(cut), "stop_string" if cut == ids else "length")

    async def score_many(self, sequences: Sequence[Sequence[int]], starts: Sequence[int] = ()) -> list[list[float]]:
        """Zeros: a script has no log-probs."""
        return [[0.0] * len(token_ids) for token_ids in sequences]

    async def stop(self) -> None:
        """Does nothing: no state is held."""


async def demonstrate(
    attempt: Attempt, searcher: Searcher, renderer: Renderer, limits: Limits, *, name: str
) -> Episode:
    """Play an attempt and return the episode; the script gets each turn's real search results before the next turn."""
    writer, task = _Writer(name, renderer, attempt.script), attempt.task
    policy, on_turn = TokenPolicy(writer, renderer), writer.turns.append
    return await run_episode(policy, attempt.protocol, searcher, task, limits, episode_id=attempt.id, on_turn=on_turn)


def open_protocol(role: Role, style: PromptStyle, dialect: Dialect = "drzero", *, abstention: bool = False) -> Protocol:
    """The protocol of a role in a dialect that a warm-up teaches; with `abstention`, a solver may abstain.

    open_protocol("solver", "brief", "eve").name == "eve-solver"
    open_protocol("solver", "brief", "evalrar").name == "evalrar-solver"
    """
    if role not in roles_of(dialect):
        raise BadInput(f"the dialect {dialect} has no {role}", hint=f"its roles: {', '.join(roles_of(dialect))}")
    if dialect == "score":
        raise BadInput("a protocol of score depends on its task: use `Research.draw` of report_lessons.py")
    taught = find_taught(dialect)
    if role == "proposer":
        return find_dialect(taught.dialect, role).open(style=style, evidence=taught.evidence)
    return registry.open_protocol(taught.dialect, style=style, evidence=taught.evidence, abstention=abstention)


def judge(episode: Episode, role: Role, dialect: Dialect) -> str:
    """Why an episode should not be learnt from, in a few words; "" if it passes every check of its dialect.

    judge(episode, "proposer", "eve") == "the evidence was not shown"
    """
    fault = find_fault(episode, role)
    if not fault and cites(dialect) and not episode.abstained:
        fault = find_misquote(episode)
    if fault or role != "solver":
        return fault
    demonstration = find_dialect(find_taught(dialect).dialect, role).demonstration
    return demonstration.find_fault(episode) if demonstration else ""


def find_flaw(episode: Episode, role: Role, dialect: Dialect) -> str:
    """Why a demonstration should be dropped; "" if it passes every check and would earn the full reward.

    find_flaw(episode, "proposer", "drzero") == "the answer is long"
    """
    if fault := judge(episode, role, dialect):
        return fault
    if role == "proposer":
        return "" if read_proposal(episode).score.total == 1.0 else "the answer is long"
    return "" if episode.abstained else solver_turns(dialect).find_flaw(episode)


def find_failure(episode: Episode) -> str:
    """Why an episode failed: the failure of its first failed turn, else how it ended; "" if it ended with an answer."""
    failure = next((turn.failure for turn in episode.turns if turn.failure is not None), None)
    if failure is not None:
        return failure.message if failure.boundary == "model" else f"{failure.boundary}: {failure.kind}"
    return "" if episode.end == "answered" else episode.end


def find_fault(episode: Episode, role: Role) -> str:
    """Why an episode should not be learnt from, in a few words; "" if format and answer are right.

    find_fault(episode, "solver") == "wrong answer"
    """
    if failure := find_failure(episode):
        return failure
    if role == "solver":
        return "" if is_right(episode) else "wrong answer"
    score = read_proposal(episode).score
    return first_fault(
        (not score.valid, "the question is not valid"),
        (score.tool < 1, "too few searches"),
        (score.answer <= 0, "the answer was not found"),
    )


# ----------------------------------------------------------------------------------------------------------- quotations


def find_misquote(episode: Episode) -> str:
    """Why the evidence of a finished episode should not be learnt from, in a few words; "" if it is right.

    find_misquote(episode) == "the evidence is not letter for letter"
    """
    triple = _triple(episode)
    # The evidence may use another name than the answer given.
    names = (triple.answer, *(episode.task.question.answers if isinstance(episode.task, SolveTask) else ()))
    named = any(holds_answer(structs.replace(triple, answer=name)) for name in names)
    return first_fault(
        (not triple.span, "there is no evidence"),
        (find_evidence(triple.span, shown_passages(episode)) is None, "the evidence was not shown"),
        (not verbatim(triple), "the evidence is not letter for letter"),
        (not named, "the evidence does not hold the answer"),
        (not says_more(triple), "the evidence says no more than the answer"),
        (len(triple.span.split()) > MAX_SENTENCE_WORDS, "the evidence is long"),
        (not travelled(triple), "the evidence is not the last hop's"),
    )


def _triple(episode: Episode) -> Triple:
    """Question, answer and quoted span of an episode, and the texts they may quote (without titles)."""
    task, outcome = episode.task, episode.outcome
    document, hops = "", 1
    if isinstance(task, ProposeTask):
        document, hops = task.document.text if task.document else "", task.hops
    question, answer, span = task.question.text if isinstance(task, SolveTask) else "", "", ""
    if isinstance(outcome, Answer):
        answer, span = outcome.text, outcome.span
    elif isinstance(outcome, Proposal):
        question, answer, span = outcome.question, outcome.answer, outcome.span
    returned = tuple(passage.text for passage in shown_passages(episode) if passage.text != document)
    return Triple(question, answer, span, len(span.split()), document, hops, returned)
