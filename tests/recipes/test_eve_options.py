"""Every option of EVE-Agent and every ablation is one value, and changes what it is named for."""

import json
import re
from collections import Counter

import numpy as np
import pytest
from msgspec import structs

import evaluated
import quoting
from dictating import dictating
from loopback import serve_chat
from quaere.dialects.registry import open_solver
from quaere.errors import SamplingFailed
from quaere.recipes.eve import PRESETS, pay_cited_answer
from quaere.records import Candidate, Evidence, Proposal, Question
from quaere.rewards.abstention import ABSTENTION, AbstentionRewards, hide_answers
from quaere.rewards.answers import contains
from quaere.training.evidence import EvidenceConfig
from quoting import BRIDGES, count_tokens, doer
from village_runs import about, make_quoting, proposals, run_eve

# Where only the documents are looked at: no verifier, and few attempts.
UNJUDGED = "evidence.value_weight=0", "proposer.attempts=2"
TWO_STEPS = {"solver.steps": 0, "generation.candidates": 1, "generation.attempts": 0, "checkpoints.every": 100}


@pytest.fixture(scope="module")
def two_steps(quoting_paths, tmp_path_factory):
    """Two proposer steps as the paper has them, with proposals of every kind: see `quoting.dictate`."""
    with dictating(quoting.dictate):
        return run_eve(tmp_path_factory.mktemp("plain") / "run", make_quoting(quoting_paths, **TWO_STEPS))[0]


@pytest.fixture(scope="module")
def other_numbers(quoting_paths, tmp_path_factory):
    """The first of these steps with two numbers changed that have nothing to do with each other."""
    changes = {**TWO_STEPS, "proposer.steps": 1, "evidence.brevity_tokens": 8, "verifier.samples": 4}
    with dictating(quoting.dictate):
        return run_eve(tmp_path_factory.mktemp("other") / "run", make_quoting(quoting_paths, **changes))[0]


@pytest.fixture
def ablate(quoting_paths, tmp_path):
    """One such step with some values changed."""
    numbers = iter(range(9))

    def run(*assignments, script=quoting.dictate, **changes):
        config = make_quoting(quoting_paths, *assignments, **{**TWO_STEPS, "proposer.steps": 1, **changes})
        with dictating(script):
            return run_eve(tmp_path / f"run-{next(numbers)}", config)[0]

    return run


def first_step(run):
    """What the proposals of the first step earned, by id: they are the same episodes whatever they earn."""
    rows = run.index(phase="proposer", protocol="eve-proposer", step=1)
    return {row.id: row.metrics for row in rows}


def same_episodes(run, other):
    return all(run.episode(name).token_ids == other.episode(name).token_ids for name in first_step(run))


def part(run, name):
    return {key: paid[name] for key, paid in first_step(run).items()}


# --------------------------------------------------------------------------------------------------------- the weights


def test_no_verifier(ablate, two_steps):
    run = ablate("evidence.value_weight=0")
    assert same_episodes(run, two_steps)
    assert set(part(run, "reward/value").values()) == {0} != set(part(two_steps, "reward/value").values())
    assert part(run, "reward/brevity") == part(two_steps, "reward/brevity")
    assert not about(run, "proposer", "closed-book", "closed-book-with-span")
    assert about(two_steps, "proposer", "closed-book", "closed-book-with-span")


def test_a_verifier_that_is_not_paid_for_may_be_asked_about_candidates(ablate):
    run = ablate("evidence.value_weight=0", "verify_candidates=true", **{"generation.candidates": 8})
    assert not about(run, "proposer", "closed-book-with-span")
    assert (
        {item.id for item in run.candidates() if item.support} == set(about(run, "generation", "closed-book")) != set()
    )


def test_no_brevity(ablate, two_steps):
    run = ablate("evidence.brevity_weight=0")
    assert same_episodes(run, two_steps)
    assert set(part(run, "reward/brevity").values()) == {0} != set(part(two_steps, "reward/brevity").values())
    assert part(run, "reward/value") == part(two_steps, "reward/value")


def test_brevity_of_another_length(other_numbers, two_steps):
    run = other_numbers
    verbatim = [key for key, paid in first_step(run).items() if paid["reward/brevity"]]
    assert verbatim
    for key in verbatim:
        num_tokens = count_tokens(run.episode(key).outcome.span)
        assert part(run, "reward/brevity")[key] == pytest.approx(0.1 * (1 - num_tokens / 8))
        assert part(two_steps, "reward/brevity")[key] == pytest.approx(0.1 * (1 - num_tokens / 256))


def test_a_solver_paid_for_its_answer_alone(ablate):
    run = ablate("evidence.span_weight=0", "proposer.steps=0", **{"generation.candidates": 8, "solver.steps": 2})
    rows = run.index(phase="solver", protocol="eve-solver")
    assert rows and all(row.metrics["reward/span"] == 0 for row in rows)
    assert all(row.metrics["reward/total"] == row.metrics["answer/exact_match"] for row in rows)
    assert any(row.metrics["evidence/present"] for row in rows)


# ------------------------------------------------------------------------------------------- what the paper leaves open


def test_evidence_that_stands_nowhere(ablate, two_steps):
    """Paid like any (none), not paid (zero_value), or no proposal at all (invalid)."""
    unchecked, strict = ablate("evidence.check=none"), ablate("evidence.check=invalid")
    assert same_episodes(unchecked, two_steps) and same_episodes(strict, two_steps)
    lacking = [key for key, paid in first_step(two_steps).items() if paid["format/valid"] > paid["evidence/verbatim"]]
    assert lacking
    verified = about(unchecked, "proposer", "closed-book")
    valid = {episode.id for episode, paid in proposals(unchecked) if paid["format/valid"]}
    assert set(verified) == valid
    for key in lacking:
        paid, before, refused = first_step(unchecked)[key], first_step(two_steps)[key], first_step(strict)[key]
        num_tokens = count_tokens(unchecked.episode(key).outcome.span)
        assert paid["reward/brevity"] == pytest.approx(0.1 * (1 - num_tokens / 256))
        assert "evidence/value" in paid
        assert before["reward/value"] == before["reward/brevity"] == 0 < before["attempts/num"]
        assert refused["format/valid"] == refused["attempts/num"] == 0
        assert refused["reward/total"] == refused["reward/format"] == before["reward/format"]
    for key in set(first_step(strict)) - set(lacking):
        assert first_step(strict)[key]["format/valid"] == first_step(two_steps)[key]["format/valid"]


def given_away(run):
    """How often proposals were tried whose question holds the answer."""
    return [
        paid["attempts/num"]
        for episode, paid in proposals(run)
        if isinstance(episode.outcome, Proposal) and contains(episode.outcome.question, episode.outcome.answer)
    ]


def test_an_answer_inside_the_question(ablate, two_steps):
    """Refused by default, as the text of the paper has it."""
    tried = ablate("proposer.reward.invalid_rule=algorithm")
    assert same_episodes(tried, two_steps)
    assert set(given_away(two_steps)) == {0}
    assert set(given_away(tried)) == {3}


def documents(run, phase="proposer"):
    return {episode.task.document.doc_id for episode, _ in proposals(run, phase)}


def test_documents_that_questions_lead_to(ablate, tmp_path, two_steps):
    file, asked = tmp_path / "questions.jsonl", ["Halm", "Korrin", "Keld", "Halm", "Fane", "Oss", "Lorn"]
    rows = [{"id": str(number), "question": f"Who built {name}?"} for number, name in enumerate(asked)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    source = ["prompt_source=questions", f"prompt_questions={file}"]
    assert documents(ablate(*source, *UNJUDGED, "phase_b_documents=same")) == set(asked) != documents(two_steps)
    held_out = ablate(*source, *UNJUDGED, **{"generation.candidates": 16})
    first, second = documents(held_out), documents(held_out, "generation")
    assert first | second == set(asked) and first.isdisjoint(second)


def test_the_same_documents_in_both_phases(ablate, two_steps):
    wanted = {"generation.candidates": 16, "generation.questions": 1, "generation.batch": 16}
    run = ablate("phase_b_documents=same", "proposer.steps=2", *UNJUDGED, **wanted)
    tasks = [
        Counter((episode.task.document.doc_id, episode.task.hops) for episode, _ in proposals(run, phase))
        for phase in ("proposer", "generation")
    ]
    assert tasks[0] == tasks[1]
    assert documents(two_steps).isdisjoint(documents(two_steps, "generation"))


def test_how_much_is_held_out(ablate, two_steps):
    assert len(documents(ablate("held_out_share=0.8", "proposer.batch=16", *UNJUDGED))) < len(documents(two_steps))


# --------------------------------------------------------------------------------------------------------- the verifier


def supports(run):
    return {
        key: (paid["evidence/chance_with"], paid["evidence/chance_without"])
        for key, paid in first_step(run).items()
        if "evidence/value" in paid
    }


def test_more_samples(other_numbers, two_steps):
    counts = [
        {len(rows) for rows in about(run, "proposer", "closed-book").values()} for run in (two_steps, other_numbers)
    ]
    assert counts == [{3}, {4}]


def count_different(run):
    """How many different turns the verifier wrote about each question without evidence."""
    asked = about(run, "proposer", "closed-book").values()
    return {len({run.episode(row.id).token_ids for row in rows}) for rows in asked}


def test_a_cold_verifier_says_the_same_every_time(ablate):
    cold, hot = (
        ablate(f"verifier.temperature={temperature}", "proposer.attempts=2", script=quoting.dictate_proposal)
        for temperature in (0, 3)
    )
    assert count_different(cold) == {1}
    assert max(count_different(hot)) > 1


def test_a_teacher_forced_verifier(ablate, two_steps):
    run = ablate("verifier.form=teacher_forced")
    assert set(supports(run)) == set(supports(two_steps)) != set()
    chances = np.array(list(supports(run).values()))
    assert ((chances > 0) & (chances < 1)).all()
    assert len(np.unique(chances)) == chances.size  # no frequencies of three samples
    assert not about(run, "proposer", "closed-book", "closed-book-with-span")
    for key, (with_span, without) in supports(run).items():
        assert part(run, "reward/value")[key] == pytest.approx(0.5 * (with_span - without))


@pytest.fixture
def endpoint():
    """Believes whatever it is shown: answers with the first word of the evidence, and without any with nobody.

    The model "knowing" knows the village and looks at no evidence; the model "down" refuses.
    """
    asked = []

    def answer(body):
        if body["model"] == "down":
            return None
        asked.append(body["messages"][-1]["content"])
        named = re.match(r"Evidence:\n(\w+)", asked[-1])
        name = named[1] if named else "nobody"
        if body["model"] == "knowing":
            what, bridge = re.search(r"Who (built|paid for) the (\w*)", asked[-1]).groups()
            name = doer(what, BRIDGES.index(bridge)) if bridge in BRIDGES else "nobody"
        return f"<answer>{name}</answer>"

    with serve_chat(answer) as url:
        yield url, asked


def test_a_hosted_verifier(ablate, endpoint, two_steps):
    url, asked = endpoint
    run = ablate("verifier.form=hosted", f"verifier.model=openai:frozen@{url}", "verifier.samples=2")
    assert set(supports(run)) == set(supports(two_steps))
    num_claims = sum("evidence/value" in paid for _, paid in proposals(run))
    assert len(asked) == 2 * 2 * num_claims > 0
    for key, chances in supports(run).items():
        outcome = run.episode(key).outcome
        assert chances == (float(outcome.span.startswith(f"{outcome.answer} ")), 0.0)
    assert not about(run, "proposer", "closed-book", "closed-book-with-span")


def test_a_hosted_verifier_that_is_down_ends_the_run(ablate, endpoint):
    with pytest.raises(SamplingFailed, match="out of order"):
        ablate("verifier.form=hosted", f"verifier.model=openai:down@{endpoint[0]}")


def test_the_guard_that_needs_the_verifier_comes_after_it(ablate, endpoint):
    """What is known without the span is refused, after it was tried; what is not known is none the worse."""
    hosted = ["verifier.form=hosted", f"verifier.model=openai:knowing@{endpoint[0]}", 'evidence.guards=["needed"]']
    more = {"generation.candidates": 16, "generation.questions": 1, "generation.batch": 16}
    hosted += ["verifier.samples=1", "proposer.attempts=2"]
    run = ablate(*hosted, "proposer.batch=12", "evidence.value_weight=0", "proposer.steps=2", **more)
    paid = [measured for _, measured in proposals(run) if "evidence/value" in measured]
    assert {measured["evidence/value"] for measured in paid} == {0}
    for measured in paid:
        is_known = measured["evidence/chance_without"] == 1
        assert measured["evidence/refused"] == is_known != measured["format/valid"]
        assert measured["attempts/num"] == 2
        if is_known:
            assert measured["reward/total"] == measured["reward/format"]
    assert len({measured["evidence/refused"] for measured in paid}) == 2
    verified = [item for item in run.candidates() if item.support]
    assert any(item.reason == "refused" for item in verified)
    for item in verified:
        assert item.refusals == (("needed",) if item.support.chance_without else ())
        assert item.reason == ("refused" if item.refusals else "")
    dropped = [item for item in run.candidates() if item.reason not in ("", "refused", "invalid")]
    assert dropped and not any(item.support for item in dropped)  # for its attempts, or as a duplicate
    for step in (1, 2):
        assert run.metrics_at(step)["cost/solver_episodes"] == 2 * run.metrics_at(step)["cost/valid_questions"]


# ------------------------------------------------------------------------------------------------- another solver's pay


def test_a_span_is_paid_on_top_of_what_the_solver_s_protocol_pays():
    """EvalAct pays F1 if the format held, and for a broken one nothing, be the span ever so good."""
    span = "Orsolya Venn built it."
    found = evaluated.passage(span)
    told = evaluated.answer("Venn")
    told = structs.replace(told, action=structs.replace(told.action, span=span))
    told = structs.replace(told, text=told.text.replace("<answer>", f"<evidence>{span}</evidence><answer>"))
    held = evaluated.episode(evaluated.search(found), evaluated.evaluate(9.0), told)
    broken = evaluated.episode(evaluated.search(found), told)
    evidence = Evidence("d0", 0, len(span), span)
    gold = {"q1": Candidate("q1", 1, 0, "q1", "d0", 1, "Who?", "Orsolya Venn", span=span, evidence=evidence)}

    def pay(protocol, episode):
        solver = open_solver(protocol, evidence=True)
        paid = pay_cited_answer(episode, gold, EvidenceConfig(span_weight=0.3), solver)
        return paid["reward/answer"], paid["reward/span"], paid["reward/total"]

    assert pay("evalact", held) == pytest.approx((2 / 3, 0.3, 2 / 3 + 0.3))
    assert pay("evalact", broken) == (0, 0, 0)
    assert pay("tool-call", held) == pay("tool-call", broken) == (0, 0.3, 0.3)
    assert pay("autorefine", broken) == pytest.approx((2 / 3, 0.3, 2 / 3 + 0.3))  # its format is no gate


def test_a_question_with_a_hidden_answer_is_that_of_its_candidate_and_an_abstention_has_no_span():
    """Abstaining earns 0.8 where the answer was hidden and 0.1 elsewhere, with the candidate's span quoted or not."""
    span = "Orsolya Venn built it."
    told = evaluated.answer(ABSTENTION)
    told = structs.replace(told, action=structs.replace(told.action, span=span, abstained=True))
    question = Question("q1", "Who?", ("Orsolya Venn",))
    gold = {"q1": Candidate("q1", 1, 0, "e1", "d0", 1, "Who?", "Orsolya Venn", span=span)}
    solver = open_solver("tool-call", evidence=True, abstention=AbstentionRewards(right=0.8, needless=0.1))
    for asked, total in ((hide_answers(question), 0.8), (question, 0.1)):
        episode = evaluated.episode(evaluated.search(evaluated.passage(span)), told, question=asked)
        found = pay_cited_answer(episode, gold, EvidenceConfig(span_weight=0.3, gold="written"), solver)
        assert (found["reward/span"], found["reward/total"]) == (0.0, total)


def test_a_question_whose_own_id_ends_like_that_of_a_hidden_answer_is_found():
    told = evaluated.answer("Venn")
    episode = evaluated.episode(
        evaluated.search(evaluated.passage("x")), told, question=Question("q-hidden", "?", ("Venn",))
    )
    gold = {"q-hidden": Candidate("q-hidden", 1, 0, "e1", "d0", 1, "?", "Venn", span="x")}
    found = pay_cited_answer(episode, gold, EvidenceConfig(), open_solver("tool-call", evidence=True))
    assert found["answer/exact_match"] == 1


@pytest.mark.parametrize(
    ("changes", "gold", "paid"),
    [
        ({"evidence": Evidence("d0", 0, 22, "Orsolya Venn built it.")}, "verbatim", 0.3),
        ({}, "verbatim", 0.0),  # the proposer made it up
        ({}, "written", 0.3),  # as in the paper
        ({"episode_id": ""}, "verbatim", 0.3),  # a person's own
        ({"scores": {"given": 1.0}}, "verbatim", 0.0),  # of a file whose sentence no document has
    ],
)
def test_a_made_up_span_is_gold_in_the_paper_only(changes, gold, paid):
    span = "Orsolya Venn built it."
    told = evaluated.answer("Venn")
    told = structs.replace(told, action=structs.replace(told.action, span=span))
    episode = evaluated.episode(evaluated.search(evaluated.passage(span)), told)
    candidate = structs.replace(Candidate("q1", 1, 0, "e1", "d0", 1, "Who?", "Venn", span=span), **changes)
    solver = open_solver("tool-call", evidence=True)
    found = pay_cited_answer(episode, {"q1": candidate}, EvidenceConfig(gold=gold), solver)
    assert found["reward/span"] == pytest.approx(paid)


@pytest.mark.parametrize(
    ("quoted", "written", "verbatim"),
    [
        ("Orsolya Venn built it.", 0.3, 0.3),  # F1 1
        ("Orsolya Venn built the bridge.", 0.3 * 6 / 8, 0.0),  # 3 of 4 words in both, without "the"
        ("", 0.0, 0.0),
    ],
)
def test_an_altered_quotation_can_be_left_unpaid(quoted, written, verbatim):
    """The gold sentence was shown; the solver's own wording of it was not."""
    span = "Orsolya Venn built it."
    told = evaluated.answer("Orsolya Venn")
    told = structs.replace(told, action=structs.replace(told.action, span=quoted))
    episode = evaluated.episode(evaluated.search(evaluated.passage(span)), told)
    evidence = Evidence("d0", 0, len(span), span)
    candidate = Candidate("q1", 1, 0, "e1", "d0", 1, "Who?", "Orsolya Venn", span=span, evidence=evidence)
    solver = open_solver("tool-call", evidence=True)
    for paid, expected in (("written", written), ("verbatim", verbatim)):
        found = pay_cited_answer(episode, {"q1": candidate}, EvidenceConfig(paid=paid), solver)
        assert found["reward/span"] == pytest.approx(expected)
        assert found["evidence/verbatim"] == (quoted == span)
        assert found["reward/total"] == found["reward/answer"] + found["reward/span"]


def test_the_paper_s_preset_takes_any_span_and_the_others_none_that_is_made_up():
    assert PRESETS["paper"]["evidence.gold"] == "written"
    assert EvidenceConfig().gold == "verbatim"
    assert all("evidence.gold" not in preset for name, preset in PRESETS.items() if name != "paper")
