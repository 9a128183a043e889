"""Reports as pages: every citation leads somewhere or is marked, and nothing from outside becomes markup."""

import re
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from quaere.chat.report_layout import count_line
from quaere.chat.report_pages import to_html, to_markdown
from quaere.chat.statements import extract_conclusion, split_statements
from quaere.records import Passage, Question, Report, Source
from reporting import HOSTILE


def make(text, passages, question="What is known of the Oss?"):
    """A report that was shown these passages, numbered from 1."""
    statements = split_statements(text)
    cited = {number for statement in statements for number in statement.citations}
    sources = tuple(Source(n, passage) for n, passage in enumerate(passages, start=1) if n in cited)
    return Report(Question("q", question), text, statements, sources, extract_conclusion(text))


def passage(text, doc_id="rivers.md", title="The Oss", start=40):
    return Passage(f"{doc_id}#1", doc_id, title, text, start, start + len(text))


def to_file(passage):
    return f"../docs/{passage.doc_id}"


def no_file(passage):
    return ""


class Page(HTMLParser):
    """What a browser would make of it: tags with their attributes, ids, links, and text."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.ids, self.links, self.text, self.attributes = set(), [], [], "", set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.ids += [value for name, value in attrs if name == "id"]
        self.links += [value for name, value in attrs if name in ("href", "src")]

    def handle_data(self, data):
        self.text += data

    def handle_comment(self, data):
        self.tags.add("!--")

    def handle_pi(self, data):
        self.tags.add("?")


def rendered(markdown):
    return Page(MarkdownIt("commonmark").enable("table").render(markdown))


PAGE_TAGS = set("html head meta title style body h1 h2 h3 h4 h5 h6 p br a span strong ul li div blockquote".split())
MARKDOWN_TAGS = set("h1 h2 h3 h4 h5 h6 p a strong em ul ol li blockquote pre code hr br".split())
MARKDOWN_TAGS |= set("table thead tbody tr th td".split())

OSS = passage("The Oss rises at Korrin.\nIt is a well-known river, 12 miles long.")
REPORT = make("It rises at **Korrin** [1]. It is long [1, 7]. Nobody swims [8].\n\nConclusion: A river [1].", [OSS])


# ------------------------------------------------------------------------------------------------------------ by hand


def test_counts():
    assert count_line(REPORT) == "4 statements, 4 of them cited; 5 citations, 3 resolved (60 %), 2 unresolved"
    assert count_line(make("So.", [])) == "1 statement, 0 of them cited; 0 citations, 0 resolved (0 %), 0 unresolved"


def test_a_citation_alone_is_no_statement():
    assert count_line(make("[1]", [OSS])).startswith("0 statements, 0 of them cited; 1 citation, 1 resolved")
    assert count_line(make("[1]\n\nIt rises [1].", [OSS])).startswith("1 statement, 1 of them cited; 2 citations")


def test_markdown_links_to_the_source_and_from_there_to_the_document():
    text = to_markdown(REPORT, to_file)
    assert "It rises at **Korrin** [\\[1\\]](#source-1)." in text
    page = rendered(text)
    assert page.ids == ["source-1"] and page.links.count("#source-1") == 3
    (address,) = [link for link in page.links if not link.startswith("#")]
    assert address.startswith("./../docs/rivers.md#:~:text=The%20Oss%20rises%20at%20Korrin.,")
    assert unquote(address).endswith(",a well-known river, 12 miles long.") and "well%2Dknown" in address
    assert "characters 40 to 105" in page.text and OSS.text in page.text


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("The Oss, a river.", "The Oss, a river."),
        ("a b c d e f g h i j k l", "a b c d e f g h i j k l"),
        ("a b c d e f g h i j k l m", "a b c d e f,h i j k l m"),
        ("# The Oss\n\nIt rises.", "The Oss,It rises."),
        ("\n \n", ""),
    ],
)
def test_a_fragment_names_the_passage_by_words_that_do_not_overlap(text, fragment):
    page = Page(to_html(make("So [1].", [passage(text)]), to_file))
    (address,) = [link for link in page.links if link.startswith("./")]
    assert unquote(address).partition("#:~:text=")[2] == fragment


def test_of_a_number_that_no_source_has_twelve_digits_are_shown():
    text = to_markdown(make("So [123456789012]. Or [1234567890123].", []), no_file)
    assert "\\[123456789012: no such source" in text and "\\[123456789012…: no such source" in text


def test_a_title_of_white_space_is_none():
    heads = [to_markdown(make("So [1].", [passage("It rises.", title=title)]), no_file) for title in ("", " ")]
    assert "**\\[1\\]** document rivers" in heads[0] and heads[0] == heads[1]


def test_a_page_is_a_text_file_that_ends_with_a_line():
    assert to_html(REPORT, no_file).endswith("</html>\n")


def test_markdown_marks_and_lists_what_is_unresolved():
    page = rendered(to_markdown(REPORT, no_file, index="docs-index"))
    assert "It is long [1][7: no such source]." in page.text and "[8: no such source]" in page.text
    assert "Unresolved citations" in page.text and "shown no passage of these numbers" in page.text
    assert "[1, 7] in: It is long [1, 7]." in page.text
    assert "document rivers.md of the index docs-index, characters 40 to 105" in page.text
    assert all(link.startswith("#source-1") for link in page.links)
    clean = to_markdown(make("So [1].", [OSS]), no_file)
    assert "nresolved citations" not in clean and "no such source" not in clean
    assert "No source is cited." in to_markdown(make("So.", [OSS]), no_file)


def test_html_is_a_whole_page_with_anchors():
    text = to_html(REPORT, to_file)
    page = Page(text)
    assert text.startswith("<!DOCTYPE html>") and page.ids == ["source-1", "unresolved"]
    assert {link for link in page.links if link.startswith("#")} == {"#source-1", "#unresolved"}
    assert any(link.startswith("./../docs/rivers.md#:~:text=") for link in page.links)
    assert "It is long [1, 7: no such source]." in page.text and OSS.text in page.text
    assert "[8] in: Nobody swims [8]." in page.text and "characters 40 to 105" in page.text
    assert "default-src 'none'" in text


def test_html_keeps_headings_and_lists():
    text = to_html(make("# Length\nIt is:\n- long [1]\n- wide\n\n1. deep\nEnd.", [OSS]), no_file)
    assert (
        "<h2>Length</h2>\n<p>It is:</p>\n<ul>\n<li>long <span" in text and "<li>deep</li>\n</ul>\n<p>End.</p>" in text
    )


def test_a_long_citation_is_cut_where_it_is_listed():
    numbers = ", ".join(["8"] * 19)
    report = make(f"So [{numbers}, 8]. Or [{numbers}, 88].", [])  # of 60 characters and of 61
    listed = to_markdown(report, no_file).partition("Unresolved")[2].replace("\\", "")
    assert f"**[{numbers}, 8]** in" in listed and f"**[{numbers}, 88…** in" in listed


def test_an_absurd_number_is_marked_and_cut():
    report = make(f"So [{'9' * 5000}].", [OSS])
    for page in (rendered(to_markdown(report, no_file)), Page(to_html(report, no_file))):
        assert "[999999999999…: no such source]" in page.text and "9" * 4000 in page.text


# ------------------------------------------------------------------------------------------------------------ hostile


def check_html(report, link):
    text = to_html(report, link)
    page = Page(text)
    assert page.tags <= PAGE_TAGS
    assert page.attributes <= {"href", "id", "class", "title", "lang", "charset", "name", "content", "http-equiv"}
    assert all(link.startswith(("#source-", "#unresolved", "./")) for link in page.links)
    assert len(page.ids) == len(set(page.ids))
    return page


def check_markdown(report, link):
    page = rendered(to_markdown(report, link))
    assert page.tags <= MARKDOWN_TAGS
    assert page.attributes <= {"href", "id", "class", "start"}
    assert all(link.startswith(("#source-", "./")) for link in page.links)
    return page


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_strings_stay_text_wherever_they_come_from(hostile):
    source = passage(hostile, doc_id=f"javascript:{hostile}", title=hostile)
    report = make(f"{hostile}\n\n# {hostile}\n- {hostile}\n\nSo [1].", [source], question=hostile)
    for page in (check_html(report, to_file), check_markdown(report, to_file)):
        words = re.findall("[A-Za-z]+", hostile)
        assert words and all(word in page.text for word in words)
    for link in (to_file, no_file, lambda passage: passage.doc_id, lambda passage: "//evil.example/" + passage.doc_id):
        check_html(report, link), check_markdown(report, link)


def test_html_escapes_every_value_it_is_filled_with():
    """The text, its question, a source's name, title, place and passage, and a statement that cites nothing."""
    hostile = """<b class="x" id='y'>&{{ 7 * 7 }}{% if %}\u202e"""
    source = passage(hostile, doc_id=hostile, title=hostile)
    text = f"# {hostile}\n- {hostile} **{hostile}** [1]\n\n{hostile} [8]."
    page = to_html(make(text, [source], question=hostile), no_file, index=hostile)
    shown = Page(page)
    clean = hostile.replace("\u202e", "\ufffd")
    assert "b" not in shown.tags and "\u202e" not in page
    assert f"document {clean} of the index {clean}, characters 40 to" in shown.text
    # Title and heading, then heading, item, bold and paragraph of the report, its source's title, name, place and
    # passage, and the statement whose citation is unresolved.
    assert shown.text.count(clean) == 11


PIECES = st.one_of(
    st.sampled_from(
        [*HOSTILE, "[1]", "[9]", "\n", "\n\n", "    ", "\t", "- ", "# ", "> ", "`", "```\n", "~~~\n",
         "[", "](", ")", "!", "<a href=x>", "|", "\\", "*", "**", "_", "&", "&#x3c;",
         "===\n", "---\n", "javascript:", "http://e.example", "\r", "\x0c", "{title}", "{{ title }}", "{% raw %}", "{#"]
    ),
    st.text(max_size=8),
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=12).map("".join)


def test_an_exclamation_mark_before_a_citation_makes_no_image_of_it():
    page = rendered(to_markdown(make("It is long![1]\nLook \\![1].", [OSS]), to_file))
    assert "img" not in page.tags and page.links.count("#source-1") == 2
    assert "It is long![1]" in page.text and "Look \\![1]" in page.text


@given(text=TEXTS, document=TEXTS, title=TEXTS, doc_id=TEXTS, question=TEXTS)
def test_no_text_becomes_markup(text, document, title, doc_id, question):
    report = make(text + " [1]", [passage(document, doc_id=doc_id, title=title)], question)
    check_html(report, to_file)
    page = check_markdown(report, to_file)
    assert page.ids[0] == "source-1" and set(page.ids[1:]) <= {"source-1-1"}


@given(TEXTS)
def test_a_passage_stands_on_the_page_letter_for_letter(document):
    shown = "".join(char for char in document if char.isprintable() or char in "\n")
    report = make("So [1].", [passage(shown)])
    assert shown.strip() in Page(to_html(report, no_file)).text
    assert shown.strip() in rendered(to_markdown(report, no_file)).text


def test_a_statement_is_shown_once_whatever_it_cites():
    """With every unresolved citation, a page would grow with the square of its report."""
    report = make("It is long " + "".join(f"[{number}]" for number in range(20, 90)) + ".", [])
    for page in (to_markdown(report, no_file), to_html(report, no_file)):
        assert page.count("It is long") == 2  # in the report, and among what is unresolved
        assert all(str(number) in page.partition("nresolved citations")[2] for number in range(20, 90))
