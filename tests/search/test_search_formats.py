"""One folder with every format, four languages and broken files: finds name their place, every loss is listed."""

import json
import sys

import pytest

from making_files import add_footnote, make_docx, make_eml, make_epub, make_ipynb, make_pdf, make_pptx, make_xlsx
from quaere.cli.main import main
from quaere.errors import install_hint
from quaere.search.client import SearchClient
from quaere.search.extracted import choose_title
from quaere.search.files import FILE_SUFFIXES, read_file
from quaere.search.index import open_index
from quaere.search.index_build import build_index

LIBRARIES = ("docx", "pptx", "openpyxl", "pypdf", "defusedxml")
MENU = "<nav><a href='/'>Startseite</a> <a href='/shop'>Warenkorb</a></nav>"
FOOTER = "<footer><p>Cookies akzeptieren. Impressum. Alle Rechte vorbehalten.</p></footer>"
ARTICLE = "<p>Der Leuchtturm von Korrin steht auf einer Klippe.<p>Er wurde 1850 angezündet und ist bis Zürich zu sehen."
FILLER = "The board met and spoke of other things. " * 40  # more than one passage


def made():
    """Every file of the folder: its name and what it holds."""
    return {
        "ferry.txt": "Timetable\n\nThe ferry to Sallow leaves at noon.\n",
        "oss.md": "# The Oss\n\n" + "Nothing.\n\n" * 3 + "The Oss rises near Halmgate.\n",
        "mill.rst": "========\nThe mill\n========\n\n.. note:: old\n\nThe mill at Brenn grinds barley.\n",
        "weir.adoc": "= The weir\n\nThe weir of Sallow was raised in 1731.\n",
        "turm.html": f"<title>Der Turm</title><body>{MENU}<article><h1>Turm</h1>{ARTICLE}</article>{FOOTER}",
        "minutes.pdf": make_pdf(
            "Minutes", "Le pont de Halm fut bâti par Orsolya Venn.", title="Microsoft Word - m.doc"
        ),
        "plan.docx": make_docx(
            FILLER, "# Kosten", "Das Seil kostet 120 Taler.", [["Stein", "Basalt"]], title="Dokument1"
        ),
        "talk.pptx": make_pptx(
            ("The weir", "It holds back the Oss.", ""), ("Eels", "Eels pass by night.", "Say: ladder!")
        ),
        "books.xlsx": make_xlsx({"Staff": [["Venn"]], "Costs": [["item", "euros"], ["rope", 120], ["granite", 900.0]]}),
        "bridges.csv": 'name;built\n"Halm\nbridge";1702\nSallow viaduct;1911\n',
        "tides.ipynb": make_ipynb(("markdown", "# Tides\n"), ("code", "print(spring())", "spring tide: 4.2 m\n")),
        "book.epub": make_epub(
            "Sagas", "<h1>One</h1><p>It began.", "<h2>東の章</h2><p>東京都は日本の首都である。", missing=1
        ),
        "letter.eml": make_eml("Ladder for eels", "The ladder\nis of oak.", attachment="sketch.png"),
        "no.pdf": b"%PDF-1.4 nothing of the kind",
        "no.docx": make_docx("x")[:-200],
        "no.pptx": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1 old",
        "no.xlsx": b"",
        "no.ipynb": b'{"cells": [7]}',
        "no.epub": make_epub("x", package="<package"),
        "no.eml": b"not a message",
        "no.txt": b"\0",
        "scan.pdf": make_pdf("Page one holds text.", ""),
    }


QUESTIONS = {
    "when does the ferry to Sallow leave": ("ferry.txt", "ferry", "lines 1-3"),
    "where does the Oss rise Halmgate": ("oss.md", "The Oss", "lines 1-9"),
    "what does the mill at Brenn grind": ("mill.rst", "The mill", "lines 1-7"),
    "when was the weir of Sallow raised": ("weir.adoc", "The weir", "lines 1-3"),
    "Wann wurde der Leuchtturm angezündet": ("turm.html", "Der Turm", "paragraphs 1-3"),
    "qui a bâti le pont": ("minutes.pdf", "minutes", "page 2"),
    "was kostet das Seil Taler": ("plan.docx", "Kosten", "section Kosten, paragraphs 1-3"),
    "when do eels pass ladder night": ("talk.pptx", "The weir", "slide 2"),
    "euros for granite": ("books.xlsx", "books", "sheet Costs, rows 1-3"),
    "when was the Sallow viaduct built": ("bridges.csv", "bridges (name, built)", "rows 1-3"),
    "how high is the spring tide": ("tides.ipynb", "Tides", "cells 1-2"),
    "日本の首都": ("book.epub", "Sagas", "chapter 東の章, paragraphs 1-2"),
    "what is the ladder made of oak": ("letter.eml", "Ladder for eels", "paragraphs 1-2"),
}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """The folder."""
    for library in LIBRARIES:
        pytest.importorskip(library, reason=f"{library} is in the dev extra")
    folder = tmp_path_factory.mktemp("formats") / "docs"
    folder.mkdir()
    for name, content in made().items():
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


@pytest.fixture(scope="module")
def mixed_index(mixed, tmp_path_factory):
    return build_index(mixed, tmp_path_factory.mktemp("formats") / "index")


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_about_every_format_is_answered_by_a_place(mixed_index, question):
    passage = mixed_index.search([question], 1)[0][0].passage
    assert (passage.doc_id, passage.title, passage.place) == QUESTIONS[question]
    assert mixed_index.document(passage.doc_id)[passage.start : passage.end] == passage.text


def test_every_loss_is_listed(mixed_index):
    report = mixed_index.manifest.corpus
    assert report.num_documents == 14 and report.num_unreadable == 8 and not report.missing
    reasons = dict(line.split(": ", 1) for line in report.unreadable)
    assert list(reasons) == ["no." + suffix for suffix in "docx eml epub ipynb pdf pptx txt xlsx".split()]
    assert reasons["no.docx"].startswith("damaged") and reasons["no.xlsx"].startswith("damaged")
    assert reasons["no.pptx"] == "encrypted, or in the format of Office before 2007"
    assert reasons["no.eml"] == "has none of the headers of a message"
    assert "package document" in reasons["no.epub"] and "notebook" in reasons["no.ipynb"]
    assert reasons["no.pdf"].startswith("not a readable PDF")
    assert report.problems == [
        "book.epub: chapter 3 (OEBPS/c2.xhtml) cannot be read",
        "letter.eml: attachments are not read: sketch.png",
        "scan.pdf: page 2 without text (an image? then it needs OCR)",
    ]


def test_offsets_point_into_the_source_where_it_is_text(mixed, mixed_index):
    for name in ("ferry.txt", "oss.md", "mill.rst", "weir.adoc", "bridges.csv"):
        assert mixed_index.document(name) == (mixed / name).read_text("utf-8")


def test_menus_and_footers_are_left_out_of_a_page(mixed_index):
    article = mixed_index.document("turm.html")
    assert "Leuchtturm" in article and "Warenkorb" not in article and "Cookies" not in article


def test_the_commands_show_losses_and_places(mixed, tmp_path, capsys):
    assert main(["index", str(mixed), "--out", str(tmp_path / "index")]) == 0
    summary = capsys.readouterr().out
    assert "no.eml: has none of the headers" in summary and "read in part: 3" in summary
    assert main(["search", "qui a bâti le pont", "--index", str(tmp_path / "index"), "--topk", "1"]) == 0
    assert "minutes.pdf#1  page 2  score" in capsys.readouterr().out
    assert main(["search", "granite", "--index", str(tmp_path / "index"), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["hits"][0]["passage"]["place"] == "sheet Costs, rows 1-3"


async def test_a_server_tells_the_place(mixed_index, serve):
    with serve(mixed_index) as url:
        client = SearchClient(url)
        ((hit,),) = await client.search(["granite"], 1)
        await client.close()
    assert hit.passage == mixed_index.search(["granite"], 1)[0][0].passage


def test_libraries_that_are_missing_are_named_once(mixed, tmp_path, monkeypatch):
    for library in ("docx", "pptx", "openpyxl", "pypdf"):
        monkeypatch.setitem(sys.modules, library, None)
    report = build_index(mixed, tmp_path / "index").manifest.corpus
    office, pdf = install_hint("office"), install_hint("pdf")
    assert report.missing == {
        f".xlsx files need openpyxl: {office}": 2,
        f".pdf files need pypdf: {pdf}": 3,
        f".docx files need python-docx: {office}": 2,
        f".pptx files need python-pptx: {office}": 2,
    }


def test_an_index_without_places_and_headings_still_opens(mixed, tmp_path):
    """What indexes were before places and headings were kept."""
    index = build_index(mixed, tmp_path / "index")
    manifest = json.loads((index.path / "manifest.json").read_text())
    for name in ("places.bin", "places.npy", "headings.bin", "headings.npy"):
        (index.path / name).unlink()
        del manifest["file_sizes"][name]
    del manifest["sources"], manifest["settings"]["gitignore"], manifest["corpus"]["problems"]
    (index.path / "manifest.json").write_text(json.dumps(manifest))
    assert {passage.place + passage.heading for passage in open_index(index.path).passages()} == {""}


def test_every_suffix_has_a_place_in_the_folder():
    suffixes = {"." + name.rpartition(".")[2] for name in made()}
    assert suffixes | {".htm", ".markdown", ".tsv"} == FILE_SUFFIXES


def test_a_passage_stays_on_its_page_and_counts_rows(mixed_index):
    places = [passage.place for passage in mixed_index.passages() if passage.doc_id == "minutes.pdf"]
    assert places == ["page 1", "page 2"]
    before = [passage.place for passage in mixed_index.passages() if passage.doc_id == "plan.docx"]
    assert before[0] == "paragraph 1" and before[-1] == "section Kosten, paragraphs 1-3" and len(before) > 2


def test_footnotes_nested_tables_and_grouped_shapes_are_read(tmp_path):
    docx, pptx = (pytest.importorskip(name, reason=f"{name} is in the dev extra") for name in ("docx", "pptx"))
    (tmp_path / "notes.docx").write_bytes(add_footnote(make_docx("# Weir", "Eels pass."), "By night."))
    read = read_file(tmp_path / "notes.docx")
    assert read.text == "Weir\n\nEels pass.\n\nBy night." and read.parts[-1].group == "footnotes"
    document = docx.Document()
    cell = document.add_table(1, 2).cell(0, 1)
    cell.text = "outer"
    cell.add_table(1, 1).cell(0, 0).text = "inner"
    document.save(tmp_path / "table.docx")
    assert read_file(tmp_path / "table.docx").text == "| outer inner"
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    slide.shapes.add_group_shape().shapes.add_textbox(0, 0, 9, 9).text_frame.text = "grouped"
    slide.shapes.add_table(1, 2, 0, 0, 9, 9).table.cell(0, 1).text = "cell"
    deck.save(tmp_path / "deck.pptx")
    assert read_file(tmp_path / "deck.pptx").text == "grouped\n\n| cell"


WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
INSIDE = {  # elements of a paragraph, and what a reader sees of each
    "<w:ins w:id='1' w:author='a'><w:r><w:t>inserted</w:t></w:r></w:ins>": "inserted",
    "<w:del w:id='2' w:author='a'><w:r><w:delText>deleted</w:delText></w:r></w:del>": "",
    "<w:moveFrom w:id='3' w:author='a'><w:r><w:t>moved</w:t></w:r></w:moveFrom>": "",
    "<w:sdt><w:sdtContent><w:r><w:t>controlled</w:t></w:r></w:sdtContent></w:sdt>": "controlled",
    "<w:sdt><w:sdtPr><w:showingPlcHdr/></w:sdtPr><w:sdtContent><w:r><w:t>Click</w:t></w:r></w:sdtContent></w:sdt>": "",
    "<w:fldSimple w:instr='REF x'><w:r><w:t>Table 1</w:t></w:r></w:fldSimple>": "Table 1",
    "<w:r><w:pict><w:txbxContent><w:p><w:r><w:t>boxed</w:t></w:r></w:p></w:txbxContent></w:pict></w:r>": "\n\nboxed",
    "<m:oMath xmlns:m='http://schemas.openxmlformats.org/officeDocument/2006/math'><m:sSup><m:e><m:r><m:t>c</m:t></m:r>"
    "</m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup></m:oMath>": "c^2",
}


@pytest.mark.parametrize(("element", "shown"), INSIDE.items())
def test_the_text_inside_the_elements_of_a_paragraph_is_read(tmp_path, element, shown):
    docx = pytest.importorskip("docx", reason="docx is in the dev extra")
    document = docx.Document()
    paragraph = document.add_paragraph("The rent: ")._p
    paragraph.append(docx.oxml.parse_xml(element.replace(">", f" {WORD}>", 1)))
    document.save(tmp_path / "lease.docx")
    assert read_file(tmp_path / "lease.docx").text == f"The rent: {shown}".replace(" \n", "\n").strip()


def test_blocks_rows_and_notes_inside_content_controls_are_read(tmp_path):
    docx = pytest.importorskip("docx", reason="docx is in the dev extra")
    document = docx.Document()
    said = "<w:p><w:r><w:t>{}</w:t></w:r></w:p>"
    control = f"<w:sdt {WORD}>{{}}<w:sdtContent>{{}}</w:sdtContent></w:sdt>"
    contents = "<w:sdtPr><w:docPartObj><w:docPartGallery w:val='Table of Contents'/></w:docPartObj></w:sdtPr>"
    row = f"<w:tr><w:tc>{said.format('cell')}</w:tc></w:tr>"
    table = f"<w:tbl>{control.format('', row)}</w:tbl>"
    for inner in (("", said.format("Cover")), (contents, said.format("Weir 2")), ("", table)):
        document.element.body.insert(-1, docx.oxml.parse_xml(control.format(*inner)))
    document.save(tmp_path / "a.docx")
    noted = add_footnote((tmp_path / "a.docx").read_bytes(), "By night.</w:t></w:r></w:p><w:p><w:r><w:t>By day.")
    (tmp_path / "a.docx").write_bytes(noted)
    assert read_file(tmp_path / "a.docx").text == "Cover\n\ncell\n\nBy night.\nBy day."


def test_the_columns_of_a_sheet_may_be_named_below_its_title(tmp_path):
    pytest.importorskip("openpyxl", reason="openpyxl is in the dev extra")
    sheets = {"Costs": [["Costs of 2024"], [], ["Item", "Euros"], ["rope", 3.3]], "List": [["rope"], ["nail"]]}
    (tmp_path / "a.xlsx").write_bytes(make_xlsx(sheets))
    assert read_file(tmp_path / "a.xlsx").text == "Costs of 2024\nItem; Euros\nItem: rope; Euros: 3.3\nrope\nnail"


def test_notes_of_slides_are_read_and_empty_lines_are_not(tmp_path):
    pytest.importorskip("pptx", reason="python-pptx is in the dev extra")
    slides = make_pptx(("The weir", "  It is old. ", ""), ("Eels", " ", "Say: ladder!"), ("Oak", "One\vtwo", ""))
    (tmp_path / "talk.pptx").write_bytes(slides)
    read = read_file(tmp_path / "talk.pptx")
    assert read.text == "The weir\n\nIt is old.\n\nEels\n\nSay: ladder!\n\nOak\n\nOne\ntwo"
    assert [part.group for part in read.parts] == ["slide 1", "slide 2", "slide 3"]


def test_comments_of_readers_are_no_part_of_an_article(tmp_path):
    article = f"<article><h1>Turm</h1><p>{'Der Turm steht auf einer Klippe am Meer. ' * 9}</article>"
    comments = (
        "<section id='comments'><div class='comment'><p>I have never seen a nicer tower in my life.</div></section>"
    )
    (tmp_path / "turm.html").write_text(f"<body>{article}{comments}")
    read = read_file(tmp_path / "turm.html").text
    assert "Klippe" in read and "nicer" not in read


def test_a_message_is_read_in_its_encoding(tmp_path):
    (tmp_path / "a.eml").write_bytes(
        b"Subject: =?iso-2022-jp?b?GyRCRWw1fhsoQg==?=\nContent-Type: text/plain; charset=iso-2022-jp\n\n"
        + "橋は木造。".encode("iso2022_jp")
    )
    read = read_file(tmp_path / "a.eml")
    assert (read.title, read.text) == ("東京", "Subject: 東京\n\n橋は木造。")
    (tmp_path / "b.eml").write_bytes(make_eml("Weir", "", html="<p>Eels<p>pass."))
    assert read_file(tmp_path / "b.eml").text.endswith("\n\nEels\n\npass.")


def test_letters_of_a_pdf_are_letters(tmp_path, monkeypatch):
    pypdf = pytest.importorskip("pypdf", reason="pypdf is in the dev extra")
    said = "An e\ufb03cient con\u00ad\nfiguration of twenty\u00adone well-\nknown \ufb02ags."
    monkeypatch.setattr(pypdf.PageObject, "extract_text", lambda page, **options: said)
    (tmp_path / "a.pdf").write_bytes(make_pdf("x"))
    assert read_file(tmp_path / "a.pdf").text == "An efficient configuration of twenty-one well-\nknown flags."


def test_every_part_of_a_message_is_read_once(tmp_path):
    def parts(kind, *inner):
        return (
            f"Content-Type: multipart/{kind}; boundary=_{kind}\n\n"
            + "".join(f"--_{kind}\n{part}\n" for part in inner)
            + f"--_{kind}--\n"
        )

    plain, html, empty = (f"Content-Type: text/{kind}\n" for kind in ("plain\n\nEels.", "html\n\n<p>Trout.", "plain\n"))
    forwarded = f"Content-Type: message/rfc822\n\nFrom: v@halm\nSubject: Weir\nX-Y: z\n{html}"
    bodies = {
        parts("alternative", plain, html): "Eels.",
        parts("alternative", empty, html): "Trout.",
        parts("mixed", parts("alternative", html, plain), forwarded): "Eels.\n\nFrom: v@halm\nSubject: Weir\n\nTrout.",
        parts("mixed", plain, "Content-Type: text/plain\nContent-Disposition: attachment\n\nno"): "Eels.",
    }
    for body, text in bodies.items():
        (tmp_path / "a.eml").write_text(f"Subject: Fish\nMIME-Version: 1.0\n{body}")
        assert read_file(tmp_path / "a.eml").text == f"Subject: Fish\n\n{text}"


@pytest.mark.parametrize(
    "title",
    [
        "Microsoft Word - minutes_v3.doc",
        "untitled",
        "Slide 1",
        "Document1",
        "Folie 12",
        "",
        " \n",
        "---",
        "a_b.pdf",
        "annual report.pdf",
        "old_index.html",
        "無題",
    ],
)
def test_junk_titles_are_passed_over(title):
    assert choose_title(title, "The  weir") == "The weir"
    assert choose_title(title) == ""


@pytest.mark.parametrize(
    "title", ["Slide rules", "Document 12 of the court", "Untitled poems of Venn", "1702", "Writing robots.txt"]
)
def test_titles_that_say_something_stay(title):
    assert choose_title(title, "other") == title
