"""Iterations that go on: the optimizer and documents of the proposer, and what a curriculum adds to earlier ones."""

import re
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from safetensors.torch import load_file
from test_drzero_resume import contents, digest

import village
from dictating import dictating
from properties import examples
from quaere.errors import TrainingStopped
from quaere.recipes.drzero import DrZeroConfig
from quaere.records import Candidate, Evidence, ProposeTask
from quaere.runs import Run
from quaere.runs.checkpoints import find_checkpoints
from quaere.training.health import check_curriculum, check_repeats
from quaere.training.learner import OPTIMIZER_FILE
from quaere.training.proposals import ProposerConfig, remember_kept
from quaere.training.rollouts import draw_tasks
from quaere.training.self_play import (
    GenerationConfig,
    SelfPlayConfig,
    _check_curriculum,
    measure_overlap,
    measure_repeats,
    place_tasks,
)
from quaere.training.settings import HealthSettings
from quaere.training.step import Step
from village_runs import Told, make_config, make_quoting, run_drzero, run_eve

CARRIED = "carried-proposer.safetensors"
TWO = {"iterations": 2, "proposer.batch": 4, "generation.attempts": 0, "checkpoints.keep": 100, "solver.max_draws": 0}


# ------------------------------------------------------------------------------------------------------------ documents


class Numbered:
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def passage(self, number):
        return number


def drawn(config, iteration, numbers, size):
    seed, places = place_tasks(config, iteration, numbers)
    tasks = draw_tasks(Numbered(size), places, config.proposer.hop_ratio, seed=seed, name="t")
    return [task.document for task in tasks]


@settings(max_examples=examples(60))
@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 30), st.integers(0, 9))
def test_no_document_is_drawn_again_before_all_were(steps, batch, candidates, seed):
    """Iterations that carry on share no document; in each, the questions are about those the proposer learned on."""
    config = DrZeroConfig(
        seed=seed,
        proposer=ProposerConfig(steps=steps, batch=batch, carry_on=True),
        generation=GenerationConfig(candidates=candidates),
    )
    size = max(steps * batch, candidates)
    num_learned, num_written = range(steps * batch), range(candidates or steps * batch)
    both = []
    for iteration in range(3):
        learned, written = (drawn(config, iteration, numbers, 3 * size) for numbers in (num_learned, num_written))
        assert learned[: len(written)] == written[: len(learned)]
        both += max(learned, written, key=len)
    assert len(set(both)) == len(both) == 3 * size


def test_without_it_every_iteration_draws_afresh():
    config = DrZeroConfig(proposer=ProposerConfig(steps=1, batch=8))
    first, second = (drawn(config, iteration, range(8), 16) for iteration in (0, 1))
    assert first != second and set(first) & set(second)


# ------------------------------------------------------------------------------------------------------------ optimizer


@pytest.fixture(scope="module")
def carried(paths, tmp_path_factory):
    folder = tmp_path_factory.mktemp("carried") / "run"
    run_drzero(folder, make_config(paths, **TWO, **{"proposer.carry_on": True}))[0].close()
    return folder


@pytest.fixture(scope="module")
def afresh(paths, tmp_path_factory):
    folder = tmp_path_factory.mktemp("afresh") / "run"
    run_drzero(folder, make_config(paths, **TWO))[0].close()
    return folder


def last_of(folder, iteration, phase):
    """The last checkpoint of a phase."""
    found = [one for one in find_checkpoints(folder / "checkpoints") if one.state["iteration"] == iteration]
    return [one.path for one in found if one.state["phase"] == phase][-1]


def test_carrying_on_keeps_the_moments_and_the_place_in_the_schedule(carried, afresh):
    """`proposer.carry_on`: two steps in each iteration, so that four are counted after the second."""
    for folder, counts in ((carried, (2, 4)), (afresh, (2, 2))):
        saved = [load_file(last_of(folder, iteration, "proposer") / OPTIMIZER_FILE) for iteration in (0, 1)]
        assert [int(state["num_steps"]) for state in saved] == list(counts)
        assert [int(state["/0.step"]) for state in saved] == list(counts)
    # The solver's optimizer starts anew in both: two more would be 4, or 3 where a step's answers are all alike.
    for folder in (carried, afresh):
        one, two = (int(load_file(last_of(folder, n, "solver") / OPTIMIZER_FILE)["num_steps"]) for n in (0, 1))
        assert one == 2 and 1 <= two <= 2


def test_the_first_iteration_is_the_same_and_the_second_is_not(carried, afresh):
    def weights(folder, iteration):
        return (last_of(folder, iteration, "proposer") / "proposer" / "model.safetensors").read_bytes()

    assert weights(carried, 0) == weights(afresh, 0) and weights(carried, 1) != weights(afresh, 1)


def test_the_state_lies_in_every_checkpoint_until_it_is_used(carried, afresh):
    state = (last_of(carried, 0, "proposer") / OPTIMIZER_FILE).read_bytes()
    for checkpoint in find_checkpoints(carried / "checkpoints"):
        file = checkpoint.path / CARRIED
        is_between = (checkpoint.state["iteration"], checkpoint.state["phase"]) in ((0, "generation"), (0, "solver"))
        assert file.exists() == is_between
        assert not is_between or file.read_bytes() == state
    assert not list((afresh / "checkpoints").rglob(CARRIED))


def test_it_is_learned_on_other_documents(carried):
    with Run.open(carried) as run:
        shown = {0: set(), 1: set()}
        for row in run.index(phase="proposer"):
            episode = run.episode(row.id)
            if isinstance(episode.task, ProposeTask):
                shown[int(row.id.startswith("i1"))].add(episode.task.document.id)
    assert len(shown[0]) == len(shown[1]) == 8 and not shown[0] & shown[1]  # 2 steps of 4, out of 16


class Interrupting(Told):
    """Ends the process' run after a step, as Ctrl-C would between two."""

    def __init__(self, step):
        super().__init__()
        self.last = step

    def step(self, report):
        super().step(report)
        if report.step == self.last:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("every", "stride"),
    # With a checkpoint of every step less is left to be played again: the suite sees the other.
    [(100, 3), *(pytest.param(*values, marks=pytest.mark.slow) for values in ((1, 3), (1, 1), (100, 1)))],
)
def test_stopped_in_every_phase_it_ends_with_the_same_bits(paths, tmp_path, carried, every, stride):
    """After the first step of the proposer, after the generation, and so on; in the slow ones after every step."""
    config = make_config(paths, **TWO, **{"proposer.carry_on": True, "checkpoints.every": every})
    num_steps = find_checkpoints(carried / "checkpoints")[-1].step
    num_stops = 0
    for step in range(1, num_steps, stride):
        try:
            run_drzero(tmp_path / "stopped", config, Interrupting(step))[0].close()
        except KeyboardInterrupt:
            num_stops += 1
    run_drzero(tmp_path / "stopped", config)[0].close()
    assert num_stops == len(range(1, num_steps, stride)) and num_steps > 9
    assert digest(tmp_path / "stopped") == digest(carried)
    assert contents(tmp_path / "stopped") == contents(carried)


def test_switched_on_in_the_middle_it_says_that_nothing_was_kept(paths, tmp_path):
    config = make_config(paths, **TWO)
    with pytest.raises(KeyboardInterrupt):
        run_drzero(tmp_path / "run", config, Interrupting(5))
    told = Interrupting(6)  # the second iteration has begun
    with pytest.raises(KeyboardInterrupt):
        run_drzero(tmp_path / "run", make_config(paths, **TWO, **{"proposer.carry_on": True}), told)
    assert [note for note in told.notes if "the proposer's optimizer starts anew" in note]


def test_eve_carries_on_too(quoting_paths, tmp_path):
    changes = {**TWO, "proposer.carry_on": True, "proposer.attempts": 2, "verifier.samples": 1, "solver.steps": 1}
    run_eve(tmp_path / "run", make_quoting(quoting_paths, **changes))[0].close()
    saved = load_file(last_of(tmp_path / "run", 1, "proposer") / OPTIMIZER_FILE)
    assert int(saved["num_steps"]) == 4


# ----------------------------------------------------------------------------------------------------------- curriculum


def candidate(question, answer="Venn", document="halm", iteration=0):
    return Candidate(question, 1, iteration, question, document, 1, question, answer)


def test_overlap_by_hand():
    """Of five questions one has the words of an earlier one and one asks for its fact: three are new."""
    earlier = [candidate("Who built the Halm bridge?"), candidate("Who paid?", "Oleen", "oss")]
    kept = [
        candidate("who built the halm  bridge", "Korr", "other"),  # the same words
        candidate("Name the builder of the bridge at Halm.", "the Venn", "halm"),  # the same fact
        candidate("Who was born in Halm?", "Venn", "other"),  # the same answer out of another document
        candidate("Who paid for it?", "Korr", "oss"),  # another answer out of the same document
        candidate("Who designed it?", "Oleen", ""),
    ]
    assert measure_overlap(kept, earlier) == {"curriculum/new": 3.0, "curriculum/overlap": pytest.approx(0.4)}
    assert measure_overlap(kept, []) == {"curriculum/new": 5.0, "curriculum/overlap": 0.0}
    assert measure_overlap(earlier, earlier)["curriculum/new"] == 0
    assert measure_overlap([], earlier) == {"curriculum/new": 0.0}


def test_a_question_about_the_same_sentences_is_not_new():
    """By hand: the sentence counts where it is known, whatever the answer; two sentences are not one of them."""

    def proven(question, *starts, **changes):
        spans = tuple(Evidence("halm", start, start + 9, "said so.") for start in starts)
        return structs.replace(candidate(question), proof=spans, **changes)

    earlier = [proven("Who built it?", 16), proven("Where was its builder born?", 16, 40)]
    again = [proven("Who was the builder?", 16), proven("Where is the builder from?", 40, 16)]
    fresh = [proven("Who paid?", 17), proven("When was its builder born?", 16, 90), proven("Who owned it?", 40)]
    single = structs.replace(candidate("Who made it?"), evidence=Evidence("halm", 16, 25, "said so."))
    assert measure_overlap([*again, *fresh], earlier) == {"curriculum/new": 3.0, "curriculum/overlap": 0.4}
    assert measure_overlap([single], earlier) == {"curriculum/new": 0.0, "curriculum/overlap": 1.0}
    assert remember_kept([*earlier, structs.replace(single, reason="refused")]) == {
        "who built it",
        "where was its builder born",
        "halm:16",
        "halm:16 halm:40",
    }


def test_what_is_given_again_repeats_nothing():
    told = structs.replace(candidate("Who built it?"), scores={"given": 1.0})
    reworded, other = candidate("Who was it that paid?", "Oss"), structs.replace(told, question="Who paid?")
    assert measure_overlap([told], [told], is_written=False) == {}
    assert measure_overlap([told], [told]) == {"curriculum/new": 0.0}  # the proposer wrote none that was kept
    assert (
        measure_overlap([told, reworded, other], [told])["curriculum/new"] == 1
    )  # `other` has its answer and document
    assert measure_overlap([told], []) == {"curriculum/new": 1.0, "curriculum/overlap": 0.0}
    told = structs.replace(told, proof=(Evidence("halm", 16, 25, "said so."),))
    assert remember_kept([told]) == {"who built it"}  # a later proposer is not to repeat it
    assert remember_kept([told], given_again=True) == set()


@pytest.mark.parametrize(("num_asked", "expected"), [(8, ["curriculum"]), (0, [])])
def test_a_proposer_that_writes_nothing_beside_questions_given_again_is_an_alarm(num_asked, expected):
    """With nothing to be written, there is nothing to warn of."""
    told = structs.replace(candidate("Who built it?"), scores={"given": 1.0})
    again = structs.replace(told, iteration=1)
    training = SimpleNamespace(store=SimpleNamespace(candidates=lambda kept: [told, again]))
    config = SelfPlayConfig(
        model="m",
        index="i",
        proposer=ProposerConfig(steps=0),
        generation=GenerationConfig(candidates=num_asked, given="told.jsonl", given_again=True),
    )
    step = Step(9, 1, "generation", 0, 0, None)
    _check_curriculum(config, training, step)
    assert [alarm.kind for alarm in step.alarms] == expected


WORDS = st.sampled_from(["Who built it?", "who built it", "Who paid?", "When?", "Where?"])
CANDIDATES = st.lists(st.builds(candidate, WORDS, st.sampled_from(["a", "b"]), st.sampled_from(["", "d", "e"])))


@settings(max_examples=examples(100))
@given(CANDIDATES, CANDIDATES, CANDIDATES)
def test_more_earlier_questions_leave_fewer_new_ones(kept, earlier, others):
    near, nearer = (measure_repeats(kept, some).get("curriculum/repeats", 0) for some in (earlier, earlier + others))
    assert 0 <= near <= nearer <= 1
    few, many = measure_overlap(kept, earlier), measure_overlap(kept, earlier + others)
    assert 0 <= many["curriculum/new"] <= few["curriculum/new"] <= len(kept)
    if kept:
        assert few["curriculum/overlap"] == pytest.approx(1 - few["curriculum/new"] / len(kept))


def same_again(job):
    """One question about every document, whatever the iteration."""
    return village.write_proposal(0, 1, "built", village.builder(0)) if isinstance(job.task, ProposeTask) else None


OFF = {"health.min_new_questions": 0, "health.max_repeats": 0.0}


def test_repeats_by_hand():
    """Of four kept questions, one nearly repeats an earlier one and one another of this iteration."""
    earlier = [candidate("Who built the old bridge at Halm?", "Venn", "halm")]
    kept = [
        candidate("Who built the bridge at Halm?", "Venn", "oss"),  # four of five words, and the same answer
        candidate("Who paid for it?", "Venn", "halm"),
        candidate("Who once paid for it?", "Korr", "halm"),  # three of four words, and the same page
        candidate("Who paid for it?", "Oleen", "other"),  # the same words about another page, with another answer
    ]
    assert measure_repeats(kept, earlier) == {"curriculum/repeats": 0.5}
    assert measure_repeats(kept[:1], []) == {"curriculum/repeats": 0.0}
    assert measure_repeats([structs.replace(kept[0], scores={"given": 1.0})], earlier) == {}
    limit = HealthSettings(max_repeats=0.5)
    assert (
        check_repeats(0.5, 0, limit) == []
        and "60% of the questions of iteration 1" in check_repeats(0.6, 0, limit)[0].message
    )


def test_an_iteration_that_repeats_the_last_one_raises_an_alarm(paths, tmp_path):
    changes = {**TWO, "proposer.steps": 0, "generation.candidates": 4, "proposer.hop_ratio": (1,)}
    with dictating(same_again):
        run, told = run_drzero(tmp_path / "run", make_config(paths, **changes))
    with run:
        assert [metric.value for metric in run.metrics("curriculum/new")] == [1.0, 0.0]
        assert {item.reason for item in run.candidates(iteration=1)} == {"duplicate"}  # also of the first iteration
        (event,) = run.events()
        assert event.kind == "curriculum" and "iteration 2 has 0 new questions" in event.message
        assert "health.min_new_questions=1" in event.message
        assert [report.phase for report in told.steps if report.alarms] == ["generation"]
    with dictating(same_again):
        quiet, _ = run_drzero(tmp_path / "quiet", make_config(paths, **changes, **OFF))
    with quiet:
        assert quiet.events() == []


@pytest.mark.parametrize(("policy", "said"), [("stop", "iteration 2 has 0 new"), ("rollback", "did not help")])
def test_the_alarm_can_stop_a_run_and_roll_it_back(paths, tmp_path, policy, said):
    changes = {**TWO, "proposer.steps": 0, "generation.candidates": 4, "proposer.hop_ratio": (1,)}
    config = make_config(paths, **changes, **{"health.policy": policy, "health.max_rollbacks": 1})
    with dictating(same_again), pytest.raises(TrainingStopped, match=said):
        run_drzero(tmp_path / "run", config)
    with Run.open(tmp_path / "run") as run:
        back = [event for event in run.events() if event.kind == "rollback"]
        assert len(back) == (policy == "rollback")
        if back:  # to the checkpoint before: the one with the repeated questions is not a good one
            assert re.search("from step 4 to step [0-3]:", back[0].message)


def test_the_limit_is_the_least_number():
    limit = HealthSettings(min_new_questions=5)
    assert check_curriculum(5, 0, limit) == [] and len(check_curriculum(4, 0, limit)) == 1
