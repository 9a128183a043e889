"""Demonstrations by a teacher: a larger model behind an endpoint.

The teacher plays the same tasks as the oracle, with the full prompts. An episode is kept if it followed the protocol,
its answer is right, and the dialect's further requirements (evidence, evaluations, notes) hold. The episode is then
replayed as tokens of the model to be taught: the teacher's turns, cut where a policy's turn would have ended, with the
search results that the teacher got.
"""

from collections.abc import Callable, Iterator, Sequence

from quaere.chat.protocol import PromptStyle
from quaere.chat.renderer import Renderer
from quaere.errors import BadInput, SamplingFailed
from quaere.records import Episode, Hit, SearchResult, Turn
from quaere.rollout.episode import Job, Limits, run_many
from quaere.rollout.policy import Policy
from quaere.search.index import Index
from quaere.search.searcher import LocalSearcher
from quaere.warmup.lessons import Lesson, Lessons, LessonSettings
from quaere.warmup.oracle import allow_turns, refuse_few_turns
from quaere.warmup.scripted_episodes import Attempt, Demonstrations, demonstrate, find_fault, judge, open_protocol
from quaere.worlds import World


async def play_teacher(
    policy: Policy,
    world: World,
    index: Index,
    renderer: Renderer,
    settings: LessonSettings,
    *,
    on_episode: Callable[[Episode], None] = lambda episode: None,
) -> Demonstrations:
    """Let the teacher play `num_episodes` tasks; keep the good episodes, with prompts in the style of `settings`.

    policy = open_policy("openai:m@http://localhost:8001/v1")
    played = await play_teacher(policy, world, index, renderer, LessonSettings(num_episodes=100))
    """
    if "score" in settings.dialects:
        raise BadInput(
            "a teacher cannot demonstrate score: only the oracle knows the right scores of a report",
            hint="leave --teacher out for score",
        )
    limits, turn_limits, plan = settings.limits, settings.turn_limits, settings.plan()
    refuse_few_turns(plan, limits, turn_limits)
    lessons, searcher, played = Lessons(world, index), LocalSearcher(index), Demonstrations()
    drawn = [lessons.draw_of(part) for part in plan for _ in range(part.num)]
    allowed = [allow_turns(limits, turn_limits, lesson.dialect) for lesson in drawn]
    jobs = [
        Job(
            open_protocol(lesson.role, "full", lesson.dialect, abstention=lesson.may_abstain),
            lesson.task,
            lesson.id,
            most,
        )
        for lesson, most in zip(drawn, allowed, strict=True)
    ]
    shown = run_many(policy, jobs, searcher, limits, seed=settings.seed, concurrency=8)
    num_failed, waiting = 0, zip(drawn, allowed, strict=True)
    try:
        async for episode in shown:
            lesson, most = next(waiting)
            num_failed += episode.end == "failed"
            fault = find_fault(episode, lesson.role)
            if not fault:
                episode, fault = await replay(episode, lesson, renderer, settings.style, most)
            played.take(episode, fault)
            on_episode(episode)
    finally:
        await searcher.close()
    if num_failed == len(jobs):
        raise SamplingFailed(next(iter(played.dropped)))
    return played


async def replay(
    episode: Episode, lesson: Lesson, renderer: Renderer, style: PromptStyle, limits: Limits
) -> tuple[Episode, str]:
    """Replay a teacher's episode as tokens; returns it and why it should not be learnt from ("" if it is good)."""
    protocol = open_protocol(lesson.role, style, lesson.dialect, abstention=lesson.may_abstain)
    texts = [cut_turn(turn.text, protocol.stop) for turn in episode.turns]

    def write(turns: Sequence[Turn], news: str) -> str:
        if len(turns) == len(texts):  # the cut removed the answer from the teacher's last turn
            raise SamplingFailed("the replay goes on after the teacher's last turn")
        return texts[len(turns)]

    attempt = Attempt(episode.id, episode.task, write, protocol)
    played = await demonstrate(attempt, _Recorded(episode.turns), renderer, limits, name=episode.model)
    fault = judge(played, lesson.role, lesson.dialect)
    if not fault and [turn.action for turn in played.turns] != [turn.action for turn in episode.turns]:
        fault = "a turn means something else where a policy's would have ended"
    return played, fault


def cut_turn(text: str, stop: Sequence[str]) -> str:
    """The turn up to its first stop string, where a policy would have been stopped.

    cut_turn("<answer>Venn</answer> Anything else?", ("</answer>",)) == "<answer>Venn</answer>"
    """
    ends = [text.find(string) + len(string) for string in stop if string in text]
    return text[: min(ends, default=None)].strip()


class _Recorded:
    """A searcher that returns the results of an earlier episode again, in order."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._results: Iterator[tuple[SearchResult, ...]] = iter([turn.results for turn in turns if turn.results])

    async def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        return [list(result.hits) for result in next(self._results, ())][: len(queries)]

    async def close(self) -> None:
        """Does nothing: no resource is held."""
