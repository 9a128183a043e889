"""What a question must pass to be kept: rules first, then tries by the model that wrote it.

    find_fault("Who built the Halm bridge?", named=("Halm bridge",), answer="Orsolya Venn") -> ""
    await keep_right(lines, items, tries=5, min_right=3)

No label is used: the answer was picked before the question was written, so a question that the model answers with that
span, shown the page, and cannot answer without, is one that the page answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from quaere.chat.messages import Message
from quaere.chat.open_questions import LEANING
from quaere.policies.sampler import SamplingParams
from quaere.records import Answer, Question, SolveTask
from quaere.rewards.answers import exact_match_score, normalise_answer
from quaere.rewards.format import contains
from quaere.rollout.episode import Limits
from quaere.rollout.many import Job, run_many
from quaere.rollout.policy import Policy
from quaere.rollout.seeds import derive_seed
from quaere.search.searcher import NoSearcher
from quaere.warmup.documents.prompts import OneLine, answer_question

_MIN_WORDS, _MAX_WORDS = 4, 35
_LIMITS = Limits(max_turns=1, turn_tokens=48, sequence_tokens=2048)
_SMALL = frozenset("of in on at by for to and de la von van di del der el al".split())


class Lines:
    """Puts many prompts to a policy at once and reads one line each."""

    def __init__(
        self,
        policy: Policy,
        *,
        seed: int = 0,
        concurrency: int = 32,
        report: Callable[[str, int, int], None] = lambda doing, done, total: None,
    ) -> None:
        self.policy = policy
        self.seed = seed
        self.concurrency = concurrency
        self.report = report

    async def write(self, name: str, prompts: Sequence[Sequence[Message]], temperature: float) -> list[str]:
        """One line for each prompt; "" where nothing could be read. `name` keeps the draws of two calls apart."""
        jobs = [
            Job(OneLine(messages), SolveTask(Question(f"{name}-{number}", "")))
            for number, messages in enumerate(prompts)
        ]
        lines: list[str] = []
        async for episode in run_many(
            self.policy,
            jobs,
            NoSearcher(),
            _LIMITS,
            seed=derive_seed(self.seed, name),
            params=SamplingParams(temperature=temperature),
            concurrency=self.concurrency,
        ):
            lines.append(episode.outcome.text if isinstance(episode.outcome, Answer) else "")
            self.report(name, len(lines), len(jobs))
        return lines


class Tried(Struct, frozen=True):
    """A question as it is put to the model, with what is accepted and the texts that answer it.

    Tried(question="Who built the Halm bridge?", answers=("Orsolya Venn",), texts=("Halm bridge\\nBuilt by ...",))
    """

    question: str
    answers: tuple[str, ...]
    texts: tuple[str, ...]


def find_fault(question: str, *, names: Sequence[str], answer: str, hidden: str = "") -> str:
    """Why a question cannot be used, by rules alone, in a few words; "" if it can.

    It must name every one of `names`, or it could not be looked for; it must hold neither its answer nor `hidden`.

        find_fault("Who built it?", names=("Halm bridge",), answer="Venn") == "does not name what it is about"
    """
    num_words = len(question.split())
    if not question.endswith("?") or question.count("?") > 1 or not _MIN_WORDS <= num_words <= _MAX_WORDS:
        return "is not one question"
    if LEANING.search(question):
        return "speaks of a text"
    if not all(contains(question, name) for name in names):
        return "does not name what it is about"
    if shares_words(question, answer, names):
        return "gives its answer away"
    if hidden and shares_words(question, hidden, names):
        return "names what it should describe"
    return ""


def shares_words(question: str, answer: str, names: Sequence[str]) -> bool:
    """Does a question hold a word of an answer, other than small words and those of the names it must hold?

    shares_words("Which Venn built Halm?", "Orsolya Venn", ["Halm"]) -> True
    """
    allowed = _SMALL.union(*(normalise_answer(name).split() for name in names))
    return bool((set(normalise_answer(answer).split()) - allowed) & set(normalise_answer(question).split()))


async def count_right(
    lines: Lines, name: str, items: Sequence[Tried], *, tries: int, temperature: float, with_texts: bool
) -> list[int]:
    """How many of `tries` answers to each question are right, with its texts or from memory."""
    prompts = [answer_question(item.question, item.texts if with_texts else ()) for item in items for _ in range(tries)]
    written = await lines.write(name, prompts, temperature)
    rights = [
        exact_match_score(line, items[number // tries].answers) if line else 0.0 for number, line in enumerate(written)
    ]
    return [int(sum(rights[first : first + tries])) for first in range(0, len(rights), tries)]
