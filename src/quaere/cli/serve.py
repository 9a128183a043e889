"""`quaere serve`: serves a model, or with an index a search agent, over an OpenAI-compatible HTTP interface.

quaere serve --model smollm2-135m
quaere serve --model smollm2-135m --index docs-index
quaere serve --model ./exported --name mine --index docs-index --port 8001
quaere serve --run drzero-20250301-101500
"""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

from quaere.api.printing import count
from quaere.cli import options
from quaere.dialects.notes import Notes, find_notes, role_policy
from quaere.errors import BadInput, install_hint
from quaere.policies.catalogue import needs_guide
from quaere.rollout.policy import TokenPolicy, open_policy
from quaere.search.index import open_index
from quaere.serving.model.retriever import Documents, open_embedder
from quaere.serving.server import bind, make_model_server, run_server
from quaere.setting_types import Count, Folder, PositiveCount


class ServedModel(options.RoleOptions):
    """The model that is served, and the documents it answers from.

    Attributes:
        name: model name in requests (default: the last part of its name)
        index: answer from this index, and serve its documents
        retriever_topk: passages per search
        embeddings: a sentence-transformers model, or hash: words counted into buckets, no model (default: auto, the
            index's own embedder if it has one, else hash)
    """

    name: str | None = None
    index: Folder | None = None
    retriever_topk: PositiveCount = 5
    embeddings: Annotated[str, "auto|hash|MODEL"] = "auto"


class ServingEngine(options.PrecisionOptions):
    """How the model is run.

    Attributes:
        max_rows: answers sampled at once
        max_waiting: waiting answers; more get status 429
        max_tokens: most tokens per answer
        temperature: if a request has none (default: 1, for an agent 0)
    """

    max_rows: PositiveCount = 8
    max_waiting: Count = 256
    max_tokens: PositiveCount = 2048
    temperature: Annotated[float, "T"] | None = None


def _run(args: argparse.Namespace) -> None:
    _check(args)
    settings, key = options.server_settings(args), options.read_key(args)
    listener = bind(settings, key)  # an error in the address is reported before the model is loaded

    from quaere.api.served_agent import ServedAgent
    from quaere.serving.model.app import Service

    index = open_index(args.index) if args.index else None
    embedder = open_embedder(args.embeddings, index)
    documents = Documents(index, args.retriever_topk) if index is not None else None
    policy, notes = _open_policy(args)
    name = args.name or Path(policy.name).name
    how = {"needs_guide": needs_guide(args.model), "attempts": args.attempts, "min_confidence": args.min_confidence}
    agent = ServedAgent(policy, index, notes, **how) if index is not None and notes is not None else None
    bounds = {"max_tokens": args.max_tokens, "max_waiting": args.max_waiting, "temperature": args.temperature}
    service = Service(name=name, policy=policy, embedder=embedder, documents=documents, agent=agent, **bounds)

    def say_ready(url: str) -> None:
        embeddings = f"embeddings by {embedder.name}" if embedder else f"no embeddings ({install_hint('select')})"
        print(f"serving {name} at {url}/v1, {embeddings}, Ctrl-C ends", file=sys.stderr)
        if agent is not None:
            print(f"{name} answers from {args.index}; {service.model_name} is the model alone", file=sys.stderr)
        if index is not None:
            print(f"{count(len(index), 'passage')} at {url}/retrieve-gpt-researcher?query=...", file=sys.stderr)
        sys.stderr.flush()

    run_server(make_model_server(service, settings, key=key, listener=listener), say_ready)


fill = options.command(
    _run,
    options.group("model and documents", ServedModel, options.VotingOptions, options.RunsFolder),
    options.group("address and access", options.ServerOptions),
    options.group("engine", ServingEngine),
    description="""\
Serve a model at /v1/chat/completions, /v1/completions and /v1/embeddings, in the form OpenAI's clients speak. With
--index, chat under the model's name is with the search agent: it answers from the documents and names the sentence and
its place; NAME:model is the model alone. The documents are served too: a retriever for gpt-researcher and a page for
each document. Only this machine can reach it; --host lets others in, and needs a key.
""",
)


def _check(args: argparse.Namespace) -> None:
    if (args.model is None) == (args.run_name is None):
        raise BadInput("give either --model or --run", hint="quaere serve --model smollm2-135m")
    options.choose_plain(args)
    if args.model and args.model.startswith("openai:"):
        said = "openai: names an endpoint, which is a server already; this command serves local weights"
        raise BadInput(said, hint="--model smollm2-135m")


def _open_policy(args: argparse.Namespace) -> tuple[TokenPolicy, Notes | None]:
    """The policy, and how it was trained to answer questions; None for a role that answers none."""
    from quaere.api.agent import refuse_voting

    weights = options.find_weights(args, args.run_name) if args.run_name else None
    if args.index is None or (weights is not None and weights.role != "solver"):
        refuse_voting(args.attempts, args.min_confidence, "--index INDEX, and a model or a run's solver")
    report = partial(print, file=sys.stderr)
    setting = {"device": args.device, "dtype": args.dtype, "max_rows": args.max_rows}
    setting |= {"interactive": True, "report": report}
    report(f"loading {args.model or args.run_name}")
    if weights is not None:
        return role_policy(weights, **setting), weights.notes if weights.role == "solver" else None
    policy = open_policy(args.model, **setting)
    assert isinstance(policy, TokenPolicy)
    return policy, find_notes(args.model)
