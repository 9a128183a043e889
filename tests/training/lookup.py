"""A task whose optimum is known, small enough for a transformer of a few thousand weights to learn by trial and error.

A question names a bridge and the river under it. A search for either finds two people: a builder and a banker. Who they
are is drawn anew for every question, so it cannot be learned by heart. Taught the format only, the policy searches for
either place and answers with either person, and is right one time in four. What it has to learn is *which* query and
*which* name: the bridge, and its builder. Then it is always right.

That bridges and rivers, builders and bankers have names of their own makes it a task of some fifteen updates. By order
alone, the first bridge of two and the first of two people, one seed took three times as many.
"""

import asyncio
import math
import random
from functools import lru_cache

from msgspec import structs

import tiny
from quaere.chat.protocol import Message, Quoted
from quaere.chat.renderer import Renderer
from quaere.dialects.tool_call import ToolCallSolver
from quaere.objectives.policy_gradient import grpo, hrpo
from quaere.policies.native.bridge import use_packed_attention
from quaere.policies.native.engine import Engine
from quaere.policies.native.sampler import NativeSampler
from quaere.policies.sampler import SamplingParams
from quaere.records import Answer, Hit, Question, SolveTask
from quaere.rewards.answers import exact_match_score
from quaere.rollout.episode import Limits, run_episode
from quaere.rollout.policy import TokenPolicy, derive_seed
from quaere.training.actors import copy_weights
from quaere.training.batches import make_sample
from quaere.training.learner import Learner
from quaere.training.settings import LearnerSettings
from scripted import ScriptedSampler

BRIDGES = ["Halm", "Oss", "Korrin", "Tallow"]
RIVERS = ["Mire", "Elde", "Sund", "Wick"]
BUILDERS = ["Venn", "Brod", "Hask", "Oleen"]
BANKERS = ["Marl", "Tavi", "Quill", "Sorn"]
CHANCE = 1 / 4
LIMITS = Limits(2, turn_tokens=12, sequence_tokens=256, tool_response_tokens=16, topk=1, answer_turn=False)
SEARCH = '<tool_call>{{"name": "search", "arguments": {{"query_list": ["{}"]}}}}</tool_call>'
ANSWER = "<answer>{}</answer>"


class Terse(ToolCallSolver):
    """The real protocol with an opening of three words."""

    def __init__(self, **how):
        super().__init__(**how)
        self.tools = ()

    def opening(self, task):
        return [Message("system", ("s",)), Message("user", (Quoted(task.question.text),))]


class Town:
    """A searcher that knows who built and who paid for two places; each question has a town of its own."""

    def __init__(self, draw):
        self.bridge, self.river = draw.choice(BRIDGES), draw.choice(RIVERS)
        pairs = zip(draw.sample(BUILDERS, 2), draw.sample(BANKERS, 2), strict=True)
        self.people = dict(zip((self.bridge, self.river), pairs, strict=True))

    async def search(self, queries, topk):
        texts = [" ".join(self.people.get(query.strip(), ("nothing",))) for query in queries]
        return [[Hit(tiny.passage(text, title=""), 1.0)] for text in texts]

    async def close(self):
        pass


@lru_cache
def tokenizer(*words):
    """Pieces of the format and further `words` are single tokens, so that an episode is some forty tokens long."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    built = Tokenizer(models.BPE())
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    built.decoder = decoders.ByteLevel()
    before, after = SEARCH.format("|").split("|")
    lines = [before, after, "<answer>", "</answer>", "<|im_start|>", *BRIDGES, *RIVERS, *BUILDERS, *BANKERS]
    lines += [
        "<tool_response>\n",
        "\n</tool_response>",
        "[1]\n",
        "system\n",
        "user\n",
        "assistant\n",
        "nothing",
        *words,
    ]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False)
    built.train_from_iterator(lines * 3, trainer)
    built.add_special_tokens([AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", special=True)])
    made = PreTrainedTokenizerFast(tokenizer_object=built, eos_token="<|im_end|>")
    made.chat_template = tiny.CHATML
    return made


class Play:
    """An episode to be played, in its town."""

    def __init__(self, number, copy, town):
        text, answer = f"{town.bridge} {town.river}", town.people[town.bridge][0]
        # `hops` alternates: it is the label by which HRPO groups.
        question = Question(f"q{number}", text, (answer,), hops=1 + number % 2)
        self.name, self.task, self.town = f"q{number}-{copy}", SolveTask(question), town


def make_plays(draw, num_questions, per_question):
    towns = [Town(draw) for _ in range(num_questions)]
    return [Play(number, copy, town) for number, town in enumerate(towns) for copy in range(per_question)]


def random_script(draw, town):
    """A well-formed episode that searches for either place and answers with either person."""
    place = draw.choice([town.bridge, town.river])
    return [SEARCH.format(place), ANSWER.format(draw.choice(town.people[place]))]


async def run_all(policy, plays, step, protocol):
    """All episodes at once, each with its own searcher, in lockstep: the batch is the same on every machine."""
    for play in plays:
        policy.open(play.name)
    return await asyncio.gather(
        *(
            run_episode(
                policy,
                protocol,
                play.town,
                play.task,
                LIMITS,
                episode_id=play.name,
                seed=derive_seed(step, number),
                params=SamplingParams(),
            )
            for number, play in enumerate(plays)
        )
    )


def reward_of(episode):
    if not isinstance(episode.outcome, Answer):
        return 0.0
    return exact_match_score(episode.outcome.text, episode.task.question.answers)


class Pupil:
    """A transformer from scratch, its learner, and the sampler that plays its episodes."""

    words = ()  # further words of its language
    family, layers = "llama", {"num_hidden_layers": 1}
    protocol = Terse()
    make_plays = staticmethod(make_plays)
    script = staticmethod(random_script)
    reward_of = staticmethod(reward_of)

    def __init__(self, seed):
        self.tokenizer = tokenizer(*self.words)
        self.renderer = Renderer(self.tokenizer)
        # One layer of large weights with a tied output learned to copy names in fewer updates than two small layers.
        shape = {"vocab_size": len(self.tokenizer), "scale": 6, **self.layers}
        model = tiny.model(self.family, seed=seed, **shape)
        self.sampling = use_packed_attention(tiny.model(self.family, seed=seed, **shape))
        self.model = model
        self.draw = random.Random(seed)

    async def learn_format(self, num_steps=70):
        """Imitate episodes that are well formed and otherwise random: any query, any name."""
        learner = Learner(self.model, LearnerSettings(learning_rate=6e-3, weight_decay=0.0))
        for step in range(num_steps):
            plays = self.make_plays(self.draw, 32, 1)
            scripts = {play.name: self.script(self.draw, play.town) for play in plays}
            policy = TokenPolicy(ScriptedSampler(self.tokenizer, scripts), self.renderer)
            played = await run_all(policy, plays, step, self.protocol)
            learner.step([make_sample(episode, 1.0) for episode in played])

    async def reinforce(self, num_steps, advantages, spoil=lambda samples, draw: samples, rate=2e-3, enough=math.inf):
        """The real loop: sample episodes, reward them, standardise, one gradient step, weights to the sampler.

        It ends before `num_steps` when the last ten rewards, normalised, are more than `enough`.
        """
        learner = Learner(self.model, LearnerSettings(learning_rate=rate, weight_decay=0.0, aggregation="token_mean"))
        engine = Engine(self.sampling, self.renderer.decode, max_rows=64)
        history = []
        async with NativeSampler(engine, name="pupil", mode="deterministic") as sampler:
            policy = TokenPolicy(sampler, self.renderer)
            for step in range(num_steps):
                copy_weights(learner.model, self.sampling)
                plays = self.make_plays(self.draw, *((8, 8) if advantages == "grpo" else (64, 1)))
                episodes = await run_all(policy, plays, step, self.protocol)
                rewards = [self.reward_of(episode) for episode in episodes]
                history.append(self.measure(episodes, rewards))
                if enough < math.inf and len(history) >= 10 and normalised(history) > enough:
                    break
                worth = self.advantages_of(advantages, episodes, rewards)
                samples = [make_sample(episode, float(value)) for episode, value in zip(episodes, worth, strict=True)]
                if any(any(sample.advantages) for sample in samples):
                    learner.step(spoil(samples, self.draw))
        return history

    def measure(self, episodes, rewards):
        """What is recorded of a step: the mean reward."""
        return sum(rewards) / len(rewards)

    def advantages_of(self, how, episodes, rewards):
        if how == "grpo":
            questions = [int(episode.task.id[1:]) for episode in episodes]
            return grpo(rewards, questions).values
        return hrpo(rewards, [episode.task.question.hops for episode in episodes]).values


def normalised(history, last=10):
    """Mean reward of the last steps, 0 at chance and 1 at the optimum."""
    reward = sum(history[-last:]) / last
    return (reward - CHANCE) / (1 - CHANCE)


def shuffled(samples, draw):
    """A control: every advantage belongs to another episode."""
    values = [max(sample.advantages, key=abs) for sample in samples]
    draw.shuffle(values)
    return [
        structs.replace(sample, advantages=tuple(value if flag else 0.0 for flag in sample.loss_mask))
        for sample, value in zip(samples, values, strict=True)
    ]


def inverted(samples, draw):
    """A control: the loss is on everything but the policy's own tokens."""
    return [
        structs.replace(
            sample,
            loss_mask=(False, *(not flag for flag in sample.loss_mask[1:])),
            advantages=(max(sample.advantages, key=abs),) * len(sample.advantages),
        )
        for sample in samples
    ]
