"""Joined sentences: what a model writes is used only where a judge and the rules agree."""

import asyncio
from typing import ClassVar

import tiny
from quaere.api.composer import Composer
from quaere.chat.renderer import Renderer
from quaere.dialects.report.report_writer import bind_report
from quaere.evaluation.reports.citations import Checked, CitationChecks
from quaere.evaluation.reports.joining import Joiner, Pair
from quaere.records import Question, ReportTask
from quaere.rollout.policy import TokenPolicy
from reporting import NamedSearcher
from scripted import ScriptedSampler

FIRST, SECOND = "Orsolya Venn built the Halm bridge in 1702.", "It was never rebuilt after the flood."
PASSAGE = f"Halm bridge\n{FIRST} {SECOND} It has 12 arches."
GOOD = "Orsolya Venn built the Halm bridge in 1702 and it was never rebuilt after the flood."
REFUSED = {
    "a number is changed": GOOD.replace("1702", "1712"),
    "a name is lost": GOOD.replace("Orsolya Venn", "She"),
    "a negation is lost": GOOD.replace("never ", ""),
    "half is lost": FIRST,
    "a claim is added": GOOD.replace(" in 1702", " in 1702 for the King of Tallow"),
    "nothing": "",
}


def joiner(texts, judge=None):
    tokenizer = tiny.tokenizer()
    turns = {f"judge-{number}": [f"<sentence>{text}</sentence>"] for number, text in enumerate(texts)}
    return Joiner(TokenPolicy(ScriptedSampler(tokenizer, turns), Renderer(tokenizer)), judge or CitationChecks())


async def test_a_faithful_sentence_is_used_and_others_are_not():
    said = [GOOD, *REFUSED.values()]
    joined = await joiner(said).join([Pair(FIRST, SECOND, PASSAGE)] * len(said))
    assert dict(zip(["good", *REFUSED], joined, strict=True)) == {"good": GOOD, **dict.fromkeys(REFUSED, "")}


class Never:
    name = "never"

    async def check(self, items, *, seed=0, advance=None):
        return [Checked("unsupported") for _ in items]


async def test_the_judge_must_agree():
    assert await joiner([GOOD], Never()).join([Pair(FIRST, SECOND, PASSAGE)]) == [""]


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


async def compose(*texts):
    """A report on a passage of three sentences, of which a model joins the first two."""

    class Found(NamedSearcher):
        async def search(self, queries, topk):
            return await super().search(["halm" for _ in queries], topk)

    searcher = Found({"halm": f"{FIRST} {SECOND} The Halm bridge has 12 arches."})
    searcher.close = lambda: None
    composer = Composer(searcher, joiner=joiner(texts))
    return bind_report(await composer.play(ReportTask(Question("q", "What is known of halm?"))))


async def test_a_composed_report_has_the_joined_sentence_with_its_citation():
    plain, joined = await compose("nonsense"), await compose(GOOD)
    assert len(plain.statements) == 3 and len(joined.statements) == 2
    assert joined.statements[0].text == GOOD.replace(".", " [1].") and not joined.unresolved
