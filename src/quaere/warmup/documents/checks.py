"""Checks of a question: rules first, then searches and answers by the model that wrote it.

    find_fault("Who built the Halm bridge?", names=("Halm bridge",), answer="Orsolya Venn") -> ""
    examiner = Examiner(Lines(policy, seed=0, concurrency=32), index, WriterSettings())
    await examiner.search(["Who built the Halm bridge?"])
    examiner.finds("Who built the Halm bridge?", worded) -> True
    await examiner.attempt("singles", [worded]) -> [Verdict(share=1.0, fault="")]

No label is used. The answer span was picked before the question was written, so if the model gives that span when shown
the passage among others, and never without it, the passage answers the question.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from quaere.chat.markup import first_fault
from quaere.chat.protocol import Message, Quoted
from quaere.chat.question_wordings import LEANING
from quaere.errors import SamplingFailed
from quaere.policies.sampler import SamplingParams
from quaere.records import Answer, Episode, Hit, Passage, Question, SolveTask
from quaere.rewards.answers import contains, exact_match_score, normalise_answer
from quaere.rollout.episode import Job, Limits, run_many
from quaere.rollout.policy import Policy, derive_seed
from quaere.search.index import Index
from quaere.search.searcher import NoSearcher
from quaere.search.words import terms
from quaere.warmup.documents.askable_facts import find_spans
from quaere.warmup.documents.checked_question import Worded, WriterSettings
from quaere.warmup.documents.prompts import OneLine, answer_question, judge_question, show_place, write_query
from quaere.worlds.dice import Dice

_MIN_WORDS, _MAX_WORDS = 4, 35
_LIMITS = Limits(max_turns=1, turn_tokens=64, sequence_tokens=3072)
_SAME_WORDS = 0.5  # share of a question's words, where a page has no title to name
_STEM = 5  # letters by which two forms of a word are the same
_ASKING = frozenset(
    """who whom whose what which when where why how many much long often i my me you your we our they it its is are was
    were be been do does did can could will would should must may might has have had if of in on at by for to
    and or with from as that this these those there than then not no any some so into about after before during
    while up out over a an the
    """.split()
)
_SMALL = frozenset("of in on at by for to and de la von van di del der el al".split())
_QUERIES_AT_ONCE = 256
_REQUESTS = 3  # requests for a line, if the model fails at it
_OWN_QUERIES = 3  # queries the model may write where a search with the question itself does not find the passage
_BESIDE = 3  # other passages that are shown with the one that answers

UNREAD, KNOWN = "not answered with the page", "answered without the page"

# --------------------------------------------------------------------------------------------------------------- rules


def find_fault(question: str, *, names: Sequence[str], answer: str, hidden: str = "") -> str:
    """Which rule a question breaks, in a few words; "" if it breaks none.

    It must contain all `names`, and neither its answer nor `hidden`.

        find_fault("Who built it?", names=("Halm bridge",), answer="Venn") == "does not name what it is about"
    """
    is_one = question.endswith("?") and question.count("?") == 1 and _MIN_WORDS <= len(question.split()) <= _MAX_WORDS
    return first_fault(
        (not is_one, "is not one question"),
        (LEANING.search(question), "speaks of a text"),
        (not all(contains(question, name) for name in names), "does not name what it is about"),
        (shares_words(question, answer, names), "gives its answer away"),
        (hidden and shares_words(question, hidden, names), "names what it should describe"),
    )


def break_rules(worded: Worded) -> str:
    """Which rule a worded draft breaks (`find_fault`); "" if it breaks none."""
    draft = worded.draft
    answer = "" if draft.is_choice else draft.answers[-1]
    return find_fault(worded.question, names=draft.names, answer=answer, hidden=draft.hidden)


def shares_words(question: str, answer: str, names: Sequence[str]) -> bool:
    """True if a question contains a word of the answer, not counting small words and words of `names`.

    The last word of a phrase does not count either, because it is what is asked for ("Which report shows ...?"). A
    name's last word does.

        shares_words("Which Venn built Halm?", "Orsolya Venn", ["Halm"]) -> True
        shares_words("Which report shows where money went?", "cash flow report", []) -> False
    """
    allowed = _SMALL.union(*(normalise_answer(name).split() for name in names))
    words = normalise_answer(answer).split()
    if len(words) > 1 and answer.split()[-1].islower():
        words = words[:-1]
    return bool((set(words) - allowed) & set(normalise_answer(question).split()))


def word_overlap(question: str, sentence: str) -> float:
    """Share of the question's content words that occur in the sentence, compared by their first letters.

    word_overlap("Who built the Halm bridge?", "The bridge of Halm was built by Venn.") == 1.0
    """
    asked = {word[:_STEM] for word in normalise_answer(question).split() if word not in _ASKING}
    said = {word[:_STEM] for word in normalise_answer(sentence).split()}
    return len(asked & said) / len(asked) if asked else 1.0


def names_subject(question: str, passage: Passage, sentence: str) -> bool:
    """True if the question names its subject: a word of the page's title, file or folders, an identifier or an option.

    "What is the name of the volume?" could be about any page; a search finds its passage only by chance. For a page
    without a title it is enough that at least half of the question's words come from the sentence.
    """
    asked = {word for word in terms(question) if word not in _ASKING}
    file = passage.doc_id.rpartition(".")[0] or passage.doc_id  # an ending such as "html" names nothing
    about = set(terms(f"{passage.title} {file}"))
    if asked & about or names_any(question, ()):
        return True
    return not passage.title and word_overlap(question, sentence) >= _SAME_WORDS


def names_any(question: str, names: Sequence[str]) -> bool:
    """True if the question contains one of the names, an identifier or an option."""
    return any(contains(question, name) for name in names) or any(
        kind in ("identifier", "option") for kind, _, _ in find_spans(question)
    )


def is_asking(word: str) -> bool:
    """True for a word that questions begin with, such as "What" or "In"; such a word is no name."""
    return word.lower() in _ASKING


# ------------------------------------------------------------------------------------------------------------ attempts


class Lines:
    """Samples one line of text for each of many prompts, batched; what `check` raises, called after each, ends that.

    Fewer lost lines than `outage` are none, where the caller allows for them: the prompts themselves may be the cause.
    """

    def __init__(
        self, policy: Policy, *, seed: int, concurrency: int, check: Callable[[], None] = lambda: None, outage: int = 1
    ) -> None:
        self.policy, self.seed, self.concurrency, self.check, self.outage = policy, seed, concurrency, check, outage

    async def write(self, name: str, prompts: Sequence[Sequence[Message]], temperature: float) -> list[str]:
        """One line per prompt; "" if the model wrote none or sampling failed. `name` gives each call its own seeds."""
        return [line or "" for line in await self.request(name, prompts, temperature)]

    async def request(self, name: str, prompts: Sequence[Sequence[Message]], temperature: float) -> list[str | None]:
        """As `write`, but None for a line that was lost because sampling failed.

        Prompts at which sampling failed are retried. Raises `SamplingFailed` if most of them still fail, so that an
        outage is not mistaken for bad questions.
        """
        seed = derive_seed(self.seed, name)
        jobs = [
            Job(OneLine(messages), SolveTask(Question(f"{name}-{number}", "")), seed=derive_seed(seed, number))
            for number, messages in enumerate(prompts)
        ]
        params = SamplingParams(temperature=temperature)
        found: dict[int, Episode] = {}
        going = list(range(len(jobs)))
        for _ in range(_REQUESTS):
            asked = [jobs[at] for at in going]
            how: dict[str, Any] = {"params": params, "concurrency": self.concurrency}
            played = run_many(self.policy, asked, NoSearcher(), _LIMITS, **how, on_episode=lambda episode: self.check())
            found |= zip(going, [episode async for episode in played], strict=True)
            going = [at for at in going if _find_failure(found[at])]
            if not going:
                break
        if 2 * len(going) > len(jobs) and len(going) >= self.outage:
            failure = _find_failure(found[going[0]])
            raise SamplingFailed(failure, hint="type the same command again: it goes on where it stopped")
        outcomes = [found[at].outcome for at in range(len(jobs))]
        lines = [outcome.text if isinstance(outcome, Answer) else "" for outcome in outcomes]
        return [None if at in going else line for at, line in enumerate(lines)]


def search_all(index: Index, queries: Sequence[str], topk: int) -> Iterator[list[Hit]]:
    """The hits of each query, in order; the queries are sent to the index in batches."""
    for first in range(0, len(queries), _QUERIES_AT_ONCE):
        yield from index.search(queries[first : first + _QUERIES_AT_ONCE], topk)


def _find_failure(episode: Episode) -> str:
    """The message of a sampling failure in the episode's last turn; "" if there was none."""
    failure = episode.turns[-1].failure if episode.turns else None
    return failure.message if failure and (failure.boundary, failure.kind) == ("model", "sampling") else ""


def has_answer(passage: Passage, worded: Worded) -> bool:
    """True if the passage states the question's last fact, or has an accepted answer: then one search is enough."""
    shown = passage.titled_text
    return passage.id == worded.fact.passage.id or any(contains(shown, answer) for answer in worded.answers)


class Verdict(Struct, frozen=True):
    """Share of right answers with the passage, and the check that failed; "" if none did.

    Verdict(share=0.75, fault="")
    """

    share: float
    fault: str


class Examiner:
    """Checks questions by searching with them and letting the model answer them, with their passages and without.

    Of `tries` answers with the passage among others, the greedy one and at least `min_right` in all must be right; of
    `tries` answers without it, at most `max_known`. A search returns `topk` passages (`WriterSettings`).
    """

    def __init__(self, lines: Lines, index: Index, settings: WriterSettings, *, max_known: int = 0) -> None:
        self.lines, self.index, self.settings, self.max_known = lines, index, settings, max_known
        self.hits: dict[str, list[Passage]] = {}  # by query
        self._passages: dict[str, Passage] = {}  # by id: many queries find the same ones

    async def search(self, queries: Sequence[str]) -> None:
        """Search with the new queries in a thread and store their passages in `hits`; sampling is not blocked."""
        new = [query for query in dict.fromkeys(queries) if query not in self.hits]
        found = await asyncio.to_thread(lambda: list(search_all(self.index, new, self.settings.topk)))
        for query, hits in zip(new, found, strict=True):
            self.hits[query] = [self._passages.setdefault(hit.passage.id, hit.passage) for hit in hits]

    def finds(self, query: str, worded: Worded, within: int | None = None) -> bool:
        """True if a search with the query returned the passages that state the answer, among its first `within`."""
        found = {passage.id for passage in self.hits[query][:within]}
        return all(fact.passage.id in found for fact in worded.draft.told_by)

    async def find_by_own_queries(self, name: str, worded: Sequence[Worded], within: int) -> list[bool]:
        """Per question, whether a query that the model writes from it finds its passage among the first `within`.

        That query's hits replace those of the question: they are shown with the passage when the question is answered.
        """
        prompts = [write_query(Quoted(item.question)) for item in worded for _ in range(_OWN_QUERIES)]
        queries = await self.lines.write(f"{name}: own queries", prompts, 1.0)
        await self.search(queries)
        found = []
        for at, item in enumerate(worded):
            own = queries[at * _OWN_QUERIES : (at + 1) * _OWN_QUERIES]
            finding = [query for query in own if self.finds(query, item, within)]
            if finding:
                self.hits[item.question] = self.hits[finding[0]]
            found.append(bool(finding))
        return found

    async def are_clear(self, name: str, worded: Sequence[Worded]) -> list[bool]:
        """Per question, whether the model judges it clear without its passage and answered by this answer alone."""
        prompts = [judge_question(show_place(item.fact.passage), item.question, item.answers[-1]) for item in worded]
        return [line.lower().startswith("yes") for line in await self.lines.write(f"{name}: judged", prompts, 0.0)]

    async def attempt(self, name: str, worded: Sequence[Worded], *, needed: int = 0) -> list[Verdict]:
        """Per question, whether the model answers it with its passages among others (`read`), and not without them."""
        shares = await self.read(f"{name}: with the page", worded, needed=needed)
        going = [at for at, share in enumerate(shares) if share]
        known = await self._count_from_memory(f"{name}: from memory", [worded[at] for at in going], self.settings.tries)
        faults = dict(zip(going, (KNOWN if num > self.max_known else "" for num in known), strict=True))
        return [Verdict(share, faults.get(at, UNREAD)) for at, share in enumerate(shares)]

    async def read(self, name: str, worded: Sequence[Worded], *, needed: int = 0, lost: int = 0) -> list[float]:
        """Per question, the share of right answers with its passages among others; 0.0 if there are too few.

        With `needed`, so many right answers are enough, whichever they are; a question composed of checked questions
        needs only one, because its parts were checked before. Sampling stops as soon as it is clear whether there are
        enough right answers. With `lost=1`, answers that were lost count as right.
        """
        shown = [self.show(item) for item in worded]
        rights = await self._count(f"{name}, greedily", worded, shown, 0.0, lost)
        tried = [1] * len(worded)
        going = [at for at, right in enumerate(rights) if right or needed]
        needed = needed or self.settings.min_right
        for number in range(2, self.settings.tries + 1):
            going = [at for at in going if rights[at] < needed <= rights[at] + self.settings.tries - tried[at]]
            some, texts = [worded[at] for at in going], [shown[at] for at in going]
            more = await self._count(f"{name}, attempt {number}", some, texts, 1.0, lost)
            for at, right in zip(going, more, strict=True):
                rights[at] += right
                tried[at] += 1
        return [right / num if right >= needed else 0.0 for right, num in zip(rights, tried, strict=True)]

    async def read_both(self, name: str, pairs: Sequence[tuple[Worded, Worded]]) -> list[Verdict]:
        """Per pair, whether greedy decoding answers both questions with the page, and not both without it."""
        both = [worded for pair in pairs for worded in pair]
        await self.search([worded.question for worded in both])
        read = await self._count(f"{name}: with the page", both, [self.show(item) for item in both], 0.0)
        known = await self._count_from_memory(f"{name}: from memory", both, 1)
        nums = [(sum(read[at : at + 2]), sum(known[at : at + 2])) for at in range(0, len(both), 2)]
        return [Verdict(num / 2, UNREAD if num < 2 else KNOWN if num_known == 2 else "") for num, num_known in nums]

    async def _count_from_memory(self, name: str, worded: Sequence[Worded], tries: int) -> list[int]:
        """Per question, the number of right answers without a passage; only the greedy answer if that is too many."""
        rights = await self._count(f"{name}, greedily", worded, [()] * len(worded), 0.0)
        going = [at for at, right in enumerate(rights) if right <= self.max_known for _ in range(tries - 1)]
        more = await self._count(name, [worded[at] for at in going], [()] * len(going), 1.0)
        for at, right in zip(going, more, strict=True):
            rights[at] += right
        return rights

    async def _count(
        self, name: str, worded: Sequence[Worded], texts: Sequence[tuple[str, ...]], temperature: float, lost: int = 0
    ) -> list[int]:
        """Per question, 1 if the model answers it right given these texts, else 0; `lost` if the answer was lost."""
        written = await self.answer(name, worded, texts, temperature)
        return [
            lost if line is None else int(exact_match_score(line, item.answers))
            for item, line in zip(worded, written, strict=True)
        ]

    async def answer(
        self, name: str, worded: Sequence[Worded], texts: Sequence[tuple[str, ...]], temperature: float
    ) -> list[str | None]:
        """The model's answer to each question given these texts; "" if it wrote none, None if it was lost."""
        prompts = [answer_question(item.question, shown) for item, shown in zip(worded, texts, strict=True)]
        return await self.lines.request(name, prompts, temperature)

    def show(self, worded: Worded) -> tuple[str, ...]:
        """The texts to show with a question: the passages of its facts and some other hits, in random order."""
        own = {fact.passage.id: fact.passage for fact in worded.draft.facts}
        others = [passage for passage in self.hits.get(worded.question, ()) if passage.id not in own]
        shown = [*own.values(), *others[: _BESIDE + 1 - len(own)]]
        Dice("beside", worded.question).shuffle(shown)
        return tuple(passage.titled_text for passage in shown)
