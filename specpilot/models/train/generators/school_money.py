"""School word problems about money: shopping, wages, saving, discounts, sales."""

from __future__ import annotations

from random import Random
from typing import Final

from specpilot.models.train.generators.wording import (
    GOODS,
    JOBS,
    join_words,
    number_word,
    people,
    percent_of,
    person,
    pick,
    usd,
)

__all__ = ["MONEY_TEMPLATES"]

_Problem = tuple[str, list[str], str]


def _shopping_change(rng: Random) -> _Problem:
    who = person(rng)
    goods = rng.sample(GOODS, rng.randint(2, 4))
    counts = [rng.randint(2, 9) for _ in goods]
    prices = [rng.randint(low, high) for _, _, low, high in goods]
    costs = [count * price for count, price in zip(counts, prices, strict=True)]
    total = sum(costs)
    bill = next(note for note in (20, 50, 100, 200, 500, 1000, 2000) if note > total)
    listed = join_words([f"{n} {g[1]}" for n, g in zip(counts, goods, strict=True)])
    each = join_words([f"{usd(100 * p)} per {g[0]}" for p, g in zip(prices, goods, strict=True)])
    place = pick(
        rng, "the market", "a store", "the corner shop", "the mall", "a yard sale", "the school fair"
    )
    steps = [
        pick(
            rng,
            f"The {g[1]} cost {n} * {usd(100 * p)} = {usd(100 * c)}.",
            f"{who.name} spends {n} * {p} = {usd(100 * c)} on the {g[1]}.",
            f"{who.He} pays {n} * {p} = {usd(100 * c)} for the {g[1]}.",
        )
        for n, g, p, c in zip(counts, goods, prices, costs, strict=True)
    ]
    steps.append(
        f"{pick(rng, 'In total', 'Altogether', 'So in all')}, {who.he} "
        f"{pick(rng, 'spends', 'has to pay')} {' + '.join(usd(100 * c) for c in costs)} = {usd(100 * total)}."
    )
    intro = pick(
        rng,
        f"{who.name} goes to {place} and buys {listed}. The prices are {each}.",
        f"At {place}, {who.name} bought {listed}. They cost {each}.",
        f"{who.name} needs {listed} for a party. At {place} the prices are {each}.",
    )
    if rng.random() < 0.4:
        return (
            f"{intro} How much {pick(rng, 'does ' + who.he + ' spend in total', 'money does ' + who.name + ' pay')}?",
            steps,
            str(total),
        )
    steps.append(f"{who.His} change is {usd(100 * bill)} - {usd(100 * total)} = {usd(100 * (bill - total))}.")
    ask = pick(
        rng,
        f"If {who.he} pays with {usd(100 * bill)}, how much change does {who.he} get?",
        f"{who.He} had {usd(100 * bill)} at first. How much money is left?",
        f"How much change will {who.name} receive from {usd(100 * bill)}?",
    )
    return f"{intro} {ask}", steps, str(bill - total)


def _wages(rng: Random) -> _Problem:
    who = person(rng)
    job = pick(rng, *JOBS)
    rate, hours, days, weeks = rng.randint(9, 30), rng.randint(3, 9), rng.randint(3, 6), rng.randint(2, 8)
    weekly_hours = hours * days
    weekly = weekly_hours * rate
    total = weekly * weeks
    question = pick(
        rng,
        f"{who.name} works as a {job} and earns ${rate} an hour. {who.He} works {hours} hours a day, {days} days a week. How much does {who.he} earn in {weeks} weeks?",
        f"A {job} named {who.name} is paid ${rate} per hour. Each week {who.he} works on {days} days for {hours} hours each day. What does {who.he} make in {weeks} weeks?",
    )
    steps = [
        f"{who.name} works {hours} * {days} = {weekly_hours} hours each week.",
        f"{who.He} earns {weekly_hours} * ${rate} = ${weekly} per week.",
        f"In {weeks} weeks {who.he} earns ${weekly} * {weeks} = ${total}.",
    ]
    if rng.random() < 0.5:
        spend = rng.randrange(5, weekly // 2 + 6)
        question = question.rsplit(".", 1)[0] + (
            f". Every week {who.he} spends ${spend} on {pick(rng, 'food', 'bus tickets', 'rent', 'lunch', 'gas')}. "
            f"How much money does {who.he} have left after {weeks} weeks?"
        )
        left = total - spend * weeks
        steps += [
            f"{who.He} spends ${spend} * {weeks} = ${spend * weeks} in that time.",
            f"So {who.he} has ${total} - ${spend * weeks} = ${left} left.",
        ]
        return question, steps, str(left)
    return question, steps, str(total)


def _overtime(rng: Random) -> _Problem:
    who = person(rng)
    rate = 2 * rng.randint(5, 15)
    normal, extra = rng.choice((20, 30, 35, 40)), rng.randint(2, 12)
    hours = normal + extra
    high = rate * 3 // 2
    question = (
        f"{who.name} is paid ${rate} per hour for the first {normal} hours of work each week and "
        f"{pick(rng, 'one and a half times that rate', '1.5 times as much')} for every hour above {normal}. "
        f"{pick(rng, 'This week', 'Last week')} {who.he} worked {hours} hours. How much did {who.he} earn?"
    )
    steps = [
        f"{who.name} worked {hours} - {normal} = {extra} hours of overtime.",
        f"The overtime rate is ${rate} * 1.5 = ${high} per hour.",
        f"For the normal hours {who.he} earned {normal} * ${rate} = ${normal * rate}.",
        f"For overtime {who.he} earned {extra} * ${high} = ${extra * high}.",
        f"In total {who.he} earned ${normal * rate} + ${extra * high} = ${normal * rate + extra * high}.",
    ]
    return question, steps, str(normal * rate + extra * high)


def _saving_goal(rng: Random) -> _Problem:
    who = person(rng)
    good = pick(
        rng, "bicycle", "guitar", "tablet", "telescope", "camera", "skateboard", "desk", "tent", "watch"
    )
    weekly, weeks, have = rng.randint(5, 40), rng.randint(4, 20), rng.randint(10, 90)
    spend = rng.randint(1, weekly - 2)
    net = weekly - spend
    price = have + net * weeks
    question = (
        f"{who.name} wants to buy a {good} that costs ${price}. {who.He} already has ${have}. "
        f"Every week {who.he} {pick(rng, 'earns', 'gets', 'makes')} ${weekly} from "
        f"{pick(rng, 'mowing lawns', 'walking dogs', 'babysitting', 'a paper route', 'washing cars', 'tutoring')} "
        f"and spends ${spend} of it on {pick(rng, 'snacks', 'bus rides', 'comics', 'games')}. "
        f"How many weeks does {who.he} need to save for the {good}?"
    )
    steps = [
        f"{who.name} still needs ${price} - ${have} = ${price - have}.",
        f"Each week {who.he} saves ${weekly} - ${spend} = ${net}.",
        f"So {who.he} needs {price - have} / {net} = {weeks} weeks.",
    ]
    return question, steps, str(weeks)


def _discount(rng: Random) -> _Problem:
    who = person(rng)
    good = pick(rng, *GOODS)
    percent = rng.choice((5, 10, 15, 20, 25, 30, 40, 50, 60, 75))
    price, count = 20 * rng.randint(1, 12), rng.randint(2, 8)
    off = percent_of(percent, price)
    new = price - off
    question = pick(
        rng,
        f"A {good[0]} usually costs ${price}, but today it is {percent}% off. {who.name} buys {count} of them. How much does {who.he} pay?",
        f"A shop sells {good[1]} for ${price} each and gives a {percent}% discount during a sale. How much will {who.name} pay for {count} {good[1]}?",
        f"{who.name} wants {count} {good[1]} with a normal price of ${price} each. {who.He} has a coupon for {percent}% off. What is the total price with the coupon?",
    )
    steps = [
        f"The discount on one {good[0]} is {percent}% of ${price}, which is ${price} * {percent} / 100 = ${off}.",
        f"Each {good[0]} then costs ${price} - ${off} = ${new}.",
        f"For {count} {good[1]} {who.name} pays {count} * ${new} = ${count * new}.",
    ]
    return question, steps, str(count * new)


def _ticket_sales(rng: Random) -> _Problem:
    adult, child = rng.randint(6, 20), rng.randint(2, 5)
    adults, children = rng.randint(10, 150), rng.randint(10, 200)
    place = pick(rng, "zoo", "cinema", "museum", "theater", "fair", "swimming pool", "circus", "aquarium")
    cost = rng.randint(20, 100)
    income_a, income_c = adult * adults, child * children
    total = income_a + income_c
    question = (
        f"Tickets to the {place} cost ${adult} for adults and ${child} for children. On {pick(rng, 'Saturday', 'Monday', 'Friday', 'Sunday')}, "
        f"{adults} adults and {children} children came. "
    )
    steps = [
        f"The adult tickets brought in {adults} * ${adult} = ${income_a}.",
        f"The child tickets brought in {children} * ${child} = ${income_c}.",
        f"The {place} {pick(rng, 'made', 'collected')} ${income_a} + ${income_c} = ${total} in total.",
    ]
    if rng.random() < 0.5:
        question += f"The {place} paid ${cost} for {pick(rng, 'cleaning', 'music', 'security', 'power')} that day. How much money was left?"
        steps.append(f"After paying for that day, ${total} - ${cost} = ${total - cost} was left.")
        return question, steps, str(total - cost)
    return question + f"How much money did the {place} collect from tickets?", steps, str(total)


def _profit(rng: Random) -> _Problem:
    who = person(rng)
    good = pick(rng, *GOODS)
    cost, gain, count = rng.randint(2, 20), rng.randint(1, 12), rng.randint(8, 60)
    fee = rng.randint(5, max(6, gain * count // 2))
    price = cost + gain
    net = gain * count - fee
    question = (
        f"{who.name} {pick(rng, 'makes', 'buys')} {good[1]} for ${cost} each and sells them for ${price} each. "
        f"{pick(rng, 'Last month', 'This week', 'At a fair')} {who.he} sold {count} {good[1]} and paid ${fee} for "
        f"{pick(rng, 'a market stall', 'advertising', 'shipping', 'a table')}. How much profit did {who.he} make?"
    )
    steps = [
        f"On each {good[0]} {who.name} makes ${price} - ${cost} = ${gain}.",
        f"For {count} {good[1]} that is {count} * ${gain} = ${gain * count}.",
        f"After the cost of ${fee}, the profit is ${gain * count} - ${fee} = ${net}.",
    ]
    return question, steps, str(net)


def _plan_compare(rng: Random) -> _Problem:
    who = person(rng)
    base_a, rate_a = rng.randint(5, 20), rng.randint(4, 9)
    rate_b = rate_a - rng.randint(1, 3)
    units = rng.randint(5, 20)
    base_b = base_a + rng.randint(1, 30)
    service, unit = pick(
        rng,
        ("gym", "visit"),
        ("boat rental", "hour"),
        ("photo printer", "album"),
        ("car wash club", "wash"),
        ("pottery studio", "lesson"),
    )
    cost_a, cost_b = base_a + rate_a * units, base_b + rate_b * units
    if cost_a == cost_b:
        base_b += 1
        cost_b += 1
    low, high = min(cost_a, cost_b), max(cost_a, cost_b)
    better = "first" if cost_a < cost_b else "second"
    question = (
        f"A {service} offers two plans. The first plan costs ${base_a} a month plus ${rate_a} per {unit}. The second plan costs "
        f"${base_b} a month plus ${rate_b} per {unit}. {who.name} expects {units} {unit}s this month. How much does {who.he} save with the cheaper plan?"
    )
    steps = [
        f"With the first plan {who.name} pays ${base_a} + {units} * ${rate_a} = ${cost_a}.",
        f"With the second plan {who.he} pays ${base_b} + {units} * ${rate_b} = ${cost_b}.",
        f"The {better} plan is cheaper, and it saves ${high} - ${low} = ${high - low}.",
    ]
    return question, steps, str(high - low)


def _sharing_cost(rng: Random) -> _Problem:
    group = people(rng, rng.randint(3, 6))
    share = rng.randint(4, 30)
    total = share * len(group)
    tip = rng.randint(1, total // 4 + 1)
    names = join_words([p.name for p in group])
    event = pick(
        rng, "lunch", "dinner", "a taxi ride", "a birthday gift", "a camping trip", "concert tickets"
    )
    question = (
        f"{names} share the cost of {event}. The bill is ${total - tip} and they add ${tip} for "
        f"{pick(rng, 'a tip', 'a card', 'a service fee', 'tax')}. If they split everything equally, how much does each person pay?"
    )
    steps = [
        f"The total cost is ${total - tip} + ${tip} = ${total}.",
        f"There are {number_word(len(group))} people, so each person pays ${total} / {len(group)} = ${share}.",
    ]
    return question, steps, str(share)


def _budget(rng: Random) -> _Problem:
    who = person(rng)
    parts = rng.sample(
        ("rent", "food", "transport", "clothes", "savings", "books", "phone bills", "gifts"), 3
    )
    income = 100 * rng.randint(8, 60)
    percents = [rng.choice((5, 10, 15, 20, 25)) for _ in parts]
    amounts = [percent_of(p, income) for p in percents]
    left = income - sum(amounts)
    listed = join_words([f"{p}% on {part}" for p, part in zip(percents, parts, strict=True)])
    question = (
        f"{who.name} earns ${income} a month. {who.He} spends {listed}. "
        f"How much money does {who.he} have left at the end of the month?"
    )
    steps = [
        f"{who.He} spends ${income} * {p} / 100 = ${amount} on {part}."
        for p, amount, part in zip(percents, amounts, parts, strict=True)
    ]
    steps.append(f"In total {who.he} spends {' + '.join(f'${a}' for a in amounts)} = ${sum(amounts)}.")
    steps.append(f"So {who.name} has ${income} - ${sum(amounts)} = ${left} left.")
    return question, steps, str(left)


MONEY_TEMPLATES: Final = (
    _shopping_change, _shopping_change, _wages, _wages, _overtime, _saving_goal, _discount, _ticket_sales, _profit,
    _plan_compare, _sharing_cost, _budget,
)  # fmt: skip
