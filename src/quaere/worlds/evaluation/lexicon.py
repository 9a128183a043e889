"""The words of the evaluation family: name parts, literal values, and small change for sentences."""

from __future__ import annotations

from quaere.worlds.schema import lines, words

NAMES: dict[str, tuple[str, ...]] = {
    "onset": words("b br d dr f g gr h k l m n p pr r s sk st t th tr v w wh"),
    "vowel": words("a e i o u ae ei o a e"),
    "coda": words("ld lm lv nn nd rl rn rv rsk sk ss st tt mb nt rr lk rth"),
    "root": ("{onset}{vowel}{coda}",),
    "town_end": words("gate wick holm mere stead thorpe combe ney haven ster"),
    "town": ("^{root}{town_end}",),
    "old_town": ("^{root}aster", "^{root}eburh", "^{root}ingas"),
    "river_end": words("e en ow a ir el is"),
    "river": ("^{root}{river_end}",),
    "valley_end": words("in or an ey und"),
    "valley": ("^{root}{valley_end}",),
    "dale": ("^{root}dale", "^{root}erdale"),
    "first": words("Or Tam Bri Kel Vesh Hal Ild Mir Nev Osk Per Quil Ros Sef Thal Ul Wen Yar Zel Ans Bel Cor Dag Edr"),
    "middle": words("a e i o so li ri va mo ne du"),
    "given_she": ("{first}{middle}{she_end}",),
    "given_he": ("{first}{middle}{he_end}",),
    "she_end": words("lya wen ra sa nne tha dis lis ka mira vy rit"),
    "he_end": words("rick mund dan vor lan kel mar nos tan gar wulf dric"),
    "surname_end": words("ewin oway eld orin ard et ow une ison acre by"),
    "surname": ("^{root}{surname_end}",),
    "initial": words("A. B. C. D. E. F. G. H. J. K. L. M. N. O. P. R. S. T. V. W."),
    "craft": words("Weavers Coopers Chandlers Tanners Glaziers Potters Dyers Fullers Saddlers Cutlers Joiners Hatters"),
    "adj": words(
        "Amber Bitter Black Blue Brass Bright Broken Copper Crooked Distant Drowned Early Empty Faded False Fallen "
        "Gilded Green Grey Hidden Hollow Honest Idle Iron Ivory Late Lost Long Lucky Mild Narrow Northern Old Pale "
        "Patient Quiet Red Restless Rusted Salt Scarlet Second Silent Silver Slow Small Solemn Southern Steady Sudden "
        "Sunken Tall Tin Unlit Velvet Wandering Western White Wild Winter Wooden Yellow"
    ),
    "object": words(
        "Ledger Lantern Orchard Key Candle Harvest Mirror Almanac Kettle Ladder Window Feather Thimble Anvil Bell "
        "Compass Garden Loom Ferry Letter Wheel Basket Drum Crown Stair Needle Cradle Gate Mill Saddle Spindle Sparrow "
        "Threshold Tower Trumpet Well Whistle Acorn Bonfire Cellar Chimney Cloak Coin Field Furrow Glove Hammer Hearth "
        "Hedge Honeycomb Inkwell Jug Lamp Meadow Nail Oar Pantry Quill Ribbon Scale Shovel Tinderbox Umbrella Vine"
    ),
    "creature": words(
        "Petrel Heron Curlew Plover Gannet Tern Osprey Kestrel Lapwing Linnet Wren Dunlin Otter Seal Dolphin Porpoise "
        "Pilgrim Rover Venture Promise Fortune Maiden Widow Lark Swan Teal Drake Marten Badger Vixen Courier Gleaner"
    ),
    "tide": ("^{root}entide", "^{root}mas", "^{root}erwake"),
    "sound_end": words("elin oul arra iole andra ume iphon ette"),
    "sound": ("{root}{sound_end}",),
    "food": ("{root}ock", "{root}ish", "{root}en", "{root}le"),
    "course": words("pie stew broth cake pudding loaf relish hotpot"),
    "epithet": lines(
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
    "colour": words("crimson ochre russet indigo olive grey scarlet saffron violet green"),
    "weekday": words("Monday Tuesday Wednesday Thursday Friday Saturday"),
    "month": words("February March April June July August September October November"),
    "crop": words("barley flax rye hops apples plums lavender walnuts buckwheat mustard"),
    "emblem": words("hedgehog heron anchor beehive sickle swan ladder acorn salmon thistle goat"),
    "cargo": words("wool salt timber wine tin honey slate grain tallow cloth"),
    "stone": words("granite sandstone limestone basalt slate marble flint brick"),
    "wood": words("walnut pearwood maple yew rosewood cherry ash spruce"),
    "ingredient": words("turnip eel hazelnut mutton chestnut leek quince herring pearl-barley goose"),
}

PHRASES: dict[str, tuple[str, ...]] = {
    "temper": words(
        "patient stubborn soft-spoken exacting restless plain-dealing cheerful solitary quick-witted unhurried "
        "argumentative frugal generous absent-minded industrious"
    ),
    "gathering": lines(
        """
        in market taverns
        among apprentices
        around winter hearths
        wherever old stories are traded
        by people who never met anyone of that name
        """
    ),
    "trade": words("cooper chandler tanner ropemaker glazier potter weaver carter baker ferryman wheelwright hatter"),
    "nth": words("second third fourth fifth sixth youngest eldest"),
    "season": words("spring summer autumn winter"),
    "weather": words("wet bitter dry mild windy stormy foggy"),
    "pet": lines(
        """
        one-eyed dog
        tame jackdaw
        bad-tempered goose
        grey cat
        old donkey
        lame fox
        """
    ),
    "quality": words("patience thrift kindness stubbornness punctuality honesty appetite"),
    "letters_about": lines(
        """
        the price of lamp oil
        bad roads
        a leaking roof
        the weather
        unpaid bills
        the neighbours' hens
        """
    ),
    "knack": lines(
        """
        tell the hour by smell
        whistle two notes at once
        guess a stranger's age to the month
        walk a fence rail backwards
        name every star in the winter sky
        judge a cheese by tapping it
        """
    ),
    "bugbear": words("moneylenders almanacs oysters physicians barbers umbrellas lawyers parrots"),
    "quarrel": lines(
        """
        a borrowed wheelbarrow
        the price of candles
        a game of skittles
        a misdelivered letter
        the ownership of a pear tree
        an unreturned lantern
        """
    ),
    "souvenir": lines(
        """
        a carved spoon
        a basket of seedlings
        a bad cough
        a new hat
        two goats
        a sack of dried beans
        """
    ),
    "mischief": lines(
        """
        drawing in the margins
        ringing the bell at midnight
        a talent for mimicry
        falling asleep at prayers
        climbing onto the roof
        """
    ),
    "place_adj": words("small steep walled windswept prosperous sleepy crowded tidy busy old-fashioned half-timbered"),
    "view": lines(
        """
        slate roofs and leaning chimneys
        long rope-walks
        whitewashed houses
        terraced gardens
        narrow lanes
        tall granaries
        """
    ),
    "bird": words("swifts herons jackdaws gulls starlings kingfishers wagtails"),
    "calamity": lines(
        """
        flood
        great fire
        long drought
        hard frost
        plague of mice
        landslip
        """
    ),
    "good": words("thread rope soap candles vinegar buttons needles paper ink baskets"),
    "bridge_adj": words("narrow humpbacked mossy sturdy crooked handsome low-slung ivy-grown much-patched"),
    "school_adj": words("draughty strict respectable cramped small old-fashioned ivy-covered thrifty hard-working"),
    "feast_adj": words("noisy muddy good-natured chaotic splendid drowsy rowdy much-loved expensive"),
    "water_adj": words("slow brown shallow restless clear winding cold silty peat-dark"),
    "fish": words("trout pike eels perch grayling roach"),
    "oddity": lines(
        """
        a stuffed bear
        a cracked bell
        a clock without hands
        an unsigned portrait
        a bench worn hollow by waiting
        """
    ),
}

LEXICON: dict[str, tuple[str, ...]] = {**NAMES, **VALUES, **PHRASES}

PLACE_ALIAS_SENTENCES = (
    "Older maps print the name as {A}.",
    "People who live nearby still say {A}.",
    "In tax rolls and lawsuits it goes by {A}.",
    "Carters know it better as {A}.",
    "Milestones have {A}, which means the same place.",
)
