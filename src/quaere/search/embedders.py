"""Embedders: passages and queries in, vectors of norm 1 out; by sentence-transformers here, or by a server."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from quaere.errors import ExtraMissing, ModelMissing
from quaere.records import Passage
from quaere.search.dense_settings import ENDPOINT, DenseSettings

Vectors = NDArray[np.float32]

_HUB_TIMEOUT_S = 10.0


class Embedder(Protocol):
    """An encoder of texts to vectors of norm 1, which may be shared between threads."""

    @property
    def num_at_once(self) -> int:
        """How many passages are best given at once."""
        ...

    def embed_queries(self, queries: Sequence[str]) -> Vectors:
        """Vectors of the queries, one row each."""
        ...

    def embed_passages(self, passages: Sequence[Passage]) -> Vectors:
        """Vectors of the passages, one row each, from title and text."""
        ...


def open_embedder(settings: DenseSettings) -> Embedder:
    """The embedder of these settings; a model of sentence-transformers is loaded."""
    if not settings.embedder.startswith(ENDPOINT):
        return SentenceEmbedder(settings)
    from quaere.search.endpoint_embedder import EndpointEmbedder  # with httpx, which the others do not need

    return EndpointEmbedder(settings)


class SentenceEmbedder:
    """Embedder by sentence-transformers. Calls are serialised: the tokenizer inside is not thread-safe."""

    def __init__(self, settings: DenseSettings) -> None:
        self.num_at_once = settings.batch_size
        self._settings = settings
        self._model = _load_model(settings.embedder)
        self._lock = threading.Lock()

    def embed_queries(self, queries: Sequence[str]) -> Vectors:
        """Vectors of the queries, one row each."""
        return self._embed(self._model.encode_query, queries, self._settings.query_prefix)

    def embed_passages(self, passages: Sequence[Passage]) -> Vectors:
        """Vectors of the passages, one row each, from title and text."""
        texts = [passage.titled_text for passage in passages]
        return self._embed(self._model.encode_document, texts, self._settings.passage_prefix)

    def _embed(self, encode: Any, texts: Sequence[str], prefix: str | None) -> Vectors:
        with self._lock:
            vectors = encode(
                list(texts),
                prompt=prefix,
                batch_size=self._settings.batch_size,
                normalize_embeddings=True,
                convert_to_numpy=True,
                show_progress_bar=False,
            )
        return np.ascontiguousarray(vectors, dtype=np.float32)


def _load_model(embedder: str) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise ExtraMissing("an embedder needs sentence-transformers", extra="dense") from None
    try:
        with _quiet_loading():
            return _find_model(SentenceTransformer, embedder)
    except Exception as error:  # an unreachable hub, a folder without a model: many exception types, one meaning
        reason = " ".join(str(error).split())[:200]
        raise ModelMissing(
            f"the embedder {embedder!r} cannot be loaded: {reason}",
            hint="an embedder is a sentence-transformers model of the hub or a folder, or openai:MODEL@BASE_URL",
        ) from error


def _find_model(open_model: Any, embedder: str) -> Any:
    """The embedder from its folder or the hub's cache; the hub is asked only if it is in neither."""
    if Path(embedder).exists():
        return open_model(embedder)
    try:
        return open_model(embedder, local_files_only=True)
    except Exception:  # many exception types mean "not cached"
        _ask_hub(embedder)
    return open_model(embedder)


def _ask_hub(embedder: str) -> None:
    """Raise at once if the hub is unreachable: otherwise each file of a download is retried for minutes."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    with suppress(RepositoryNotFoundError):  # a short name ("all-MiniLM-L6-v2"), which sentence-transformers expands
        HfApi().model_info(embedder, timeout=_HUB_TIMEOUT_S)


@contextmanager
def _quiet_loading() -> Iterator[None]:
    """Context manager that disables transformers' progress bar, which would mix with the program's output."""
    from transformers.utils import logging

    was_on = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_on:
            logging.enable_progress_bar()
