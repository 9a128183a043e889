"""Each way of solving: what it pays, how it weighs tokens, and that every ablation is one value away."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from evaluated import QUESTION, answer, episode, evaluate, malformed, passage, search
from quaere.dialects.evalact import EvaluateSolver
from quaere.dialects.evalact_reward import EvaluationSettings, weigh_pairs
from quaere.dialects.registry import SOLVER_DIALECTS, open_solver
from quaere.dialects.tag_dialects import NoteSettings, notes_searches
from quaere.dialects.tool_call import ToolCallSolver
from quaere.errors import BadInput
from quaere.objectives.pcar import pcar_factors
from quaere.training.rollouts import rights
from quaere.training.step import mean_parts

FOUND = passage("Orsolya Venn built it.")
TWO = (search(FOUND), evaluate(9.0), search(FOUND), evaluate(2.0))


# -------------------------------------------------------------------------------------------------------- settings


def settings_with(changes):
    return NoteSettings if changes.keys() & {"bonus", "contain", "note_rule"} else EvaluationSettings


@pytest.mark.parametrize(
    "changes",
    [
        {"pcar": False},
        {"base": 0.05, "most": 0.25},
        {"base": 0.2, "most": 1.0, "floor": 0.01},
        {"segment": "search_eval"},
        {"bad_score": "clamp"},
        {"think_before_evaluate": "fail"},
        {"epsilon": 1.0},
        {"scores": "oracle", "permuted": True},
        {"brier": 0.2},
        {"bonus": 0.0},
        {"contain": "raw"},
        {"note_rule": "grounded"},
    ],
)
def test_every_ablation_can_be_written_in_a_config(changes):
    kind = settings_with(changes)
    settings = msgspec.convert(changes, kind)
    settings.check()
    assert settings != kind()
    assert msgspec.convert(msgspec.to_builtins(settings), kind) == settings


@pytest.mark.parametrize(
    "changes",
    [{"base": 0.6}, {"base": -0.1}, {"floor": 0.0}, {"floor": 2.0}, {"bonus": -0.1}, {"bonus": 2.0}, {"most": 0.05}],
)
def test_what_makes_no_sense_is_refused(changes):
    with pytest.raises(BadInput, match=r"^evaluation\.(base|floor|bonus) must be"):
        open_solver("evalrar" if "bonus" in changes else "evalact", settings=settings_with(changes)(**changes))


def test_settings_of_another_dialect_are_replaced_by_defaults():
    assert open_solver("tool-call", settings=EvaluationSettings(base=0.6)).weigh is None
    noted = episode(search(FOUND), answer("nobody", note="Orsolya Venn"))
    assert open_solver("evalrar", settings=EvaluationSettings()).pay(noted)["reward/total"] == 0.1


@pytest.mark.parametrize("changes", [{"segment": "all"}, {"strength": 1}, {"contain": "fuzzy"}])
def test_what_does_not_exist_is_refused(changes):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(changes, settings_with(changes))


# -------------------------------------------------------------------------------------------------------- weighing


def test_tokens_are_weighed_by_the_scores():
    played = episode(*TWO, answer("Venn"), sizes=[(0, 1, 1, 1)] * 5)
    good, bad = pcar_factors([9.0, 2.0])
    assert good > 1 > bad
    turns = [good, good, 1.0] * 2 + [bad, bad, 1.0] * 2
    assert weigh_pairs(played) == [1.0] * 6 + turns + [1.0] * 3
    turns = [1.0, good, 1.0] * 2 + [1.0, bad, 1.0] * 2
    assert weigh_pairs(played, EvaluationSettings(segment="search_eval")) == [1.0] * 6 + turns + [1.0] * 3


def test_strength_and_floor_are_the_settings():
    played = episode(*TWO, answer("Venn"))
    strong = EvaluationSettings(base=0.2, most=1.0, floor=0.9)
    factors = pcar_factors([9.0, 2.0], base=0.2, most=1.0, floor=0.9)
    assert set(weigh_pairs(played, strong)) == {1.0, *factors}
    assert min(factors) == 0.9


@pytest.mark.parametrize(
    "turns",
    [(), (answer("Venn"),), TWO[:2], (search(FOUND), evaluate(4.0)) * 3, (search(FOUND), malformed(), evaluate(9.0))],
)
def test_with_nothing_to_compare_all_tokens_count_alike(turns):
    played = episode(*turns)
    assert weigh_pairs(played) == [1.0] * len(played.token_ids)


def test_epsilon_weakens_scores_that_hardly_differ():
    played = episode(search(FOUND), evaluate(9.0), search(FOUND), evaluate(10.0), answer("Venn"))
    for epsilon in (1e-6, 1.0):
        factors = pcar_factors([9.0, 10.0], epsilon=epsilon)
        assert set(weigh_pairs(played, EvaluationSettings(epsilon=epsilon))) == {1.0, *factors}


OTHER = passage("A road to Halm.", "road")


def test_an_oracle_scores_by_what_was_found():
    # The policy had it the wrong way round: 9 for the bad search and 2 for the good one.
    played = episode(search(OTHER), evaluate(9.0), search(FOUND), evaluate(2.0), answer("Venn"))
    bad, good = pcar_factors([0.0, 10.0])
    weights = weigh_pairs(played, EvaluationSettings(scores="oracle"))
    first, second = played.turns[0], played.turns[2]
    assert bad < 1 < good and set(weights) == {1.0, bad, good}
    assert (weights[first.start], weights[second.start]) == (bad, good)
    # Where nothing is known of the searches, all tokens count alike.
    unknown = structs.replace(QUESTION, answers=("no",))
    played = episode(search(OTHER), evaluate(9.0), search(FOUND), evaluate(2.0), question=unknown)
    assert set(weigh_pairs(played, EvaluationSettings(scores="oracle"))) == {1.0}


def test_permuted_scores_are_the_same_in_another_order():
    turns = [one for score in (1.0, 4.0, 6.0, 9.0) for one in (search(FOUND), evaluate(score))]
    settings = EvaluationSettings(permuted=True)
    orders = set()
    for seed in range(20):
        played = structs.replace(episode(*turns), seed=seed)
        assert sorted(weigh_pairs(played, settings)) == sorted(weigh_pairs(played))
        assert weigh_pairs(played, settings) == weigh_pairs(played, settings)
        orders.add(tuple(weigh_pairs(played, settings)))
    assert len(orders) > 10


# ------------------------------------------------------------------------------------------------- the scoring rule


def credits_by_hand(*scored):
    """The credit of each evaluation, from scores of good (True) and bad searches in one episode each."""
    played = [
        episode(search(FOUND if good else OTHER), evaluate(score), answer("Venn"), sizes=[(0, 2, 3, 4)] * 3)
        for score, good in scored
    ]
    return played, open_solver("evalact", settings=EvaluationSettings(brier=0.2)).credit(played)


def test_an_evaluation_is_credited_for_being_nearer_to_the_truth_than_others_of_its_kind():
    played, credits = credits_by_hand((9.0, True), (5.0, True), (0.0, False), (8.0, False))
    # Good: -.2 * .01 and -.2 * .25, mean -.026; bad: 0 and -.2 * .64, mean -.064.
    assert [one.value for (one,) in credits] == pytest.approx([0.024, -0.024, 0.064, -0.064])
    evaluation = played[0].turns[1]
    assert {(one.start, one.end) for (one,) in credits} == {(evaluation.start, evaluation.start + 5)}
    bare = open_solver("evalact", settings=EvaluationSettings(brier=0.2, segment="search_eval")).credit(played)
    assert {(one.start, one.end) for (one,) in bare} == {(evaluation.acts_at, evaluation.start + 5)}
    assert open_solver("evalact").credit is None


@given(st.lists(st.tuples(st.integers(0, 10).map(float), st.booleans()), min_size=1, max_size=8))
def test_credits_of_equally_good_searches_add_up_to_nothing_and_rank_by_distance(scored):
    _, credits = credits_by_hand(*scored)
    values = [one.value for (one,) in credits]
    for label in (True, False):
        own = [
            (value, abs(score / 10 - label))
            for value, (score, good) in zip(values, scored, strict=True)
            if good is label
        ]
        assert sum(value for value, _ in own) == pytest.approx(0, abs=1e-9)
        ranked = sorted(own, key=lambda pair: pair[1])
        assert all(a[0] >= b[0] - 1e-12 for a, b in pairwise(ranked))
        # The naive formula, one by one.
        mean = sum(-0.2 * gap**2 for _, gap in own) / max(1, len(own))
        assert [value for value, _ in own] == pytest.approx([-0.2 * gap**2 - mean for _, gap in own])


def test_searches_that_cannot_be_judged_are_not_credited():
    played = episode(search(FOUND), evaluate(9.0), question=structs.replace(QUESTION, answers=("yes",)))
    assert open_solver("evalact", settings=EvaluationSettings(brier=0.2)).credit([played]) == [[]]


# ---------------------------------------------------------------------------------------------------------- paying


def test_tool_call_pays_for_the_right_answer():
    solver = open_solver("tool-call", style="brief", evidence=True)
    assert isinstance(solver.protocol, ToolCallSolver)
    assert (solver.protocol.style, solver.protocol.evidence) == ("brief", True)
    assert solver.pay(episode(answer("orsolya venn")))["reward/total"] == 1.0
    assert solver.pay(episode(answer("Venn")))["reward/total"] == 0.0
    assert solver.weigh is None and solver.measure is None


@pytest.mark.parametrize("gold", ["A", "The The", "!"])
@pytest.mark.parametrize("answer_score", ["exact_match", "f1"])
@pytest.mark.parametrize("dialect", SOLVER_DIALECTS)
def test_no_answer_earns_nothing_even_where_the_gold_answer_normalises_to_nothing(dialect, answer_score, gold):
    solver = open_solver(dialect, answer_score=answer_score)
    unanswered = episode(malformed(), question=structs.replace(QUESTION, answers=(gold,)))
    assert unanswered.outcome is None and rights([unanswered]) == [0.0]
    paid = solver.pay(unanswered)
    assert paid["reward/total"] == paid["answer/exact_match"] == paid.get("answer/f1", 0.0) == 0.0


def test_the_format_of_notes():
    noted = (search(FOUND), search(FOUND, note="the year is missing"), answer("Venn", note="she did"))
    assert notes_searches(noted)
    assert notes_searches((answer("Venn"),))
    assert not notes_searches((search(FOUND), answer("Venn")))
    assert not notes_searches((search(FOUND), malformed(note="she did")))


@pytest.mark.parametrize("dialect", ["search-r1", "autorefine", "evalrar"])
def test_tagged_solvers_speak_their_dialect(dialect):
    solver = open_solver(dialect, style="brief")
    assert solver.protocol.name == f"{dialect}-solver"
    assert solver.weigh is None and solver.measure is None
    right = solver.pay(episode(answer("Orsolya Venn")))
    assert (right["reward/total"], right["answer/exact_match"]) == (1.0, 1.0)
    assert solver.pay(episode(answer("nobody")))["reward/total"] == 0.0


NOTED = (search(FOUND), answer("nobody", note="Orsolya Venn built it"))
HALF = (search(FOUND), answer("Venn", note="Orsolya Venn built it"))


def test_evalrar_pays_notes_where_the_answer_is_wrong():
    pay = open_solver("evalrar").pay
    assert pay(episode(*NOTED)) == pytest.approx(
        {
            "answer/exact_match": 0.0,
            "answer/f1": 0.0,
            "reward/answer": 0.0,
            "reward/note": 0.1,
            "reward/total": 0.1,
            "format/held": 1.0,
        }
    )
    assert pay(episode(*HALF))["reward/total"] == 0.1  # nearly right is not right
    assert pay(episode(search(FOUND), malformed(note="Orsolya Venn!")))["reward/total"] == 0.1  # nothing was answered
    # The evaluation is the policy's own words: what a passage says earns nothing.
    assert pay(episode(search(FOUND), answer("nobody")))["reward/total"] == 0.0
    lower = episode(search(FOUND), answer("nobody", note="orsolya venn"))
    assert pay(lower)["reward/total"] == 0.1
    assert open_solver("evalrar", settings=NoteSettings(contain="raw")).pay(lower)["reward/total"] == 0.0
    assert open_solver("evalrar", settings=NoteSettings(bonus=0.0)).pay(episode(*NOTED))["reward/total"] == 0.0


def test_a_grounded_note_is_about_what_a_search_before_it_returned():
    pay = open_solver("evalrar", settings=NoteSettings(note_rule="grounded")).pay
    note = "Orsolya Venn built it"
    assert pay(episode(search(FOUND), answer("nobody", note=note)))["reward/note"] == 0.1
    assert (
        pay(episode(search(FOUND), search(OTHER, note="No builder."), answer("nobody", note=note)))["reward/note"]
        == 0.1
    )
    # Without a search, before the search that shows it, after another one, and among guesses.
    assert pay(episode(answer("nobody", note=note)))["reward/note"] == 0
    assert pay(episode(search(FOUND, note=note), answer("nobody")))["reward/note"] == 0
    assert pay(episode(search(OTHER), answer("nobody", note=note)))["reward/note"] == 0
    guesses = f"{note}, Marta Oleen built it, Jon Brod built it"
    assert pay(episode(search(FOUND), answer("nobody", note=guesses)))["reward/note"] == 0
    assert open_solver("evalrar").pay(episode(answer("nobody", note=guesses)))["reward/note"] == 0.1
    # The right answer is worth what it was.
    assert pay(episode(search(FOUND), answer("Orsolya Venn")))["reward/total"] == 1


def test_autorefine_pays_f1_first():
    pay = open_solver("autorefine").pay
    half = pay(episode(*HALF))
    assert half["reward/total"] == half["answer/f1"] == pytest.approx(2 / 3)
    assert half["answer/exact_match"] == 0.0
    assert pay(episode(*NOTED))["reward/total"] == 0.1


def test_evalact_pays_f1_if_the_format_holds():
    solver = open_solver("evalact", settings=EvaluationSettings(bad_score="clamp"))
    assert isinstance(solver.protocol, EvaluateSolver)
    broken = solver.pay(episode(search(FOUND), answer("Orsolya Venn")))  # a search that nobody evaluated
    assert broken == {
        "answer/exact_match": 1.0,
        "answer/f1": 1.0,
        "reward/answer": 0.0,
        "reward/total": 0.0,
        "format/held": 0.0,
    }
    paid = solver.pay(episode(*TWO, answer("Venn")))
    assert paid == pytest.approx(
        {
            "answer/exact_match": 0.0,
            "answer/f1": 2 / 3,
            "reward/answer": 2 / 3,
            "reward/total": 2 / 3,
            "format/held": 1.0,
            "evaluate/mean_score": 5.5,
        }
    )
    unfinished = solver.pay(episode(*TWO))
    assert (unfinished["reward/total"], unfinished["format/held"]) == (0.0, 0.0)


def test_a_thought_before_an_evaluation_may_be_forbidden():
    solver = open_solver("evalact", settings=EvaluationSettings(think_before_evaluate="fail", bad_score="clamp"))
    assert (solver.protocol.think_before_evaluate, solver.protocol.bad_score) == ("fail", "clamp")
    thoughtful = (search(FOUND), evaluate(9.0), answer("Venn"))
    assert solver.pay(episode(*thoughtful))["reward/total"] == 0.0
    plain = structs.replace(evaluate(9.0), text="<tool_call>...</tool_call>")
    assert solver.pay(episode(search(FOUND), plain, answer("Venn")))["reward/total"] > 0


def test_evalact_weighs_and_measures():
    played = episode(*TWO, answer("Venn"))
    solver = open_solver("evalact")
    assert solver.weigh(played) == weigh_pairs(played)
    assert solver.measure([played])["evaluate/score"] == 5.5
    plain = open_solver("evalact", settings=EvaluationSettings(pcar=False))
    assert plain.weigh is None and plain.measure is not None


# ------------------------------------------------------------------------------------------------------- measuring


def test_the_parts_of_a_reward_are_logged():
    paid = [
        {
            "answer/exact_match": 1.0,
            "answer/f1": 1.0,
            "reward/total": 1.0,
            "format/held": 1.0,
            "evaluate/mean_score": 4.0,
        },
        {"answer/exact_match": 0.0, "answer/f1": 0.5, "reward/total": 0.0, "format/held": 0.0},
    ]
    # The scores of evaluations are measured over evaluations, not over episodes: see `measure_evaluations`.
    assert mean_parts(paid) == {
        "answer/exact_match": 0.5,
        "answer/f1": 0.75,
        "reward/mean": 0.5,
        "format/held": 0.5,
    }
