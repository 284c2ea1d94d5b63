"""School word problems about amounts: event chains, comparisons, fractions, packing, ages."""

from __future__ import annotations

from random import Random
from typing import Final

from specpilot.models.train.generators.wording import (
    CONTAINERS,
    GOODS,
    capital,
    join_words,
    number_word,
    people,
    percent_of,
    person,
    pick,
    plural,
)

__all__ = ["QUANTITY_TEMPLATES"]

_Problem = tuple[str, list[str], str]
_FRACTIONS: Final = {2: "half", 3: "a third", 4: "a quarter", 5: "a fifth"}
_TIMES: Final = {2: "twice", 3: "three times", 4: "four times", 5: "five times"}


def _event_chain(rng: Random) -> _Problem:
    who, other = people(rng, 2)
    good = pick(rng, *GOODS)
    amount = rng.randint(8, 60)
    question = [
        pick(
            rng,
            f"{who.name} has {amount} {good[1]}.",
            f"{who.name} starts with {amount} {good[1]}.",
            f"There are {amount} {good[1]} in {who.name}'s collection.",
            f"{who.name} collected {amount} {good[1]}.",
        )
    ]
    steps: list[str] = []
    for index in range(rng.randint(2, 5)):
        then = (
            pick(rng, "Then", "Next,", "After that,", "Later,", "The next day,")
            if index
            else pick(rng, "First,", "In the morning,", "On Monday,")
        )
        divisors = [d for d in _FRACTIONS if amount % d == 0 and amount >= 2 * d]
        action = rng.choice(("gain", "gain", "lose", "lose", "double", "fraction"))
        if action == "fraction" and divisors:
            d = rng.choice(divisors)
            part = amount // d
            verb = pick(rng, "gives {} of them to " + other.name, "sells {} of them")
            question.append(f"{then} {who.he} {verb.format(_FRACTIONS[d])}.")
            steps.append(
                f"{capital(_FRACTIONS[d])} of {amount} is {amount} / {d} = {part}, so {who.he} has {amount} - {part} = {amount - part} {good[1]} left."
            )
            amount -= part
        elif action == "double" and amount <= 150:
            k = rng.randint(1, 3)
            question.append(
                f"{then} {who.he} buys {_TIMES.get(k, 'exactly')} as many {good[1]} as {who.he} has now."
                if k > 1
                else f"{then} {who.he} doubles the number of {good[1]}."
            )
            steps.append(
                f"{who.He} gets {amount} * {k} = {amount * k} more, which makes {amount} + {amount * k} = {amount + amount * k} {good[1]}."
            )
            amount += amount * k
        elif action == "lose" and amount > 6:
            delta = rng.randint(2, amount - 3)
            question.append(
                f"{then} {who.he} "
                + pick(
                    rng,
                    f"gives {delta} {good[1]} to {other.name}",
                    f"loses {delta} of them",
                    f"sells {delta} of them",
                    f"uses {delta} {good[1]}",
                )
                + "."
            )
            steps.append(
                f"{pick(rng, 'After that', 'Then', 'Now')} {who.he} has {amount} - {delta} = {amount - delta} {good[1]}{pick(rng, ' left', '')}."
            )
            amount -= delta
        else:
            boxes, each = rng.randint(2, 6), rng.randint(3, 12)
            box = pick(rng, *CONTAINERS)
            if rng.random() < 0.5:
                question.append(
                    f"{then} {who.he} {pick(rng, 'buys', 'finds', 'gets')} {boxes} {box[1]} with {each} {good[1]} in each {box[0]}."
                )
                steps.append(
                    f"The {box[1]} hold {boxes} * {each} = {boxes * each} {good[1]}, so {who.he} has {amount} + {boxes * each} = {amount + boxes * each}."
                )
                amount += boxes * each
            else:
                delta = rng.randint(2, 50)
                question.append(f"{then} {other.name} gives {who.him} {delta} more.")
                steps.append(
                    f"With the {delta} from {other.name}, {who.he} has {amount} + {delta} = {amount + delta} {good[1]}."
                )
                amount += delta
    question.append(
        pick(
            rng,
            f"How many {good[1]} does {who.name} have now?",
            f"How many {good[1]} does {who.he} have in the end?",
            f"How many {good[1]} are left?",
        )
    )
    return " ".join(question), steps, str(amount)


def _comparison(rng: Random) -> _Problem:
    a, b, c = people(rng, 3)
    good = pick(rng, *GOODS)
    times = rng.choice(tuple(_TIMES))
    base, delta = rng.randint(4, 40), rng.randint(2, 30)
    b_count = base * times
    more = rng.random() < 0.6 or delta >= b_count
    c_count = b_count + delta if more else b_count - delta
    verb = pick(
        rng,
        ("has", "have"),
        ("collected", "collect"),
        ("sold", "sell"),
        ("made", "make"),
        ("found", "find"),
        ("bought", "buy"),
    )
    total = base + b_count + c_count
    sentences = [
        f"{a.name} {verb[0]} {base} {good[1]}.",
        f"{b.name} {verb[0]} {_TIMES[times]} as many {good[1]} as {a.name}.",
        f"{c.name} {verb[0]} {delta} {'more' if more else 'fewer'} than {b.name}.",
    ]
    did = "do" if verb[0] == "has" else "did"
    steps = [
        f"{b.name} {verb[0]} {base} * {times} = {b_count} {good[1]}.",
        f"{c.name} {verb[0]} {b_count} {'+' if more else '-'} {delta} = {c_count} {good[1]}.",
    ]
    mode = rng.randrange(3)
    if mode == 0:
        steps.append(
            f"Together they {verb[0] if did == 'did' else 'have'} {base} + {b_count} + {c_count} = {total} {good[1]}."
        )
        return (
            " ".join(sentences)
            + f" How many {good[1]} {did} they {verb[1]} {pick(rng, 'together', 'in total', 'altogether')}?",
            steps,
            str(total),
        )
    if mode == 1:
        does = "does" if verb[0] == "has" else "did"
        diff = abs(c_count - base)
        word = "more" if c_count >= base else "fewer"
        high, low = max(c_count, base), min(c_count, base)
        steps.append(f"So {c.name} {verb[0]} {high} - {low} = {diff} {word} {good[1]} than {a.name}.")
        return (
            " ".join(sentences) + f" How many {word} {good[1]} {does} {c.name} {verb[1]} than {a.name}?",
            steps,
            str(diff),
        )
    # Choose the container size after the fact so that everything divides.
    size = next((s for s in (6, 8, 5, 4, 10, 7, 3, 2) if total % s == 0), 1)
    box = pick(rng, *CONTAINERS)
    steps.append(
        f"Together they {verb[0] if did == 'did' else 'have'} {base} + {b_count} + {c_count} = {total} {good[1]}."
    )
    steps.append(f"They fill {total} / {size} = {total // size} {box[1]}.")
    return (
        " ".join(sentences)
        + f" They put all the {good[1]} into {box[1]} that hold {plural(size, good[0], good[1])} each. How many {box[1]} do they need?",
        steps,
        str(total // size),
    )


def _class_fractions(rng: Random) -> _Problem:
    den = rng.choice((3, 4, 5, 6, 8))
    num = rng.randint(1, den - 1)
    den2 = rng.choice((2, 3, 4))
    group = den * den2 * rng.randint(2, 12)
    first = group * num // den
    second = (group - first) // den2 if (group - first) % den2 == 0 else None
    if second is None:
        return _class_fractions(rng)
    place, kind = pick(
        rng,
        ("school", "students"),
        ("club", "members"),
        ("company", "workers"),
        ("camp", "children"),
        ("town choir", "singers"),
        ("library", "books"),
        ("parking lot", "cars"),
        ("farm", "animals"),
    )
    traits = {
        "books": ("are novels", "are about history", "are for children"),
        "cars": ("are red", "are black", "are white"),
        "animals": ("are sheep", "are goats", "are cows"),
    }.get(kind, ("play football", "play chess", "like painting"))
    rest = group - first
    question = (
        f"There are {group} {kind} in a {place}. {num}/{den} of them {traits[0]}. Of the rest, {_FRACTIONS[den2]} {traits[1]} "
        f"and the others {traits[2]}. How many {kind} {traits[2]}?"
    )
    steps = [
        f"The number of {kind} that {traits[0]} is {group} * {num}/{den} = {first}.",
        f"That leaves {group} - {first} = {rest} {kind}.",
        f"Of these, {rest} / {den2} = {second} {traits[1]}.",
        f"So {rest} - {second} = {rest - second} {kind} {traits[2]}.",
    ]
    return question, steps, str(rest - second)


def _percents(rng: Random) -> _Problem:
    total = 20 * rng.randint(3, 40)
    p, q = rng.choice((10, 15, 20, 25, 30, 35)), rng.choice((5, 10, 20, 25, 40))
    a, b = percent_of(p, total), percent_of(q, total)
    left = total - a - b
    thing, first, second, ask = pick(
        rng,
        ("people came to a concert", "came by bus", "came by bike", "came another way"),
        ("trees grow in a park", "are oaks", "are pines", "are other trees"),
        (
            "voters took part in a survey",
            "chose the first plan",
            "chose the second plan",
            "chose neither plan",
        ),
        ("guests stay at a hotel", "ordered breakfast", "ordered lunch", "ordered nothing"),
        ("pages are in a report", "contain tables", "contain pictures", "contain only text"),
        ("boxes are stored in a hall", "hold glass", "hold paper", "hold metal"),
    )
    noun = thing.split()[0]
    question = f"{total} {thing}. {p}% of them {first} and {q}% {second}. How many {noun} {ask}?"
    steps = [
        f"{p}% of {total} is {total} * {p} / 100 = {a}, so {a} {noun} {first}.",
        f"{q}% of {total} is {total} * {q} / 100 = {b}, so {b} {noun} {second}.",
        f"The rest is {total} - {a} - {b} = {left}, so {left} {noun} {ask}.",
    ]
    return question, steps, str(left)


def _ages(rng: Random) -> _Problem:
    a, b, c = people(rng, 3)
    young, times, years = rng.randint(3, 15), rng.randint(2, 4), rng.randint(2, 12)
    old = young * times
    gap = rng.randint(1, 9)
    third = old - gap if old > gap else old + gap
    relation = "younger" if third < old else "older"
    sign = "-" if third < old else "+"
    question = f"{a.name} is {young} years old. {b.name} is {_TIMES[times]} as old as {a.name}, and {c.name} is {gap} years {relation} than {b.name}. "
    steps = [
        f"{b.name} is {young} * {times} = {old} years old.",
        f"{c.name} is {old} {sign} {gap} = {third} years old.",
    ]
    if rng.random() < 0.5:
        steps.append(f"In {years} years {c.name} will be {third} + {years} = {third + years} years old.")
        return question + f"How old will {c.name} be in {years} years?", steps, str(third + years)
    total = young + old + third
    steps.append(f"Now the sum of their ages is {young} + {old} + {third} = {total}.")
    steps.append(
        f"In {years} years each of the three is {years} years older, so the sum is {total} + 3 * {years} = {total + 3 * years}."
    )
    return question + f"What will be the sum of their ages in {years} years?", steps, str(total + 3 * years)


def _packing(rng: Random) -> _Problem:
    who = person(rng)
    good = pick(rng, *GOODS)
    small, large = rng.sample(CONTAINERS, 2)
    per_small, smalls_per_large, larges = rng.randint(3, 15), rng.randint(2, 12), rng.randint(2, 20)
    per_large = per_small * smalls_per_large
    total = per_large * larges
    used = rng.randint(1, total - 1)
    question = (
        f"{who.name} packs {good[1]} for {pick(rng, 'a shop', 'a festival', 'a school', 'a warehouse', 'an online order')}. Each {small[0]} holds {per_small} {good[1]}, and "
        f"{smalls_per_large} {small[1]} fit into one {large[0]}. {who.He} fills {larges} {large[1]}. "
    )
    steps = [
        f"One {large[0]} holds {smalls_per_large} * {per_small} = {per_large} {good[1]}.",
        f"{larges} {large[1]} hold {larges} * {per_large} = {total} {good[1]}.",
    ]
    if rng.random() < 0.5:
        steps.append(f"After {used} are sold, {total} - {used} = {total - used} {good[1]} remain.")
        return question + f"If {used} {good[1]} are sold, how many remain?", steps, str(total - used)
    return question + f"How many {good[1]} does {who.he} pack in total?", steps, str(total)


def _average(rng: Random) -> _Problem:
    who = person(rng)
    count = rng.randint(3, 6)
    mean = rng.randint(12, 90)
    values = [mean + rng.randint(-8, 8) for _ in range(count - 1)]
    values.append(mean * count - sum(values))
    if min(values) < 1:
        return _average(rng)
    what, ask = pick(
        rng,
        ("points in the games", "points"),
        ("minutes of practice on the days", "minutes"),
        ("pages read on the days", "pages"),
        ("kilometers run on the days", "kilometers"),
        ("points on the tests", "points"),
    )
    listed = join_words([str(v) for v in values])
    total = sum(values)
    if rng.random() < 0.5:
        question = f"{who.name} writes down {who.his} results: {listed} {what} of one season. What is the average number of {ask}?"
        steps = [
            f"The sum of the results is {' + '.join(map(str, values))} = {total}.",
            f"There are {number_word(count)} results, so the average is {total} / {count} = {mean} {ask}.",
        ]
        return question, steps, str(mean)
    known = values[:-1]
    question = f"{who.name} got {join_words([str(v) for v in known])} {what} so far. How many {ask} does {who.he} need next so that the average of all {number_word(count)} results is {mean}?"
    steps = [
        f"For an average of {mean} over {number_word(count)} results the sum must be {mean} * {count} = {total}.",
        f"So far the sum is {' + '.join(map(str, known))} = {sum(known)}.",
        f"So {who.name} needs {total} - {sum(known)} = {values[-1]} {ask}.",
    ]
    return question, steps, str(values[-1])


def _ratio_share(rng: Random) -> _Problem:
    a, b = people(rng, 2)
    good = pick(rng, *GOODS)
    p, q = rng.sample(range(2, 10), 2)
    unit = rng.randint(3, 25)
    total = (p + q) * unit
    big, small = (a, b) if p > q else (b, a)
    question = f"{a.name} and {b.name} share {total} {good[1]} in the ratio {p}:{q}. How many more {good[1]} does {big.name} get than {small.name}?"
    steps = [
        f"The ratio has {p} + {q} = {p + q} parts, and each part is {total} / {p + q} = {unit} {good[1]}.",
        f"{a.name} gets {p} * {unit} = {p * unit} {good[1]} and {b.name} gets {q} * {unit} = {q * unit} {good[1]}.",
        f"So {big.name} gets {max(p, q) * unit} - {min(p, q) * unit} = {abs(p - q) * unit} more than {small.name}.",
    ]
    return question, steps, str(abs(p - q) * unit)


def _animals(rng: Random) -> _Problem:
    who = person(rng)
    kinds = rng.sample(
        (
            ("cow", "cows", 4),
            ("goat", "goats", 4),
            ("hen", "hens", 2),
            ("duck", "ducks", 2),
            ("sheep", "sheep", 4),
            ("goose", "geese", 2),
            ("horse", "horses", 4),
        ),
        3,
    )
    counts = [rng.randint(3, 40) for _ in kinds]
    legs = [n * k[2] for n, k in zip(counts, kinds, strict=True)]
    listed = join_words([f"{n} {k[1]}" for n, k in zip(counts, kinds, strict=True)])
    question = f"{pick(rng, 'On ' + who.name + chr(39) + 's farm there are', who.name + ' keeps')} {listed}. How many legs do all the animals have {pick(rng, 'in total', 'altogether')}?"
    steps = [
        f"The {k[1]} have {n} * {k[2]} = {leg} legs." for n, k, leg in zip(counts, kinds, legs, strict=True)
    ]
    steps.append(f"Altogether the animals have {' + '.join(map(str, legs))} = {sum(legs)} legs.")
    return question, steps, str(sum(legs))


QUANTITY_TEMPLATES: Final = (
    _event_chain, _event_chain, _event_chain, _event_chain, _comparison, _comparison, _comparison, _class_fractions,
    _percents, _ages, _packing, _average, _ratio_share, _animals,
)  # fmt: skip
