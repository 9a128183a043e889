"""It learns to abstain: to answer where a search shows the answer, and to say so where the answer is hidden.

The task is that of `lookup.py`, but the builder of every second bridge is hidden from the search. Taught the format
only, the pupil abstains at random. Paid for abstaining, it abstains from the hidden questions and from no others; not
paid, it stops to abstain.
"""

import pytest
from lookup import ANSWER, SEARCH, Play, Pupil, Terse, Town

from building import play_once
from quaere.dialects.roles import Solver, let_abstain, measure_abstention
from quaere.objectives.policy_gradient import grpo
from quaere.records import SolveTask
from quaere.rewards.abstention import ABSTENTION, AbstentionRewards, hide_answers

SEEDS = range(6)


def make_plays(draw, num_questions, per_question):
    """Plays of which every second question's answer is hidden."""
    plays = []
    for number in range(num_questions):
        town = Town(draw)
        for copy in range(per_question):
            play = Play(number, copy, town)
            if number % 2:
                hidden = hide_answers(play.task.question)
                play.name, play.task = f"{play.name}-hidden", SolveTask(hidden)
            plays.append(play)
    return plays


def random_script(draw, town):
    """A well-formed episode that searches for the bridge and answers with its builder, or abstains."""
    builder, _ = town.people[town.bridge]
    return [SEARCH.format(town.bridge), ANSWER.format(draw.choice([builder, ABSTENTION]))]


class Doubter(Pupil):
    """A pupil that may abstain, for a reward."""

    words = (ABSTENTION,)
    make_plays = staticmethod(make_plays)
    script = staticmethod(random_script)

    def __init__(self, seed, rewards):
        super().__init__(seed)
        self.protocol = Terse(abstention=True)
        self.solver = let_abstain(Solver(self.protocol), rewards)

    def reward_of(self, episode):
        return self.solver.pay(episode)["reward/total"]

    def measure(self, episodes, rewards):
        measured = measure_abstention(episodes)
        right = [
            self.solver.pay(episode)["answer/exact_match"] for episode in episodes if not episode.task.question.hidden
        ]
        return [measured["abstention/answerable"], measured["abstention/unanswerable"], sum(right) / len(right)]

    def advantages_of(self, how, episodes, rewards):
        return grpo(rewards, [int(episode.task.id[1:].split("-")[0]) for episode in episodes]).values


def learn(tmp_path, seed, rewards, num_steps):
    """Shares of the last five steps: abstained where there is an answer, where there is none, and right answers."""

    async def play():
        pupil = Doubter(seed, rewards)
        await pupil.learn_format()
        return await pupil.reinforce(num_steps, "grpo")

    history = play_once(tmp_path / "played", f"doubter-{rewards}-{seed}", play)
    return [sum(step[part] for step in history[-5:]) / 5 for part in range(3)]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS[1:])])
def test_it_abstains_where_the_answer_is_hidden(tmp_path, seed):
    needless, refused, right = learn(tmp_path, seed, AbstentionRewards(), 30)
    # Six seeds: after 25 steps all 1.0, 0.0 to 0.16 and 0.62 to 1.0; before, about 0.3, 0.5 and 0.4.
    assert refused > 0.85
    assert needless < 0.3
    assert right > 0.5


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS[1:])])
def test_it_stops_to_abstain_if_that_is_not_paid(tmp_path, seed):
    needless, refused, right = learn(tmp_path, seed, AbstentionRewards(right=0.0), 25)
    # Six seeds, the last five steps: at most 0.03 and 0.1, at least 0.92: it answers, and did not just collapse.
    assert needless < 0.2 and refused < 0.2
    assert right > 0.8
