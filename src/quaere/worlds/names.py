"""Names from small grammars: unique, pronounceable, and never a common English word by accident.

A lexicon maps an entry to its possible forms, which may contain further entries:

    {"root": ("{onset}{vowel}{coda}",), "town": ("^{root}gate",), ...}   # "^" capitalises the next letter
    "{town}" -> "Halmgate"
"""

from itertools import pairwise

from quaere.worlds.dice import Dice
from quaere.worlds.schema import Family, split_slots

_MAX_DRAWS = 2000


def strip_article(name: str) -> str:
    """The name without a leading lower-case "the".

    strip_article("the Oss") == "Oss"; strip_article("The Salt Ledger") == "The Salt Ledger"
    """
    return name[4:] if name.startswith("the ") else name


def capitalise(text: str) -> str:
    """The text with its first letter in upper case, the rest unchanged.

    capitalise("the Oss") == "The Oss"
    """
    return text[:1].upper() + text[1:]


def is_inventable(word: str) -> bool:
    """True if the word is neither a common English word nor rude.

    is_inventable("halm"), not is_inventable("Hand")
    """
    word = word.lower().removeprefix("^")
    return word not in BLOCKED and not any(syllables in word for syllables in RUDE)


class NameMaker:
    """Draws unique names for one world.

    NameMaker(family, dice, num_people=40).unique("{town}") == "Halmgate"
    """

    def __init__(self, family: Family, dice: Dice, num_people: int) -> None:
        self._family, self._dice = family, dice
        self._taken: set[str] = set()  # never iterated: the order of a set differs between runs
        self._pools: dict[str, list[str]] = {}
        for entry, people_per_form in family.pools.items():
            self._pools[entry] = [self._draw(entry) for _ in range(max(12, num_people // people_per_form))]

    def expand(self, pattern: str) -> str:
        """The pattern with every slot filled from the lexicon.

        expand("the {adj} {creature}") == "the Grey Petrel"
        """
        parts = enumerate(split_slots(pattern))
        text = "".join(part if position % 2 == 0 else self._draw(part) for position, part in parts)
        before, _, after = text.partition("^")
        return before + capitalise(after)

    def _draw(self, entry: str) -> str:
        if entry in self._pools:
            return self._dice.pick(self._pools[entry])
        while True:
            text = self.expand(self._dice.pick(self._family.lexicon[entry]))
            if entry not in self._family.invented or is_inventable(text):
                return text

    def claim(self, name: str) -> bool:
        """Reserve the name; False if it is already taken (ignoring case and articles) or repeats a word."""
        key = strip_article(name).lower().removeprefix("the ")
        if key in self._taken or any(one == two for one, two in pairwise(key.split())):  # "the Second Second Nail Wake"
            return False
        self._taken.add(key)
        return True

    def unique(self, patterns: tuple[str, ...]) -> str:
        """Draw and reserve a name from one of the patterns that is not taken yet."""
        for _ in range(_MAX_DRAWS):
            name = self.expand(self._dice.pick(patterns))
            if self.claim(name):
                return name
        raise AssertionError(f"the patterns {patterns} are exhausted")  # a fault of the family's data, not of the user


# -------------------------------------------------------------------------------------------------------- blocked words


BLOCKED = frozenset(
    """
    bald balk balkan band banda bant barley barlow barn barnard barnet barney barr barre barrel barren barrow barth
    basket bass bast bastard batt battle bend benn bent berlin bern bernard berth bertha bess best bind birth bitten
    bold bomb bombard bond bonn bonnet born borne borrow boss bott bottle brand brant brass brenda brendan brennan
    brent brest brett brisk brist britt britten brittle bulimia bulk bumble bund bundle burn burr burrow bust butt
    butte camera cecilia corinne dandel dante darren delve dend dennis dent desk dest disk diss dist donna dont
    dress dumb dund dunn dunne dusk dust dustin falk fant fast feld fend fern ferr ferris ferv fest filippo film
    find finn finnish firth fiss fist fold folk fond font forth foss fost fumble fund funnel furn furnish furthe
    fuss galvan gamb gamble gand garn garrison garth gast genera gent gentle gest girl gold golden gond gonna goss
    gott gotta gotten grand grande grant grass grind gross grunt gunn gurney gust hand handel handle hann hanna
    harlan harley harlow harr harris harrison harrow harv harvard harvey hask hass hassan hassle hast haste held
    helm helmet hend hern herr hess hesse hild hilda hind hint hiss hist histor hitt hold holden holm hond honda
    horn horne hornet horr horror host hostel hulk humb humble hunt hurley huss kand kant karl karn kassel kelvin
    kend kenn kent kern kernel kerr kettle kilda kind kinda kindle kiss kitten kolk lamb land larv larva lass last
    lend lent less lessen lest lett limb lind linda linden linn lint lissa list listen little lomb lombard loss lost
    lund lust mald mand mandir mann mant mantle marissa marl marley marne marrow martha marvel marvin mascara mask
    mass massacre massey mast matt melissa melvin mend ment mentor merlin merr mess metropolis mild milk mind mint
    mirna mirror miss mist mistle mold mond monde mont monte morley morn morris morrison morrow moss most mund musk
    muss must mustard narr narrow natalia nerv nerve ness nest nestor niss nissan nist nond norris north nost numb
    palm palma pand panda pant parlor parth pass past pasta paste pastor pelvis pend penelope penn pent perl perrin
    perth perv pest pinn pint piss pist pitt polk polka pond pont porn poss posse post pratt press prest print prost
    punt punta rand rann ratt rattle rend rent rest risk rivera ross rotten rumble russ rust salman salv samba sand
    sant santa sask sass selma send sent serra serv serve sess sett settle silk silva sind sinn sold solve somalia
    sonnet sonora sorrow stalk stand standard standby starl starr starve stern stint stumble stunt sund surn surrey
    surv surve survey sust talk talm tamara tann tant task tast taste tend tenn tennis tent terr terra terre terror
    tess tessa test thess thistle thorn thorne thumb tiberius tint told tomb torn torre toss tremble trend trent
    tristan truss trust tumble tunnel turn turret valve vand vanessa vass vast velvet vend vendor vent vern verve
    vess vessel vest vind vista voss wald walden walk wand wanda wanna want warlock warn warran warren waste watt
    weiss weld wend went west whirl whisk whiskey whistle wild wilde wind window winn witt womb wond worn worth
    """.split()
)

RUDE = "nazi rape puta caca dick cock piss turd scat pedo fecal anal tits nigg".split()
