"""The words of the warm-up family: name parts, literal values, and small change for sentences."""

from __future__ import annotations

from quaere.worlds.schema import lines, words

NAMES: dict[str, tuple[str, ...]] = {
    "con": words("b c d f g l m n p r s t v z sc tr"),
    "vow": words("a e i o u a o"),
    "pair": ("{con}{vow}{con}{vow}",),
    "island_end": words("ra ssa nti lope ndo mia rquo leth vessa nai"),
    "island": ("^{pair}{island_end}",),
    "old_island": ("^{pair}polis", "^{pair}nesos", "^{pair}mundi"),
    "saint": ("^{pair}rius", "^{pair}lia", "^{pair}sius"),
    "first": words("Alo Bene Cali Dori Elu Fara Gine Hilo Iva Jalo Leni Maro Nilo Oru Pali Rena Sole Tavi Umo Vale"),
    "given_she": ("{first}{con}{vow}{she_end}",),
    "given_he": ("{first}{con}{vow}{he_end}",),
    "she_end": words("ssa nda tta vine lise mena rith"),
    "he_end": words("ro nzo sto vio lmo dio rco"),
    "surname_end": words("vano rello ssini dotti mare lunga ppo nzetti quin rossa"),
    "surname": ("^{pair}{surname_end}",),
    "heading": words(
        "Azure Bold Coral Crested Daring Dusky Elder Ember Eastern Fabled Fair Feral Foaming Frosted Gallant Golden "
        "Graceful Great High Hushed Jaded Jolly Kindly Lilac Lofty Lone Merry Misty Moonlit Noble Opal Painted Pearl "
        "Placid Proud Purple Regal Rosy Royal Ruby Sable Sacred Sapphire Serene Shining Sleepless Stern Stormy Summer "
        "Sunlit Tawny Tender Thorny Topaz Upper Verdant Vivid Weary Whispering Young"
    ),
    "figure": words(
        "Admiral Baroness Beggar Bride Cardinal Clown Cobbler Countess Dauphin Dowager Duellist Emperor Falconer "
        "Gambler Ghost Giant Gondolier Governess Hermit Highwayman Huntress Jester Juggler Magistrate Marquis Miller "
        "Minstrel Nightwatch Nun Oracle Orphan Page Pasha Pirate Princess Puppeteer Queen Regent Shepherd Siren "
        "Soothsayer Squire Stowaway Sultan Swordsman Tailor Tinker Tutor Usurer Valet Viceroy Vintner Wanderer Warden "
        "Weathercock Widower"
    ),
    "paper": words("Courier Gazette Herald Examiner Sentinel Chronicle Observer Dispatch Mercury Register"),
    "wares": words("Pepper Coral Sponge Cotton Indigo Sugar Amber Cork Silk Nutmeg Camphor Ebony"),
    "flower": words("Jasmine Camellia Oleander Magnolia Wisteria Hibiscus Gardenia Mimosa Orchid Peony Lotus Myrtle"),
    "style": lines(
        """
        the Bearded
        the Deaf
        the Sunburnt
        the Stammerer
        the Barefoot
        the Squinting
        the Dapper
        the Toothless
        """
    ),
}

VALUES: dict[str, tuple[str, ...]] = {
    "hat": lines(
        """
        straw boater
        tricorne
        fez
        beret
        bowler
        turban
        skullcap
        sombrero
        """
    ),
    "export": words("sponges coral raisins pumice tobacco almonds sardines capers saltpetre vanilla"),
    "fuel": words("kerosene whale-oil colza paraffin acetylene charcoal pitch"),
    "mineral": words("sulphur copper cobalt nickel mercury zinc cinnabar silver graphite alum"),
    "device": words("dolphin parrot octopus tortoise crescent trident pineapple seahorse comet lobster"),
    "fabric": words("velvet brocade damask calico sailcloth taffeta corduroy muslin"),
    "metal": words("bronze pewter lead iron copper gunmetal steel"),
    "tree": words("cypress fig tamarind cedar palm lemon olive eucalyptus mulberry carob"),
    "drink": words("mead anisette cider absinthe perry elderberry-wine gin kummel"),
}

PHRASES: dict[str, tuple[str, ...]] = {
    "manner": words(
        "theatrical vain tireless courteous secretive gloomy reckless methodical superstitious talkative pious moody "
        "long-winded punctual charming"
    ),
    "crowd": lines(
        """
        the harbour coffee houses
        more than one drawing room
        the reading societies
        the smaller islands
        ferry passengers
        """
    ),
    "relative": words("uncle godmother stepfather grandmother brother-in-law half-sister great-aunt"),
    "weekend": words("picnics regattas card-parties masquerades auctions lectures duels"),
    "hobby": lines(
        """
        pressing seaweed
        breeding canaries
        painting miniature ships
        composing limericks
        repairing barometers
        flying kites
        """
    ),
    "gift": lines(
        """
        a snuffbox
        a stuffed pelican
        an ivory fan
        a barrel of limes
        a mechanical nightingale
        a silk umbrella
        """
    ),
    "ailment": words("gout sunstroke toothache malaria rheumatism lumbago insomnia"),
    "gale": lines(
        """
        hurricane
        earthquake
        waterspout
        hailstorm
        tidal wave
        eruption
        """
    ),
    "terrain": words("rocky palm-fringed volcanic low-lying wooded sun-bleached barren lagoon-bound scrubby chalky"),
    "beast": words("goats tortoises flamingos pelicans geckos donkeys fruit-bats cormorants"),
    "edifice_adj": words("grand domed cramped gilded draughty crumbling whitewashed elegant lopsided echoing"),
    "gadget": words("chandelier barometer telescope weathervane sundial pendulum music-box"),
    "rumour": lines(
        """
        a hidden staircase
        a smuggler's tunnel
        a ghostly cellist
        buried treasure
        a forged signature
        a secret marriage
        """
    ),
    "hour": lines(
        """
        at noon
        at low tide
        before sunrise
        on moonless nights
        during siesta
        at the turn of the tide
        """
    ),
    "crop_noise": words("lemons melons figs pomegranates oranges dates"),
}

LEXICON: dict[str, tuple[str, ...]] = {**NAMES, **VALUES, **PHRASES}

PLACE_ALIAS_SENTENCES = (
    "Pilots' handbooks prefer {A}.",
    "[Fishermen|Smugglers] use another name, {A}.",
    "Postcards say {A}.",
    "Before the last census it was officially {A}.",
    "A second name, {A}, is just as common.",
)
