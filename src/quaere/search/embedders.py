"""Embedders and the settings of dense retrieval: passages and queries in, vectors of norm 1 out.

A model runs in this process with sentence-transformers, or on a server (`endpoint_embedder.py`).

A reranker compares the query with the first passages of an engine, and both rankings are fused. Only these passages are
encoded, so that a large corpus needs no vectors of all its passages; the most recently used vectors are cached.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec import Struct, field

from quaere.endpoint import parse_endpoint
from quaere.errors import BadInput, ModelMissing, import_extra
from quaere.records import Passage
from quaere.search.engines import Engine, Match, fuse, rank

Ann = Literal["flat", "ivf", "hnsw"]
DEFAULT_EMBEDDER = "intfloat/e5-base-v2"
ENDPOINT = "openai:"  # prefix of the name of an embedder on a server
_E5 = re.compile(r"(^|/)(multilingual-)?e5-(small|base|large)(-v2|-unsupervised)*$")
Vectors = np.typing.NDArray[np.float32]
_HUB_TIMEOUT_S = 10.0


class DenseSettings(msgspec.Struct, frozen=True):
    """The embedder, the prefixes of its inputs, and the FAISS index.

    The embedder is a sentence-transformers model, or `openai:MODEL@BASE_URL` for one on a server. A prefix of None is
    the prompt stored with the model; for a server, no prefix. `num_lists=0` derives the number of lists from the
    number of passages. Larger `num_probes` (ivf) or `search_width` (hnsw) raise recall and take longer; "flat" compares
    with all passages.

        DenseSettings(embedder="intfloat/e5-base-v2", query_prefix="query: ", passage_prefix="passage: ", ann="flat")
    """

    embedder: str = DEFAULT_EMBEDDER
    query_prefix: str | None = None
    passage_prefix: str | None = None
    ann: Ann = "flat"
    num_lists: int = 0
    num_probes: int = 16
    num_links: int = 32
    build_width: int = 200
    search_width: int = 64
    batch_size: int = 64

    def check(self) -> None:
        """Raise `BadInput` if a size is out of range, or the embedder is a malformed `openai:MODEL@BASE_URL`."""
        if self.embedder.startswith(ENDPOINT):
            parse_endpoint(self.embedder, "--embedder")
        sizes = (self.num_probes, self.num_links, self.build_width, self.search_width, self.batch_size)
        if self.num_lists < 0 or min(sizes) < 1 or self.num_links < 2:
            least = "(num_links: at least 2; num_lists: 0 chooses the number)"
            raise BadInput(f"the sizes of a dense index must be at least 1 {least}")

    def with_known_prefixes(self) -> DenseSettings:
        """The settings with the prefixes of E5 models, which need them but do not store them as prompts."""
        name = self.embedder.removeprefix(ENDPOINT).partition("@")[0]
        if self.query_prefix is None and self.passage_prefix is None and _E5.search(name):
            return msgspec.structs.replace(self, query_prefix="query: ", passage_prefix="passage: ")
        return self


class Embedder:
    """An encoder of texts to vectors of norm 1, which may be shared between threads.

    `num_at_once` is how many passages are best given at once.
    """

    num_at_once: int

    def __init__(self, settings: DenseSettings) -> None:
        self._settings = settings

    def embed_queries(self, queries: Sequence[str]) -> Vectors:
        """Vectors of the queries, one row each."""
        return self._embed(queries, self._settings.query_prefix, is_query=True)

    def embed_passages(self, passages: Sequence[Passage]) -> Vectors:
        """Vectors of the passages, one row each, from title and text."""
        return self._embed([each.titled_text for each in passages], self._settings.passage_prefix, is_query=False)

    def _embed(self, texts: Sequence[str], prefix: str | None, *, is_query: bool) -> Vectors:
        raise NotImplementedError


def open_embedder(settings: DenseSettings) -> Embedder:
    """The embedder that the settings name: a sentence-transformers model, which is loaded now, or one on a server."""
    if not settings.embedder.startswith(ENDPOINT):
        return SentenceEmbedder(settings)
    from quaere.search.endpoint_embedder import EndpointEmbedder  # only this one needs httpx

    return EndpointEmbedder(settings)


class SentenceEmbedder(Embedder):
    """Embedder by sentence-transformers. Calls are serialised: the tokenizer inside is not thread-safe."""

    def __init__(self, settings: DenseSettings) -> None:
        super().__init__(settings)
        self.num_at_once = settings.batch_size
        self._model = _load_model(settings.embedder)
        self._lock = threading.Lock()

    def _embed(self, texts: Sequence[str], prefix: str | None, *, is_query: bool) -> Vectors:
        encode = self._model.encode_query if is_query else self._model.encode_document
        how = {"normalize_embeddings": True, "convert_to_numpy": True, "show_progress_bar": False}
        with self._lock:
            vectors = encode(list(texts), prompt=prefix, batch_size=self.num_at_once, **how)
        return np.ascontiguousarray(vectors, dtype=np.float32)


def _load_model(embedder: str) -> Any:
    library = import_extra("sentence_transformers", "an embedder needs sentence-transformers", extra="dense")
    from transformers.utils import logging

    has_progress_bar = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # it would mix with the program's output
    try:
        return _find_model(library.SentenceTransformer, embedder)
    except Exception as error:  # an unreachable hub, a folder without a model: many exception types, one meaning
        reason = " ".join(str(error).split())[:200]
        hint = "an embedder is a sentence-transformers model of the hub or a folder, or openai:MODEL@BASE_URL"
        raise ModelMissing(f"the embedder {embedder!r} cannot be loaded: {reason}", hint=hint) from error
    finally:
        if has_progress_bar:
            logging.enable_progress_bar()


def _find_model(open_model: Any, embedder: str) -> Any:
    """Open the model from its folder or the hub's local cache; only if it is in neither, download it from the hub."""
    if Path(embedder).exists():
        return open_model(embedder)
    try:
        return open_model(embedder, local_files_only=True)
    except Exception:  # many exception types mean "not cached"
        from huggingface_hub import HfApi
        from huggingface_hub.errors import RepositoryNotFoundError

        # This raises at once if the hub is unreachable: otherwise each file of a download is retried for minutes.
        with suppress(RepositoryNotFoundError):  # a short name ("all-MiniLM-L6-v2"), which the library expands
            HfApi().model_info(embedder, timeout=_HUB_TIMEOUT_S)
    return open_model(embedder)


# ------------------------------------------------------------------------------------------------------------ reranking


NO_RERANKER = "none"
RERANK_DEPTH = 20  # passages that are reranked


def open_reranker(name: str) -> Embedder:
    """Open the embedder used for reranking: a sentence-transformers model, or `openai:MODEL@BASE_URL` on a server."""
    settings = DenseSettings(embedder=name).with_known_prefixes()
    settings.check()
    return open_embedder(settings)


class RerankEngine(Struct):
    """Engine that reranks the first matches of another engine; `read` returns a passage by its number."""

    engine: Engine
    encoder: Embedder
    read: Callable[[int], Passage]
    num_kept: int = 65_536  # vectors in the cache; with MiniLM they take 100 MB
    _kept: dict[int, Vectors] = {}  # by passage number, the least recently used first
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def search(self, queries: Sequence[str], topk: int) -> list[list[Match]]:
        """The best passages for each query, at most `topk`."""
        found = self.engine.search(queries, max(topk, RERANK_DEPTH))
        vectors = self._embed({match.number for matches in found for match in matches[:RERANK_DEPTH]})
        if not vectors:
            return found
        asked = self.encoder.embed_queries(queries)
        return [
            fuse([matches, _rerank(query, matches[:RERANK_DEPTH], vectors)], topk)
            for query, matches in zip(asked, found, strict=True)
        ]

    def _embed(self, numbers: Iterable[int]) -> dict[int, Vectors]:
        """The vectors of these passages, by number: from the cache, else encoded in batches."""
        wanted = sorted(numbers)
        with self._lock:
            vectors = {number: self._kept[number] for number in wanted if number in self._kept}
        new = [number for number in wanted if number not in vectors]
        for start in range(0, len(new), self.encoder.num_at_once):
            batch = new[start : start + self.encoder.num_at_once]
            encoded = self.encoder.embed_passages([self.read(number) for number in batch])
            vectors |= zip(batch, map(np.copy, encoded), strict=True)  # copied: a view keeps the whole batch
        with self._lock:
            for number in vectors:
                self._kept.pop(number, None)
            self._kept |= vectors
            for number in [*islice(self._kept, max(0, len(self._kept) - self.num_kept))]:
                del self._kept[number]
        return vectors


def _rerank(query: Vectors, matches: Sequence[Match], vectors: dict[int, Vectors]) -> list[Match]:
    return rank([Match(match.number, float(query @ vectors[match.number])) for match in matches], RERANK_DEPTH)
