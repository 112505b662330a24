"""Identification of languages other than English, and of English words and their forms. Pure.

Another language is recognised by its script or by its commonest words, so one word alone may pass as unknown.
"""

import re
from collections import Counter
from collections.abc import Iterable

_LETTERS = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_VOWEL = re.compile(r"[aeiouy]")
_FOREIGN_SCRIPT_SHARE = 0.3

# The commonest words of each language that are not English words.
_MARKERS: dict[str, frozenset[str]] = {
    name: frozenset(words.split())
    for name, words in {
        "German": "der das den dem und ich nicht ist ein eine einen meine mein mit für auf wie viel kann "
        "können haben habe "
        "wo wann warum wer sie wir ihr bitte danke guten tag hallo zu von bei nach über kostet gibt "
        "sind werden "
        "wird noch auch aber oder wenn dass verstehe",
        "French": "le la les des une je vous nous est sont que qui quoi pour avec dans sur pas mon ma mes "
        "votre vos combien "
        "comment quand où pourquoi bonjour merci oui voudrais peux peut puis avez cette ce ça très et "
        "ou du au coûte "
        "coute comprends ne",
        "Spanish": "el la los las una un yo que qué para con por mi mis su cuánto cuanto cuesta cómo como "
        "cuándo cuando "
        "dónde donde hola gracias puedo puede quiero tengo necesito es son está estoy favor del al y sí "
        "entiendo "
        "nada muy usted buenos buenas días",
        "Italian": "il lo gli una che per con mio mia quanto costa come quando dove perché ciao buongiorno "
        "grazie posso può "
        "vorrei voglio sono è ho della del di vengono non nel alla più anche chiude apre capisco",
        "Portuguese": "o os uma um que para com meu minha quanto custa como quando onde olá obrigado "
        "obrigada posso pode "
        "quero tenho preciso é são está não do da em mais fica você muito",
        "Dutch": "het een ik niet en mijn met voor hoe hoeveel kan kunnen heb heeft waar wanneer waarom wie "
        "jullie "
        "alstublieft dank goedendag van naar kost zijn wordt nog ook maar als dat deze nieuwe",
        "Polish": "nie się jest czy jak ile gdzie kiedy dlaczego dzień dobry proszę dziękuję mam mogę "
        "chcę "
        "moja mój na do "
        "że może być są kosztuje jaka jaki po",
        "Swedish": "jag det är en ett och inte hur mycket var när varför hej tack kan har min mitt "
        "för på "
        "med vad som "
        "kostar nytt ska vill",
        "Turkish": "ne kadar nasıl nerede zaman neden merhaba teşekkür ben bir bu ve için var mı "
        "mi değil "
        "istiyorum benim "
        "yeni",
    }.items()
}  # fmt: skip
_ENGLISH = frozenset(
    "the a an and or but of to in on at for from with by is are was were be been am do does did can "
    "could will would "
    "should may must have has had i you he she it we they my your his her its our their this that these "
    "those what "
    "which who when where why how not no yes please thank thanks me us them there here if so as about "
    "any some all "
    "much many more tell get want need like know".split()
)
_NOT_ENGLISH_LETTERS = frozenset("äöüßàâçèéêëîïôûùñ¿¡áíóúãõåøæœłąęśżźćńşğıİ")


_ENDINGS = (
    ("s", ""), ("es", ""), ("ed", ""), ("ed", "e"), ("ing", ""), ("ing", "e"), ("ly", ""), ("er", ""),
    ("d", ""),
)  # fmt: skip


def language_of(text: str) -> str | None:
    """Return the name of the language of a text, "other" for another script, None where it is uncertain."""
    letters = [letter for letter in text if letter.isalpha()]
    if not letters:
        return None
    if sum(ord(letter) > 0x24F for letter in letters) >= _FOREIGN_SCRIPT_SHARE * len(letters):
        return "other"
    words = _LETTERS.findall(text.lower().replace("\u2019", "'"))
    # In "l'heure" the article counts as a word.
    words = [part for word in words for part in (word, *word.split("'")[1:])]
    counts = Counter({name: sum(word in markers for word in words) for name, markers in _MARKERS.items()})
    name, found = counts.most_common(1)[0]
    english = sum(word in _ENGLISH for word in words)
    accented = any(letter in _NOT_ENGLISH_LETTERS for letter in text.lower())
    if found + accented > english and (found > 1 or (found and (accented or len(words) <= 2))):
        # "No" and "me" belong to many languages; two of them are not evidence of Spanish.
        return name if found * 3 >= len(words) or accented else None
    if english:
        return "English"
    return None


def is_common(word: str) -> bool:
    """Return whether a word is one of the commonest."""
    return word in _ENGLISH


def is_pronounceable(word: str) -> bool:
    """Return whether a word has a vowel."""
    return _VOWEL.search(word) is not None


def word_forms(word: str) -> Iterable[str]:
    """Yield a word and the words of which it may be a form: "payments" and "payment"."""
    yield word
    for suffix, ending in _ENDINGS:
        if word.endswith(suffix) and len(word) > len(suffix) + 2:
            stem = word.removesuffix(suffix) + ending
            yield stem
            if stem[-1:] == stem[-2:-1]:
                yield stem[:-1]
