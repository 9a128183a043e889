"""Processes of their own that begin with torch and the recipes loaded: to kill a run costs no new start of Python.

There is one list for all tests: a process has one server that forks, which loads what the last caller asked for.
"""

import multiprocessing

SPAWN = multiprocessing.get_context("forkserver")
SPAWN.set_forkserver_preload(
    [
        "quaere.recipes.drzero.recipe",
        "quaere.recipes.eve.recipe",
        "quaere.warmup.imitation",
        "quaere.policies.native.sampler",
        "quaere.search.update",
        "bm25s",
        "peft",
        "sklearn.cluster",
        "sklearn.feature_extraction.text",
        "transformers.models.auto.modeling_auto",
        "transformers.models.llama.modeling_llama",  # the package alone loads it later
    ]
)
