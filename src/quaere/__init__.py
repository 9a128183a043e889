"""Quaere: turn a folder of documents into a search agent that can show the sentence behind its answers.

index = quaere.Index.build("notes/", "notes-index")
with quaere.Agent("smollm2-135m", index) as agent:
    print(agent.ask("When did we move the backups?").text)

Importing this costs nothing: each name is loaded when it is first used. docs/python.md shows all of them.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quaere.api.agent import Agent
    from quaere.api.answer import Answer
    from quaere.api.evaluation import Evaluation, evaluate
    from quaere.api.evolution import evolve, export
    from quaere.api.index import Index
    from quaere.api.learned import Learned
    from quaere.api.learning import learn
    from quaere.api.report import WrittenReport, report
    from quaere.api.run import Run
    from quaere.api.warmup import warmup
    from quaere.errors import BadInput, QuaereError, SearchFailed
    from quaere.records import Episode, Evidence, Hit, Passage, Question

__version__ = "0.2.0.dev0"

__all__ = [
    "Agent",
    "Answer",
    "BadInput",
    "Episode",
    "Evaluation",
    "Evidence",
    "Hit",
    "Index",
    "Learned",
    "Passage",
    "QuaereError",
    "Question",
    "Run",
    "SearchFailed",
    "WrittenReport",
    "evaluate",
    "evolve",
    "export",
    "learn",
    "report",
    "warmup",
]
_MODULES = {
    "quaere.api.agent": ["Agent"],
    "quaere.api.answer": ["Answer"],
    "quaere.api.evaluation": ["Evaluation", "evaluate"],
    "quaere.api.evolution": ["evolve", "export"],
    "quaere.api.index": ["Index"],
    "quaere.api.learned": ["Learned"],
    "quaere.api.learning": ["learn"],
    "quaere.api.report": ["WrittenReport", "report"],
    "quaere.api.run": ["Run"],
    "quaere.errors": ["BadInput", "QuaereError", "SearchFailed"],
    "quaere.records": ["Episode", "Evidence", "Hit", "Passage", "Question"],
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name from its module on first use, and keep it."""
    if name not in _PLACES:
        raise AttributeError(f"module 'quaere' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_PLACES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _CallableWarmup(ModuleType):
    """The package `quaere.warmup`, which is also the function of that name.

    Importing any module of the package binds `quaere.warmup` to it, so a function under that name would be lost.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from quaere.api.warmup import warmup

        return warmup(*args, **kwargs)


import_module("quaere.warmup").__class__ = _CallableWarmup
