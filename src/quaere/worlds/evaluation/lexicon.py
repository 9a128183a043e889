"""The words of the evaluation family: name parts, literal values, and small change for sentences."""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.strip().splitlines())


NAMES: dict[str, tuple[str, ...]] = {
    "onset": _words("b br d dr f g gr h k l m n p pr r s sk st t th tr v w wh"),
    "vowel": _words("a e i o u ae ei o a e"),
    "coda": _words("ld lm lv nn nd rl rn rv rsk sk ss st tt mb nt rr lk rth"),
    "root": ("{onset}{vowel}{coda}",),
    "town_end": _words("gate wick holm mere stead thorpe combe ney haven ster"),
    "town": ("^{root}{town_end}",),
    "old_town": ("^{root}aster", "^{root}eburh", "^{root}ingas"),
    "river_end": _words("e en ow a ir el is"),
    "river": ("^{root}{river_end}",),
    "valley_end": _words("in or an ey und"),
    "valley": ("^{root}{valley_end}",),
    "dale": ("^{root}dale", "^{root}erdale"),
    "first": _words("Or Tam Bri Kel Vesh Hal Ild Mir Nev Osk Per Quil Ros Sef Thal Ul Wen Yar Zel Ans Bel Cor Dag Edr"),
    "middle": _words("a e i o so li ri va mo ne du"),
    "given_she": ("{first}{middle}{she_end}",),
    "given_he": ("{first}{middle}{he_end}",),
    "she_end": _words("lya wen ra sa nne tha dis lis ka mira vy rit"),
    "he_end": _words("rick mund dan vor lan kel mar nos tan gar wulf dric"),
    "surname_end": _words("ewin oway eld orin ard et ow une ison acre by"),
    "surname": ("^{root}{surname_end}",),
    "initial": _words("A. B. C. D. E. F. G. H. J. K. L. M. N. O. P. R. S. T. V. W."),
    "craft": _words("Weavers Coopers Chandlers Tanners Glaziers Potters Dyers Fullers Saddlers Cutlers Joiners Hatters"),
    "adj": _words(
        "Amber Bitter Black Blue Brass Bright Broken Copper Crooked Distant Drowned Early Empty Faded False Fallen "
        "Gilded Green Grey Hidden Hollow Honest Idle Iron Ivory Late Lost Long Lucky Mild Narrow Northern Old Pale "
        "Patient Quiet Red Restless Rusted Salt Scarlet Second Silent Silver Slow Small Solemn Southern Steady Sudden "
        "Sunken Tall Tin Unlit Velvet Wandering Western White Wild Winter Wooden Yellow"
    ),
    "object": _words(
        "Ledger Lantern Orchard Key Candle Harvest Mirror Almanac Kettle Ladder Window Feather Thimble Anvil Bell "
        "Compass Garden Loom Ferry Letter Wheel Basket Drum Crown Stair Needle Cradle Gate Mill Saddle Spindle Sparrow "
        "Threshold Tower Trumpet Well Whistle Acorn Bonfire Cellar Chimney Cloak Coin Field Furrow Glove Hammer Hearth "
        "Hedge Honeycomb Inkwell Jug Lamp Meadow Nail Oar Pantry Quill Ribbon Scale Shovel Tinderbox Umbrella Vine"
    ),
    "creature": _words(
        "Petrel Heron Curlew Plover Gannet Tern Osprey Kestrel Lapwing Linnet Wren Dunlin Otter Seal Dolphin Porpoise "
        "Pilgrim Rover Venture Promise Fortune Maiden Widow Lark Swan Teal Drake Marten Badger Vixen Courier Gleaner"
    ),
    "tide": ("^{root}entide", "^{root}mas", "^{root}erwake"),
    "sound_end": _words("elin oul arra iole andra ume iphon ette"),
    "sound": ("{root}{sound_end}",),
    "food": ("{root}ock", "{root}ish", "{root}en", "{root}le"),
    "course": _words("pie stew broth cake pudding loaf relish hotpot"),
    "epithet": _lines(
        """
        the Tall
        the Quiet
        the Left-Handed
        the Stout
        the Red
        the Limping
        the Thrifty
        the Far-Sighted
        the Hoarse
        the Freckled
        """
    ),
}

VALUES: dict[str, tuple[str, ...]] = {
    "colour": _words("crimson ochre russet indigo olive grey scarlet saffron violet green"),
    "weekday": _words("Monday Tuesday Wednesday Thursday Friday Saturday"),
    "month": _words("February March April June July August September October November"),
    "crop": _words("barley flax rye hops apples plums lavender walnuts buckwheat mustard"),
    "emblem": _words("hedgehog heron anchor beehive sickle swan ladder acorn salmon thistle goat"),
    "cargo": _words("wool salt timber wine tin honey slate grain tallow cloth"),
    "stone": _words("granite sandstone limestone basalt slate marble flint brick"),
    "wood": _words("walnut pearwood maple yew rosewood cherry ash spruce"),
    "ingredient": _words("turnip eel hazelnut mutton chestnut leek quince herring pearl-barley goose"),
}

PHRASES: dict[str, tuple[str, ...]] = {
    "temper": _words(
        "patient stubborn soft-spoken exacting restless plain-dealing cheerful solitary quick-witted unhurried "
        "argumentative frugal generous absent-minded industrious"
    ),
    "gathering": _lines(
        """
        in market taverns
        among apprentices
        around winter hearths
        wherever old stories are traded
        by people who never met anyone of that name
        """
    ),
    "trade": _words("cooper chandler tanner ropemaker glazier potter weaver carter baker ferryman wheelwright hatter"),
    "nth": _words("second third fourth fifth sixth youngest eldest"),
    "season": _words("spring summer autumn winter"),
    "weather": _words("wet bitter dry mild windy stormy foggy"),
    "pet": _lines(
        """
        one-eyed dog
        tame jackdaw
        bad-tempered goose
        grey cat
        old donkey
        lame fox
        """
    ),
    "quality": _words("patience thrift kindness stubbornness punctuality honesty appetite"),
    "letters_about": _lines(
        """
        the price of lamp oil
        bad roads
        a leaking roof
        the weather
        unpaid bills
        the neighbours' hens
        """
    ),
    "knack": _lines(
        """
        tell the hour by smell
        whistle two notes at once
        guess a stranger's age to the month
        walk a fence rail backwards
        name every star in the winter sky
        judge a cheese by tapping it
        """
    ),
    "bugbear": _words("moneylenders almanacs oysters physicians barbers umbrellas lawyers parrots"),
    "quarrel": _lines(
        """
        a borrowed wheelbarrow
        the price of candles
        a game of skittles
        a misdelivered letter
        the ownership of a pear tree
        an unreturned lantern
        """
    ),
    "souvenir": _lines(
        """
        a carved spoon
        a basket of seedlings
        a bad cough
        a new hat
        two goats
        a sack of dried beans
        """
    ),
    "mischief": _lines(
        """
        drawing in the margins
        ringing the bell at midnight
        a talent for mimicry
        falling asleep at prayers
        climbing onto the roof
        """
    ),
    "place_adj": _words("small steep walled windswept prosperous sleepy crowded tidy busy old-fashioned half-timbered"),
    "view": _lines(
        """
        slate roofs and leaning chimneys
        long rope-walks
        whitewashed houses
        terraced gardens
        narrow lanes
        tall granaries
        """
    ),
    "bird": _words("swifts herons jackdaws gulls starlings kingfishers wagtails"),
    "calamity": _lines(
        """
        flood
        great fire
        long drought
        hard frost
        plague of mice
        landslip
        """
    ),
    "good": _words("thread rope soap candles vinegar buttons needles paper ink baskets"),
    "bridge_adj": _words("narrow humpbacked mossy sturdy crooked handsome low-slung ivy-grown much-patched"),
    "school_adj": _words("draughty strict respectable cramped small old-fashioned ivy-covered thrifty hard-working"),
    "feast_adj": _words("noisy muddy good-natured chaotic splendid drowsy rowdy much-loved expensive"),
    "water_adj": _words("slow brown shallow restless clear winding cold silty peat-dark"),
    "fish": _words("trout pike eels perch grayling roach"),
    "oddity": _lines(
        """
        a stuffed bear
        a cracked bell
        a clock without hands
        a portrait nobody can identify
        a bench worn hollow by waiting
        """
    ),
}

LEXICON: dict[str, tuple[str, ...]] = {**NAMES, **VALUES, **PHRASES}
