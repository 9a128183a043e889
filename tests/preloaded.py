"""Processes of their own that begin with torch and the recipes loaded: to kill a run costs no new start of Python.

There is one list for all tests: a process has one server that forks, which loads what the last caller asked for.
"""

import multiprocessing
import os
import sys

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


def start_command(*words, source=None):
    """A command of `quaere` in a process of its own, and its errors to read while it works.

    With a source, the package is loaded anew from there.
    """
    reader, writer = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=_command, args=(list(map(str, words)), source and str(source), writer))
    process.start()
    writer.close()
    with reader:
        return process, os.fdopen(os.dup(reader.fileno()), encoding="utf-8")


def run_command(*words, source=None):
    """The exit code of a command in a process of its own, and its errors."""
    process, stderr = start_command(*words, source=source)
    with stderr:
        said = stderr.read()
    process.join()
    return process.exitcode, said


def _command(words, source, errors):
    with errors:
        os.dup2(errors.fileno(), 2)
    if source:
        for name in [name for name in sys.modules if name.partition(".")[0] == "quaere"]:
            del sys.modules[name]
        sys.path.insert(0, source)
    import torch

    from quaere.cli.main import main

    torch.set_num_threads(1)
    sys.exit(main(words))
