"""A task in which what was found has to be judged: go on searching after a bad page, answer after a good one.

Who built a bridge stands in one of two books, and nothing tells in which: it is drawn anew for every question. The page
that is wanted says "built" and a name, the page of the other book says "mended" and a name that is of no use. Taught
the format only, the policy opens either book, notes any word of the page and gives it any score, then tosses a coin: it
hands in the name it saw, or opens the other book and hands in the name it sees there. It is right every other time.
What it has to learn is *when* to search again and when to answer; then it is always right. To search again regardless
is no way out, because whoever leaves a good page finds the bad one, and nobody was taught to look back.

Nothing of the protocols is left out or shortened. Whole pieces of them are single tokens, the system prompt among them.
"""

import asyncio
import math
import random
from functools import lru_cache
from types import SimpleNamespace
from typing import NamedTuple

import tiny
from quaere.chat.renderer import Renderer
from quaere.dialects.evalact import cue
from quaere.dialects.evalact_reward import judge_searches
from quaere.dialects.registry import open_solver
from quaere.objectives.policy_gradient import grpo
from quaere.policies.native.bridge import use_packed_attention
from quaere.policies.native.engine import Engine
from quaere.policies.native.sampler import NativeSampler
from quaere.policies.sampler import SamplingParams
from quaere.records import Answer, Hit, Question, Search, SolveTask
from quaere.rollout.episode import Limits, run_episode
from quaere.rollout.policy import TokenPolicy, derive_seed
from quaere.training.actors import copy_weights
from quaere.training.batches import make_sample
from quaere.training.learner import Learner
from quaere.training.rollouts import learn, shuffled
from quaere.training.settings import LearnerSettings
from scripted import ScriptedSampler

BOOKS = ["register", "chronicle"]
BRIDGES = ["Halm", "Oss", "Korrin", "Tallow"]
PEOPLE = ["Venn", "Brod", "Hask", "Oleen", "Marl", "Tavi", "Quill", "Sorn"]
SCORES = [1, 5, 9]  # one of each tier
CHANCE = 1 / 2
NUM_QUESTIONS, NUM_ATTEMPTS = 8, 8

# A search and its evaluation are two turns under evalact; under evalrar the evaluation opens the turn after the search.
# Each paper sums its loss up in its own way.
MAX_TURNS = {"evalact": 5, "evalrar": 3}
AGGREGATION = {"evalact": "token_sum", "evalrar": "sequence_mean"}

TEMPLATE = """\
{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}\
{% if add_generation_prompt %}<|assistant|>{% endif %}"""
CALL = '<tool_call>{"name": "search", "arguments": {"query": "', '"}}</tool_call>'
SCORED = '<tool_call>{"name": "evaluate", "arguments": {"evaluation": "', '", "score": ', "}}</tool_call>"
ASK = "<search>", "</search>"
NOTE = "<evaluate>", "</evaluate>"
ANSWER = "<answer>", "</answer>"
SHOWN = ["<tool_response>\n", "\n</tool_response>", "<information>\n", "\n</information>", "[1]\n", "Question:\n"]


@lru_cache
def tokenizer(dialect):
    """Letters, names, and whole pieces of the format."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    built = Tokenizer(models.BPE())
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    built.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    words = [*BOOKS, *BRIDGES, *PEOPLE, "built", "mended"]
    built.train_from_iterator(words * 3, trainers.BpeTrainer(initial_alphabet=alphabet, show_progress=False))
    system = open_solver(dialect, style="brief").protocol.opening(SolveTask(Question("q", "Halm")))[0].text
    pieces = [*CALL, *SCORED, *ASK, *NOTE, *ANSWER, *SHOWN, system, *map(cue, SCORES)]
    built.add_tokens([AddedToken(piece, special=False, normalized=False) for piece in pieces])
    built.add_special_tokens(["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"])
    made = PreTrainedTokenizerFast(tokenizer_object=built, eos_token="<|end|>")
    made.chat_template = TEMPLATE
    return made


class Library:
    """A searcher with two books, one of which answers the question; each question has a library of its own."""

    def __init__(self, draw):
        self.builder, other = draw.sample(PEOPLE, 2)
        good, bad = draw.sample(BOOKS, 2)
        self.books = draw.sample(BOOKS, 2)
        self.pages = {good: f"built {self.builder}", bad: f"mended {other}"}

    async def search(self, queries, topk):
        texts = [self.pages.get(query) for query in queries]
        return [[Hit(tiny.passage(text, title=""), 1.0)] if text else [] for text in texts]

    async def close(self):
        pass


class Play:
    """An episode to be played, in its library."""

    def __init__(self, number, copy, library, bridge):
        self.name, self.library = f"q{number}-{copy}", library
        self.task = SolveTask(Question(f"q{number}", f"{bridge} {library.books[0]}", (library.builder,)))


def make_plays(draw, num_questions, per_question):
    asked = [(Library(draw), draw.choice(BRIDGES)) for _ in range(num_questions)]
    return [Play(number, copy, *known) for number, known in enumerate(asked) for copy in range(per_question)]


def random_script(draw, library, dialect):
    """A well-formed episode: any book first, any note, any score, a second search or not; the name seen last."""
    turns, note = [], ""
    books = library.books[: draw.choice([1, 2])]
    for book in books:
        said = library.pages[book]
        if dialect == "evalact":
            turns += [book.join(CALL), f"{SCORED[0]}{said}{SCORED[1]}{draw.choice(SCORES)}{SCORED[2]}"]
        else:
            turns.append(note + book.join(ASK))
            note = said.join(NOTE)
    return [*turns, note + library.pages[books[-1]].split()[1].join(ANSWER)]


class Measured(NamedTuple):
    """A step: mean reward, and how often the policy searched again after a bad page and answered after a good one."""

    reward: float
    again: float
    answered: float


def measure(episodes, rewards):
    bad, good = [], []
    for episode in episodes:
        verdicts = judge_searches(episode)
        if not verdicts:
            continue
        first = min(verdicts)
        acts = [turn.action for turn in episode.turns[first + 1 :] if isinstance(turn.action, Search | Answer)]
        if verdicts[first]:
            good.append(bool(acts) and isinstance(acts[0], Answer))
        else:
            bad.append(bool(acts) and isinstance(acts[0], Search))
    return Measured(*(sum(values) / max(1, len(values)) for values in (rewards, bad, good)))


def last_mean(history, last=10):
    """The means of the last steps, with the reward 0 at chance and 1 at the optimum."""
    reward, again, answered = (sum(values) / len(values) for values in zip(*history[-last:], strict=True))
    return Measured((reward - CHANCE) / (1 - CHANCE), again, answered)


class Reader:
    """A transformer from scratch that learns to solve in one dialect, and the sampler that plays its episodes."""

    def __init__(self, seed, dialect):
        self.dialect = dialect
        self.tokenizer = tokenizer(dialect)
        self.renderer = Renderer(self.tokenizer)
        self.solver = open_solver(dialect, style="brief")
        shape = {"vocab_size": len(self.tokenizer), "num_hidden_layers": 2, "tie_word_embeddings": False}
        self.model = tiny.model("llama", seed=seed, **shape)
        self.sampling = use_packed_attention(tiny.model("llama", seed=seed, **shape))
        self.draw = random.Random(seed)

    async def play(self, policy, plays, step):
        """All episodes at once, each with its own library, in lockstep: the batch is the same on every machine."""
        limits = Limits(MAX_TURNS[self.dialect], 12, 128, 16, max_searches=2, topk=1, answer_turn=False)
        for play in plays:
            policy.open(play.name)
        return await asyncio.gather(
            *(
                run_episode(
                    policy,
                    self.solver.protocol,
                    play.library,
                    play.task,
                    limits,
                    episode_id=play.name,
                    seed=derive_seed(step, number),
                    params=SamplingParams(),
                )
                for number, play in enumerate(plays)
            )
        )

    async def play_at_random(self, num_episodes, step=0):
        """Episodes that are well formed and otherwise random."""
        plays = make_plays(self.draw, num_episodes, 1)
        scripts = {play.name: random_script(self.draw, play.library, self.dialect) for play in plays}
        return await self.play(TokenPolicy(ScriptedSampler(self.tokenizer, scripts), self.renderer), plays, step)

    async def learn_format(self, num_steps=200):
        """Imitate such episodes."""
        learner = Learner(self.model, LearnerSettings(learning_rate=3e-3, weight_decay=0.0))
        for step in range(num_steps):
            learner.step([make_sample(episode, 1.0) for episode in await self.play_at_random(32, step)])

    def step(self, model, rate=1e-3):
        """A step of the solver's phase, as far as `learn` asks for it."""
        settings = LearnerSettings(learning_rate=rate, weight_decay=0.0, aggregation=AGGREGATION[self.dialect])
        return SimpleNamespace(learner=Learner(model, settings), metrics={}, measures_update=False, num_traced=0)

    async def reinforce(self, num_steps, *, spoil=False, rate=1e-3, enough=math.inf):
        """The solver's phase without its files; `spoil` gives every advantage to another episode.

        It ends before `num_steps` when reward and decisions of the last ten steps are all better than `enough`.
        """
        at = self.step(self.model, rate)
        engine = Engine(self.sampling, self.renderer.decode, max_rows=NUM_QUESTIONS * NUM_ATTEMPTS)
        history = []
        async with NativeSampler(engine, name="reader", mode="deterministic") as sampler:
            policy = TokenPolicy(sampler, self.renderer)
            for step in range(num_steps):
                copy_weights(self.model, self.sampling)
                plays = make_plays(self.draw, NUM_QUESTIONS, NUM_ATTEMPTS)
                episodes = await self.play(policy, plays, step)
                rewards = [self.solver.pay(episode)["reward/total"] for episode in episodes]
                history.append(measure(episodes, rewards))
                if len(history) >= 10 and min(last_mean(history)) > enough:
                    break
                advantages = grpo(rewards, [int(episode.task.id[1:]) for episode in episodes])
                if spoil:
                    advantages = shuffled(advantages, step)
                learn(at, episodes, advantages, self.solver.weigh)
        return history
