"""Episodes that a failed search has spoiled are played again, with seeds of their own."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

import tiny
from properties import examples
from quaere.chat.renderer import Renderer
from quaere.dialects.tool_call import ToolCallSolver
from quaere.errors import SearchFailed
from quaere.records import Question, SolveTask
from quaere.rollout.episode import Job, Limits
from quaere.rollout.policy import TokenPolicy, derive_seed
from quaere.training.actors import Actors
from quaere.training.settings import RunConfig, SearchSettings
from scripted import ScriptedSampler

NUM_JOBS, REPLAYS, SEED = 4, 3, 7
SEARCH = '<tool_call>{{"name": "search", "arguments": {{"query_list": ["{}"]}}}}</tool_call>'


class Alone(Actors):
    """Has one role and no weights."""

    def become(self, role):
        pass


class Failing(tiny.ListSearcher):
    """Fails the query "n" so many times as `failures[n]` says, then finds what it always does."""

    def __init__(self, failures):
        super().__init__()
        self.left = list(failures)

    async def search(self, queries, topk):
        number = int(queries[0])
        self.left[number] -= 1
        if self.left[number] >= 0:
            raise SearchFailed("down", kind="unreachable")
        return await super().search(queries, topk)


def play(failures):
    """The seeds of all tries, by the number of the job: what was spoiled in order, then what stayed."""
    names = [f"e{number}~{replay}".removesuffix("~0") for number in range(NUM_JOBS) for replay in range(REPLAYS + 1)]
    scripts = {name: [SEARCH.format(name[1]), "<answer>Venn</answer>"] for name in names}
    tokenizer = tiny.tokenizer()
    policy = TokenPolicy(ScriptedSampler(tokenizer, scripts), Renderer(tokenizer))
    actors = Alone(policy, {}, RunConfig(search=SearchSettings(replays=REPLAYS, wait_s=0.0)), shared=False)
    jobs = [
        Job(ToolCallSolver(), SolveTask(Question("q", "Who?", ("Venn",))), f"e{number}") for number in range(NUM_JOBS)
    ]
    played = asyncio.run(actors.play("solver", jobs, Failing(failures), Limits(), seed=SEED))
    assert not any(episode.search_failed for episode in played.episodes)
    tries = played.spoiled + played.episodes
    return [[one.seed for one in tries if one.id.split("~")[0] == f"e{number}"] for number in range(NUM_JOBS)]


def test_a_lone_replay_repeats_no_other_attempt():
    alone = play([0, 0, 0, 1])
    assert [seeds[0] for seeds in alone] == [derive_seed(SEED, number) for number in range(NUM_JOBS)]
    assert alone[3][1] not in {seeds[0] for seeds in alone}


@settings(max_examples=examples(15), deadline=None)
@given(st.lists(st.integers(0, REPLAYS), min_size=NUM_JOBS, max_size=NUM_JOBS))
def test_seeds_differ_and_depend_on_nobody_else(failures):
    seeds = play(failures)
    assert [len(own) for own in seeds] == [number + 1 for number in failures]
    assert len({seed for own in seeds for seed in own}) == sum(failures) + NUM_JOBS
    everyone = play([REPLAYS] * NUM_JOBS)
    assert seeds == [own[: number + 1] for own, number in zip(everyone, failures, strict=True)]
