"""`quaere.Agent`: a model that answers questions by searching.

with Agent("smollm2-135m", Index.open("notes-index")) as agent:
    agent.ask("When did we move the backups?").text
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, TypeVar, Unpack

from quaere.api.answer import Answer, read_answer, refuse_all_failed
from quaere.api.background import BackgroundLoop, Started
from quaere.api.counts import counting
from quaere.api.index import Index
from quaere.api.options import refuse_unknown
from quaere.api.run import Run
from quaere.api.search_function import FunctionSearcher, SearchFunction
from quaere.api.solver_setup import Device, choose_solver
from quaere.endpoint import refuse_login
from quaere.errors import BadInput
from quaere.records import Question, SolveTask, Turn
from quaere.search.searcher import LocalSearcher, NoSearcher, Searcher, check_reachable, open_searcher

if TYPE_CHECKING:
    from quaere.chat.prompt_style import PromptStyle
    from quaere.dialects.notes import Notes
    from quaere.dialects.registry import SolverDialectName
    from quaere.policies.native.device import Precision
    from quaere.rollout.policy import Policy

T = TypeVar("T")

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


class Agent:
    """A model with something to search. It holds the model until `close`, or to the end of a `with` block.

    `model` is a catalogue name, a folder, a hub id, `openai:MODEL@BASE_URL`, or a training run, whose best solver is
    taken. It searches an index (opened, a directory, or the URL of a search server) or calls `search`, a function from
    a query to passages; with `closed_book` it answers from memory. Calls wait for their result, also where an event
    loop runs (Jupyter): the agent's own runs in a thread in the background.
    """

    policy: Policy
    notes: Notes

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
        min_overlap: float | None = None,
        temperature: float = 0.0,
        seed: int = 0,
        device: Device = "auto",
        dtype: Precision = "auto",
        deterministic: bool = False,
        max_rows: int = 32,
        on_note: Callable[[str], None] = lambda line: None,
        **limits: Unpack[LimitOptions],
    ) -> None:
        """Open what is searched, then load the model; `on_note` is told what is downloaded or loaded.

        `evidence` asks for the sentence each answer rests on; `dialect`, `style` and `guided` say how the model is
        spoken to. `min_overlap` is the share of a question's key words that the passage with the answer must have to
        count as found; 0 lets every answer count. Each is by default as the model was trained. `max_rows` is how many
        episodes run at once.
        """
        check_limits(limits)
        if temperature < 0:
            raise BadInput(f"temperature must be 0 or more, not {temperature}")
        if min_overlap is not None and not 0 <= min_overlap <= 1:
            raise BadInput(f"min_overlap must be from 0 to 1, not {min_overlap}")
        if max_rows < 1:
            raise BadInput(f"max_rows must be at least 1, not {max_rows}")
        self.model = str(model.path) if isinstance(model, Run) else str(model)
        refuse_login(self.model, "the model")
        self.temperature, self.seed, self.max_rows = temperature, seed, max_rows
        self.searcher = open_search(index, search, closed_book=closed_book)
        self.index = getattr(self.searcher, "index", None)
        mode: Literal["deterministic", "fast"] = "deterministic" if deterministic else "fast"
        self.engine: dict[str, Any] = {"device": device, "dtype": dtype, "mode": mode}
        self._numbers = itertools.count()
        self._loop = BackgroundLoop("quaere-agent")
        try:
            self._loop.run(check_reachable(self.searcher))
            options = {**self.engine, "max_rows": max_rows, "interactive": True, "report": on_note}
            self.notes, load = _find_model(model, options)
            default = 0.0 if closed_book else self.notes.min_overlap
            self.min_overlap = default if min_overlap is None else min_overlap
            self.protocol, self.limits = choose_solver(
                self.notes,
                needs_guide=_needs_guide(model),
                dialect=dialect,
                style=style,
                evidence=evidence,
                guided=guided,
                closed_book=closed_book,
                limits=limits,
            )
            self.policy = self._loop.run(_call(load))
        except BaseException:
            self.close()
            raise

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
        from quaere.policies.sampler import SamplingParams
        from quaere.rollout.episode import run_episode

        name = self.new_id("ask")
        episode = await run_episode(
            self.policy,
            self.protocol,
            self.searcher,
            SolveTask(make_question(question, name)),
            self.limits,
            episode_id=name,
            seed=self.seed,
            params=SamplingParams(temperature=self.temperature),
            on_turn=on_turn,
        )
        refuse_all_failed([episode])
        return read_answer(episode, self.min_overlap)

    def ask_many(
        self,
        questions: Iterable[str | Question],
        *,
        progress: bool = True,
        on_answer: Callable[[Answer], None] = lambda answer: None,
    ) -> list[Answer]:
        """Answer many questions together, `max_rows` at a time; answers stand in the order of the questions.

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
        from quaere.policies.sampler import SamplingParams
        from quaere.rollout.episode import Job, run_many

        batch = self.new_id("ask")
        names = [f"{batch}-{number}" for number in range(len(questions))]
        jobs = [Job(self.protocol, SolveTask(question), name) for name, question in zip(names, questions, strict=True)]
        answers: list[Answer] = []
        with show_progress("answering", len(jobs), progress) as advance:
            async for episode in run_many(
                self.policy,
                jobs,
                self.searcher,
                self.limits,
                seed=self.seed,
                params=SamplingParams(temperature=self.temperature),
                concurrency=self.max_rows,
            ):
                answers.append(read_answer(episode, self.min_overlap))
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
        """Let go of the model, the index and the thread; closing twice is closing once."""
        if self._loop.is_closed:
            return
        try:
            self._loop.run(self._release())
        finally:
            self._loop.close()

    async def _release(self) -> None:
        await self.searcher.close()
        if hasattr(self, "policy"):
            await self.policy.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._loop.is_closed else f"{self.protocol.name}, {self.limits.max_turns} turns"
        return f"<Agent {self.model}: {state}>"


# ------------------------------------------------------------------------------------------------------------- parts


def check_limits(limits: Mapping[str, object]) -> None:
    """Refuse limits that do not exist, or below 1."""
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


def show_progress(doing: str, total: int, progress: bool) -> Any:
    """A context that gives a function to call after each of `total` things; it says nothing without `progress`."""
    if not progress or not total:
        return nullcontext(lambda stands: None)
    from rich.console import Console

    return counting(doing, total, Console(stderr=True, highlight=False))


def _needs_guide(model: str | Path | Run) -> bool:
    from quaere.policies.catalogue import needs_guide

    return not isinstance(model, Run) and needs_guide(str(model))


def _find_model(model: str | Path | Run, engine: dict[str, Any]) -> tuple[Notes, Callable[[], Policy]]:
    """How the model was trained to be asked, and what loads it."""
    if isinstance(model, Run):
        from quaere.dialects.notes import find_role, role_policy, use_role

        find = partial(find_role, model.path, "solver")
        weights, _ = use_role(find, lambda weights: None)
        load = partial(role_policy, **engine)
        return weights.notes, lambda: use_role(find, load, found=weights)[1]
    from quaere.dialects.notes import find_notes
    from quaere.rollout.policy import open_policy

    return find_notes(str(model)), partial(open_policy, str(model), **engine)


async def _call(load: Callable[[], Policy]) -> Policy:
    """Load within the loop: samplers belong to the one they were opened in."""
    return load()
