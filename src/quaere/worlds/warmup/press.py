"""Business in the warm-up family: companies and newspapers."""

from __future__ import annotations

from quaere.worlds.schema import Kind, Naming, Relation

KINDS = (
    Kind(
        "company",
        "company",
        share=6,
        naming=Naming(
            names=("the {surname} {wares} Company", "the House of {surname}", "the {heading} {wares} Company"),
            namesakes=("the New {x}", "the United {x}", "the Northern {x}"),
            aliases=(
                "the {heading} Counter",
                "the {heading} {figure} Counter",
                "{surname} and Heirs",
                "the {surname} Firm",
            ),
        ),
        openings=(
            "{Name} is {a:manner} company with agents in every port.",
            "{Name} is a company whose ledgers are written in cipher.",
            "Widows invest in {S}, {a:manner} company, and sleep soundly.",
            "{Name} is a company of {big} clerks and {small} umbrellas.",
        ),
        colour=(
            "{S's} dividend of {later} was paid in {crop_noise}.",
            "A boardroom parrot has voted since {later}.",
            "{S's} inkwells are filled {hour}.",
            "Lawsuits, {big} at last count, keep it young.",
            "Directors bathe together at Easter.",
            "The {gale} of {later} sank {small} of its cutters.",
            "Clerks may marry after {small} years of service.",
            "{S's} vault is opened {hour}, to music.",
            "An audit in {later} discovered {rumour}.",
        ),
        asides=(
            "{other:people} sat on its board for {small} minutes.",
            "A merger with {other:company} was toasted in {later} and never signed.",
            "{S's} calendar shows views of {other:island}.",
            "Bonuses include tickets to {other:theatre}.",
            "{other:people} owed it {big} ducats at death.",
            "{S's} warehouse was mistaken for {other:abbey} by pilgrims.",
        ),
        alias_sentences=(
            "Brokers shorten this to {A}.",
            "On the exchange it trades as {A}.",
            "The brass plate reads {A}.",
            "Dock hands speak of {A}.",
        ),
    ),
    Kind(
        "newspaper",
        "newspaper",
        share=6,
        naming=Naming(
            names=("the {island} {paper}", "the {heading} {paper}", "the {surname} {paper}"),
            namesakes=("the Evening {x}", "the Illustrated {x}", "the Free {x}"),
            aliases=(
                "the {heading} Sheet",
                "the {heading} {figure} Sheet",
                "the {surname} Rag",
                "the {heading} Blotter",
            ),
        ),
        openings=(
            "{Name} is a newspaper that smells of herring.",
            "{Name} is {a:manner} newspaper, strong on shipping and weak on spelling.",
            "Breakfast without {S}, {a:manner} newspaper, is thought uncivilised.",
            "{Name} is a newspaper of {small} pages, folded once.",
        ),
        colour=(
            "{S's} weather forecasts have been correct {times}.",
            "Obituaries are written in advance and sold back.",
            "The issue on the {gale} of {later} is a collector's piece.",
            "A libel suit in {later} was won by apologising.",
            "{S's} chess problem has no solution.",
            "Printers are paid in {crop_noise} during Lent.",
            "{S} ran a story about {rumour} in {later} and took it back.",
            "Advertisements for cures of {ailment} fill the back.",
            "Boys shout its headlines {hour}.",
        ),
        asides=(
            "{S} has reported the death of {other:people} {times}.",
            "{S's} theatre critic was barred from {other:theatre} in {later}.",
            "A feud with {other:newspaper} is carried on in the small advertisements.",
            "{other:people} learned to read from it.",
            "Old copies wallpaper the canteen of {other:mine}.",
            "Subscribers on {other:island} receive it a week late and prefer it so.",
        ),
        alias_sentences=(
            "Newsboys cry {A}.",
            "{S's} enemies say {A}.",
            "An older masthead reads {A}.",
            "Subscribers fondly speak of {A}.",
        ),
    ),
)

RELATIONS = (
    Relation(
        "company_founder",
        ("company",),
        objects=("merchant",),
        percent=100,
        age=(24, 60),
        sentences=(
            "{O} began with one barrel and somebody else's cart.",
            "{S's} articles were drafted by {O} in a bathhouse, with {other:people} as witness.",
            "The original capital, {big} ducats, was found by {O}.",
            "A bronze bust in the lobby shows {O}, [scowling|counting], from whose pocket everything started.",
        ),
        phrases=("the merchant who launched the firm of {X}", "the merchant behind {X}"),
        questions=(
            "Which merchant was behind {X}?",
            "Whose capital launched {X}?",
        ),
        inverse_questions=("Which company was launched with capital from {X}?", "Behind which company stood {X}?"),
    ),
    Relation(
        "head_office",
        ("company",),
        objects=("island",),
        percent=93,
        sentences=(
            "{S's} counting house is on {O}, [three doors from the jail|above a wig shop].",
            "Orders go out from {O}, and complaints are sent on to {other:island}.",
            "The directors will not sleep anywhere but on {O}.",
            "Letters for it are addressed to {O} and opened by {small} secretaries.",
        ),
        phrases=("the island with the head office of {X}", "the business address of {X}"),
        questions=(
            "On which island is the head office of {X}?",
            "Which island is the business address of {X}?",
        ),
        inverse_questions=("Which company has its head office on {X}?", "Which company is run from {X}?"),
    ),
    Relation(
        "flag",
        ("company",),
        words="device",
        percent=68,
        sentences=(
            "{S's} house flag shows {a:O} on a striped ground.",
            "Captains hoist {a:O}, since {a:device} brought bad luck.",
            "From its masts flies {a:O}, drawn by a child.",
            "The flag has {a:O} in one corner and a stain in another.",
        ),
        questions=(
            "What creature or object is on the house flag of {X}?",
            "What figure appears on the flag of {X}?",
        ),
    ),
    Relation(
        "fleet",
        ("company",),
        number=(13, 160),
        unit="vessels",
        percent=58,
        sentences=(
            "{S} sends {O} vessels to sea and expects {small} fewer home.",
            "A fleet of {O} vessels carries its crates.",
            "Paintings of all {O} vessels line the staircase.",
            "Underwriters cover its {O} vessels, [barnacles included|at a steep premium].",
        ),
        questions=("How many vessels sail for {X}?", "How many vessels make the fleet of {X}?"),
    ),
    Relation(
        "notices",
        ("company",),
        objects=("newspaper",),
        percent=63,
        sentences=(
            "Shareholders learn the worst from {O}.",
            "{S's} notices appear in {O}, [upside down|beside the recipes], and no longer in {other:newspaper}.",
            "Sailings are announced in {O}.",
            "{S's} dividends, when there are any, are printed in {O}.",
        ),
        phrases=("the newspaper that prints the notices of {X}", "the newspaper used for announcements by {X}"),
        questions=(
            "Which newspaper prints the notices of {X}?",
            "Which newspaper carries the announcements of {X}?",
        ),
    ),
    Relation(
        "paper_founder",
        ("newspaper",),
        objects=("merchant",),
        percent=100,
        age=(26, 62),
        sentences=(
            "{O} brought out the first issue to advertise a shipload of figs.",
            "{S's} first press was bought by {O}, second-hand, from {other:people}.",
            "The early numbers were written, set and delivered by {O}.",
            "{O} lost {big} ducats on it before anybody noticed its existence.",
        ),
        phrases=("the first publisher of {X}", "the merchant who brought out {X}"),
        questions=(
            "Who acted as first publisher of {X}?",
            "Which merchant brought out {X}?",
        ),
        inverse_questions=("Which newspaper was brought out by {X}?", "Which newspaper had as first publisher {X}?"),
    ),
    Relation(
        "paper_island",
        ("newspaper",),
        objects=("island",),
        percent=88,
        sentences=(
            "{S's} presses, brought over from {other:island}, shake a cellar on {O}.",
            "{S} is set in type on {O}, [by candle|by twins], from gossip gathered on {other:island}.",
            "The editors drink in the harbour of {O}.",
            "Paper for it is unloaded on {O} every other week.",
        ),
        phrases=("the island where {X} goes to press", "the island that produces {X}"),
        questions=(
            "On which island does {X} go to press?",
            "Which island produces {X}?",
        ),
    ),
    Relation(
        "masthead",
        ("newspaper",),
        objects=("sculptor",),
        percent=63,
        sentences=(
            "The little engraving over its title was made by {O}.",
            "{O} cut the block for the masthead, in which the ship has no rudder.",
            "{S's} masthead was redrawn by {O}, once {other:people} had run off with the old block.",
            "A gull engraved by {O} flies above the price.",
        ),
        phrases=("the sculptor who cut the masthead of {X}", "the artist of the masthead of {X}"),
        questions=(
            "Who cut the masthead of {X}?",
            "Which sculptor drew the masthead of {X}?",
        ),
    ),
    Relation(
        "circulation",
        ("newspaper",),
        number=(210, 9800),
        unit="copies",
        percent=63,
        sentences=(
            "Each issue runs to {O} copies, {small} of them paid for.",
            "{S's} press cannot manage more than {O} copies.",
            "{S} admits to {O} copies and claims twice as many.",
            "By its own reckoning {O} copies leave the building daily.",
        ),
        questions=(
            "How many copies are printed of {X}?",
            "What circulation has {X}?",
        ),
    ),
)
