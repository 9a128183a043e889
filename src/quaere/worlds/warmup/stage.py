"""The stage of the warm-up family: theatres and operas."""

from __future__ import annotations

from quaere.worlds.schema import Kind, Naming, Relation
from quaere.worlds.warmup.lexicon import PLACE_ALIAS_SENTENCES
from quaere.worlds.warmup.people import PEOPLE

KINDS = (
    Kind(
        "theatre",
        "theatre",
        share=6,
        naming=Naming(
            names=(
                "the {surname} Theatre",
                "the Theatre of the {heading} {figure}",
                "the {heading} {figure} Playhouse",
            ),
            namesakes=("the Old {x}", "the Little {x}", "the Royal {x}"),
            aliases=("the {heading} Box", "the {heading} {figure} Stage", "the {surname} Hall", "the {heading} Shell"),
        ),
        openings=(
            "{Name} is {a:edifice_adj} theatre with excellent echoes.",
            "{Name} is {a:edifice_adj} theatre that has burned down only once.",
            "Applause at {S}, {a:edifice_adj} theatre, is measured with a {gadget}.",
            "{Name} is a theatre where the cheap places are the best.",
        ),
        colour=(
            "{S's} ghost appears {hour}, in the second gallery.",
            "A riot in {later} concerned an encore.",
            "The prompter's box houses {small} kittens.",
            "{S's} chandelier has {big} crystals, {small} of them glass.",
            "Oranges are sold in the interval, and thrown after it.",
            "Mirrors were forbidden backstage in {later}.",
            "{S's} orchestra pit floods {hour}.",
            "Rehearsals stop when the fish boats come in.",
            "Stage daggers have been counted nightly since {later}.",
        ),
        asides=(
            "{other:people} fainted in the royal box in {later}.",
            "Costumes are shared with {other:theatre}, a button at a time.",
            "The stage door is guarded by a cousin of {other:people}.",
            "Audiences come from {other:island} by moonlit barge.",
            "A revival of {other:opera} was hissed there in {later}.",
            "Sulphur for the lightning is bought from {other:mine}.",
        ),
        alias_sentences=PLACE_ALIAS_SENTENCES,
    ),
    Kind(
        "opera",
        "opera",
        share=6,
        naming=Naming(
            names=("The {heading} {figure}", "The {figure} of {island}", "{given_she} and the {figure}"),
            namesakes=("{x} in Exile", "{x} Avenged", "{x} at Sea"),
            aliases=(
                "the {heading} {flower} opera",
                "The {figure}'s {flower}",
                "{given_he} Betrayed",
                "The {heading} Ring",
            ),
        ),
        openings=(
            "{Name} is an opera in which everybody dies [twice|offstage|of jealousy].",
            "{Name} is {a:manner} opera with a part for live {beast}.",
            "Tenors fear {S}, an opera that opens on a high note.",
            "{Name} is an opera lasting as long as a ferry crossing.",
        ),
        colour=(
            "{S's} overture quotes a street cry.",
            "A censor removed {small} kisses in {later}.",
            "The storm scene needs {big} yards of silk.",
            "{S's} villain sings in a whisper.",
            "{S's} score was found in a fish crate in {later}.",
            "Sopranos have been known to duel over it.",
            "Barrel organs play its march {hour}.",
            "An elephant was added in {later}, for one evening.",
            "The ballet may be cut, and usually is.",
        ),
        asides=(
            "{other:people} walked out during the second scene.",
            "A tune in it resembles one from {other:opera}.",
            "{other:people} conducted it in {later} with a breadstick.",
            "Sets were recycled as beehives at {other:abbey}.",
            "A review in {other:newspaper} consisted of one word.",
            "{S's} wedding march is played on {other:island} at funerals.",
        ),
        alias_sentences=(
            "Stagehands call it {A}.",
            "In translation the title becomes {A}.",
            "Billed abroad as {A}, it fared no worse.",
            "The first draft was headed {A}.",
        ),
    ),
)

RELATIONS = (
    Relation(
        "theatre_engineer",
        ("theatre",),
        objects=("engineer",),
        percent=100,
        age=(26, 62),
        sentences=(
            "{S's} roof, without a single pillar, was calculated by {O}.",
            "{O} was architect, plumber and earliest spectator.",
            "The horseshoe plan came off the slide rule of {O}, and the draughts are blamed on {other:people}.",
            "Workmen still curse {O}, who drew it and wanted the stage to revolve.",
        ),
        phrases=("the architect of {X}", "the engineer who drew up the plans for {X}"),
        questions=(
            "Which architect planned {X}?",
            "Which engineer drew up the plans for {X}?",
        ),
        inverse_questions=("Which theatre had as architect {X}?", "Which theatre follows plans by {X}?"),
    ),
    Relation(
        "theatre_island",
        ("theatre",),
        objects=("island",),
        percent=93,
        sentences=(
            "{S's} portico faces the harbour of {O}.",
            "Nobody on {O} lives far from its box office, and rowers come from {other:island}.",
            "Touring troupes must cross to {O} with their scenery, [usually soaked|on a raft].",
            "When the show is sold out, half of {O} stands in the street to listen.",
        ),
        phrases=("the island whose playgoers fill {X}", "the island entertained by {X}"),
        questions=(
            "On which island do playgoers visit {X}?",
            "Which island is entertained by {X}?",
        ),
    ),
    Relation(
        "theatre_owner",
        ("theatre",),
        objects=("merchant",),
        percent=63,
        sentences=(
            "Losses are made good by {O}, who owns the place and has a free seat.",
            "The building and the ground beneath were bought by {O} to annoy {other:people}.",
            "{O} kept the deeds in a drawer and fired the managers.",
            "Takings go to {O}, the owner, in a locked hat box.",
        ),
        phrases=("the merchant who owned {X}", "the owner of {X}"),
        questions=(
            "Who was the owner of {X}?",
            "Which merchant owned {X}?",
        ),
    ),
    Relation(
        "seats",
        ("theatre",),
        number=(120, 980),
        unit="seats",
        percent=63,
        sentences=(
            "{S} has {O} seats, {small} with a view of the stage.",
            "On a good night all {O} seats are sold and some are sat upon twice.",
            "The fire inspector allows {O} seats and overlooks the rest.",
            "There are {O} seats, [upholstered in horsehair|numbered backwards].",
        ),
        questions=(
            "How many seats are available at {X}?",
            "What seating capacity has {X}?",
        ),
    ),
    Relation(
        "curtain",
        ("theatre",),
        words="fabric",
        percent=53,
        sentences=(
            "Moths dislike its curtain, which is of {O} lined with {fabric}.",
            "A curtain of {O} comes down like a guillotine.",
            "After the {gale} the curtain was remade in {O}.",
            "What comes down when a play is over is {O}, patched with {fabric}.",
        ),
        questions=(
            "Of which fabric is the curtain at {X}?",
            "What fabric hangs before the stage of {X}?",
        ),
    ),
    Relation(
        "inauguration",
        ("theatre",),
        year=True,
        percent=53,
        sentences=(
            "A gala in {O} inaugurated it, and bailiffs visited in {later}.",
            "Playgoers have queued at its doors from {O} onward.",
            "The inaugural programme, dated {O}, is printed on silk.",
            "{S's} keys were handed over in {O}, to fireworks.",
        ),
        questions=("When was the inauguration of {X}?", "When did playgoers first enter {X}?"),
    ),
    Relation(
        "opera_composer",
        ("opera",),
        objects=("composer",),
        percent=100,
        age=(20, 56),
        sentences=(
            "The music is by {O}, who was paid by the bar.",
            "{O} set it to music in {small} feverish nights.",
            "Every note is by {O}, whatever {other:people} may have hinted.",
            "{O} orchestrated it aboard a ferry.",
        ),
        phrases=("the composer of {X}", "the composer responsible for {X}"),
        questions=(
            "Who composed {X}?",
            "Which composer was responsible for {X}?",
        ),
        inverse_questions=("Which opera was composed by {X}?", "Which opera has music by {X}?"),
    ),
    Relation(
        "premiere",
        ("opera",),
        objects=("theatre",),
        percent=78,
        gap=(1, 300),
        sentences=(
            "The curtain first rose on it at {O}, [to whistles|before an empty house].",
            "{O} gave the premiere after {other:theatre} had lost the parts.",
            "{S} had its opening night at {O}, with {small} in the audience.",
            "Those who attended the first performance at {O} still argue about the encore.",
        ),
        phrases=("the theatre that premiered {X}", "the theatre where {X} had its premiere"),
        questions=(
            "Where did {X} have its premiere?",
            "Which theatre premiered {X}?",
            "Which theatre gave the premiere of {X}?",
        ),
    ),
    Relation(
        "heroine",
        ("opera",),
        objects=PEOPLE,
        percent=63,
        gap=(20, 120),
        sentences=(
            "{S's} leading role is a thinly veiled likeness of {O}.",
            "Everyone recognised {O} in the title part, except {other:people}.",
            "{O} sued, on finding every private habit sung aloud.",
            "{O} lent some features to its hero, [unwillingly|for a fee].",
        ),
        phrases=("the real person portrayed in {X}", "the person satirised in {X}"),
        questions=(
            "Which real person is portrayed in {X}?",
            "Who is satirised in {X}?",
        ),
        inverse_questions=("Which opera portrays {X}?", "Which opera contains a likeness of {X}?"),
    ),
    Relation(
        "scene",
        ("opera",),
        objects=("island",),
        percent=68,
        sentences=(
            "Painted backdrops represent {O} by moonlight.",
            "The libretto sends its lovers to {O} and leaves them there.",
            "{S's} plot plays itself out on {O}, between a well and a balcony.",
            "Cardboard cliffs stand for {O}, and fool nobody who has been there.",
        ),
        phrases=("the island depicted in {X}", "the island where the plot of {X} unfolds"),
        questions=(
            "Which island is depicted in {X}?",
            "On which island does the plot of {X} unfold?",
        ),
    ),
    Relation(
        "acts",
        ("opera",),
        number=(3, 7),
        unit="acts",
        percent=58,
        sentences=(
            "{S} falls into {O} acts, the last of them in darkness.",
            "Patience is needed for its {O} acts.",
            "The curtain must come down {O} times, with {small} encores, before anyone goes home.",
            "Supper is served after the longest of the {O} acts.",
        ),
        questions=("How many acts divide {X}?", "Into how many acts falls {X}?"),
    ),
)
