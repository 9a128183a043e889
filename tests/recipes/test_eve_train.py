"""EVE-Agent as a whole, on a village that quotes: episodes, evidence, verifier, guards, rewards and both phases."""

import re
from collections import Counter

import pytest
from msgspec import structs

import quoting
from dictating import dictating
from quaere.recipes.drzero import judge_proposal
from quaere.recipes.eve import judge_triple
from quaere.records import Answer, Proposal, Support
from quaere.rewards.guards import GUARDS, OURS
from quaere.rewards.proposer import FormatScore, TripleReward, triple_reward
from quaere.runs.checkpoints import find_checkpoints
from quaere.search.index import open_index
from quaere.training.evidence import trace
from quaere.training.proposals import read_proposal
from quoting import count_tokens
from village_runs import about, make_quoting, proposals, run_eve

NUM_SAMPLES = 3  # of the verifier, with the span and without
FIVE_SAMPLES = {"generation.questions": 5, "generation.candidates": 20, "generation.batch": 10}


def share_right(rows):
    return sum(row.metrics["answer/exact_match"] for row in rows) / len(rows)


# -------------------------------------------------------------------------------------------------------- the whole run


@pytest.fixture(scope="module")
def whole(quoting_paths, tmp_path_factory):
    """One iteration as the paper has it, five samples a document; the solver's questions are verified too.

    See `quoting.dictate`: every kind of proposal is among them.
    """
    config = make_quoting(quoting_paths, "verify_candidates=true", "proposer.batch=12", **FIVE_SAMPLES)
    with dictating(quoting.dictate):
        run, told = run_eve(tmp_path_factory.mktemp("whole") / "run", config)
    return run, told, config


def test_a_run_goes_through_its_phases_and_stores_everything(whole):
    run, told, _ = whole
    assert [report.phase for report in told.steps] == ["proposer"] * 2 + ["generation"] * 2 + ["solver"] * 2
    assert all("no question is held back to validate" in note for note in told.notes)  # they are too few
    wanted = """reward/mean reward/format reward/difficulty reward/value reward/brevity evidence/verbatim
    evidence/tokens evidence/chance_with evidence/chance_without evidence/value evidence/refused verifier/episodes
    proposer/valid passes/mean gradient/norm"""
    assert set(wanted.split()) <= set(run.metrics_at(1))
    assert {"reward/answer", "reward/span", "evidence/present", "curriculum/questions"} <= set(run.metrics_at(5))
    assert run.metrics_at(3)["curriculum/candidates"] == 10
    assert run.metrics_at(1)["mismatch/max"] < 1e-3  # what was dictated is learned from at its true log-probs
    weights = [(found.path / "solver" / "model.safetensors") for found in find_checkpoints(run.path / "checkpoints")]
    assert weights[0].read_bytes() != weights[-1].read_bytes()


def test_every_proposal_earns_the_sum_of_its_parts(whole):
    """The whole reward again (Eq. 9 to 18), from the stored episodes alone."""
    run, _, _ = whole
    attempts = about(run, "proposer", "eve-solver")
    shown, hidden = about(run, "proposer", "closed-book-with-span"), about(run, "proposer", "closed-book")
    kinds = Counter()
    for episode, paid in proposals(run):
        form = (1 + paid["format/think"] + paid["format/tool"] + paid["format/answer"]) / 4
        if not isinstance(episode.outcome, Proposal):
            form = 0.0
        difficulty = value = brevity = 0.0
        if paid["format/valid"]:
            right, num = sum(row.metrics["answer/exact_match"] for row in attempts[episode.id]), 3
            difficulty = (num - right) / (num - 1) if 0 < right < num else 0.0
            kinds["tried"] += 1
        if episode.id in shown:
            value = 0.5 * (share_right(shown[episode.id]) - share_right(hidden[episode.id]))
            brevity = 0.1 * (1 - count_tokens(episode.outcome.span) / 256)
            kinds["verified"] += 1
            kinds["worth something"] += value != 0
        parts = {"format": form / 2, "difficulty": difficulty, "value": value, "brevity": brevity}
        for name, part in parts.items():
            assert paid[f"reward/{name}"] == pytest.approx(part), (episode.id, name)
        assert paid["reward/total"] == pytest.approx(sum(parts.values()))
    assert kinds["tried"] > kinds["verified"] >= kinds["worth something"] > 0


def test_one_proposal_by_hand():
    """F = 1, 2 of 3 right, 3 of 3 with the span and 1 of 3 without, 4 tokens of 256."""
    reward = triple_reward(
        FormatScore(1.0, 1.0, 1.0, True, 1.0), 2, 3, value=2 / 3, num_span_tokens=4, is_verbatim=True
    )
    assert reward == TripleReward(0.5, 0.5, pytest.approx(1.43177083), pytest.approx(1 / 3), pytest.approx(0.0984375))


def test_invalid_proposals_earn_their_format_alone_and_cost_nothing(whole):
    run, _, _ = whole
    asked = about(run, "proposer", "eve-solver", "closed-book", "closed-book-with-span")
    invalid = [(episode, paid) for episode, paid in proposals(run) if not paid["format/valid"]]
    assert {"given away", "unfinished"} <= {quoting.kind_of(episode.id) for episode, _ in invalid}
    for episode, paid in invalid:
        assert paid["reward/total"] == paid["reward/format"]
        assert paid["attempts/num"] == 0 and "evidence/value" not in paid
        assert episode.id not in asked
        if quoting.kind_of(episode.id) == "given away":  # well written all the same
            assert isinstance(episode.outcome, Proposal) and paid["reward/format"] == 0.5


def test_the_verifier_asks_m_times_with_the_span_and_m_times_without(whole):
    run, told, _ = whole
    sides = [about(run, "proposer", name) for name in ("closed-book-with-span", "closed-book")]
    claims = set()
    for episode, paid in proposals(run):
        claimed = bool(paid["format/valid"] and paid["evidence/verbatim"])
        assert [len(side.get(episode.id, [])) for side in sides] == [NUM_SAMPLES * claimed] * 2
        assert ("evidence/value" in paid) == claimed
        claims |= {episode.id} if claimed else set()
    valid = {episode.id for episode, paid in proposals(run) if paid["format/valid"]}
    assert claims < valid  # some quotations stand nowhere, and nobody was asked about them
    assert sum(report.metrics.get("verifier/episodes", 0) for report in told.steps[:2]) == 2 * NUM_SAMPLES * len(claims)
    for side, has_span in zip(sides, (True, False), strict=True):
        for row in [row for rows in side.values() for row in rows]:
            episode = run.episode(row.id)
            assert len(episode.turns) == 1 and episode.num_searches == 0
            prompt = quoting.tokenizer().decode(episode.segments[0].token_ids)
            span = run.episode(row.task_id).outcome.span
            assert (f"Evidence:\n{span}\n\nQuestion:" in prompt) == has_span
            assert ("Evidence" in prompt) == has_span


def test_phases_are_about_different_documents_and_a_document_has_five_samples(whole):
    run, _, config = whole
    first = {episode.task.document.doc_id for episode, _ in proposals(run)}
    tasks = [run.episode(item.episode_id).task for item in run.candidates()]
    assert first.isdisjoint(task.document.doc_id for task in tasks)
    samples = Counter(task.id for task in tasks)
    assert len(samples) == 4 and set(samples.values()) == {config.generation.questions} == {5}
    assert len({task.document.doc_id for task in tasks}) == 4


def test_evidence_of_candidates_stands_in_its_document(whole, quoting_paths):
    run, _, _ = whole
    index = open_index(quoting_paths[0])
    traced = [item for item in run.candidates() if item.evidence]
    assert 3 < len(traced) < len(run.candidates())
    for item in traced:
        place = item.evidence
        assert index.document(place.doc_id)[place.start : place.end] == place.text == item.span == item.gold_span
        episode = run.episode(item.episode_id)
        hits = [hit.passage.doc_id for turn in episode.turns for result in turn.results for hit in result.hits]
        assert place.doc_id in {item.document_id, *hits}
        assert item.scores["brevity"] == 1 - count_tokens(item.span) / 256
    for item in run.candidates():
        if not item.evidence and item.span:
            episode = run.episode(item.episode_id)
            shown = [episode.task.document.text, *(turn.reply for turn in episode.turns)]
            assert not any(item.span in text for text in shown)


def test_what_the_evidence_of_candidates_is_worth_is_stored(whole):
    run, _, _ = whole
    sides = [about(run, "generation", name) for name in ("closed-book-with-span", "closed-book")]
    verified = [item for item in run.candidates() if item.support]
    assert verified
    for item in verified:
        chances = [share_right(side[item.id]) for side in sides]
        assert item.support == Support(*map(pytest.approx, chances), NUM_SAMPLES)
    assert {item.id for item in verified} == set(sides[0])


def test_a_candidate_is_judged_by_the_attempts_at_its_own_question(whole):
    """And what is dropped for its form is not attempted."""
    run, _, config = whole
    attempts = about(run, "generation", "eve-solver")
    for item in run.candidates():
        rows = attempts.get(item.id, [])
        right = sum(row.metrics["answer/exact_match"] for row in rows)
        assert (item.num_attempts, item.num_right) == (len(rows), right), item.id
        assert len(rows) in (0, config.generation.attempts) and (item.kept <= (0 < right < len(rows)))
    assert 0 < len(attempts) < len(run.candidates())


def by_hand_f1(one, other):
    words = [
        Counter(re.sub(r"\b(a|an|the)\b", " ", re.sub(r"[!-/:-@[-`{-~]", "", text.lower())).split())
        for text in (one, other)
    ]
    shared = (words[0] & words[1]).total()
    return 2 * shared / (words[0].total() + words[1].total()) if shared else 0.0


def test_the_solver_is_paid_for_its_answer_and_its_quotation(whole):
    run, _, _ = whole
    gold = {item.id: item for item in run.candidates()}
    rows = run.index(phase="solver", protocol="eve-solver")
    assert rows and {row.task_id for row in rows} <= {item.id for item in gold.values() if item.kept}
    overlaps = set()
    for row in rows:
        outcome = run.episode(row.id).outcome or Answer("")
        item = gold[row.task_id]
        right = float(outcome.text.lower() == item.answer.lower())
        overlap = by_hand_f1(outcome.span, item.gold_span) if item.evidence else 0.0  # what was made up is no gold
        overlaps.add(round(overlap, 3))
        assert row.metrics["reward/answer"] == row.metrics["answer/exact_match"] == right
        assert row.metrics["reward/span"] == pytest.approx(0.3 * overlap)
        assert row.metrics["reward/total"] == pytest.approx(right + 0.3 * overlap)
        assert row.metrics["evidence/present"] == bool(outcome.span)
        results = [result for turn in run.episode(row.id).turns for result in turn.results]
        shown = [hit.passage.text for result in results for hit in result.hits]
        assert row.metrics["evidence/verbatim"] == (outcome.span != "" and any(outcome.span in text for text in shown))
    assert len(overlaps) > 2


def test_without_its_weights_the_reward_of_stored_episodes_is_dr_zeros_to_the_last_bit(whole, quoting_paths):
    run, _, _ = whole
    off = make_quoting(quoting_paths, "evidence.value_weight=0", "evidence.brevity_weight=0")
    read = [read_proposal(episode) for phase in ("proposer", "generation") for episode, _ in proposals(run, phase)]
    support = Support(1.0, 1 / 3, 3)
    assert len(read) == 44
    for traced in trace(read, off.evidence, count_tokens):
        traced, is_valid = structs.replace(traced, support=support if traced.is_verbatim else None), traced.score.valid
        for num_right in range(4 if is_valid else 1):
            tried = structs.replace(traced, num_right=num_right, num_attempts=3 * is_valid)
            ours, theirs = judge_triple(tried, off), judge_proposal(tried, off.proposer)
            assert ours.reward.total == theirs.reward.total
            assert {name: ours.measured()[name] for name in theirs.measured()} == theirs.measured()


# --------------------------------------------------------------------------------------------------------------- guards


@pytest.fixture(scope="module")
def guarded(quoting_paths, tmp_path_factory):
    """Every guard on, as in our presets."""
    config = make_quoting(quoting_paths, "proposer.batch=12", **{"evidence.guards": OURS}, **FIVE_SAMPLES)
    with dictating(quoting.dictate):
        return run_eve(tmp_path_factory.mktemp("guarded") / "run", config)


def test_what_a_guard_refuses_is_named(guarded):
    run, _ = guarded
    refused = [item for item in run.candidates() if item.reason == "refused"]
    assert refused and all(set(item.refusals) <= set(GUARDS) and item.refusals for item in refused)
    assert {"verbatim"} < {name for item in refused for name in item.refusals}
    for item in refused:
        assert ("verbatim" in item.refusals) == (item.evidence is None)
    questions = [item.question for item in run.candidates() if "new" in item.refusals]
    assert all(Counter(item.question for item in run.candidates())[question] > 1 for question in questions)
    kept = [item for item in run.candidates() if item.kept]
    assert kept and not any(item.refusals for item in kept)


def test_each_guard_has_the_share_that_it_refuses(guarded):
    run, _ = guarded
    for step in {item.step for item in run.candidates()}:
        made = [item for item in run.candidates() if item.step == step]
        for name in OURS:
            refused = sum(name in item.refusals for item in made)
            assert run.metrics_at(step)[f"guard/{name}"] == refused / len(made)
        assert run.metrics_at(step)["gate/yield"] == sum(item.kept for item in made) / len(made)
    assert {f"guard/{name}" for name in OURS} < set(run.metrics_at(1))
    paid = [row.metrics for row in run.index(step=1, protocol="eve-proposer")]
    assert run.metrics_at(1)["gate/yield"] == sum(one["reward/difficulty"] > 0 for one in paid) / len(paid) > 0


def test_what_is_refused_before_it_is_tried_costs_nothing(guarded):
    run, _ = guarded
    for item in run.candidates():
        if set(item.refusals) - {"needed"}:
            assert item.num_attempts == 0 and item.support is None
    asked = about(run, "proposer", "eve-solver", "closed-book")
    refused = [(episode, paid) for episode, paid in proposals(run) if paid["evidence/refused"]]
    for episode, paid in refused:
        assert paid["reward/total"] == paid["reward/format"] and paid["format/valid"] == 0
        assert (episode.id in asked) == ("evidence/value" in paid)
    assert any(episode.id not in asked for episode, _ in refused)
