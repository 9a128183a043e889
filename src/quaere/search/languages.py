"""Languages of texts: which one a text is in, and the words that only make a sentence of it a question.

>>> detect_language(["The bridge is crossed by the road to Korrin, and it was built by a smith."])
'english'
>>> sorted(question_words("english") & {"what", "is", "the", "oss"})
['is', 'what']
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from quaere.search.stemming import NO_STEMMER
from quaere.search.words import fold, terms

_MIN_SHARE = 0.05  # of all words: prose has three times as many common words, tables of another language fewer
_LEAD = 1.2  # over the next language: neighbours (Danish and Norwegian) share many of their words


class _Words(NamedTuple):
    """Frequent words of a language, and those that questions have and pages do not.

    No frequent word is a single letter: those are also the names of variables.
    """

    common: str
    asking: str


_LANGUAGES = {
    "danish": _Words(
        "og det er af til en på med som ikke den der for et de har blev også efter mellem",
        "hvad hvem hvis hvilken hvilket hvilke hvor hvornår hvorfor hvordan er var bliver blev har havde kan kunne "
        "skal skulle vil ville må gør gjorde findes",
    ),
    "dutch": _Words(
        "de het een en van in is dat op te zijn met voor niet aan door ook naar bij wordt",
        "wat wie wiens welk welke waar wanneer waarom hoe is zijn was waren wordt worden heeft hebben had kan "
        "kunnen kon moet moeten zal zou mag doet doen er",
    ),
    "english": _Words(
        "the of and to in is that it for with on by as are this be from at or was an which not",
        "what which who whom whose when where why how do does did doing is are was were be been being can could "
        "should would will may might must has have had there",
    ),
    "finnish": _Words(
        "ja on ei se että oli hän myös joka mutta sen kun ovat tai niin kuin sekä jossa",
        "mikä mitä missä mistä mihin milloin miksi miten kuka kenen ketkä kumpi mitkä on ovat oli olivat onko oliko "
        "voi voiko pitää saa",
    ),
    "french": _Words(
        "le la les de des du et est une un dans pour que qui par sur avec au aux ce cette sont pas",
        "que quel quelle quels quelles qui quoi où quand pourquoi comment combien lequel laquelle est sont était "
        "étaient sera a ont avait peut peuvent doit doivent faut fait il elle y ce",
    ),
    "german": _Words(
        "der die das und in den von zu ist mit des dem ein eine im auf für nicht sich auch als wird",
        "was wer wem wen wessen welche welcher welches welchen welchem wo wohin woher wann warum wieso wie ist sind "
        "war waren wird werden wurde wurden hat haben hatte kann können konnte muss müssen soll sollte darf gibt es",
    ),
    "hungarian": _Words(
        "az és hogy nem is egy ez volt csak meg de van mint már vagy amely",
        "mi mit mely melyik ki kit kinek hol hova honnan mikor miért hogyan hány mennyi van vannak volt voltak lesz "
        "lehet kell",
    ),
    "italian": _Words(
        "il di che la in un per una con non del della le si da sono dei gli nel alla",
        "che cosa quale quali chi dove quando perché come quanto quanti quanta quante è sono era erano fu ha hanno "
        "aveva può possono deve devono fa",
    ),
    "norwegian": _Words(
        "og det er av til en på med som ikke den for et de har ble også etter mellom",
        "hva hvem hvis hvilken hvilket hvilke hvor når hvorfor hvordan er var blir ble har hadde kan kunne skal "
        "skulle vil ville må gjør gjorde finnes",
    ),
    "portuguese": _Words(
        "de que do da em um para com não uma os no se na por mais as dos ao pela são",
        "que qual quais quem onde quando porque porquê como quanto quantos quantas é são era eram foi foram tem têm "
        "tinha pode podem deve devem faz há",
    ),
    "romanian": _Words(
        "și în de la cu pe este nu care un că din pentru sunt fost ale sau mai",
        "ce care cine cui unde când cum cât câți câte este sunt era erau a au fost poate pot trebuie",
    ),
    "russian": _Words(
        "не на что по как это для из от но или при его также был",
        "что какой какая какое какие каком какого кто кого чей где когда куда откуда почему зачем как сколько был "
        "была было были есть может можно нужно ли",
    ),
    "spanish": _Words(
        "de la que el en los del se las por un para con no una su al es lo más como",
        "qué cuál cuáles quién quiénes dónde cuándo cómo cuánto cuántos cuántas por es son era eran fue fueron está "
        "están ha han había puede pueden debe deben hay hace",
    ),
    "swedish": _Words(
        "och att det som en på är av för med till den inte om ett de har var från",
        "vad vem vems vilken vilket vilka var när varför hur är var blir blev har hade kan kunde ska skulle vill "
        "ville måste gör gjorde finns",
    ),
    "turkish": _Words(
        "ve bir bu için ile da de olarak daha çok olan gibi en kadar sonra ancak veya",
        "ne kim kimin hangi nerede nereye nereden neden niçin nasıl kaç mi mı mu mü",
    ),
}


def detect_language(texts: Iterable[str]) -> str:
    """The language most common words of the texts are of; "none" if that is none of those known, or not clear."""
    counts = Counter(word for text in texts for word in terms(text))
    found = {name: sum(counts[word] for word in common) for name, common in _common_words().items()}
    best, second = sorted(found, key=lambda name: -found[name])[:2]
    is_clear = found[best] >= max(_MIN_SHARE * counts.total(), _LEAD * found[second], 1)
    return best if is_clear else NO_STEMMER


@cache
def question_words(language: str) -> frozenset[str]:
    """The folded question words and auxiliary verbs of a language; none where they are not known."""
    return frozenset(fold(_LANGUAGES[language].asking).split()) if language in _LANGUAGES else frozenset()


@cache
def _common_words() -> dict[str, frozenset[str]]:
    return {name: frozenset(fold(words.common).split()) for name, words in _LANGUAGES.items()}
