"""The oracle's phrases for writing and assessing reports and choosing rubrics. Slots are those of `phrases.py`, and:

{Y}     a second thing that is asked about; {gap} something no document says, as a phrase
{d}     a dimension of a rubric; {r} the number of a report; {claim} what was looked up; {right} what it really is
{n}     a citation, brackets and all; {cite} the same with a space before it
"""

from __future__ import annotations

from quaere.chat.question_wordings import OpenKind
from quaere.warmup.forms import load_forms

_FORMS = load_forms("reports")

# ------------------------------------------------------------------------------------------------------------- reports

START = _FORMS["start"]
SECOND = _FORMS["second"]
FOLLOW = _FORMS["follow"]
WRITE = _FORMS["write"]
GAPS = _FORMS["gaps"]

# Slots: {A} and {B} are what {X} is linked with, as was found.
CONCLUDE_TWO_LINKS = _FORMS["conclude_two_links"]
CONCLUDE_LINK = _FORMS["conclude_link"]
CONCLUDE_PAIR = _FORMS["conclude_pair"]
CONCLUDE_LITERAL = _FORMS["conclude_literal"]

# ------------------------------------------------------------------------------------------------------------- rubrics

# The dimensions that best separate good reports from poor ones, by kind of question.
TELLING: dict[OpenKind, tuple[str, ...]] = {
    "overview": ("coverage", "citation", "depth"),
    "story": ("coherence", "depth", "coverage"),
    "open": ("uncertainty", "citation", "coverage"),
    "comparison": ("balance", "insight", "coverage"),
    "connection": ("insight", "citation", "depth"),
    "detail": ("depth", "citation", "instruction"),
}

CHOOSE = _FORMS["choose"]
CHOOSE_ADVISED = _FORMS["choose_advised"]

# --------------------------------------------------------------------------------------------------------- assessments

CHECK_ALL = _FORMS["check_all"]
CHECK_ONE = _FORMS["check_one"]
JUDGE = _FORMS["judge"]

# The texts of an assessment are short, because there are up to eight of each.
HOLDS = _FORMS["holds"]
WRONG = _FORMS["wrong"]
UNCONFIRMED = ("Not confirmed: {claim}.",)
MISCITED = _FORMS["miscited"]
UNRESOLVED = ("{n} leads nowhere.",)
UNCITED = _FORMS["uncited"]
LACKS = _FORMS["lacks"]
COMPLETE = _FORMS["complete"]
