"""`quaere models`: lists the models of the catalogue, downloads them, and checks whether a model can be used.

quaere models list
quaere models pull smollm2-135m
quaere models path smollm2-135m
quaere models check Qwen/Qwen3-0.6B@main
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import structs

from quaere.api.printing import count
from quaere.chat.renderer import Renderer
from quaere.cli.doctor import Check, guard, print_checks
from quaere.cli.options import Flag, JsonOption, action, actions, command
from quaere.errors import QuaereError
from quaere.policies.catalogue import CATALOGUE, ModelPath, find_pulled, resolve_model
from quaere.policies.model_folders import load_tokenizer
from quaere.recipes.registry import find_recipe
from quaere.records import Answer, Question, SolveTask

_DEFAULT = next(iter(CATALOGUE))
_PULLED = "download a model, so that later commands need no network"
_CHECKED = "check a model: template, tools, thoughts, joints, memory of each preset, the engine, one episode"


class ModelOptions(JsonOption):
    """Options of the actions on one model.

    Attributes:
        name: catalogue name, directory, GGUF file, hub id or hub id@revision
    """

    name: Annotated[str, "NAME", Flag("name", nargs="?")] = _DEFAULT


class CheckOptions(ModelOptions):
    """Options of `quaere models check`.

    Attributes:
        no_episode: load no weights and play no episode
    """

    no_episode: bool = False


def _list(args: argparse.Namespace) -> None:
    """Print the catalogue, one model per line; a star marks models on this machine."""
    places = ((entry, find_pulled(entry)) for entry in CATALOGUE.values())
    rows = [{**msgspec.to_builtins(entry), "path": str(path) if path else None} for entry, path in places]
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
        return
    for row in rows:
        print(f"{'*' if row['path'] else ' '} {row['name']}  {row['summary']} ({row['licence']})")
        print(f"    {row['note']}")
        print(f"    {row['path'] or 'not pulled: quaere models pull ' + str(row['name'])}")
    print("Any Hugging Face id, local directory or GGUF file is a model too.", file=sys.stderr)


def _check(args: argparse.Namespace) -> None:
    report = (lambda line: None) if args.json else (lambda line: print(line, file=sys.stderr))
    print_checks(check_model(args.name, with_episode=not args.no_episode, report=report), as_json=args.json)


def _show(args: argparse.Namespace, *, pull: bool = False) -> None:
    """Print the directory of a model; with `pull` it is downloaded unless it is on this machine."""
    model = resolve_model(args.name, pull=pull, report=lambda line: print(line, file=sys.stderr))
    folder = model.path if args.name in CATALOGUE else model.folders[0]
    print(msgspec.json.encode(model).decode() if args.json else folder)


fill = command(
    None,
    actions(
        action("list", _list, "list the built-in catalogue, and which models have been pulled", JsonOption),
        action("pull", partial(_show, pull=True), _PULLED, ModelOptions),
        action("path", _show, "print the directory of a model that has been pulled", ModelOptions),
        action("check", _check, _CHECKED, CheckOptions),
    ),
)


# ---------------------------------------------------------------------------------------------------------------- check


TURN_TOKENS = 256
_RECIPE = "drzero"  # whose presets are estimated; its runs train two roles
_TEXT = "The Halm bridge was built by Orsolya Venn in 1702."
_QUESTION = "Who built the Halm bridge?"
_NO_TEMPLATE = "none: conversations are plain paragraphs"


def open_renderer(model: str, *, pull: bool) -> Renderer:
    """The renderer of a model's tokenizer."""
    return Renderer(load_tokenizer(resolve_model(model, pull=pull).tokenizer))


def describe_joint(renderer: Renderer) -> str:
    """The tokens that end a turn and those between two turns, for a line of output."""
    joint = renderer.joints["tool"]
    ends = " or ".join(repr(renderer.decode([token])) for token in renderer.stop_token_ids) or "nothing"
    between = renderer.decode([*joint.closing]) + "..." + renderer.decode([*joint.opening])
    return f"a turn ends with {ends}; between turns {between!r}"


def check_model(model: str, *, with_episode: bool, report: Callable[[str], None]) -> list[Check]:
    """All checks of a model; if it cannot be found, that is the only one."""
    try:
        found = resolve_model(model, report=report)
    except QuaereError as error:
        return [Check("model", "fail", str(error), error.hint)]
    checks = [Check("model", "ok", f"{model} in {found.path}")]
    try:
        renderer = open_renderer(model, pull=True)
    except QuaereError as error:
        checks.append(Check("template", "fail", str(error), error.hint))
    else:
        checks += _check_renderer(renderer)
    checks += _check_memory(model)
    if with_episode and all(check.status != "fail" for check in checks):
        checks.append(guard("engine", lambda: _check_engine(found)))
        checks.append(guard("episode", lambda: _check_episode(model, report)))
    return checks


def _check_renderer(renderer: Renderer) -> list[Check]:
    tools = "listed by the template" if renderer.lists_tools else "described in the prompt"
    results = "in turns of their own" if renderer.speaks_tools else "in user turns"
    opens = f"the template opens a thought before each turn ({renderer.opened!r})"
    return [
        Check("template", "ok", "its own chat template" if renderer.has_template else _NO_TEMPLATE),
        Check("tools", "ok", f"{tools}; calls: {renderer.template.markup.name}; results {results}"),
        Check("thinking", "ok", opens if renderer.opened else "the model opens its thoughts itself"),
        Check("joints", "ok", describe_joint(renderer)),
        Check("history", "ok", renderer.note or "episodes are what the template writes"),
    ]


def _check_memory(model: str) -> list[Check]:
    """The estimated memory of a run with each preset."""
    from quaere.training.config import load_config

    recipe = find_recipe(_RECIPE)

    def check(preset: str) -> Check:
        config = load_config(
            recipe.schema, presets=recipe.presets, preset=preset, file=None, assignments=(), given={"model": model}
        )
        return Check("memory", "ok", f"{_RECIPE} {preset}: {dict(recipe.plan(config))['memory']}")

    checks = [guard("memory", lambda preset=preset: check(preset)) for preset in recipe.presets]  # type: ignore[misc]
    if {check.status for check in checks} == {"fail"} and len({check.detail for check in checks}) == 1:
        return [structs.replace(checks[0], name="engine")]  # not a question of memory: the engine cannot run the model
    return checks


def _check_engine(found: ModelPath) -> Check:
    """Compares what the engine and the learner compute with transformers, in float32."""
    from quaere.policies.native.bridge import load_model
    from quaere.policies.native.device import choose_device
    from quaere.training.engine_check import NUM_SAMPLED, WRONG, compare_with_transformers

    token_ids = load_tokenizer(found.tokenizer)(f"{_QUESTION} {_TEXT} " * 3)["input_ids"][:64]
    model = load_model(found, choose_device("auto"), "float32", packed=False)
    agreed = compare_with_transformers(model, token_ids)
    said = (
        f"{agreed.path}; beside transformers log-probs differ by {agreed.logprob_gap:.0e}, gradients by "
        f"{agreed.gradient_gap:.0e} of the largest; {agreed.num_same} of {NUM_SAMPLED} greedy tokens are the same"
    )
    if agreed.is_right:
        return Check("engine", "ok", said)
    is_wrong = max(agreed.logprob_gap, agreed.gradient_gap) > WRONG
    return Check("engine", "fail" if is_wrong else "warn", said, "report it with the model's name" if is_wrong else "")


def _check_episode(model: str, report: Callable[[str], None]) -> Check:
    """Plays one episode; what the model answers does not matter."""
    from quaere.api.agent import Agent

    asked: dict[str, Any] = {"dialect": "tool-call", "style": "full", "evidence": False, "guided": False}
    limits: dict[str, Any] = {"turn_tokens": TURN_TOKENS, "sequence_tokens": 2048, "tool_response_tokens": 128}
    passage = {"id": "halm#0", "title": "Halm bridge", "text": _TEXT}
    with Agent(model, search=lambda query: [passage], on_note=report, max_turns=3, **asked, **limits) as agent:
        episode = agent.run(agent.opened.play(SolveTask(Question("check", _QUESTION))))
    if episode.end == "failed":
        return Check("episode", "fail", f"the model could not be sampled: {episode.turns[-1].failure}")
    num_read = sum(turn.failure is None for turn in episode.turns)
    turns, tokens = count(len(episode.turns), "turn"), count(len(episode.token_ids), "token")
    said = f"{turns}, {num_read} of them followed the protocol, {tokens}"
    if num_read == 0:
        hint = f"quaere warmup {_RECIPE} --model {model} --out DIR"
        return Check("episode", "warn", f"{said}; no turn did what was asked", hint)
    answer = f"answered {episode.outcome.text!r}" if isinstance(episode.outcome, Answer) else f"ended by {episode.end}"
    return Check("episode", "ok", f"{said}; {answer}")
