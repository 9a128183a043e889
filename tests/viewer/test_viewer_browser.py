"""The viewer in a real browser, on a run of Dr. Zero that was made here."""

import shutil
from urllib.parse import quote

import pytest

from asked import ask_and_wait, fill_history, open_queue, wait_until, write_documents, write_payloads
from backups import SENTENCE
from browsing import AXE, find_barriers, find_chromium, open_browser, watch
from hostile_markup import PAYLOADS
from quaere.runs import Run, RunState
from quaere.search.index_build import build_index
from viewed_reports import TEXTS, write_reports_run
from viewing import (
    add_episodes,
    log_step,
    serve_view,
    write_asked,
    write_eval,
    write_hostile,
    write_learning,
    write_refusing,
    write_run,
)
from village_runs import make_config, run_drzero

pytestmark = pytest.mark.browser

PATHS = ["/", "/run/drzero", "/run/drzero/step/5", "/run/alpha", "/compare?run=drzero&run=alpha", "/?text=nothing"]
PATHS += ["/run/drzero/curriculum", "/run/alpha/item?id=c0", "/run/drzero/unproven"]
PATHS += ["/run/score", "/run/score/reports", "/run/score/report?id=r1-0", "/run/score/report?id=r1-2"]
PATHS += ["/run/asked", "/run/asked/questions", "/run/first", "/run/first/questions"]
PATHS += ["/evaluations", "/evaluation?of=first", "/evaluations/compare?of=first&of=second"]
PATHS += ["/run/learned", "/run/learned/map", "/run/learned/map?of=practised", "/run/learned/step/2"]
PATHS += ["/run/drzero/map", "/compare?run=learned&run=practised"]
PATHS += ["/run/drzero/questions?phase=solver", "/run/alpha/group?task=q1", "/run/alpha/episode?id=s6-a0"]


@pytest.fixture(scope="module")
def chromium():
    return find_chromium()


@pytest.fixture(scope="module")
def runs(chromium, request, tmp_path_factory):
    """A run that was trained, and one that was written."""
    folder = tmp_path_factory.mktemp("viewed")
    river = tmp_path_factory.mktemp("river")
    (river / "oss.md").write_text(f"{TEXTS[0]}\n")
    index = build_index(river, tmp_path_factory.mktemp("index") / "oss")
    write_reports_run(folder / "score", index=index.path)
    for name, answers in (("first", ["Orsolya Venn", "x", None]), ("second", ["x", "Orsolya Venn", "y"])):
        write_eval(folder / name, answers * 20, evidence=True)
    write_learning(folder / "learned")
    write_learning(folder / "practised", validated=False)
    write_refusing(folder / "refusing")
    write_asked(folder / "asked", ["Orsolya Venn", "x", None], scored=True)
    # By name: fixtures of a session are made before all others, so also where there is no browser.
    village_paths = request.getfixturevalue("village_paths")
    run, _ = run_drzero(folder / "drzero", make_config(village_paths))
    run.close()
    with Run.open(write_run(folder / "alpha", ended="failed"), write=True) as run:
        add_episodes(run, step=6)
        run.note_end(RunState("failed", "the gradient is not finite"))
    return folder


@pytest.fixture(scope="module")
def browser(chromium, runs):
    with open_browser(chromium) as found:
        yield found


@pytest.fixture(scope="module")
def queue(chromium, tmp_path_factory):
    with open_queue(write_documents(tmp_path_factory.mktemp("documents")), max_turns=3) as found:
        yield found


@pytest.fixture(scope="module")
def url(runs, queue):
    with serve_view(runs, queue=queue) as found:
        yield found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_opens_fits_and_has_no_barrier(browser, url, queue, width, scheme):
    asked = [ask_and_wait(queue, text).id for text in ("move the backups", "made up", "no answer", "not said")]
    paths = ["/ask", *(f"/ask/{id}" for id in asked), "/document?id=ops.md&start=9000&end=9100#span"]
    with watch(browser, url, width=width, scheme=scheme) as watched:
        for path in (*PATHS, *paths):
            page = watched.open(path)
            assert page.evaluate("document.scrollingElement.scrollWidth") <= width, path
            assert find_barriers(page) == [], path
            page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
            assert page.evaluate("document.scrollingElement.scrollWidth") <= width, path


def test_a_long_reason_leaves_the_names_of_runs_in_one_line(browser, tmp_path):
    why = "the gradient is not finite " * 20
    path = write_run(tmp_path / "evolve-20250301-101500")
    with Run.open(path, write=True) as run:
        run.note_end(RunState("failed", why))
    with serve_view(tmp_path) as url, watch(browser, url) as watched:
        page = watched.open("/")
        num_lines = page.locator("tbody th a").evaluate("link => link.getClientRects().length")
        assert num_lines == 1 and page.locator("span.bad").bounding_box()["width"] <= 24 * 16


def test_runs_are_opened_and_compared_by_keys(browser, url):
    with watch(browser, url) as watched:
        page = watched.open("/")
        page.keyboard.press("j")
        page.keyboard.press("j")
        assert page.evaluate("document.activeElement.textContent") == "drzero"
        page.keyboard.press("k")
        page.keyboard.press("Enter")
        page.wait_for_url("**/run/alpha")
        page.keyboard.press("u")
        page.wait_for_url(f"{url}/")
        for key in "jxjxc":
            page.keyboard.press(key)
        page.wait_for_url("**/compare?run=alpha&run=drzero")
        page.go_back()
        page.keyboard.press("/")
        page.keyboard.type("alp")
        page.keyboard.press("Enter")
        page.wait_for_url("**/?text=alp*")
        assert page.locator("[data-entry]").count() == 1
        page.keyboard.press("?")
        assert page.locator("dialog[open]").is_visible()
        page.keyboard.press("Escape")
        assert not page.locator("dialog[open]").is_visible()


class Clicks:
    """Links that are followed one after another, from the first page."""

    def __init__(self, page):
        self.page, self.num = page, 0

    def follow(self, link):
        self.num += 1
        address = self.page.url
        link.click()
        self.page.wait_for_function("address => location.href !== address", arg=address)


def test_what_a_reader_asks_is_answered_in_three_clicks(browser, url):
    with watch(browser, url, width=1400) as watched:
        page = watched.open("/")
        clicks = Clicks(page)
        clicks.follow(page.get_by_role("link", name="learned", exact=True))
        # Has it improved, and by how much?
        assert page.locator(".headline b").inner_text() == "50.0 → 100.0 %"
        assert page.get_by_text(", +50.0 [").is_visible()
        for place in (".headline", "#curve", "#alarms"):
            box = page.locator(place).bounding_box()
            assert box["y"] + box["height"] <= 900  # without scrolling
        # One question that it learned, and both attempts.
        learned = page.locator(".examples.good li").first
        assert learned.locator(".both a").all_inner_texts() == ["x", "Orsolya Venn"]
        clicks.follow(learned.locator(".both a").first)
        assert page.locator("h1").inner_text().startswith("Who built h1?")
        page.go_back()
        clicks.follow(page.locator(".examples.good .question a").first)
        assert page.locator("section h2").all_inner_texts()[0].startswith("Step 1") and clicks.num <= 3


def test_which_questions_fail_and_what_differs_between_runs_is_found_in_three_clicks(browser, url):
    with watch(browser, url, width=1400) as watched:
        page = watched.open("/")
        clicks = Clicks(page)
        clicks.follow(page.get_by_role("link", name="practised", exact=True))
        assert page.locator(".examples.bad .question").all_inner_texts() == ["Who built q3?"]
        clicks.follow(page.get_by_role("link", name="Every question, step by step"))
        assert page.locator(".panel li").count() == 4
        clicks.follow(page.locator(".panel li").last.locator("a.cell").last)
        assert page.locator("h1").inner_text().startswith("Who built q3?") and clicks.num == 3
        watched.open("/")
        clicks = Clicks(page)
        clicks.follow(page.get_by_role("link", name="refusing", exact=True))
        assert page.locator(".kinds tbody th").all_inner_texts() == ["other", "answer hidden"]  # the worst first
        watched.open("/")
        for name in ("learned", "practised"):
            page.get_by_label(f"Compare {name}", exact=True).check()
        page.get_by_role("button", name="Compare the marked runs").click()
        page.locator("#questions-title").wait_for()
        assert "both have 2, neither 2" in page.locator("section p").first.inner_text()


def test_one_slider_moves_the_cursor_of_all_charts(browser, url):
    with watch(browser, url) as watched:
        page = watched.open("/run/alpha")
        value = page.locator("[data-chart]", has_text="Mean reward").locator("[data-value]").first
        assert value.text_content() == "0.6"
        page.locator("[data-step]").focus()
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("[")
        assert value.text_content() == "0.4"
        assert page.locator("[data-step-shown]").text_content() == "4"
        cursors = {cursor.get_attribute("x1") for cursor in page.locator("[data-cursor]").all()}
        assert len(cursors) == 1
        page.locator("[data-chart] > svg").first.scroll_into_view_if_needed()
        box = page.locator("[data-chart] > svg").first.bounding_box()
        page.mouse.move(box["x"] + box["width"] * 0.13, box["y"] + 40)
        assert value.text_content() == "0.1"
        page.keyboard.press("s")
        page.wait_for_url("**/run/alpha/step/1")
        page.keyboard.press("]")
        page.wait_for_url("**/run/alpha/step/2")


def test_attempts_are_stepped_through_by_keys(browser, url):
    with watch(browser, url) as watched:
        page = watched.open("/run/alpha")
        page.keyboard.press("q")
        page.wait_for_url("**/run/alpha/questions")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/run/alpha/group?task=q1&step=6")
        for key in ("j", "j", "Enter"):
            page.keyboard.press(key)
        page.wait_for_url("**/run/alpha/episode?id=s6-a2")
        page.keyboard.press("[")
        page.wait_for_url("**/run/alpha/episode?id=s6-a0")
        for _ in range(3):  # the evidence, the turns
            page.keyboard.press("j")
        assert page.evaluate("document.activeElement.id") == "turn-2"
        page.keyboard.press("u")
        page.wait_for_url("**/run/alpha/group?task=q1&step=6")


def test_a_verdict_is_given_by_keys_and_reaches_training(browser, runs, url):
    with watch(browser, url) as watched:
        page = watched.open("/run/alpha/curriculum?state=kept")
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("r")
        page.locator("[data-item=c2] .verdict.rejected").wait_for()
        page.reload()
        assert page.locator("[data-item=c2] .verdict").text_content() == "rejected"
        with Run.open(runs / "alpha") as run:
            assert [candidate.id for candidate in run.curriculum()] == ["c0"]
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/run/alpha/item?id=c0")
        page.keyboard.press("f")
        page.locator(".verdict.flagged").wait_for()
        page.keyboard.press("z")
        page.locator(".verdict").wait_for(state="detached")
        page.keyboard.press("u")
        page.wait_for_url("**/run/alpha/curriculum")
        page.locator("[data-item=c2]").get_by_text("Clear").click()
        page.locator(".verdict").wait_for(state="detached")
        with Run.open(runs / "alpha") as run:
            assert run.verdicts() == {}


def test_why_an_answer_was_given_is_three_clicks_from_the_first_page(browser, url):
    with watch(browser, url) as watched:
        page = watched.open("/")
        page.locator("main a", has_text="alpha").first.click()
        page.wait_for_url("**/run/alpha")
        page.locator("main a[href='/run/alpha/questions']").first.click()
        page.wait_for_url("**/run/alpha/questions")
        page.locator("main a", has_text="best").first.click()
        page.wait_for_url("**/run/alpha/episode?id=s6-a0")
        assert page.locator(".answer").text_content() == "Orsolya Venn"
        assert page.locator(".evidence mark").text_content() == "Orsolya Venn built it."
        for part in (".evidence mark", ".evidence b", ".query", ".card.cited mark", ".reply"):
            assert page.locator(part).first.is_visible(), part


def test_tags_and_log_probs_are_one_key_away(browser, url):
    with watch(browser, url) as watched:
        page = watched.open("/run/alpha/episode?id=s6-a0")
        hidden = [page.locator("#turn-1 pre"), page.locator(".token-row").first, page.locator("#passage-1-1-1 .said")]
        for key, seen in (("t", [True, True, False]), ("e", [True, True, True]), ("t", [False, False, True])):
            page.keyboard.press(key)
            assert [part.is_visible() for part in hidden] == seen
        assert not page.locator("#passage-1-1-1 .excerpt").is_visible()
        page.keyboard.press("o")  # there is no index: the passage is on this page
        assert page.url.endswith("#passage-1-1-2")


def test_a_printed_episode_has_no_controls_and_is_light(browser, url):
    with watch(browser, url, scheme="dark") as watched:
        page = watched.open("/run/alpha/episode?id=s6-a0")
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        for part in (".top", "footer", "[data-copy]", "#tokens"):
            assert not page.locator(part).first.is_visible(), part
        assert page.locator(".card.cited mark").is_visible()
        page = watched.open("/run/first/episode?id=q0")
        assert not page.locator("#reward-title").is_visible()  # its measures are folded away
        page.emulate_media(media="screen")
        assert page.locator("#reward-title").is_visible()


def test_a_printed_map_has_its_colours(browser, url):
    with watch(browser, url) as watched:
        page = watched.open("/run/learned/map")
        page.emulate_media(media="print")
        cell = page.locator(".panel .cell").first
        assert cell.evaluate("cell => getComputedStyle(cell).printColorAdjust") == "exact"


def test_the_tokens_of_a_long_episode_are_read_on(browser, url):
    with watch(browser, url) as watched:
        page = watched.open("/run/alpha/episode?id=s6-a2")
        assert page.locator(".token-row").count() == 16
        page.keyboard.press("t")
        while page.locator("[data-more]").count():
            page.evaluate("scrollTo(0, document.body.scrollHeight)")
            page.wait_for_timeout(20)
        assert page.locator(".token").count() - page.locator(".key .token").count() == 3012


def test_curves_move_while_a_run_writes(browser, runs, url):
    shutil.copytree(runs / "alpha", runs / "followed")
    with watch(browser, url) as watched, Run.open(runs / "followed", write=True) as run:
        page = watched.open("/run/followed")
        page.locator("[data-live-mark]").wait_for(state="visible")
        line = page.locator("[data-chart]", has_text="Mean reward").locator("path.line").first
        before = line.get_attribute("d")
        page.locator("summary", has_text="Reward").click()  # a section that a person has shut stays shut
        page.locator("[data-step]").focus()
        page.evaluate("for (const part of document.querySelectorAll('[data-live]')) part.kept = true")
        log_step(run, 7, 6)
        page.locator("[data-step-shown]", has_text="7").wait_for()
        kept = page.evaluate(
            "[...document.querySelectorAll('[data-live]')].filter((part) => part.kept).map((part) => part.id)"
        )
        assert {"alarms", "curriculum"} <= set(kept) and not {"slider", "curves"} & set(kept)  # only what changed
        assert page.evaluate("document.activeElement.id") == "step"
        assert line.get_attribute("d") != before and line.get_attribute("data-points").endswith("7:0.7")
        assert page.locator(".state.running").is_visible()
        assert page.locator("details", has_text="Mean reward").first.get_attribute("open") is None
    shutil.rmtree(runs / "followed")


def test_a_question_is_answered_and_its_chip_scrolls_to_the_sentence(browser, url):
    """From the list of runs, by keys alone."""
    with watch(browser, url) as watched:
        page = watched.open("/")
        page.keyboard.press("A")
        page.wait_for_url("**/ask")
        page.keyboard.press("/")
        page.keyboard.type("When did we move the backups?")
        page.keyboard.press("Enter")
        page.wait_for_url("**/ask/*")
        page.locator(".answer", has_text="May 2019").wait_for()
        assert page.locator(".evidence b", has_text="verbatim").is_visible()
        assert page.locator("#steps article").count() == 2
        assert "In May 2019" in page.locator(".evidence mark").text_content()
        page.locator("[data-live-mark]").wait_for(state="hidden")
        page.keyboard.press("o")
        page.wait_for_url("**/document?id=ops.md*#span")
        mark = page.locator("mark")
        assert mark.text_content() == SENTENCE
        page.wait_for_function("scrollY > 500")
        box = mark.bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= 900
        page.go_back()
        assert not page.locator("#steps article").first.is_visible()  # folded, now that there is an answer
        page.keyboard.press("i")
        page.wait_for_url("**/ask?question=*")
        assert page.locator("#question").input_value() == "When did we move the backups?"
        page.locator("#question").fill(" ")
        page.locator("[data-ask] button").click()
        page.locator("[data-said]", has_text="1 to 4000 characters").wait_for()
        watched.faults.remove("Failed to load resource: the server responded with a status of 400 (Bad Request)")


def test_steps_come_in_and_a_question_is_cancelled(browser, url, queue):
    with watch(browser, url) as watched:
        page = watched.open("/ask")
        page.locator("#question").fill("wait for it")
        page.keyboard.press("Enter")
        page.wait_for_url("**/ask/*")
        page.locator("#steps article").wait_for()  # the first step, while the second is awaited
        assert page.locator(".state").text_content() == "running"
        page.locator("#steps summary").first.click()
        running = page.url.rsplit("/", 1)[1]
        assert not queue.find(running).is_over
        page.keyboard.press("Escape")
        page.keyboard.press("x")
        page.locator(".state.cancelled").wait_for()
        assert queue.sampler.cancelled and queue.find(running).state == "cancelled"
        page.reload()
        assert page.locator(".state").text_content() == "cancelled"
        page.keyboard.press("u")
        page.wait_for_url("**/ask")
        assert page.locator("[data-entry]").first.text_content().startswith("wait for it")


def test_what_ends_before_its_page_is_followed_is_shown(browser, url, queue):
    """Nobody tells a stream of what happened before it was opened."""
    with watch(browser, url) as watched:
        asked = queue.add("wait for it")
        wait_until(lambda: len(queue.find(asked.id).turns) == 1)

        def open_late(route):
            queue.cancel(asked.id)
            wait_until(lambda: queue.find(asked.id).is_over)
            route.continue_()

        watched.page.route("**/changes", open_late)
        page = watched.open(f"/ask/{asked.id}")
        page.locator(".state.cancelled").wait_for()
        page.locator("[data-live-mark]").wait_for(state="hidden")


def test_an_older_reply_never_replaces_a_newer_one(browser, url):
    """The first of two requests is answered late."""
    with watch(browser, url) as watched:
        page = watched.open("/run/alpha/item?id=c0")
        page.evaluate(
            """async () => {
                stream?.close();  // nobody else asks
                await refresh();
                const parts = document.documentElement.outerHTML;
                let number = 0;
                window.fetch = async () => {
                    const reply = parts.replace("</main>", `<p id="which" data-live>${++number}</p></main>`);
                    if (number === 1) await new Promise((done) => setTimeout(done, 200));
                    return new Response(reply);
                };
                one("main").insertAdjacentHTML("beforeend", '<p id="which" data-live>0</p>');
                await Promise.all([refresh(), refresh(), refresh()]);
            }"""
        )
        assert page.locator("#which").text_content() == "2"  # one answer for the two that asked while it was awaited


def test_a_report_is_read_and_its_citations_are_opened(browser, url):
    with watch(browser, url) as watched:
        page = watched.open("/run/score")
        page.keyboard.press("r")
        page.wait_for_url("**/run/score/reports")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/run/score/report?id=r1-0")
        page.locator(".report a.chip", has_text="[2]").click()
        page.wait_for_url("**/report?id=r1-0#source-2")
        page.locator(".report a.chip", has_text="[1]").click()
        page.wait_for_url("**/run/score/document?id=oss.md*#span")
        assert page.locator("mark").text_content() == TEXTS[0]


def test_two_results_are_compared_by_keys(browser, url):
    with watch(browser, url) as watched:
        page = watched.open("/")
        page.keyboard.press("E")
        page.wait_for_url("**/evaluations")
        for key in "jxjxc":
            page.keyboard.press(key)
        page.wait_for_url("**/evaluations/compare?of=*&of=*")
        page.locator("select[name=change]").select_option("gained")
        page.locator("button", has_text="Show").click()
        page.wait_for_url("**change=gained*")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/run/*/episode?id=q*")


def test_pages_work_without_the_script(browser, url):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{url}/run/alpha")
    page.locator("[data-without-script]").click()
    page.wait_for_url("**/run/alpha?step=6")
    assert page.locator("[data-step-shown]").text_content() == "6"
    context.close()


def test_payloads_are_text(browser, tmp_path):
    write_hostile(tmp_path / "runs", PAYLOADS)
    write_reports_run(tmp_path / "runs/score", titles=PAYLOADS)
    for name in ("first", "second"):
        write_eval(tmp_path / "runs" / name, ["Orsolya Venn", "x", None] * 50, titles=PAYLOADS)
    with (
        open_queue(write_payloads(tmp_path, PAYLOADS)) as queue,
        serve_view(tmp_path / "runs", queue=queue) as url,
        watch(browser, url) as watched,
    ):
        fill_history(queue, PAYLOADS)
        asked = ["/ask", "/ask?page=2", *(f"/ask/ask-{number}" for number in range(0, 150, 7))]
        asked += [f"/run/score/report?id=r{step}-0" for step in range(1, 151, 10)]
        asked += ["/run/score", "/run/score/reports", "/evaluations", "/evaluations/compare?of=first&of=second"]
        asked += [f"/evaluation?of=first&page={number}" for number in (1, 2, 3)]
        asked += [f"/document?id={quote(text, safe='')}&start=2&end=9#span" for text in PAYLOADS[::7]]
        of_run = (
            "",
            "/step/1",
            "/map",
            "/questions",
            "/group?task=q1",
            "/curriculum",
            "/unproven",
            *(f"/episode?id=s{n}-a0" for n in range(1, 151, 10)),
        )
        for path in ("/", "/compare?run=main&run=other", *(f"/run/main{page}" for page in of_run), *asked):
            page = watched.open(path)
            page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
            assert page.evaluate("window.hit") is None
            assert page.evaluate("[...document.scripts].every((script) => script.src.endsWith('/static/viewer.js'))")


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed: make browser")
def test_a_barrier_is_noticed(browser, url):
    with watch(browser, url) as watched:
        page = watched.open("/")
        page.evaluate("document.querySelector('input').parentElement.replaceWith(document.querySelector('input'))")
        page.evaluate("document.querySelector('input').removeAttribute('placeholder')")
        assert [name for name, _ in find_barriers(page)] == ["label"]
