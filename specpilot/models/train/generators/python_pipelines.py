"""Exercises built by combination: which elements, what is done with them, what is returned."""

from __future__ import annotations

from random import Random
from typing import Final

from specpilot.models.train.generators.python_spec import Spec

__all__ = ["draw_pipeline"]

# (word for the name, description of the elements, condition on ITEM)
_PREDICATES: Final = (
    ("even", "even numbers", "ITEM % 2 == 0"),
    ("odd", "odd numbers", "ITEM % 2 != 0"),
    ("positive", "positive numbers", "ITEM > 0"),
    ("negative", "negative numbers", "ITEM < 0"),
    ("multiples_of_K", "numbers divisible by K", "ITEM % K == 0"),
    ("above_K", "numbers greater than K", "ITEM > K"),
    ("below_K", "numbers less than K", "ITEM < K"),
    ("nonzero", "nonzero numbers", "ITEM != 0"),
    ("single_digit", "single-digit numbers", "-10 < ITEM < 10"),
    ("ending_in_K", "numbers whose last digit is K", "abs(ITEM) % 10 == K"),
)
# (word, description, expression)
_MAPS: Final = (
    ("", "", "ITEM"),
    ("squared", "squares of the", "ITEM * ITEM"),
    ("cubed", "cubes of the", "ITEM ** 3"),
    ("doubled", "doubles of the", "2 * ITEM"),
    ("absolute", "absolute values of the", "abs(ITEM)"),
    ("negated", "negatives of the", "-ITEM"),
    ("halved", "halves (rounded down) of the", "ITEM // 2"),
)
_CHARACTERS: Final = (
    ("vowels", "vowels", 'CH.lower() in "aeiou"'),
    ("consonants", "consonants", 'CH.isalpha() and CH.lower() not in "aeiou"'),
    ("uppercase", "uppercase letters", "CH.isupper()"),
    ("lowercase", "lowercase letters", "CH.islower()"),
    ("digits", "digits", "CH.isdigit()"),
    ("spaces", "spaces", 'CH == " "'),
    ("letters", "letters", "CH.isalpha()"),
    ("non_letters", "characters that are not letters", "not CH.isalpha()"),
)
_WORD_TESTS: Final = (
    ("long", "longer than K characters", "len(WORD) > K"),
    ("short", "shorter than K characters", "len(WORD) < K"),
    ("length_K", "with exactly K characters", "len(WORD) == K"),
    ("palindromic", "that read the same backwards", "WORD == WORD[::-1]"),
    ("vowel_start", "that start with a vowel", 'WORD[0].lower() in "aeiou"'),
    ("vowel_end", "that end with a vowel", 'WORD[-1].lower() in "aeiou"'),
    ("e", "that contain the letter e", '"e" in WORD'),
    ("even_length", "with an even number of characters", "len(WORD) % 2 == 0"),
)


def _numbers(rng: Random) -> Spec:
    names: tuple[str, ...]
    tasks: tuple[str, ...]
    body: tuple[str, ...]
    word, described, test = rng.choice(_PREDICATES)
    mapped, phrase, expression = rng.choice(_MAPS)
    subject = f"{phrase} {described}" if phrase else described
    the = f"the {subject}"
    stem = "_".join(part for part in (mapped, word) if part)
    kind = rng.randrange(6)
    if kind == 0:
        names, returns = (f"sum_{stem}", f"sum_of_{stem}", f"total_{stem}", f"add_{stem}"), "int"
        tasks = (
            f"find the sum of {the} in a list",
            f"add up {the} in the given list",
            f"calculate the sum of {the} of a list of integers",
        )
        body = (
            f"    ACC = 0\n    for ITEM in XS:\n        if {test}:\n            ACC += {expression}\n    return ACC",
            f"    return sum({expression} for ITEM in XS if {test})",
        )
    elif kind == 1:
        names, returns = (f"count_{word}", f"{word}_count", f"number_of_{word}"), "int"
        tasks = (
            f"count the {described} in a list",
            f"find how many {described} the given list contains",
            f"count the number of {described} in a list of integers",
        )
        body = (
            f"    count = 0\n    for ITEM in XS:\n        if {test}:\n            count += 1\n    return count",
            f"    return sum(1 for ITEM in XS if {test})",
            f"    return len([ITEM for ITEM in XS if {test}])",
        )
    elif kind == 2:
        names, returns = (
            (f"{stem}_list", f"get_{stem}", f"filter_{stem}", f"find_{stem}", f"select_{stem}"),
            "List[int]",
        )
        tasks = (
            f"return a list of {the} in the given list",
            f"get {the} from a list in their original order",
            f"find {the} in a list of integers",
        )
        body = (
            f"    OUT = []\n    for ITEM in XS:\n        if {test}:\n            OUT.append({expression})\n    return OUT",
            f"    return [{expression} for ITEM in XS if {test}]",
        )
    elif kind == 3:
        names, returns = (f"max_{stem}", f"largest_{stem}", f"biggest_{stem}"), "int"
        tasks = (
            f"find the largest of {the} in a list, or return None if there are none",
            f"return the maximum of {the} in the given list and None when there is no such number",
        )
        body = (
            f"    best = None\n    for ITEM in XS:\n        if {test}:\n            value_now = {expression}\n            if best is None or value_now > best:\n                best = value_now\n    return best",
            f"    candidates = [{expression} for ITEM in XS if {test}]\n    if not candidates:\n        return None\n    return max(candidates)",
            f"    return max(({expression} for ITEM in XS if {test}), default=None)",
        )
    elif kind == 4:
        names, returns = (f"sorted_{stem}", f"sort_{stem}", f"{stem}_sorted"), "List[int]"
        order, flag = rng.choice((("ascending", ""), ("descending", ", reverse=True")))
        tasks = (
            f"return {the} of a list sorted in {order} order",
            f"sort {the} in the given list in {order} order",
        )
        body = (
            f"    OUT = [{expression} for ITEM in XS if {test}]\n    return sorted(OUT{flag})",
            f"    OUT = []\n    for ITEM in XS:\n        if {test}:\n            OUT.append({expression})\n    OUT.sort({flag[2:]})\n    return OUT",
        )
    else:
        names, returns = (f"first_{word}", f"index_of_{word}", f"position_of_{word}"), "int"
        singular = described.replace("numbers", "number")
        tasks = (
            f"find the index of the first {singular} in a list, or -1 if there is none",
            f"return the position of the first {singular} in the given list and -1 when there is no such number",
        )
        body = (
            f"    for index, ITEM in enumerate(XS):\n        if {test}:\n            return index\n    return -1",
            f"    index = 0\n    while index < len(XS):\n        ITEM = XS[index]\n        if {test}:\n            return index\n        index += 1\n    return -1",
        )
    return Spec(names, ("XS",), ("ints",), ("List[int]",), returns, tasks, body, (2, 3, 4, 5, 6, 7))


def _characters(rng: Random) -> Spec:
    names: tuple[str, ...]
    tasks: tuple[str, ...]
    body: tuple[str, ...]
    word, described, test = rng.choice(_CHARACTERS)
    kind = rng.randrange(5)
    if kind == 0:
        names, returns = (f"count_{word}", f"{word}_count", f"number_of_{word}"), "int"
        tasks = (
            f"count the {described} in a string",
            f"find the number of {described} in the given string",
            f"count how many {described} a string contains",
        )
        body = (
            f"    count = 0\n    for CH in TEXT:\n        if {test}:\n            count += 1\n    return count",
            f"    return sum(1 for CH in TEXT if {test})",
        )
    elif kind == 1:
        names, returns = (f"remove_{word}", f"strip_{word}", f"without_{word}"), "str"
        tasks = (f"remove all {described} from a string", f"return the given string without its {described}")
        body = (
            f'    OUT = ""\n    for CH in TEXT:\n        if not ({test}):\n            OUT += CH\n    return OUT',
            f'    return "".join(CH for CH in TEXT if not ({test}))',
        )
    elif kind == 2:
        names, returns = (f"keep_{word}", f"extract_{word}", f"only_{word}"), "str"
        tasks = (f"keep only the {described} of a string", f"extract the {described} from the given string")
        body = (
            f'    OUT = ""\n    for CH in TEXT:\n        if {test}:\n            OUT += CH\n    return OUT',
            f'    return "".join(CH for CH in TEXT if {test})',
            f'    kept = [CH for CH in TEXT if {test}]\n    return "".join(kept)',
        )
    elif kind == 3:
        sign = rng.choice("*#-_.")
        names, returns = (f"mask_{word}", f"replace_{word}", f"hide_{word}"), "str"
        tasks = (
            f"replace all {described} in a string with '{sign}'",
            f"replace the {described} of the given string by the character '{sign}'",
        )
        body = (
            f'    OUT = ""\n    for CH in TEXT:\n        if {test}:\n            OUT += "{sign}"\n        else:\n            OUT += CH\n    return OUT',
            f'    return "".join("{sign}" if {test} else CH for CH in TEXT)',
        )
    else:
        names, returns = (f"{word}_positions", f"positions_of_{word}", f"find_{word}"), "List[int]"
        tasks = (
            f"find the positions of all {described} in a string",
            f"return a list with the indices of the {described} in the given string",
        )
        body = (
            f"    OUT = []\n    for i, CH in enumerate(TEXT):\n        if {test}:\n            OUT.append(i)\n    return OUT",
            f"    return [i for i, CH in enumerate(TEXT) if {test}]",
        )
    return Spec(names, ("TEXT",), (rng.choice(("title", "title", "mixed")),), ("str",), returns, tasks, body)


def _words(rng: Random) -> Spec:
    names: tuple[str, ...]
    tasks: tuple[str, ...]
    body: tuple[str, ...]
    word, described, test = rng.choice(_WORD_TESTS)
    from_text = rng.random() < 0.5
    source = "TEXT.split()" if from_text else "WORDS"
    where = "in a sentence" if from_text else "in a list of strings"
    kind = rng.randrange(4)
    if kind == 0:
        names, returns = (f"count_{word}_words", f"{word}_word_count"), "int"
        tasks = (f"count the words {where} {described}", f"find the number of words {described} {where}")
        body = (
            f"    count = 0\n    for WORD in {source}:\n        if {test}:\n            count += 1\n    return count",
            f"    return sum(1 for WORD in {source} if {test})",
        )
    elif kind == 1:
        names, returns = (f"get_{word}_words", f"{word}_words", f"find_{word}_words"), "List[str]"
        tasks = (f"return a list of the words {where} {described}", f"find all words {described} {where}")
        body = (
            f"    OUT = []\n    for WORD in {source}:\n        if {test}:\n            OUT.append(WORD)\n    return OUT",
            f"    return [WORD for WORD in {source} if {test}]",
            f"    return list(filter(lambda WORD: {test}, {source}))",
        )
    elif kind == 2:
        names, returns = (f"upper_{word}_words", f"shout_{word}_words", f"capitalize_{word}_words"), "str"
        tasks = (f"change the words {described} {where} to upper case and join all words with spaces",)
        body = (
            f'    OUT = []\n    for WORD in {source}:\n        if {test}:\n            OUT.append(WORD.upper())\n        else:\n            OUT.append(WORD)\n    return " ".join(OUT)',
            f'    return " ".join(WORD.upper() if {test} else WORD for WORD in {source})',
        )
    else:
        names, returns = (f"reverse_{word}_words", f"flip_{word}_words"), "str"
        tasks = (f"reverse the words {described} {where} and join all words with spaces",)
        body = (
            f'    OUT = []\n    for WORD in {source}:\n        if {test}:\n            OUT.append(WORD[::-1])\n        else:\n            OUT.append(WORD)\n    return " ".join(OUT)',
            f'    return " ".join(WORD[::-1] if {test} else WORD for WORD in {source})',
        )
    parameter, inputs, kind_name = ("TEXT", "title", "str") if from_text else ("WORDS", "words", "List[str]")
    return Spec(names, (parameter,), (inputs,), (kind_name,), returns, tasks, body, (3, 4, 5, 6))


def draw_pipeline(rng: Random) -> Spec:
    """A random combination over numbers, characters or words."""
    return rng.choice((_numbers, _numbers, _characters, _words))(rng)
