"""Words that name grammars must not produce: English words and common names within their reach, and rude syllables."""

from __future__ import annotations

from quaere.worlds.schema import words

BLOCKED = frozenset(
    words("""
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
    """)
)

RUDE = words("nazi rape puta caca dick cock piss turd scat pedo fecal anal tits nigg")
