"""A player that knows the facts and shows how to search for them.

It walks a known chain of facts and writes what somebody who did not know it would write: a short thought, a search, a
look at what really came back. A fact counts as found only when its sentence stands in the context the policy would
have; if it does not, the solver searches again with other words, and an episode whose chain is not found is dropped.
Where the dialect asks for evidence, it quotes the sentence of the last fact out of the passage that was shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quaere.chat.prompts import PromptStyle
from quaere.chat.rendering import Renderer
from quaere.chat.spans import find_evidence
from quaere.errors import BadInput, SamplingFailed
from quaere.records import Episode, ProposeTask, Turn
from quaere.rewards.formatting import contains
from quaere.rollout.episode import Limits
from quaere.search.index import Index
from quaere.search.searcher import LocalSearcher
from quaere.training.phases.proposing import read_proposal
from quaere.training.warmup import words
from quaere.training.warmup.demonstration import Demonstrations, demonstrate, judge, open_protocol
from quaere.training.warmup.dialects import Dialect, cites
from quaere.training.warmup.lessons import Lesson, Lessons, Portion, Role, plan_lessons
from quaere.worlds import Hop, World
from quaere.worlds.dice import Dice
from quaere.worlds.names import strip_article

NAME = "oracle"
MAX_RETRIES = 2

_TRIES_PER_EPISODE = 12
_OPEN_QUERY_PERCENT = 50


class _Oracle:
    """Writes one lesson's turns, hop by hop."""

    def __init__(self, lesson: Lesson, world: World, dice: Dice) -> None:
        self.lesson = lesson
        self.chain = lesson.gold.chain
        self.dice = dice
        self.world = world
        relations = world.graph.relations
        self.wordings = [
            words.word_hop(lesson.gold, number, relations[hop.relation], dice) for number, hop in enumerate(self.chain)
        ]
        self.at = 0  # the hop that is being looked for
        self.asked: list[str] = []  # queries for it so far
        self.found: dict[str, str] = {}  # what the hop before gave, as slots

    @property
    def hop(self) -> Hop:
        return self.chain[self.at]

    @property
    def answer(self) -> str:
        """The answer as the policy can read it: by its title if that stands there, else as the sentence has it."""
        hop = self.chain[-1]
        return hop.answer if hop.inverse or contains(hop.evidence.text, hop.answer) else strip_article(hop.said)

    def slots(self, at: int) -> dict[str, str]:
        """What can be said of a hop before it is found."""
        return words.wording_slots(self.wordings[at], self.chain[at].mention)

    def look(self, turns: Sequence[Turn], news: str) -> bool:
        """Did the last search find the hop it was for? If so, go on to the next."""
        rank = _find(self.hop, turns[-1], news)
        if rank is None:
            return False
        slots = self.slots(self.at)
        found = {"F": self.hop.said, "A": self.hop.said, "X": slots["X"], "had": slots["want"]}
        self.found = found | {"n": str(rank), "hop": str(self.at + 2)}
        self.at += 1
        self.asked = []
        return True

    def search(self, thought: str, query: str) -> str:
        self.asked.append(query)
        return words.write_search(thought, query)

    def quote(self, turns: Sequence[Turn]) -> str:
        """The sentence that states the last fact as a passage that was shown has it; "" in a dialect without."""
        if not cites(self.lesson.dialect):
            return ""
        task, wanted = self.lesson.task, self.chain[-1].evidence
        shown = [hit.passage for turn in turns for result in turn.results for hit in result.hits]
        if isinstance(task, ProposeTask) and task.document:
            shown.append(task.document)
        located = find_evidence(wanted.text, [passage for passage in shown if passage.doc_id == wanted.doc_id])
        if located is None:
            raise SamplingFailed("the evidence was not shown")
        return located.text


def _find(hop: Hop, turn: Turn, news: str) -> int | None:
    """Which of the passages that came back states the fact, if one does and it was not cut off."""
    for result in turn.results:
        for rank, hit in enumerate(result.hits, start=1):
            if hit.passage.doc_id == hop.evidence.doc_id and _flat(hop.evidence.text) in _flat(news):
                return rank
    return None


def _flat(text: str) -> str:
    return " ".join(text.split())


class _Solver(_Oracle):
    """Searches for one fact after another, again with other words where that fails, and answers."""

    def __call__(self, turns: Sequence[Turn], news: str) -> str:
        if not turns:
            forms = words.ONLY_HOP if len(self.chain) == 1 else words.FIRST_HOP
            return self.ask(words.write_thought(forms, self.dice, self.slots(0)))
        if not self.look(turns, news):
            if len(self.asked) > MAX_RETRIES:
                raise SamplingFailed("a fact was not found")
            return self.ask(words.write_thought(words.NOT_FOUND, self.dice, self.slots(self.at)))
        if self.at < len(self.chain):
            return self.ask(words.write_next(self.dice, self.found, self.slots(self.at)))
        thought = words.write_thought(words.ANSWER, self.dice, self.found)
        return words.write_answer(thought, self.answer, self.quote(turns))

    def ask(self, thought: str) -> str:
        return self.search(thought, words.write_query(self.wordings[self.at], self.hop.mention, self.dice, self.asked))


class _Proposer(_Oracle):
    """Takes one thing the document names, follows it by one search per hop, and asks for where that leads."""

    def __call__(self, turns: Sequence[Turn], news: str) -> str:
        start = {"E": self.chain[0].mention, "A": self.chain[-1].said}
        if self.lesson.hops == 1:
            return self.propose(words.ASK_OF_DOCUMENT, self.slots(0) | start, turns)
        if not turns:
            return self.ask(words.write_thought(words.START_FROM, self.dice, start))
        if not self.look(turns, news):
            raise SamplingFailed("a fact was not found")
        if self.at < len(self.chain):
            return self.ask(words.write_thought(words.GO_ON_FROM, self.dice, self.found))
        return self.propose(words.ASK_OF_CHAIN, self.found | start, turns)

    def ask(self, thought: str) -> str:
        # Before the search a proposer does not know what there is to find, so half its queries name the thing alone.
        if not self.hop.inverse and self.dice.chance(_OPEN_QUERY_PERCENT):
            noun = self.world.graph.kind(self.world.entity(self.hop.entity).index).noun
            return self.search(thought, words.write_open_query(self.hop.mention, noun, self.dice))
        return self.search(thought, words.write_query(self.wordings[self.at], self.hop.mention, self.dice))

    def propose(self, forms: Sequence[str], slots: dict[str, str], turns: Sequence[Turn]) -> str:
        thought = words.write_thought(forms, self.dice, slots)
        return words.write_proposal(thought, self.lesson.gold.text, self.answer, self.quote(turns))


async def play_oracle(
    world: World,
    index: Index,
    renderer: Renderer,
    *,
    roles: Sequence[Role] = ("solver", "proposer"),
    num_episodes: int = 400,
    hop_ratio: Sequence[int] = (4, 3, 2, 1),
    style: PromptStyle = "full",
    dialects: Sequence[Dialect] = ("drzero",),
    limits: Limits | None = None,
    seed: int = 0,
    on_episode: Callable[[Episode], None] = lambda episode: None,
) -> Demonstrations:
    """Play until there are `num_episodes` good episodes, equal shares for dialects and roles, hops in the ratio.

    `index` must hold the world's articles. Raises BadInput where the limits leave no room for such episodes.

        played = await play_oracle(world, index, Renderer(tokenizer), roles=("solver",), num_episodes=100)
    """
    limits = limits or Limits()
    plan = plan_lessons(roles, num_episodes, hop_ratio, dialects)
    refuse_few_turns(plan, limits)
    lessons, searcher, played = Lessons(world, index), LocalSearcher(index), Demonstrations()
    try:
        for portion in plan:
            protocol, num_kept = open_protocol(portion.role, style, portion.dialect), 0
            for _ in range(portion.num * _TRIES_PER_EPISODE + _TRIES_PER_EPISODE):
                if num_kept == portion.num:
                    break
                lesson = lessons.draw(portion.role, portion.hops, portion.dialect)
                script = _script(lesson, world, seed)
                episode = await demonstrate(
                    lesson.task, script, searcher, renderer, protocol, limits, episode_id=lesson.id, name=NAME
                )
                fault = judge(episode, lesson, renderer) or _find_flaw(episode, lesson.role)
                if fault:
                    played.dropped[fault] += 1
                    continue
                num_kept += 1
                played.episodes.append(episode)
                on_episode(episode)
            if num_kept < portion.num:
                raise _too_few(portion, num_kept, played)
    finally:
        await searcher.close()
    return played


def refuse_few_turns(plan: Sequence[Portion], limits: Limits) -> None:
    """Refuse hops that cannot be walked in so many turns: a solver needs a search each and a turn for the answer."""
    needed, hops, role = max((part.hops + (part.role == "solver"), part.hops, part.role) for part in plan)
    if needed > limits.max_turns:
        raise BadInput(
            f"a {role} needs {needed} turns for {hops} hops, and {limits.max_turns} are allowed",
            hint=f"--max-turns {needed}, or fewer hops such as --hops 1,1",
        )


def _script(lesson: Lesson, world: World, seed: int) -> _Solver | _Proposer:
    dice = Dice(seed, "warmup", lesson.id)
    return _Solver(lesson, world, dice) if lesson.role == "solver" else _Proposer(lesson, world, dice)


def _find_flaw(episode: Episode, role: Role) -> str:
    """A demonstration should earn full marks, not only pass."""
    return "" if role == "solver" or read_proposal(episode).score.total == 1.0 else "the answer is long"


def _too_few(portion: Portion, num_kept: int, played: Demonstrations) -> BadInput:
    reason = played.dropped.most_common(1)[0][0] if played.dropped else "unknown"
    return BadInput(
        f"only {num_kept} of {portion.num} {portion.role} episodes of {portion.hops} hops came to a good end "
        f"(most often: {reason})",
        hint="more --max-turns, --tool-response-tokens or --sequence-tokens, or fewer hops such as --hops 1,1",
    )
