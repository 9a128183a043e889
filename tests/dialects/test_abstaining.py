"""A solver of every dialect may say that the documents do not answer, where that is allowed; what it is paid for it."""

import pytest

import tiny
from evaluated import passage, search
from quaere.api.evolution import ConfigOptions
from quaere.chat.renderer import Renderer
from quaere.dialects.notes import Notes, read_notes
from quaere.dialects.registry import FROM_MEMORY, SOLVER_DIALECTS, find_dialect, open_protocol, open_solver
from quaere.dialects.roles import Solver, SolverDialect, is_right, let_abstain, measure_abstention, pay_abstention
from quaere.errors import BadInput
from quaere.objectives.policy_gradient import grpo
from quaere.recipes.registry import find_recipe
from quaere.records import Answer, Episode, Question, SolveTask
from quaere.rewards.abstention import ABSTENTION, AbstentionRewards, hide_answers
from quaere.rollout.episode import Limits, run_episode
from quaere.rollout.policy import TokenPolicy
from scripted import ScriptedSampler

QUESTION = Question("q", "Who built the Halm bridge?", ("Venn",))
HIDDEN = hide_answers(QUESTION)
DIALECTS = sorted(set(SOLVER_DIALECTS) - set(FROM_MEMORY))
ANSWER = f"<think>It is not there.</think><answer>{ABSTENTION.capitalize()}.</answer>"


SEARCHED = (search(passage("It is old.", "halm")),)


def ended(text, question=QUESTION, *, abstained=False, turns=SEARCHED):
    return Episode("e", SolveTask(question), "p", "m", 0, (), turns, Answer(text, abstained=abstained), "answered")


def opening(dialect, **how):
    return open_protocol(dialect, **how).opening(SolveTask(QUESTION))[0].text


@pytest.mark.parametrize("style", ["full", "brief"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_only_a_prompt_that_allows_it_speaks_of_it(dialect, style):
    without, allowed = opening(dialect, style=style), opening(dialect, style=style, abstention=True)
    assert ABSTENTION not in without
    assert allowed.startswith(without) and allowed.count(ABSTENTION) == 1


@pytest.mark.parametrize("dialect", DIALECTS)
def test_only_a_protocol_that_allows_it_reads_it_as_abstaining(dialect):
    said = f"{ABSTENTION.capitalize()}."
    assert open_protocol(dialect, abstention=True).read(ANSWER) == Answer(said, abstained=True)
    assert open_protocol(dialect).read(ANSWER) == Answer(said)
    assert not open_protocol(dialect, abstention=True).read("<answer>Venn</answer>").abstained


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_last_reply_reminds_of_it(dialect):
    protocol = open_protocol(dialect, abstention=True)
    assert protocol.finish.endswith(f'or "{ABSTENTION}" if no document says it')
    assert ABSTENTION not in open_protocol(dialect).finish


def test_a_guided_solver_may_abstain_too():
    assert opening("tool-call", guided=True, abstention=True).count(ABSTENTION) == 1


def test_a_dialect_that_cannot_abstain_is_refused(monkeypatch):
    class Mute(type(open_protocol("search-r1"))):
        abstention = property(lambda self: False, lambda self, value: None)

    mute = SolverDialect(lambda options: Solver(Mute("search-r1")))
    monkeypatch.setattr("quaere.dialects.registry.find_dialect", lambda dialect, role: mute)
    with pytest.raises(BadInput, match="the dialect mute has no way to abstain"):
        open_solver("mute", abstention=REWARDS)


# --------------------------------------------------------------------------------------------------------------- reward


REWARDS = AbstentionRewards(right=0.3, needless=0.1)


@pytest.mark.parametrize(("needless", "abstained"), [(0.0, 0.0), (0.1, 1.5), (0.5, 1.5), (-1.0, -1.5)])
def test_a_hard_question_teaches_to_abstain_by_the_sign_of_its_reward(needless, abstained):
    """In a group without a right attempt, only the sign of what a needless abstention earns matters."""
    solver = open_solver("search-r1", abstention=AbstentionRewards(needless=needless))
    group = [ended(ABSTENTION, abstained=True), ended("Brod"), ended("Oss"), ended("Oss")]
    advantages = grpo([solver.pay(episode)["reward/total"] for episode in group], [0] * 4).values
    assert advantages == pytest.approx([abstained, *[-abstained / 3] * 3], abs=1e-3)


@pytest.mark.parametrize(
    ("episode", "expected", "right"),
    [
        (ended("Venn"), 1.0, True),
        (ended("Brod"), 0.0, False),
        (ended(ABSTENTION, abstained=True), 0.1, False),
        (ended(ABSTENTION), 0.0, False),  # where it is not allowed, it is a wrong answer
        (ended(ABSTENTION, HIDDEN, abstained=True), 0.3, True),
        (ended("Venn", HIDDEN), 0.0, False),  # a guess: nothing that it was shown says so
    ],
)
@pytest.mark.parametrize("dialect", ["search-r1", "tool-call", "evalrar", "autorefine"])
def test_right_earns_1_abstaining_by_whether_there_is_an_answer_and_wrong_0(dialect, episode, expected, right):
    paid = open_solver(dialect, abstention=REWARDS).pay(episode)
    assert paid["reward/total"] == expected
    assert paid["answer/abstained"] == float(episode.abstained)
    assert paid["answer/unanswerable"] == float(not episode.task.question.answers)
    assert is_right(episode) is right


@pytest.mark.parametrize(("held", "expected"), [(1.0, 0.1), (0.0, 0.0)])
def test_in_a_gated_dialect_a_broken_format_is_not_paid(held, expected):
    def pay(episode):
        return {"reward/total": 0.0, "format/held": held}

    abstained = ended(ABSTENTION, abstained=True)
    assert pay_abstention(abstained, pay, REWARDS, gated=True)["reward/total"] == expected
    assert pay_abstention(abstained, pay, REWARDS)["reward/total"] == 0.1


@pytest.mark.parametrize(("needless", "expected"), [(0.5, 0.0), (-1.0, -1.0)])
def test_abstaining_without_a_search_earns_nothing(needless, expected):
    solver = open_solver("search-r1", abstention=AbstentionRewards(right=1.0, needless=needless))
    assert solver.pay(ended(ABSTENTION, HIDDEN, abstained=True, turns=()))["reward/total"] == 0.0
    assert solver.pay(ended(ABSTENTION, abstained=True, turns=()))["reward/total"] == expected


def test_its_shares_are_measured_beside_what_the_dialect_measures():
    solver = let_abstain(Solver(open_protocol("search-r1"), measure=lambda episodes: {"own": 1.0}), REWARDS)
    episodes = [
        ended("Venn"),
        ended("Brod"),
        ended("Brod"),
        ended(ABSTENTION, abstained=True),
        ended(ABSTENTION, HIDDEN, abstained=True),
        ended("Venn", HIDDEN),
    ]
    assert solver.measure(episodes) == {"own": 1.0, "abstention/answerable": 0.25, "abstention/unanswerable": 0.5}
    assert measure_abstention(episodes[:3]) == {"abstention/answerable": 0.0}


# ------------------------------------------------------------------------------------------------------- whole episodes


async def play(question, texts, script, **limits):
    renderer = Renderer(tiny.tokenizer())
    policy = TokenPolicy(ScriptedSampler(renderer.tokenizer, {"e": script}), renderer)
    protocol = open_protocol("search-r1", abstention=True)
    allowed = Limits(max_turns=3, sequence_tokens=4096, **limits)
    return await run_episode(policy, protocol, tiny.ListSearcher(texts), SolveTask(question), allowed, episode_id="e")


TEXTS = ("Venn built it.", "Halm is long.", "Venn was born here.", "Oss is short.", "Korrin is old.")


@pytest.mark.parametrize("titles_first", [False, True])
async def test_hidden_passages_are_replaced_by_the_next(titles_first):
    script = ["<search>Halm bridge</search>", ANSWER]
    shown = {}
    for question in (QUESTION, HIDDEN):
        episode = await play(question, TEXTS, script, topk=2, titles_first=titles_first)
        shown[question.id] = [hit.passage.text for hit in episode.turns[0].results[0].hits]
        assert episode.abstained and episode.outcome.abstained
    assert shown == {"q": ["Venn built it.", "Halm is long."], "q-hidden": ["Halm is long.", "Oss is short."]}


async def test_confidence_is_the_mean_probability_of_the_answers_tokens():
    episode = await play(QUESTION, TEXTS, ["<search>Halm</search>", "<think>So it is.</think><answer>Venn</answer>"])
    assert episode.confidence == pytest.approx(0.36788, abs=1e-5)  # every scripted token has log-prob -1
    turn = episode.turns[-1]
    assert turn.start < turn.acts_at < turn.start + turn.num_tokens  # the thought does not count
    cut = await play(QUESTION, TEXTS, ["<search>Halm</search>"])
    assert cut.confidence is None


# ---------------------------------------------------------------------------------------------------------------- notes


def test_a_warm_up_with_abstention_is_noted(tmp_path):
    (tmp_path / "warmup.json").write_text('{"recipe": "search-r1", "style": "brief", "abstention": 0.2}')
    assert read_notes(tmp_path).abstention
    (tmp_path / "warmup.json").write_text('{"recipe": "search-r1", "style": "brief"}')
    assert not read_notes(tmp_path).abstention
    assert not Notes().abstention
    assert find_dialect("search-r1", "solver").demonstration is not None


@pytest.mark.parametrize(
    ("recipe", "options", "expected"),
    [
        ("search-r1", {}, True),
        ("search-r1", {"assignments": ("solver.abstention.allowed=false",)}, False),
        ("search-r1", {"preset": "paper"}, False),
        ("sft", {}, False),  # answers from memory: no document is said to lack them
        ("sft", {"dialect": "search-r1"}, True),
    ],
)
def test_a_model_that_was_taught_it_practises_it(tmp_path, recipe, options, expected):
    (tmp_path / "warmup.json").write_text('{"recipe": "search-r1", "style": "brief", "abstention": 0.2}')
    config = ConfigOptions(model=str(tmp_path), **options).load(find_recipe(recipe))
    assert config.solver.abstention.allowed is expected
