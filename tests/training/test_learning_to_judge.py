"""It learns to judge: scores of searches by a proper scoring rule, queries by information gain, without any reward.

The tasks are those of `books.py` (a page that says "built" is good, one that says "mended" is not) and of `lookup.py`
(the builder is found with the bridge, not with the river). What dozens of updates lead to is slow to see; the suite
looks at the first one.
"""

import asyncio
import copy
from types import SimpleNamespace

import pytest
from books import SCORED, Reader, make_plays, random_script
from lookup import Pupil, run_all
from safetensors.torch import load_model, save_model

from building import teach_once
from quaere.dialects.evalact_reward import EvaluationSettings, find_pairs, judge_scores, judge_searches
from quaere.dialects.registry import open_solver
from quaere.objectives.policy_gradient import grpo
from quaere.records import Search
from quaere.rewards.self_evaluation import auroc
from quaere.rollout.policy import TokenPolicy
from quaere.training.batches import Sample, make_sample
from quaere.training.information_gain import measure_gains
from quaere.training.learner import Learner
from quaere.training.rollouts import learn, shuffled_credits
from quaere.training.settings import LearnerSettings
from quaere.training.solver_phase import SolverConfig, give_credit
from quaere.warmup.documents.judged_searches import evaluations, mask_others
from scripted import ScriptedSampler

SEEDS = range(6)
NUM_BATCHES, NUM_STEPS = 4, 24
JUDGE = open_solver("evalact", style="brief", settings=EvaluationSettings(pcar=False, brier=1.0))
each_seed = pytest.mark.parametrize("seed", SEEDS)


def flat(episodes):
    """No advantage for any of them."""
    return grpo([0.0] * len(episodes), [0] * len(episodes))


def mean_score(model, episodes, chosen):
    """The mean log-prob of the tokens of the chosen turns, by episode number and turn."""
    samples = [make_sample(episode, 1.0) for episode in episodes]
    values = []
    for number, scored in enumerate(Learner(model, LearnerSettings()).score(samples)):
        own = iter(scored)
        likely = [next(own) if flag else 0.0 for flag in episodes[number].loss_mask]
        for turn in (episodes[number].turns[place] for at, place in chosen if at == number):
            values.append(sum(likely[turn.start : turn.start + turn.num_tokens]))
    return sum(values) / len(values)


# -------------------------------------------------------------------------------------------------- the scoring rule


async def move_scores(seed):
    """By how much likelier true scores become than false ones in an update by the rule, and by its control."""
    reader = Reader(seed, "evalact")
    episodes = await reader.play_at_random(96)
    turns = {True: [], False: []}
    for number, episode in enumerate(episodes):
        good = judge_searches(episode)
        for pair in find_pairs(episode):
            if pair.score != 5:
                turns[(pair.score > 5) == good[pair.turn]].append((number, pair.turn + 1))

    def true_over_false(model):
        return mean_score(model, episodes, turns[True]) - mean_score(model, episodes, turns[False])

    moved = []
    for spoil in (lambda credits: credits, lambda credits: shuffled_credits(credits, 0)):
        step = reader.step(copy.deepcopy(reader.model))
        learn(step, episodes, flat(episodes), None, spoil(JUDGE.credit(episodes)))
        moved.append(true_over_false(step.learner.model) - true_over_false(reader.model))
    return moved


async def test_an_update_by_the_scoring_rule_makes_true_scores_likelier():
    rule, control = await move_scores(0)
    # Six seeds moved by 0.32 to 0.96, and by 0.22 to 1.10 more than their controls.
    assert rule > 0.2
    assert rule > control + 0.1


def score_places(reader, episode):
    """The place of the digit of each score among the episode's tokens."""
    (before,) = reader.tokenizer.encode(SCORED[1], add_special_tokens=False)
    return [place + 1 for place, token in enumerate(episode.token_ids) if token == before]


def measure_judging(reader, episodes):
    """AUROC of how much likelier a 9 is to the reader than a 1, over all evaluations."""
    high, low = (reader.tokenizer.encode(digit, add_special_tokens=False)[0] for digit in "91")
    samples, labels = [], []
    for episode in episodes:
        for place, good in zip(score_places(reader, episode), judge_searches(episode).values(), strict=True):
            ids = episode.token_ids[:place]
            zeros = (0.0,) * (place + 1)
            samples += [Sample((*ids, digit), (False,) * place + (True,), zeros, zeros) for digit in (high, low)]
            labels.append(good)
    scored = [value for (value,) in Learner(reader.model, LearnerSettings()).score(samples)]
    return auroc([nine - one for nine, one in zip(scored[::2], scored[1::2], strict=True)], labels)


def true_script(draw, library, shuffle):
    """A random script whose scores are 9 for the page with the builder and 1 for the other; or either by chance."""
    turns = random_script(draw, library, "evalact")
    for place in range(1, len(turns) - 1, 2):
        said, _, _ = turns[place].partition(SCORED[1])
        score = draw.choice([1, 9]) if shuffle else 9 if said.endswith(library.builder) else 1
        turns[place] = f"{said}{SCORED[1]}{score}{SCORED[2]}"
    return turns


async def imitate_scores(reader, *, shuffle=False):
    """Imitate true scores of otherwise random episodes, with loss on evaluations alone."""
    learner, batches = Learner(reader.model, LearnerSettings(learning_rate=3e-3, weight_decay=0.0)), []
    for number in range(NUM_BATCHES):
        plays = make_plays(reader.draw, 64, 1)
        scripts = {play.name: true_script(reader.draw, play.library, shuffle) for play in plays}
        policy = TokenPolicy(ScriptedSampler(reader.tokenizer, scripts), reader.renderer)
        batches.append(
            [make_sample(mask_others(one, evaluations(one)), 1.0) for one in await reader.play(policy, plays, number)]
        )
    for step in range(NUM_STEPS):
        learner.step(batches[step % NUM_BATCHES])


async def learn_by_rule(reader, *, shuffle=False):
    """Make updates by the scoring rule alone, on episodes with random scores."""
    at = reader.step(reader.model, rate=3e-3)
    batches = [await reader.play_at_random(64, number) for number in range(NUM_BATCHES)]
    for step in range(NUM_STEPS):
        episodes = batches[step % NUM_BATCHES]
        credits = JUDGE.credit(episodes)
        learn(at, episodes, flat(episodes), None, shuffled_credits(credits, step) if shuffle else credits)


async def learn_to_judge(teach, seed, *, shuffle=False):
    """AUROC of the scores of unseen episodes before and after."""
    reader = Reader(seed, "evalact")
    unseen = await reader.play_at_random(96)
    before = measure_judging(reader, unseen)
    await teach(reader, shuffle=shuffle)
    return before, measure_judging(reader, unseen)


@pytest.mark.slow
@each_seed
async def test_true_scores_alone_teach_to_judge(seed):
    before, after = await learn_to_judge(imitate_scores, seed)
    _, control = await learn_to_judge(imitate_scores, seed, shuffle=True)
    # Six seeds: from 0.27 to 0.67 up to 1.0; with scores of other searches 0.39 to 0.71.
    assert after > 0.95 > before
    assert control < 0.85


@pytest.mark.slow
@each_seed
async def test_the_scoring_rule_alone_teaches_to_judge(seed):
    before, after = await learn_to_judge(learn_by_rule, seed)
    assert after > 0.95 > before  # six seeds: 1.0


@pytest.mark.slow
@each_seed
async def test_the_control_of_the_rule_does_not_pay_for_the_truth(seed):
    """A few random updates move so small a model anywhere, so that what is paid for is looked at."""
    episodes = await Reader(seed, "evalact").play_at_random(256)

    def paid_for_truth(credits):
        found = {True: [], False: []}
        for episode, own in zip(episodes, credits, strict=True):
            for one, credit in zip(judge_scores(episode), own, strict=True):
                found[one.good == (one.score > 5)].append(credit.value)
        return sum(found[True]) / len(found[True]) - sum(found[False]) / len(found[False])

    credits = JUDGE.credit(episodes)
    assert paid_for_truth(credits) > 0.3
    assert abs(paid_for_truth(shuffled_credits(credits, seed))) < 0.15


# -------------------------------------------------------------------------------------------------- information gain


def taught_pupil(folder, seed):
    """A pupil that was taught the format and nothing else, as in `test_learning.py`."""

    def teach(folder):
        pupil = Pupil(seed)
        asyncio.run(pupil.learn_format())
        save_model(pupil.model, folder / "weights")

    teach_once(folder / "pupil", f"pupil-{seed}", teach)
    pupil = Pupil(seed)
    load_model(pupil.model, folder / "pupil" / "weights")
    return pupil


def gain_step(pupil, model, rate=2e-3):
    """A step of the solver's phase, as far as it is asked for."""
    learner = Learner(model, LearnerSettings(learning_rate=rate, weight_decay=0.0, aggregation="token_mean"))
    stage = SimpleNamespace(actors=SimpleNamespace(policy=SimpleNamespace(renderer=pupil.renderer)))
    return SimpleNamespace(learner=learner, metrics={}, measures_update=False, num_traced=0), stage


def asks_right(episode, play):
    first = episode.turns[0].action
    return isinstance(first, Search) and first.queries[0].strip() == play.town.bridge


async def move_queries(pupil):
    """The mean gain of right queries over that of wrong ones, and how an update by it and its control moves them."""
    plays = pupil.make_plays(pupil.draw, 12, 8)
    scripts = {play.name: pupil.script(pupil.draw, play.town) for play in plays}
    policy = TokenPolicy(ScriptedSampler(pupil.tokenizer, scripts), pupil.renderer)
    episodes = await run_all(policy, plays, 0, pupil.protocol)
    rights = [asks_right(episode, play) for episode, play in zip(episodes, plays, strict=True)]
    turns = {kind: [(number, 0) for number, right in enumerate(rights) if right is kind] for kind in (True, False)}
    protocol, learner = open_solver("tool-call").protocol, Learner(copy.deepcopy(pupil.model), LearnerSettings())
    gains = measure_gains(learner, pupil.renderer, protocol, episodes)
    means = {kind: sum(gains[number][0] for number, _ in some) / len(some) for kind, some in turns.items()}

    def right_over_wrong(model):
        return mean_score(model, episodes, turns[True]) - mean_score(model, episodes, turns[False])

    moved, config = [], SolverConfig(information_gain=1.0)
    for spoil in (lambda credits: credits, lambda credits: shuffled_credits(credits, 0)):
        step, stage = gain_step(pupil, copy.deepcopy(pupil.model))
        credits = spoil(give_credit(step, stage, episodes, open_solver("tool-call"), config))
        learn(step, episodes, flat(episodes), None, credits)
        moved.append(right_over_wrong(step.learner.model) - right_over_wrong(pupil.model))
    return means[True] - means[False], *moved


async def test_an_update_by_information_gain_makes_the_query_likelier_that_finds_the_answer(tmp_path):
    told, gained, control = await asyncio.to_thread(lambda: asyncio.run(move_queries(taught_pupil(tmp_path, 0))))
    # Six seeds: the gain is 1.6 to 2.1 higher; updates moved by 1.2 to 1.7, by 0.3 to 2.1 more than their controls.
    assert told > 1
    assert gained > 0.8
    assert gained > control + 0.2
