"""Who a proposal is compared with, by hand; what counts as found by a search; what its evidence earns."""

import asyncio
import json
import math
from types import SimpleNamespace

import pytest
from msgspec import structs

import tiny
from quaere.errors import BadInput
from quaere.recipes.drawn_documents import Documents, find_passages
from quaere.recipes.eve import EveConfig, _open_shards, judge_triple
from quaere.records import Answer, Episode, Hit, Proposal, ProposeTask, Search, SearchResult, Support, Turn
from quaere.search.searcher import NoSearcher
from quaere.training.evidence import EvidenceConfig, Verifier, VerifierSettings, hear, trace
from quaere.training.proposals import ProposerConfig, make_candidate, proposer_advantages, read_proposal
from quaere.training.rollouts import Stage
from quaere.training.step import Step

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


# ----------------------------------------------------------------------------------------------------------- advantages

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


# -------------------------------------------------------------------------------------------------------------- tracing

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
    assert traced.is_verbatim and traced.refusals == ("travelled",) and not traced.score.valid


def test_what_a_search_found_is_evidence_of_two_hops():
    (traced,) = trace([propose(span=FOUND.text, results=(GIVEN, FOUND))], TRAVELLED, count_words)
    assert traced.refusals == () and traced.triple.returned == (FOUND.text,)
    assert traced.triple.document == GIVEN.text and traced.triple.queries == ("Halm bridge builder",)


@pytest.mark.parametrize(
    ("check", "span", "valid"),
    [
        ("invalid", "She was born in a village.", False),
        ("invalid", FOUND.text, True),
        ("zero_value", "She was born in a village.", True),
        ("none", "She was born in a village.", True),
    ],
)
def test_only_where_evidence_must_be_verbatim_a_made_up_span_makes_a_proposal_invalid(check, span, valid):
    (traced,) = trace([propose(span=span, results=(FOUND,))], EvidenceConfig(check=check), count_words)
    assert traced.score.valid == valid == (traced.question is not None)


@pytest.mark.parametrize(
    ("guards", "support", "refused"),
    [
        (("needed",), Support(0.6, 0.6, 5), ("needed",)),  # as often right without the span
        (("needed",), Support(0.8, 0.6, 5), ()),
        (("needed",), None, ()),  # the verifier gave no result
        (("verbatim",), Support(0.6, 0.6, 5), ()),
    ],
)
def test_a_span_that_nobody_needs_is_refused_where_that_guard_is_on(guards, support, refused):
    config = EvidenceConfig(guards=guards)
    (traced,) = trace([propose(span=FOUND.text, results=(FOUND,))], config, count_words)
    heard = hear(traced, support, config)
    assert heard.refusals == refused and heard.score.valid == (not refused)


# ------------------------------------------------------------------------------------------ the reward and the verifier


@pytest.mark.parametrize(("brevity_tokens", "brevity"), [(256, 0.1 * (1 - 13 / 256)), (26, 0.05), (13, 0.0)])
def test_a_short_span_earns_as_much_as_the_length_that_was_set_allows(brevity_tokens, brevity):
    config = EveConfig(evidence=EvidenceConfig(brevity_tokens=brevity_tokens))
    (traced,) = trace([propose(span=FOUND.text, results=(FOUND,))], config.evidence, count_words)
    tried = structs.replace(traced, support=Support(1.0, 0.5, 2), num_right=1, num_attempts=3)
    judged = judge_triple(tried, config)
    # Half of the value, and all the difficulty there is: one of three right.
    expected = {"value": 0.25, "difficulty": 1.0, "brevity": brevity, "format": judged.reward.format}
    assert {name: getattr(judged.reward, name) for name in expected} == pytest.approx(expected)
    assert judged.reward.total == pytest.approx(sum(expected.values()))


@pytest.mark.parametrize("cluster", [-1, 0, 3])
def test_the_cluster_that_was_chosen_is_stored_and_the_first_is_one(cluster):
    (traced,) = trace([propose(span=FOUND.text, results=(FOUND,))], EvidenceConfig(), count_words)
    measured = judge_triple(structs.replace(traced, cluster=cluster), EveConfig()).measured()
    assert measured.get("selector/cluster", -1) == cluster


def test_the_verifier_speaks_at_its_own_temperature_without_searching_and_is_counted_apart():
    seen = []

    async def play(role, jobs, searcher, limits, *, seed, params):
        seen.append((role, type(searcher), limits.max_turns, params.temperature))
        told = {True: Answer("Tallow"), False: Answer("Oss")}
        turn = Turn(0, "", Answer(""), "stop_string")
        episodes = [
            Episode(job.episode_id, job.task, "v", "m", 0, (), (turn,), told["-with0" in job.episode_id], "answered")
            for job in jobs
        ]
        return SimpleNamespace(episodes=episodes, spoiled=[])

    config = EveConfig(verifier=VerifierSettings(temperature=0.3, samples=2))
    proposals = [propose("p", span=FOUND.text, results=(FOUND,)), propose("q", span="Made up.", results=(FOUND,))]
    step = Step(1, 0, "proposer", 0, 5, None)
    verifier = Verifier(Stage(SimpleNamespace(play=play), tiny.ListSearcher()), config.evidence, config.verifier)
    found = asyncio.run(verifier.ask(step, trace(proposals, config.evidence, count_words)))
    assert found == [Support(0.5, 0.0, 2), None]  # one of two is right with the span; who quotes nothing is not asked
    assert seen == [("solver", NoSearcher, 1, 0.3)]
    assert step.metrics["verifier/episodes"] == len(step.episodes) == 4
    assert not any(name.startswith("solver/") for name in step.metrics)


# ------------------------------------------------------------------------------------------------------------ documents


class Numbered(list):
    """Passages by their numbers, as an index has them."""

    passage = list.__getitem__


@pytest.mark.parametrize("document", [True, False])
def test_eves_uniform_draws_show_a_document_if_so_wished(document):
    drawn = Documents(Numbered([GIVEN, FOUND]), ProposerConfig(hop_ratio=(1, 1), document=document))
    tasks = drawn.draw(range(6), seed=1, name="i0", step_seed=2)
    assert len(tasks) == 6 and {task.hops for task in tasks} == {1, 2}
    assert all((task.document is not None) == document for task in tasks)
    assert tasks == drawn.draw(range(6), seed=1, name="i0", step_seed=3)


@pytest.mark.parametrize("prompt_source", ["uniform", "questions"])
@pytest.mark.parametrize("same", [True, False])
def test_the_solver_s_questions_are_about_documents_of_their_own_if_so_wished(same, prompt_source, tmp_path):
    (tmp_path / "q.jsonl").write_text("".join(json.dumps({"question": f"Which {n}?"}) + "\n" for n in range(20)))
    passages = Numbered(tiny.passage(f"Text {number}.", number=number) for number in range(20))

    class OneEach:
        async def search(self, queries, topk):
            return [[Hit(passages[int(query[6:-1])], 1.0)] for query in queries]

    config = EveConfig(
        prompt_source=prompt_source,
        prompt_questions=str(tmp_path / "q.jsonl"),
        phase_b_documents="same" if same else "held-out",
        held_out_share=0.5,
    )
    shards = asyncio.run(_open_shards(config, SimpleNamespace(index=passages, searcher=OneEach()), None))
    first, second = (
        {task.document.doc_id for task in shard.draw(range(150), seed=1, name="i0", step_seed=2)} for shard in shards
    )
    assert first | second == {passage.doc_id for passage in passages}
    assert first == second if same else first.isdisjoint(second)


def test_questions_lead_to_the_best_hit_of_each_once(tmp_path):
    file = tmp_path / "q.jsonl"
    file.write_text('{"question": "Who?"}\n{"question": "Where?"}\n', encoding="utf-8")
    searcher = tiny.ListSearcher(["First.", "Second."])
    assert [passage.text for passage in asyncio.run(find_passages(file, searcher))] == ["First."]
    with pytest.raises(BadInput, match=r"no question of .*q\.jsonl finds a passage of the index"):
        asyncio.run(find_passages(file, tiny.ListSearcher([])))


def test_a_candidate_that_asks_for_a_year_accepts_it_without_the_day():
    proposed = propose()
    written = Proposal("In which year was the Halm bridge built?", "4 May 1702")
    asked = structs.replace(proposed, episode=structs.replace(proposed.episode, outcome=written))
    assert make_candidate(asked, step=1, iteration=0, reason="").aliases == ("1702",)
    assert make_candidate(proposed, step=1, iteration=0, reason="").aliases == ()
