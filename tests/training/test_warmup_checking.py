"""What a warm-up says of every dialect it taught: the share of held-out tasks that are answered."""

import asyncio

import tiny
from quaere.chat.renderer import Renderer
from quaere.records import Episode, Question, SolveTask
from quaere.rollout.episode import Limits
from quaere.rollout.policy import TokenPolicy
from quaere.warmup.dialect_check import Answered, describe_answered, open_spoken, play_held_out
from quaere.warmup.imitation import split_held_out
from scripted import ScriptedSampler

ANSWER = "<answer>Venn</answer>"
SPOKEN = open_spoken(("drzero", "evalrar"), "brief")
PROTOCOLS = {one.name: protocol for protocol, one in SPOKEN.items()}
SOLVER, TAGGED = PROTOCOLS["drzero solver"], PROTOCOLS["evalrar solver"]


def episodes(*protocols):
    """Demonstrations of tasks, whose own turns do not matter."""
    for number, protocol in enumerate(protocols):
        task = SolveTask(Question(f"q{number}", "Who built Halm?"))
        yield Episode(task.id, task, protocol, "oracle", 0, (), (), None, "answered")


def play(scripts, given, limits=lambda dialect: Limits(max_turns=2)):
    tokenizer = tiny.tokenizer()
    policy = TokenPolicy(ScriptedSampler(tokenizer, scripts), Renderer(tokenizer))
    return asyncio.run(play_held_out(policy, list(given), tiny.ListSearcher(), SPOKEN, limits))


def test_every_dialect_and_role_is_counted_by_itself():
    scripts = {"q0": [ANSWER], "q1": [ANSWER], "q2": ["who?", "nothing"], "q3": ["who?", ANSWER]}
    shares = play(scripts, episodes(SOLVER, TAGGED, TAGGED, TAGGED))
    assert shares == {
        "drzero solver": Answered(1, 1),
        "drzero proposer": Answered(0, 0),
        "evalrar solver": Answered(2, 3),
    }


def test_limits_are_those_of_the_dialect():
    scripts = {"q0": ["who?", ANSWER]}
    shares = play(scripts, episodes(TAGGED), lambda dialect: Limits(max_turns=1 if dialect == "evalrar" else 2))
    assert shares["evalrar solver"] == Answered(0, 1)


def test_a_weak_dialect_is_named():
    shares = {"drzero solver": Answered(9, 10), "evalact solver": Answered(6, 10), "evalrar solver": Answered(0, 0)}
    said, weak = describe_answered(shares)
    assert said == "answered of the held-out tasks: drzero solver 9 of 10, evalact solver 6 of 10, evalrar solver none"
    assert weak.startswith("weak: evalact solver; teach it longer")
    assert len(describe_answered({"drzero solver": Answered(3, 4)})) == 1


def test_what_is_held_out_is_a_matter_of_places_and_seed():
    held_out, learnt = split_held_out("abcdefghijklmnopqrst", 7)
    assert len(held_out) == 2 and sorted([*held_out, *learnt]) == list("abcdefghijklmnopqrst")
    places, _ = split_held_out(range(20), 7)
    assert ["abcdefghijklmnopqrst"[place] for place in places] == held_out
    assert split_held_out(range(20), 8)[0] != places
