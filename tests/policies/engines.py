"""Small engines, and sessions that are played on them turn by turn."""

import random
from functools import cache

import tiny
from quaere.policies.native.bridge import use_packed_attention
from quaere.policies.native.engine import Engine, Request
from quaere.policies.sampler import SamplingParams

TOKENIZER = tiny.tokenizer()


def make_model():
    return use_packed_attention(tiny.model("llama"))


MODEL = make_model()


def make_engine(max_rows=4, ahead=False, model=MODEL, **options):
    """An engine over the model all share; who changes weights brings a model of their own."""
    engine = Engine(model, TOKENIZER.decode, max_rows=max_rows, **options)
    if ahead:  # as a GPU is driven
        engine.lookahead, engine.patience = 1, 8
    return engine


def play(engine, sessions, turns=3, end=True):
    """Several sessions turn by turn, each adding an observation to what it has; returns all they sampled."""
    contexts = {name: list(prompt) for name, prompt in sessions.items()}
    heard = {name: [] for name in sessions}
    for turn in range(turns):
        for number, (name, context) in enumerate(contexts.items()):
            params = SamplingParams(max_tokens=3 + (number + turn) % 4, seed=10 * number + turn)
            engine.add(Request(f"{name}/{turn}", context, params, name))
        while engine.busy:
            for done in engine.step():
                name = done.key.split("/")[0]
                heard[name].append(done.sampled().token_ids)
                contexts[name] += [*done.new_tokens, 9, turn + 1, 7]
    if end:
        for name in sessions:
            engine.end(name)
    return heard


def prompt(seed, length=40):
    draw = random.Random(seed)
    return [draw.randrange(400) for _ in range(length)]


def finish(engine):
    """Step until nothing is left; returns what was done on the way."""
    done = []
    for _ in range(2000):
        if not engine.busy:
            return done
        done += engine.step()
    raise AssertionError("the engine does not come to an end")


def alone(tokens, **params):
    """What a fresh engine samples after these tokens."""
    return list(_alone(tuple(tokens), SamplingParams(**params)))


@cache
def _alone(tokens, params):
    engine = make_engine(max_rows=1, reuse=False)
    engine.add(Request("alone", list(tokens), params))
    return finish(engine)[0].new_tokens
