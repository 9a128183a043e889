"""Exported pages in a real browser, from the file system."""

import re

import pytest

from browsing import find_barriers, find_chromium, open_browser, watch
from hostile_markup import PAYLOADS
from quaere.runs import Run
from quaere.viewer.page_files import export_pages
from quaere.viewer.run_folder import open_folder
from viewing import add_episodes, write_hostile, write_run

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def chromium():
    return find_chromium()


@pytest.fixture(scope="module")
def exported(chromium, tmp_path_factory):
    """The URL of an export of two runs."""
    folder = tmp_path_factory.mktemp("exported")
    with Run.open(write_run(folder / "runs/alpha"), write=True) as run:
        add_episodes(run, step=6)
    write_run(folder / "runs/Beta und Söhne")
    export_pages(open_folder(str(folder / "runs")), folder / "out", max_pages=500)
    return (folder / "out").as_uri()


@pytest.fixture(scope="module")
def hostile(chromium, tmp_path_factory):
    """The folder of an export full of payloads."""
    folder = tmp_path_factory.mktemp("hostile")
    write_hostile(folder / "runs", PAYLOADS)
    export_pages(open_folder(str(folder / "runs")), folder / "out", max_pages=60)
    return folder / "out"


@pytest.fixture(scope="module")
def browser(chromium, exported, hostile):  # after them: while it is open, this thread has an event loop
    with open_browser(chromium) as found:
        yield found


@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_opens_without_an_error(browser, exported, width):
    with watch(browser, exported, width=width) as watched:
        seen, waiting = set(), [f"{exported}/index.html"]
        while waiting:
            page, address = watched.page, waiting.pop()
            page.goto(address)
            assert page.locator("h1").count() == 1 and page.locator("h1").text_content() != "404", address
            assert page.evaluate("document.scrollingElement.scrollWidth") <= width, address
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgba(0, 0, 0, 0)", address
            if kind_of(address) not in map(kind_of, seen):
                assert find_barriers(page) == [], address
            seen.add(address)
            links = page.evaluate("[...document.querySelectorAll('a[href]')].map((link) => link.href)")
            found = {link.partition("#")[0] for link in links if not link.endswith(".json")}
            assert all(link.startswith(exported) for link in found)
            waiting += found - seen - set(waiting)
        assert len(seen) > 30


def kind_of(address):
    return re.sub(r"=[^=]*|\d+", "", address)


def test_keys_and_the_slider_work_without_a_server(browser, exported):
    with watch(browser, exported) as watched:
        page = watched.page
        page.goto(f"{exported}/index.html")
        page.get_by_role("link", name="alpha").click()
        page.locator("[data-step]").focus()
        page.keyboard.press("ArrowLeft")
        assert page.locator("[data-step-shown]").text_content() == "5"
        page.keyboard.press("s")
        page.wait_for_url("**/run--alpha--step--5.html")
        page.keyboard.press("]")
        page.wait_for_url("**/run--alpha--step--6.html")
        page.keyboard.press("q")
        page.wait_for_url("**/run--alpha--questions--step*")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/run--alpha--group--task*")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/run--alpha--episode--id*")
        page.keyboard.press("u")
        page.wait_for_url("**/run--alpha--group--task*")


def test_words_are_found_on_the_page_and_nothing_offers_a_verdict(browser, exported):
    with watch(browser, exported) as watched:
        page = watched.page
        page.goto(f"{exported}/pages/run--alpha--curriculum.html")
        assert not page.get_by_role("button", name="Accept").first.is_visible()
        page.keyboard.press("/")
        page.keyboard.type("bridge 3")
        assert [row.is_visible() for row in page.locator("[data-entry]").all()] == [False, False, False, True]
        page.keyboard.press("Enter")
        assert page.url.endswith("curriculum.html")
        page.keyboard.press("Escape")
        for key in "arfz":
            page.keyboard.press(key)


def test_the_tokens_of_a_long_episode_are_read_on(browser, exported):
    with watch(browser, exported) as watched:
        page = watched.page
        page.goto(f"{exported}/pages/run--alpha--episode--id=s6-a2.html")
        page.keyboard.press("t")
        while page.locator("[data-more]").count():
            page.evaluate("scrollTo(0, document.body.scrollHeight)")
            page.wait_for_timeout(20)
        assert page.locator(".token").count() - page.locator(".key .token").count() == 3012


def test_payloads_are_text(browser, hostile):
    with watch(browser, hostile.as_uri()) as watched:
        for file in [hostile / "index.html", *(hostile / "pages").glob("*.html")]:
            watched.page.goto(file.as_uri())
            watched.page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
            assert watched.page.evaluate("window.hit") is None
            kinds = watched.page.evaluate("[...document.scripts].map((script) => script.src || script.type)")
            assert all(kind.endswith("/static/viewer.js") or kind == "application/json" for kind in kinds)


def test_the_policy_of_a_page_forbids_scripts_of_its_own(browser, exported):
    """Were a payload ever markup, it would still not run."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{exported}/index.html")
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'window.hit = 1'}))")
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hit=2\">')")
    page.wait_for_timeout(200)
    assert page.evaluate("window.hit") is None
    context.close()
