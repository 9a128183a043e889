"""Renders candidates for the terminal. Pure functions: items in, rich renderables out.

Console().print(render_item(item, {"format/total": 0.5}, document_text, "", Path("runs/evolve-1")))

Questions, spans and notes are untrusted text: `episode_view` says why all of them pass through `printable` and `Text`.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from quaere.api.printing import cells, command_line, count, plain_table
from quaere.cli.episode_view import labelled, trim
from quaere.cli.terminal import printable
from quaere.records import Candidate, Evidence
from quaere.runs.review import EVERY_ITERATION, Item, Verdict

_CONTEXT_CHARS = 240
_ID_WIDTH = 24  # longer ids are continued on the next line
_STATE_STYLES = {"verbatim": "green", "mismatch": "bold red", "unchecked": "yellow"}
_VERDICT_STYLES = {"accepted": "green", "rejected": "red", "flagged": "yellow"}


def render_items(
    page: Sequence[Item], found: Sequence[Item], offset: int, path: Path, said: str, num_lost: int
) -> Group:
    """A page of the list of the run at `path`, and its totals.

    `num_lost` is the number of verdicts on candidates that no longer exist.
    """
    with_value = any(item.candidate.support for item in page)
    with_evidence = any(item.candidate.evidence for item in page)
    extra = ("V",) * with_value + ("evidence",) * with_evidence
    heads = ("id", "it", "hops", "searches", "state", "verdict", "votes", *extra, "question")
    table = plain_table(*heads, right=("it", "hops", "searches", "V"))
    # The id is what the user types next, so it is not shortened to make room for other columns.
    table.columns[0].min_width = min(_ID_WIDTH, max((len(item.candidate.id) for item in page), default=0))
    for item in page:
        candidate, support = item.candidate, item.candidate.support
        value = (f"{support.value:+.2f}" if support else "",) * with_value
        evidence = (item.evidence_state,) * with_evidence
        hops = str(candidate.hops) if candidate.episode_id else ""
        iteration = "all" if candidate.iteration == EVERY_ITERATION else str(candidate.iteration)
        verdict = item.verdict.kind if item.verdict else "(outdated)" if item.outdated else ""
        words = (candidate.id, iteration, hops, str(candidate.facts or ""), item.state, verdict, _votes(candidate))
        table.add_row(*cells(*words, *value, *evidence, trim(candidate.question, 100)))
    lines = [Text(_count_line(page, found, offset), "dim")]
    num_wrong = sum(item.evidence_state == "mismatch" for item in page)
    num_outdated = sum(item.outdated is not None for item in found) + num_lost
    show = f"quaere curriculum {shlex.quote(str(path))} show ID"
    wrong = f"{num_wrong} with evidence that is not in its document: {show}"
    outdated = f"{count(num_outdated, 'verdict')} on questions that were written anew since: not honoured"
    lines += [command_line(wrong, "red")] if num_wrong else []
    lines += [Text(outdated, "yellow")] if num_outdated else []
    lines += [Text(printable(said), "yellow")] if said else []
    lines.append(command_line(f"  {show}"))
    return Group(*([table] if page else []), *lines)


def render_item(item: Item, paid: Mapping[str, float], document: str, said: str, path: Path) -> Group:
    """A candidate of the run at `path`. `paid` are its episode's metrics; `document` is the text its evidence is in."""
    candidate = item.candidate
    iteration = "every iteration" if candidate.iteration == EVERY_ITERATION else f"iteration {candidate.iteration}"
    written = f"iteration {candidate.iteration}, step {candidate.step}, {count(candidate.hops, 'hop')}"
    needed = f"needs {count(candidate.facts, 'search')}" if candidate.facts else "searches needed unknown"
    cluster = f"cluster {candidate.cluster}" if candidate.cluster >= 0 else ""
    known = (f"for {iteration}" if candidate.added else written, needed, candidate.question_type, cluster)
    place = ", ".join(filter(None, known))
    parts: list[RenderableType] = [
        Text.assemble((printable(candidate.id), "bold"), (printable(f"  {place}"), "dim")),
        labelled("question", candidate.question or "none", "bold"),
        labelled("answer", " or ".join(candidate.answers) or "none", "bold green"),
        labelled("document", candidate.document_id or "none", ""),
        *_evidence_lines(item, document),
    ]
    parts += [Text(printable(f"  {said}"), "yellow")] if said else []
    if support := candidate.support:
        how = f"of {support.num_samples} samples each" if support.num_samples else "computed"
        shown = f"p+ {support.chance_with:.3f}, p- {support.chance_without:.3f}, V {support.value:+.3f} ({how})"
        parts.append(labelled("support", shown, ""))
    parts.append(labelled("votes", _votes(candidate) or "the solver was not asked", ""))
    for label, numbers in (("scores", candidate.scores), ("paid", paid)):
        if numbers:
            parts.append(labelled(label, ", ".join(f"{key} {value:.4g}" for key, value in numbers.items()), ""))
    shown = f"  quaere runs show {shlex.quote(str(path))} {candidate.episode_id}"
    more = [command_line(shown)] if candidate.episode_id else []
    return Group(*parts, *_decision_lines(item), *more)


# ------------------------------------------------------------------------------------------------------------- details


def _evidence_lines(item: Item, document: str) -> list[RenderableType]:
    candidate, evidence = item.candidate, item.candidate.evidence
    if evidence is None:
        if not candidate.episode_id and candidate.span:
            return [labelled("evidence", f"as it was given, not checked: {candidate.span}", "yellow")]
        told = f"found in nothing it was shown: {candidate.span}" if candidate.span else "none"
        return [labelled("evidence", told, "yellow" if candidate.span else "dim")]
    where = f"{evidence.doc_id} {evidence.start}-{evidence.end}, "
    state = item.evidence_state, _STATE_STYLES[item.evidence_state]
    lines: list[RenderableType] = [Text.assemble(("evidence: ", "dim"), printable(where), state)]
    if item.problem:
        lines.append(Text(printable(f"  {item.problem}"), "bold red"))
    context = _context(evidence, document) if document else Text(printable(evidence.text), "reverse")
    lines.append(Padding(context, (0, 0, 0, 2), expand=False))
    if candidate.span and candidate.span != evidence.text:
        lines.append(labelled("as written", candidate.span, "dim"))
    return lines


def _context(evidence: Evidence, document: str) -> Text:
    """The span with the text around it, marked by characters that survive a pipe."""
    first, last = max(0, evidence.start - _CONTEXT_CHARS), min(len(document), evidence.end + _CONTEXT_CHARS)
    before, after = document[first : evidence.start], document[evidence.end : last]
    return Text.assemble(
        ("… " * (first > 0) + printable(before), "dim"),
        (f"»{printable(document[evidence.start : evidence.end])}«", "bold reverse"),
        (printable(after) + " …" * (last < len(document)), "dim"),
    )


def _decision_lines(item: Item) -> list[Text]:
    candidate = item.candidate
    lines = [labelled("the run", "kept it" if candidate.kept else f"dropped it: {candidate.reason}", "")]
    if candidate.added:
        lines = [labelled("added", f"{_minute(item.added_time)}, from {item.origin or 'nowhere in particular'}", "")]
    if candidate.refusals:
        lines.append(labelled("refused by", ", ".join(candidate.refusals), "yellow"))
    if item.verdict:
        lines.append(labelled("verdict", _told(item.verdict), _VERDICT_STYLES[item.verdict.kind]))
    if item.outdated:
        told = f"{_told(item.outdated)}; given on another question of this id, not honoured: {item.outdated.question}"
        lines.append(labelled("verdict", told, "yellow"))
    lines.append(labelled("the solver", "learns from it" if item.learned else "does not learn from it", ""))
    return lines


def _told(verdict: Verdict) -> str:
    note = f": {verdict.note}" if verdict.note else ""
    return f"{verdict.kind} {_minute(verdict.time)}{note}"


def _minute(time: str) -> str:
    return time[:16].replace("T", " ")


def _votes(candidate: Candidate) -> str:
    return f"{candidate.num_right}/{candidate.num_attempts}" if candidate.num_attempts else ""


def _count_line(page: Sequence[Item], found: Sequence[Item], offset: int) -> str:
    num_learned = sum(item.learned for item in found)
    total = f"{count(len(found), 'candidate')}, the solver learns from {num_learned}"
    if len(page) == len(found):
        return total
    shown = f"{offset + 1} to {offset + len(page)} shown" if page else "none shown"
    more = f"; --offset {offset + len(page)} goes on" if page and offset + len(page) < len(found) else ""
    return f"{total}; {shown}{more}"
