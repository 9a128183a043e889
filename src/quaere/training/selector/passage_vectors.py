"""A unit vector for every passage of an index, computed once and stored.

    embedded = embed_index(index, run_folder / "embeddings")
    embedded.vectors[17] @ embedded.vectors[4]            # the cosine of two passages

A dense index already has such vectors, which are used. For other indexes the method is "tfidf-svd": TF-IDF reduced to a
few hundred dimensions. It needs no model and groups passages that share words, but does not know synonyms.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from quaere.disk import new_folder
from quaere.errors import BadInput
from quaere.search.dense import read_vectors
from quaere.search.index import Index
from quaere.search.words import terms
from quaere.training.selector.clusters import Vectors, sklearn_missing

Method = Literal["dense", "tfidf-svd"]

_VECTORS, _ABOUT = "vectors.npy", "about.json"
_NUM_WORDS = 50_000  # size of the vocabulary: the most frequent words
_WIDTH = 256


class About(msgspec.Struct, frozen=True):
    """The origin of stored vectors: method and index.

    About(method="tfidf-svd", index="5f2c...", num_passages=23_784)
    """

    method: Method
    index: str
    num_passages: int


@dataclass(frozen=True)
class Embedded:
    """Vectors (row n belongs to passage n) and their fingerprint.

    Embedded(vectors, fingerprint="tfidf-svd of 5f2c...")
    """

    vectors: Vectors
    fingerprint: str


def embed_index(index: Index, folder: Path) -> Embedded:
    """Vectors of an index's passages, read from `folder` or computed and stored there."""
    method: Method = "dense" if "dense" in index.manifest.settings.engine_names else "tfidf-svd"
    about = About(method, index.fingerprint, len(index))
    if _read_about(folder) != about:
        vectors = _unit_length(read_vectors(index.path / "dense")) if method == "dense" else embed_words(index)
        with new_folder(folder) as partial:
            np.save(partial / _VECTORS, vectors)
            (partial / _ABOUT).write_bytes(msgspec.json.format(msgspec.json.encode(about), indent=1))
    try:
        kept = np.load(folder / _VECTORS, mmap_mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise BadInput(f"{folder / _VECTORS} is damaged or missing", hint=f"delete {folder}") from error
    return Embedded(kept, f"{method} of {index.fingerprint}")


def _read_about(folder: Path) -> About | None:
    try:
        return msgspec.json.decode((folder / _ABOUT).read_bytes(), type=About)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def embed_words(index: Index) -> Vectors:
    """TF-IDF of each passage's terms, reduced by a truncated SVD; a passage without terms is a row of zeros."""
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.utils.extmath import randomized_svd
    except ImportError:
        raise sklearn_missing() from None
    weigher = TfidfVectorizer(analyzer=terms, sublinear_tf=True, max_features=_NUM_WORDS, dtype=np.float32)
    # The vocabulary is not empty: BM25 refuses to build an index without words.
    counts = weigher.fit_transform(passage.titled_text for passage in index.passages())
    directions, strengths, _ = randomized_svd(counts, min(_WIDTH, *counts.shape), random_state=0)
    return _unit_length(np.asarray(directions * strengths, dtype=np.float32))


def _unit_length(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0))
