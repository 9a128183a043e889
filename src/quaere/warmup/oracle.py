"""The oracle: a scripted player that knows the facts of a world and demonstrates how to search for them.

It follows a known chain of facts and writes what a policy that does not know it would write: a short thought, a search,
a reaction to the real results. A fact counts as found only if its sentence is in the context the policy would have; if
not, the solver searches again with other words, and an episode whose chain is not found is dropped. If the dialect
asks for evidence, it quotes the sentence of the last fact from a passage that was shown. If the dialect evaluates
searches, it describes the results and scores them by whether the fact was among them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct, structs

from quaere.chat.protocol import PromptStyle
from quaere.chat.renderer import Renderer
from quaere.chat.spans import find_evidence
from quaere.errors import BadInput, SamplingFailed
from quaere.records import Episode, Passage, ProposeTask, Search, Turn
from quaere.rewards.abstention import ABSTENTION
from quaere.rewards.answers import contains
from quaere.rollout.episode import Limits
from quaere.search.index import Index
from quaere.search.searcher import LocalSearcher
from quaere.warmup import phrases as words
from quaere.warmup.dialects import Dialect, cites, needed_turns, proposer_turns, solver_turns
from quaere.warmup.lessons import Lesson, Lessons, LessonSettings, Portion
from quaere.warmup.report_lessons import Research
from quaere.warmup.scripted_episodes import Attempt, Demonstrations, demonstrate, find_flaw, open_protocol
from quaere.worlds import Hop, World
from quaere.worlds.dice import Dice
from quaere.worlds.names import strip_article

NAME = "oracle"
# Further searches for a fact after the first one did not find it.
MAX_RETRIES = 2

_TRIES_PER_EPISODE = 12
_OPEN_QUERY_PERCENT = 50
# Evaluations of a search. Their slots are those of `phrases.py`, and {S}, the sentence that states the fact. None has
# quotation marks: inside JSON each would need a backslash before it, which a small model forgets. None says more than
# the policy can know: only the oracle knows that a passage holds a later fact of the chain.
_EVALUATIONS = words.load_forms("evaluations")
_MAX_NOTE_WORDS = 60
_THOUGHT_PERCENT = 50
_REPEAT_PERCENT = 50
Kind = Literal["found", "article", "related", "named", "missing"]

# One score for each tier of the environment's cue (above 7, above 3, up to 3): PCAR would weigh tokens by differences
# within a tier, which would be chance.
_SCORES: dict[Kind, int] = {"found": 10, "article": 5, "related": 5, "named": 5, "missing": 1}
_HEAD_CHARS = 60  # first characters of a passage that show whether it was shown or cut off


# --------------------------------------------------------------------------------------- evaluation of a search


class Verdict(Struct, frozen=True):
    """What a search for a fact returned (`kind`), and the rank of the passage with it.

    found     the sentence that states the fact
    article   the article of the fact, without that sentence
    related   another fact of the chain
    named     only a mention of the entity
    missing   none of these; the rank is 0

        Verdict(kind="named", rank=3)
    """

    kind: Kind
    rank: int = 0

    @property
    def score(self) -> int:
        """The score of a search of this kind, from 0 to 10."""
        return _SCORES[self.kind]


def weigh_search(chain: Sequence[Hop], at: int, turn: Turn, news: str) -> Verdict:
    """The verdict on the search in this turn for hop `at`; `news` is the text of the turn and of the reply to it.

    A passage that the search returned but the reply cut off was not shown and does not count.
    """
    hop, reply = chain[at], _flat(news.partition(turn.text)[2] or news)
    passages = [hit.passage for result in turn.results for hit in result.hits]
    others = [other for number, other in enumerate(chain) if number != at]
    name = strip_article(hop.mention)
    tests: list[tuple[Kind, list[bool]]] = [
        ("found", [_states(passage, hop, reply) for passage in passages]),
        ("article", [passage.doc_id == hop.evidence.doc_id and _is_shown(passage, reply) for passage in passages]),
        ("related", [any(_states(passage, other, reply) for other in others) for passage in passages]),
        ("named", [_is_shown(passage, reply) and contains(passage.titled_text, name) for passage in passages]),
    ]
    for kind, held in tests:
        if any(held) and (kind != "named" or contains(reply, name)):
            return Verdict(kind, held.index(True) + 1)
    return Verdict("missing")


def _states(passage: Passage, hop: Hop, reply: str) -> bool:
    sentence = _flat(hop.evidence.text)
    return passage.doc_id == hop.evidence.doc_id and sentence in _flat(passage.text) and sentence in reply


def _is_shown(passage: Passage, reply: str) -> bool:
    return _flat(passage.text[:_HEAD_CHARS]) in reply


def _flat(text: str) -> str:
    """The text with single spaces: decoding tokens may change white space."""
    return " ".join(text.split())


# ------------------------------------------------------------------------------------------------------ scripts


class _Oracle:
    """Script that writes one lesson's turns, hop by hop."""

    def __init__(self, lesson: Lesson, world: World, dice: Dice) -> None:
        self.lesson, self.world, self.dice = lesson, world, dice
        self.chain = lesson.gold.chain
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
        """The answer as the policy can read it: the entity's title if the evidence has it, else the name used there."""
        hop = self.chain[-1]
        return hop.answer if hop.inverse or contains(hop.evidence.text, hop.answer) else strip_article(hop.said)

    def think(self, form: str, slots: Mapping[str, str]) -> str:
        return words.write_thought(self.forms[form], self.dice, slots)

    def slots(self, at: int) -> dict[str, str]:
        """The template slots (`phrases.py`) of hop `at` that are known before its fact is found."""
        return words.wording_slots(self.wordings[at], self.chain[at].mention)

    def look(self, turns: Sequence[Turn], news: str) -> Verdict:
        """The verdict on the last search; if it found the fact, the oracle advances to the next hop."""
        verdict = weigh_search(self.chain, self.at, turns[-1], news)
        if verdict.kind == "found":
            slots = self.slots(self.at)
            found = {"F": self.hop.said, "A": self.hop.said, "X": slots["X"], "had": slots["want"]}
            self.found = found | {"n": str(verdict.rank), "hop": str(self.at + 2)}
            self.at += 1
            self.asked = []
        return verdict

    def quote(self, turns: Sequence[Turn]) -> str:
        """The sentence that states the last fact, copied from a shown passage; "" in a dialect without evidence."""
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
            return self.ask(self.think("only_hop" if len(self.chain) == 1 else "first_hop", self.slots(0)))
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
        """The evaluation of the search for hop `at`: a separate turn, or a note before the next action."""
        kind, dice, slots = self.verdict.kind, self.dice, {**slots, "n": str(self.verdict.rank)}
        if kind == "found":
            said = self.answer if at == len(self.chain) - 1 else self.chain[at].said
            proof = self.chain[at].evidence.text
            # A sentence that names the value only as "it" would not show what was found.
            slots |= self.found | {"F": said, "S": proof if contains(proof, said) else ""}
        form: str = "refined" if self.turns.remarks == "facts" and kind == "found" else kind
        self.note = words.write_thought(_EVALUATIONS[form], dice, slots, min_words=1, max_words=_MAX_NOTE_WORDS)
        if self.turns.remarks != "turn":
            return self.go_on(turns)
        thought = ""
        if dice.chance(_THOUGHT_PERCENT):
            form = {"found": "before_good", "missing": "before_bad"}.get(kind, "before_partly")
            thought = words.write_thought(_EVALUATIONS[form], dice, slots, min_words=1)
        return self.turns.evaluation(thought, self.note, self.verdict.score)

    def go_on(self, turns: Sequence[Turn]) -> str:
        """The next search for the same fact, the search for the next fact, or the answer."""
        if self.verdict.kind != "found":
            is_last = self.at == len(self.chain) - 1
            if self.lesson.abstains and is_last and len(self.asked) > 1:
                return self.turns.answer(self.think("abstain", self.slots(self.at)), ABSTENTION, note=self.note)
            if len(self.asked) > MAX_RETRIES:
                raise SamplingFailed("a fact was not found")
            forms = self.forms["not_found"]
            if self.evaluates:
                forms = words.THOUGHTS["not_found"] if self.verdict.kind == "missing" else _EVALUATIONS["again"]
            return self.ask(words.write_thought(forms, self.dice, self.slots(self.at)))
        if self.at < len(self.chain):
            # A note has already said what was found, so half of the thoughts after it do not repeat that.
            if self.evaluates and not self.dice.chance(_REPEAT_PERCENT):
                return self.ask(self.think("next_hop", self.slots(self.at)))
            return self.ask(words.write_next(self.dice, self.found, self.slots(self.at)))
        thought = self.think("answer", self.found)
        return self.turns.answer(thought, self.answer, span=self.quote(turns), note=self.note)

    def ask(self, thought: str) -> str:
        first = self.forms["first_query"]
        query = words.write_query(self.wordings[self.at], self.hop.mention, self.dice, self.asked, first)
        self.asked.append(query)
        return self.turns.search(thought, query, self.note)


class _Proposer(_Oracle):
    """Script of a proposer: starts from an entity that the document names, searches once per hop, asks for the last."""

    def __init__(self, lesson: Lesson, world: World, dice: Dice) -> None:
        super().__init__(lesson, world, dice)
        self.turns = proposer_turns(lesson.dialect)

    def __call__(self, turns: Sequence[Turn], news: str) -> str:
        start = {"E": self.chain[0].mention, "A": self.chain[-1].said}
        if self.lesson.hops == 1:
            return self.propose("ask_of_document", self.slots(0) | start, turns)
        if not turns:
            return self.ask(self.think("start_from", start))
        if self.look(turns, news).kind != "found":
            raise SamplingFailed("a fact was not found")
        if self.at < len(self.chain):
            return self.ask(self.think("go_on_from", self.found))
        return self.propose("ask_of_chain", self.found | start, turns)

    def ask(self, thought: str) -> str:
        # Before the search a proposer does not know what it will find, so half of its queries name only the thing.
        if not self.hop.inverse and self.dice.chance(_OPEN_QUERY_PERCENT):
            noun = self.world.graph.kind(self.world.entity(self.hop.entity).index).noun
            return self.turns.search(thought, words.write_open_query(self.hop.mention, noun, self.dice))
        return self.turns.search(thought, words.write_query(self.wordings[self.at], self.hop.mention, self.dice))

    def propose(self, form: str, slots: dict[str, str], turns: Sequence[Turn]) -> str:
        return self.turns.proposal(self.think(form, slots), self.lesson.gold.text, self.answer, self.quote(turns))


# ------------------------------------------------------------------------------------------------------ playing


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
    report_limits, style, seed, plan = settings.report_limits, settings.style, settings.seed, settings.plan()
    refuse_few_turns(plan, settings.limits, {"score": report_limits.max_turns, **(settings.turn_limits or {})})
    lessons, searcher, played = Lessons(world, index), LocalSearcher(index), Demonstrations()
    ignores = settings.ignore_rubrics
    research = Research(world, index, report_limits, style=style, seed=seed, ignore_rubrics=ignores)
    try:
        for portion in plan:
            usual = allow_turns(settings.limits, settings.turn_limits, portion.dialect)
            allowed, num_kept = report_limits if portion.kind else usual, 0
            for _ in range(portion.num * _TRIES_PER_EPISODE + _TRIES_PER_EPISODE):
                if num_kept == portion.num:
                    break
                kind = portion.kind
                attempt = research.draw(kind) if kind else _attempt(lessons.draw_of(portion), world, style, seed)
                episode = await demonstrate(attempt, searcher, renderer, allowed, name=NAME)
                if played.take(episode, attempt.find_fault(episode)):
                    num_kept += 1
                    on_episode(episode)
            if num_kept < portion.num:
                reason = played.dropped.most_common(1)[0][0]
                raise BadInput(
                    f"only {num_kept} of {portion.num} {portion.name} passed the checks "
                    f"(most frequent reason: {reason})",
                    hint=_LARGER.get(reason, _ANY_LARGER) + _fewer(portion),
                )
    finally:
        await searcher.close()
    return played


def _attempt(lesson: Lesson, world: World, style: PromptStyle, seed: int) -> Attempt:
    role, dialect, dice = lesson.role, lesson.dialect, Dice(seed, "warmup", lesson.id)
    script = _Solver(lesson, world, dice) if role == "solver" else _Proposer(lesson, world, dice)
    protocol = open_protocol(role, style, dialect, abstention=lesson.may_abstain)
    return Attempt(lesson.id, lesson.task, script, protocol, lambda episode: find_flaw(episode, role, dialect))


def allow_turns(limits: Limits, turn_limits: Mapping[Dialect, int] | None, dialect: Dialect) -> Limits:
    """The limits with the dialect's own limit of turns, if `turn_limits` has one.

    allow_turns(Limits(), {"evalact": 12}, "evalact").max_turns == 12
    """
    return structs.replace(limits, max_turns=(turn_limits or {}).get(dialect, limits.max_turns))


def refuse_few_turns(plan: Sequence[Portion], limits: Limits, turn_limits: Mapping[Dialect, int] | None = None) -> None:
    """Raise `BadInput` if the limits of turns or searches are too small even when every search succeeds."""
    for part in sorted(plan, key=lambda part: (part.searches, part.role), reverse=True):
        needed = needed_turns(part.dialect, part.searches)
        allowed = allow_turns(limits, turn_limits, part.dialect).max_turns
        if needed > allowed:
            what = "at least" if part.kind else f"for {part.size}"
            raise BadInput(
                f"a {part.role} of {part.dialect} needs {needed} turns {what}, and {allowed} are allowed",
                hint=f"--max-turns {needed}{_fewer(part)}",
            )
        if part.searches > limits.max_searches:
            raise BadInput(
                f"a {part.role} of {part.dialect} needs {part.searches} searches for {part.size}, and "
                f"{limits.max_searches} are allowed",
                hint=_fewer(part).removeprefix(", or "),
            )


# By the reason for which an episode was dropped, the option that would have kept it.
_LARGER = {
    "limit: turns": "a larger --max-turns",
    "limit: turn_tokens": "a larger --turn-tokens",
    "limit: sequence_tokens": "a larger --sequence-tokens or a smaller --tool-response-tokens",
}
_ANY_LARGER = "a larger --max-turns, --turn-tokens, --sequence-tokens or --tool-response-tokens"


def _fewer(part: Portion) -> str:
    """The end of a hint: the largest weights with fewer facts or hops; "" if there are none."""
    number, option = (part.hops, "hops such as --proposer-hops") if part.hops else (part.facts, "facts such as --facts")
    return f", or fewer {option} {','.join('1' * (number - 1))}" if number > 1 else ""
