"""Reading that suits manuals: blocks of a page, terms with definitions, rows with headers, heading trails."""

from pathlib import Path

import pytest

from making_files import make_docx, make_epub, make_ipynb
from quaere.search.chunks import ChunkSettings, cut
from quaere.search.client import SearchClient
from quaere.search.corpus import Document
from quaere.search.files import parse_file, read_file
from quaere.search.formats.web import read_page
from quaere.search.index import open_index
from quaere.search.index_build import build_index, update_index

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
WORDS = "The board met and spoke of other things. " * 8


def passages(folder, name, content, max_words=120):
    path = folder / name
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(data)
    read = parse_file(path, data, 1 << 24)
    document = Document(name, read.title, read.text, "file", read.parts, headings=read.headings)
    return cut(document, ChunkSettings(max_words=max_words))


# --------------------------------------------------------------------------------------------------------------- pages


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        # A line break of the source is white space, one of the page is a line break, two are a paragraph.
        ("<p>It rises\nnear\n\n Halmgate.<p>It is\nshort.", "It rises near Halmgate.\n\nIt is short."),
        ("one<br>two<br><br>three", "one\ntwo\n\nthree"),
        # Definitions: one term, several terms, several definitions, several blocks, none.
        ("<dl><dt>-c</dt><dd>Curvature</dd><dt>-r<dd>Refraction</dl>", "-c: Curvature\n-r: Refraction"),
        ("<dl><dt>a<dt>b:<dd><p>Both</p></dd></dl>", "a, b: Both"),
        ("<dl><dt>height<dd>Above ground<dd>Default: 1.75</dl>", "height: Above ground\n  Default: 1.75"),
        ("<dl><dt>a<dd><p>One.<p>Two.</dd><dt>b<dd>Three.</dl>", "a: One.\n\nTwo.\n\nb: Three."),
        ("<dl><dt>a<dd><ul><li>x<li>y</ul></dl>", "a:\n  - x\n  - y"),
        ("<dl><dt>a</dl>b", "a\n\nb"),
        # Lists: with their lead, numbered, nested, with paragraphs in them.
        ("<p>Options:</p><ul><li>a</li><li><p>b</p></li></ul>end", "Options:\n- a\n- b\n\nend"),
        ("<p>Steps<ol><li>a<li>b<ul><li>c</ul></ol>", "Steps\n\n1. a\n2. b\n  - c"),
        ("<ul><li>a<p>more</p></li><li>b</ul>", "- a\n\nmore\n\n- b"),
        # Rows with their header; without one; cells over several rows and columns.
        (
            "<table><tr><th>Key<th>Type<th>Default</tr><tr><td>cpu<td>int<td>1</tr></table>",
            "Key | Type | Default\nKey: cpu; Type: int; Default: 1",
        ),
        ("<p>Sizes:<table><tr><td>a<td>1<tr><td>b<td>2</table>", "Sizes:\na | 1\nb | 2"),
        (
            "<table><tr><th>A<th>B<th>C<tr><td rowspan=2>x<td>1<td>2<tr><td>3<td>4<tr><td colspan=2>y<td>5</table>",
            "A | B | C\nA: x; B: 1; C: 2\nB: 3; C: 4\nA: y; C: 5",
        ),
        # A table that only arranges the page.
        ("<table><tr><td><h2>Note</h2><p>One.<p>Two.<td>Menu</table>", "Note\n\nOne.\n\nTwo.\n\nMenu"),
        ("<table><tr><td>One.<tr><td>Two.</table>", "One.\n\nTwo."),
        ("<table><tr><th>Note<tr><td><p>Eels pass.</table>", "Note:\n\nEels pass."),
        (f"<table><tr>{'<td>x' * 70}</table>", " | ".join("x" * 70)),
        # Code is kept as it is, below its lead.
        ("<p>Type:<pre>\nif a:\n    b\n</pre>", "Type:\nif a:\n    b"),
        # Superscripts and subscripts.
        ("2<sup>64</sup> B, 10<sup>-6</sup> m<sup>2</sup>, e<sup>-kt</sup>", "2^64 B, 10^-6 m^2, e^(-kt)"),
        (
            "the 1<sup>st</sup>, see<sup>[2]</sup> H<sub>2</sub>O, 5 &micro;m, 20&nbsp;&deg;C",
            "the 1st, see[2] H2O, 5 µm, 20 °C",
        ),
        # Marks where a word may be broken are no part of it; in Khmer one is between words.
        ("<p>Donau&shy;dampf&#8203;schiff, <code>java.<wbr>&#8203;util</code>\ufeff", "Donaudampfschiff, java.util"),
        ("<p>ភ្នំ\u200bពេញ", "ភ្នំ\u200bពេញ"),
        # What is below or beside in a browser is so here.
        (
            "one<center>two</center>three<fieldset><legend>four</legend>five</fieldset>",
            "one\n\ntwo\n\nthree\n\nfour\n\nfive",
        ),
        ("<pre>a = 1<button>copy</button></pre><button>a</button><button>b</button>", "a = 1\n\na b"),
        ("<dl><dt>run(x)<a class=headerlink href=#r>¶</a><dd>Runs x.</dl>", "run(x): Runs x."),
        ("<label>Linux</label><label>macOS</label>", "Linux macOS"),
        ("<p>one<select><option>1.0<option>2.0</select> two", "one two"),
        ("<math><mi>E</mi><mo>=</mo><mi>m</mi><annotation encoding=TeX>E=m</annotation></math>", "E=m"),
        ("<math><msup><mn>2</mn><mrow><mn>6</mn><mn>4</mn></mrow></msup><mo>x</mo></math>", "2^64x"),
        ("<math><msup><msup><mi>a</mi><mi>b</mi></msup><mn>2</mn></msup><mi/></msup></math> b<p>c", "a^b^2 b\n\nc"),
        ("<h2>Oss<a>§</a></h2><h2>Mouth<a class='hash-link'>&#8203;</a></h2><p>x", "Oss\n\nMouth\n\nx"),
        ("<p>2<sup>6<p>4</sup> <sup>3</sup>", "26\n\n4 3"),  # never closed; with nothing to be raised from
    ],
)
def test_what_belongs_together_comes_out_whole(markup, text):
    assert read_page(markup).text == text


@pytest.mark.parametrize(
    "menu",
    [
        "<nav>Home</nav>",
        "<footer>Home</footer>",
        "<div class='navheader'><table><tr><td>Home</table></div>",
        "<div class='x site-menu'><div>Home</div> Home</div>",
        '<ul id="sidebar"><li>Home</ul>',
        "<div role=navigation>Home</div>",
        "<div class='nav-panel'><p>Home</div>",
        "<p>Next: <a>Home</a>, Previous: <a>Oss</a>, Up: <a>Top</a> &nbsp; [<a>Contents</a>][<a>Index</a>]</p>",
        "<span class='mw-editsection'>[<a>Home</a>]</span>",
        "<table><tr><td class='linenos'><pre>Home</pre></td></table>",
        "<p><a href=a>Home</a> | <a href=b>Up</a> | <a href=c>Next</a></p>",
    ],
)
def test_menus_are_passed_over(menu):
    assert read_page(f"{menu}<p>The Oss.{menu}").text == "The Oss."
    assert "Home" in read_page(menu).text  # where there is nothing else, the menu is the page


def test_what_only_looks_like_a_menu_is_read():
    assert read_page("<section id=navigation><h2>Navigation</h2><p>By the stars.</section>").text.endswith(
        "By the stars."
    )
    assert read_page("<div class='section' id='menu'>Eels.</div>").text == "Eels."
    assert read_page("<p><a>ls</a>, <a>cp</a>, <a>mv</a>").text == "ls, cp, mv"
    assert read_page("<p>See <a>a</a>, <a>b</a> and <a>c</a>.").text == "See a, b and c."
    assert read_page("<div class=nav>Home<p>The Oss.").text == "Home\n\nThe Oss."  # it never ends: no menu


def test_the_main_part_of_a_page_is_the_page():
    assert read_page("<p>Shop<main><p>The Oss.</main><p>Terms").text == "The Oss."
    assert read_page("<p>Shop<main><p>The Oss.").text == "The Oss."
    assert read_page("<p>Shop<main></main>").text == "Shop"


# -------------------------------------------------------------------------------------------------------------- trails


def test_passages_of_a_page_have_their_headings(tmp_path):
    page = (
        f"<title>The Oss</title><h1>1. The Oss</h1><p>{WORDS}<h2>Options:</h2><h3>Query planning</h3>"
        f"<p>{WORDS}<p>{WORDS}"
        f"<h2>Bridges</h2><dl><dt>halm_bridge<dd><p>{WORDS}<p>{WORDS}</dl><p>{WORDS}"
    )
    found = passages(tmp_path, "a.html", page)
    assert [passage.heading for passage in found] == [
        "",
        "Options > Query planning",
        "Options > Query planning",
        "Bridges",
        "Bridges > halm_bridge",
        "Bridges",
    ]
    assert found[1].text.startswith("Options:\n\nQuery planning\n\nThe board")


MARKDOWN = (
    f"---\ntitle: x\n---\n\n# Oss\n\n{WORDS}\n\n(label)=\n## Course ##\n\n{WORDS}\n\n"
    f"```\n# no heading\n```\n\nMouth\n-----\n\n{WORDS}\n"
)
RST = f"===\nOss\n===\n\n{WORDS}\n\nCourse\n======\n\n{WORDS}\n\nMouth\n-----\n\n{WORDS}\n"
ADOC = f"= Oss\n\n{WORDS}\n\n[[course]]\n== Course\n\n{WORDS}\n\n----\n== no heading\n----\n\n=== Mouth\n\n{WORDS}\n"


@pytest.mark.parametrize(
    ("name", "text", "trails"),
    [
        ("a.md", MARKDOWN, ["", "Course", "Mouth"]),
        ("a.rst", RST, ["", "Course", "Course > Mouth"]),
        ("a.adoc", ADOC, ["", "Course", "Course > Mouth"]),
        ("a.txt", RST.replace("===\nOss\n===\n\n", ""), ["", "Course", "Course > Mouth"]),
    ],
)
def test_passages_of_a_text_have_its_headings(tmp_path, name, text, trails):
    found = passages(tmp_path, name, text)
    assert [passage.heading for passage in found] == trails
    assert all(text[passage.start : passage.end] == passage.text for passage in found)
    assert found[1].text.startswith(("(label)=\n## Course", "[[course]]", "Course\n==="))


def test_a_fence_of_markdown_hides_headings_in_asciidoc_too(tmp_path):
    (tmp_path / "a.adoc").write_text("= Oss\n\n```bash\n== no\n```\n\n== Use\n\n`x`\n```\n== no\n```\n")
    assert [heading.text for heading in read_file(tmp_path / "a.adoc").headings] == ["Oss", "Use"]


@pytest.mark.parametrize(
    ("text", "columns", "rows"),
    [
        ("sep=;\r\nName;Cost\r\nRope;12\r\n", ("Name", "Cost"), [(7, 1), (18, 2)]),
        ('"a, b, c";"d, e"\n1;2\n', ("a, b, c", "d, e"), [(0, 1), (17, 2)]),
        ("Report\n\nName;Cost\nRope;12\n", ("Name", "Cost"), [(0, 1), (8, 3), (18, 4)]),
        ("Name\nRope\n", (), [(0, 1), (5, 2)]),
    ],
)
def test_columns_and_rows_of_separated_values(tmp_path, text, columns, rows):
    (tmp_path / "a.csv").write_text(text, newline="")
    read = read_file(tmp_path / "a.csv")
    assert (read.text, read.columns) == (text, columns)
    assert [(part.start, part.number) for part in read.parts] == rows


@pytest.mark.parametrize(
    ("text", "title", "headings"),
    [
        ("# Tool [![Build](https://ci/x.svg)](https://ci) ![v][v]\n\nText.\n", "Tool", ["Tool"]),
        ("# ![Tool](logo.svg)\n\n## Use\n", "Tool", ["Tool", "Use"]),
        (
            '<h1 align="center">\n  <img src="a.svg">\n  Great <b>Tool</b>\n</h1>\n\n## Use\n',
            "Great Tool",
            ["Great Tool", "Use"],
        ),
        ('<h1><img src="a.svg" alt="Tool &amp; co"/></h1>\n', "Tool & co", ["Tool & co"]),
        ("# News\n\n## [1.2](https://a.example/b) (2024)\n", "News", ["News", "1.2 (2024)"]),
        ('# News\n\n## <a name="x"></a>List<int> {#x .y}\n', "News", ["News", "List<int>"]),
        ("# C#\n\nIt\n--\n\n## {} and [x] ##\n", "C#", ["C#", "It", "{} and [x]"]),
        ("---\r\ntitle: 'Deploying: it'\r\n# weight\r\nweight: 3\r\n---\r\n\r\n## Use\r\n", "Deploying: it", ["Use"]),
        ('+++\ntitle = "Deploying"\n+++\n\nText.\n', "Deploying", []),
        ("---\ntitle: >-\n  Long\n---\n\n## Use\n", "Use", ["Use"]),
        ("---\ntitle: Other\n---\n\n# Use\n", "Use", ["Use"]),
        ("---\n\n# Use\n\nA rule above.\n", "Use", ["Use"]),
    ],
)
def test_a_heading_is_what_is_shown_of_it(tmp_path, text, title, headings):
    (tmp_path / "some.md").write_text(text, newline="")
    read = read_file(tmp_path / "some.md")
    assert (read.title, [heading.text for heading in read.headings]) == (title, headings)
    assert read.text == text


def test_a_table_of_markdown_keeps_its_header(tmp_path):
    rows = "".join(f"`limits.{number}` | integer | `{number}` | {WORDS}\n" for number in range(4))
    header = "Key | Type | Default | Description\n:-- | --- | --- | ---\n"
    text = f"# Keys\n\n## Limits\n\nThese keys exist:\n\n{header}{rows}\nAfter it. {WORDS}"
    found = passages(tmp_path, "a.md", text)
    assert found[0].text.startswith("# Keys") and "Key | Type" in found[0].text
    assert [passage.heading for passage in found[1:]] == ["Limits > Key | Type | Default | Description"] * 3 + [
        "Limits"
    ]
    assert found[1].text.startswith("`limits.1` |")


def test_word_documents_have_headings_tables_and_superscripts(tmp_path):
    docx = pytest.importorskip("docx", reason="python-docx is in the dev extra")
    rows = [["Key", "Default"], *([f"key {number}", WORDS] for number in range(4))]
    found = passages(tmp_path, "a.docx", make_docx("# Oss", "# Limits", rows, "After it.", title="Oss"))
    assert [passage.heading for passage in found] == ["", "Limits", *["Limits > Key | Default"] * 3]
    assert found[1].text.startswith("Limits\n\nKey | Default\nkey 0 | The board")
    document = docx.Document()
    paragraph = document.add_paragraph("Up to 2")
    for digit in "64":
        paragraph.add_run(digit).font.superscript = True
    paragraph.add_run(" bytes")
    document.save(tmp_path / "b.docx")
    assert read_file(tmp_path / "b.docx").text == "Up to 2^64 bytes"


def test_books_and_notebooks_have_headings(tmp_path):
    pytest.importorskip("defusedxml", reason="defusedxml is in the dev extra")
    (passage, *_) = passages(tmp_path, "a.epub", make_epub("Sagas", f"<h1>One</h1><h2>Storm</h2><p>{WORDS}<p>{WORDS}"))
    assert (passage.heading, passage.place) == ("One > Storm", "chapter One, paragraphs 1-3")
    found = passages(
        tmp_path, "a.ipynb", make_ipynb(("markdown", f"# Tides\n\n{WORDS}\n\n## Spring\n\n{WORDS}{WORDS}"))
    )
    assert [passage.heading for passage in found] == ["", "Spring"]


def test_trails_are_bounded(tmp_path):
    long = "long" * 60
    found = passages(
        tmp_path, "a.md", f"# {long}\n\n{WORDS}\n\n## {long}b\n\n### c\n\n{WORDS}{WORDS}\n\n# Next\n\n{WORDS}"
    )
    assert found[1].heading.endswith("> c") and len(found[1].heading) <= 200


def test_several_short_sections_are_under_what_they_share(tmp_path):
    text = f"# T\n\n{WORDS}{WORDS}\n\n## A\n\n### B\n\nOne eel passes.\n\n### C\n\nTwo.\n\n{WORDS}"
    assert [passage.heading for passage in passages(tmp_path, "a.md", text)] == ["", "A"]


# ------------------------------------------------------------------------------------------------------------- cutting


def test_a_heading_with_an_address_is_no_section_with_text(tmp_path):
    address = "https://a.example/" + "b" * 40
    text = f"# News\n\n## [2.0]({address})\n\n### Fixes\n\n{WORDS}\n"
    assert [passage.heading for passage in passages(tmp_path, "news.md", text)][:1] == ["2.0 > Fixes"]


def test_passages_do_not_end_with_a_heading_or_a_lead(tmp_path):
    lead = "For example, there are these three of them here:"
    text = f"# T\n\n{WORDS}\n\n{lead}\n\n- one\n- two\n\n{WORDS}\n\n## Next\n\n{WORDS}"
    found = passages(tmp_path, "a.md", text, max_words=76)
    assert [passage.text[:11] for passage in found] == ["# T\n\nThe bo", "For example", "The board m", "## Next\n\nTh"]


def test_a_wrapped_line_ends_no_sentence(tmp_path):
    sentence = (
        "The river Oss, which rises in the hills above the old town of\nHalmgate, e.g. where the Romans "
        "had a fort, flows down to Korrin and\nSallow, and it is crossed by seven bridges on its way to the sea.\n"
    )
    found = passages(tmp_path, "a.txt", sentence * 9, max_words=60)
    assert len(found) > 4 and all(passage.text.endswith("the sea.") for passage in found)


def test_items_of_a_long_list_are_not_torn(tmp_path):
    items = "".join(f"  * Item {number} of a list that is\n    wrapped. It has two sentences\n" for number in range(20))
    found = passages(tmp_path, "a.txt", f"Changes:\n\n{items}", max_words=40)
    assert all(passage.text.endswith("two sentences") for passage in found)
    assert found[0].text.startswith("Changes:\n\n  * Item 0")


def test_a_long_line_without_a_sentence_is_still_cut_at_lines(tmp_path):
    text = "\n".join(f"alpha beta gamma delta {number}" for number in range(30))
    assert all(passage.text.startswith("alpha") for passage in passages(tmp_path, "a.txt", text, max_words=20))


def test_rows_of_json_lines_are_cut_as_ever():
    text = "Heading:\n\nOne two\nthree four five. Six e.g. seven\neight nine ten.\n\n# Next\n\nEleven twelve thirteen"
    found = cut(Document("d", "T", text, "row"), ChunkSettings(max_words=5, row_words=0))
    assert [passage.text for passage in found] == [
        "Heading:\n\nOne two",
        "three four five. Six e.g.",
        "seven\neight nine ten.",
        "# Next\n\nEleven twelve thirteen",
    ]
    assert {passage.heading for passage in found} == {""}


def test_breaks_inside_a_sentence_are_counted(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from paragraph_breaks import find_breaks, find_cuts, is_inside_sentence

    assert is_inside_sentence("where the river rises", "near Halmgate.")
    assert not is_inside_sentence("where the river rises.", "near Halmgate.")
    assert not is_inside_sentence("where the river rises", "Near Halmgate.")
    assert not is_inside_sentence("SEE ALSO", "near Halmgate.")
    assert not is_inside_sentence("where the river rises", "r.near")
    document = Document("d", "T", "where the river\n\nrises in Korrin. " + WORDS * 3, "file")
    assert sum(is_inside_sentence(*pair) for pair in find_breaks(document)) == 1
    assert sum(is_inside_sentence(*pair) for pair in find_cuts(document, ChunkSettings(max_words=20))) == 0


# ------------------------------------------------------------------------------------------------------ stored and sent


async def test_headings_are_stored_served_and_kept_by_an_update(tmp_path, serve):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "oss.md").write_text(MARKDOWN)
    index = build_index(docs, tmp_path / "index")
    assert [passage.heading for passage in index.passages()] == ["", "Course", "Mouth"]
    with serve(index) as url:
        client = SearchClient(url)
        found = await client.search(["board met"], 3)
        await client.close()
    assert sorted(hit.passage.heading for hit in found[0]) == ["", "Course", "Mouth"]
    (docs / "other.md").write_text("# Other\n\nEels.")
    assert update_index(index.path).counts.num_read == 1
    assert [passage.heading for passage in open_index(index.path).passages()] == ["", "Course", "Mouth", ""]


def test_other_headings_make_another_index(tmp_path):
    fingerprints = set()
    for number, tag in enumerate(("h2", "p")):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "a.html").write_text(
            f"<title>T</title><p>{WORDS * 2}<{tag}>Course</{tag}><p>{WORDS * 2}"
        )
        fingerprints.add(build_index(tmp_path / f"{number}", tmp_path / f"index{number}").fingerprint)
    assert len(fingerprints) == 2
