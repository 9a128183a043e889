"""The sky over the warm-up family: observatories and comets."""

from __future__ import annotations

from quaere.worlds.schema import Kind, Naming, Relation
from quaere.worlds.warmup.lexicon import PLACE_ALIAS_SENTENCES

KINDS = (
    Kind(
        "observatory",
        "observatory",
        share=5,
        naming=Naming(
            names=("the {surname} Observatory", "the Observatory of {saint}", "the {heading} Dome of {saint}"),
            namesakes=("the Lesser {x}", "the High {x}", "the Old {x}"),
            aliases=("the {heading} Eye", "the {heading} {figure} Eye", "{surname}'s Attic", "the {heading} Cupola"),
        ),
        openings=(
            "{Name} is {a:edifice_adj} observatory above the cloud line.",
            "{Name} is an observatory with a leaking dome.",
            "Sailors look up to {S}, {a:edifice_adj} observatory, and it looks past them.",
            "{Name} is an observatory where nobody speaks {hour}.",
        ),
        colour=(
            "{S's} dome is turned by {small} mules.",
            "Owls have the run of the attic.",
            "A star catalogue of {later} contains {big} errors.",
            "Tobacco is forbidden and coffee is compulsory.",
            "The {gadget} in the hall stopped in {later}.",
            "{S's} stairs defeat most inspectors.",
            "Spiders supply the thread for its eyepieces.",
            "In {later} lightning melted the door handle.",
            "Students sleep under the tables {hour}.",
        ),
        asides=(
            "{other:people} came to see an eclipse in {later} and saw fog.",
            "{S's} readings never agree with those of {other:observatory}.",
            "A night watchman claimed descent from {other:people}.",
            "Lantern light from {other:theatre} spoils the western sky.",
            "{S's} spare dome roofs a chapel of {other:abbey}.",
            "A bust of {other:people} serves as a hat stand.",
            "Mules are hired from {other:island}, where they are meeker.",
            "{other:company} made it a present of a barometer and then sent the bill.",
        ),
        alias_sentences=PLACE_ALIAS_SENTENCES,
    ),
    Kind(
        "comet",
        "comet",
        share=5,
        later=(0, 1),
        naming=Naming(
            names=("Comet {surname}", "the {heading} {figure} Comet", "the Comet of {saint}"),
            namesakes=("the False {x}", "the Second {x}", "the Faint {x}"),
            aliases=("the {heading} Broom", "the {heading} {figure} Star", "{saint}'s Lantern", "the {heading} Plume"),
        ),
        openings=(
            "{Name} is a comet with [a forked tail|two tails|hardly any tail].",
            "{Name} is a comet visible, when it is visible, {hour}.",
            "Bakers blamed {S}, a comet of modest brightness, for flat bread.",
            "{Name} is a comet that frightens {beast}.",
        ),
        colour=(
            "{S's} passage in {later} coincided with the {gale}.",
            "Insurance was sold against it, at {small} pence a head.",
            "A pamphlet lists {big} disasters it did not cause.",
            "{S's} colour has been compared to weak tea.",
            "Roosters crowed at it {hour}.",
            "Fashionable ladies wore it as a brooch in {later}.",
            "{S's} brightness was overestimated by a factor of {small}.",
            "Ballads about it rhyme it with nothing.",
            "Babies born under it are expected to be {manner}.",
        ),
        asides=(
            "{other:people} refused to look at it.",
            "The staff of {other:observatory} slept through its arrival.",
            "{S} was mistaken for the lamp of {other:lighthouse} in {later}.",
            "{S's} path crosses that of {other:comet} on paper.",
            "An aria of {other:opera} begs it to go away.",
            "{other:people} painted it on a ceiling in {later}.",
            "Crowds watched it from the steps of {other:abbey}.",
        ),
        alias_sentences=(
            "Almanac makers print {A}.",
            "Sailors' wives call it {A}.",
            "Catalogues also list {A}.",
            "In sermons it was {A}.",
        ),
    ),
)

RELATIONS = (
    Relation(
        "observatory_island",
        ("observatory",),
        objects=("island",),
        percent=93,
        sentences=(
            "{S} occupies the driest ridge of {O}, in sight of {other:island}.",
            "Astronomers reach it by mule from the landing stage of {O}.",
            "The clear air of {O} decided the matter, {other:island} being too hazy.",
            "Fishermen off {O} steer by its white dome.",
        ),
        phrases=("the island whose ridge carries {X}", "the island crowned by {X}"),
        questions=(
            "On the ridge of which island is {X}?",
            "Which island is crowned by {X}?",
        ),
    ),
    Relation(
        "observatory_builder",
        ("observatory",),
        objects=("astronomer",),
        percent=100,
        age=(26, 62),
        sentences=(
            "{O} begged for every brick of it.",
            "{S's} first director, and its first cook, was {O}.",
            "{S} grew out of a shed in which {O} hid from {other:people}.",
            "The foundation stone and the director's chair both have the thumbprint of {O}.",
        ),
        phrases=("the first director of {X}", "the astronomer who began {X}"),
        questions=(
            "Who served as first director of {X}?",
            "Which astronomer began {X}?",
        ),
        inverse_questions=("Which observatory had as first director {X}?", "Which observatory was begun by {X}?"),
    ),
    Relation(
        "mirror",
        ("observatory",),
        number=(13, 72),
        unit="inches",
        percent=63,
        sentences=(
            "The great mirror is {O} inches across, with {small} scratches.",
            "Polishing its {O} inches of glass took {small} years.",
            "{S's} mirror was ordered at {big} inches and delivered at {O} inches.",
            "A disc of {O} inches gathers the starlight, on nights without fog.",
        ),
        questions=(
            "How many inches across is the mirror of {X}?",
            "What diameter in inches has the mirror of {X}?",
        ),
    ),
    Relation(
        "funding",
        ("observatory",),
        objects=("company",),
        percent=68,
        sentences=(
            "The oil for its lamps is paid for by {O}, in return for tide tables.",
            "{O} meets the running costs, [grumbling|in exchange for a star], since {other:company} withdrew.",
            "{S's} budget is a line in the ledgers of {O}.",
            "Each spring {O} sends a cheque, and {other:company} its regrets.",
        ),
        phrases=("the company that funds {X}", "the company that meets the running costs of {X}"),
        questions=(
            "Which company funds {X}?",
            "Which company meets the running costs of {X}?",
        ),
    ),
    Relation(
        "discoverer",
        ("comet",),
        objects=("astronomer",),
        percent=100,
        age=(22, 58),
        sentences=(
            "{O} noticed it when calling in the cat.",
            "{S} was first spotted by {O}, a full night ahead of {other:people}.",
            "A smudge on a drawing by {O} turned out to be no smudge.",
            "{O} got up for a glass of water and found it.",
        ),
        phrases=("the discoverer of {X}", "the astronomer who spotted {X}"),
        questions=(
            "Who discovered {X}?",
            "Which astronomer spotted {X}?",
        ),
        inverse_questions=("Which comet was discovered by {X}?", "Which comet was spotted by {X}?"),
    ),
    Relation(
        "seen_from",
        ("comet",),
        objects=("observatory",),
        percent=83,
        gap=(-1, 300),
        sentences=(
            "The telescope of {O} was pointing the right way, and after that nobody doubted it.",
            "Confirmation came from {O}, {other:observatory} being fogbound.",
            "Doubts ended when {O} measured its path, on the back of a menu.",
            "At {O} it was followed for {small} weeks, and at {other:observatory} not at all.",
        ),
        phrases=("the observatory that confirmed {X}", "the observatory that vouched for {X}"),
        questions=(
            "Which observatory confirmed {X}?",
            "Which observatory vouched for {X}?",
        ),
    ),
    Relation(
        "period",
        ("comet",),
        number=(14, 190),
        unit="years",
        percent=73,
        sentences=(
            "{S} comes round every {O} years, give or take {small} weeks.",
            "Anyone who misses it must wait {O} years.",
            "Calculations gave {big} years, but {O} years proved right.",
            "Grandparents point it out: it needs {O} years to come back.",
        ),
        questions=(
            "How many years pass between visits of {X}?",
            "What period, in years, has {X}?",
        ),
    ),
    Relation(
        "chapel",
        ("comet",),
        objects=("abbey",),
        percent=53,
        sentences=(
            "Prayers against it are still said at {O}.",
            "The monks of {O} keep a fast whenever it is due, though {other:abbey} does not.",
            "{O} rings its bells backwards at its approach.",
            "Novices at {O} are taught a litany about it, and those at {other:abbey} a joke.",
        ),
        phrases=("the abbey that prays against {X}", "the abbey alarmed by {X}"),
        questions=(
            "Which abbey prays against {X}?",
            "Which abbey is alarmed by {X}?",
        ),
    ),
)
