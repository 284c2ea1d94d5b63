"""Competition-style counting and probability with LaTeX."""

from __future__ import annotations

from fractions import Fraction
from math import comb, factorial, perm
from random import Random
from typing import Final

from specpilot.models.train.generators.wording import latex_fraction, pick

__all__ = ["COUNTING_TEMPLATES"]

_Problem = tuple[str, list[str], str]
_DOT: Final = " \\cdot "


def _committee(rng: Random) -> _Problem:
    a, b = rng.randint(4, 10), rng.randint(4, 10)
    x, y = rng.randint(2, 3), rng.randint(2, 3)
    one, two = pick(
        rng,
        ("teachers", "students"),
        ("seniors", "juniors"),
        ("red cards", "blue cards"),
        ("novels", "plays"),
        ("violins", "cellos"),
        ("cats", "dogs"),
    )
    what = pick(rng, "committee", "group", "selection", "team")
    value = comb(a, x) * comb(b, y)
    return (
        f"In how many ways can a {what} of ${x}$ {one} and ${y}$ {two} be chosen from ${a}$ {one} and ${b}$ {two}?".replace(
            "$1$ " + one + " and", "$1$ of the " + one + " and"
        ).replace("$1$ " + two + " be", "$1$ of the " + two + " be"),
        [
            f"The {one} can be chosen in $\\binom{{{a}}}{{{x}}} = {comb(a, x)}$ ways.",
            f"The {two} can be chosen in $\\binom{{{b}}}{{{y}}} = {comb(b, y)}$ ways.",
            f"The choices are independent, so the number of ways is ${comb(a, x)} \\cdot {comb(b, y)} = {value}$.",
        ],
        str(value),
    )


_WORDS: Final = (
    "BANANA LETTER PEPPER SUMMIT COFFEE BALLOON SUCCESS PARALLEL GRAMMAR CIRCLE MINIMUM TOMORROW ADDRESS GEESE "
    "KAYAK LEVEL MIRROR OTTO PUPPY RABBIT SEVEN TEETH VALLEY WILLOW COOKIE KITTEN BUBBLE CARROT HAMMER SCHOOL"
).split()


def _word_arrangements(rng: Random) -> _Problem:
    word = rng.choice(_WORDS)
    repeats = {c: word.count(c) for c in dict.fromkeys(word) if word.count(c) > 1}
    value = factorial(len(word))
    for n in repeats.values():
        value //= factorial(n)
    listed = " and ".join(f"${n}$ times the letter {c}" for c, n in repeats.items())
    return (
        f"How many {pick(rng, 'different', 'distinct')} arrangements of the letters of the word {word} are there?",
        [
            f"The word has ${len(word)}$ letters, with {listed}.",
            f"If all letters were different, there would be ${len(word)}! = {factorial(len(word))}$ arrangements.",
            f"We divide by ${_DOT.join(f'{n}!' for n in repeats.values())}$ for the repeated letters and get ${value}$.",
        ],
        str(value),
    )


def _seating(rng: Random) -> _Problem:
    n = rng.randint(4, 8)
    kind = rng.randrange(3)
    if kind == 0:
        return (
            f"In how many ways can ${n}$ people sit around a round table if rotations count as the same seating?",
            [
                "We fix the seat of one person to remove the rotations.",
                f"The other ${n - 1}$ people can be placed in ${n - 1}! = {factorial(n - 1)}$ ways.",
            ],
            str(factorial(n - 1)),
        )
    if kind == 1:
        value = 2 * factorial(n - 1)
        return (
            f"In how many ways can ${n}$ people stand in a row if two of them, {pick(rng, 'Ann and Bob', 'Mia and Tom', 'Lea and Jon')}, must stand next to each other?",
            [
                f"We treat the pair as one block. Then there are ${n - 1}$ objects, which can be ordered in ${n - 1}! = {factorial(n - 1)}$ ways.",
                "Inside the block the two people can stand in $2$ orders.",
                f"The total is $2 \\cdot {factorial(n - 1)} = {value}$.",
            ],
            str(value),
        )
    k = rng.randint(2, 4)
    return (
        f"{pick(rng, 'A club', 'A team', 'A class')} has ${n + 4}$ members. In how many ways can ${k}$ different offices be filled if no one may hold more than one office?",
        [
            f"The first office can be filled in ${n + 4}$ ways, the next in ${n + 3}$ ways, and so on.",
            f"The number of ways is ${_DOT.join(str(n + 4 - i) for i in range(k))} = {perm(n + 4, k)}$.",
        ],
        str(perm(n + 4, k)),
    )


def _dice(rng: Random) -> _Problem:
    target = rng.randint(2, 12)
    count = 6 - abs(7 - target)
    value = Fraction(count, 36)
    if rng.random() < 0.5:
        pairs = ", ".join(f"({i}, {target - i})" for i in range(1, 7) if 1 <= target - i <= 6)
        return (
            f"Two fair six-sided dice are rolled. What is the probability that the sum is ${target}$? Express your answer as a common fraction.",
            [
                "There are $6 \\cdot 6 = 36$ equally likely outcomes.",
                f"The outcomes with sum ${target}$ are ${pairs}$, so there are ${count}$ of them."
                if count > 1
                else f"The only outcome with sum ${target}$ is ${pairs}$.",
                f"The probability is $\\frac{{{count}}}{{36}}"
                + (f" = {latex_fraction(value)}$." if value.denominator != 36 else "$."),
            ],
            latex_fraction(value),
        )
    n, k = rng.randint(3, 7), rng.randint(1, 3)
    ways = comb(n, k)
    p = Fraction(ways, 2**n)
    return (
        f"A fair coin is flipped ${n}$ times. What is the probability of getting exactly ${k}$ {'head' if k == 1 else 'heads'}?",
        [
            f"There are $2^{{{n}}} = {2**n}$ equally likely sequences.",
            f"The number of sequences with exactly ${k}$ {'head' if k == 1 else 'heads'} is $\\binom{{{n}}}{{{k}}} = {ways}$.",
            f"The probability is $\\frac{{{ways}}}{{{2**n}}}"
            + (f" = {latex_fraction(p)}$." if p.denominator != 2**n else "$."),
        ],
        latex_fraction(p),
    )


def _balls(rng: Random) -> _Problem:
    r, b = rng.randint(2, 9), rng.randint(2, 9)
    first, second = pick(rng, ("red", "blue"), ("green", "white"), ("black", "yellow"), ("gold", "silver"))
    what = pick(rng, "marbles", "balls", "chips", "tokens")
    n = r + b
    same = rng.random() < 0.5
    if same:
        good = comb(r, 2) + comb(b, 2)
        detail = f"Both are {first} in $\\binom{{{r}}}{{2}} = {comb(r, 2)}$ ways and both are {second} in $\\binom{{{b}}}{{2}} = {comb(b, 2)}$ ways."
    else:
        good = r * b
        detail = f"One {first} and one {second} can be chosen in ${r} \\cdot {b} = {good}$ ways."
    value = Fraction(good, comb(n, 2))
    raw = f"\\frac{{{good}}}{{{comb(n, 2)}}}"
    return (
        f"A bag contains ${r}$ {first} and ${b}$ {second} {what}. Two {what} are drawn at random without replacement. What is the probability that they have {'the same color' if same else 'different colors'}?",
        [
            f"There are $\\binom{{{n}}}{{2}} = {comb(n, 2)}$ ways to choose two {what}.",
            detail,
            f"The probability is ${raw}$"
            + (f", which simplifies to ${latex_fraction(value)}$." if latex_fraction(value) != raw else "."),
        ],
        latex_fraction(value),
    )


def _expected_value(rng: Random) -> _Problem:
    a, b, k = rng.randint(2, 30), rng.randint(1, 12), rng.randint(1, 5)
    p = Fraction(k, 6)
    value = p * a - (1 - p) * b
    verb = "at most" if k < 6 else "any"
    return (
        f"A fair six-sided die is rolled. You win ${a}$ points if it shows {verb} ${k}$, and you lose ${b}$ points otherwise. What is the expected number of points?",
        [
            f"The probability of winning is $\\frac{{{k}}}{{6}}$ and the probability of losing is $\\frac{{{6 - k}}}{{6}}$.",
            f"The expected value is $\\frac{{{k}}}{{6}} \\cdot {a} - \\frac{{{6 - k}}}{{6}} \\cdot {b} = \\frac{{{k * a} - {(6 - k) * b}}}{{6}}$.",
            f"This equals ${latex_fraction(value)}$.",
        ],
        latex_fraction(value),
    )


def _grid_paths(rng: Random) -> _Problem:
    a, b = rng.randint(2, 7), rng.randint(2, 7)
    value = comb(a + b, a)
    return (
        f"How many paths lead from $(0, 0)$ to $({a}, {b})$ if each step goes one unit right or one unit up?",
        [
            f"Every path has exactly ${a}$ steps to the right and ${b}$ steps up, so it has ${a + b}$ steps in total.",
            f"A path is fixed once we choose which of the ${a + b}$ steps go to the right.",
            f"The number of paths is $\\binom{{{a + b}}}{{{a}}} = {value}$.",
        ],
        str(value),
    )


def _digit_count(rng: Random) -> _Problem:
    n = rng.randint(2, 4)
    kind = rng.randrange(2)
    names = {2: "two", 3: "three", 4: "four"}
    if kind == 0:
        options = [9] + [9 - i for i in range(n - 1)]
        value = 1
        for o in options:
            value *= o
        return (
            f"How many {names[n]}-digit positive integers have all digits different?",
            [
                "The first digit cannot be $0$, so there are $9$ choices for it.",
                "Each later digit may be $0$ but must differ from the digits before it.",
                f"The count is ${_DOT.join(map(str, options))} = {value}$.",
            ],
            str(value),
        )
    digits = rng.sample(range(1, 10), rng.randint(3, 5))
    even = [d for d in digits if d % 2 == 0]
    value = len(digits) ** (n - 1) * len(even)
    return (
        f"How many even {names[n]}-digit numbers can be formed with the digits ${', '.join(map(str, sorted(digits)))}$ if digits may repeat?",
        [
            f"The last digit must be even, so there {'is' if len(even) == 1 else 'are'} ${len(even)}$ {'choice' if len(even) == 1 else 'choices'} for it.",
            f"Each of the other ${n - 1}$ digits can be any of the ${len(digits)}$ digits.",
            f"The count is ${len(digits)}^{{{n - 1}}} \\cdot {len(even)} = {value}$.",
        ],
        str(value),
    )


COUNTING_TEMPLATES: Final = (
    _committee, _word_arrangements, _seating, _dice, _balls, _expected_value, _grid_paths, _digit_count,
)  # fmt: skip
