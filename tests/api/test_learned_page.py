"""The page of what was learned: what it says, and that no text becomes markup."""

import base64
import hashlib
import re
import shlex

import pytest
from msgspec import structs

from browsing import find_barriers, find_chromium, open_browser, watch
from hostile_markup import PAYLOADS, read_skeleton
from learned import Example, learned
from quaere.api.learned import compare_shares
from quaere.api.learned_page import write_page
from quaere.cli.main import build_parser


def read_page(found, path):
    write_page(found, path)
    return path.read_text(encoding="utf-8")


def words(page):
    return " ".join(re.sub(r"<style>.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL).split())


@pytest.fixture
def out(tmp_path):
    return tmp_path / "agent of notes"


def test_the_headline_says_before_after_and_the_interval_of_the_gain(out):
    text = words(read_page(learned(out), out / "report.html"))
    assert "25.0 → 55.0 % of 80 held-back questions answered right" in text
    assert "Better , +30.0 [+20.0, +40.0] points." in text
    assert "questions to practise on 312" in text
    assert "in all, with measuring 29 min" in text and "steps of the solver 24" in text
    assert "exported" not in text


@pytest.mark.parametrize(
    ("rights", "expected"),
    [((40, 43), "Not shown to be better , +3.8 [+0.0, +8.8] points: "), ((44, 20), "Worse , -30.0 [")],
)
def test_without_a_gain_it_says_that_the_start_was_exported(out, rights, expected):
    text = words(read_page(learned(out, rights=rights), out / "report.html"))
    assert expected in text and "the start was exported" in text and "Better" not in text


def test_a_model_that_was_exported_anyway_is_said_to_be(out):
    found = structs.replace(learned(out, rights=(40, 43)), is_trained=True)
    text = words(read_page(found, out / "report.html"))
    assert "Not shown to be better" in text and "the trained model was exported anyway" in text


def test_the_plot_has_a_row_for_each_share_that_both_evaluations_have(out):
    labels = ["All questions", "Several searches", "Rightly refused", "Answered all the same", "Wrongly refused"]

    def rows(**how):
        page = read_page(learned(out, **how), out / "report.html")
        return dict(re.findall(r'aria-label="(.*?): before (.*?)"', page))

    assert list(rows(several=False)) == labels[:1]
    assert list(rows()) == labels[:2]
    found = rows(refused=[12, 3])
    assert list(found) == labels
    assert found["Several searches"].startswith("25.0 [") and found["Rightly refused"].startswith("15.0 [")
    assert found["Answered all the same"] == "100.0 [95.4, 100.0], after 100.0 [95.4, 100.0]"
    assert ", after 75.0 [" in found["Rightly refused"] and ", after 7.5 [" in found["Wrongly refused"]


def test_right_answers_that_are_refused_now_are_a_share_of_those_before(out):
    found = learned(out)
    after = [
        structs.replace(one, abstained=one.exact_match == before.exact_match == 1.0, exact_match=0.0)
        for one, before in zip(found.after.questions, found.before.questions, strict=True)
    ]
    found = structs.replace(found, after=structs.replace(found.after, questions=tuple(after)))
    *_, share = compare_shares(found.before, found.after)
    assert (share.label, share.before, share.after.num) == ("Lost by refusing", None, 20)
    assert share.after.mean == sum(one.abstained for one in after) / 20 > 0
    page = read_page(found, out / "report.html")
    assert re.search(r'aria-label="Lost by refusing: after [\d.]+ \[[\d.]+, [\d.]+\]"', page)


def test_intervals_are_drawn_where_they_are(out):
    page = read_page(learned(out, several=False), out / "report.html")
    assert re.findall(r'<line class="span (\w+)" x1="([\d.]+)%" x2="([\d.]+)%"', page) == [
        ("before", "16.25", "35.00"),
        ("after", "43.75", "66.25"),
    ]
    assert re.findall(r'<circle class="(\w+)" cx="([\d.]+)%"', page) == [("before", "25.00"), ("after", "55.00")]


def test_examples_are_in_their_sections_with_answer_sentence_and_document(out):
    def one(name, **how):
        return Example(f"{name} question", f"{name} answer", f"{name} sentence", f"{name}.md", **how)

    found = structs.replace(
        learned(out),
        learned=[one(f"learned{number}", given="Venn", earlier="Brod" * (number > 0)) for number in range(12)],
        examples=[one("fact", kind="single"), one("row", kind="chain"), one("new", kind="riddle")],
        wrong=[one("wrong", given="Halm"), one("silent")],
    )
    page = read_page(found, out / "report.html")
    text = words(page)
    assert "learned0 question before no answer after Venn learned0 sentence learned0.md" in text
    assert "learned1 question before Brod after Venn" in text
    assert "2 more learned10 question" in text
    for heading, name in (("one fact", "fact"), ("two facts in a row", "row"), ("riddle", "new")):
        assert f"{heading} {name} question {name} answer {name} sentence" in text
    assert "accepted wrong answer it said Halm" in text and "accepted silent answer it said no answer" in text
    places = [
        page.index(f"<h2>{name}") for name in ("What it learned", "What it asks", "What it still", "Questions and")
    ]
    marks = [page.index(f"{name} question") for name in ("learned11", "fact", "silent")]
    assert (
        sorted([*places, *marks]) == [place for pair in zip(places, [*marks, None], strict=True) for place in pair][:7]
    )


def test_examples_without_a_kind_have_no_heading(out):
    found = structs.replace(learned(out), examples=[Example("Who?", "Venn", "Venn did.", "a.md")])
    page = read_page(found, out / "report.html")
    assert "Who? Venn Venn did. a.md" in words(page) and "<h3>" not in page


def test_nothing_learned_and_nothing_wrong_is_said(out):
    text = words(read_page(structs.replace(learned(out), learned=[], wrong=[]), out / "report.html"))
    assert "No held-back question was answered wrong before and right after." in text
    assert "What it still gets wrong No held-back question." in text


def test_what_was_lost_is_counted_beside_what_was_learned(out):
    worse = read_page(learned(out, rights=(44, 20)), out / "report.html")
    assert "held-back questions answered wrong before and right after, 24 the other way round." in words(worse)
    assert "the other way round" not in words(read_page(learned(out), out / "report.html"))


def test_tables_and_costs(out):
    found = structs.replace(learned(out), kinds={"single": 300, "riddle": 9}, seconds={"before": 90.0, "agent": 30.0})
    text = words(read_page(found, out / "report.html"))
    assert "one fact 300 riddle 9" in text and "Searches Questions 1 300 2 92" in text
    assert "measuring before 90 s 75 % export 30 s 25 % all 2 min" in text


def test_commands_are_those_of_the_program(out):
    found = learned(out)
    page = read_page(found, out / "report.html")
    typed = [shlex.split(line.replace("&#39;", "'")) for line in re.findall(r"<pre>(quaere .*?)</pre>", page)]
    parsed = {line[1]: build_parser().parse_args(line[1:]) for line in typed}
    assert list(parsed) == ["ask", "serve", "view", "export"]
    index = str(found.index)
    assert index in typed[0] and index in typed[1] and str(found.agent) in typed[0]
    assert parsed["export"].name == str(out / "run")
    rejected = read_page(structs.replace(found, is_trained=False), out / "report.html")
    assert "quaere view" in rejected and "quaere export" not in rejected


def test_the_plan_is_folded_away(out):
    page = read_page(learned(out), out / "report.html")
    assert "<details>\n<summary>The plan that it followed</summary>" in page and "&#34;drafts&#34;: 400" in page


# -------------------------------------------------------------------------------------------------------------- safety


def test_the_page_needs_nothing_and_only_its_own_style_is_allowed(out):
    page = read_page(learned(out, refused=[12, 3]), out / "report.html")
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert f'content="{policy}"'.replace("'", "&#39;") in page
    assert "<script" not in page and "style=" not in page and "@import" not in page and "url(" not in page
    assert read_skeleton(page).addresses == []


def test_payloads_change_no_element_and_no_attribute(out):
    """A page full of payloads has the elements of one with harmless words, one for one; no text is lost."""
    pages = [
        read_page(learned(out / name, texts=texts, num_examples=len(PAYLOADS)), out / name / "report.html")
        for name, texts in (("hostile", PAYLOADS), ("harmless", [f"payload {n}" for n in range(len(PAYLOADS))]))
    ]
    hostile, harmless = map(read_skeleton, pages)
    assert hostile.parts == harmless.parts and hostile.addresses == []
    assert "\u202e" not in pages[0] and "\ufeff" not in pages[0]
    assert "&lt;script&gt;window.hit=1&lt;/script&gt;" in pages[0]


def test_half_a_character_is_shown(out):
    found = structs.replace(learned(out), wrong=[Example("\ud800 question", "", "", "")])
    assert "\\ud800 question" in read_page(found, out / "report.html")


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 400])
def test_it_opens_in_a_browser(out, width, scheme):
    chromium = find_chromium()
    write_page(learned(out, texts=PAYLOADS, refused=[12, 3]), out / "report.html")
    with open_browser(chromium) as browser, watch(browser, out.as_uri(), width=width, scheme=scheme) as watched:
        watched.page.goto(f"{out.as_uri()}/report.html")
        assert watched.page.evaluate("window.hit") is None
        assert watched.page.evaluate("document.scrollingElement.scrollWidth") <= width
        assert find_barriers(watched.page) == []
