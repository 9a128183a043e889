import pytest

from quaere.search.index import build_index
from quaere.serving.model.embeddings import HashEmbedder
from quaere.serving.model.retriever import Documents
from served import serving


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """An index of two documents, one of them in a folder."""
    home = tmp_path_factory.mktemp("pages")
    (home / "docs" / "coast").mkdir(parents=True)
    (home / "docs" / "rivers.md").write_text(
        "# The Oss\n\nThe Oss runs past Halmgate.\n\nOrsolya Venn built the bridge."
    )
    (home / "docs" / "coast" / "light house.txt").write_text("The lighthouse at Korrin was lit in 1850. <b>Zürich</b>")
    return build_index(home / "docs", home / "index")


@pytest.fixture(scope="module")
def client(index):
    """A client of a server that has everything: a model, embeddings, documents."""
    with serving(embedder=HashEmbedder(), documents=Documents(index, 5), max_tokens=512) as served:
        yield served
