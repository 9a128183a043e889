"""The oracle: a scripted player that knows the facts of a world and demonstrates how to search for them.

It follows a known chain of facts and writes what a policy that does not know it would write: a short thought, a search,
a reaction to the real results. A fact counts as found only if its sentence stands in the context the policy would have;
if not, the solver searches again with other words, and an episode whose chain is not found is dropped. If the dialect
asks for evidence, it quotes the sentence of the last fact from a passage that was shown. If the dialect evaluates
searches, it describes the results and scores them by whether the fact was among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import structs

from quaere.chat.prompt_style import PromptStyle
from quaere.chat.renderer import Renderer
from quaere.chat.spans import find_evidence
from quaere.errors import BadInput, SamplingFailed
from quaere.records import Episode, ProposeTask, Search, Turn
from quaere.rewards.format import contains
from quaere.rollout.episode import Limits
from quaere.search.index import Index
from quaere.search.searcher import LocalSearcher
from quaere.training.proposals import read_proposal
from quaere.warmup import evaluate_phrases as words_evaluating
from quaere.warmup import phrases as words
from quaere.warmup.dialects import Dialect, Role, cites, needed_turns, proposer_turns, solver_turns
from quaere.warmup.lessons import Lesson, Lessons, LessonSettings, Portion
from quaere.warmup.report_lessons import Research
from quaere.warmup.scripted_episodes import Attempt, Demonstrations, demonstrate, judge, open_protocol
from quaere.warmup.search_value import Verdict, weigh_search
from quaere.worlds import Hop, World
from quaere.worlds.dice import Dice
from quaere.worlds.names import strip_article

NAME = "oracle"
MAX_RETRIES = 2
"""Further searches for a fact after the first one did not find it."""

_TRIES_PER_EPISODE = 12
_OPEN_QUERY_PERCENT = 50


class _Oracle:
    """Script that writes one lesson's turns, hop by hop."""

    def __init__(self, lesson: Lesson, world: World, dice: Dice) -> None:
        self.lesson = lesson
        self.chain = lesson.gold.chain
        self.dice = dice
        self.world = world
        self.forms = words.forms_for(world.family.name)
        relations = world.graph.relations
        self.wordings = [
            words.word_hop(lesson.gold, number, relations[hop.relation], dice) for number, hop in enumerate(self.chain)
        ]
        self.at = 0  # index of the hop that is being searched for
        self.asked: list[str] = []  # queries for that hop so far
        self.found: dict[str, str] = {}  # slots filled by the previous hop

    @property
    def hop(self) -> Hop:
        return self.chain[self.at]

    @property
    def answer(self) -> str:
        """The answer as the policy can read it: by its title if the sentence has it, else as the sentence names it."""
        hop = self.chain[-1]
        return hop.answer if hop.inverse or contains(hop.evidence.text, hop.answer) else strip_article(hop.said)

    def slots(self, at: int) -> dict[str, str]:
        """The slots of a hop that are known before it is found."""
        return words.wording_slots(self.wordings[at], self.chain[at].mention)

    def look(self, turns: Sequence[Turn], news: str) -> Verdict:
        """The value of the last search; if it found its hop, the oracle goes on to the next."""
        verdict = weigh_search(self.chain, self.at, turns[-1], news)
        if verdict.kind == "found":
            slots = self.slots(self.at)
            found = {"F": self.hop.said, "A": self.hop.said, "X": slots["X"], "had": slots["want"]}
            self.found = found | {"n": str(verdict.rank), "hop": str(self.at + 2)}
            self.at += 1
            self.asked = []
        return verdict

    def quote(self, turns: Sequence[Turn]) -> str:
        """The sentence that states the last fact, as a shown passage has it; "" in a dialect without evidence."""
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


class _Solver(_Oracle):
    """Script of a solver: searches for one fact after another, retries with other words, and answers.

    If the dialect evaluates searches, it evaluates each of them: in EvalAct in a separate turn, in other dialects in a
    note at the start of the next turn.
    """

    note = ""
    verdict = Verdict("missing")

    def __init__(self, lesson: Lesson, world: World, dice: Dice) -> None:
        super().__init__(lesson, world, dice)
        self.turns = solver_turns(lesson.dialect)

    def __call__(self, turns: Sequence[Turn], news: str) -> str:
        if not turns:
            forms = self.forms["only_hop" if len(self.chain) == 1 else "first_hop"]
            return self.ask(words.write_thought(forms, self.dice, self.slots(0)))
        if isinstance(turns[-1].action, Search):
            slots, at = self.slots(self.at), self.at
            self.verdict = self.look(turns, news)
            if self.evaluates:
                return self.evaluate(at, slots, turns)
        return self.go_on(turns)

    @property
    def evaluates(self) -> bool:
        return self.turns.remarks != "none"

    def evaluate(self, at: int, slots: Mapping[str, str], turns: Sequence[Turn]) -> str:
        """The evaluation of the search for hop `at`: a turn of its own, or a note before the next action."""
        slots = dict(slots) | {"n": str(self.verdict.rank)}
        if self.verdict.kind == "found":
            hop, slots = self.chain[at], slots | self.found
            slots["F"] = self.answer if at == len(self.chain) - 1 else hop.said
            # A sentence that names the value only as "it" would not show what was found.
            slots["S"] = hop.evidence.text if contains(hop.evidence.text, slots["F"]) else ""
        refined = self.turns.remarks == "facts"
        self.note = words_evaluating.write_note(self.verdict, self.dice, slots, refined=refined)
        if self.turns.remarks != "turn":
            return self.go_on(turns)
        thought = words_evaluating.write_thought_before(self.verdict, self.dice, slots)
        return self.turns.evaluation(thought, self.note, self.verdict.draw_score(self.dice))

    def go_on(self, turns: Sequence[Turn]) -> str:
        """The next search for the same fact, the search for the next fact, or the answer."""
        if self.verdict.kind != "found":
            if len(self.asked) > MAX_RETRIES:
                raise SamplingFailed("a fact was not found")
            return self.ask(self.think_again())
        if self.at < len(self.chain):
            write = words_evaluating.write_next_thought if self.evaluates else words.write_next
            return self.ask(write(self.dice, self.found, self.slots(self.at)))
        thought = words.write_thought(self.forms["answer"], self.dice, self.found)
        return self.turns.answer(thought, self.answer, span=self.quote(turns), note=self.note)

    def think_again(self) -> str:
        slots = self.slots(self.at)
        if self.evaluates:
            return words_evaluating.write_again_thought(self.verdict, self.dice, slots)
        return words.write_thought(self.forms["not_found"], self.dice, slots)

    def ask(self, thought: str) -> str:
        first = self.forms["first_query"]
        query = words.write_query(self.wordings[self.at], self.hop.mention, self.dice, self.asked, first)
        self.asked.append(query)
        return self.turns.search(thought, query, self.note)


class _Proposer(_Oracle):
    """Script of a proposer: follows a thing the document names, one search per hop, and asks for the last value."""

    def __init__(self, lesson: Lesson, world: World, dice: Dice) -> None:
        super().__init__(lesson, world, dice)
        self.turns = proposer_turns(lesson.dialect)

    def __call__(self, turns: Sequence[Turn], news: str) -> str:
        start = {"E": self.chain[0].mention, "A": self.chain[-1].said}
        if self.lesson.hops == 1:
            return self.propose(self.forms["ask_of_document"], self.slots(0) | start, turns)
        if not turns:
            return self.ask(words.write_thought(words.START_FROM, self.dice, start))
        if self.look(turns, news).kind != "found":
            raise SamplingFailed("a fact was not found")
        if self.at < len(self.chain):
            return self.ask(words.write_thought(words.GO_ON_FROM, self.dice, self.found))
        return self.propose(words.ASK_OF_CHAIN, self.found | start, turns)

    def ask(self, thought: str) -> str:
        # Before the search a proposer does not know what it will find, so half of its queries name only the thing.
        if not self.hop.inverse and self.dice.chance(_OPEN_QUERY_PERCENT):
            noun = self.world.graph.kind(self.world.entity(self.hop.entity).index).noun
            return self.turns.search(thought, words.write_open_query(self.hop.mention, noun, self.dice))
        return self.turns.search(thought, words.write_query(self.wordings[self.at], self.hop.mention, self.dice))

    def propose(self, forms: Sequence[str], slots: dict[str, str], turns: Sequence[Turn]) -> str:
        thought = words.write_thought(forms, self.dice, slots)
        return self.turns.proposal(thought, self.lesson.gold.text, self.answer, self.quote(turns))


async def play_oracle(
    world: World,
    index: Index,
    renderer: Renderer,
    settings: LessonSettings,
    *,
    on_episode: Callable[[Episode], None] = lambda episode: None,
) -> Demonstrations:
    """Play until there are `num_episodes` good episodes, with equal shares for dialects and their roles.

    `index` must hold the world's articles. Raises BadInput if the limits are too small for such episodes.

        played = await play_oracle(world, index, Renderer(tokenizer), LessonSettings(num_episodes=100))
    """
    limits, turn_limits, report_limits = settings.limits, settings.turn_limits, settings.report_limits
    style, seed, plan = settings.style, settings.seed, settings.plan()
    refuse_few_turns(plan, limits, {"score": report_limits.max_turns, **(turn_limits or {})})
    lessons, searcher, played = Lessons(world, index), LocalSearcher(index), Demonstrations()
    research = Research(world, index, report_limits, style=style, seed=seed)
    try:
        for portion in plan:
            allowed = report_limits if portion.kind else allow_turns(limits, turn_limits, portion.dialect)
            num_kept = 0
            for _ in range(portion.num * _TRIES_PER_EPISODE + _TRIES_PER_EPISODE):
                if num_kept == portion.num:
                    break
                if portion.kind:
                    attempt = research.draw(portion.kind)
                else:
                    size = {"facts": portion.facts, "hops": portion.hops}
                    lesson = lessons.draw(portion.role, **size, dialect=portion.dialect)
                    attempt = _attempt(lesson, world, style, seed)
                episode = await demonstrate(
                    attempt.task,
                    attempt.script,
                    searcher,
                    renderer,
                    attempt.protocol,
                    allowed,
                    episode_id=attempt.id,
                    name=NAME,
                )
                fault = attempt.find_fault(episode)
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


def _attempt(lesson: Lesson, world: World, style: PromptStyle, seed: int) -> Attempt:
    """A lesson with a known chain of facts as an attempt to be played."""
    protocol = open_protocol(lesson.role, style, lesson.dialect)

    def find_fault(episode: Episode) -> str:
        return find_flaw(episode, lesson.role, lesson.dialect)

    return Attempt(lesson.id, lesson.task, _script(lesson, world, seed), protocol, find_fault)


def allow_turns(limits: Limits, turn_limits: Mapping[Dialect, int] | None, dialect: Dialect) -> Limits:
    """The episode limits of a dialect.

    allow_turns(Limits(), {"evalact": 12}, "evalact").max_turns == 12
    """
    return structs.replace(limits, max_turns=(turn_limits or {}).get(dialect, limits.max_turns))


def refuse_few_turns(plan: Sequence[Portion], limits: Limits, turn_limits: Mapping[Dialect, int] | None = None) -> None:
    """Raise `BadInput` if the limits of turns or searches are too small even when every search succeeds."""
    for part in sorted(plan, key=lambda part: (part.searches, part.role), reverse=True):
        needed = needed_turns(part.dialect, part.searches)
        allowed = allow_turns(limits, turn_limits, part.dialect).max_turns
        if needed > allowed:
            what, fewer = ("at least", "") if part.kind else (f"for {part.size}", f", or {_fewer(part)}")
            raise BadInput(
                f"a {part.role} of {part.dialect} needs {needed} turns {what}, and {allowed} are allowed",
                hint=f"--max-turns {needed}{fewer}",
            )
        if part.searches > limits.max_searches:
            raise BadInput(
                f"a {part.role} of {part.dialect} needs {part.searches} searches for {part.size}, and "
                f"{limits.max_searches} are allowed",
                hint=_fewer(part),
            )


def _fewer(part: Portion) -> str:
    option = "hops such as --proposer-hops" if part.role == "proposer" else "facts such as --facts"
    return f"fewer {option} 1,1"


def _script(lesson: Lesson, world: World, seed: int) -> _Solver | _Proposer:
    dice = Dice(seed, "warmup", lesson.id)
    return _Solver(lesson, world, dice) if lesson.role == "solver" else _Proposer(lesson, world, dice)


def find_flaw(episode: Episode, role: Role, dialect: Dialect) -> str:
    """Why a demonstration should be dropped; "" if it passes every check and would earn the full reward.

    find_flaw(episode, "proposer", "drzero") == "the answer is long"
    """
    fault = judge(episode, role, dialect)
    if fault:
        return fault
    if role == "proposer":
        return "" if read_proposal(episode).score.total == 1.0 else "the answer is long"
    return solver_turns(dialect).find_flaw(episode)


def _too_few(portion: Portion, num_kept: int, played: Demonstrations) -> BadInput:
    reason = played.dropped.most_common(1)[0][0]
    return BadInput(
        f"only {num_kept} of {portion.num} {portion.name} passed the checks (most frequent reason: {reason})",
        hint=f"more --max-turns, --tool-response-tokens or --sequence-tokens, or {_fewer(portion)}",
    )
