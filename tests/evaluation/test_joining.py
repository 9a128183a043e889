"""Joined sentences: what a model writes is used only where a judge and the rules agree."""

import asyncio
from itertools import zip_longest
from typing import ClassVar

import pytest

import tiny
from quaere.api.composer import Composer, cite
from quaere.chat.renderer import Renderer
from quaere.dialects.report.report_writer import bind_report
from quaere.evaluation.reports.citations import Checked, CitationChecks
from quaere.evaluation.reports.joining import Joiner, Pair, has_their_words
from quaere.records import Question, ReportTask
from quaere.rollout.policy import TokenPolicy
from reporting import NamedSearcher
from scripted import ScriptedSampler

FIRST, SECOND = "Orsolya Venn built the Halm bridge in 1702.", "It was never rebuilt after the flood."
PASSAGE = f"Halm bridge\n{FIRST} {SECOND} It has 12 arches."
GOOD = "Orsolya Venn built the Halm bridge in 1702, and it was never rebuilt after the flood."
REFUSED = {
    "a number is changed": GOOD.replace("1702", "1712"),
    "a name is lost": GOOD.replace("Orsolya Venn", "She"),
    "a negation is lost": GOOD.replace("never ", ""),
    "half is lost": FIRST,
    "a comma is lost": GOOD.replace(",", ""),
    "a capital is left": GOOD.replace(" it was", " It was"),
    "a claim is added": GOOD.replace(" in 1702", " in 1702 for the King of Tallow"),
    "nothing": "",
}


def joiner(*calls, judge=None):
    """One that writes these texts, a list for each call."""
    tokenizer = tiny.tokenizer()
    turns = {
        f"judge-{number}": [f"<sentence>{text}</sentence>" for text in several]
        for number, several in enumerate(zip_longest(*calls, fillvalue=""))
    }
    return Joiner(TokenPolicy(ScriptedSampler(tokenizer, turns), Renderer(tokenizer)), judge or CitationChecks())


async def test_a_faithful_sentence_is_used_and_others_are_not():
    said = [GOOD, *REFUSED.values()]
    joined = await joiner(said).join([Pair(FIRST, SECOND, PASSAGE)] * len(said))
    assert dict(zip(["good", *REFUSED], joined, strict=True)) == {"good": GOOD, **dict.fromkeys(REFUSED, "")}


@pytest.mark.parametrize(
    "first",
    [
        "If it rains, the gate is closed.",
        "As long as it rains, the gate is closed.",
        "The masons say that Venn built it in 1702.",
        "Venn said it fell in 1702.",
        "According to Venn, it fell in 1702.",
        "It is not true that Venn built it.",
    ],
)
async def test_nothing_is_joined_to_a_condition_or_to_what_somebody_says(first):
    ruled = Pair(first, SECOND, f"{first} {SECOND}")
    assert await joiner([GOOD]).join([ruled, Pair(FIRST, SECOND, PASSAGE)]) == ["", GOOD]
    assert await joiner([]).join([ruled]) == [""]


class Never:
    name = "never"

    async def check(self, items, *, seed=0, advance=None):
        return [Checked("unsupported") for _ in items]


async def test_the_judge_must_agree():
    assert await joiner([GOOD], judge=Never()).join([Pair(FIRST, SECOND, PASSAGE)]) == [""]


async def test_reports_that_are_composed_at_once_take_turns():
    """Their turns have the same names, and a model tells its conversations apart by name."""

    class Alone(ScriptedSampler):
        talking: ClassVar[set[str]] = set()

        async def sample(self, session, token_ids, params):
            assert session not in self.talking
            self.talking.add(session)
            await asyncio.sleep(0.01)
            self.talking.remove(session)
            return await super().sample(session, token_ids, params)

    tokenizer = tiny.tokenizer()
    sampler = Alone(tokenizer, {"judge-0": [f"<sentence>{GOOD}</sentence>"] * 2})
    shared = Joiner(TokenPolicy(sampler, Renderer(tokenizer)), CitationChecks())
    pairs = [Pair(FIRST, SECOND, PASSAGE)]
    assert (await asyncio.gather(shared.join(pairs), shared.join(pairs)))[0] == [GOOD]


MORE = (
    "The Halm bridge has 12 arches.",
    "Carts paid two coins at the Halm bridge.",
    "The Halm bridge is of grey slate.",
    "Swallows nest under the Halm bridge.",
    "The Halm bridge is closed in winter.",
    "A keeper lives beside the Halm bridge.",
)


async def compose(sentences, *calls):
    """A report on a passage of these sentences."""

    class Found(NamedSearcher):
        async def search(self, queries, topk):
            return await super().search(["halm" for _ in queries], topk)

    searcher = Found({"halm": " ".join(sentences)})
    searcher.close = lambda: None
    composer = Composer(searcher, joiner=joiner(*calls))
    return bind_report(await composer.play(ReportTask(Question("q", "What is known of halm?"))))


async def test_a_composed_report_has_the_joined_sentence_with_its_citation():
    plain = await compose((FIRST, SECOND, *MORE), [""] * 4)
    told = await compose((FIRST, SECOND, *MORE), [GOOD, "", "", ""])
    assert [one.text for one in plain.statements] == [cite(text, 1) for text in (FIRST, SECOND, *MORE)]
    assert [one.text for one in told.statements] == [cite(text, 1) for text in (GOOD, *MORE)]
    assert not told.unresolved


async def test_sentences_of_a_short_report_are_not_joined():
    """The joiner is not asked, and has no turns."""
    told = await compose((FIRST, SECOND, *MORE[:4]))
    assert len(told.statements) == 6 and told.statements[0].text == cite(FIRST, 1)


async def test_only_sentences_that_follow_each_other_are_joined():
    """Between them a sentence that is no finding: the joiner is not asked, and has no turns."""
    between = "Rain fell: nobody | knew."
    sentences = [one for text in (FIRST, SECOND, *MORE) for one in (text, between)]
    assert len((await compose(sentences)).statements) == 8


async def test_a_sentence_without_a_neighbour_leaves_the_next_two_to_be_joined():
    told = await compose((MORE[0], "Rain fell: nobody | knew.", FIRST, SECOND, *MORE[1:]), [GOOD, "", ""])
    assert [one.text for one in told.statements][:2] == [cite(MORE[0], 1), cite(GOOD, 1)]


@pytest.mark.parametrize(
    ("joined", "second", "holds"),
    [
        ("Venn built it and was paid in salt.", "Venn was paid in salt.", True),
        ("Venn built it, and Venn was paid in salt.", "Venn was paid in salt.", True),
        ("Venn built it, and she was paid in salt.", "She was paid in salt.", True),
        ("Venn built it, and She was paid in salt.", "She was paid in salt.", False),
        (
            "Venn built it and was paid in salt.",
            "She was paid in salt.",
            False,
        ),
        ("Venn built it, and arches of slate bear it.", "Arches of slate bear it.", True),
        ("Venn built it, and Arches of slate bear it.", "Arches of slate bear it.", False),
        ("Venn built it, and after the flood she left.", "After the flood she left.", True),
        ("Venn built it, and tallow is near.", "Tallow is near.", False),
        ("Venn built it and she was paid in salt.", "She was paid in salt.", False),
        ("Venn built it and, asked for salt, was paid.", "Venn, asked for salt, was paid.", True),
        ("Venn built it and asked for salt, was paid.", "Venn, asked for salt, was paid.", False),
        ("Venn built it while she was paid in salt.", "She was paid in salt.", False),
        ("Venn was paid in salt and built it.", "Venn was paid in salt.", False),
        ("Venn built it and was paid in 12.5 crowns.", "Venn was paid in 12.5 crowns.", True),
        ("Venn built it and was paid in 1.25 crowns.", "Venn was paid in 12.5 crowns.", False),
        ("Venn built it and", "Venn built it.", False),
        ("Venn built it.", "Venn built it.", False),
    ],
)
def test_a_joined_sentence_has_the_words_of_both(joined, second, holds):
    passage = f"Halm\nVenn built it. {second} The arches are of slate."
    assert has_their_words(joined, Pair("Venn built it.", second, passage)) is holds
