"""Two dialects in one warm-up: both are learnt, the longer one too.

Over six seeds (0 to 5) every held-out task of either dialect was answered after these steps, as `teach` takes them.
With a third less of them no seed but one learnt the longer dialect, alone or beside the other: what it lacks is steps.
"""

import asyncio
import random

import pytest

import tiny
import village
import weighing
from quaere.chat.renderer import Renderer
from quaere.rollout.episode import Limits, run_episode
from quaere.rollout.policy import TokenPolicy, open_policy
from quaere.search.index import open_index
from quaere.search.searcher import LocalSearcher
from quaere.training.learner import Learner
from quaere.warmup.dialect_check import open_spoken, play_held_out
from quaere.warmup.imitation import imitation, teach
from scripted import ScriptedSampler

LIMITS = Limits(**weighing.LIMITS)
OF_EACH = 107  # of which teach holds out a tenth


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return open_index(village.write_index(tmp_path_factory.mktemp("village")))


async def demonstrate(index, name, count, seed, draw_lesson):
    """Episodes of a dialect about bridges by chance."""
    draw, renderer, searcher = random.Random(f"{name} {seed}"), Renderer(weighing.tokenizer()), LocalSearcher(index)
    played = []
    for number in range(count):
        protocol, task, turns = draw_lesson(draw, draw.randrange(len(village.BRIDGES)))
        script = {f"{name}{number}": [renderer.write_turn(turn) for turn in turns]}
        policy = TokenPolicy(ScriptedSampler(weighing.tokenizer(), script), renderer)
        played.append(await run_episode(policy, protocol, searcher, task, LIMITS, episode_id=f"{name}{number}"))
    await searcher.close()
    return played


def evaluating(index, count, seed):
    lesson = lambda draw, number: weighing.evaluating_lesson(draw, number, False)  # noqa: E731
    return asyncio.run(demonstrate(index, "evalact", count, seed, lesson))


def tagged(index, count, seed):
    lesson = lambda draw, number: weighing.tagged_lesson(draw, number, "search-r1")  # noqa: E731
    return asyncio.run(demonstrate(index, "search-r1", count, seed, lesson))


def teach_model(folder, episodes, seed, epochs=2):
    tokenizer = weighing.tokenizer()
    shape = {"vocab_size": len(tokenizer), "num_hidden_layers": 2, "tie_word_embeddings": False, "scale": 1}
    model = tiny.model("llama", seed=seed, **shape)
    teach(Learner(model, imitation(4e-3)), episodes, epochs=epochs, batch=8, seed=seed)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


async def shares(folder, index, episodes):
    policy, searcher = open_policy(str(folder), device="cpu"), LocalSearcher(index)
    spoken = open_spoken(("evalact", "search-r1"), "brief")
    try:
        learnt = await play_held_out(policy, episodes, searcher, spoken, lambda dialect: LIMITS)
    finally:
        await policy.stop()
        await searcher.close()
    return {name: one.share for name, one in learnt.items()}


def test_both_dialects_are_learnt_and_one_that_was_not_taught_is_not(index, tmp_path):
    seed = 0
    long, short = evaluating(index, OF_EACH, seed), tagged(index, OF_EACH, seed)
    unseen = [*evaluating(index, 12, seed + 1000), *tagged(index, 12, seed + 1000)]
    both = teach_model(tmp_path / "both", [*long, *short], seed)
    assert min(asyncio.run(shares(both, index, unseen)).values()) >= 0.75
    alone = teach_model(tmp_path / "alone", short, seed, epochs=4)
    control = asyncio.run(shares(alone, index, unseen))
    assert control["search-r1 solver"] >= 0.75 and control["evalact solver"] <= 0.25
