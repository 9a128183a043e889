"""The oracle's words when it writes, plans and judges reports. Slots are those of `words.py`, and further ones:

{Y}     a second thing that is asked about; {gap} something no document says, as a phrase
{d}     a dimension of a rubric; {r} the number of a report; {claim} what was looked up; {right} what it really is
{n}     a citation, brackets and all; {cite} the same with a space before it
"""

from __future__ import annotations

from quaere.chat.open_questions import OpenKind
from quaere.worlds.schema import lines

# ------------------------------------------------------------------------------------------------------------- reports

START = lines("""
    I [start|begin] with {X}.
    First I need what there is on {X}.
    [Let me|I will] [look up|search for] {X} first.
    What do the documents say of {X}?
    The question is about {X}, so I search for that.
    {X} is where to [begin|start].
""")

SECOND = lines("""
    [Now|Next] the other one, {X}.
    The question [names|asks about] {X} as well.
    I [also need|still need] {X}.
    That leaves {X} to be looked up.
""")

FOLLOW = lines("""
    {X} [came up|is named there]; [I follow that|I look that up].
    [Next|Now] [more on|something about] {X}, which is linked to it.
    The passages [name|mention] {X}. What is known there?
    {X} belongs to the picture too.
    A report should also say who or what {X} is.
""")

WRITE = lines("""
    [That is enough|I have enough] to write [it|the report] up.
    [I can write now|Now I write], and cite every passage by its number.
    I have facts on {X}; what is missing I will say.
    [Enough|No more searches are needed]. I put the facts in order.
    Now the report, with a number after every fact.
""")

GAPS = lines("""
    The documents do not tell {gap}.
    Nothing was found on {gap}.
    No passage says anything on {gap}.
    {gap} is not documented.
""")

# Slots: {A} and {B} are what {X} is linked with, as was found.
CONCLUDE_TWO_LINKS = lines("""
    {X} is above all tied to {A} and {B}{cite}.
    What stands out about {X} are the links with {A} and {B}{cite}.
    The record ties {X} to {A} and to {B}{cite}.
""")

CONCLUDE_LINK = lines("""
    What is best attested of {X} is the link with {A}{cite}.
    {X} is known above all through {A}{cite}.
""")

CONCLUDE_PAIR = lines("""
    {X} is tied to {A}, while {Y} is tied to {B}{cite}.
    What tells them apart is that {X} goes with {A} and {Y} with {B}{cite}.
""")

CONCLUDE_LITERAL = lines("""
    Little more is certain of {X} than this{cite}.
    The record on {X} is short{cite}.
""")

# ------------------------------------------------------------------------------------------------------------- rubrics

# What helps most to tell good reports on such a question from poor ones.
TELLING: dict[OpenKind, tuple[str, ...]] = {
    "overview": ("coverage", "citation", "depth"),
    "story": ("coherence", "depth", "coverage"),
    "open": ("uncertainty", "citation", "coverage"),
    "comparison": ("balance", "insight", "coverage"),
    "connection": ("insight", "citation", "depth"),
    "detail": ("depth", "citation", "instruction"),
}

CHOOSE = lines("""
    [These questions|Such questions] [turn on|stand or fall with] {d}.
    What separates the reports here is {d}.
    {d} should tell good reports from poor ones.
    I [give weight to|stress] {d}[.|, and keep the rest moderate.]
    Writers who aim for {d} should [agree|come to the same end].
""")

CHOOSE_ADVISED = lines("""
    I follow the advice and take {d}.
    {d} is asked for, so it goes in.
    [Taken as advised|As advised]: {d}. The rest fits the questions.
""")

# --------------------------------------------------------------------------------------------------------- assessments

CHECK_ALL = lines("""
    [First|To begin with], what do the documents [say|tell] about {X}?
    I check the main claims about {X} for all reports.
    All reports speak of {X}; I look that up.
    [Let me|I will] [look up|verify] {X} before I compare them.
""")

CHECK_ONE = lines("""
    Report {r} makes a claim about {claim}. I check it.
    Is report {r} right about {claim}?
    [Now|Next] I look into report {r}: {claim}.
    [Let me|I will] verify what report {r} says of {claim}.
""")

JUDGE = lines("""
    I have what I need to [score them|judge them].
    [That settles it|Enough was checked]. Now the scores.
    The claims are checked; [I write the assessment|now the assessment].
""")

# Texts of an assessment are short: there are up to eight of each.
HOLDS = lines("""
    The claims that were checked hold.
    [Checked|What was looked up]: it holds.
    Its claims agree with the documents.
""")
WRONG = lines("""
    Wrong: {claim} is {right}.
    The documents say {right} for {claim}.
""")
UNCONFIRMED = ("Not confirmed: {claim}.",)
MISCITED = lines("""
    {n} does not say what it is cited for.
    What cites {n} is not in that source.
""")
UNRESOLVED = ("{n} leads nowhere.",)
UNCITED = lines("""
    It cites nothing.
    No claim names its source.
""")
LACKS = lines("""
    Missing: {claim}.
    It leaves out {claim}.
""")
COMPLETE = lines("""
    Nothing important.
    None worth naming.
""")
