"""Renders episodes for the terminal. Pure functions: records in, rich renderables out.

    Console().print(render_episode(episode))
    Console().print(render_turn(turn))        # while an episode is still running

Everything shown here was written by a model or found in a document, so it must not control the terminal: control
characters are replaced by visible symbols (`printable`), and all text goes into `rich.text.Text`, which has no markup.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from quaere import records
from quaere.api import answer as answers
from quaere.api.printing import count as count
from quaere.chat.markup import find_blocks
from quaere.chat.report_layout import count_line
from quaere.chat.spans import shown_passages
from quaere.chat.statements import find_citations
from quaere.cli.terminal import printable as printable  # shown with everything here, and asked for here
from quaere.dialects.report.report_writer import bind_report
from quaere.records import Answer, Episode, Proposal, Report, ReportTask, SearchResult, Turn
from quaere.runs import Run
from quaere.runs.rows import PLACE

_TRIM_CHARS = 240
_MAX_SEEN = 10  # passages listed when no answer was found
_BLOCK_STYLES = {"think": "dim italic", "tool_call": "cyan", "answer": "bold green", "question": "bold green"}
_STOPS: dict[records.StopReason, str] = {
    "end_of_turn": "ended its turn",
    "stop_string": "stopped at a stop string",
    "length": "ran out of tokens",
    "failed": "failed",
}
_ENDS: dict[records.EndReason, str] = {
    "answered": "answered",
    "turn_limit": "no answer: the turn limit was reached",
    "sequence_limit": "no answer: the token limit was reached",
    "failed": "no answer: it failed",
}


def trim(text: str, num_chars: int = _TRIM_CHARS) -> str:
    """The text on one line, cut after `num_chars` characters.

    trim("The Oss rises\\nin the north.", 13) == "The Oss rises …"
    """
    line = " ".join(text[: 4 * num_chars].split())
    return line if len(line) <= num_chars and len(text) <= 4 * num_chars else line[:num_chars].rstrip() + " …"


def render_episode(episode: Episode, *, full: bool = False, min_confidence: float = 0.0) -> Group:
    """The whole episode: task, turns and end. `full` shows passages uncut, and every reply."""
    turns = (render_turn(turn, full=full) for turn in episode.turns)
    return Group(_render_task(episode, full=full), *turns, render_end(episode, min_confidence))


def render_turn(turn: Turn, *, full: bool = False) -> Group:
    """One turn: the model's text, the action read from it, search results and the environment's reply."""
    sampled = [count(turn.num_tokens, "token"), _STOPS[turn.stop_reason]]
    took = sampled if turn.num_tokens or turn.stop_reason != "stop_string" else ["written for the model"]
    timings = {"sampling": turn.sample_s, "search": turn.search_s}
    took += [f"{name} {seconds:.1f} s" for name, seconds in timings.items() if seconds]
    head = Text.assemble((f"\nTurn {turn.index + 1}", "bold"), (f"  {', '.join(took)}", "dim"))
    results = (_indent(_render_result(result, full=full)) for result in turn.results)
    parts = [_indent(_style_model_text(turn.text)), _indent(_render_action(turn)), *results]
    if turn.reply and (full or turn.note_tokens or not turn.results):  # else the reply mostly repeats the passages
        reply = printable(turn.reply if full else trim(turn.reply))
        parts.append(_indent(Text(f"environment: {reply}", "dim")))
    if failure := turn.failure:
        said = printable(f"{failure.kind}: {failure.message}")
        parts.append(_indent(Text.assemble((f"failed at the {failure.boundary}: ", "bold red"), (said, "red"))))
    return Group(head, *parts)


def render_end(episode: Episode, min_confidence: float = 0.0) -> Group:
    """The end of the episode: its answer or proposal, or why there is none. One below `min_confidence` is none."""
    abstained = episode.abstains(min_confidence)
    parts: list[RenderableType] = [Text()]
    match episode.outcome:
        case Answer() if abstained:
            parts.append(labelled("Answer", answers.say_doubt(episode, min_confidence), "bold yellow"))
        case Answer(text):
            parts.append(labelled("Answer", text, "bold green"))
            if isinstance(episode.task, ReportTask) and (report := bind_report(episode)) is not None:
                parts.append(Text(count_line(report), "yellow" if report.unresolved else "dim"))
        case Proposal(question, answer):
            parts += [
                labelled("Proposed question", question, "bold green"),
                labelled("Its answer", answer, "bold green"),
            ]
        case records.Rubric() | records.Assessment():
            parts.append(labelled("Decided", episode.outcome.text, "bold green"))
    ended = "proposed" if isinstance(episode.outcome, Proposal) else "abstained" if abstained else _ENDS[episode.end]
    num_tokens = sum(len(segment.token_ids) for segment in episode.segments)
    counts = [count(len(episode.turns), "turn"), count(episode.num_searches, "search"), count(num_tokens, "token")]
    parts.append(Text(f"{ended} ({', '.join(counts)})", "dim" if episode.end == "answered" else "yellow"))
    return Group(*parts)


def render_stored(
    episode: Episode, metrics: Mapping[str, float], *, full: bool, tokens: bool, min_confidence: float
) -> Group:
    """The whole episode with its metrics and rewards on one line; with `tokens` also a table of its segments."""
    line = " · ".join(f"{name} {value:.3g}" for name, value in metrics.items() if name != PLACE)
    measures = [Text(printable(line), "dim")] if metrics else []
    shown = render_episode(episode, full=full, min_confidence=min_confidence)
    return Group(shown, *measures, *([render_tokens(episode)] if tokens else []))


def render_tokens(episode: Episode) -> Table:
    """A table of the segments: origin, length, tokens with loss, mean log-prob."""
    num_tokens = sum(len(segment.token_ids) for segment in episode.segments)
    num_trained = sum(sum(segment.loss_mask) for segment in episode.segments)
    counts = {"tokens": str(num_tokens), "with loss": str(num_trained), "mean log-prob": ""}
    numbers = (Column(name, total, justify="right") for name, total in counts.items())
    table = Table("#", Column("origin", "all"), *numbers, box=None, show_footer=True)
    for number, segment in enumerate(episode.segments):
        trained = [p for p, flag in zip(segment.logprobs, segment.loss_mask, strict=False) if flag]
        mean = f"{sum(trained) / len(trained):.3f}" if trained else ""
        table.add_row(str(number), segment.origin, str(len(segment.token_ids)), str(sum(segment.loss_mask)), mean)
    return table


# ----------------------------------------------------------------------------------------------------------- details


def _render_task(episode: Episode, *, full: bool) -> Group:
    match episode.task:
        case records.SolveTask(question):
            expected = [labelled("Expected", " | ".join(question.answers), "dim")] if question.answers else []
            parts = [labelled("Question", question.text, "bold"), *expected]
        case records.ProposeTask(given=records.Question() as given):
            stays = labelled("Its answer stays", " | ".join(given.answers), "dim")
            parts = [labelled("Make this question harder", given.text, "bold"), stays]
        case records.ProposeTask(document=document, hops=hops):
            title = document.title if document else "anything"
            parts = [labelled(f"Propose a question of {count(hops, 'hop')} about", title, "bold")]
        case ReportTask(question, rubric):
            judged = [labelled("Judged by", rubric.text, "dim")] if rubric else []
            parts = [labelled("Report on", question.text, "bold"), *judged]
        case records.RubricTask(questions=questions, harness=harness, hints=hints):
            parts = [labelled("Choose a rubric for reports on", " / ".join(questions), "bold")]
            rules = harness.dimensions
            allowed = (
                f"{rules.k} of {', '.join(item.name for item in harness.pool)}; {', '.join(rules.required)} comes first"
            )
            weights = f"weights from {rules.weight_min:g} to {rules.weight_max:g}"
            parts.append(labelled(f"Harness {harness.version}", f"{allowed}; {weights}", "dim"))
            advised = {"take": hints.required, "leave": hints.avoided, "try": hints.explore}
            if said := "; ".join(f"{verb} {', '.join(names)}" for verb, names in advised.items() if names):
                parts.append(labelled("Hints", said, "dim"))
        case records.AssessTask(question=question, rubric=rubric, reports=reports):
            parts = [labelled(f"Assess {count(len(reports), 'report')} on", question.text, "bold")]
            parts.append(labelled("Judged by", rubric.text, "dim"))
            texts = (report.text if full else trim(report.text) for report in reports)
            parts += [labelled(f"Report {number}", text, "dim") for number, text in enumerate(texts, start=1)]
    how = f"episode {episode.id}, {episode.protocol}, {episode.model}, seed {episode.seed}"
    return Group(*parts, Text(printable(how), "dim"))


def _render_action(turn: Turn) -> Text:
    match turn.action:
        case records.Search(queries, about=about):
            whom = f" for report {about}" if about else ""
            return Text.assemble((f"→ searches{whom}: ", "cyan"), printable("; ".join(queries)))
        case records.Evaluate(text, score):
            return Text.assemble((f"→ gives it {score:g} of 10: ", "cyan"), printable(text))
        case Answer(text):
            # The model's own text just above has the whole report, so a long one is not repeated.
            shown = text if len(text) <= _TRIM_CHARS else trim(text)
            return Text.assemble(("→ answers: ", "green"), printable(shown))
        case Proposal(question, answer):
            return Text.assemble(("→ proposes: ", "green"), printable(f"{question} -> {answer}"))
        case records.Rubric() | records.Assessment():
            return Text.assemble(("→ decides: ", "green"), printable(turn.action.text))
        case records.Malformed(reason):
            return Text.assemble(("→ cannot be read: ", "yellow"), printable(reason))


def _render_result(result: SearchResult, *, full: bool) -> Group:
    found = f"{count(len(result.hits), 'passage')} for " if result.hits else "nothing found for "
    parts: list[RenderableType] = [Text.assemble((found, "dim"), (printable(result.query), "italic"))]
    for rank, hit in enumerate(result.hits, start=1):
        passage = hit.passage
        place = f", {passage.place}" if passage.place else ""
        source = f"  {passage.doc_id} {passage.start}-{passage.end}{place}, score {hit.score:.2f}"
        named = (f"[{rank}] ", "dim"), (printable(passage.title), "bold"), (printable(source), "dim")
        shown = Text(printable(passage.text if full else trim(passage.text)))
        parts += [Text.assemble(*named), _indent(shown)]
    return Group(*parts)


def _style_model_text(text: str) -> Text:
    """The model's text, with thoughts, tool calls and the answer in styles of their own."""
    shown = printable(text.strip())
    styled = Text(shown or "(wrote nothing)", "" if shown else "dim")
    for block in find_blocks(shown, tuple(_BLOCK_STYLES)):
        styled.stylize(_BLOCK_STYLES[block.name], block.start, block.end)
    return styled


def labelled(label: str, value: str, style: str) -> Text:
    """A dim label with its value; both are untrusted text."""
    # Not `Text(label, "dim") + ...`: the style of the first text would hold for all of the sum.
    return Text.assemble((f"{label}: ", "dim"), (printable(value), style))


def _indent(content: RenderableType) -> Padding:
    return Padding(content, (0, 0, 0, 2), expand=False)


# ---------------------------------------------------------------------------------------------- answers of `quaere ask`


def render_evidence(episode: Episode) -> Text:
    """The span and its place in the document; or the span as written, and that it was found nowhere."""
    span, found, passage = answers.find_span(episode)
    if not span:
        return Text.assemble(("Evidence: ", "dim"), ("it gave none\n", "yellow"), render_support(episode))
    if found is None or passage is None:
        lost = "\n  not found in anything it was shown"
        return Text.assemble(("Evidence: ", "dim"), (printable(span) + lost, "yellow"))
    number, where = answers.passage_number(episode, passage), answers.describe_place(found, passage)
    place = printable(f"\n  found verbatim in {number} {where}")
    return Text.assemble(("Evidence: ", "dim"), (printable(found.text), "green"), (place, "dim"))


def render_support(episode: Episode) -> Text:
    """The sentence shown that contains the answer, and the number of its passage as it was shown above.

    A sentence of a passage that has no word of the question proves nothing, and is not called the answer's source.
    Without an answer, the passages that were seen.
    """
    if not isinstance(episode.outcome, Answer):
        return _render_seen(episode)
    found = answers.find_support(episode)
    if not found:
        return Text("No sentence it was shown contains this answer", "yellow")
    sentence, passage = found
    place = printable(f"\n  {answers.passage_number(episode, passage)} {answers.describe_place(sentence, passage)}")
    if not answers.is_about_question(episode, passage):
        return Text.assemble((f"{answers.BY_CHANCE}: ", "yellow"), printable(sentence.text), (place, "dim"))
    return Text.assemble(("Found in: ", "dim"), (printable(sentence.text), "green"), (place, "dim"))


def render_doubt(episode: Episode, min_overlap: float) -> Text:
    """Why an answer does not count as found, and the passages that were seen; empty if it counts."""
    if not isinstance(episode.outcome, Answer) or answers.is_found(episode, min_overlap):
        return Text()
    doubt = f"Do not rely on it: {answers.say_unproven(episode)}\n", "yellow"
    return Text.assemble(doubt, _render_seen(episode), "\n")


def _render_seen(episode: Episode) -> Text:
    seen = [f"\n  {answers.passage_name(passage)}" for passage in shown_passages(episode)[:_MAX_SEEN]]
    return Text("Passages seen:" + printable("".join(seen)) if seen else "No passage was seen", "dim")


# -------------------------------------------------------------------------------------------------------------- reports


_LOST = "bold red"


def render_report(report: Report) -> Group:
    """The text with its citations, the sources they resolve to, and the unresolved ones."""
    parts: list[RenderableType] = [Text(), _render_text(report), Text()]
    for source in report.sources:
        passage = source.passage
        place = f"  {passage.doc_id} {passage.start}-{passage.end}"
        named = (f"[{source.number}] ", "cyan"), (printable(passage.title), "bold"), (printable(place), "dim")
        parts += [Text.assemble(*named), Padding(Text(printable(trim(passage.text))), (0, 0, 0, 4))]
    parts += [Text(), Text(count_line(report), "yellow" if report.unresolved else "bold")]
    if report.unresolved:
        numbers = ", ".join(f"[{number}]" for number in report.unresolved[:20])
        more = len(report.unresolved) - 20
        parts.append(Text(f"unresolved: {numbers}" + (f" and {more} more" if more > 0 else ""), _LOST))
    return Group(*parts)


def _render_text(report: Report) -> Text:
    known = {source.number for source in report.sources}
    shown = printable(report.text)
    styled = Text(shown)
    for cite in find_citations(shown):
        styled.stylize("cyan" if known.issuperset(cite.numbers) else _LOST, cite.start, cite.end)
    return styled


def report_row(report: Report) -> dict[str, Any]:
    """The report as a dictionary for `--json`."""
    names = ("doc_id", "title", "start", "end", "text")
    sources = [
        {"number": number, "passage": passage.id} | {name: getattr(passage, name) for name in names}
        for number, passage in ((source.number, source.passage) for source in report.sources)
    ]
    counted = {name: getattr(report, name) for name in ("conclusion", "citations", "unresolved", "resolved_share")}
    return {"report": report.text, "statements": to_builtins(report.statements), "sources": sources, **counted}


def episode_row(episode: Episode, stored: Run) -> dict[str, Any]:
    """What an episode did and where it is stored, as a dictionary for `--json`."""
    return {
        "end": episode.end,
        "searches": [result.query for turn in episode.turns for result in turn.results],
        "failures": [f"{turn.failure.boundary}: {turn.failure.message}" for turn in episode.turns if turn.failure],
        "run": str(stored.path),
        "episode": episode.id,
    }
