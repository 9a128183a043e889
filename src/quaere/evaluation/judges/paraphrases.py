"""Handwritten paraphrases: for each passage one true and one false statement in other words.

The corrupted reports of `probes.py` share most words with their sources, so rules that compare words do well on them.
Here the true statements use other words and the false ones similar words, so only a judge that understands the text
does well. The rules of `reports/citations.py` were not tuned on these, and must not be.

    PARAPHRASES[0]  # passage, true statement, false statement
"""

from __future__ import annotations

PARAPHRASES: tuple[tuple[str, str, str], ...] = (
    (
        "The ferry between Korrin and Tallow was closed in 1911 after the new iron bridge opened to traffic.",
        "Once people could cross by the iron bridge, the Korrin to Tallow ferry service ended in 1911.",
        "The ferry between Korrin and Tallow was closed because it had become unsafe.",
    ),
    (
        "Annual rainfall on the plateau averages 412 millimetres, most of it falling between May and July.",
        "The plateau gets roughly 410 mm of rain a year, mainly in early summer.",
        "Rainfall on the plateau is highest in winter.",
    ),
    (
        "The guild admitted women as full members for the first time in 1789, and Marta Oleen was the first of them.",
        "Marta Oleen became the guild's first female member in 1789.",
        "Marta Oleen was refused membership of the guild in 1789.",
    ),
    (
        "Copper from the Esker mine was shipped down the Oss to the smelters at Brill.",
        "The smelters at Brill received their copper by river from the Esker mine.",
        "The smelters at Brill shipped copper up the Oss to the Esker mine.",
    ),
    (
        "A survey of 1,204 households found that 63 percent heated with wood and 21 percent with coal.",
        "Nearly two thirds of the households surveyed used wood for heating.",
        "Coal was the most common fuel among the households surveyed.",
    ),
    (
        "The library lost some 9,000 volumes in the flood; the map collection, kept upstairs, was unharmed.",
        "Because they were stored on an upper floor, the maps survived the flood that ruined about 9,000 books.",
        "The flood destroyed the library's map collection.",
    ),
    (
        "Tests showed that the new alloy loses a third of its strength above 400 degrees.",
        "At temperatures beyond 400 degrees the alloy becomes markedly weaker.",
        "The alloy keeps its strength at temperatures above 400 degrees.",
    ),
    (
        "Governor Hask pardoned the rebels in the spring, against the advice of his council.",
        "The council had counselled against it, but Hask let the rebels go free in spring.",
        "On the advice of his council, Governor Hask pardoned the rebels in the spring.",
    ),
    (
        "The species nests on cliffs and has been seen inland only twice, in 1954 and 1987.",
        "Sightings away from the coast are extremely rare: only two are on record.",
        "The species is commonly seen inland.",
    ),
    (
        "Exports of linen doubled between 1820 and 1830, while those of wool fell by a tenth.",
        "In the decade from 1820 linen exports grew twofold as wool declined slightly.",
        "Exports of wool doubled between 1820 and 1830.",
    ),
    (
        "The tower is 68 metres high, four metres lower than the cathedral it was meant to outdo.",
        "At 68 metres the tower fell short of the cathedral.",
        "The tower, at 68 metres, is the tallest building of the town, above the cathedral.",
    ),
    (
        "The committee found no evidence that the fire had been started deliberately.",
        "Arson could not be proved, the committee concluded.",
        "The committee found evidence that the fire had been started deliberately.",
    ),
    (
        "Venn's first design, of 1698, was rejected; the second, with twelve arches, was built four years later.",
        "Only Venn's second plan, the one with twelve arches, was carried out.",
        "Venn's first design, of 1698, was built with twelve arches.",
    ),
    (
        "Trade with Nevin resumed in 1921 and by 1925 exceeded its level before the war.",
        "Four years after it restarted, commerce with Nevin had more than recovered.",
        "Trade with Nevin never recovered after the war.",
    ),
    (
        "The dialect has lost its dual forms, which survive only in two songs and a counting rhyme.",
        "Apart from a couple of songs and a rhyme, dual forms have vanished from the dialect.",
        "Dual forms are still in everyday use in the dialect.",
    ),
    (
        "Half of the grant was spent on salaries, a third on instruments and the rest on travel.",
        "Salaries took the largest part of the grant.",
        "Most of the grant was spent on travel.",
    ),
)
