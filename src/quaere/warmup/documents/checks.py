"""Checks that a question must pass to be kept: rules first, then attempts by the model that wrote it.

    find_fault("Who built the Halm bridge?", named=("Halm bridge",), answer="Orsolya Venn") -> ""
    await keep_right(lines, items, tries=5, min_right=3)

No label is used. The answer span was picked before the question was written, so if the model gives that span when shown
the page and never without the page, the page answers the question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from quaere.chat.messages import Message
from quaere.chat.question_wordings import LEANING
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
    """Samples one line of text for each of many prompts, batched."""

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
        """One line per prompt; "" where nothing could be read. `name` separates the seeds of two calls."""
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
    """A question as it is put to the model, with its accepted answers and the texts that answer it.

    Tried(question="Who built the Halm bridge?", answers=("Orsolya Venn",), texts=("Halm bridge\\nBuilt by ...",))
    """

    question: str
    answers: tuple[str, ...]
    texts: tuple[str, ...]


def find_fault(question: str, *, names: Sequence[str], answer: str, hidden: str = "") -> str:
    """Which rule a question breaks, in a few words; "" if it breaks none.

    It must contain all `names`, or a search could not find the page. It must contain neither its answer nor `hidden`.

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
    """True if a question contains a word of the answer, not counting small words and words of `names`.

    shares_words("Which Venn built Halm?", "Orsolya Venn", ["Halm"]) -> True
    """
    allowed = _SMALL.union(*(normalise_answer(name).split() for name in names))
    return bool((set(normalise_answer(answer).split()) - allowed) & set(normalise_answer(question).split()))


async def count_right(
    lines: Lines, name: str, items: Sequence[Tried], *, tries: int, temperature: float, with_texts: bool
) -> list[int]:
    """The number of right answers of `tries` to each question, with its texts or from memory."""
    prompts = [answer_question(item.question, item.texts if with_texts else ()) for item in items for _ in range(tries)]
    written = await lines.write(name, prompts, temperature)
    rights = [
        exact_match_score(line, items[number // tries].answers) if line else 0.0 for number, line in enumerate(written)
    ]
    return [int(sum(rights[first : first + tries])) for first in range(0, len(rights), tries)]
