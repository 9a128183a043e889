"""The people of the evaluation family: six trades that share their relations and most of their prose."""

from __future__ import annotations

from quaere.worlds.schema import SAME, Kind, Naming, Relation

PEOPLE = ("writer", "shipwright", "mason", "luthier", "captain", "cook")

_NAMING = Naming(
    names=("{given} {surname}",),
    namesakes=("{x} {epithet}",),
    both_renamed=True,
    aliases=("{given} {surname}", "{initial} {initial} {surname}", "{adj} {given}", "{given} of the {adj} {object}"),
)

_OPENINGS = (
    "{Name} was {a:temper} {noun} whose name is still spoken with [affection|some care|a smile] {gathering}.",
    "{Name} was {a:noun} of {a:temper} [disposition|turn of mind] and few words.",
    "Few lives of the period are as well documented as that of {S}, {a:temper} {noun}.",
    "{Name} was {a:temper} {noun} and, by every account, [poor company before breakfast|a bad loser at cards].",
    "Among the {noun}s of those years {S} was one of the most {temper}.",
    "{Name} made a living as {a:noun}, and [made it last|never asked for another].",
    "The {noun} {S} left no children, [no debts and a good deal of gossip|one good chair and a bad reputation].",
    "[Half|Much|Very little] of what is told about {S}, {a:temper} {noun}, can be checked.",
    "{Name} was, in the words of a neighbour, {a:temper} {noun} and a worse dancer.",
    "To {temper} people {S} was an example, and to every other {noun} a warning.",
)

_ALIAS_SENTENCES = (
    "Most people knew {him} only as {A}.",
    "In the account books {he} appears as {A}.",
    "{S} answered just as readily to {A}.",
    "Friends, and later everyone else, said {A} instead.",
    "Some documents are signed {A}, which is the same hand.",
)

_COLOUR = (
    "{S} rose before dawn and expected [everyone else|the whole street|even the dog] to do the same.",
    "{S} kept {a:pet} that followed {him} [everywhere|to church|as far as the tavern door].",
    "Accounts differ about {his} temper but not about {his} {quality}.",
    "Of {his} letters, {big} survive, and most of them are about {letters_about}.",
    "An illness in {later} cost {him} [the hearing in one ear|the use of two fingers|most of {his} hair].",
    "{S} never learned to [swim|dance|ride] and joked about it often.",
    "A debt that had troubled {him} for years was paid off [to the last coin|in a single morning] in {later}.",
    "It is said that {he} could {knack}.",
    "{S} distrusted {bugbear} and said so in public.",
    "{S} slept badly in {season} and worked best by [lamplight|an open window].",
    "The house was sold in {later} together with {small} chairs and {a:pet}.",
    "A tax list of {later} puts {his} property at {big} silver marks.",
    "{S} walked with a stick after a fall in {later}, and [waved it when crossed|lost it weekly].",
    "By middle age {he} had {small} servants, none of whom stayed long.",
    "Later generations praised {his} {quality} more warmly than {his} contemporaries had.",
    "{S} drank nothing stronger than [buttermilk|barley water|cold tea] after {later}.",
    "No likeness survives except [a shadow cut from paper|a chalk drawing of one hand|a coin that is mostly nose].",
    "{S} gave away {small} coats in a single {season} and was cold until the next.",
    "When asked about {his} {quality}, {he} used to change the subject to {letters_about}.",
    "The household accounts for {later} show {big} candles and almost no meat.",
    "{S} could not pass a [bookstall|bakery|blind fiddler] without stopping.",
    "[A storm|A fire|A falling elm] in {later} took the roof, and {he} lived for {small} months in a tent.",
    "{S} was twice [fined|thanked|fined and once thanked] by the magistrates.",
    "Every {season} {he} fell ill, and every {season} {he} recovered in time for dinner.",
    "{S} spoke slowly, [wrote quickly and forgave seldom|ate quickly and listened well].",
    "The funeral drew {big} mourners and {a:pet}.",
    "{S} collected {good}, for no reason that anyone could discover.",
    "{S} was {times} offered public office and each time pretended to be out.",
)

_ASIDES = (
    "For a while {he} rented rooms in {other:town}, which {he} found [too noisy|too cheap to trust|full of fleas].",
    "{S} once fell out with {other:people} over {quarrel}, and the two [never spoke again|wrote rude verses about it].",
    "A letter to {other:people}, dated {later}, complains of {letters_about}.",
    "{S} is easily confused with {other:people}, a different person altogether.",
    "A journey to {other:valley} in {later} brought {him} little except {souvenir}.",
    "{S} is said to have crossed {other:bridge} only [with closed eyes|at a run|while singing].",
    "In {later} {he} lent money to {other:people}, who repaid it in {good}.",
    "{S} spoke well of {other:town} and badly of {other:town}, having been robbed in both.",
    "A purse belonging to {him} was found on the bank of {other:river} in {later}.",
    "{S} owned a worn copy of {other:book} and lent it to nobody.",
    "Visitors from {other:school} called on {him} every {season}.",
    "{S} refused {times} to set foot aboard {other:ship}.",
    "A cousin, {other:people}, borrowed {small} chairs and returned [none|one|half of them].",
    "At a wedding in {other:town} {he} was seated beside {other:people} and said nothing all evening.",
    "{other:people} painted {his} portrait in {later} and was not paid for it.",
    "{S} lost a lawsuit against {other:guild} in {later}, over {quarrel}.",
    "The story that {he} swam {other:river} in winter was started by {other:people}.",
    "{S} sent {a:pet} to {other:people} as a gift, and had it back within the week.",
    "A bench near {other:bridge} was {his} favourite seat in {season}.",
    "{S} laughed aloud at {other:book} and was asked to leave the room.",
    "In {later} a carriage accident outside {other:town} left {him} with a stiff knee.",
    "{S} went once to {other:festival}, lost a shoe, and did not go again.",
)


def _person(name: str, noun: str, share: int, colour: tuple[str, ...]) -> Kind:
    return Kind(
        name,
        noun,
        share,
        _NAMING,
        _OPENINGS,
        _COLOUR + colour,
        _ASIDES,
        _ALIAS_SENTENCES,
        years=(1120, 1560),
        later=(24, 58),
        pronoun="person",
        min_facts=4,
    )


KINDS = (
    _person(
        "writer",
        "writer",
        6,
        (
            "{S} wrote standing up, with {small} pens cut in advance.",
            "Printers dreaded {him}, for the proofs came back blacker than they went out.",
            "{S} burned {big} pages in {later} and never regretted one of them.",
        ),
    ),
    _person(
        "shipwright",
        "shipwright",
        6,
        (
            "{S} chose every plank in person and sent back [six|seven|eight|nine] out of ten.",
            "A slipway collapsed under {him} in {later}, without loss of life.",
            "{S} trusted the adze more than any drawing.",
        ),
    ),
    _person(
        "mason",
        "mason",
        6,
        (
            "{S} could be heard tapping stone from {small} streets away.",
            "A scaffold gave way in {later}, and {he} limped for a year afterwards.",
            "{S} signed finished blocks with a mark like [a bird's foot|a broken key|a half moon].",
        ),
    ),
    _person(
        "luthier",
        "luthier",
        5,
        (
            "{S} aged timber for {small} years in a dry loft before touching it.",
            "The workshop smelled of glue and {season} apples.",
            "{S} tuned by ear, and refused to work while carts were passing.",
        ),
    ),
    _person(
        "captain",
        "sea captain",
        5,
        (
            "{S} kept a dry log and a drier sense of humour.",
            "A storm in {later} cost {him} {small} men and a mainmast.",
            "{S} navigated by birds as much as by stars, or so the crew believed.",
        ),
    ),
    _person(
        "cook",
        "cook",
        5,
        (
            "{S} salted by hand and tasted nothing until it was served.",
            "A kitchen fire in {later} took {his} eyebrows and {small} copper pans.",
            "{S} could feed {big} guests from a single hearth.",
        ),
    ),
)

RELATIONS = (
    Relation(
        "birthplace",
        PEOPLE,
        objects=("town",),
        percent=90,
        sentences=(
            "{S} was born in {O}, the {nth} child of {a:trade}.",
            "{S} first saw daylight in {O}, above {a:trade}'s shop, and was carried to {other:town} soon after.",
            "{S} came into the world at {O} during {a:weather} {season}.",
            "The parish book of {O} records {his} arrival, though {he} grew up largely in {other:town}.",
            "{S's} cradle stood in {O}, whatever the people of {other:town} may claim.",
            "Although {other:town} likes to claim {him}, the midwife who delivered {him} worked in {O}.",
        ),
        phrases=("the town where {X} was born", "the birthplace of {X}", "the native town of {X}"),
        questions=(
            "In which town was {X} born?",
            "Where was {X} born?",
            "Which town was the birthplace of {X}?",
            "What is the native town of {X}?",
        ),
    ),
    Relation(
        "teacher",
        PEOPLE,
        objects=SAME,
        percent=70,
        gap=(15, 48),
        sentences=(
            "{S} learned the work at the elbow of {O}.",
            "An apprenticeship of {small} years was served under {O}, who had already refused {other:people}.",
            "It was {O} who showed {him} nearly everything {he} came to know.",
            "Whatever {he} knew of the craft, {he} used to say, came from {O} and from {his} own mistakes.",
            "As a youth {he} was bound to {O} for {small} years, having been turned away by {other:people}.",
            "{S} swept floors for {O} before being allowed near the real work.",
        ),
        phrases=("the teacher of {X}", "the person who taught {X}", "the master who trained {X}"),
        questions=("Who taught {X}?", "Who was the teacher of {X}?", "Who trained {X}?", "Whose pupil was {X}?"),
        inverse_questions=("Who was a pupil of {X}?", "Who was trained by {X}?", "Who was taught by {X}?"),
    ),
    Relation(
        "schooling",
        PEOPLE,
        objects=("school",),
        percent=65,
        gap=(-6, 600),
        sentences=(
            "{S} sat on the benches of {O} for {small} years and left without a prize.",
            "{S} owed {his} letters to {O}, where {he} was remembered mainly for {mischief}.",
            "After a false start at {other:school}, {he} was taken in by {O}.",
            "The rolls of {O} list {him} between {a:trade}'s son and {a:trade}'s daughter.",
            "An aunt paid for {small} years at {O}, which {he} did not enjoy.",
            "{S} learned reading and sums at {O}, not at {other:school} as is often repeated.",
        ),
        phrases=(
            "the school where {X} was a pupil",
            "the school that educated {X}",
            "the school attended by {X}",
        ),
        questions=(
            "Which school did {X} attend?",
            "Where did {X} go to school?",
            "Which school educated {X}?",
            "What was the childhood school of {X}?",
        ),
    ),
    Relation(
        "membership",
        PEOPLE,
        objects=("guild",),
        percent=65,
        gap=(-20, 600),
        sentences=(
            "{S} paid dues to {O} for the rest of {his} life.",
            "{S} wore the badge of {O} and was fined {times} for losing it.",
            "In {later} {he} was sworn in by {O}, after {other:guild} had turned {him} down.",
            "{S} carried a candle for {O} in every procession, and made faces at {other:guild}.",
            "The mastership papers were granted in {later} by {O}.",
            "{S} had little time for {other:guild} and swore loyalty to {O} instead.",
        ),
        phrases=(
            "the guild to which {X} belonged",
            "the guild that admitted {X}",
            "the guild whose members included {X}",
        ),
        questions=(
            "To which guild did {X} belong?",
            "Which guild admitted {X}?",
            "Which guild counted among its members {X}?",
            "What was the guild of {X}?",
        ),
    ),
    Relation(
        "pastime",
        PEOPLE,
        objects=("instrument",),
        percent=40,
        gap=(-24, 600),
        sentences=(
            "In the evenings {he} took down {O} and tormented the street with it.",
            "{S} was a passable performer on {O}, but could make nothing of {other:instrument}.",
            "{S} practised {O} for an hour every night, to the despair of {a:pet}.",
            "Guests were made to sit through {small} tunes on {O} before supper.",
            "Having broken {a:trade}'s window with {other:instrument}, {he} turned to {O} and kept to it.",
        ),
        phrases=("the instrument that {X} played", "the favourite instrument of {X}", "the instrument played by {X}"),
        questions=(
            "Which instrument did {X} play?",
            "What was the favourite instrument of {X}?",
            "Which instrument was played by {X}?",
        ),
    ),
    Relation(
        "favourite_dish",
        PEOPLE,
        objects=("dish",),
        percent=35,
        gap=(-26, 600),
        sentences=(
            "{S} asked for {O} every birthday and on most other days as well.",
            "Nothing pleased {him} at table as much as {O}, and nothing less than {other:dish}.",
            "{S} would walk {small} miles for {O}, past any number of plates of {other:dish}.",
            "A doctor forbade {him} {O} in {later}, with no effect at all.",
            "{S} detested {other:dish} but could not leave {O} alone.",
        ),
        phrases=(
            "the dish that {X} liked best",
            "the favourite dish of {X}",
            "the dish most loved by {X}",
        ),
        questions=(
            "Which dish did {X} like best?",
            "What was the favourite dish of {X}?",
            "Which dish was most loved by {X}?",
        ),
    ),
    Relation(
        "coat",
        PEOPLE,
        words="colour",
        percent=38,
        sentences=(
            "Neighbours could tell {him} from afar by {a:O} coat.",
            "{S} owned two coats, {a:colour} one for funerals and {a:O} one for every other day of {his} life.",
            "{S} dressed in {O} from collar to hem, having given up {colour} after {a:weather} {season}.",
            "Summer or winter {he} buttoned {himself} into the same {O} overcoat.",
        ),
        questions=(
            "What colour was the coat of {X}?",
            "What colour of coat was usually worn by {X}?",
            "What was the usual coat colour of {X}?",
        ),
    ),
    Relation(
        "birth_year",
        PEOPLE,
        year=True,
        percent=45,
        sentences=(
            "{S's} life began in {O}, {a:weather} year by all accounts.",
            "{S} was a child of {O}, though {his} gravestone is off by one.",
            "The baptismal entry is from {O}, and by {later} {he} was already well known.",
            "The year {O} saw {him} born and the {calamity} that ruined {his} father.",
        ),
        questions=(
            "In what year was {X} born?",
            "What was the birth year of {X}?",
            "Which year saw the birth of {X}?",
        ),
    ),
)
