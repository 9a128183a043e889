"""Registers EVE-Agent for the command line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec

from quaere.recipes.eve.config import PRESETS, EveConfig, check_config
from quaere.recipes.eve.proposer_documents import (
    Documents,
    FoundPassages,
    Mask,
    SelectedDocuments,
    Shard,
    UniformDocuments,
    find_passages,
    split_documents,
)
from quaere.recipes.eve.protocols import solver_protocol
from quaere.recipes.eve.train import Eve, evolve
from quaere.recipes.registry import Recipe
from quaere.rollout.policy import ChatPolicy
from quaere.rollout.question_files import read_questions
from quaere.runs import Run
from quaere.training.phases.tasks import Passages
from quaere.training.phases.verification import open_hosted
from quaere.training.progress import Reporter
from quaere.training.run_setup import Opened, check_openable, open_run, open_training
from quaere.training.selector.clusters import sklearn_missing
from quaere.training.selector.passage_vectors import embed_index
from quaere.training.selector.selector import Selector
from quaere.training.self_play.config import needed_dialects
from quaere.training.self_play.schedule import ROLES, count_steps, plan_self_play


async def train(config: EveConfig, store: Run, reporter: Reporter) -> None:
    """Train from the run's last checkpoint, or from the start; close all resources at the end."""
    async with open_run(config, ROLES, reporter) as opened, _open_scorer(config) as scorer:
        selector = _open_selector(config, opened, store)
        first, second = await _open_shards(config, opened, selector)
        training = open_training(
            config,
            store,
            opened.actors,
            reporter,
            count_steps(config),
            # A search server may hold other documents than the local index, so their text cannot be read here.
            read_document=None if config.search_url else opened.index.document,
            memory=selector,
        )
        searcher = opened.searcher
        eve = Eve(config, training, searcher, first=first, second=second, selector=selector, scorer=scorer)
        await evolve(eve, training, config.iterations)


@asynccontextmanager
async def _open_scorer(config: EveConfig) -> AsyncIterator[ChatPolicy | None]:
    """The endpoint of a hosted verifier; None for the other forms."""
    if config.verifier.form != "hosted":
        yield None
        return
    scorer = open_hosted(config.verifier)
    try:
        yield scorer
    finally:
        await scorer.stop()


def _open_selector(config: EveConfig, opened: Opened, store: Run) -> Selector | None:
    if config.prompt_source != "selector":
        return None
    return Selector(embed_index(opened.index, store.path / "embeddings"), config.selector, config.seed)


async def _open_shards(config: EveConfig, opened: Opened, selector: Selector | None) -> tuple[Documents, Documents]:
    """The documents of phase A, and those of the solver's questions."""
    passages: Passages = opened.index
    if config.prompt_source == "questions":
        found = await find_passages(config.prompt_questions, opened.searcher)
        passages = FoundPassages(found)
    if config.phase_b_documents == "same":
        same = _documents(config, passages, None, selector)
        return same, same
    masks = split_documents(passages, config.held_out_share, config.seed)
    first, second = (_documents(config, passages, mask, selector) for mask in masks)
    return first, second


def _documents(config: EveConfig, passages: Passages, mask: Mask | None, selector: Selector | None) -> Documents:
    proposer = config.proposer
    if selector is not None:
        return SelectedDocuments(selector, passages, mask, proposer.hop_ratio)
    shard = passages if mask is None else Shard(passages, mask.nonzero()[0].tolist())
    return UniformDocuments(shard, proposer.hop_ratio, document=proposer.document)


def check(config: EveConfig) -> None:
    """Raise `BadInput` for settings that cannot be run, before anything is loaded."""
    check_config(config)
    if config.prompt_source == "selector" and find_spec("sklearn") is None:
        raise sklearn_missing()
    if config.prompt_source == "questions":
        read_questions(config.prompt_questions)
    check_openable(config, "eve", needed_dialects(config, "eve" if config.evidence.cite else "drzero"))


def plan(config: EveConfig) -> list[tuple[str, str]]:
    """The run's plan as lines of name and text: what it would do, and the most that a step costs."""
    evidence, verifier = config.evidence, config.verifier
    asked = "not asked"
    whom = {"proposer's": config.verifies_proposals, "solver's": config.verifies_candidates}
    if any(whom.values()):
        turns = f"{verifier.form}: {2 * verifier.samples} single turns"
        cost = "teacher-forced: 2 passes" if verifier.form == "teacher_forced" else turns
        asked = f"{cost} for each valid question of the {' and '.join(name for name in whom if whom[name])} phase"
    documents = "the same documents" if config.phase_b_documents == "same" else f"{config.held_out_share:.0%} held out"
    lines = [
        ("evidence", f"check {evidence.check}; guards: {', '.join(evidence.guards) or 'none'}"),
        ("verifier", asked),
        ("documents", f"{config.prompt_source}; triples about {documents}"),
    ]
    return [*plan_self_play(config), *lines]


EVE = Recipe(
    name="eve",
    summary="Dr. Zero with evidence: who asks and who answers must quote what proves it",
    schema=EveConfig,
    presets=PRESETS,
    check=check,
    plan=plan,
    train=train,
    solver_protocol=solver_protocol,
    given=lambda config: config.generation.given,
)
