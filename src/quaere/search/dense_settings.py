"""Settings of dense retrieval: the embedder and how neighbours are found."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from quaere.endpoint import parse_endpoint
from quaere.errors import BadInput

Ann = Literal["flat", "ivf", "hnsw"]

DEFAULT_EMBEDDER = "intfloat/e5-base-v2"
ENDPOINT = "openai:"  # what the name of an embedder on a server begins with
_E5 = re.compile(r"(^|/)(multilingual-)?e5-(small|base|large)(-v2|-unsupervised)*$")


class DenseSettings(msgspec.Struct, frozen=True):
    """The embedder, the prefixes of its inputs, and the FAISS index.

    The embedder is a sentence-transformers model, or `openai:MODEL@BASE_URL`: one on a server. A prefix of None is the
    prompt stored with a model, and nothing for one on a server. `num_lists=0` derives the number of lists from the
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
        """Raise `BadInput` if a size is out of range, or the embedder is no endpoint and begins like one."""
        if self.embedder.startswith(ENDPOINT):
            parse_endpoint(self.embedder, "--embedder")
        sizes = (self.num_probes, self.num_links, self.build_width, self.search_width, self.batch_size)
        if self.num_lists < 0 or min(sizes) < 1 or self.num_links < 2:
            raise BadInput(
                "the sizes of a dense index must be at least 1 (num_links: at least 2; num_lists: 0 chooses the number)"
            )

    def with_known_prefixes(self) -> DenseSettings:
        """The settings with the prefixes of E5 models, which need them but do not store them as prompts."""
        name = self.embedder.removeprefix(ENDPOINT).partition("@")[0]
        if self.query_prefix is None and self.passage_prefix is None and _E5.search(name):
            return msgspec.structs.replace(self, query_prefix="query: ", passage_prefix="passage: ")
        return self
