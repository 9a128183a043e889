"""What a warm-up says of every dialect it taught: held-out tasks answered, in the right format, and matched."""

import asyncio

from hypothesis import given as given_
from hypothesis import strategies as st

import tiny
from quaere.chat.renderer import Renderer
from quaere.records import Episode, Question, SolveTask
from quaere.rollout.episode import Limits
from quaere.rollout.policy import TokenPolicy
from quaere.warmup.dialect_check import Learnt, describe_learnt, open_spoken, play_held_out
from quaere.warmup.imitation import count_steps, split_held_out, spread_evenly
from scripted import ScriptedSampler

ANSWER = "<answer>Venn</answer>"
SPOKEN = open_spoken(("drzero", "evalrar"), "brief")
PROTOCOLS = {one.name: protocol for protocol, one in SPOKEN.items()}
SOLVER, TAGGED = PROTOCOLS["drzero solver"], PROTOCOLS["evalrar solver"]


def episodes(*protocols):
    """Demonstrations of tasks, whose own turns do not matter."""
    for number, protocol in enumerate(protocols):
        task = SolveTask(Question(f"q{number}", "Who built Halm?", ("Venn",)))
        yield Episode(task.id, task, protocol, "oracle", 0, (), (), None, "answered")


def play(scripts, given, limits=lambda dialect: Limits(max_turns=2)):
    tokenizer = tiny.tokenizer()
    policy = TokenPolicy(ScriptedSampler(tokenizer, scripts), Renderer(tokenizer))
    return asyncio.run(play_held_out(policy, list(given), tiny.ListSearcher(), SPOKEN, limits))


def test_every_dialect_and_role_is_counted_by_itself():
    wrong = "<answer>Brod</answer>"
    scripts = {"q0": [ANSWER], "q1": [wrong], "q2": ["who?", "nothing"], "q3": ["who?", ANSWER]}
    learnt = play(scripts, episodes(SOLVER, TAGGED, TAGGED, TAGGED))
    assert learnt == {
        "drzero solver": Learnt(1, num_answered=1, num_sound=1, num_matched=1),
        "drzero proposer": Learnt(),
        "evalrar solver": Learnt(3, num_answered=2, num_sound=1, num_matched=1),
    }


def test_of_score_the_writer_is_checked_beside_every_role_of_the_others():
    for dialects in (("score", "drzero"), ("drzero", "score")):
        names = {one.name for one in open_spoken(dialects, "brief").values()}
        assert names == {"score solver", "drzero solver", "drzero proposer"}


def test_limits_are_those_of_the_dialect():
    scripts = {"q0": ["who?", ANSWER]}
    learnt = play(scripts, episodes(TAGGED), lambda dialect: Limits(max_turns=1 if dialect == "evalrar" else 2))
    assert learnt["evalrar solver"] == Learnt(1)
    assert [one.share for one in (Learnt(), Learnt(4, num_answered=3, num_sound=1))] == [0.0, 0.25]


def test_a_weak_dialect_is_named():
    learnt = {"drzero solver": Learnt(10, 9, 8, 3), "evalact solver": Learnt(10, 6, 6, 1), "evalrar solver": Learnt()}
    *said, weak = describe_learnt(learnt)
    assert said == [
        "held-out tasks of drzero solver: of 10, 9 answered, 8 in the right format throughout, 3 matched",
        "held-out tasks of evalact solver: of 10, 6 answered, 6 in the right format throughout, 1 matched",
        "held-out tasks of evalrar solver: none",
    ]
    assert weak.startswith("weak: evalact solver; teach it longer")
    assert len(describe_learnt({"drzero solver": Learnt(4, 4, 3)})) == 1


def test_a_dialect_that_is_well_behind_the_best_is_named_though_most_of_it_is_sound():
    assert describe_learnt({"eve solver": Learnt(20, 20, 20), "drzero solver": Learnt(20, 20, 15)})[-1].startswith(
        "weak: drzero"
    )
    assert len(describe_learnt({"eve solver": Learnt(20, 18, 18), "drzero solver": Learnt(20, 18, 15)})) == 2


def test_what_is_held_out_is_a_matter_of_places_and_seed():
    given = list(episodes(*[SOLVER] * 20))
    held_out, learnt = split_held_out(given, 7)
    assert len(held_out) == 2 and sorted(one.id for one in [*held_out, *learnt]) == sorted(one.id for one in given)
    assert split_held_out(given, 7)[0] == held_out != split_held_out(given, 8)[0]


def test_of_few_episodes_one_is_held_out():
    held_out = {num: len(split_held_out(list(episodes(*[SOLVER] * num)), 0)[0]) for num in (2, 5, 14, 16, 40)}
    assert held_out == {2: 1, 5: 1, 14: 1, 16: 2, 40: 4}
    assert [count_steps(num, epochs=2, batch=4) for num in (2, 5, 14)] == [2, 2, 8]  # of 1, 4 and 13 episodes


@given_(st.lists(st.sampled_from([SOLVER, TAGGED]), min_size=1, max_size=80), st.integers(0, 99), st.data())
def test_every_stretch_has_each_protocol_by_its_share(protocols, seed, data):
    """Less than one off at either end of the stretch; and nothing is lost."""
    given = list(episodes(*protocols))
    mixed = spread_evenly(given, seed)
    assert sorted(one.id for one in mixed) == sorted(one.id for one in given)
    first = data.draw(st.integers(0, len(mixed) - 1))
    last = data.draw(st.integers(first + 1, len(mixed)))
    stretch = [one.protocol for one in mixed[first:last]]
    for protocol in set(protocols):
        share = len(stretch) * protocols.count(protocol) / len(protocols)
        assert abs(stretch.count(protocol) - share) < 2


def test_the_held_out_have_every_protocol_by_its_share():
    given = list(episodes(*[SOLVER] * 100, *[TAGGED] * 100))
    for seed in range(20):
        held_out = [one.protocol for one in split_held_out(given, seed)[0]]
        assert len(held_out) == 20 and 9 <= held_out.count(TAGGED) <= 11
