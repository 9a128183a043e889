"""`quaere.Agent`: a model that answers questions by searching; `open_agent` is the same in an event loop.

with Agent("smollm2-135m", Index.open("notes-index")) as agent:
    agent.ask("When did we move the backups?").text
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, Unpack

from msgspec import Struct, structs

from quaere.api.answer import Answer, read_answer, refuse_all_failed
from quaere.api.background import BackgroundLoop, Closing, Started
from quaere.api.index import Index
from quaere.api.printing import Progress, counting
from quaere.api.run import Run
from quaere.api.search_function import FunctionSearcher, SearchFunction
from quaere.chat.protocol import PromptStyle, Protocol
from quaere.dialects.notes import Notes, find_notes, find_role, role_policy, use_role
from quaere.dialects.registry import (
    FROM_MEMORY,
    SolverDialectName,
    can_abstain,
    check_turns,
    find_dialect,
    open_protocol,
    usual_limits,
)
from quaere.endpoint import refuse_login
from quaere.errors import BadInput
from quaere.policies.catalogue import needs_guide
from quaere.policies.native.device import Precision
from quaere.policies.sampler import SamplingParams
from quaere.records import Episode, Question, SolveTask, Task, Turn
from quaere.rollout.episode import Job, Limits, run_episode
from quaere.rollout.policy import Policy
from quaere.rollout.voting import run_voted
from quaere.search.searcher import LocalSearcher, NoSearcher, Searcher, check_reachable, open_searcher
from quaere.setting_types import refuse_unknown

T = TypeVar("T")
Device = Literal["auto", "cpu", "cuda"]

LEAST_AGREEMENT = 0.25  # of several attempts; measured on practice questions (docs/lab-notes.md)
_SWITCHES = ("answer_turn", "titles_first")  # limits that are true or false


class LimitOptions(TypedDict, total=False):
    """How far an episode may go; what is not given is as the model was trained, else as `quaere ask` has it."""

    max_turns: int
    max_searches: int
    topk: int
    turn_tokens: int
    sequence_tokens: int
    tool_response_tokens: int
    answer_turn: bool
    titles_first: bool


class Agent(Closing):
    """A model with something to search. It holds the model until `close`, or to the end of a `with` block.

    `model` is a catalogue name, a folder, a hub id, `openai:MODEL@BASE_URL`, or a training run, whose best solver is
    taken. It searches an index (opened, a directory, or any other place that `--search` takes) or calls `search`, a
    function from a query to passages; with `closed_book` it answers from memory. Calls wait for their result, also
    where an event loop runs (Jupyter): the agent's own runs in a thread in the background.
    """

    opened: OpenAgent

    def __init__(
        self,
        model: str | Path | Run,
        index: Index | str | Path | None = None,
        *,
        search: SearchFunction | None = None,
        closed_book: bool = False,
        evidence: bool | None = None,
        dialect: SolverDialectName | None = None,
        style: PromptStyle | None = None,
        guided: bool | None = None,
        abstention: bool | None = None,
        min_overlap: float | None = None,
        attempts: int = 1,
        min_confidence: float | None = None,
        temperature: float = 0.0,
        seed: int = 0,
        device: Device = "auto",
        dtype: Precision = "auto",
        deterministic: bool = False,
        max_rows: int = 32,
        load: Callable[[], Policy] | None = None,
        on_note: Callable[[str], None] = lambda line: None,
        **limits: Unpack[LimitOptions],
    ) -> None:
        """Open what is searched, then load the model; `on_note` is called with a line for each download or load.

        `evidence` asks for the sentence each answer rests on; `dialect`, `style` and `guided` say how the model is
        prompted. `min_overlap` is the share of a question's key words that the passage with the answer must have to
        count as found; 0 lets every answer count. `abstention` lets the model say that the documents do not answer.
        Each is by default as the model was trained; a model that was not trained may abstain. With several `attempts`
        the model answers each question as often, and the answer that most attempts give counts. An answer whose
        confidence is below `min_confidence` (0; of several attempts 0.25, the share that must agree) counts as an
        abstention. `max_rows` is how many episodes run at once. `load` opens the model elsewhere than in this process.
        """
        check_limits(limits)
        if temperature < 0:
            raise BadInput(f"temperature must be 0 or more, not {temperature}")
        for name, share in (("min_overlap", min_overlap), ("min_confidence", min_confidence)):
            if share is not None and not 0 <= share <= 1:
                raise BadInput(f"{name} must be from 0 to 1, not {share}")
        for name, number in (("max_rows", max_rows), ("attempts", attempts)):
            if number < 1:
                raise BadInput(f"{name} must be at least 1, not {number}")
        self.model = str(model.path) if isinstance(model, Run) else str(model)
        refuse_login(self.model, "the model")
        self.searcher = open_search(index, search, closed_book=closed_book)
        self.index = getattr(self.searcher, "index", None)
        mode: Literal["deterministic", "fast"] = "deterministic" if deterministic else "fast"
        self.engine: dict[str, Any] = {"device": device, "dtype": dtype, "mode": mode}
        self._numbers = itertools.count()
        self._loop = BackgroundLoop("quaere-agent")
        how: dict[str, Any] = {"temperature": temperature, "seed": seed, "max_rows": max_rows}
        how |= {"dialect": dialect, "style": style, "evidence": evidence, "guided": guided}
        how |= {"min_overlap": min_overlap, "min_confidence": min_confidence, "closed_book": closed_book}
        how |= {"abstention": abstention, "attempts": attempts, "load": load}
        try:
            opening = open_agent(model, self.searcher, engine=self.engine, limits=limits, on_note=on_note, **how)
            self.opened = opened = self._loop.run(opening)
        except BaseException:
            self.close()
            raise
        self.protocol, self.limits, self.min_overlap = opened.protocol, opened.limits, opened.min_overlap

    # ----------------------------------------------------------------------------------------------------- asking

    def ask(self, question: str | Question, *, on_turn: Callable[[Turn], None] | None = None) -> Answer:
        """Answer a question; `on_turn` is called with every turn as soon as it is over."""
        return self.run(self._ask(question, on_turn))

    def start(self, question: str | Question, *, on_turn: Callable[[Turn], None] | None = None) -> Started[Answer]:
        """Begin to answer and return at once: `result()` waits for the answer, `cancel()` stops the model.

        `on_turn` is called in another thread. After `cancel()`, `result()` raises `concurrent.futures.CancelledError`.
        """
        return self._loop.start(self._ask(question, on_turn))

    async def _ask(self, question: str | Question, on_turn: Callable[[Turn], None] | None) -> Answer:
        name = self.new_id("ask")
        episode = await self.opened.play(SolveTask(make_question(question, name)), episode_id=name, on_turn=on_turn)
        refuse_all_failed([episode])
        return self.opened.read(episode)

    def ask_many(
        self,
        questions: Iterable[str | Question],
        *,
        progress: bool = True,
        on_answer: Callable[[Answer], None] = lambda answer: None,
    ) -> list[Answer]:
        """Answer many questions together, `max_rows` at a time; answers are in the order of the questions.

        `progress` shows how far it is on stderr; `on_answer` is called with each answer, in the same order.
        """
        if isinstance(questions, str):
            raise BadInput("ask_many takes a list of questions", hint="agent.ask(question) for a single one")
        asked = [make_question(question, f"q{number}") for number, question in enumerate(questions)]
        answers = self.run(self._ask_many(asked, progress, on_answer))
        refuse_all_failed([answer.episode for answer in answers])
        return answers

    async def _ask_many(
        self, questions: Sequence[Question], progress: bool, on_answer: Callable[[Answer], None]
    ) -> list[Answer]:
        batch = self.new_id("ask")
        tasks = {f"{batch}-{number}": SolveTask(question) for number, question in enumerate(questions)}
        answers: list[Answer] = []
        played = self.opened.play_many([*tasks.values()], names=[*tasks])
        async with aclosing(played) as episodes:  # an error of a callback ends the other episodes
            with show_progress("answering", len(tasks), progress) as advance:
                async for episode in episodes:
                    answers.append(self.opened.read(episode))
                    on_answer(answers[-1])
                    advance("")
        return answers

    # ---------------------------------------------------------------------------------------------- open and close

    def new_id(self, kind: str) -> str:
        """An episode id that this agent has not used: "ask-0", "ask-1"."""
        return f"{kind}-{next(self._numbers)}"

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the agent's own event loop, where its policy and its searcher live."""
        return self._loop.run(coroutine)

    def close(self) -> None:
        """Release the model, the index and the thread; a second call does nothing."""
        if self._loop.is_closed:
            return
        try:
            self._loop.run(self.opened.close() if hasattr(self, "opened") else self.searcher.close())
        finally:
            self._loop.close()

    def __repr__(self) -> str:
        state = "closed" if self._loop.is_closed else f"{self.protocol.name}, {self.limits.max_turns} turns"
        return f"<Agent {self.model}: {state}>"


# ------------------------------------------------------------------------------------------------------------- parts


def check_limits(limits: Mapping[str, object]) -> None:
    """Raise `BadInput` for unknown limits and for numbers below 1."""
    refuse_unknown(limits, LimitOptions.__annotations__, "option of an agent called")
    for name, value in limits.items():
        if not isinstance(value, int) or (value < 1 and name not in _SWITCHES):
            raise BadInput(f"{name} must be a whole number of at least 1, not {value!r}")


def make_question(question: str | Question, name: str) -> Question:
    """A text as a question of this id; a `Question` as it is."""
    if isinstance(question, Question):
        return question
    if not isinstance(question, str) or not question.strip():
        raise BadInput(f"a question is a text that is not empty, not {question!r}")
    return Question(id=name, text=question)


def open_search(
    index: Index | str | Path | None, search: SearchFunction | None, *, closed_book: bool = False
) -> Searcher:
    """What is searched: exactly one of an index, a function, and nothing (`closed_book`)."""
    if (index is not None) + (search is not None) + closed_book != 1:
        raise BadInput(
            "give an agent one of: an index, search (a function), closed_book=True",
            hint='Agent("smollm2-135m", quaere.Index.open("notes-index"))',
        )
    if search is not None:
        return FunctionSearcher(search)
    if index is None:
        return NoSearcher()
    if isinstance(index, Index):
        return LocalSearcher(index.opened)
    refuse_login(str(index), "the index")
    return open_searcher(str(index))


def show_progress(doing: str, total: int, progress: bool | Progress) -> Any:
    """A context that gives a function to call after each of `total` things; without `progress` nothing is shown.

    A `progress` that is a function is called with what is being done, how much of it is done, and how much there is.
    """
    if callable(progress):
        numbers = itertools.count(1)
        return nullcontext(lambda stands: progress(doing, next(numbers), total, stands))
    return counting(doing, total) if progress and total else nullcontext(lambda stands: None)


# ---------------------------------------------------------------------------------------------- in an event loop


class OpenAgent(Struct, frozen=True):
    """A model, what it searches and how it is asked, in the event loop it was opened in.

    agent = await open_agent("smollm2-135m", searcher, limits={"max_turns": 3})
    episode = await agent.play(SolveTask(question))
    """

    policy: Policy
    searcher: Searcher
    protocol: Protocol
    limits: Limits
    notes: Notes
    min_overlap: float
    temperature: float = 0.0
    seed: int = 0
    max_rows: int = 32
    attempts: int = 1
    min_confidence: float = 0.0

    @property
    def cites(self) -> bool:
        """True if evidence is asked for."""
        return bool(getattr(self.protocol, "evidence", False))

    async def play(
        self,
        task: Task,
        *,
        episode_id: str = "",
        protocol: Protocol | None = None,
        limits: Limits | None = None,
        on_turn: Callable[[Turn], None] | None = None,
    ) -> Episode:
        """One episode; `protocol` and `limits` are the agent's own unless others are given.

        Of several attempts, `on_turn` is called with the turns of the one that is returned, after the last has ended.
        """
        if self.attempts > 1 and isinstance(task, SolveTask):
            played = self.play_many([task], names=[episode_id], protocol=protocol, limits=limits)
            [episode] = [episode async for episode in played]
            for turn in episode.turns:
                (on_turn or (lambda turn: None))(turn)
            return episode
        given = (self.policy, protocol or self.protocol, self.searcher, task, limits or self.limits)
        return await run_episode(*given, episode_id=episode_id, seed=self.seed, params=self._params(), on_turn=on_turn)

    def play_many(
        self,
        tasks: Sequence[Task],
        *,
        names: Sequence[str] = (),
        protocol: Protocol | None = None,
        limits: Limits | None = None,
        on_episode: Callable[[Episode], None] = lambda episode: None,
    ) -> AsyncGenerator[Episode, None]:
        """Episodes in the order of their tasks; `names` are their ids, by default those of the tasks.

        `on_episode` is called with each episode as soon as it ends.
        """
        chosen = protocol or self.protocol
        jobs = [Job(chosen, task, name) for task, name in zip(tasks, names or [""] * len(tasks), strict=True)]
        given = (self.policy, jobs, self.searcher, limits or self.limits)
        how: dict[str, Any] = {"seed": self.seed, "concurrency": self.max_rows, "on_episode": on_episode}
        attempts = self.attempts if all(isinstance(task, SolveTask) for task in tasks) else 1  # reports do not agree
        return run_voted(*given, attempts=attempts, params=self._params(), **how)

    def _params(self) -> SamplingParams:
        return SamplingParams(temperature=self.temperature)

    def read(self, episode: Episode) -> Answer:
        """The answer of an episode, and whether it counts as found."""
        return read_answer(episode, self.min_overlap, self.min_confidence)

    async def close(self) -> None:
        """Release the model and the searcher."""
        try:
            await self.searcher.close()
        finally:
            await self.policy.stop()


async def open_agent(
    model: str | Path | Run,
    searcher: Searcher,
    *,
    engine: Mapping[str, Any],
    min_overlap: float | None = None,
    attempts: int = 1,
    min_confidence: float | None = None,
    max_rows: int = 32,
    temperature: float = 0.0,
    seed: int = 0,
    load: Callable[[], Policy] | None = None,
    on_note: Callable[[str], None] = lambda line: None,
    closed_book: bool = False,
    **asked: Any,
) -> OpenAgent:
    """Check that the searcher answers, choose how to ask (`asked`, see `choose_solver`), and load the model."""
    await check_reachable(searcher)
    notes, load_here = _find_model(model, {**engine, "max_rows": max_rows, "interactive": True, "report": on_note})
    is_small = not isinstance(model, Run) and needs_guide(str(model))
    protocol, limits = choose_solver(notes, needs_guide=is_small, closed_book=closed_book, **asked)
    if min_overlap is None:
        min_overlap = 0.0 if closed_book else notes.min_overlap
    on_note(f"loading {model.path.name if isinstance(model, Run) else model}")
    policy = (load or load_here)()
    try:
        least = least_confidence(min_confidence, attempts, policy)
    except BadInput:
        await policy.stop()
        raise
    return OpenAgent(
        policy, searcher, protocol, limits, notes, min_overlap, temperature, seed, max_rows, attempts, least
    )


def least_confidence(given: float | None, attempts: int, policy: Policy) -> float:
    """The confidence below which an answer counts as an abstention: as given, else by the number of attempts.

    Raises BadInput if the policy returns nothing to measure it by.
    """
    from quaere.rollout.policy import ChatPolicy

    if given and attempts == 1 and isinstance(policy, ChatPolicy):
        said = f"the confidence of answers cannot be measured: {policy.name} returns no probabilities of tokens"
        raise BadInput(said, hint="let it answer several times: --attempts 5")
    return given if given is not None else LEAST_AGREEMENT if attempts > 1 else 0.0


def refuse_voting(attempts: int, min_confidence: float | None, needed: str) -> None:
    """Raise BadInput if a vote is asked for and no agent answers; `needed` is the hint: the options that open one."""
    if attempts > 1 or min_confidence is not None:
        raise BadInput("--attempts and --min-confidence need an agent that answers from documents", hint=needed)


def _find_model(model: str | Path | Run, engine: dict[str, Any]) -> tuple[Notes, Callable[[], Policy]]:
    """How the model was trained to be asked, and what loads it."""
    if isinstance(model, Run):
        find = partial(find_role, model.path, "solver")
        weights, _ = use_role(find, lambda weights: None)
        load = partial(role_policy, **engine)
        return weights.notes, lambda: use_role(find, load, found=weights)[1]
    from quaere.rollout.policy import open_policy

    return find_notes(str(model)), partial(open_policy, str(model), **engine)


# -------------------------------------------------------------------------------------------------- protocol and limits


def asking_limits(dialect: SolverDialectName) -> Limits:
    """The default limits of `quaere ask` and `quaere.Agent`: shorter turns than in training, a longer sequence."""
    usual = usual_limits(dialect)
    return structs.replace(usual, turn_tokens=256, sequence_tokens=max(4096, usual.sequence_tokens))


def choose_solver(
    notes: Notes,
    *,
    needs_guide: bool,
    dialect: SolverDialectName | None = None,
    style: PromptStyle | None = None,
    evidence: bool | None = None,
    guided: bool | None = None,
    abstention: bool | None = None,
    untaught_abstain: bool = True,
    closed_book: bool = False,
    limits: Mapping[str, Any],
    usual: Callable[[SolverDialectName], Limits] = asking_limits,
    turns_option: str = "max_turns",
) -> tuple[Protocol, Limits]:
    """Protocol and limits: as given, else as the model was trained (its notes say so), else as `usual`.

    `needs_guide` is whether the model is too small to follow the protocol; `turns_option` is how the caller names the
    number of turns. With `untaught_abstain`, a model that was taught nothing and gets full prompts may abstain.
    """
    if closed_book and dialect and dialect not in FROM_MEMORY:
        said = f"{dialect} searches, but a closed book has no documents"
        raise BadInput(said, hint=f"leave out the dialect, or take {' or '.join(FROM_MEMORY)}")
    name = dialect or notes.dialect or "tool-call"
    if evidence is None:
        evidence = notes.evidence  # a small model that was not taught to quote would often fail to answer at all
    if guided is None:
        guided = needs_guide and (name in ("tool-call", "direct") or closed_book)
    allowed = structs.replace(trained_limits(name, notes) or usual(name), **limits)
    if closed_book or name in FROM_MEMORY:
        if abstention:
            said = "a model that answers from memory cannot say that the documents do not answer"
            raise BadInput(said, hint="leave out --abstention, or search an index")
        asking = find_dialect("closed-book", "verifier").open(guided=guided, evidence=evidence, thinks=name == "cot")
        return asking, structs.replace(allowed, max_turns=1)
    check_turns(name, allowed, turns_option)
    if abstention is None:
        is_untaught = notes.style is None and style in (None, "full") and not guided
        abstention = notes.abstention or (untaught_abstain and is_untaught and can_abstain(name))
    opened = open_protocol(
        name,
        style=style or notes.style or "full",
        evidence=evidence,
        settings=notes.evaluation,
        guided=guided,
        abstention=abstention,
    )
    return opened, allowed


def trained_limits(dialect: str, notes: Notes) -> Limits | None:
    """The limits a model was trained under, if it was trained in this dialect.

    trained_limits("evalact", Notes(limits=Limits(max_turns=3), dialect="tool-call")) is None
    """
    return notes.limits if dialect == (notes.dialect or "tool-call") else None
