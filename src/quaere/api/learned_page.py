"""The page of what `quaere learn` did: one HTML file that needs no other file, no script and no network.

    write_page(learned, Path("agent-of-notes/report.html"))

No text of a document or a model can become markup: the template (`templates/learned.html.j2`) escapes every value, and
the content security policy allows nothing but the page's own style sheet, by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import shlex
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from quaere import __version__
from quaere.api.learned import Learned, compare_shares
from quaere.api.printing import as_json, between, count, format_duration
from quaere.chat.terminal_text import printable
from quaere.disk import write_file
from quaere.evaluation.qa.scores import Evaluation


def write_page(learned: Learned, path: Path) -> None:
    """Write the page of a `Learned` to `path`, replacing an existing one atomically."""
    environment = _environment()
    style = "".join(environment.get_template(name).render() for name in ("glance.css", "learned.css"))
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    page = environment.get_template("learned.html.j2").render(
        data=learned,
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
        rows=compare_shares(learned.before, learned.after),
        num_lost=_count_lost(learned.before, learned.after),
        num_practised=_count_lines(learned.out / "practice.jsonl"),
        total_s=sum(learned.seconds.values()),
        exported=_say_exported(learned),
        commands=_commands(learned),
        plan=as_json(learned.plan),
    )
    write_file(path, page)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("quaere.api"),
        autoescape=True,
        undefined=StrictUndefined,
        # What a macro returns is no plain str.
        finalize=lambda value: printable(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals |= {"version": __version__, "count": count, "between": between}
    made.filters |= {"duration": format_duration}
    return made


def _count_lost(before: Evaluation, after: Evaluation) -> int:
    """Number of questions that were answered right before and are answered wrong after."""
    wrong = {one.id for one in after.questions if one.answerable and not one.exact_match}
    return sum(one.id in wrong for one in before.questions if one.exact_match)


def _count_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def _say_exported(learned: Learned) -> str:
    if learned.update:
        return f"the agent is the {'new' if learned.is_trained else 'old'} one"
    return "the trained model was exported anyway" if learned.is_trained else "the start was exported"


def _commands(learned: Learned) -> dict[str, str]:
    """What to type next, by what it is for."""
    places = (learned.index, learned.agent, learned.out / "run", learned.out / "merged")
    index, agent, run, merged = (shlex.quote(str(place)) for place in places)
    use = {
        "Ask it": f"quaere ask 'YOUR QUESTION' --index {index} --model {agent}",
        "Serve it, to clients of OpenAI's interface": f"quaere serve --index {index} --model {agent}",
    }
    if learned.update and not (learned.out / "run").exists():
        return use  # there was nothing new to practise on
    use["Read how it was trained, episode by episode"] = f"quaere view {run} --open"
    if learned.is_trained:
        use["Take the trained model elsewhere, in one folder"] = f"quaere export {run} --merge --out {merged}"
    return use
