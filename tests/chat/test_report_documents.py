"""Reports as Word documents and PDF: they open, their links lead to what is cited, and no text becomes markup."""

import zipfile
from io import BytesIO
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from quaere.chat.report_docx import to_docx
from quaere.chat.report_layout import find_quotations
from quaere.chat.report_pages import to_html
from quaere.chat.report_pdf import FONT, find_fonts, to_pdf
from quaere.chat.statements import extract_conclusion, split_statements
from quaere.errors import BadInput
from quaere.records import Passage, Question, Report, Source
from quaere.search.formats.office import read_docx
from reporting import HOSTILE

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
OSS = "The Oss is long. The Oss rises at Korrin. Дождь идёт весной."


def make(text, passage=OSS, question="What is known of the Oss?", title="The Oss"):
    statements = split_statements(text)
    source = Source(1, Passage("a.md#0", "a.md", title, passage, 40, 40 + len(passage), "page 3", "Rivers > Oss"))
    cited = (source,) if any(1 in one.citations for one in statements) else ()
    return Report(Question("q", question), text, statements, cited, extract_conclusion(text))


REPORT = make("# Source\n\nThe Oss rises at Korrin [1]. It is **wide** [1, 7].\n\n- Дождь идёт весной [1].")


def to_file(passage):
    return f"docs/{passage.doc_id}"


def test_quotations_are_the_passages_own_sentences():
    start = OSS.index("The Oss rises")
    second = OSS.index("Дождь")
    assert find_quotations(REPORT) == {
        1: [("The Oss rises at Korrin.", start, start + 24), ("Дождь идёт весной.", second, len(OSS))],
        7: [],
    }


def test_a_citation_that_no_statement_has_opens_its_own_source():
    report = structs.replace(make("See [2]. The Oss rises at Korrin [1]."), statements=REPORT.statements)
    page = to_html(
        structs.replace(report, sources=(*report.sources, structs.replace(REPORT.sources[0], number=2))), to_file
    )
    assert '<a href="#source-2">2</a>' in page


# ---------------------------------------------------------------------------------------------------------------- Word


def open_docx(data):
    with zipfile.ZipFile(BytesIO(data)) as archive:
        assert archive.testzip() is None
        links = ElementTree.fromstring(archive.read("word/_rels/document.xml.rels"))
        return ElementTree.fromstring(archive.read("word/document.xml")), {
            one.get("Id"): one.get("Target") for one in links
        }


def paragraphs(root):
    return ["".join(one.text or "" for one in each.iter(f"{W}t")) for each in root.iter(f"{W}p")]


def test_a_word_document_has_the_text_and_its_links():
    data = to_docx(REPORT, to_file, searches=["source of the Oss"])
    root, links = open_docx(data)
    assert paragraphs(root) == [
        "What is known of the Oss?",
        "Source",
        "The Oss rises at Korrin [1]. It is wide [1, 7: no such source].",
        "•\tДождь идёт весной [1].",
        "3 statements, 3 of them cited; 4 citations, 3 resolved (75 %), 1 unresolved",
        "Sources",
        "[1] The Oss, a.md, page 3, under Rivers > Oss, characters 40 to 100",
        OSS,
        "Unresolved citations",
        "[1, 7] in: It is **wide** [1, 7].",
        "Searches",
        "•\tsource of the Oss",
    ]
    anchors = [one.get(f"{W}anchor") for one in root.iter(f"{W}hyperlink") if one.get(f"{W}anchor")]
    marks = [one.get(f"{W}name") for one in root.iter(f"{W}bookmarkStart")]
    assert anchors == ["source_1_1", "source_1", "source_1_2"] and set(anchors) == set(marks)
    assert "./docs/a.md#:~:text=The%20Oss%20rises%20at%20Korrin." in links.values()
    assert to_docx(REPORT, to_file, searches=["source of the Oss"]) == data


def test_word_and_our_own_reader_open_it(tmp_path):
    import docx

    path = tmp_path / "report.docx"
    path.write_bytes(to_docx(REPORT, to_file))
    opened = docx.Document(str(path))
    assert [one.style.name for one in opened.paragraphs][:2] == ["Title", "Heading 2"]
    assert "The Oss rises at Korrin [1]." in str(read_docx(path.read_bytes(), 10**6))


TEXTS = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=60))


@given(text=TEXTS, passage=TEXTS, question=TEXTS, title=TEXTS)
def test_no_text_becomes_markup(text, passage, question, title):
    report = make(f"{text} [1]", passage, question, title)
    root, links = open_docx(to_docx(report, to_file, searches=[text]))
    tags = {element.tag.removeprefix(W) for element in root.iter()}
    assert tags <= set("document body p pPr pStyle r rPr t br b i color hyperlink bookmarkStart bookmarkEnd".split())
    assert all(target == "styles.xml" or target.startswith("./docs/a.md") for target in links.values())


# ----------------------------------------------------------------------------------------------------------------- PDF


def test_a_pdf_has_the_text_and_its_links():
    from pypdf import PdfReader

    data = to_pdf(REPORT, to_file, searches=["source of the Oss"])
    pages = PdfReader(BytesIO(data)).pages
    text = " ".join(" ".join(page.extract_text() for page in pages).split())
    for said in (
        "The Oss rises at Korrin [1]. It is wide [1, 7: no such source",
        "Дождь идёт весной",
        "characters 40 to 100",
    ):
        assert said in text
    notes = [one.get_object() for page in pages for one in page.get("/Annots", [])]
    assert sum("/Dest" in one for one in notes) == 3  # the citations that resolve
    assert "./docs/a.md#:~:text=The%20Oss%20rises%20at%20Korrin." in [one["/A"]["/URI"] for one in notes if "/A" in one]
    assert to_pdf(REPORT, to_file, searches=["source of the Oss"]) == data


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_text_gives_a_pdf(hostile):
    assert to_pdf(make(f"{hostile} [1]", hostile, hostile, hostile), to_file, searches=[hostile]).startswith(b"%PDF")


def test_a_font_that_is_none_is_one_clear_line(monkeypatch):
    find_fonts.cache_clear()
    monkeypatch.setenv(FONT, "/no/such.ttf")
    with pytest.raises(BadInput, match=r"QUAERE_FONT names /no/such\.ttf"):
        to_pdf(REPORT, to_file)
    find_fonts.cache_clear()
