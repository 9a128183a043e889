"""Text embeddings, for agents that rank passages by similarity.

`hash` needs no model: words are counted in a fixed number of buckets by their hash (scikit-learn's
`HashingVectorizer`). It gives the same vectors on every machine and knows no synonyms: texts are similar if they share
words.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from quaere.errors import ExtraMissing
from quaere.search import embedders
from quaere.search.embedders import DenseSettings
from quaere.search.index import Index
from quaere.serving.model.wire import Refused

HASH = "hash"
DEFAULT_DIMENSIONS = 1024
MAX_DIMENSIONS = 8192


class TextEmbedder(Protocol):
    """An embedder of texts as vectors of length one."""

    name: str

    def embed(self, texts: Sequence[str], num_dimensions: int | None) -> NDArray[np.float32]:
        """One row per text; with `num_dimensions` None the embedder chooses the size."""
        ...


class HashEmbedder:
    """Embedder by hashed word counts.

    HashEmbedder().embed(["The Oss rises.", "the Oss rises!"], 8)    # two equal rows
    """

    name = HASH

    def __init__(self) -> None:
        try:
            from sklearn.feature_extraction.text import HashingVectorizer
        except ImportError:
            raise ExtraMissing("embeddings by hashed words need scikit-learn", extra="select") from None
        self._make = HashingVectorizer

    def embed(self, texts: Sequence[str], num_dimensions: int | None) -> NDArray[np.float32]:
        """One row per text; a text without words is a row of zeros."""
        num_dimensions = DEFAULT_DIMENSIONS if num_dimensions is None else num_dimensions
        if not 1 <= num_dimensions <= MAX_DIMENSIONS:
            raise Refused(f"dimensions must be 1 to {MAX_DIMENSIONS}, not {num_dimensions}", param="dimensions")
        vectorizer = self._make(n_features=num_dimensions, stop_words="english", alternate_sign=False, dtype=np.float32)
        rows: NDArray[np.float32] = vectorizer.transform(list(texts)).toarray()
        return rows


class ModelEmbedder:
    """The embedder of a dense index; every text is embedded as a query, so that any two can be compared."""

    def __init__(self, settings: DenseSettings) -> None:
        self.name = settings.embedder
        self._embedder = embedders.open_embedder(settings.with_known_prefixes())

    def embed(self, texts: Sequence[str], num_dimensions: int | None) -> NDArray[np.float32]:
        """One row per text, of the model's own size."""
        rows = self._embedder.embed_queries(texts)
        if num_dimensions not in (None, rows.shape[1]):
            raise Refused(f"dimensions must be {rows.shape[1]} for this embedder", param="dimensions")
        return rows


def open_embedder(wanted: str, index: Index | None) -> TextEmbedder | None:
    """The embedder for a name.

    `auto` is the index's own embedder, else `hash`, else None if scikit-learn is not installed: a model can be served
    without an embedder.
    """
    if wanted == "auto" and index is not None and index.manifest.settings.has_vectors:
        return ModelEmbedder(index.manifest.settings.dense)
    if wanted == "auto":
        return HashEmbedder() if find_spec("sklearn") else None
    if wanted == HASH:
        return HashEmbedder()
    return ModelEmbedder(DenseSettings(embedder=wanted))
