"""Hyperlinks between documents: what readers keep of them, where they lead, and what an index says of them."""

import json
import shutil

import pytest

from quaere.search.chunks import ChunkSettings
from quaere.search.files import read_file
from quaere.search.hyperlinks import (
    MAX_ANCHOR_CHARS,
    MAX_LINKS,
    MAX_TARGET_CHARS,
    Hyperlink,
    LinkedText,
    clean_target,
    place_links,
)
from quaere.search.index import IndexSettings, open_index
from quaere.search.index_build import build_index, update_index
from quaere.search.sources import SOURCES


def read_links(folder, name, content):
    """Anchors and targets of a file, the anchors cut out of its text."""
    (folder / name).write_text(content)
    read = read_file(folder / name)
    return [(read.text[link.start : link.end], link.target) for link in read.links]


# ------------------------------------------------------------------------------------------------------------- readers


@pytest.mark.parametrize(
    ("markup", "links"),
    [
        ('<p>Venn, says <a href="venn.html">Venn</a>, built it.', [("Venn", "venn.html")]),
        ("<p>By <A HREF='a.html'> Orsolya\n  <b>Venn</b> </A>.", [("Orsolya Venn", "a.html")]),
        ("<p>By <a class=x href=a.html>Venn</a> <a name=b>b</a> <a>c</a>.", [("Venn", "a.html")]),
        ("<p>x<br>y <a href=a.html>one<br>two</a>", [("one\ntwo", "a.html")]),
        (
            "<p>10<sup>-6</sup> <a href=a.html>10<sup>6</sup> m</a> <sup><a href=n.html>1</a></sup>",
            [("10^6 m", "a.html")],
        ),
        ("<h2>On <a href=a.html>Venn</a> ¶</h2><p>x", [("Venn", "a.html")]),
        ("<p>Of:<ol><li>x<li>y <a href=a.html>Venn</a></ol>", [("Venn", "a.html")]),
        (
            "<dl><dt>x<dt><a href=a.html>Venn</a><dd>of <a href=b.html>Halm</a></dl>",
            [("Venn", "a.html"), ("Halm", "b.html")],
        ),
        ("<dl><dt><a href=a.html>Venn</a>:<dd><ul><li>x</ul></dl>", [("Venn", "a.html")]),
        (
            "<table><tr><th>Who<th><a href=w.html>Of</a><tr><td><a href=a.html>Venn</a><td>of <a href=b.html>Halm</a>",
            [("Of", "w.html"), ("Venn", "a.html"), ("Halm", "b.html")],
        ),
        ("<pre>\tx <a href=a.html>y\n\tz</a></pre>", [("y\n        z", "a.html")]),
        ("<a href=a.html><p>one<p>two</a> three", [("one", "a.html"), ("two", "a.html")]),
        ("<p>See <a href=a.html>one <a href=b.html>two</a> three", [("one", "a.html"), ("two", "b.html")]),
        ("<p>x &amp; &lt; <a href='a.html?b=1&amp;c=2#d'>y</a>", [("y", "a.html#d")]),
        ("<p>x <a href=a.html><img src=b.png></a> <a href=b.html> </a>", []),
        ("<nav><a href=a.html>Venn</a></nav><p>x", []),
        ("<p><a href=a.html>Up</a> | <a href=b.html>Home</a> | <a href=c.html>Next</a><p>x", []),
        (
            "<p>See <a href=https://a.b>x</a> <a href='mailto:a@b.c'>y</a> <a href='#z'>z</a> <a href=//a.b/c>w</a>",
            [],
        ),
    ],
)
def test_links_of_a_page(tmp_path, markup, links):
    assert read_links(tmp_path, "page.html", f"<title>T</title>{markup}") == links


@pytest.mark.parametrize(
    ("name", "source", "links"),
    [
        ("a.md", "By [Venn](venn.md), [O. Venn](<o venn.md> 'x').", [("Venn", "venn.md"), ("O. Venn", "o venn.md")]),
        ("a.md", "By [**Orsolya\nVenn**](../venn.md#born), `[x](y)`.", [("Orsolya\nVenn", "../venn.md#born")]),
        ("a.md", "[`lxc`](lxc_(1).md) ![x](y.png) \\[x](y) [x]", [("lxc", "lxc_(1).md")]),
        ("a.md", "[Venn][v] [V][]\n\n[v]: venn.md\n[w]: http://a.b\n[w]", [("Venn", "venn.md"), ("V", "venn.md")]),
        ("a.md", "[Venn] was it.\n\n[venn]: <../venn.md>", [("Venn", "../venn.md")]),
        ("a.md", "By [Venn][b].\n\n[b]: <../o venn.md>\n[c]: <x", [("Venn", "../o venn.md")]),
        ("a.md", "[[Orsolya Venn]] [[venn#Born|she]]", [("Orsolya Venn", "Orsolya Venn"), ("she", "venn#Born")]),
        ("a.md", "{ref}`the options <opts>` {doc}`/a/b` {kbd}`x <y>`", [("the options", "opts"), ("/a/b", "/a/b")]),
        ("a.md", "```\n[x](y.md)\n```\n```{note}\n[z](z.md)\n```\n~~~\n[w](w.md)", [("z", "z.md")]),
        ("a.rst", ":ref:`Venn <venn>`, :doc:`../b`, ``:doc:`x```", [("Venn", "venn"), ("../b", "../b")]),
        (
            "a.rst",
            "By `Orsolya Venn <venn.rst>`_ or `her <venn.rst>`__",
            [("Orsolya Venn", "venn.rst"), ("her", "venn.rst")],
        ),
        ("a.rst", "`x <https://a.example>`_ :term:`y <z>`", []),
        ("a.adoc", "xref:venn.adoc#b[Venn], <<opts,the options>>", [("Venn", "venn.adoc#b"), ("the options", "opts")]),
        ("a.adoc", "link:https://a.b[x] <<opts>>", []),
        ("a.txt", "[x](y.md)", []),
    ],
)
def test_links_of_texts_whose_source_is_kept(tmp_path, name, source, links):
    assert read_links(tmp_path, name, source) == links


def test_links_of_a_notebook_lie_in_its_cells_of_text(tmp_path):
    cells = [("code", "a = '[x](y.md)'"), ("markdown", "\n\nBy [Venn](venn.ipynb).")]
    notebook = {"cells": [{"cell_type": kind, "source": source} for kind, source in cells], "nbformat": 4}
    assert read_links(tmp_path, "a.ipynb", json.dumps(notebook)) == [("Venn", "venn.ipynb")]


def test_places_are_found_again_in_white_space_of_any_kind():
    for text in ("a  bc\n\n d", " a\tb c d ", "abcd"):
        (link,) = place_links(LinkedText(text, (Hyperlink(1, 3, "x"),)))
        assert "".join(text[link.start : link.end].split()) == "bc"
    assert place_links(LinkedText("abc", (Hyperlink(2, 5, "x"),))) == ()


# -------------------------------------------------------------------------------------------------------------- bounds


@pytest.mark.parametrize(
    "written",
    [
        *("JavaScript:alert(1)", "data:text/html,x", "https://a.b/c.html", "//a.b/c", "\\\\host\\a", "C:\\a.html"),
        *("a\0b", "\ud800.html", "#a", "?a=1", "", "x" * (MAX_TARGET_CHARS + 1)),
    ],
)
def test_targets_that_are_no_document_of_the_corpus(written):
    assert clean_target(written) == ""


def test_links_and_anchors_of_a_page_are_bounded(tmp_path):
    many = [(f"<p><a href=a.html>{number}</a>" for number in range(MAX_LINKS + 5))]
    assert len(read_links(tmp_path, "page.html", "".join(*many))) == MAX_LINKS
    assert len(read_links(tmp_path, "page.md", "[x](y.md) " * (MAX_LINKS + 5))) == MAX_LINKS
    for length, num in ((MAX_ANCHOR_CHARS, 1), (MAX_ANCHOR_CHARS + 1, 0)):
        assert len(read_links(tmp_path, "page.html", f"<p>x <a href=a.html>{'y' * length}</a>")) == num
        assert len(read_links(tmp_path, "page.md", f"[{'y' * length}](a.md)")) == num


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("a.html", "<a href='&#1"),
        ("a.html", "<a href=a>x<sup>"),
        ("a.html", "<dl><dt><a href=a>x"),
        ("a.html", "<table><tr><td><a href=a>x"),
        ("a.md", "["),
        ("a.md", "[a]("),
        ("a.md", "[a](b "),
        ("a.md", "[a](b '"),
        ("a.md", "[[a|"),
        ("a.md", "`"),
        ("a.md", "{ref}`<"),
        ("a.md", "[a]: b\n[a] "),
        ("a.rst", "`a <"),
        ("a.rst", ":ref:`"),
        ("a.adoc", "<<a,"),
        ("a.adoc", "xref:a["),
    ],
)
def test_unfinished_links_are_read_in_linear_time(tmp_path, name, unit):
    """Half a megabyte: in quadratic time it would be minutes."""
    read_links(tmp_path, name, unit * ((1 << 19) // len(unit)))


# --------------------------------------------------------------------------------------------------------------- graph


def write_files(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def link_pairs(index, doc_id):
    return [(link.passage.doc_id, link.passage.text[link.start : link.end]) for link in index.links_to(doc_id)]


@pytest.mark.parametrize(
    ("source", "target", "found"),
    [
        ("guide/walks.md", "../people/venn.md", "people/venn.md"),
        ("guide/walks.md", "./../guide/halm bridge.md", "guide/halm bridge.md"),
        ("guide/walks.md", "halm%20bridge.md", "guide/halm bridge.md"),
        ("guide/walks.md", "/people/venn.md", "people/venn.md"),
        ("guide/walks.md", "../People/VENN.md#born", "people/venn.md"),
        ("guide/walks.md", "../people/venn.html", "people/venn.md"),
        ("guide/walks.md", "../people/venn", "people/venn.md"),
        ("guide/walks.md", "..", "README.md"),
        ("guide/walks.md", "../people/", "people/index.md"),
        ("guide/walks.md", "venn", "people/venn.md"),  # a wiki page, in whatever folder
        ("guide/walks.md", "Halm-Bridge", "guide/halm bridge.md"),
        ("guide/walks.md", "born-here", "people/venn.md"),  # a label
        ("guide/walks.md", "venn.md", None),
        ("guide/walks.md", "../../venn.md", None),
        ("guide/walks.md", "../../docs/people/venn.md", None),
        ("guide/walks.md", "index", None),
        ("guide/walks.md", "twice", None),
        ("guide/walks.md", "walks.md", None),  # itself
        ("top.md", "guide/walks.md", "guide/walks.md"),
    ],
)
def test_where_a_path_leads(tmp_path, source, target, found):
    names = ("README.md", "people/index.md", "guide/halm bridge.md", "guide/walks.md", "a/twice.md", "b/twice.md")
    files = {name: f"This is {name}." for name in names}
    files["people/venn.md"] = "(venn-top)=\n\n# Life\n\n(born-here)=\n## Born\n\nShe was born."
    files[source] = f"It leads to [it](<{target}>)."
    index = build_index(write_files(tmp_path / "docs", files), tmp_path / "index")
    led = [doc_id for doc_id in index.document_ids() if link_pairs(index, doc_id)]
    assert led == ([found] if found else [])


def test_a_link_to_a_part_says_so(tmp_path):
    files = {
        "a.md": "[one](b.md) [two](b.md#x) [three](whole) [four](part)",
        "b.md": "(whole)=\n# B\n\n(part)=\n## C\n\nText of it.",
    }
    index = build_index(write_files(tmp_path / "docs", files), tmp_path / "index")
    assert [link.to_part for link in index.links_to("b.md")] == [False, True, False, True]


def test_links_lie_in_the_passage_of_their_anchor(tmp_path):
    files = {
        f"{number}.html": f"<p>{'word ' * 30}<p>{'more ' * 30} <a href=x.html>né {number}</a>." for number in range(3)
    }
    files["x.html"] = "<p>This is it."
    settings = IndexSettings(chunks=ChunkSettings(max_words=32))
    index = build_index(write_files(tmp_path / "docs", files), tmp_path / "index", settings)
    assert [link.passage.id for link in index.links_to("x.html")] == ["0.html#1", "1.html#1", "2.html#1"]
    assert [text for _, text in link_pairs(index, "x.html")] == ["né 0", "né 1", "né 2"]


def test_a_link_to_a_copy_leads_to_the_document_that_is_kept(tmp_path):
    halm = "# Halm Bridge\n\nVenn built it."
    files = {"a/halm.md": halm, "b/old halm.md": halm, "b/one.md": "[first](<old halm.md>)"}
    files |= {"c/two.md": "[[old-halm|second]]", "d/three.md": "[third](../c/link.md)"}
    docs = write_files(tmp_path / "docs", files)
    (docs / "c" / "link.md").symlink_to(docs / "b" / "old halm.md")
    index = build_index(docs, tmp_path / "index")
    assert index.manifest.corpus.num_duplicates == 2
    assert [said for _, said in link_pairs(index, "a/halm.md")] == ["first", "second", "third"]
    # After an update as well, when another document is the first of its text.
    write_files(docs, {"a/first.md": halm})
    updated, again = update_index(index.path).index, build_index(docs, tmp_path / "again")
    for one in (updated, again):
        assert [said for _, said in link_pairs(one, "a/first.md")] == ["first", "second", "third"]
    assert (updated.path / SOURCES).read_bytes() == (again.path / SOURCES).read_bytes()


def test_a_name_of_copies_of_two_documents_leads_nowhere(tmp_path):
    one, two = "# One\n\nVenn built it.", "# Two\n\nBrod milled."
    files = {"one.md": one, "two.md": two, "x/same.md": one, "y/same.md": two, "z.md": "[[same]] [b](y/same.md)"}
    index = build_index(write_files(tmp_path / "docs", files), tmp_path / "index")
    assert (link_pairs(index, "one.md"), link_pairs(index, "two.md")) == ([], [("z.md", "b")])


def test_of_a_file_and_a_link_to_it_the_file_is_kept(tmp_path):
    docs = write_files(tmp_path / "docs", {"halm.md": "# Halm Bridge\n\nVenn built it."})
    (docs / "a.md").symlink_to(docs / "halm.md")
    index = build_index(docs, tmp_path / "index")
    assert list(index.document_ids()) == ["halm.md"]
    (docs / "halm.md").rename(docs / "bridge.md")
    (docs / "a.md").unlink()
    (docs / "a.md").symlink_to(docs / "bridge.md")
    assert list(update_index(index.path).index.document_ids()) == ["bridge.md"]


# --------------------------------------------------------------------------------------------------------------- index


FILES = {
    "halm.html": "<p>It was built by <a href=venn.html>Venn</a>, see <a href=later.html>below</a>.",
    "venn.html": "<p>She was a mason.",
    "oss.html": "<p>It is a river of <a href=venn.html>hers</a>.",
}


def test_an_update_keeps_links_and_finds_new_targets(tmp_path):
    docs = write_files(tmp_path / "docs", FILES)
    index = build_index(docs, tmp_path / "index")
    assert link_pairs(index, "venn.html") == [("halm.html", "Venn"), ("oss.html", "hers")]
    write_files(
        docs, {"later.html": "<p>This came later.", "oss.html": "<p>It is a river of <a href=none.html>hers</a>."}
    )
    updated = update_index(tmp_path / "index")
    assert updated.counts.num_read == 2
    assert link_pairs(updated.index, "venn.html") == [("halm.html", "Venn")]
    assert link_pairs(updated.index, "later.html") == [("halm.html", "below")]
    (docs / "venn.html").unlink()
    index = update_index(tmp_path / "index").index
    again = build_index(docs, tmp_path / "again")
    assert {name: link_pairs(index, name) for name in index.document_ids()} == {
        name: link_pairs(again, name) for name in again.document_ids()
    }


def test_a_change_of_a_target_alone_is_an_update_that_searches_the_same(tmp_path):
    docs = write_files(tmp_path / "docs", FILES | {"other.html": "<p>Another page."})
    before = build_index(docs, tmp_path / "index")
    write_files(docs, {"oss.html": FILES["oss.html"].replace("venn.html", "other.html")})
    after = update_index(tmp_path / "index").index
    assert after.fingerprint == before.fingerprint
    assert link_pairs(after, "other.html") == [("oss.html", "hers")]


def test_an_index_without_links_opens_as_before(tmp_path):
    """As one of an earlier version is, or one of rows."""
    docs = write_files(tmp_path / "docs", FILES)
    build_index(docs, tmp_path / "index")
    shutil.copytree(tmp_path / "index", tmp_path / "old")
    manifest = json.loads((tmp_path / "old" / "manifest.json").read_text())
    for name in ("links.bin", "links.npy"):
        (tmp_path / "old" / name).unlink()
        del manifest["file_sizes"][name]
    (tmp_path / "old" / "manifest.json").write_text(json.dumps(manifest))
    old = open_index(tmp_path / "old")
    assert link_pairs(old, "venn.html") == [] and len(old.search(["mason"], 1)[0]) == 1
    (tmp_path / "rows.jsonl").write_text(json.dumps({"id": "a", "title": "A", "text": "See [b](b.md)."}) + "\n")
    rows = build_index(tmp_path / "rows.jsonl", tmp_path / "rows")
    assert link_pairs(rows, "a") == [] and not (tmp_path / "rows" / "links.bin").exists()
