"""The towns of the evaluation family."""

from __future__ import annotations

from quaere.worlds.evaluation.lexicon import PLACE_ALIAS_SENTENCES
from quaere.worlds.schema import Kind, Naming, Relation

KINDS = (
    Kind(
        "town",
        "town",
        share=13,
        years=(680, 1060),
        timeless=True,
        later=(420, 560),
        naming=Naming(
            names=("{town}",),
            namesakes=("{x}-on-{town_river}", "{x}-on-{town_river}", "Upper {x}", "Nether {x}", "{x} Cross", "Old {x}"),
            aliases=("{old_town}", "{old_town}", "{town}"),
        ),
        openings=(
            "{Name} is {a:place_adj} town of {view}.",
            "{Name} is {a:place_adj} town, best reached on foot and in dry weather.",
            "Travellers who come upon {S} for the first time usually remark on its {view}.",
            "{Name} is a town of {big} chimneys, as its children are taught to count.",
            "There is little to hurry for in {S}, {a:place_adj} town that wakes late and shuts early.",
            "{Name} is {a:place_adj} town with [a high|a low|a settled|an old-fashioned] opinion of itself.",
        ),
        colour=(
            "The {bird} that nest under its eaves are counted every {season}.",
            "After the [flood|mudslide|long rain] of {later} the lower streets had to be raised by {small} steps.",
            "{S's} {good} and {good} are sold as far as the coast.",
            "The lanes were paved in {later}, all but one.",
            "No house may be painted {colour}, under a rule that nobody can explain.",
            "The night watch was abolished in {later} and quietly restored a year afterwards.",
            "In {season} the whole place smells of {good}.",
            "The well in the square is {big} feet deep and seldom dry.",
            "A wall once ran all the way round, of which {small} gates remain.",
            "Strangers are told about {oddity} kept behind the baker's, and are rarely allowed to see it.",
            "The almshouses date from {later} and hold {small} widows.",
            "{S's} bells are rung {times} at dusk.",
        ),
        asides=(
            "A carrier leaves for {other:town} every other morning, weather permitting.",
            "The inn keeps a chair in which {other:people} is supposed to have slept.",
            "{S's} football players have not beaten those of {other:town} since {later}.",
            "A torn page of {other:book} is framed in the council room.",
            "{other:people} passed through in {later} and complained about the beds.",
            "Children skip to a rhyme about {other:people} and {other:people}, neither of whom ever lived there.",
            "Wagons bound for {other:valley} stop here to change horses.",
            "In dry years drinking water is carted from {other:river}.",
            "A rumour that {other:ship} lies buried under the marketplace has never been tested.",
        ),
        alias_sentences=PLACE_ALIAS_SENTENCES,
    ),
)

RELATIONS = (
    Relation(
        "town_river",
        ("town",),
        objects=("river",),
        percent=93,
        sentences=(
            "{O} divides the town in two, and floods the poorer half.",
            "{S's} quays are on {O}, although the older maps draw {other:river} in its place.",
            "The water that turns its mills is that of {O}.",
            "From the square, steps go down to {O}, where boats from {other:town} tie up.",
            "Every street ends, sooner or later, at {O}, while {other:river} is half a day's ride away.",
            "{S} owes nothing to {other:river}, and its damp cellars to {O}, which runs under half of them.",
        ),
        phrases=(
            "the river that flows through {X}",
            "the river that passes {X}",
            "the river on which {X} stands",
        ),
        questions=(
            "Which river flows through {X}?",
            "On which river does {X} stand?",
            "What river runs through {X}?",
        ),
    ),
    Relation(
        "town_hall",
        ("town",),
        objects=("mason",),
        percent=73,
        sentences=(
            "The council meets in a tall hall put up by {O}.",
            "The town hall, with {small} windows and no two alike, is the work of {O}.",
            "When the old council house burned, {O} was paid to raise a new one, to the disgust of {other:people}.",
            "The hall on the square was drawn and built by {O}, after plans by {other:people} had been laughed at.",
            "{O} gave the place its town hall and was never paid in full.",
        ),
        phrases=(
            "the mason who built the town hall of {X}",
            "the builder of the town hall of {X}",
            "the person who put up the town hall in {X}",
        ),
        questions=(
            "Who built the town hall of {X}?",
            "Which mason is responsible for the town hall of {X}?",
            "Who was the builder of the town hall in {X}?",
        ),
        inverse_questions=(
            "Which town has a town hall built by {X}?",
            "Which town owes its town hall to {X}?",
        ),
    ),
    Relation(
        "charter",
        ("town",),
        objects=("town",),
        percent=63,
        gap=(8, 400),
        sentences=(
            "{S's} charter was copied word for word from that of {O}, spelling mistakes included.",
            "When privileges were granted, the clerk simply borrowed the text used for {O}.",
            "{S's} laws are those of {O}, with the name scratched out, and never were those of {other:town}.",
            "The founding document repeats the one issued to {O}, down to the date of the pig market.",
            "Anyone who has read the privileges of {O} has read its own.",
        ),
        phrases=(
            "the town whose charter was copied by {X}",
            "the town that supplied the charter of {X}",
            "the older town that lent its charter to {X}",
        ),
        questions=(
            "From which town was the charter of {X} copied?",
            "Which town supplied the model for the charter of {X}?",
            "Which older town lent its charter to {X}?",
        ),
    ),
    Relation(
        "market_day",
        ("town",),
        words="weekday",
        percent=68,
        sentences=(
            "Stalls go up every {O}, and the cattle sales that used to follow on {weekday} have been given up.",
            "On {O} the square belongs to the hens, on {weekday} to the sweepers.",
            "Farmers come in on {O}; on {weekday} they stay at home and count.",
            "The weekly market is a {O} affair, moved there from {weekday} in {later}.",
        ),
        questions=(
            "On which day of the week is the market held in {X}?",
            "What is the market day of {X}?",
            "Which weekday is market day in {X}?",
        ),
    ),
    Relation(
        "households",
        ("town",),
        number=(140, 990),
        unit="households",
        percent=58,
        sentences=(
            "The last count found {O} households and {small} empty ones.",
            "Smoke rises from {O} family hearths, not counting the {small} of the almshouses.",
            "Window tax is due from {O} front doors, one to a family, [and {big} panes are blind|after much knocking].",
            "{S} is made up of {O} households, {small} of which claim to be the oldest.",
        ),
        questions=(
            "How many households are there in {X}?",
            "What is the number of households in {X}?",
            "How many households make up {X}?",
        ),
    ),
)
