"""Episodes to learn from, made of checked questions: a solver's own correct ones, and a proposer's scripted ones.

    own = await play_own(policy, searcher, questions, "eve", ToolCallSolver(evidence=True), Limits())
    own.lessons.episodes    # at most one per question: correct, in format, and with the evidence among its results
    own.unsure              # questions that not every attempt answered correctly: for reinforcement learning

    plan_proposals(Pages(index), questions, (4, 3, 2))[0].hops == 1
    played = await play_proposals(planned, LocalSearcher(index), renderer, "drzero", Limits(), num=400)

A solver's episodes come from rejection sampling: no oracle, teacher or label is used; the right answers were checked
against the user's own documents.

A proposer starts from a document, searches for each next page, and proposes. Hops are counted as in Dr. Zero: 1 is a
fact of the document itself, 2 a fact of a page that the document names, found by a search, 3 a chain of two facts from
there. Searches are real, and an episode is kept only if its results showed the evidence.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Literal, NoReturn

from msgspec import Struct, structs

from quaere.chat.protocol import PromptStyle, Protocol
from quaere.chat.renderer import Renderer
from quaere.chat.spans import find_evidence, shown_passages
from quaere.dialects.roles import is_right
from quaere.errors import SamplingFailed
from quaere.grouping import group_by
from quaere.policies.sampler import SamplingParams
from quaere.records import Episode, Evidence, Passage, Proposal, ProposeTask, Turn
from quaere.rewards.answers import contains
from quaere.rollout.episode import Limits, run_many
from quaere.rollout.policy import Policy
from quaere.search.searcher import Searcher
from quaere.training.rollouts import attempt_jobs, group_attempts
from quaere.warmup.dialects import Dialect, cites, proposer_turns
from quaere.warmup.documents.askable_facts import page_name
from quaere.warmup.documents.checked_question import CheckedQuestion
from quaere.warmup.documents.page_names import Pages
from quaere.warmup.scripted_episodes import Attempt, Demonstrations, demonstrate, find_flaw, judge, open_protocol
from quaere.worlds.dice import Dice

NAME = "documents"
_MAX_SOURCES = 8  # candidate passages that name a page; the first that does not reveal the answer is used

ThoughtKind = Literal["own", "first", "next", "found"]
THOUGHTS: Mapping[ThoughtKind, tuple[str, ...]] = {
    # One hop: the answer is in the document.
    "own": (
        "The text about {name} states one thing clearly: {answer}. I will ask for it.",
        "Someone could look up {name} and find {answer}. That makes a question.",
        "A short answer in this document is {answer}. My question names {name}.",
        "{answer} is a fact about {name} that has only one reading. I ask for that.",
    ),
    # More hops: what the document names.
    "first": (
        "The document mentions {name}. A search will show more about it.",
        "I take {name} from this text and search for it.",
        "{name} is named here but not explained. I search for it.",
        "My starting point is {name}. What do other documents say?",
    ),
    # Three hops: what the first search led to.
    "next": (
        "The results connect this with {name}. I search for that as well.",
        "From here it goes on to {name}, so that is my next search.",
        "{name} is what it leads to. One more search.",
        "The page names {name}. I need a fact about it.",
    ),
    # The fact was found.
    "found": (
        "The last results say {answer}. The question will start at {name}.",
        "Now I know {answer}. I ask for it and name only {name}.",
        "{answer} can be found by following {name}. That is my question.",
        "This gives a short answer, {answer}. I name {name} and nothing in between.",
    ),
}


class OwnEpisodes(Struct, frozen=True):
    """The result of a solver's attempts: episodes to imitate (`lessons`), and questions to practise on (`unsure`).

    The score `solved` of an unsure question is its share of correct attempts. `attempts` are all that were played
    without a failed search.

        OwnEpisodes(lessons=Demonstrations(...), unsure=[CheckedQuestion(...)], attempts=[Episode(...)])
    """

    lessons: Demonstrations
    unsure: list[CheckedQuestion]
    attempts: list[Episode]


async def play_own(
    policy: Policy,
    searcher: Searcher,
    questions: Sequence[CheckedQuestion],
    dialect: Dialect,
    protocol: Protocol,
    limits: Limits,
    *,
    attempts: int = 4,
    seed: int = 0,
    concurrency: int = 32,
    on_episode: Callable[[Episode], None] = lambda episode: None,
) -> OwnEpisodes:
    """Let the model attempt each question `attempts` times; keep the shortest good episode, count other outcomes."""
    jobs = attempt_jobs(protocol, [question.to_question() for question in questions], attempts, "own")
    episodes: list[Episode] = []
    async for episode in run_many(
        policy, jobs, searcher, limits, seed=seed, params=SamplingParams(temperature=1.0), concurrency=concurrency
    ):
        episodes.append(episode)
        on_episode(episode)
    own = OwnEpisodes(Demonstrations(), [], [])
    for question, group in zip(questions, group_attempts(episodes, attempts), strict=True):
        solved = sum(map(is_right, group)) / len(group) if group else 1.0  # where every search failed nothing is known
        faults = [_find_fault(episode, question, dialect) for episode in group]
        own.attempts.extend(group)
        own.lessons.dropped.update(fault for fault in faults if fault)
        if good := [episode for episode, fault in zip(group, faults, strict=True) if not fault]:
            own.lessons.episodes.append(min(good, key=lambda episode: len(episode.turns)))
        if solved < 1:
            own.unsure.append(structs.replace(question, scores=question.scores | {"solved": solved}))
    return own


def draw_evenly(questions: Iterable[CheckedQuestion], num: int, seed: int) -> list[CheckedQuestion]:
    """At most `num` questions, drawn in turn from those of 1, 2, ... facts: those of one fact are far more numerous.

    draw_evenly([one_a, one_b, one_c, two], 3, seed=0) -> [one_b, two, one_a]
    """
    dice, by_facts = Dice(seed, "evenly"), group_by(questions, lambda question: question.facts)
    groups = [by_facts[num_facts] for num_facts in sorted(by_facts)]
    for group in groups:
        dice.shuffle(group)
    return [question for question in chain.from_iterable(zip_longest(*groups)) if question is not None][:num]


def _find_fault(episode: Episode, question: CheckedQuestion, dialect: Dialect) -> str:
    """Why an episode should not be learnt from, in a few words; "" if it should."""
    if fault := judge(episode, "solver", dialect):
        return fault
    if episode.num_searches < question.searches:
        return "fewer searches than needed"
    shown = shown_passages(episode)
    is_shown = all(
        any(passage.doc_id == evidence.doc_id and evidence.text in passage.text for passage in shown)
        for evidence in question.deciding
    )
    return "" if is_shown else "the answer rests on nothing shown"


# ------------------------------------------------------------------------------------------ the proposer's


class Proposing(Struct, frozen=True):
    """A plan of a proposer's episode: the question to arrive at, the document to start from, the pages to search for.

    `names` are the names of the pages of its facts. With one hop there is no search.

        Proposing(question=CheckedQuestion(...), hops=2, document=Passage(id="sall#0", ...), names=("Halm bridge",))
    """

    question: CheckedQuestion
    hops: int
    document: Passage
    names: tuple[str, ...]

    @property
    def id(self) -> str:
        """An id, unique for a question and its number of hops."""
        return f"proposer-{self.hops}-{self.question.id}"

    @property
    def task(self) -> ProposeTask:
        """The task that the episode begins with."""
        return ProposeTask(self.id, self.document, self.hops)

    def write(self, dialect: Dialect, dice: Dice) -> "ProposerScript":
        """The script of the episode."""
        return ProposerScript(self, dialect, dice)

    def find_flaw(self, episode: Episode, dialect: Dialect) -> str:
        """Why the episode should not be learnt from, in a few words; "" if it should."""
        return find_flaw(episode, "proposer", dialect)


# ------------------------------------------------------------------------------------------------------------ planning


def plan_proposals(
    pages: Pages, questions: Sequence[CheckedQuestion], hop_ratio: Sequence[int], seed: int = 0
) -> list[Proposing]:
    """Plans of all proposer episodes that these questions allow, ordered so that hops are mixed by `hop_ratio`.

    A single fact gives an episode of one hop and, if another passage names its page, one of two hops; a chain gives
    three hops. Comparisons are left out: their facts do not lead from one to the next.
    """
    finder = _Finder(pages, questions, seed)
    planned = chain.from_iterable(finder.find(question) for question in questions)
    by_hops = group_by(planned, lambda proposing: proposing.hops)
    weights = dict(enumerate(hop_ratio, start=1))
    # The k-th item of weight w is placed at k/w, so that every prefix of the list has the ratio of the whole: playing
    # that stops at `num` episodes still covers all hops.
    placed = [
        ((number + 1) / weights[hops], hops, item)
        for hops, items in by_hops.items()
        if weights.get(hops)
        for number, item in enumerate(items)
    ]
    return [item for _, _, item in sorted(placed, key=lambda place: place[:2])]


def find_stating(passages: Iterable[Passage], evidence: Evidence) -> Passage | None:
    """The passage of these, all of its document, that has the evidence's sentence at its offset; None if none has."""
    found = (one for one in passages if one.start <= evidence.start)
    return next((one for one in found if one.text.startswith(evidence.text, evidence.start - one.start)), None)


class _Finder:
    """Finds the passages that state facts, and passages of other pages that name those pages."""

    def __init__(self, pages: Pages, questions: Sequence[CheckedQuestion], seed: int) -> None:
        wanted = {evidence.doc_id for question in questions for evidence in question.evidence}
        stating = [passage for passage in pages.passages if passage.doc_id in wanted]
        self._by_document = group_by(stating, lambda passage: passage.doc_id)
        names = {page_name(found[0].title) for found in self._by_document.values()}
        self._sources: dict[str, list[Passage]] = {}
        order = list(pages.passages)
        Dice(seed, "sources").shuffle(order)
        for passage in order:
            for name in names.intersection(pages.find_named(passage)):
                if len(sources := self._sources.setdefault(name, [])) < _MAX_SOURCES:
                    sources.append(passage)

    def find(self, question: CheckedQuestion) -> list[Proposing]:
        """The planned episodes of a question: none for a comparison, or if its documents are not in the index."""
        stated = [find_stating(self._by_document.get(each.doc_id, ()), each) for each in question.evidence]
        passages = [passage for passage in stated if passage is not None]
        names = tuple(page_name(passage.title) for passage in passages)
        is_stated = passages and len(passages) == len(stated)
        if question.kind not in ("single", "chain") or not is_stated or not all(names):
            return []  # without a name there is nothing to search for
        found = [Proposing(question, 1, passages[0], names)] if question.kind == "single" else []
        source = self._source(names, question)
        return [*found, Proposing(question, 1 + len(names), source, names)] if source else found

    def _source(self, names: Sequence[str], question: CheckedQuestion) -> Passage | None:
        """A passage of another page that names the first page but neither later pages nor the answer; None if none."""
        hidden = (*question.answers, *names[1:])
        sources = self._sources.get(names[0], ())
        return next((one for one in sources if not any(contains(one.titled_text, text) for text in hidden)), None)


# ------------------------------------------------------------------------------------------------------------- playing


async def play_proposals(
    planned: Sequence[Proposing],
    searcher: Searcher,
    renderer: Renderer,
    dialect: Dialect,
    limits: Limits,
    *,
    style: PromptStyle = "full",
    num: int | None = None,
    seed: int = 0,
) -> Demonstrations:
    """Play the planned episodes by script until `num` are good or all were played; each question gives at most one.

    Dropped episodes are counted by reason.
    """
    protocol, played, asked = open_protocol("proposer", style, dialect), Demonstrations(), set[str]()
    for proposing in planned:
        if num is not None and len(played.episodes) >= num:
            break
        if proposing.question.id in asked:
            continue
        script = proposing.write(dialect, Dice(seed, "proposal", proposing.id))
        attempt = Attempt(proposing.id, proposing.task, script, protocol)
        episode = await demonstrate(attempt, searcher, renderer, limits, name=NAME)
        fault = proposing.find_flaw(episode, dialect)
        if not fault and episode.outcome != script.outcome:
            fault = "it is not read as it was written"
        if played.take(episode, fault):
            asked.add(proposing.question.id)
    return played


class ProposerScript:
    """Script of a proposer: a search for each page, then the question."""

    def __init__(self, proposing: Proposing, dialect: Dialect, dice: Dice) -> None:
        self.proposing, self.dice, self.turns = proposing, dice, proposer_turns(dialect)
        question = proposing.question
        span = question.evidence[-1].text if cites(dialect) else ""
        self.outcome = Proposal(question.question, question.answers[0], span)

    def __call__(self, turns: Sequence[Turn], news: str) -> str:
        """The next turn."""
        proposing, at = self.proposing, len(turns)
        if turns and not shows(turns[-1], proposing.question.evidence[at - 1]):
            self.give_up()
        if at < proposing.hops - 1:
            name = proposing.names[at]
            return self.turns.search(self.think("next" if turns else "first", name), name)
        thought = self.think("found" if turns else "own", proposing.names[0])
        return self.turns.proposal(thought, self.outcome.question, self.outcome.answer, self.outcome.span)

    def give_up(self) -> NoReturn:
        """End the episode, because what it needs was not found."""
        raise SamplingFailed("a page was not found")

    def think(self, kind: ThoughtKind, name: str) -> str:
        """A thought of this kind about the page of this name."""
        return self.dice.pick(THOUGHTS[kind]).format(name=name, answer=self.outcome.answer)


def shows(turn: Turn, evidence: Evidence) -> bool:
    """True if the search of this turn returned the evidence's sentence from its document."""
    shown = [hit.passage for result in turn.results for hit in result.hits]
    return find_evidence(evidence.text, [passage for passage in shown if passage.doc_id == evidence.doc_id]) is not None
