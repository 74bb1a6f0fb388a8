"""The English Snowball stemmer ("Porter 2"), word by word.

It reduces lower-case words to stems so that `queens` and `queen` meet. Called once per distinct word of a text column,
never per row.
"""

from __future__ import annotations

from functools import lru_cache

_VOWELS = frozenset("aeiouy")
_LI_ENDINGS = frozenset("cdeghkmnrt")
_DOUBLES = ("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt")
_WHOLE = {
    "skis": "ski",
    "skies": "sky",
    "idly": "idl",
    "gently": "gentl",
    "ugly": "ugli",
    "early": "earli",
    "only": "onli",
    "singly": "singl",
    **{word: word for word in ("sky", "news", "howe", "atlas", "cosmos", "bias", "andes")},
}
_KEPT_ING = frozenset(("inning", "outing", "canning", "herring", "earring", "evening"))
_KEPT_EED = frozenset(("proceed", "exceed", "succeed"))
_R1_PREFIXES = ("arsen", "commun", "emerg", "gener", "inter", "later", "organ", "past", "univers")
# Suffixes of each step, longest first; the first that fits decides, whether or not its condition then holds.
_STEP_2 = (
    ("ational", "ate"),
    ("fulness", "ful"),
    ("iveness", "ive"),
    ("ization", "ize"),
    ("ousness", "ous"),
    ("biliti", "ble"),
    ("lessli", "less"),
    ("tional", "tion"),
    ("alism", "al"),
    ("aliti", "al"),
    ("ation", "ate"),
    ("entli", "ent"),
    ("fulli", "ful"),
    ("iviti", "ive"),
    ("ousli", "ous"),
    ("ogist", "og"),
    ("abli", "able"),
    ("alli", "al"),
    ("anci", "ance"),
    ("ator", "ate"),
    ("enci", "ence"),
    ("izer", "ize"),
    ("bli", "ble"),
    ("ogi", "og"),
    ("li", ""),
)
_STEP_3 = (
    ("ational", "ate"),
    ("tional", "tion"),
    ("alize", "al"),
    ("ative", ""),
    ("icate", "ic"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ness", ""),
    ("ful", ""),
)
_STEP_4 = (
    "ement",
    "able",
    "ance",
    "ence",
    "ible",
    "ment",
    "ant",
    "ate",
    "ent",
    "ion",
    "ism",
    "iti",
    "ive",
    "ize",
    "ous",
    "al",
    "er",
    "ic",
)


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """The stem of a lower-case word.

    >>> stem("queens"), stem("running"), stem("relational")
    ('queen', 'run', 'relat')
    """
    if word in _WHOLE:
        return _WHOLE[word]
    if len(word) <= 2:
        return word
    word = _mark_consonant_y(word)
    first, second = _regions(word)
    word = _past(_plural(word), first)
    if len(word) > 2 and word[-1] in "yY" and word[-2] not in _VOWELS:
        word = word[:-1] + "i"
    word = _step_2(word, first)
    word = _step_3(word, first, second)
    word = _step_4(word, second)
    return _final(word, first, second).replace("Y", "y")


def _mark_consonant_y(word: str) -> str:
    if "y" not in word:
        return word
    letters = list(word)
    for index, letter in enumerate(letters):
        if letter == "y" and (index == 0 or letters[index - 1] in _VOWELS):
            letters[index] = "Y"
    return "".join(letters)


def _regions(word: str) -> tuple[int, int]:
    """Where R1 and R2 begin: each after the first non-vowel that follows a vowel, in the word and in R1."""
    first = next((len(prefix) for prefix in _R1_PREFIXES if word.startswith(prefix)), None)
    if first is None:
        first = _after_vowel_and_consonant(word, 0)
    return first, _after_vowel_and_consonant(word, first)


def _after_vowel_and_consonant(word: str, start: int) -> int:
    for index in range(start + 1, len(word)):
        if word[index] not in _VOWELS and word[index - 1] in _VOWELS:
            return index + 1
    return len(word)


def _has_vowel(text: str) -> bool:
    return any(letter in _VOWELS for letter in text)


def _ends_in_short_syllable(word: str) -> bool:
    if word.endswith("past"):
        return True
    if len(word) == 2:
        return word[0] in _VOWELS and word[1] not in _VOWELS
    if len(word) < 2:
        return False
    before, vowel, last = word[-3], word[-2], word[-1]
    return before not in _VOWELS and vowel in _VOWELS and last not in _VOWELS and last not in "wxY"


def _plural(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ied", "ies")):
        return word[:-2] if len(word) > 4 else word[:-1]
    if word.endswith(("us", "ss")):
        return word
    if word.endswith("s") and _has_vowel(word[:-2]):
        return word[:-1]
    return word


def _past(word: str, first: int) -> str:
    for suffix in ("eedly", "ingly", "edly", "eed", "ing", "ed"):
        if not word.endswith(suffix):
            continue
        base = word[: -len(suffix)]
        if suffix.startswith("eed"):
            kept = base + "eed" in _KEPT_EED
            return base + "ee" if len(base) >= first and not kept else word
        if suffix == "ing" and (word in _KEPT_ING or (len(base) == 2 and base[1] == "y" and base[0] not in _VOWELS)):
            return word if word in _KEPT_ING else base[0] + "ie"
        if not _has_vowel(base):
            return word
        if base.endswith(("at", "bl", "iz")):
            return base + "e"
        if base.endswith(_DOUBLES):
            # The doubled letter of `add`, `egg` and `off` belongs to the word.
            return base if len(base) == 3 and base[0] in "aeo" else base[:-1]
        if len(base) <= first and _ends_in_short_syllable(base):
            return base + "e"
        return base
    return word


def _step_2(word: str, first: int) -> str:
    for suffix, replacement in _STEP_2:
        if not word.endswith(suffix):
            continue
        base = word[: -len(suffix)]
        if len(base) < first:
            return word
        if suffix == "ogi" and not base.endswith("l"):
            return word
        if suffix == "li" and not (base and base[-1] in _LI_ENDINGS):
            return word
        return base + replacement
    return word


def _step_3(word: str, first: int, second: int) -> str:
    for suffix, replacement in _STEP_3:
        if word.endswith(suffix):
            base = word[: -len(suffix)]
            return base + replacement if len(base) >= (second if suffix == "ative" else first) else word
    return word


def _step_4(word: str, second: int) -> str:
    for suffix in _STEP_4:
        if word.endswith(suffix):
            base = word[: -len(suffix)]
            if len(base) < second or (suffix == "ion" and not base.endswith(("s", "t"))):
                return word
            return base
    return word


def _final(word: str, first: int, second: int) -> str:
    if word.endswith("e"):
        base = word[:-1]
        if len(base) >= second or (len(base) >= first and not _ends_in_short_syllable(base)):
            return base
    elif word.endswith("ll") and len(word) - 1 >= second:
        return word[:-1]
    return word
