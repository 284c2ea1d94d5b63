"""Competition-style sequences, logarithms, exponents, extreme values and complex numbers with LaTeX."""

from __future__ import annotations

from fractions import Fraction
from math import comb
from random import Random
from typing import Final

from specpilot.models.train.generators.competition_algebra import linear_latex, nonzero, poly_latex
from specpilot.models.train.generators.wording import latex_fraction, pick

__all__ = ["PRECALCULUS_TEMPLATES"]

_Problem = tuple[str, list[str], str]


def _arithmetic_sequence(rng: Random) -> _Problem:
    first, step, n = rng.randint(-10, 30), nonzero(rng, -6, 12), rng.randint(8, 50)
    term = first + (n - 1) * step
    total = n * (first + term) // 2
    shown = ", ".join(str(first + i * step) for i in range(4))
    if rng.random() < 0.5:
        return (
            f"What is the {n}{_ordinal(n)} term of the arithmetic sequence ${shown}, \\ldots$?",
            [
                f"The common difference is ${first + step} - ({first}) = {step}$.",
                f"The ${n}{_ordinal(n)}$ term is the first term plus ${n - 1}$ times the common difference.".replace(
                    f"${n}{_ordinal(n)}$", f"{n}{_ordinal(n)}"
                ),
                f"That is ${first} + {n - 1} \\cdot ({step}) = {term}$.",
            ],
            str(term),
        )
    return (
        f"Find the sum of the first ${n}$ terms of the arithmetic sequence ${shown}, \\ldots$.",
        [
            f"The common difference is ${step}$, so the last term is ${first} + {n - 1} \\cdot ({step}) = {term}$.",
            "The sum of an arithmetic series is the number of terms times the average of the first and last terms.",
            f"So the sum is $\\frac{{{n}({first} + ({term}))}}{{2}} = \\frac{{{n} \\cdot ({first + term})}}{{2}} = {total}$.",
        ],
        str(total),
    )


def _ordinal(n: int) -> str:
    if 10 <= n % 100 <= 20:
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")


def _geometric_series(rng: Random) -> _Problem:
    if rng.random() < 0.5:
        a, r, n = rng.randint(1, 7), rng.choice((2, 3, 4, -2)), rng.randint(4, 7)
        total = sum(a * r**i for i in range(n))
        return (
            f"Compute the sum of the first ${n}$ terms of the geometric sequence with first term ${a}$ and common ratio ${r}$.",
            [
                f"The sum of a geometric series is $\\frac{{a(r^n - 1)}}{{r - 1}}$ with $a = {a}$, $r = {r}$, and $n = {n}$.",
                f"We have $({r})^{{{n}}} = {r**n}$, so the sum is $\\frac{{{a} \\cdot ({r**n - 1})}}{{{r - 1}}} = {total}$.",
            ],
            str(total),
        )
    a, den = rng.randint(1, 24), rng.randint(2, 9)
    num = rng.randint(1, den - 1)
    ratio = Fraction(num, den)
    value = a / (1 - ratio)
    return (
        f"What is the sum of the infinite geometric series with first term ${a}$ and common ratio ${latex_fraction(ratio)}$?",
        [
            "The sum of an infinite geometric series with $|r| < 1$ is $\\frac{a}{1 - r}$.",
            f"Here $1 - r = 1 - {latex_fraction(ratio)} = {latex_fraction(1 - ratio)}$.",
            f"So the sum is ${a} \\div {latex_fraction(1 - ratio)} = {latex_fraction(value)}$.",
        ],
        latex_fraction(value),
    )


def _logarithm(rng: Random) -> _Problem:
    base = rng.randint(2, 9)
    p, q = rng.randint(1, 4), rng.randint(1, 4)
    if rng.random() < 0.5:
        return (
            f"{pick(rng, 'Evaluate', 'Compute', 'Find')} $\\log_{{{base}}} {base**p} + \\log_{{{base}}} {base**q}$.",
            [
                f"Since ${base}^{p} = {base**p}$, we have $\\log_{{{base}}} {base**p} = {p}$.",
                f"Since ${base}^{q} = {base**q}$, we have $\\log_{{{base}}} {base**q} = {q}$.",
                f"The sum is ${p} + {q} = {p + q}$.",
            ],
            str(p + q),
        )
    shift = rng.randint(1, 20)
    x = base**p + shift
    return (
        f"Solve $\\log_{{{base}}} (x - {shift}) = {p}$ for $x$.",
        [
            f"By the definition of the logarithm, $x - {shift} = {base}^{{{p}}} = {base**p}$.",
            f"Adding ${shift}$ to both sides gives $x = {base**p} + {shift} = {x}$.",
        ],
        str(x),
    )


def _exponent(rng: Random) -> _Problem:
    base, a, b = rng.choice((2, 3, 5, 7, 10)), rng.randint(2, 5), rng.randint(2, 9)
    k = rng.randint(1, 6)
    x = a * k - b
    return (
        f"If ${base}^{{{linear_latex(1, b)}}} = {base**a}^{{{k}}}$, {pick(rng, 'what is $x$?', 'find the value of $x$.', 'what is the value of $x$?')}",
        [
            f"We write both sides as powers of ${base}$. Since ${base**a} = {base}^{{{a}}}$, the right side is ${base}^{{{a * k}}}$.",
            f"The exponents must be equal, so ${linear_latex(1, b)} = {a * k}$.",
            f"Hence $x = {a * k} - {b} = {x}$.",
        ],
        str(x),
    )


def _absolute_value(rng: Random) -> _Problem:
    c, r = rng.randint(-12, 15), rng.randint(1, 15)
    inner = linear_latex(1, -c)
    if rng.random() < 0.5:
        return (
            f"{pick(rng, 'Find the sum of', 'What is the product of')} all solutions of $|{inner}| = {r}$.".replace(
                "What is the product of all", "Find the sum of all"
            ),
            [
                f"The equation means ${inner} = {r}$ or ${inner} = {-r}$.",
                f"The solutions are $x = {c + r}$ and $x = {c - r}$.",
                f"Their sum is ${c + r} + ({c - r}) = {2 * c}$.",
            ],
            str(2 * c),
        )
    count = 2 * r - 1
    return (
        f"How many integers $x$ satisfy $|{inner}| < {r}$?",
        [
            f"The inequality means ${-r} < {inner} < {r}$.",
            f"So ${c - r} < x < {c + r}$, and the integers run from ${c - r + 1}$ to ${c + r - 1}$.",
            f"That is ${c + r - 1} - ({c - r + 1}) + 1 = {count}$ integers.",
        ],
        str(count),
    )


def _vertex(rng: Random) -> _Problem:
    h, k, a = rng.randint(-9, 9), rng.randint(-20, 20), rng.choice((1, 1, 2, 3, -1, -2))
    poly = poly_latex([a, -2 * a * h, a * h * h + k])
    word = "minimum" if a > 0 else "maximum"
    return (
        f"What is the {word} value of ${poly}$ over all real numbers $x$?",
        [
            f"We complete the square: ${poly} = {'' if a == 1 else '-' if a == -1 else a}({linear_latex(1, -h)})^2 {'+' if k >= 0 else '-'} {abs(k)}$.".replace(
                "(x)^2", "x^2"
            ),
            f"The square is {'smallest' if a > 0 else 'zero, its smallest value,'} when $x = {h}$.",
            f"Then the expression equals ${k}$, and this is the {word}.",
        ],
        str(k),
    )


def _binomial_coefficient(rng: Random) -> _Problem:
    n, c = rng.randint(4, 8), rng.randint(1, 3)
    k = rng.randint(1, n - 1)
    value = comb(n, k) * c ** (n - k)
    return (
        f"What is the coefficient of $x^{{{k}}}$ in the expansion of $(x + {c})^{{{n}}}$?",
        [
            f"By the binomial theorem, the term with $x^{{{k}}}$ is $\\binom{{{n}}}{{{k}}} x^{{{k}}} \\cdot {c}^{{{n - k}}}$.",
            f"We have $\\binom{{{n}}}{{{k}}} = {comb(n, k)}$ and ${c}^{{{n - k}}} = {c ** (n - k)}$.",
            f"The coefficient is ${comb(n, k)} \\cdot {c ** (n - k)} = {value}$.",
        ],
        str(value),
    )


def _complex_product(rng: Random) -> _Problem:
    a, b, c, d = nonzero(rng, -6, 8), nonzero(rng, -6, 8), nonzero(rng, -6, 8), nonzero(rng, -6, 8)

    def z(p: int, q: int) -> str:
        part = ("" if abs(q) == 1 else str(abs(q))) + "i"
        return (
            part
            if p == 0 and q > 0
            else f"-{part}"
            if p == 0
            else str(p)
            if q == 0
            else f"{p} {'+' if q > 0 else '-'} {part}"
        )

    re, im = a * c - b * d, a * d + b * c
    return (
        f"{pick(rng, 'Simplify', 'Compute', 'Evaluate')} $({z(a, b)})({z(c, d)})$, where $i^2 = -1$.",
        [
            f"Multiplying out gives ${a * c} + ({a * d})i + ({b * c})i + ({b * d})i^2$.",
            f"Since $i^2 = -1$, the real part is ${a * c} - ({b * d}) = {re}$ and the imaginary part is ${a * d} + ({b * c}) = {im}$.",
            f"So the product is ${z(re, im)}$.",
        ],
        z(re, im),
    )


def _mixture_equation(rng: Random) -> _Problem:
    n, d = rng.randint(3, 40), rng.randint(2, 5)
    s = rng.randint(2, 5)
    total = sum(n + i for i in range(s))
    names = {2: "two", 3: "three", 4: "four", 5: "five"}
    return (
        f"The sum of {names[s]} consecutive integers is ${total}$. What is ${d}$ times the {pick(rng, 'smallest', 'least')} of them?",
        [
            f"Let the smallest integer be $n$. Then the sum is ${s}n + {s * (s - 1) // 2} = {total}$.",
            f"So ${s}n = {total - s * (s - 1) // 2}$ and $n = {n}$.",
            f"The requested value is ${d} \\cdot {n} = {d * n}$.",
        ],
        str(d * n),
    )


PRECALCULUS_TEMPLATES: Final = (
    _arithmetic_sequence, _geometric_series, _logarithm, _exponent, _absolute_value, _vertex, _binomial_coefficient,
    _complex_product, _mixture_equation,
)  # fmt: skip
