"""Texts to vectors, for agents that compare passages before they show them to a model.

`hash` needs no model: words are counted into a fixed number of buckets by a hash of their letters (scikit-learn's
`HashingVectorizer`). It is the same on every machine and knows no synonyms: two texts are near if they share words.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from quaere.errors import ExtraMissing
from quaere.search.dense import DenseSettings, Embedder
from quaere.search.index import Index
from quaere.serving.model.wire import Refused

HASH = "hash"
DEFAULT_DIMENSIONS = 1024
MAX_DIMENSIONS = 8192


class TextEmbedder(Protocol):
    """Somebody who turns texts into vectors of length one."""

    name: str

    def embed(self, texts: Sequence[str], num_dimensions: int | None) -> NDArray[np.float32]:
        """One row per text; `num_dimensions` None leaves their length to the embedder."""
        ...


class HashEmbedder:
    """Words counted into buckets.

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
    """A sentence-transformers model; every text is embedded as a query, so that any two can be compared."""

    def __init__(self, settings: DenseSettings) -> None:
        self.name = settings.embedder
        self._embedder = Embedder(settings.with_known_prefixes())

    def embed(self, texts: Sequence[str], num_dimensions: int | None) -> NDArray[np.float32]:
        """One row per text, as long as the model makes them."""
        rows = self._embedder.embed_queries(texts)
        if num_dimensions not in (None, rows.shape[1]):
            raise Refused(f"this embedder makes vectors of {rows.shape[1]}", param="dimensions")
        return rows


def open_embedder(wanted: str, index: Index | None) -> TextEmbedder | None:
    """The embedder of this name; `auto` is the one the index was made with, else `hash`, else, where not even that
    is installed, none: a model can be served without."""
    if wanted == "auto" and index is not None and "dense" in index.manifest.settings.engine_names:
        return ModelEmbedder(index.manifest.settings.dense)
    if wanted == "auto":
        return HashEmbedder() if find_spec("sklearn") else None
    if wanted == HASH:
        return HashEmbedder()
    return ModelEmbedder(DenseSettings(embedder=wanted))
