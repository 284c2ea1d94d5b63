"""Competition-style number theory with LaTeX."""

from __future__ import annotations

from math import gcd, lcm
from random import Random
from typing import Final

from specpilot.models.train.generators.wording import pick

__all__ = ["NUMBER_TEMPLATES"]

_Problem = tuple[str, list[str], str]
_DOT: Final = " \\cdot "


def _factorise(n: int) -> dict[int, int]:
    out: dict[int, int] = {}
    p = 2
    while n > 1:
        while n % p == 0:
            out[p] = out.get(p, 0) + 1
            n //= p
        p += 1
    return out


def _factor_latex(n: int) -> str:
    return " \\cdot ".join(str(p) if e == 1 else f"{p}^{e}" for p, e in _factorise(n).items())


def _smooth(rng: Random) -> int:
    n = 1
    while not 12 <= n <= 900:
        n = 2 ** rng.randint(0, 4) * 3 ** rng.randint(0, 3) * 5 ** rng.randint(0, 2) * 7 ** rng.randint(0, 1)
    return n


def _divisor_count(rng: Random) -> _Problem:
    n = _smooth(rng)
    factors = _factorise(n)
    count = 1
    for e in factors.values():
        count *= e + 1
    if rng.random() < 0.6:
        return (
            f"How many positive {pick(rng, 'divisors', 'factors', 'integer divisors')} does ${n}$ have?",
            [
                f"The prime factorization of ${n}$ is ${_factor_latex(n)}$.",
                "A divisor is found by choosing an exponent for each prime, from $0$ up to the exponent in the factorization.",
                f"So the number of divisors is ${_DOT.join(f'({e} + 1)' for e in factors.values())} = {count}$.",
            ],
            str(count),
        )
    total = 1
    for p, e in factors.items():
        total *= sum(p**i for i in range(e + 1))
    sums = " \\cdot ".join(str(sum(p**i for i in range(e + 1))) for p, e in factors.items())
    return (
        f"What is the sum of the positive divisors of ${n}$?",
        [
            f"The prime factorization of ${n}$ is ${_factor_latex(n)}$.",
            "The sum of the divisors is the product of the sums $1 + p + \\cdots + p^e$ over all primes $p$ with exponent $e$.",
            f"These sums give ${sums} = {total}$." if len(factors) > 1 else f"Here this is ${total}$.",
        ],
        str(total),
    )


def _gcd_lcm(rng: Random) -> _Problem:
    g = rng.randint(2, 18)
    a, b = (g * v for v in rng.sample(range(2, 16), 2))
    d, m = gcd(a, b), lcm(a, b)
    if rng.random() < 0.5:
        big, small = max(a, b), min(a, b)
        steps = ["We use the Euclidean algorithm."]
        while small:
            steps.append(f"${big} = {big // small} \\cdot {small} + {big % small}$.")
            big, small = small, big % small
        steps.append(
            f"The last nonzero remainder is ${d}$."
            if len(steps) > 2
            else f"The remainder is zero, so the answer is ${d}$."
        )
        return (
            f"{pick(rng, 'Find the greatest common divisor of', 'Compute the greatest common factor of')} ${a}$ and ${b}$.",
            steps,
            str(d),
        )
    return (
        f"What is the least common multiple of ${a}$ and ${b}$?",
        [
            f"We factor both numbers: ${a} = {_factor_latex(a)}$ and ${b} = {_factor_latex(b)}$.",
            f"Their greatest common divisor is ${d}$.",
            f"The least common multiple is $\\frac{{{a} \\cdot {b}}}{{{d}}} = {m}$.",
        ],
        str(m),
    )


def _remainder_power(rng: Random) -> _Problem:
    m = rng.randint(5, 13)
    a = rng.randint(2, 12)
    if a % m in (0, 1):
        return _remainder_power(rng)
    n = rng.randint(20, 200)
    cycle: list[int] = []
    value = a % m
    while value not in cycle:
        cycle.append(value)
        value = value * a % m
    if value != cycle[0]:
        return _remainder_power(rng)
    k = len(cycle)
    answer = pow(a, n, m)
    index = n % k or k
    assert cycle[index - 1] == answer
    return (
        f"What is the remainder when ${a}^{{{n}}}$ is divided by ${m}$?",
        [
            f"We compute the powers of ${a}$ modulo ${m}$: ${', '.join(map(str, cycle))}$, and then they repeat.",
            f"The cycle has length ${k}$. We have ${n} = {k} \\cdot {n // k} + {n % k}$.",
            f"So ${a}^{{{n}}}$ leaves the same remainder as ${a}^{{{index}}}$, which is ${answer}$.",
        ],
        str(answer),
    )


def _crt(rng: Random) -> _Problem:
    m, n = rng.sample((3, 4, 5, 7, 8, 9, 11, 13), 2)
    if gcd(m, n) != 1:
        return _crt(rng)
    if m < n:
        m, n = n, m
    x = rng.randint(max(m, n), m * n - 1)
    r, s = x % m, x % n
    tried = []
    y = r
    while y % n != s:
        tried.append(y)
        y += m
    return (
        (
            f"What is the {pick(rng, 'smallest', 'least')} positive integer that leaves a remainder of ${r}$ when divided by ${m}$ and a remainder of ${s}$ when divided by ${n}$?",
            [
                f"The numbers that leave remainder ${r}$ modulo ${m}$ are ${', '.join(str(r + m * i) for i in range(4))}, \\ldots$.",
                f"We look for the first of them that leaves remainder ${s}$ modulo ${n}$.",
                f"The number ${y}$ works, because ${y} = {y // m} \\cdot {m} + {r}$ and ${y} = {y // n} \\cdot {n} + {s}$.",
            ],
            str(y),
        )
        if y > 0
        else _crt(rng)
    )


def _base_change(rng: Random) -> _Problem:
    b = rng.randint(2, 9)
    n = rng.randint(b * b, b**4 - 1)
    digits: list[int] = []
    v = n
    while v:
        digits.append(v % b)
        v //= b
    digits.reverse()
    text = "".join(map(str, digits))
    if rng.random() < 0.5:
        steps = [f"The digits of ${text}_{{{b}}}$ stand for powers of ${b}$."]
        terms = [f"{d} \\cdot {b ** (len(digits) - 1 - i)}" for i, d in enumerate(digits)]
        values = [str(d * b ** (len(digits) - 1 - i)) for i, d in enumerate(digits)]
        steps.append(f"So the value is ${' + '.join(terms)}$.")
        steps.append(f"This equals ${' + '.join(values)} = {n}$.")
        return (
            f"{pick(rng, 'Convert', 'Write')} ${text}_{{{b}}}$ {pick(rng, 'to', 'in')} base $10$.".replace(
                "Convert", "Convert"
            )
            .replace("Write " + f"${text}_{{{b}}}$ to", f"Write ${text}_{{{b}}}$ in")
            .replace(f"Convert ${text}_{{{b}}}$ in", f"Convert ${text}_{{{b}}}$ to"),
            steps,
            str(n),
        )
    steps = [f"We divide by ${b}$ again and again and write down the remainders."]
    v = n
    while v:
        steps.append(f"${v} = {v // b} \\cdot {b} + {v % b}$.")
        v //= b
    steps.append(f"Reading the remainders from the last to the first gives ${text}_{{{b}}}$.")
    return f"Express the base-ten number ${n}$ in base ${b}$.", steps, f"{text}_{{{b}}}"


def _units_digit(rng: Random) -> _Problem:
    a, b, n, m = rng.randint(2, 29), rng.randint(2, 29), rng.randint(5, 60), rng.randint(5, 60)
    x, y = pow(a, n, 10), pow(b, m, 10)

    def cycle(base: int) -> list[int]:
        out: list[int] = []
        value = base % 10
        while value not in out:
            out.append(value)
            value = value * base % 10
        return out

    ca, cb = cycle(a), cycle(b)
    return (
        f"{pick(rng, 'What is the units digit of', 'Find the last digit of')} ${a}^{{{n}}} + {b}^{{{m}}}$"
        + "?",
        [
            f"The units digits of the powers of ${a}$ repeat with the cycle ${', '.join(map(str, ca))}$ of length ${len(ca)}$, so ${a}^{{{n}}}$ ends in ${x}$.",
            f"The units digits of the powers of ${b}$ repeat with the cycle ${', '.join(map(str, cb))}$ of length ${len(cb)}$, so ${b}^{{{m}}}$ ends in ${y}$.",
            f"Since ${x} + {y} = {x + y}$, the sum ends in ${(x + y) % 10}$.",
        ],
        str((x + y) % 10),
    )


def _multiples(rng: Random) -> _Problem:
    low = rng.randint(1, 200)
    high = low + rng.randint(50, 800)
    p, q = rng.sample((2, 3, 4, 5, 6, 7, 9, 10, 11), 2)
    m = lcm(p, q)

    def count(k: int) -> int:
        return high // k - (low - 1) // k

    if rng.random() < 0.5:
        total = count(p) + count(q) - count(m)
        return (
            f"How many integers from ${low}$ to ${high}$ are divisible by ${p}$ or by ${q}$?",
            [
                f"There are ${count(p)}$ multiples of ${p}$ and ${count(q)}$ multiples of ${q}$ in this range.",
                f"A number divisible by both is a multiple of ${m}$, and there are ${count(m)}$ of those.",
                f"By inclusion and exclusion, the count is ${count(p)} + {count(q)} - {count(m)} = {total}$.",
            ],
            str(total),
        )
    return (
        f"How many multiples of ${p}$ are there between ${low}$ and ${high}$, inclusive?",
        [
            f"The number of multiples of ${p}$ up to ${high}$ is $\\lfloor {high} / {p} \\rfloor = {high // p}$.",
            f"The number of multiples of ${p}$ below ${low}$ is $\\lfloor {low - 1} / {p} \\rfloor = {(low - 1) // p}$.",
            f"The difference is ${high // p} - {(low - 1) // p} = {count(p)}$.",
        ],
        str(count(p)),
    )


NUMBER_TEMPLATES: Final = (
    _divisor_count, _divisor_count, _gcd_lcm, _remainder_power, _crt, _base_change, _units_digit, _multiples,
)  # fmt: skip
