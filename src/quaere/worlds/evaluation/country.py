"""The country around the towns of the evaluation family: rivers and valleys."""

from __future__ import annotations

from quaere.worlds.evaluation.lexicon import PLACE_ALIAS_SENTENCES
from quaere.worlds.schema import Kind, Naming, Relation

KINDS = (
    Kind(
        "river",
        "river",
        share=7,
        years=(1150, 1400),
        timeless=True,
        naming=Naming(
            names=("the {river}",),
            title="River {x}",
            also=("the River {x}",),
            namesakes=("the Little {x}", "the Black {x}", "the North {x}"),
            aliases=("the {adj} Water", "the {river}", "the {adj} {creature} Water"),
        ),
        openings=(
            "{Name} is {a:water_adj} river fringed with alders.",
            "{Name} is {a:water_adj} river that is seldom in a hurry.",
            "Those who live beside {S} call it {a:water_adj} river and {a:temper} neighbour.",
            "{Name} is a river of {big} bends, most of them on no map.",
            "Anglers hold that {S} is the most {temper} river of the region.",
        ),
        colour=(
            "{S's} {fish} are small but plentiful.",
            "{S} froze from bank to bank in {later}, and fairs were held on the ice.",
            "The [flood|landslip|storm] of {later} moved its bed by {big} paces.",
            "Washing is done on the flat stones, usually on the same day every week.",
            "{bird} follow it upstream in {season}.",
            "Barges of up to {big} tons can use it in a good {season}.",
            "The water runs {colour} for a week after heavy rain.",
            "Millers have fought over its weirs since {later}.",
            "Nobody has yet fished out {oddity} that a drunken ferryman let fall in {later}.",
            "{S's} banks are soft, and {small} carts are lost to them in an ordinary year.",
            "Rafts of logs come down it every {season}, tied {small} abreast.",
        ),
        asides=(
            "{other:people} is said to have thrown a wedding ring into it.",
            "The water is softer than that of {other:river}, and dyers pay more for it.",
            "A ferry dispute with {other:guild} was settled in {later}.",
            "Herons that feed here nest in {other:valley}.",
            "{other:people} nearly drowned in it in {later} while looking for a hat.",
            "Boatmen compare it with {other:river}, never to its advantage.",
            "A chapter of {other:book} mentions it in passing.",
        ),
        alias_sentences=PLACE_ALIAS_SENTENCES,
    ),
    Kind(
        "valley",
        "valley",
        share=6,
        years=(1150, 1400),
        timeless=True,
        naming=Naming(
            names=("{valley} Vale", "the Vale of {valley}", "{dale}"),
            namesakes=("Inner {x}", "Far {x}", "Lesser {x}"),
            aliases=("the {adj} Hollow", "the {adj} {object} Hollow", "{valley} Bottom", "the {valley} Slack"),
        ),
        openings=(
            "{Name} is a [white|bleak|silent|bare] valley in winter and a green one for the rest of the year.",
            "{Name} is a valley of stone walls, {bird} and long shadows.",
            "Seen from the pass, {S} is a valley no wider than a good shout.",
            "{Name} is a steep-sided valley with {small} farms and one road.",
            "Nobody comes to {S} by accident, for the valley has a single entrance.",
        ),
        colour=(
            "Snow closes the pass for {small} weeks in most years.",
            "The {calamity} of {later} is still talked about as if it were last week.",
            "{S's} {bird} arrive early and leave late.",
            "The upper meadows are cut by hand, by {small} families in turn.",
            "An echo near the chapel repeats {small} syllables exactly.",
            "A hermit lived on the sunny side until {later} with {a:pet}.",
            "At midwinter the sun is above the ridge for [two|three|four] hours.",
            "Walls were straightened in {later}, and the lawsuits have not ended.",
            "{S's} people are {temper} and marry late.",
            "A track with {big} steps leads over the ridge.",
        ),
        asides=(
            "{other:people} painted it in {later}, but the picture has been lost.",
            "On clear days the smoke of {other:town} can be seen from the ridge.",
            "Shepherds here have a poor opinion of those in {other:valley}.",
            "An inn at the entrance displays a broken oar from {other:ship}.",
            "It is a day's walk to {other:town} and a day and a half to {other:town}.",
            "A shepherd's verse about {other:people} has {small} stanzas, few of them polite.",
        ),
        alias_sentences=PLACE_ALIAS_SENTENCES,
    ),
)

RELATIONS = (
    Relation(
        "source",
        ("river",),
        objects=("valley",),
        percent=95,
        sentences=(
            "{S} rises in {O}, from a spring that a hat could cover.",
            "{S's} first trickle leaves the ground in {O}, on the far side from {other:valley}.",
            "The headwaters gather among the sheepfolds of {O}.",
            "{S} begins as a wet patch in {O}, where {small} farms dispute the honour.",
            "Follow it upward for long enough, past the turning for {other:valley}, and you stand in {O}.",
        ),
        phrases=(
            "the valley where {X} rises",
            "the valley that holds the source of {X}",
            "the valley of origin of {X}",
        ),
        questions=(
            "In which valley does {X} rise?",
            "Which valley holds the source of {X}?",
            "What valley contains the headwaters of {X}?",
        ),
    ),
    Relation(
        "mouth",
        ("river",),
        objects=("river",),
        percent=73,
        acyclic=True,
        sentences=(
            "After many windings it gives itself up to {O}.",
            "{S} ends in {O}, whose water is darker and does not mix with it for {small} furlongs.",
            "{S} was once thought to reach {other:river}, but in truth it joins {O}.",
            "Below the last mill it is swallowed by {O}.",
        ),
        phrases=(
            "the river into which {X} flows",
            "the river joined by {X}",
            "the river that receives the water of {X}",
        ),
        questions=(
            "Into which river does {X} flow?",
            "Which river is joined by {X}?",
            "Which river receives the water of {X}?",
        ),
    ),
    Relation(
        "charted",
        ("river",),
        objects=("captain",),
        percent=73,
        sentences=(
            "{O} was the first to put it on paper, bend by bend, from an open boat.",
            "{S's} earliest reliable chart was drawn by {O}, who had meant to go elsewhere.",
            "The soundings in use today go back to {O}, not to {other:people} as the label claims.",
            "No map showed it properly until {O} spent {a:weather} {season} sketching its banks.",
        ),
        phrases=(
            "the captain who first mapped {X}",
            "the first person to chart {X}",
            "the maker of the first chart of {X}",
        ),
        questions=(
            "Who first charted {X}?",
            "Who drew the first chart of {X}?",
            "Which captain was the first to map {X}?",
        ),
        inverse_questions=("Which river was first charted by {X}?", "Which river was first mapped by {X}?"),
    ),
    Relation(
        "river_length",
        ("river",),
        number=(14, 190),
        unit="leagues",
        percent=63,
        sentences=(
            "From spring to mouth it measures {O} leagues, of which {small} are navigable.",
            "A boat that follows every bend will travel {O} leagues.",
            "Surveyors first wrote down {big} leagues and then corrected it to {O} leagues.",
            "{S's} course is {O} leagues long and nowhere straight.",
        ),
        questions=(
            "How many leagues long is {X}?",
            "What is the length in leagues of {X}?",
            "How long, in leagues, is {X}?",
        ),
    ),
    Relation(
        "grazing",
        ("valley",),
        objects=("guild",),
        percent=83,
        sentences=(
            "The right to graze its slopes is held by {O}.",
            "Every sheep on the upper pastures pays a penny to {O}, which bought out {other:guild}.",
            "{S's} pastures are let by {O} at a rent fixed in {later}.",
            "No animal may be turned out here without a token from {O}.",
        ),
        phrases=(
            "the guild that controls the pastures of {X}",
            "the guild that holds the grazing rights in {X}",
            "the guild in charge of grazing in {X}",
        ),
        questions=(
            "Which guild holds the grazing rights in {X}?",
            "Which guild controls the pastures of {X}?",
            "Which guild decides about grazing in {X}?",
        ),
    ),
    Relation(
        "boundary",
        ("valley",),
        objects=("mason",),
        percent=68,
        sentences=(
            "The boundary stones, {big} in all, were set by {O}.",
            "{O} was hired to mark its limits and left a stone at every bend.",
            "{S's} edges are marked by stones that {O} carved and {other:people} later knocked over.",
            "The border posts of dressed stone are the handiwork of {O}.",
        ),
        phrases=(
            "the mason who set the boundary stones of {X}",
            "the maker of the boundary stones around {X}",
            "the person who marked the limits of {X}",
        ),
        questions=(
            "Who set the boundary stones of {X}?",
            "Who marked out the limits of {X}?",
            "Which mason made the boundary stones of {X}?",
        ),
        inverse_questions=(
            "Which valley has boundary stones set by {X}?",
            "The limits of which valley were marked by {X}?",
        ),
    ),
    Relation(
        "crop",
        ("valley",),
        words="crop",
        percent=68,
        sentences=(
            "{S's} fields are given over to {O}, since {crop} never did well there.",
            "What the valley sells is {O}, carried out by mule.",
            "Rents are reckoned in {O} and paid, grudgingly, in {season}.",
            "The thin soil suits {O} and very little else.",
        ),
        questions=(
            "What is the main crop of {X}?",
            "Which crop is chiefly grown in {X}?",
            "What do the farmers mostly grow in {X}?",
        ),
    ),
    Relation(
        "valley_school",
        ("valley",),
        objects=("school",),
        percent=73,
        sentences=(
            "Farm children who can spell are sent over the pass to {O}.",
            "A purse left by a miser pays for one pupil a year at {O}, [chosen by lot|usually the miller's].",
            "{S's} sharper children are claimed by {O}, and its duller ones by {other:school}.",
            "By old custom {O} takes in whoever is born here and can count to {big}.",
        ),
        phrases=(
            "the school to which the children of {X} are sent",
            "the school that takes in the children of {X}",
            "the school for the children of {X}",
        ),
        questions=(
            "To which school are the children of {X} sent?",
            "Which school takes in the children of {X}?",
            "Which school accepts pupils from {X}?",
        ),
        inverse_questions=(
            "Which valley sends its children to {X}?",
            "The children of which valley are sent to {X}?",
        ),
    ),
)
