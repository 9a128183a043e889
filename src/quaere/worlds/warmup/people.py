"""The people of the warm-up family: six callings that share their relations and most of their prose."""

from __future__ import annotations

from quaere.worlds.schema import SAME, Kind, Naming, Relation

PEOPLE = ("composer", "engineer", "sculptor", "gardener", "merchant", "astronomer")

_NAMING = Naming(
    names=("{given} {surname}",),
    namesakes=("{x} {style}",),
    both_renamed=True,
    aliases=("{given} {surname}", "{heading} {given}", "the {heading} {figure}", "{given} the {heading}"),
)

_OPENINGS = (
    "{Name} was {a:manner} {noun}, much discussed in {crowd}.",
    "{Name} ranks with the best-known {noun}s of the archipelago.",
    "Posterity has been [kind|unkind|indifferent] to {S}, {a:manner} {noun}.",
    "{Name} was {a:noun} by vocation and {a:manner} host by inclination.",
    "No history of the islands leaves out {S}, {a:manner} {noun}.",
    "{Name} was {a:manner} {noun} with a weakness for {weekend}.",
    "Biographers have found {S} a difficult subject: {a:noun}, {manner} in public and {manner} at home.",
    "Whoever met the {noun} {S} remembered [the voice|the silences|the handshake|the laughter].",
)

_ALIAS_SENTENCES = (
    "Playbills and passports alike give {A}.",
    "A stage name, {A}, stuck.",
    "The press preferred to write {A}.",
    "To [children|creditors|servants] {he} was {A}.",
    "Many sources use {A} and mean nobody else.",
)

_COLOUR = (
    "{S} suffered from {ailment} and treated it with [sea bathing|mustard baths|bad temper].",
    "Leisure was given to {hobby}.",
    "{S} fought {small} duels and apologised after every one.",
    "A diary of {big} pages breaks off in {later}, mid-sentence.",
    "{S} insured {his} hands in {later} for {big} ducats.",
    "Dinner guests were sent home {hour}, fed or not.",
    "{S} spoke {small} languages, [with a single accent|mostly to parrots].",
    "A lottery ticket bought in {later} won {him} {gift}.",
    "{S} believed firmly in {rumour} and dug for it.",
    "Portraits make {him} taller than {he} was.",
    "{S} attended {weekend} without ever enjoying one.",
    "The {gale} of {later} destroyed {his} library.",
    "From {later} onward {he} wore spectacles, and denied it.",
    "{S} was expelled from {small} clubs, [once for snoring|twice by mistake].",
    "Rivals called {him} {manner}; admirers preferred {manner}.",
    "{S} tipped lavishly and paid tailors late.",
    "Sea air disagreed with {him}, a misfortune on any island.",
    "{S} proposed marriage {times}, [always by letter|never on land].",
    "An inventory of {later} mentions {big} neckties.",
    "Parrots repeated {his} jokes for years.",
    "{S} measured everything, including soup.",
    "Thunder sent {him} under the nearest [table|bed|piano].",
    "{S} bought {gift} in {later} and spent a year explaining why.",
    "On {his} desk stood {a:gadget} that told neither time nor weather.",
    "{S} counted {small} godchildren and remembered the names of few.",
    "{a:relative} left {him} {big} ducats on condition that {he} gave up {hobby}.",
    "No cook stayed with {him} past {later}.",
    "{S} kept the shutters closed {hour}, for fear of [drafts|gossip|wasps].",
    "The doctors disagreed about {his} {ailment} as they did about the bill.",
)

_ASIDES = (
    "A ferry to {other:island} carried {him} [away for {small} months|off by mistake] in {later}.",
    "{S} sent {gift} to {other:people}, who pawned it.",
    "Correspondence with {other:people} ran to {big} letters, [mostly about money|chiefly in verse].",
    "{S} slept through {other:opera} on {small} occasions.",
    "A caricature of {him} beside {other:people} sold well in {later}.",
    "{S} dined often with {other:people} and never with {other:people}.",
    "In {later} the cellar of {other:theatre} flooded with {him} inside it.",
    "{S} climbed to the lamp of {other:lighthouse} on a bet.",
    "Monks of {other:abbey} once sheltered {him} from a creditor.",
    "{S} was [godparent|guardian|bad example] to the twins of {other:people}.",
    "Shares in {other:mine} ruined {him} briefly in {later}.",
    "{S} [admired|abused|saluted] {other:statue} so loudly that a guard was called.",
    "A picnic in {other:garden} in {later} ended [with wasps|in court|before the soup].",
    "{S} predicted the return of {other:comet} and was off by {small} years.",
    "{S} met {other:people} on the quay of {other:island} and mistook the hat for a bird.",
    "Lessons in [fencing|diction|chess] were taken from {other:people}, without result.",
    "A chance remark by {other:people} kept {him} awake for {small} nights in {later}.",
    "{S} owed {other:newspaper} an apology and never made it.",
    "An uncle of {other:people} boasted of having taught {him} whist.",
    "{S} carried a pebble from {other:island} in the left pocket.",
    "Crossing to {other:island} in {later}, {he} was sick on the shoes of {other:people}.",
    "{S} left {other:people} {big} ducats and {other:people} a riddle.",
    "The bells of {other:abbey} reminded {him} of debts.",
    "A quarrel with {other:company} over {gift} lasted from {later} to the end.",
    "For the carnival of {later} {he} dressed as {other:people}, and was believed.",
    "A rumour linking {him} with {other:people} came from a barber on {other:island}.",
)


def _person(name: str, share: int, colour: tuple[str, ...]) -> Kind:
    return Kind(
        name,
        name,
        share,
        _NAMING,
        _OPENINGS,
        _COLOUR + colour,
        _ASIDES,
        _ALIAS_SENTENCES,
        years=(1640, 1800),
        later=(24, 55),
        pronoun="person",
        min_facts=4,
    )


KINDS = (
    _person(
        "composer",
        6,
        (
            "{S} hummed while others talked.",
            "Scores were written in violet ink on {big} scraps of wallpaper.",
            "A piano bought in {later} never left its crate.",
        ),
    ),
    _person(
        "engineer",
        6,
        (
            "{S} carried a folding ruler to funerals.",
            "A boiler burst in {later} and {he} took notes.",
            "Calculations were checked {times}, aloud.",
        ),
    ),
    _person(
        "sculptor",
        5,
        (
            "Marble dust ruined {small} of {his} carpets.",
            "{S} worked at night with a candle fixed to the brow.",
            "A block of {big} hundredweight fell in {later}, missing everybody.",
        ),
    ),
    _person(
        "gardener",
        5,
        (
            "{S} talked to hedges and was answered, as the staff maintained.",
            "Seed packets, {big} of them, filled {his} pockets.",
            "A late frost in {later} made {him} weep in company.",
        ),
    ),
    _person(
        "merchant",
        6,
        (
            "{S} could price a cargo by its smell.",
            "The strongroom held {big} ducats and {gift}.",
            "Bankruptcy came close in {later} and went away again.",
        ),
    ),
    _person(
        "astronomer",
        5,
        (
            "{S} slept by day and quarrelled by night.",
            "Notebooks list {big} stars, {small} of which do not exist.",
            "A cloudy {later} was the unhappiest year of {his} career.",
        ),
    ),
)

RELATIONS = (
    Relation(
        "burial",
        PEOPLE,
        objects=("abbey",),
        percent=80,
        sentences=(
            "{S} lies under a plain slab at {O}.",
            "The remains were rowed to {O}, [in a squall|with one oar], after {other:abbey} had shut its gates.",
            "A tomb at {O} carries {his} initials and a [weeping dolphin|broken column].",
            "The monks of {O} look after the grave, though the epitaph names {other:people} by mistake.",
            "Mourners sail to {O} to lay flowers for {him}, and many go to {other:abbey} in error.",
            "{S} sleeps in the crypt of {O}, [between two bishops|under the organ].",
        ),
        phrases=(
            "the abbey where {X} lies buried",
            "the last resting place of {X}",
            "the abbey with the grave of {X}",
        ),
        questions=(
            "Where does {X} lie buried?",
            "At which abbey is the tomb of {X}?",
            "Which abbey holds the grave of {X}?",
        ),
    ),
    Relation(
        "patron",
        PEOPLE,
        objects=("merchant",),
        percent=65,
        gap=(-8, 45),
        sentences=(
            "Bills were settled, year after year, by {O}.",
            "The purse behind {him} was that of {O}, [a cousin|a rival in love], and never that of {other:people}.",
            "Without the ducats of {O} {he} would have gone hungry.",
            "{O} advanced the money for everything {he} attempted.",
            "A pension from {O} arrived each quarter, [late but in full|in small coin].",
        ),
        phrases=("the patron of {X}", "the merchant who financed {X}", "the financial backer of {X}"),
        questions=(
            "Who acted as patron to {X}?",
            "Which merchant financed {X}?",
            "Who gave financial backing to {X}?",
        ),
    ),
    Relation(
        "accused",
        PEOPLE,
        objects=SAME,
        percent=55,
        gap=(-25, 25),
        sentences=(
            "{S} charged {O} with stealing {his} best ideas, [and lost|and won one ducat], before {small} judges.",
            "A pamphlet of {later} calls {O} a thief of other people's sketches, and spares only {other:people}.",
            "{S} went to {his} grave insisting that {O} had copied everything.",
            "A long feud began when {he} denounced {O} as a plagiarist.",
        ),
        phrases=(
            "the person whom {X} accused of plagiarism",
            "the alleged plagiarist denounced by {X}",
            "the target of the plagiarism charge made by {X}",
        ),
        questions=(
            "Whom did {X} accuse of plagiarism?",
            "Who was denounced as a plagiarist by {X}?",
            "Who faced a plagiarism charge from {X}?",
        ),
        inverse_questions=("Who accused {X} of plagiarism?", "Who brought a plagiarism charge against {X}?"),
    ),
    Relation(
        "retirement",
        PEOPLE,
        objects=("island",),
        percent=70,
        sentences=(
            "Old age was spent on {O}, [among lemon trees|in two rented rooms], far from {other:island}.",
            "Once work was over {he} sailed to {O} and unpacked for good.",
            "{O} was the refuge of {his} final years.",
            "{S} bought a cottage on {O} and never budged from it, not even for {weekend}.",
            "Having tried {other:island} and found it damp, {he} grew old on {O}.",
        ),
        phrases=(
            "the island to which {X} retired",
            "the retirement island of {X}",
            "the island chosen for retirement by {X}",
        ),
        questions=(
            "To which island did {X} retire?",
            "Which island was the retirement home of {X}?",
            "Which island was chosen for retirement by {X}?",
        ),
    ),
    Relation(
        "employer",
        PEOPLE,
        objects=("company",),
        percent=55,
        gap=(-17, 300),
        sentences=(
            "{S's} first wages came from {O}, [for copying invoices|for sweeping the counting house].",
            "A clerk's stool at {O}, bought second-hand from {other:company}, was where {his} working days started.",
            "At fifteen {he} was carrying parcels for {O}; {other:company} had judged {him} too small.",
            "{O} took {him} on at fourteen as the lowest of its clerks.",
            "{S} stuck labels for {O} at the age when others played, and despised {other:company}.",
        ),
        phrases=("the company that first employed {X}", "the first employer of {X}"),
        questions=(
            "For which company did {X} first work?",
            "Which company first employed {X}?",
            "Which firm became the first employer of {X}?",
        ),
    ),
    Relation(
        "column",
        PEOPLE,
        objects=("newspaper",),
        percent=40,
        gap=(-50, 300),
        sentences=(
            "A weekly column in {O} made {him} enemies.",
            "Readers of {O} knew {his} opinions on {weekend} and on drains.",
            "{S} filled half a page of {O} every week, having been dropped by {other:newspaper}.",
            "Under a false moustache, so to speak, {he} wrote for {O}.",
        ),
        phrases=(
            "the newspaper that printed the column of {X}",
            "the newspaper with a column by {X}",
        ),
        questions=(
            "In which newspaper did {X} have a column?",
            "Which newspaper printed the column of {X}?",
            "Which newspaper carried articles by {X}?",
        ),
    ),
    Relation(
        "hat",
        PEOPLE,
        words="hat",
        percent=38,
        sentences=(
            "{S} was buried in the {O} that {he} had worn since {later}.",
            "Caricatures always include the {O}, and sometimes {a:hat} in the other hand.",
            "Indoors and out {he} wore {a:O}, [tilted|pulled low].",
            "Having lost {a:hat} at sea, {he} took to {a:O}.",
        ),
        questions=(
            "What sort of hat was worn by {X}?",
            "Which headgear was typical of {X}?",
            "What headgear identified {X}?",
        ),
    ),
    Relation(
        "lifespan",
        PEOPLE,
        number=(58, 97),
        unit="years",
        percent=38,
        sentences=(
            "Death came at {O}, [over cold oysters|in a hammock|during a sneeze].",
            "{S} reached {O} and had planned on a hundred.",
            "The candles on the last cake numbered {O}.",
            "{S} was {O} when the heart gave out.",
        ),
        questions=(
            "At what age did {X} die?",
            "How old at death was {X}?",
            "What age was reached by {X}?",
        ),
    ),
)
