"""A proposer's step of Dr. Zero, measured from outside: `step.py --drzero` runs this in a worker.

The recipe's own `train` does the work on a generated world; methods are wrapped to see who is busy for how long.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import threading
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tables import as_table

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class Directed:
    """A protocol under which every turn does something: what, is drawn from a hash of what it says."""

    def __init__(self, inner: Any, titles: list[str], end: Any) -> None:
        self.name, self.tools, self.stop, self.marks = inner.name, inner.tools, inner.stop, inner.marks
        self.turns_per_search = inner.turns_per_search
        self.opening, self.prefix, self.reply = inner.opening, inner.prefix, inner.reply
        self._titles, self._end = titles, end

    def read(self, text: str, earlier: Any = ()) -> Any:
        from quaere.records import Search

        draw = random.Random(text)
        return Search((draw.choice(self._titles),)) if draw.random() < 0.6 else self._end(draw)


class Busy:
    """How long methods were busy, by the part they belong to; calls within calls of a thread count once."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inside = threading.local()

    def watch(self, owner: Any, name: str, part: str) -> None:
        method = getattr(owner, name)

        def timed(*given: Any, **also: Any) -> Any:
            if getattr(self._inside, "busy", False):
                return method(*given, **also)
            started, self._inside.busy = time.perf_counter(), True
            try:
                return method(*given, **also)
            finally:
                self._inside.busy = False
                self.seconds[part] += time.perf_counter() - started

        setattr(owner, name, timed)


class Finished(Exception):
    """Enough steps were taken."""


def run_drzero(spec: dict[str, Any]) -> dict[str, Any]:
    """The recipe's own `train`, until so many proposer steps are reported."""
    from quaere.policies.native.engine import Engine
    from quaere.recipes import drzero
    from quaere.runs import Run
    from quaere.training import actors
    from quaere.training.config import config_to_yaml, load_config
    from quaere.training.learner import Learner

    index, titles, texts = build_world(Path(spec["scratch"]), spec["articles"])
    if not spec["model"]:
        text_tokenizer(texts, spec["vocab"]).save_pretrained(spec["path"])
    if not spec["as_written"]:
        direct_turns(drzero, titles)
    limits = {
        "max_turns": 4,
        "turn_tokens": spec["new"],
        "sequence_tokens": 3072,
        "tool_response_tokens": 256,
        "topk": 2,
    }
    given = {
        "model": spec["path"],
        "index": str(index),
        "prompts": "brief",
        "engine.device": spec["device"],
        "engine.max_rows": 5 * spec["prompts"],
        "proposer.steps": 2 + spec["repeat"],  # never the last of its phase, which would write a checkpoint
        "proposer.batch": spec["prompts"],
        "proposer.limits": limits,
        "solver.limits": limits,
        "checkpoints.every": 10_000,
    }
    config = load_config(
        drzero.DrZeroConfig, presets=drzero.PRESETS, preset=None, file=None, assignments=spec["set"], given=given
    )
    busy, taken = Busy(), []
    watch_parts(busy, Engine, Learner, actors, Run)

    def note_step(report: Any) -> None:
        taken.append({"metrics": report.metrics, "busy_s": dict(busy.seconds)})
        busy.seconds.clear()
        if len(taken) == 1 + spec["repeat"]:
            raise Finished

    reporter: Any = SimpleNamespace(
        step=note_step, progress=lambda progress: None, note=lambda line: None, close=lambda: None
    )
    folder = Path(spec["scratch"]) / "run"
    with Run.create(folder, "evolve", {}, config=config_to_yaml(config)) as store, suppress(Finished):
        asyncio.run(drzero.train(config, store, reporter))
    return {"steps": taken[1:], "given": given}


def watch_parts(busy: Busy, engine: Any, learner: Any, actors: Any, run: Any) -> None:
    from quaere.chat.renderer import Renderer
    from quaere.search.index import Index

    busy.watch(engine, "step", "sampling")
    busy.watch(Index, "search", "searching")
    for name in ("opening", "reply", "encode_parts", "read_turn"):
        busy.watch(Renderer, name, "rendering")
    busy.watch(learner, "step", "learning")
    busy.watch(actors, "copy_weights", "copying weights")
    busy.watch(run, "add_episodes", "storing (after the step)")


def build_world(scratch: Path, num_articles: int) -> tuple[Path, list[str], list[str]]:
    """An index of a generated world, and the titles and texts in it."""
    from quaere.search.index import open_index
    from quaere.search.index_build import build_index
    from quaere.worlds import generate_world, write_world

    write_world(generate_world(7, num_articles, "evaluation"), scratch / "world", 0)
    build_index(scratch / "world" / "corpus.jsonl", scratch / "index")
    passages = list(open_index(scratch / "index").passages())
    return scratch / "index", sorted({passage.title for passage in passages}), [passage.text for passage in passages]


def text_tokenizer(texts: list[str], vocab: int) -> Any:
    """Byte-level BPE over the world's own text, no larger than the model's vocabulary, with ChatML around turns."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=min(vocab, 8192) - 2, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(texts, trainer)
    backend.add_special_tokens([AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", special=True)])
    made = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>")
    made.chat_template = CHATML
    return made


def direct_turns(recipe: Any, titles: list[str]) -> None:
    """Let the recipe read turns through `Directed`. Answers are yes or no, so that half of the attempts are right."""
    from msgspec import structs

    from quaere.records import Answer, Proposal

    proposer, solver = recipe.proposer_protocol, recipe.solver_of

    def propose(draw: random.Random) -> Proposal:
        return Proposal(f"Is {draw.choice(titles)} older than {draw.choice(titles)}?", draw.choice(("yes", "no")))

    def answer(draw: random.Random) -> Answer:
        return Answer(draw.choice(("yes", "no")))

    def open_solver(*args: Any, **options: Any) -> Any:
        opened = solver(*args, **options)
        return structs.replace(opened, protocol=Directed(opened.protocol, titles, answer))

    recipe.proposer_protocol = lambda *args, **options: Directed(proposer(*args, **options), titles, propose)
    recipe.solver_of = open_solver


def drzero_table(found: dict[str, Any]) -> str:
    steps = found["steps"]

    def median(values: list[float]) -> float:
        return statistics.median(values) if values else 0.0

    def metric(name: str) -> float:
        return median([step["metrics"][name] for step in steps if name in step["metrics"]])

    whole_s = metric("step/seconds")
    parts = sorted({part for step in steps for part in step["busy_s"]})
    busy_s = {part: median([step["busy_s"].get(part, 0.0) for step in steps]) for part in parts}
    rows = [("the whole step", f"{whole_s:.3f}", "100 %")]
    rows += [
        (part, f"{seconds:.3f}", f"{100 * seconds / whole_s:.0f} %")
        for part, seconds in sorted(busy_s.items(), key=lambda item: -item[1])
    ]
    counted = [
        (
            role,
            *(
                f"{metric(f'{role}/{name}'):.4g}"
                for name in ("episodes", "turns", "tokens", "tokens_per_s", "search_s")
            ),
        )
        for role in ("proposer", "solver")
    ]
    head = ("", "episodes", "turns", "tokens an episode", "new tokens/s", "s a search")
    said = f"{metric('batch/model_tokens'):,.0f} new tokens learned from, {found['memory_gib']:.2f} GiB"
    return "\n\n".join([as_table(("busy", "s", "of the step"), rows), as_table(head, counted), said])
