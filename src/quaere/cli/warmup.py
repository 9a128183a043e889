"""`quaere warmup`: teaches a small model the dialect of a recipe from demonstrated episodes.

quaere warmup drzero --model smollm2-135m --out warm
quaere warmup drzero --model blank --style brief --facts 1 --proposer-hops 1 --out tiny
quaere warmup eve --also drzero --model smollm2-135m --out warm
quaere warmup evalact --also evalrar --also search-r1 --model smollm2-135m --out warm
quaere warmup score --model smollm2-135m --out warm --lessons 5,2,3
quaere warmup drzero --model smollm2-135m --lora-rank 16 --adapter --dtype bfloat16 --out warm
quaere warmup drzero --model smollm2-135m --index docs-index --out warm
quaere warmup eve --model warm --index docs-index --questions checked.jsonl --roles proposer --out warmer
quaere warmup drzero --model smollm2-135m --out warm --teacher openai:qwen3-32b@http://localhost:8001/v1
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import structs

from quaere.api.printing import Lull, count, format_duration, show_progress
from quaere.api.warmup_settings import WarmupSettings, make_settings
from quaere.cli.options import Flag, JsonOption, Repeated, add_options, command, group
from quaere.cli.terminal import interruptible
from quaere.errors import BadInput
from quaere.training.progress import accept_stop
from quaere.warmup.dialects import DIALECTS

if TYPE_CHECKING:
    from quaere.warmup.imitation import TeachingStep, WarmupManifest

_FACTS, _HOPS, _LESSONS = "4,3,2,1", "4,3,2,1", "5,2,3"
# Settings of a warm-up by the heading they have in the help.
_GROUPS = {
    "lessons from your own documents": tuple(
        "index questions drafts attempts most scores_only shuffle_scores practice proposer_task max_rows".split()
    ),
    "limits of an episode": ("max_turns", "topk", "turn_tokens", "sequence_tokens", "tool_response_tokens"),
    "teaching": tuple("epochs batch learning_rate lora_rank adapter micro_tokens seed device dtype".split()),
}


class WarmupOptions(JsonOption, kw_only=True):
    """Options of `quaere warmup` that are typed in another way than `WarmupSettings` has them.

    Attributes:
        recipe: recipe whose dialect to teach
        also: also teach this recipe's dialect, with an equal share of the episodes; can be repeated
        roles: solver, proposer, evaluator (default: all that a recipe has)
        facts: solver: weights of questions that combine 1, 2, ... facts, a search each (default: 4,3,2,1)
        proposer_hops: proposer: weights of 1, 2, ... hops in Dr. Zero's count, in which n hops are n - 1 facts and
            searches (default: 4,3,2,1)
        hops: sets --facts and --proposer-hops to the same weights: the earlier name
        lessons: score: weights of reports, rubrics, assessments
        json: print JSON, one object a line
    """

    recipe: Annotated[str, Flag("recipe", choices=DIALECTS)]
    also: Annotated[tuple[str, ...], Repeated, Flag(choices=DIALECTS)] = ()
    roles: Annotated[str, "LIST"] | None = None
    facts: Annotated[str, "LIST"] | None = None
    proposer_hops: Annotated[str, "LIST"] | None = None
    hops: Annotated[str, "LIST"] | None = None
    lessons: Annotated[str, "LIST"] = _LESSONS


def _run(args: argparse.Namespace) -> None:
    from quaere.api.warmup import warm_up

    if args.roles is not None:
        args.roles = tuple(name for part in args.roles.split(",") if (name := part.strip()))
    notice = read_ratios(args)
    settings = make_settings(vars(args))
    with interruptible(f"no model is written to {args.out}"), open_display(args.json) as display:
        if notice:
            display.note(notice)
        manifest = warm_up(settings, display)
    if args.json:
        print(json.dumps({"event": "done", **msgspec.to_builtins(manifest)}), flush=True)
    else:
        _print_result(args, manifest)
    if manifest.stopped:
        raise KeyboardInterrupt


_TYPED = set(WarmupOptions.__struct_fields__) - {"recipe", "json"}
fill = command(
    _run,
    lambda parser: add_options(
        parser, WarmupOptions, WarmupSettings, only=("recipe", "model", "out", "force", "teacher", "json")
    ),
    group(
        "demonstrations",
        WarmupOptions,
        WarmupSettings,
        only={"episodes", "style", "abstention", "ignore_rubrics", "world_seed", "articles", *_TYPED},
    ),
    *(group(title, WarmupSettings, only=names) for title, names in _GROUPS.items()),
    description="""\
Demonstrate episodes on a fictional encyclopedia of the warm-up family, train the model to copy them, and write it as a
Hugging Face folder. The model learns the dialect; the facts are invented. In eve's dialect both roles also quote,
letter for letter, the sentence they rely on; the solvers of evalact, evalrar and autorefine note what each search found
or missed, in evalact with a score; score has reports, rubrics and assessments of reports whose flaws are known. A model
warmed up like this has learnt from demonstrations, and its warmup.json says so.
""",
)


def _print_result(args: argparse.Namespace, manifest: WarmupManifest) -> None:
    print(f"{args.out}: loss of held-out episodes {manifest.loss_before:.3f} before, {manifest.loss_after:.3f} after")
    index, model = shlex.quote(str(args.index or "INDEX")), shlex.quote(str(args.out))
    if manifest.stopped:
        documents = f" --index {index}" if args.index else ""
        more = f"quaere warmup {args.recipe} --model {model} --style {args.style}{documents} --out OTHER"
        print(f"stopped after {count(manifest.num_steps, 'step')}, and saved as it is; teach it more with: {more}")
        return
    command = "report" if args.recipe == "score" else "ask"
    print(f'quaere {command} "your question" --index {index} --model {model}')


def read_ratios(args: argparse.Namespace) -> str:
    """Replace the options' text by weights; a notice for the user if `--hops` was used, else ""."""
    typed = args.hops
    if typed is not None and (args.facts is not None or args.proposer_hops is not None):
        raise BadInput(
            "--hops sets --facts and --proposer-hops, so it cannot be combined with them",
            hint="--facts LIST --proposer-hops LIST, without --hops",
        )
    args.lessons = _weights("--lessons", _LESSONS, args.lessons)
    if typed is None:
        args.facts = _weights("--facts", _FACTS, _FACTS if args.facts is None else args.facts)
        hops = _HOPS if args.proposer_hops is None else args.proposer_hops
        args.proposer_hops = _weights("--proposer-hops", _HOPS, hops)
        return ""
    args.facts = args.proposer_hops = _weights("--hops", _FACTS, typed)
    same = f"--facts {typed} for a solver and --proposer-hops {typed} for a proposer"
    return f"--hops {typed} is read as {same}: n facts are n searches, n hops are n - 1"


def _weights(option: str, example: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(weight) for weight in text.split(","))
    except ValueError:
        raise BadInput(f"{option} must be a list of whole numbers such as {example}, not {text}") from None


# ------------------------------------------------------------------------------------------------------------ progress


def open_display(as_json: bool) -> _Display:
    """The display: JSON if asked for, else a bar or lines."""
    return _JsonDisplay() if as_json else _Display()


class _Display:
    """Progress on stderr: a bar on a terminal, with notes above it; elsewhere plain lines."""

    def __init__(self) -> None:
        self._taken_s: list[float] = []
        self._held = ExitStack()
        self._is_live = sys.stderr.isatty()

    def __enter__(self) -> _Display:
        self._show = self._held.enter_context(show_progress())
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def note(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def progress(self, doing: str, done: int, total: int | None, stands: str = "") -> None:
        self._show(doing, done, total, stands)

    def step(self, step: TeachingStep) -> None:
        loss, pace = f"loss {step.loss:.3f}", f"{step.tokens_per_s:.0f} tok/s"
        if self._is_live:
            self.progress("teaching", step.step, step.num_steps, f"{loss}, {pace}")
            return
        self._taken_s.append(step.num_tokens / step.tokens_per_s)
        left_s = sum(self._taken_s) / len(self._taken_s) * (step.num_steps - step.step)
        left = f" · about {format_duration(left_s)} left" if left_s else ""
        self.note(f"step {step.step}/{step.num_steps} · {loss} · {pace}{left}")

    @contextmanager
    def teaching(self) -> Iterator[None]:
        """Context in which the first Ctrl-C ends the teaching after a step, with a model to save."""
        step = "the step under way, whose model is then saved (before step 1: nothing is)"
        with accept_stop() as stop, interruptible("no model is written", after=step, ask=stop):
            yield


class _JsonDisplay(_Display):
    """Progress as lines of JSON on stdout: {"event": "step", "step": 3, "loss": 1.62, ...}."""

    def __enter__(self) -> _Display:
        self._lull = Lull(time.monotonic)
        return self

    def note(self, line: str) -> None:
        print(json.dumps({"event": "note", "line": line}), flush=True)

    def progress(self, doing: str, done: int, total: int | None, stands: str = "") -> None:
        if self._lull.ends():
            told = {"event": "progress", "doing": doing, "done": done, "total": total, "stands": stands}
            print(json.dumps(told), flush=True)

    def step(self, step: TeachingStep) -> None:
        print(json.dumps({"event": "step", **structs.asdict(step)}), flush=True)
