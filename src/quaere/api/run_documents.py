"""The documents that a run was about, read from the index that it names.

documents = open_documents(run)
documents.read("halm.md"), documents.said
"""

from __future__ import annotations

from pathlib import Path

import yaml

from quaere.errors import BadInput, IndexMissing
from quaere.runs.reader import RunReader
from quaere.search.index import Index, open_index


class RunDocuments:
    """The index of a run, if it is still there; `said` is one line about it where it is not, or has changed."""

    def __init__(self, index: Index | None, said: str = "") -> None:
        self.index = index
        self.said = said

    def read(self, doc_id: str) -> str:
        """The text of a document; "" if it cannot be read."""
        if self.index is None:
            return ""
        try:
            return self.index.document(doc_id)
        except BadInput:
            return ""


def open_documents(run: RunReader) -> RunDocuments:
    """The index that the run names; none if it is not on this machine."""
    path = name_index(run)
    if not path:
        return RunDocuments(None, "the documents are not here: the run names no index")
    try:
        index = open_index(Path(path), check_sources=False)
    except (IndexMissing, BadInput, OSError) as error:
        return RunDocuments(None, f"the documents are not here: {error}")
    if index.fingerprint != run.info.settings.get("index_fingerprint", index.fingerprint):
        return RunDocuments(index, f"{path} holds other documents than when the run began")
    return RunDocuments(index)


def name_index(run: RunReader) -> str:
    """The run's index: from its config, which a resumed run may have changed, else from its settings."""
    try:
        config = yaml.safe_load(run.config_text())
    except (BadInput, yaml.YAMLError):
        config = None
    given = config.get("index") if isinstance(config, dict) else None
    return str(given or run.info.settings.get("index", ""))
