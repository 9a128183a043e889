"""`quaere serve`: serves a model, or with an index a search agent, over an OpenAI-compatible HTTP interface.

quaere serve --model smollm2-135m
quaere serve --model smollm2-135m --index docs-index
quaere serve --model ./exported --name mine --index docs-index --port 8001
quaere serve --run drzero-20250301-101500
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from quaere.cli.ask_options import add_plain, choose_plain
from quaere.cli.bounds import check_positive, checkpoint
from quaere.cli.server_options import add_server_options, read_key, server_settings
from quaere.cli.terminal import say_line
from quaere.errors import BadInput, install_hint
from quaere.policies.native.device import Precision

if TYPE_CHECKING:
    from quaere.api.served_agent import ServedAgent
    from quaere.dialects.notes import Notes
    from quaere.rollout.policy import TokenPolicy
    from quaere.search.index import Index

_DESCRIPTION = """\
Serve a model at /v1/chat/completions, /v1/completions and /v1/embeddings, in the form OpenAI's clients speak. With
--index, chat under the model's name is with the search agent: it answers from the documents and names the sentence and
its place; NAME:model is the model alone. The documents are served too: a retriever for gpt-researcher and a page for
each document. Only this machine can reach it; --host lets others in, and needs a key.
"""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `serve` to the command line."""
    parser = commands.add_parser(
        "serve", help="serve a model or a search agent as an OpenAI-compatible endpoint", description=_DESCRIPTION
    )
    parser.set_defaults(run=run)
    what = parser.add_argument_group("model and documents")
    what.add_argument("--model", help="catalogue name, directory or hub id")
    add_plain(what)
    what.add_argument("--run", dest="run_name", metavar="RUN", help="a training run's name or directory")
    what.add_argument(
        "--role",
        choices=["solver", "proposer", "actor"],
        default="",
        help="role of the run (default: solver; actor for a run that writes reports)",
    )
    what.add_argument(
        "--checkpoint",
        type=checkpoint,
        metavar="N|best|last",
        help="step of the run (default: the best by validation if there was one, else the last)",
    )
    what.add_argument("--runs", metavar="DIR", help="folder of runs (default: $QUAERE_RUNS, or ./runs)")
    what.add_argument("--name", help="model name in requests (default: the last part of its name)")
    what.add_argument("--index", type=Path, metavar="DIR", help="answer from this index, and serve its documents")
    what.add_argument("--retriever-topk", type=int, default=5, metavar="N", help="passages per search (default: 5)")
    what.add_argument(
        "--embeddings",
        default="auto",
        metavar="auto|hash|MODEL",
        help="a sentence-transformers model, or hash: words counted into buckets, no model (default: auto, the "
        "index's own embedder if it has one, else hash)",
    )
    add_server_options(parser)
    engine = parser.add_argument_group("engine")
    engine.add_argument("--max-rows", type=int, default=8, metavar="N", help="answers sampled at once (default: 8)")
    engine.add_argument(
        "--max-waiting", type=int, default=256, metavar="N", help="waiting answers; more get status 429 (default: 256)"
    )
    engine.add_argument(
        "--max-tokens", type=int, default=2048, metavar="N", help="most tokens per answer (default: 2048)"
    )
    engine.add_argument(
        "--temperature", type=float, metavar="T", help="if a request has none (default: 1, for an agent 0)"
    )
    engine.add_argument(
        "--device", choices=["auto", "cpu", "cuda"], default="auto", help="where the model runs (default: auto)"
    )
    engine.add_argument(
        "--dtype", choices=get_args(Precision), default="auto", help="precision of the weights (default: auto)"
    )


def run(args: argparse.Namespace) -> None:
    """Serve until Ctrl-C."""
    from quaere.serving.server import bind, run_server
    from quaere.serving.servers import make_model_server

    _check(args)
    settings, key = server_settings(args), read_key(args)
    listener = bind(settings, key)  # an error in the address is reported before the model is loaded

    from quaere.search.index import open_index
    from quaere.serving.model.app import Service
    from quaere.serving.model.embeddings import open_embedder
    from quaere.serving.model.retriever import Documents

    index = open_index(args.index) if args.index else None
    embedder = open_embedder(args.embeddings, index)
    documents = Documents(index, args.retriever_topk) if index is not None else None
    policy, notes = _open_policy(args)
    name = args.name or Path(policy.name).name
    agent = _open_agent(args, policy, index, notes) if index is not None and notes is not None else None
    service = Service(
        name=name,
        policy=policy,
        embedder=embedder,
        documents=documents,
        agent=agent,
        max_tokens=args.max_tokens,
        max_waiting=args.max_waiting,
        temperature=args.temperature,
    )

    def say_ready(url: str) -> None:
        embeddings = f"embeddings by {embedder.name}" if embedder else f"no embeddings ({install_hint('select')})"
        print(f"serving {name} at {url}/v1, {embeddings}, Ctrl-C ends", file=sys.stderr)
        if agent is not None:
            print(f"{name} answers from {args.index}; {service.model_name} is the model alone", file=sys.stderr)
        if index is not None:
            print(f"{len(index)} passages at {url}/retrieve-gpt-researcher?query=...", file=sys.stderr)
        sys.stderr.flush()

    run_server(make_model_server(service, settings, key=key, listener=listener), say_ready)


def _check(args: argparse.Namespace) -> None:
    if (args.model is None) == (args.run_name is None):
        raise BadInput("give either --model or --run", hint="quaere serve --model smollm2-135m")
    choose_plain(args)
    if args.model and args.model.startswith("openai:"):
        raise BadInput(
            "openai: names an endpoint, which is a server already; this command serves local weights",
            hint="--model smollm2-135m",
        )
    check_positive(args, ("max_rows", "max_tokens", "retriever_topk"))


def _open_policy(args: argparse.Namespace) -> tuple[TokenPolicy, Notes | None]:
    """The policy, and how it was trained to answer questions; None for a role that answers none."""
    from quaere.dialects.notes import find_notes, find_role, role_policy
    from quaere.rollout.policy import TokenPolicy, open_policy
    from quaere.runs import find_run, runs_root

    def report(line: str) -> None:
        print(line, file=sys.stderr)

    setting = {"device": args.device, "dtype": args.dtype, "max_rows": args.max_rows}
    setting |= {"interactive": True, "report": report}
    report(f"loading {args.model or args.run_name}")
    if args.run_name:
        weights = find_role(find_run(runs_root(args.runs), args.run_name), args.role, args.checkpoint, say_line)
        return role_policy(weights, **setting), weights.notes if weights.role == "solver" else None
    policy = open_policy(args.model, **setting)
    assert isinstance(policy, TokenPolicy)
    return policy, find_notes(args.model)


def _open_agent(args: argparse.Namespace, policy: TokenPolicy, index: Index, notes: Notes) -> ServedAgent:
    from quaere.api.served_agent import ServedAgent
    from quaere.policies.catalogue import needs_guide

    return ServedAgent(policy, index, notes, needs_guide=needs_guide(args.model))
