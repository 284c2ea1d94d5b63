"""Competition-style geometry with LaTeX: triangles, circles, coordinates, solids, angles, vectors."""

from __future__ import annotations

from fractions import Fraction
from math import gcd, isqrt
from random import Random
from typing import Final

from specpilot.models.train.generators.wording import latex_fraction, pick

__all__ = ["GEOMETRY_TEMPLATES", "root_latex"]

_Problem = tuple[str, list[str], str]
_TRIPLES: Final = ((3, 4, 5), (5, 12, 13), (8, 15, 17), (7, 24, 25), (20, 21, 29), (9, 40, 41), (12, 35, 37))


def root_latex(n: int) -> str:
    """Simplified square root of a positive integer: 12 gives ``2\\sqrt{3}``."""
    outer = max(k for k in range(1, isqrt(n) + 1) if n % (k * k) == 0)
    inner = n // (outer * outer)
    if inner == 1:
        return str(outer)
    return f"{outer if outer > 1 else ''}\\sqrt{{{inner}}}"


def _labels(rng: Random) -> tuple[str, str, str]:
    return pick(rng, ("A", "B", "C"), ("P", "Q", "R"), ("X", "Y", "Z"), ("D", "E", "F"), ("K", "L", "M"))


def _right_triangle(rng: Random) -> _Problem:
    a, b, c = rng.choice(_TRIPLES)
    k = rng.randint(1, 8)
    a, b, c = a * k, b * k, c * k
    if rng.random() < 0.5:
        a, b = b, a
    p, q, r = _labels(rng)
    area, around = a * b // 2, a + b + c
    ask, answer, last = pick(
        rng,
        ("area", area, f"The area is $\\frac{{1}}{{2}} \\cdot {a} \\cdot {b} = {area}$."),
        ("perimeter", around, f"The perimeter is ${a} + {b} + {c} = {around}$."),
    )
    return (
        f"In right triangle ${p}{q}{r}$ with the right angle at ${r}$, we have ${q}{r} = {a}$ and ${p}{q} = {c}$. What is the {ask} of the triangle?",
        [
            f"By the Pythagorean theorem, ${p}{r}^2 = {p}{q}^2 - {q}{r}^2 = {c * c} - {a * a} = {b * b}$.",
            f"So ${p}{r} = {b}$.",
            last,
        ],
        str(answer),
    )


def _distance(rng: Random) -> _Problem:
    x1, y1 = rng.randint(-9, 9), rng.randint(-9, 9)
    dx, dy = rng.randint(1, 12), rng.randint(1, 12)
    x2, y2 = x1 + dx, y1 + dy * pick(rng, 1, -1)
    s = dx * dx + dy * dy
    if rng.random() < 0.6:
        return (
            f"{pick(rng, 'What is', 'Find')} the distance between the points $({x1}, {y1})$ and $({x2}, {y2})$"
            + "?".replace("?", "."),
            [
                f"The difference of the $x$-coordinates is ${dx}$ and the difference of the $y$-coordinates is ${abs(y2 - y1)}$.",
                f"By the distance formula, the distance is $\\sqrt{{{dx}^2 + {dy}^2}} = \\sqrt{{{s}}}"
                + (f" = {root_latex(s)}$." if root_latex(s) != f"\\sqrt{{{s}}}" else "$."),
            ],
            root_latex(s),
        )
    mx, my = Fraction(x1 + x2, 2), Fraction(y1 + y2, 2)
    final = f"\\left({latex_fraction(mx)}, {latex_fraction(my)}\\right)"
    return (
        f"Find the midpoint of the segment with endpoints $({x1}, {y1})$ and $({x2}, {y2})$.",
        [
            f"The $x$-coordinate of the midpoint is $\\frac{{{x1} + ({x2})}}{{2}} = {latex_fraction(mx)}$.",
            f"The $y$-coordinate of the midpoint is $\\frac{{{y1} + ({y2})}}{{2}} = {latex_fraction(my)}$.",
        ],
        final,
    )


def _circle(rng: Random) -> _Problem:
    r = rng.randint(2, 30)
    kind = rng.randrange(4)
    if kind == 0:
        return (
            f"The circumference of a circle is ${2 * r}\\pi$ {pick(rng, 'centimeters', 'inches', 'units')}. What is its area, in terms of $\\pi$?",
            [
                f"The circumference is $2\\pi r = {2 * r}\\pi$, so the radius is $r = {r}$.",
                f"The area is $\\pi r^2 = \\pi \\cdot {r}^2 = {r * r}\\pi$.",
            ],
            f"{r * r}\\pi",
        )
    if kind == 1:
        angle = rng.choice((30, 40, 45, 60, 72, 90, 120, 135, 150))
        arc = Fraction(angle, 360) * 2 * r
        area = Fraction(angle, 360) * r * r
        text = latex_fraction(area)
        return (
            (
                f"What is the area of a sector of a circle with radius ${r}$ and central angle ${angle}^\\circ$? Give your answer in terms of $\\pi$.",
                [
                    f"The sector is $\\frac{{{angle}}}{{360}} = {latex_fraction(Fraction(angle, 360))}$ of the circle.",
                    f"The circle has area $\\pi \\cdot {r}^2 = {r * r}\\pi$.",
                    f"The sector has area ${latex_fraction(Fraction(angle, 360))} \\cdot {r * r}\\pi = {'' if text == '1' else text}\\pi$.",
                ],
                f"{'' if text == '1' else text}\\pi",
            )
            if arc
            else _circle(rng)
        )
    if kind == 2:
        h, k = rng.randint(-9, 9), rng.randint(-9, 9)
        constant = h * h + k * k - r * r

        def term(v: str, m: int) -> str:
            return "" if m == 0 else f" {'-' if m > 0 else '+'} {2 * abs(m)}{v}"

        tail = "" if constant == 0 else f" {'+' if constant > 0 else '-'} {abs(constant)}"
        return (
            f"Find the radius of the circle with equation $x^2{term('x', h)} + y^2{term('y', k)}{tail} = 0$.",
            [
                "We complete the square in both variables.",
                f"The equation becomes $(x - ({h}))^2 + (y - ({k}))^2 = {r * r}$.",
                f"So the radius is $\\sqrt{{{r * r}}} = {r}$.",
            ],
            str(r),
        )
    inner = rng.randint(1, r - 1)
    return (
        f"Two circles have the same center. Their radii are ${inner}$ and ${r}$. What is the area of the region between them?",
        [
            f"The larger circle has area ${r * r}\\pi$ and the smaller circle has area ${inner * inner}\\pi$.",
            f"The area between them is ${r * r}\\pi - {inner * inner}\\pi = {r * r - inner * inner}\\pi$.",
        ],
        f"{r * r - inner * inner}\\pi",
    )


def _polygon_angles(rng: Random) -> _Problem:
    n = rng.choice((5, 6, 8, 9, 10, 12, 15, 18, 20, 24, 30))
    inside = 180 * (n - 2)
    if rng.random() < 0.5:
        return (
            f"Each interior angle of a regular polygon measures ${inside // n}^\\circ$. How many sides does the polygon have?",
            [
                f"Each exterior angle measures $180^\\circ - {inside // n}^\\circ = {360 // n}^\\circ$.",
                f"The exterior angles add up to $360^\\circ$, so the polygon has $\\frac{{360}}{{{360 // n}}} = {n}$ sides.",
            ],
            str(n),
        )
    return (
        f"What is the {pick(rng, 'measure', 'size')} in degrees of one interior angle of a regular polygon with ${n}$ sides?",
        [
            f"The interior angles of a polygon with ${n}$ sides add up to $180({n} - 2) = {inside}$ degrees.",
            f"In a regular polygon all angles are equal, so each measures $\\frac{{{inside}}}{{{n}}} = {inside // n}$ degrees.",
        ],
        str(inside // n),
    )


def _triangle_angles(rng: Random) -> _Problem:
    a, b, c = (rng.randint(1, 7) for _ in range(3))
    while 180 % (a + b + c):
        a, b, c = (rng.randint(1, 7) for _ in range(3))
    unit = 180 // (a + b + c)
    big = max(a, b, c) * unit
    return (
        f"The angles of a triangle are in the ratio ${a} : {b} : {c}$. What is the {pick(rng, 'largest', 'greatest')} angle, in degrees?",
        [
            f"Let the angles be ${a}x$, ${b}x$, and ${c}x$ degrees. The angles of a triangle add up to $180$ degrees.",
            f"So ${a + b + c}x = 180$ and $x = {unit}$.",
            f"The largest angle is ${max(a, b, c)} \\cdot {unit} = {big}$ degrees.",
        ],
        str(big),
    )


def _solids(rng: Random) -> _Problem:
    a, b, c = rng.randint(2, 15), rng.randint(2, 15), rng.randint(2, 15)
    kind = rng.randrange(4)
    if kind == 0:
        s = 2 * (a * b + b * c + a * c)
        return (
            f"A rectangular box has edges of length ${a}$, ${b}$, and ${c}$. What is its surface area?",
            [
                f"The three different faces have areas ${a} \\cdot {b} = {a * b}$, ${b} \\cdot {c} = {b * c}$, and ${a} \\cdot {c} = {a * c}$.",
                f"Each face occurs twice, so the surface area is $2({a * b} + {b * c} + {a * c}) = {s}$.",
            ],
            str(s),
        )
    if kind == 1:
        return (
            f"A cylinder has radius ${a}$ and height ${b}$. What is its volume, in terms of $\\pi$?",
            [
                f"The base is a circle with area $\\pi \\cdot {a}^2 = {a * a}\\pi$.",
                f"The volume is the base area times the height, ${a * a}\\pi \\cdot {b} = {a * a * b}\\pi$.",
            ],
            f"{a * a * b}\\pi",
        )
    if kind == 2:
        v = Fraction(a * a * b, 3)
        return (
            f"Find the volume of a cone with radius ${a}$ and height ${b}$. Express your answer in terms of $\\pi$.",
            [
                "The volume of a cone is $\\frac{1}{3}\\pi r^2 h$.",
                f"Here $r^2 h = {a * a} \\cdot {b} = {a * a * b}$, so the volume is $\\frac{{{a * a * b}}}{{3}}\\pi"
                + (f" = {v}\\pi$." if v.denominator == 1 else "$."),
            ],
            f"{latex_fraction(v)}\\pi",
        )
    d = a * a + b * b + c * c
    return (
        f"What is the length of the space diagonal of a box with edges ${a}$, ${b}$, and ${c}$?",
        [
            f"The square of the space diagonal is ${a}^2 + {b}^2 + {c}^2 = {a * a} + {b * b} + {c * c} = {d}$.",
            f"So the diagonal has length $\\sqrt{{{d}}}"
            + (f" = {root_latex(d)}$." if root_latex(d) != f"\\sqrt{{{d}}}" else "$."),
        ],
        root_latex(d),
    )


def _slope(rng: Random) -> _Problem:
    m_num, m_den = rng.randint(-9, 9), rng.randint(1, 6)
    if m_num == 0:
        m_num = 2
    x1, y1 = rng.randint(-8, 8), rng.randint(-8, 8)
    t = rng.choice((1, 2, 3))
    x2, y2 = x1 + m_den * t, y1 + m_num * t
    m = Fraction(m_num, m_den)
    b = y1 - m * x1
    if rng.random() < 0.5:
        return (
            f"What is the slope of the line through $({x1}, {y1})$ and $({x2}, {y2})$?",
            [
                "The slope is the change in $y$ divided by the change in $x$.",
                f"This is $\\frac{{{y2} - ({y1})}}{{{x2} - ({x1})}} = \\frac{{{y2 - y1}}}{{{x2 - x1}}} = {latex_fraction(m)}$.",
            ],
            latex_fraction(m),
        )
    return (
        f"A line passes through $({x1}, {y1})$ and has slope ${latex_fraction(m)}$. What is its $y$-intercept?",
        [
            f"The equation of the line is $y = {latex_fraction(m)} x + b$.",
            f"Putting in the point gives ${y1} = {latex_fraction(m)} \\cdot ({x1}) + b$, so $b = {y1} - ({latex_fraction(m * x1)}) = {latex_fraction(b)}$.",
        ],
        latex_fraction(b),
    )


def _similar(rng: Random) -> _Problem:
    p, q = rng.sample(range(2, 9), 2)
    g = gcd(p, q)
    p, q = p // g, q // g
    k = rng.randint(2, 8)
    side = p * k
    area = p * p * rng.randint(1, 6)
    other = area // (p * p) * q * q
    name = pick(rng, "triangles", "rectangles", "pentagons", "hexagons")
    if rng.random() < 0.5:
        return (
            f"Two similar {name} have corresponding sides in the ratio ${p} : {q}$. The first has area ${area}$. What is the area of the second?",
            [
                f"The areas of similar figures are in the ratio of the squares of the sides, ${p * p} : {q * q}$.",
                f"So the area of the second is ${area} \\cdot \\frac{{{q * q}}}{{{p * p}}} = {other}$.",
            ],
            str(other),
        )
    return (
        f"Two similar {name} have perimeters in the ratio ${p} : {q}$. A side of the first is ${side}$. How long is the corresponding side of the second?",
        [
            f"Corresponding sides have the same ratio as the perimeters, ${p} : {q}$.",
            f"So the side has length ${side} \\cdot \\frac{{{q}}}{{{p}}} = {side * q // p}$.",
        ],
        str(side * q // p),
    )


def _vectors(rng: Random) -> _Problem:
    n = rng.choice((2, 3))
    u, v = [rng.randint(-8, 9) for _ in range(n)], [rng.randint(-8, 9) for _ in range(n)]
    dot = sum(x * y for x, y in zip(u, v, strict=True))

    def column(w: list[int]) -> str:
        return "\\begin{pmatrix} " + " \\\\ ".join(map(str, w)) + " \\end{pmatrix}"

    products = " + ".join(f"({x}) \\cdot ({y})" for x, y in zip(u, v, strict=True))
    if rng.random() < 0.5:
        return (
            f"{pick(rng, 'Compute', 'Find')} the dot product of ${column(u)}$ and ${column(v)}$.",
            ["We multiply matching entries and add the products.", f"This gives ${products} = {dot}$."],
            str(dot),
        )
    a, b, c, d = (rng.randint(-7, 9) for _ in range(4))
    return (
        f"{pick(rng, 'Compute', 'Evaluate')} the determinant $\\begin{{vmatrix}} {a} & {b} \\\\ {c} & {d} \\end{{vmatrix}}$.",
        [
            "The determinant of a two by two matrix is $ad - bc$.",
            f"Here this is $({a})({d}) - ({b})({c}) = {a * d} - ({b * c}) = {a * d - b * c}$.",
        ],
        str(a * d - b * c),
    )


def _trigonometry(rng: Random) -> _Problem:
    a, b, c = rng.choice(_TRIPLES)
    ratio, top, bottom = pick(rng, ("\\sin", a, c), ("\\cos", b, c), ("\\tan", a, b))
    known, kt, kb = pick(rng, ("\\sin", a, c), ("\\cos", b, c), ("\\tan", a, b))
    if known == ratio:
        return _trigonometry(rng)
    sides = {"\\sin": (a, c, b, "leg"), "\\cos": (b, c, a, "leg"), "\\tan": (a, b, c, "hypotenuse")}[known]
    return (
        f"If $\\theta$ is an acute angle and ${known} \\theta = \\frac{{{kt}}}{{{kb}}}$, what is ${ratio} \\theta$?",
        [
            f"We draw a right triangle with sides ${sides[0]}$ and ${sides[1]}$ that fit the given ratio. The missing {sides[3]} is ${sides[2]}$ by the Pythagorean theorem.",
            f"So the leg opposite $\\theta$ is ${a}$, the adjacent leg is ${b}$, and the hypotenuse is ${c}$.",
            f"Hence ${ratio} \\theta = \\frac{{{top}}}{{{bottom}}}$.",
        ],
        f"\\frac{{{top}}}{{{bottom}}}",
    )


GEOMETRY_TEMPLATES: Final = (
    _right_triangle, _distance, _circle, _circle, _polygon_angles, _triangle_angles, _solids, _solids, _slope, _similar,
    _vectors, _trigonometry,
)  # fmt: skip
