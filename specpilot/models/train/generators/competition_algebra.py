"""Competition-style algebra with LaTeX: equations, systems, polynomials, functions."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Final

from specpilot.models.train.generators.wording import latex_fraction, pick

__all__ = ["ALGEBRA_TEMPLATES", "linear_latex", "nonzero", "poly_latex"]

_Problem = tuple[str, list[str], str]


def poly_latex(coefficients: list[int], variable: str = "x") -> str:
    """Polynomial text, highest power first: ``[1, -3, 2]`` gives ``x^2 - 3x + 2``."""
    degree = len(coefficients) - 1
    out = ""
    for index, value in enumerate(coefficients):
        power = degree - index
        if value == 0:
            continue
        size = "" if abs(value) == 1 and power else str(abs(value))
        body = size + ("" if power == 0 else variable if power == 1 else f"{variable}^{power}")
        sign = ("-" if value < 0 else "") if not out else (" - " if value < 0 else " + ")
        out += sign + body
    return out or "0"


def linear_latex(a: int, b: int, variable: str = "x") -> str:
    return poly_latex([a, b], variable)


def nonzero(rng: Random, low: int, high: int) -> int:
    value = 0
    while value == 0:
        value = rng.randint(low, high)
    return value


def _linear_equation(rng: Random) -> _Problem:
    v = pick(rng, *"xynt")
    root, a, b = rng.randint(-12, 12), rng.randint(2, 12), rng.randint(-20, 20)
    c = rng.choice([k for k in range(-9, 12) if k not in (a, 0)])
    d = a * root + b - c * root
    ask = pick(
        rng,
        f"Solve for ${v}$:",
        f"Find the value of ${v}$ if",
        f"What is the value of ${v}$ for which",
        f"Determine ${v}$ given that",
    )
    mark = "." if not ask.startswith("What") else "?"
    question = f"{ask} ${linear_latex(a, b, v)} = {linear_latex(c, d, v)}${mark}"
    steps = [
        f"We {pick(rng, 'collect', 'gather')} the terms with ${v}$ on the left side and the constants on the right side.",
        f"Subtracting ${poly_latex([c, 0], v)}$ from both sides gives ${linear_latex(a - c, b, v)} = {d}$.",
        f"Then ${poly_latex([a - c, 0], v)} = {d - b}$, so ${v} = {root}$.",
    ]
    return question, steps, str(root)


def _quadratic_roots(rng: Random) -> _Problem:
    p, q = nonzero(rng, -12, 12), nonzero(rng, -12, 12)
    lead = rng.choice((1, 1, 1, 2, 3))
    poly = poly_latex([lead, -lead * (p + q), lead * p * q])
    factors = f"({linear_latex(1, -p)})({linear_latex(1, -q)})"
    kind = rng.randrange(4)
    start = [
        f"We factor the quadratic. We need two numbers with sum ${p + q}$ and product ${p * q}$, and these are ${p}$ and ${q}$.",
        f"So ${poly} = {lead if lead > 1 else ''}{factors}$, and the roots are $x = {p}$ and $x = {q}$.",
    ]
    if kind == 0 and p != q:
        return (
            f"What is the {pick(rng, 'larger', 'greater')} root of ${poly} = 0$?",
            [*start, f"The larger root is ${max(p, q)}$."],
            str(max(p, q)),
        )
    if kind == 1:
        s = p * p + q * q
        return (
            f"Let $a$ and $b$ be the {pick(rng, 'roots', 'solutions')} of ${poly} = 0$. {pick(rng, 'Find', 'Compute')} $a^2 + b^2$.",
            [
                "By Vieta's formulas, the sum and the product of the roots can be read off the coefficients.",
                f"We get $a + b = {p + q}$ and $ab = {p * q}$.",
                f"Then $a^2 + b^2 = (a + b)^2 - 2ab = {(p + q) ** 2} - 2 \\cdot ({p * q}) = {s}$.",
            ],
            str(s),
        )
    if kind == 2:
        value = Fraction(p + q, p * q)
        return (
            f"Let $r$ and $s$ be the roots of ${poly} = 0$. {pick(rng, 'What is', 'Find the value of')} $\\frac{{1}}{{r}} + \\frac{{1}}{{s}}$"
            + ("?" if rng.random() < 0 else "."),
            [
                f"By Vieta's formulas, $r + s = {p + q}$ and $rs = {p * q}$.",
                f"The expression equals $\\frac{{r + s}}{{rs}} = \\frac{{{p + q}}}{{{p * q}}} = {latex_fraction(value)}$.",
            ],
            latex_fraction(value),
        )
    if p == q:
        return (
            f"Solve ${poly} = 0$.",
            [
                f"We factor: ${poly} = {lead if lead > 1 else ''}({linear_latex(1, -p)})^2$.",
                f"The only solution is $x = {p}$.",
            ],
            str(p),
        )
    low, high = sorted((p, q))
    return (
        f"Find all real solutions of ${poly} = 0$, and enter them from smallest to largest, separated by commas.",
        [*start, "In increasing order this gives the list of solutions."],
        f"{low}, {high}",
    )


def _system(rng: Random) -> _Problem:
    x, y = rng.randint(-9, 12), rng.randint(-9, 12)
    a, b, c, d = nonzero(rng, 1, 6), nonzero(rng, -6, 6), nonzero(rng, 1, 6), nonzero(rng, -6, 6)
    if a * d - b * c == 0:
        return _system(rng)
    e, f = a * x + b * y, c * x + d * y

    def side(p: int, q: int) -> str:
        return poly_latex([p, 0]) + (" + " if q > 0 else " - ") + poly_latex([abs(q), 0], "y")

    ask, answer = pick(
        rng, ("x + y", x + y), ("x", x), ("y", y), ("xy", x * y), ("x - y", x - y), ("(x, y)", 0)
    )
    det = a * d - b * c
    top = e * d - b * f
    steps = [
        f"We eliminate $y$. Multiply the first equation by ${d}$ and the second equation by ${b}$.",
        f"Subtracting the second from the first gives ${poly_latex([det, 0])} = {top}$, so $x = {x}$.",
        f"Putting $x = {x}$ into the first equation gives ${poly_latex([b, 0], 'y')} = {e} - {a * x if a * x >= 0 else f'({a * x})'} = {e - a * x}$, so $y = {y}$.",
    ]
    final = f"({x}, {y})" if ask == "(x, y)" else str(answer)
    if ask not in ("x", "y"):
        steps.append(f"Therefore ${ask} = {final}$.")
    question = pick(
        rng,
        f"If ${side(a, b)} = {e}$ and ${side(c, d)} = {f}$, what is ${ask}$?",
        f"The numbers $x$ and $y$ satisfy\n\\begin{{align*}}\n{side(a, b)} &= {e}, \\\\\n{side(c, d)} &= {f}.\n\\end{{align*}}\nFind ${ask}$.",
    )
    return question, steps, final


def _expand(rng: Random) -> _Problem:
    a, b, c, d = nonzero(rng, 1, 7), nonzero(rng, -9, 9), nonzero(rng, 1, 7), nonzero(rng, -9, 9)
    v = pick(rng, *"xyzab")
    result = poly_latex([a * c, a * d + b * c, b * d], v)
    first = f"({linear_latex(a, b, v)})({linear_latex(c, d, v)})"
    question = f"{pick(rng, 'Expand and simplify', 'Expand the product', 'Write as a polynomial:', 'Multiply out')} ${first}$."
    steps = [
        "We multiply each term of the first factor by each term of the second factor.",
        f"The ${v}^2$ term is ${poly_latex([a, 0], v)} \\cdot {poly_latex([c, 0], v)} = {poly_latex([a * c, 0, 0], v)}$.",
        f"The ${v}$ terms are ${poly_latex([a * d, 0], v)}$ and ${poly_latex([b * c, 0], v)}$, and their sum is ${poly_latex([a * d + b * c, 0], v)}$.",
        f"The constant term is ${b} \\cdot {d if d > 0 else f'({d})'} = {b * d}$.",
    ]
    return question, steps, result


def _function_value(rng: Random) -> _Problem:
    coefficients = [nonzero(rng, -4, 5), rng.randint(-8, 8), rng.randint(-12, 12)]
    f = pick(rng, *"fghpq")
    x, y = rng.randint(-5, 7), rng.randint(-5, 7)

    def at(t: int) -> int:
        return coefficients[0] * t * t + coefficients[1] * t + coefficients[2]

    poly = poly_latex(coefficients)
    if rng.random() < 0.5:
        return (
            f"{pick(rng, 'Let', 'Suppose', 'Given that')} ${f}(x) = {poly}$. {pick(rng, 'Find', 'Compute', 'Evaluate')} ${f}({x})$.".replace(
                "Given that", "We are given that"
            ),
            [
                f"We put $x = {x}$ into the formula.",
                f"The square is $({x})^2 = {x * x}$, so ${f}({x}) = {coefficients[0]} \\cdot {x * x} + ({coefficients[1]}) \\cdot ({x}) + ({coefficients[2]})$.",
                f"This equals ${coefficients[0] * x * x} + ({coefficients[1] * x}) + ({coefficients[2]}) = {at(x)}$.",
            ],
            str(at(x)),
        )
    return (
        f"If ${f}(x) = {poly}$, what is the value of ${f}({x}) - {f}({y})$?",
        [
            f"First, ${f}({x}) = {coefficients[0] * x * x} + ({coefficients[1] * x}) + ({coefficients[2]}) = {at(x)}$.",
            f"Next, ${f}({y}) = {coefficients[0] * y * y} + ({coefficients[1] * y}) + ({coefficients[2]}) = {at(y)}$.",
            f"The difference is ${at(x)} - ({at(y)}) = {at(x) - at(y)}$.",
        ],
        str(at(x) - at(y)),
    )


def _composition(rng: Random) -> _Problem:
    a, b, c, d, x = (
        rng.randint(2, 7),
        nonzero(rng, -9, 9),
        rng.randint(2, 7),
        nonzero(rng, -9, 9),
        rng.randint(-4, 8),
    )
    inner = c * x + d
    outer = a * inner + b
    given = (
        f"{pick(rng, 'Let', 'Suppose that')} $f(x) = {linear_latex(a, b)}$ and $g(x) = {linear_latex(c, d)}$."
    )
    ask = pick(rng, "What is", "Find", "Compute")
    return (
        f"{given} {ask} $f(g({x}))${'?' if ask == 'What is' else '.'}",
        [
            f"We start with the inner function: $g({x}) = {c} \\cdot ({x}) + ({d}) = {inner}$.",
            f"Now we apply $f$: $f({inner}) = {a} \\cdot ({inner}) + ({b}) = {outer}$.",
        ],
        str(outer),
    )


ALGEBRA_TEMPLATES: Final = (
    _linear_equation, _quadratic_roots, _quadratic_roots, _system, _system, _expand, _function_value, _composition,
)  # fmt: skip
