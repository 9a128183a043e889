"""Who a proposal is compared with, by hand; and what counts as found by a search."""

import math

import pytest
from msgspec import structs

import tiny
from quaere.recipes.eve.config import EvidenceConfig
from quaere.recipes.eve.proposer_documents import UniformDocuments
from quaere.recipes.eve.traces import trace
from quaere.records import Episode, Hit, Proposal, ProposeTask, Search, SearchResult, Turn
from quaere.training.phases.curriculum_filter import make_candidate
from quaere.training.phases.proposals import read_proposal
from quaere.training.self_play.config import ProposerConfig
from quaere.training.self_play.proposal_advantages import proposer_advantages

GIVEN = tiny.passage("The Halm bridge crosses the Oss at Korrin. Orsolya Venn built the Halm bridge in 1702.", number=1)
FOUND = tiny.passage("Orsolya Venn was born at Tallow, a market town on the lower Oss.", number=2)


def propose(task_id="p", hops=2, span="", results=()):
    """An episode with one search that brought these passages back."""
    written = Proposal("Which market town was the builder of the Halm bridge born at?", "Tallow", span)
    found = SearchResult("Halm bridge builder", tuple(Hit(passage, 1.0) for passage in results))
    turns = (
        Turn(0, "<think>Who was she?</think>", Search(("Halm bridge builder",)), "stop_string", results=(found,)),
        Turn(1, "<think>Tallow is the town.</think>", written, "stop_string"),
    )
    task = ProposeTask(task_id, GIVEN, hops)
    return read_proposal(Episode(task_id, task, "eve-proposer", "m", 0, (), turns, written, "answered"))


# ---------------------------------------------------------------------------------------------------------- advantages

HOPS, TASKS = (1, 1, 2, 2), ("a", "b", "a", "b")
REWARDS = (0.0, 4.0, 1.0, 2.0)


def by_hand(groups, delta, unbiased):
    """(r - mean) / (std + delta) within each group."""
    found = []
    for group, reward in zip(groups, REWARDS, strict=True):
        values = [r for g, r in zip(groups, REWARDS, strict=True) if g == group]
        mean = sum(values) / len(values)
        std = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - unbiased))
        found.append((reward - mean) / (std + delta))
    return found


@pytest.mark.parametrize("unbiased", [True, False])
@pytest.mark.parametrize("delta", [1e-6, 0.5])
@pytest.mark.parametrize(("kind", "groups"), [("hrpo", HOPS), ("grpo", TASKS), ("global", (0, 0, 0, 0))])
def test_rewards_are_standardised_with_the_delta_and_deviation_that_were_set(kind, groups, delta, unbiased):
    config = ProposerConfig(advantage=kind, delta=delta, unbiased_std=unbiased)
    proposals = [propose(task, hops) for task, hops in zip(TASKS, HOPS, strict=True)]
    found = proposer_advantages(REWARDS, proposals, config, seed=0)
    assert found.values.tolist() == pytest.approx(by_hand(groups, delta, unbiased))


@pytest.mark.parametrize(("lone_group", "expected"), [("zero", 0.0), ("raw", 2.0)])
@pytest.mark.parametrize("kind", ["hrpo", "grpo"])
def test_a_proposal_without_company_is_worth_what_was_set(kind, lone_group, expected):
    config = ProposerConfig(advantage=kind, lone_group=lone_group, delta=0.5)  # 3 / (1 + 0.5): it counts as spread by 1
    found = proposer_advantages([3.0], [propose()], config, seed=0)
    assert found.values.tolist() == pytest.approx([expected])


def test_shuffled_advantages_are_the_same_numbers_at_other_places():
    proposals = [propose(str(number)) for number in range(40)]
    rewards = [float(number) for number in range(40)]
    plain, mixed, again, other = (
        proposer_advantages(rewards, proposals, ProposerConfig(shuffle_advantages=shuffle), seed).values.tolist()
        for shuffle, seed in ((False, 1), (True, 1), (True, 1), (True, 2))
    )
    assert sorted(mixed) == sorted(plain) and mixed == again and plain != mixed != other


# ------------------------------------------------------------------------------------------------------------- tracing

TRAVELLED = EvidenceConfig(guards=("travelled",))


def count_words(text):
    return len(text.split())


@pytest.mark.parametrize("results", [(GIVEN,), (GIVEN, FOUND)])
def test_the_given_document_is_not_found_by_a_search_though_one_brings_it_back(results):
    """A question of two hops must rest on what its search found, not on the page it began with."""
    (traced,) = trace(
        [propose(span="Orsolya Venn built the Halm bridge in 1702.", results=results)], TRAVELLED, count_words
    )
    assert traced.triple.returned == tuple(passage.text for passage in results if passage is FOUND)
    assert traced.is_verbatim and traced.refusals == ("travelled",) and not traced.proposed.score.valid


def test_what_a_search_found_is_evidence_of_two_hops():
    (traced,) = trace([propose(span=FOUND.text, results=(GIVEN, FOUND))], TRAVELLED, count_words)
    assert traced.refusals == () and traced.triple.returned == (FOUND.text,)
    assert traced.triple.document == GIVEN.text and traced.triple.queries == ("Halm bridge builder",)


class Numbered(list):
    """Passages by their numbers, as an index has them."""

    passage = list.__getitem__


@pytest.mark.parametrize("document", [True, False])
def test_eves_uniform_draws_show_a_document_if_so_wished(document):
    drawn = UniformDocuments(Numbered([GIVEN, FOUND]), (1, 1), document=document)
    tasks = drawn.draw(range(6), seed=1, name="i0", step_seed=2)
    assert len(tasks) == 6 and {task.hops for task in tasks} == {1, 2}
    assert all((task.document is not None) == document for task in tasks)
    assert tasks == drawn.draw(range(6), seed=1, name="i0", step_seed=3)


def test_a_candidate_that_asks_for_a_year_accepts_it_without_the_day():
    proposed = propose()
    written = Proposal("In which year was the Halm bridge built?", "4 May 1702")
    asked = structs.replace(proposed, episode=structs.replace(proposed.episode, outcome=written))
    assert make_candidate(asked, step=1, iteration=0, reason="").aliases == ("1702",)
    assert make_candidate(proposed, step=1, iteration=0, reason="").aliases == ()
