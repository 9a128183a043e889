"""Lessons drawn from a world of the warm-up family: tasks whose chain of facts is known.

    lessons = Lessons(world, index)
    lessons.draw("solver", facts=2)     # Lesson(id="solver-2-w1-q00000", task=SolveTask(...), ...)

No question is drawn twice, for any role. Worlds of the evaluation family are refused: training on them would make
every evaluation on them invalid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, structs

from quaere.chat.protocol import PromptStyle
from quaere.errors import BadInput
from quaere.grouping import group_by, grouped
from quaere.records import Passage, ProposeTask, SolveTask, Task, searches_needed
from quaere.rewards.abstention import hide_answers
from quaere.rewards.answers import contains
from quaere.rollout.episode import Limits
from quaere.search.index import Index
from quaere.search.index_build import build_index
from quaere.warmup.dialects import DIALECTS, LESSON_KINDS, ROLES, Dialect, LessonKind, Role, role_of, roles_of
from quaere.worlds import GoldQuestion, World, generate_world, write_world
from quaere.worlds.gold_questions import MAX_FACTS, says
from quaere.worlds.world import CORPUS

FACT_RATIO = (4, 3, 2, 1)  # weights of a solver's questions that combine 1, 2, ... facts
HOP_RATIO = (4, 3, 2, 1)  # weights of a proposer's questions of 1, 2, ... hops in Dr. Zero's count
LESSON_RATIO = (5, 2, 3)  # weights of score's reports, rubrics and assessments
_FAMILIES = ("warmup", "hamlet")
_MOST_HIDDEN_FACTS = 2  # facts of a lesson that abstains: it makes one search more than others

# Longer than other episodes: an assessment shows up to eight reports and writes an entry for each.
REPORT_LIMITS = Limits(max_turns=8, turn_tokens=1536, sequence_tokens=8192, tool_response_tokens=512)


class LessonSettings(Struct, frozen=True):
    """Settings of the demonstrations by an oracle or a teacher: number of episodes, dialects, roles and limits.

    `fact_ratio` splits a solver's lessons by number of facts, `hop_ratio` a proposer's by hops in Dr. Zero's count, and
    `lesson_ratio` those of the dialect score by kind. `roles` is None for all roles of each dialect. `turn_limits`
    overrides the limit of turns for single dialects; `report_limits` apply to score, whose episodes are longer.
    `abstention` is the share of a solver's lessons whose answer is hidden, so that the solver abstains. With
    `ignore_rubrics`, score's reports do not follow the rubrics they are shown, a control.

        LessonSettings(num_episodes=100, roles=("solver",), dialects=("drzero", "eve"), style="brief")
    """

    num_episodes: int
    roles: Sequence[Role] | None = None
    dialects: Sequence[Dialect] = ("drzero",)
    fact_ratio: Sequence[int] = FACT_RATIO
    hop_ratio: Sequence[int] = HOP_RATIO
    lesson_ratio: Sequence[int] = LESSON_RATIO
    style: PromptStyle = "full"
    limits: Limits = Limits()
    turn_limits: Mapping[Dialect, int] | None = None
    report_limits: Limits = REPORT_LIMITS
    seed: int = 0
    abstention: float = 0.0
    ignore_rubrics: bool = False

    def plan(self) -> list[Portion]:
        """The number of episodes of each dialect, role and number of facts."""
        ratios = self.fact_ratio, self.dialects, self.lesson_ratio, self.hop_ratio
        return plan_lessons(self.roles, self.num_episodes, *ratios, abstention=self.abstention)


def build_world(seed: int, num_articles: int, folder: Path, family: str = "warmup") -> tuple[World, Index]:
    """A world for lessons and its index, written to this folder.

    build_world(1, 500, Path("scratch"))[1].manifest.num_documents == 500
    """
    world = generate_world(seed, num_articles, family)
    write_world(world, folder / "world", num_questions=0)
    return world, build_index(folder / "world" / CORPUS, folder / "index")


class Lesson(Struct, frozen=True):
    """A task and the chain of facts behind it. A proposer's `gold` is the question that it should propose.

    `hops` is the number of hops a proposer is asked for, in Dr. Zero's count (`searches_needed` converts it to facts);
    0 for a solver. With `may_abstain`, a solver's prompt lets it abstain; if the answer is hidden, it should.

        Lesson(id="proposer-2-w1-q00007", role="proposer", hops=2, task=ProposeTask(...), gold=GoldQuestion(...),
               dialect="eve")
    """

    id: str
    role: Role
    hops: int
    task: Task
    gold: GoldQuestion
    dialect: Dialect = "drzero"
    may_abstain: bool = False

    @property
    def abstains(self) -> bool:
        """True if the answer is hidden from the searches."""
        return isinstance(self.task, SolveTask) and bool(self.task.question.hidden)


class Portion(Struct, frozen=True):
    """A number of episodes of one dialect, role and number of facts; for score, of one kind of lesson.

    `hops` is the number of hops a proposer is asked for, in Dr. Zero's count; 0 for a solver. `may_abstain` and
    `abstains` are those of its lessons.

        Portion("eve", "solver", facts=2, num=60); Portion("eve", "proposer", facts=1, num=20, hops=2)
        Portion("score", "evaluator", facts=0, num=20, kind="rubric")
    """

    dialect: Dialect
    role: Role
    facts: int
    num: int
    kind: LessonKind | None = None
    hops: int = 0
    may_abstain: bool = False
    abstains: bool = False

    @property
    def name(self) -> str:
        """A description for messages: "solver episodes of 2 facts", "rubric episodes"."""
        return f"{self.kind} episodes" if self.kind else f"{self.role} episodes of {self.size}"

    @property
    def size(self) -> str:
        """The size of the role's questions in its own unit: "2 facts", "3 hops"."""
        number, noun = (self.hops, "hop") if self.hops else (self.facts, "fact")
        return f"{number} {noun}{'' if number == 1 else 's'}"

    @property
    def searches(self) -> int:
        """The number of searches the role makes: a solver one per fact, a proposer one per hop after the first.

        A solver that abstains searches for the hidden fact twice.
        """
        return self.hops - 1 if self.hops else self.facts + self.abstains


class Lessons:
    """Draws lessons from one world, each question once."""

    def __init__(self, world: World, index: Index) -> None:
        if world.family.name not in _FAMILIES:
            raise BadInput(
                f"a world of the {world.family.name} family is for evaluation only; lessons need the warmup family",
                hint="generate_world(seed, num_articles, 'warmup')",
            )
        self.world = world
        self._passages = group_by(index.passages(), lambda passage: passage.doc_id)
        self._questions: dict[int, Iterator[GoldQuestion]] = {}
        self._sources = grouped(  # per entity, the articles that state a fact leading to it
            (world.entities[fact.object].id, world.entities[fact.subject].id)
            for fact in world.facts()
            if fact.object is not None
        )

    def draw(self, role: Role, *, facts: int = 0, hops: int = 0, dialect: Dialect = "drzero") -> Lesson:
        """The next lesson: of `facts` facts for a solver, of `hops` hops for a proposer.

        Raises BadInput when the world has no more questions of that size.
        """
        while True:
            gold = self._next_question(facts if role == "solver" else searches_needed(hops))
            if role == "solver":
                return Lesson(f"{role}-{facts}-{gold.id}", role, 0, SolveTask(gold.to_question()), gold, dialect)
            name = f"{role}-{hops}-{gold.id}"
            document = self._own_document(gold) if hops == 1 else self._other_document(gold)
            if document is not None:
                return Lesson(name, role, hops, ProposeTask(name, document, hops), gold, dialect)

    def draw_of(self, portion: Portion) -> Lesson:
        """The next lesson of this portion."""
        while True:
            lesson = self.draw(portion.role, facts=portion.facts, hops=portion.hops, dialect=portion.dialect)
            lesson = structs.replace(lesson, may_abstain=portion.may_abstain)
            if not portion.abstains:
                return lesson
            assert isinstance(lesson.task, SolveTask)
            if (hidden := hide_answers(lesson.task.question)) is not None:
                return structs.replace(lesson, id=f"{lesson.id}-hidden", task=SolveTask(hidden))

    def _next_question(self, facts: int) -> GoldQuestion:
        stream = self._questions.setdefault(facts, self.world.questions(1 << 30, (facts,)))
        try:
            return next(stream)
        except BadInput as error:
            num = len(self.world.entities)
            raise BadInput(
                f"a world of {num} articles has too few questions of {facts} facts for this", hint="--articles 2000"
            ) from error

    def _own_document(self, gold: GoldQuestion) -> Passage | None:
        """The passage with the fact of a one-fact question; None unless it names the subject as the question does."""
        proof, passages = gold.chain[0].evidence, self._passages.get(gold.chain[0].evidence.doc_id, ())
        found = next((one for one in passages if one.start <= proof.start and proof.end <= one.end), None)
        return found if found and says(found.titled_text, gold.chain[0].mention) else None

    def _other_document(self, gold: GoldQuestion) -> Passage | None:
        """A passage of another article that names the chain's first entity as the question does, but not the answer.

        None if there is no such passage.
        """
        first = gold.chain[0]
        sources = [source for source in self._sources.get(first.entity, ()) if source not in gold.gold_ids]
        named = (
            passage
            for source in sources
            for passage in self._passages.get(source, ())
            if says(passage.titled_text, first.mention)
        )
        return next(
            (one for one in named if not any(contains(one.titled_text, answer) for answer in gold.answers)), None
        )


def share_out(num: int, ratio: Sequence[int]) -> list[int]:
    """A number split by a ratio; the largest remainders are rounded up first.

    share_out(10, (4, 3, 2, 1)) == [4, 3, 2, 1]; share_out(2, (1, 1, 1)) == [1, 1, 0]
    """
    shares = [num * weight / sum(ratio) for weight in ratio]
    counts = [int(share) for share in shares]
    by_remainder = sorted(range(len(ratio)), key=lambda place: (counts[place] - shares[place], place))
    for place in by_remainder[: num - sum(counts)]:
        counts[place] += 1
    return counts


def plan_lessons(
    roles: Sequence[Role] | None,
    num_episodes: int,
    fact_ratio: Sequence[int],
    dialects: Sequence[Dialect] = ("drzero",),
    lesson_ratio: Sequence[int] = LESSON_RATIO,
    hop_ratio: Sequence[int] = HOP_RATIO,
    *,
    abstention: float = 0.0,
) -> list[Portion]:
    """The number of episodes per dialect, role and number of facts; equal shares for dialects and for their roles.

    Each dialect takes those of the `roles` that it has; None means all roles. A solver's share is split by
    `fact_ratio` (1, 2, ... facts), a proposer's by `hop_ratio` (1, 2, ... hops in Dr. Zero's count), and the share of
    score by `lesson_ratio` into reports, rubrics and assessments. `abstention` is the share of a solver's episodes that
    abstain, of as many facts as its others, but at most two.

        plan_lessons(("solver",), 3, (2, 1)) == [Portion("drzero", "solver", 1, 2), Portion("drzero", "solver", 2, 1)]
    """
    _check_names("dialects", dialects, DIALECTS)
    casts = _cast(roles, dialects)
    if num_episodes < len(dialects):
        of_each = " of each dialect" if len(dialects) > 1 else ""
        raise BadInput(f"there must be at least 1 episode{of_each}, not {num_episodes}")
    _check_ratio("facts", fact_ratio, MAX_FACTS)
    _check_ratio("hops", hop_ratio, MAX_FACTS + 1)  # the first hop is the starting point and needs no search
    if len(lesson_ratio) != len(LESSON_KINDS) or min(lesson_ratio) < 0:
        raise BadInput(
            f"lessons must be {len(LESSON_KINDS)} weights of {', '.join(LESSON_KINDS)}, such as 5,2,3, "
            f"not {list(lesson_ratio)}"
        )
    plan: list[Portion] = []
    for (dialect, cast), num in zip(casts.items(), share_out(num_episodes, [1] * len(dialects)), strict=True):
        if dialect == "score":
            plan += _plan_kinds(cast, num, lesson_ratio)
            continue
        for role, num_of_role in zip(cast, share_out(num, [1] * len(cast)), strict=True):
            if role == "proposer":
                plan += _plan_role(dialect, role, num_of_role, hop_ratio)
                continue
            num_hidden = round(abstention * num_of_role)
            few = fact_ratio[:_MOST_HIDDEN_FACTS]
            hidden_ratio = few if any(few) else (0,) * (_MOST_HIDDEN_FACTS - 1) + (1,)  # all others have more facts
            plan += _plan_role(dialect, role, num_of_role - num_hidden, fact_ratio, may_abstain=abstention > 0)
            plan += _plan_role(dialect, role, num_hidden, hidden_ratio, may_abstain=True, abstains=True)
    return plan


def _check_names(what: str, names: Sequence[str], known: Sequence[str]) -> None:
    if not names or not set(names) <= set(known) or len(set(names)) < len(names):
        said = ", ".join(names) or "none"
        raise BadInput(f"{what} must be some of {', '.join(known)}, each at most once, not {said}")


def _check_ratio(unit: str, ratio: Sequence[int], most: int) -> None:
    if not 1 <= len(ratio) <= most or min(ratio) < 0 or not sum(ratio):
        raise BadInput(f"{unit} must be weights for 1 to {most} {unit}, such as 4,3,2,1, not {list(ratio)}")


def _plan_role(
    dialect: Dialect, role: Role, num: int, ratio: Sequence[int], *, may_abstain: bool = False, abstains: bool = False
) -> list[Portion]:
    """The portions of a role, split by its ratio in its own unit: hops for a proposer, facts for a solver."""
    return [
        Portion(dialect, role, searches_needed(number), count, hops=number)
        if role == "proposer"
        else Portion(dialect, role, number, count, may_abstain=may_abstain, abstains=abstains)
        for number, count in enumerate(share_out(num, ratio), start=1)
        if count
    ]


def _plan_kinds(cast: Sequence[Role], num: int, lesson_ratio: Sequence[int]) -> list[Portion]:
    ratio = [weight if role_of(kind) in cast else 0 for kind, weight in zip(LESSON_KINDS, lesson_ratio, strict=True)]
    if not any(ratio):
        raise BadInput(
            f"lessons {','.join(map(str, lesson_ratio))} give weight 0 to every kind of lesson of {' and '.join(cast)}"
        )
    return [
        Portion("score", role_of(kind), 0, count, kind)
        for kind, count in zip(LESSON_KINDS, share_out(num, ratio), strict=True)
        if count
    ]


def _cast(roles: Sequence[Role] | None, dialects: Sequence[Dialect]) -> dict[Dialect, tuple[Role, ...]]:
    """The roles to teach in each dialect.

    _cast(None, ("evalact", "drzero")) == {"evalact": ("solver",), "drzero": ("solver", "proposer")}
    """
    if roles is None:
        return {dialect: roles_of(dialect) for dialect in dialects}
    _check_names("roles", roles, ROLES)
    casts = {dialect: tuple(role for role in roles if role in roles_of(dialect)) for dialect in dialects}
    left_out = [role for role in roles if not any(role in cast for cast in casts.values())]
    idle = [dialect for dialect, cast in casts.items() if not cast]
    if left_out or idle:
        role, dialect = (left_out or roles)[0], (idle or dialects)[0]
        own = roles_of(dialect)
        raise BadInput(f"{dialect} has no {role} to teach, only {' and '.join(own)}", hint=f"--roles {','.join(own)}")
    return casts
