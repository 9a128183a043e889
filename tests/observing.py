"""What can be seen of settings without a run: functions from a struct to something that can be compared."""

import asyncio
import threading
from types import SimpleNamespace
from unittest import mock

import numpy as np
import torch
from msgspec import structs

import tiny
from judging import HARNESS, QUESTION, RUBRIC, assess_task, report
from quaere.chat.renderer import Renderer
from quaere.dialects.report.assessment import Assessor
from quaere.dialects.report.rubric import RubricChooser
from quaere.dialects.tool_call import ToolCallSolver
from quaere.errors import BadInput, SearchFailed
from quaere.recipes.drzero import DrZeroConfig, judge_proposal, proposer_protocol
from quaere.recipes.eve import EveConfig, judge_triple
from quaere.recipes.passage_clusters import Embedded
from quaere.recipes.score.config import ScoreConfig
from quaere.recipes.score.harness import Statistics, default_harness, parse_harness
from quaere.recipes.score.memory import Scheduler
from quaere.recipes.score.metaharness import RulesHarness
from quaere.recipes.score.train import Judged, Score, open_meta
from quaere.recipes.selector import Selector
from quaere.records import (
    Answer,
    Candidate,
    Dimension,
    Episode,
    Hit,
    Proposal,
    ProposeTask,
    Question,
    RubricTask,
    Search,
    SearchResult,
    Segment,
    SolveTask,
    Support,
    Turn,
)
from quaere.rewards.reports import ReportPay
from quaere.rollout.episode import Job, Limits, run_episode
from quaere.rollout.policy import TokenPolicy
from quaere.training.actors import Actors
from quaere.training.adapters import add_adapters
from quaere.training.assessments import assess_reports, view_reports
from quaere.training.batches import Sample
from quaere.training.evidence import Claim, claim_of, trace, verification_jobs
from quaere.training.health import Watch
from quaere.training.learner import Learner
from quaere.training.proposals import ProposerConfig
from quaere.training.report_run import Written
from quaere.training.self_play import check_self_play as check_config
from quaere.training.settings import RunConfig
from quaere.training.solver_phase import solver_of
from scripted import ScriptedSampler

# -------------------------------------------------------------------------------------------------------- the learner


def sample(tokens, *advantages):
    mask = (False, *(True for _ in advantages))
    return Sample(tokens, mask, (0.0, *(-1.0 for _ in advantages)), (0.0, *advantages))


# Of two and three tokens, one of them flat; the second batch has another gradient, of another size.
BATCHES = [
    [sample((5, 6, 7), 1.0, 1.0), sample((9, 3, 4, 2), -0.5, -0.5, -0.5), sample((8, 1, 2), 0.0, 0.0)],
    [sample((11, 12, 13), 0.1, -0.2)],
]


def learned(settings):
    """The weights after two updates, to five digits; what was measured; how it was computed."""
    torch.manual_seed(0)
    learner = Learner(tiny.model(), settings, reference=tiny.model(seed=1), warmup_steps=settings.warmup_steps(8))
    passes = []
    learner.model.model.layers[0].register_forward_pre_hook(lambda *_: passes.append(1))
    metrics = [learner.step(batch) for batch in BATCHES]
    weights = torch.cat([weight.detach().flatten() for weight in learner.model.parameters()])
    return (
        # A hundredth of a step of 0.01: what rounding does to an update lies far below.
        [round(float(part.abs().sum()), 4) for part in weights.split(5000)],
        [sorted((name, round(value, 4)) for name, value in step.items()) for step in metrics],
        len(passes),
        learner.model.is_gradient_checkpointing,
        type(learner.optimizer).__name__,
        learner.has_reference,
    )


def adapted(settings):
    """How many numbers an adapter has, and what one of ones does to a model."""
    model = add_adapters(tiny.model(), ("solver",), settings)
    trained = [weight for name, weight in model.named_parameters() if "lora" in name]
    with torch.no_grad():
        for weight in trained:
            weight.fill_(0.01)
        logits = model(torch.tensor([[1, 2, 3]])).logits
    return sum(weight.numel() for weight in trained), round(float(logits.abs().sum()), 2)


# ------------------------------------------------------------------------------------------------------------ episodes

CALL = '<tool_call>{"name": "search", "arguments": {"query_list": ["a", "b"]}}</tool_call>'


def script_episode(turns):
    """A policy that writes these turns, a task, a searcher, and the list of what each turn will be asked for."""
    tokenizer = tiny.tokenizer()
    asked = []

    class Sampler(ScriptedSampler):
        async def sample(self, session, token_ids, params):
            asked.append(params)
            return await super().sample(session, token_ids, params)

    again = {f"q~{number}": turns for number in range(1, 9)}  # where it is played again
    policy = TokenPolicy(Sampler(tokenizer, {"q": turns, **again}), Renderer(tokenizer))
    searcher = tiny.ListSearcher([f"Passage {number} on the bridge. " * 4 for number in range(6)])
    searcher.hits[3] = Hit(tiny.passage("Passage 3, which a query names.", title="a", number=3), -3.0)
    task = SolveTask(Question("q", "Who built the Halm bridge?", ("Venn",)))
    return policy, task, searcher, asked


def played(limits):
    """What an episode of many searches and a long answer came to, token by token."""
    turns = [CALL, CALL, CALL, "<think>" + "x" * 300 + "</think><answer>Venn</answer>"]
    policy, task, searcher, asked = script_episode(turns)
    episode = asyncio.run(run_episode(policy, ToolCallSolver(), searcher, task, limits))
    told = [(turn.reply, turn.failure, len(turn.results)) for turn in episode.turns]
    return episode.end, episode.outcome, episode.token_ids, told, [params.max_tokens for params in asked]


class Alone(Actors):
    """Has one role and no weights."""

    def become(self, role):
        pass


class Dead:
    """A search engine that is never there."""

    async def search(self, queries, topk):
        raise SearchFailed("down", kind="unreachable")


def acted(sampling=None, search=None):
    """What a role's turn was drawn with, how often an episode was played, and how long was waited in between."""
    policy, task, _, asked = script_episode([CALL, "x"])
    options = {"sampling": sampling} if sampling else {"search": search}
    actors, waits = Alone(policy, {}, RunConfig(**options), shared=False), []

    async def run():
        async def wait(seconds):
            waits.append(seconds)

        with_pauses, here = asyncio.sleep, threading.get_ident()

        def sleep(seconds, *result):  # a server of another test may sleep in a thread of its own
            is_ours = seconds and threading.get_ident() == here
            return wait(seconds) if is_ours else with_pauses(seconds, *result)

        asyncio.sleep = sleep
        try:
            return await actors.play("solver", [Job(ToolCallSolver(), task, "q")], Dead(), Limits(max_turns=2), seed=1)
        finally:
            asyncio.sleep = with_pauses

    found = asyncio.run(run())
    return [(one.temperature, one.top_p, one.top_k) for one in asked][:1], len(found.spoiled), waits


def allowed(sampling):
    """Why a run may not sample so; nothing if it may."""
    try:
        check_config(DrZeroConfig(sampling=sampling))
    except BadInput as error:
        return str(error)
    return ""


# ------------------------------------------------------------------------------------------------------------ proposer

DOCUMENT = tiny.passage("The Halm bridge crosses the Oss.", number=1)


SEGMENTS = (Segment("prompt", (1,), (0.0,), (False,)), Segment("model", (2,), (-1.0,), (True,)))


def proposal(question, task, num_queries, span=""):
    """An episode of the proposer that searched so often and then wrote this question."""
    queries = tuple(f"query {number}" for number in range(num_queries))
    results = tuple(SearchResult(query, (Hit(tiny.passage("Venn built it.", number=2), 1.0),)) for query in queries)
    written = Proposal(question, "Venn", span)
    turns = [Turn(0, "<think>Who?</think>", Search(queries), "stop_string", results=results)] if queries else []
    turns.append(Turn(1, "<think>So.</think>", written, "stop_string"))
    return Episode(task.id, task, "p", "m", 0, SEGMENTS, tuple(turns), written, "answered")


def paid_proposer(reward):
    """What a good question, one that holds its answer and one with its answer inside a word earn."""
    config = ProposerConfig(reward=reward)
    found = []
    questions = (("Who built the Halm bridge?", 2, 1), ("Did Venn build it?", 1, 0), ("Is Venna old?", 1, 0))
    questions += (("Who built it, Venn or Brod?", 1, 0),)
    for question, hops, num in questions:
        read = reward.read(proposal(question, ProposeTask("p", DOCUMENT, hops), num))
        tried = structs.replace(read, num_right=1, num_attempts=4) if read.question else read
        judged = judge_proposal(tried, config)
        found.append((judged.reward.total, read.score.valid, reward.min_searches(hops)))
    return found


def paid_solver(config):
    """What half an answer earns, and how it was asked for."""
    solver = solver_of(config, "full")
    task = SolveTask(Question("q", "Who built it?", ("Orsolya Venn",)))
    turn = Turn(0, "<answer>Venn</answer>", Answer("Venn"), "stop_string")
    return solver.pay(Episode("e", task, "s", "m", 0, (), (turn,), Answer("Venn"), "answered")), solver.protocol.name


def quoted(evidence):
    """What a proposal with a long verbatim span and one with a made-up span earn, and how both roles are asked."""
    config = EveConfig(evidence=evidence)
    found = []
    for span in ("Venn built it. " * 50, "Venn did it."):
        task = ProposeTask("p", tiny.passage("Who? " + "Venn built it. " * 99), 1)
        read = config.proposer.reward.read(proposal("Who built the Halm bridge?", task, 0, span=span.strip()))
        (traced,) = trace([read], evidence, lambda text: len(text.split()))
        support = Support(1.0, 0.5, 4) if claim_of(traced, evidence) else None
        judged = judge_triple(structs.replace(traced, support=support, num_right=1, num_attempts=2), config)
        found.append((judged.reward, traced.refusals))
    return found, proposer_protocol(config, evidence=evidence.cite).opening(task)


# ------------------------------------------------------------------------------------------------- verifier and health


def selected(settings):
    """Choices of three iterations among passages that lie around four topics, and what each arm has earned."""
    chance = np.random.default_rng(0)
    vectors = chance.normal(size=(4, 8))[np.arange(60) % 4] + 0.3 * chance.normal(size=(60, 8))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    selector = Selector(Embedded(vectors.astype(np.float32), "synthetic"), settings, seed=7)
    choices = []
    for iteration in range(3):
        choices.append(selector.draw(12, seed=iteration))
        asked = Candidate("a", 1, 0, "a", "", 1, "Who built the old bridge?", "Venn")
        written = [structs.replace(asked, cluster=one.cluster, question_type=one.question_type) for one in choices[-1]]
        selector.count(choices[-1], [1.0] * len(choices[-1]))
        selector.learn(iteration, written, proposer_reward=1.6, solver_reward=0.2)
    return choices, selector.state.clusters.rewards.tolist()


def verified(settings):
    claims = [Claim("c", "Who?", ("Venn",), "Venn built it.")]
    jobs = verification_jobs(claims, settings, "v")
    return [(job.episode_id, job.protocol.prefix(0, True)) for job in jobs], settings.limits


def watched(settings):
    """Which alarms ring, and when, as a run gets worse and worse in every way."""
    watch = Watch(settings)
    rung = []
    for share in (0.9, 0.5, 0.1, 0.03, 0.015, 0.004, 0.0, 0.0):
        bad = 1 - share
        metrics = {
            "policy/entropy": share,
            "reports/model_tokens": 100 * share,
            "reports/call_validity": share,
            "advantage/nonzero": share,
            "mismatch/mean": bad,
            "sampler/update_seen": share,
            "solver/searches_kept": share,
            "abstention/answerable": bad,
            "abstention/unanswerable": share,
            "scores/ceiling": bad,
            "scores/spread": share,
            "gauge/citation_hack": bad,
        }
        for role in ("actor", "solver"):
            rung.append([alarm.kind for alarm in watch.check(metrics, role)])
    return rung


# --------------------------------------------------------------------------------------------------------------- SCORE


def scheduled(settings):
    scheduler = Scheduler(settings)
    rubrics = [("coverage", "insight"), ("coverage", "depth"), ("insight", "depth"), ("citation", "coverage")]
    for step, (names, values) in enumerate(zip(rubrics, ([0.4, 0.6], [0.8], [0.1, 0.3], [0.6]), strict=True)):
        chosen = structs.replace(RUBRIC, weights=tuple(structs.replace(RUBRIC.weights[0], dimension=n) for n in names))
        scheduler.record(step, chosen, values)
    return scheduler.hints(HARNESS)


def ruled(settings):
    """What the rules make of a harness, for one sign of trouble at a time."""
    wide = structs.replace(HARNESS, dimensions=structs.replace(HARNESS.dimensions, k=6))
    found = []
    for changes in (
        {"share_invalid_rubrics": 0.3},
        {"share_under_verified": 0.6},
        {"num_scored": 9, "score_spread": 0.5, "share_at_ceiling": 0.6},
        {"num_scored": 9, "score_spread": 0.02},
        {"citation_change": -0.1, "reward_change": 0.1},
        {"entropy": 0.7, "entropy_change": -0.3},
    ):
        for harness in (HARNESS, wide):
            statistics = Statistics(**{"score_spread": None, **changes})
            found.append(asyncio.run(RulesHarness(settings).regenerate(statistics, harness, HARNESS)))
    return found


def harnessed(settings):
    """Who makes the harness anew, and the endpoint that is asked for it."""
    with mock.patch("quaere.recipes.score.train.OpenAISampler", side_effect=lambda endpoint: endpoint) as asked:
        return type(open_meta(settings)).__name__, asked.call_args


def bounded(limits):
    """Which harnesses are refused."""
    text = "x" * 280
    more = tuple(Dimension(f"more{'abcdefghij'[number]}", text) for number in range(8))
    process = structs.replace(HARNESS.process, min_tool_calls=4)
    found = [parse_harness(" " * 15_000 + "{}", HARNESS, limits)]
    for changes in ({"process": process}, {"pool": (*HARNESS.pool, *more)}, {"notes": "x" * 900}):
        try:
            found.append(default_harness(**changes, limits=limits))
        except BadInput as error:
            found.append(str(error))
    return found


def offered(dimensions=HARNESS.dimensions, process=HARNESS.process):
    """What an evaluator reads: when it chooses a rubric, and when it assesses."""
    harness = structs.replace(HARNESS, dimensions=dimensions, process=process)
    chooser = RubricChooser(harness)
    rubric = chooser.read("<rubric>\nfactuality\ncoverage: 0.4\ninsight: 0.2\n</rubric>")
    assessor = Assessor(RUBRIC, 2, process=process)
    openings = chooser.opening(RubricTask("r", ("What?",), harness)), assessor.opening(assess_task(harness=harness))
    return openings, rubric


def compared(solver):
    """What four reports on two questions are worth beside one another."""
    episode = Episode("r", SolveTask(QUESTION), "r", "m", 0, (), (), None, "answered")
    judged = [
        Judged(Written(episode, report()), place, None, ReportPay(1.0, 0.0, True, total))
        for place, total in ((0, 0.0), (0, 1.0), (1, 0.5), (1, 0.75))
    ]
    config = ScoreConfig(solver=structs.replace(solver, frozen=True))
    score = Score(config, SimpleNamespace(training=None, stage=None), SimpleNamespace(), None)
    values = score.update_solver(SimpleNamespace(seed=0, metrics={}), judged).values.tolist()
    return [round(value, 6) for value in values], solver.writing_limits


def assessed(evaluator):
    """How an evaluator is sampled, and what it reads when it assesses two reports."""
    asked = []

    class Watching:
        async def play(self, step, role, jobs, limits, **how):
            asked.append((limits, how, [job.protocol.opening(job.task) for job in jobs]))
            ended = [Episode(job.episode_id, job.task, "e", "m", 0, (), (), None, "turn_limit") for job in jobs]
            return SimpleNamespace(episodes=ended)

    viewings = view_reports([[report(), report()]], [RUBRIC], HARNESS, passes=1, name="i0", seed=0)
    asyncio.run(assess_reports(Watching(), None, "actor", viewings, evaluator))
    return asked
