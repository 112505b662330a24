"""Classification of a turn: a question, noise, or another language.

Pure. Noise has no words: random letters, one word over and over, hesitation. Another language is recognised
by its script or by its commonest words, so one word alone may pass as unknown. Both are answered as such: a
fact in answer to noise is worse than a request to repeat.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from enum import Enum

from parley.models.llm.small_talk import is_noise, spoken_words

_LETTERS = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_VOWEL = re.compile(r"[aeiouy]")
_LONGEST_WORD = 30
_PART_LETTERS = 3
# Repetitions such as "la la la" and "blah blah blah blah blah", "na na na na hey".
_REPEATED_ONE, _REPEATED_TWO = 3, 5
_UNKNOWN_SHARE = 0.5
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


class TurnKind(Enum):
    """Kind of a turn."""

    QUESTION = "question"
    NOISE = "noise"
    FOREIGN = "foreign"


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


class Intelligible:
    """Classifier that distinguishes questions from noise and other languages. Thread-safe.

    Args:
        texts: the documents; their words are known, and their main language is the accepted one.
        known_words: words of the language; empty where there is no list, and then only words without a vowel
            count as unknown.
    """

    def __init__(self, texts: Iterable[str], known_words: Collection[str] = ()) -> None:
        self._known = known_words
        counts: Counter[str] = Counter()
        self._of_documents: set[str] = set()
        for text in texts:
            counts[language_of(text) or ""] += 1
            self._of_documents.update(spoken_words(text))
        del counts[""]
        self.language = counts.most_common(1)[0][0] if counts else "English"

    def judge(self, text: str) -> TurnKind:
        """Return the kind of a turn."""
        words = spoken_words(text)
        if words and (is_noise(words) or _is_repetition(words)):
            # "Um" and "la la la" are words of other languages as well.
            return TurnKind.NOISE
        language = language_of(text)
        if language is not None and language != self.language and not self._is_answered(text):
            return TurnKind.FOREIGN
        return TurnKind.NOISE if self._is_noise(words) else TurnKind.QUESTION

    def _is_answered(self, text: str) -> bool:
        """Return whether every word is in the documents: a name in them may look foreign."""
        words = _LETTERS.findall(text.lower())
        return all(word in self._of_documents for word in words)

    def _is_noise(self, words: Sequence[str]) -> bool:
        spoken = [word for word in words if not word.isdigit()]
        if is_noise(words) or not spoken:
            return True
        content = [word for word in spoken if word not in _ENGLISH and word.replace("'", "").isalpha()]
        unknown = [word for word in content if not self._is_known(word)]
        return (
            bool(content)
            and len(unknown) >= _UNKNOWN_SHARE * len(content)
            and len(unknown) > 0
            and (len(unknown) * 3 > len(words) or len(unknown) == len(content) == len(words))
        )

    def _is_known(self, word: str) -> bool:
        if word in self._of_documents:
            return True
        if len(word) > _LONGEST_WORD:
            return False
        if not self._known:
            return _VOWEL.search(word) is not None
        base = word.split("'")[0]
        if any(form in self._known for form in word_forms(base)):
            return True
        # "Payslips" is "pay" and "slips".
        parts = ((base[:at], base[at:]) for at in range(_PART_LETTERS, len(base) - _PART_LETTERS + 1))
        return any(first in self._known and second in self._known for first, second in parts)


def _is_repetition(words: Sequence[str]) -> bool:
    distinct = len(set(words))
    return (distinct == 1 and len(words) >= _REPEATED_ONE) or (distinct == 2 and len(words) >= _REPEATED_TWO)


def word_forms(word: str) -> Iterable[str]:
    """Yield a word and the words of which it may be a form: "payments" and "payment"."""
    yield word
    for suffix, ending in _ENDINGS:
        if word.endswith(suffix) and len(word) > len(suffix) + 2:
            stem = word.removesuffix(suffix) + ending
            yield stem
            if stem[-1:] == stem[-2:-1]:
                yield stem[:-1]
