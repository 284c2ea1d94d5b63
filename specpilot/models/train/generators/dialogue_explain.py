"""Two-turn dialogues that explain a subject and then change, shorten, question or deepen the explanation."""

from __future__ import annotations

from random import Random
from typing import Final

from specpilot.models.chat import Chat
from specpilot.models.train.generators.dialogue_topics import TOPICS, Topic
from specpilot.models.train.generators.wording import capital, conversation, number_word, pick

__all__ = ["EXPLAIN_TEMPLATES"]


_SEVERAL: Final = frozenset({"black holes", "vaccines", "databases", "coral reefs", "volcanoes"})
_PROPER: Final = frozenset({"Leonardo"})


def _lower(text: str) -> str:
    """A sentence as it continues another one."""
    return text if text.split()[0] in _PROPER else text[:1].lower() + text[1:]


def _is(topic: Topic) -> str:
    return "are" if topic.name in _SEVERAL else "is"


def _paragraph(rng: Random, topic: Topic, count: int) -> tuple[str, list[str]]:
    facts = rng.sample(topic.facts, count)
    links = ("", "", "Also, ", "In addition, ", "Moreover, ", "Besides, ")
    said = [facts[0]] + [
        link + (_lower(fact) if link else fact) for fact in facts[1:] for link in [rng.choice(links)]
    ]
    parts = [topic.definition, *said]
    if rng.random() < 0.6:
        parts.append(pick(rng, f"For example, {_lower(topic.example)}", topic.example))
    if rng.random() < 0.6:
        parts.append(topic.matter)
    return " ".join(parts), facts


def _bullets(rng: Random, items: list[str]) -> str:
    mark = pick(rng, "-", "*", "number")
    return "\n".join(
        f"{index}. {item}" if mark == "number" else f"{mark} {item}" for index, item in enumerate(items, 1)
    )


def _ask(rng: Random, topic: Topic) -> str:
    return pick(
        rng,
        f"Can you explain {topic.name} in simple words?",
        f"What {_is(topic)} {topic.name}, and why is the subject important?",
        f"Explain {topic.name} to me.",
        f"What do people in {topic.field} mean by {topic.name}?",
        f"Please write a short paragraph about {topic.name}.",
        f"Tell me about {topic.name}.",
        f"I am preparing a talk about {topic.name}. What are the main points?",
        f"How would you describe {topic.name} to a beginner in {topic.field}?",
        f"Give me an introduction to {topic.name}.",
    )


def _explain_then_change(rng: Random) -> Chat:
    topic = rng.choice(TOPICS)
    first, facts = _paragraph(rng, topic, rng.randint(2, 4))
    kind = rng.randrange(7)
    if kind == 0:
        ask = pick(
            rng,
            "Now summarize this in one sentence.",
            "Can you say that in a single sentence?",
            "Give me a one-sentence summary of your answer.",
        )
        second = f"In short, {_lower(topic.definition)[:-1]}, and {_lower(facts[0])}"
    elif kind == 1:
        n = rng.randint(3, 4)
        items = rng.sample([*topic.facts, topic.matter], n)
        ask = pick(
            rng,
            f"Turn your answer into a list with {number_word(n)} points.",
            f"List {number_word(n)} key facts as bullet points.",
            f"Rewrite the main points as {number_word(n)} bullet points.",
        )
        second = f"{pick(rng, 'Here are the main points:', f'Here are {number_word(n)} key facts about {topic.name}:', 'Sure, here is the list:')}\n\n{_bullets(rng, items)}"
    elif kind == 2:
        ask = pick(
            rng,
            "Can you give me an example?",
            "Please add a concrete example.",
            "What would be an example from daily life?",
        )
        second = f"{pick(rng, 'Of course.', 'Sure.', 'Yes, here is one.')} {topic.example} {pick(rng, 'This shows the idea quite well.', 'This is a typical case.', 'It is a simple case, but the principle is always the same.')} {rng.choice(topic.facts)} {topic.matter}"
    elif kind == 3:
        ask = pick(
            rng,
            "What are the limits of this?",
            "Is there anything I should be careful about?",
            "Where does this explanation stop being right?",
            "Is that always true?",
        )
        second = f"{pick(rng, 'That is a good question.', 'There are some limits.', 'Not in every case.')} {topic.limit} My {pick(rng, 'answer', 'explanation')} was a simple one, and it left out many details. {pick(rng, 'Still, the main idea holds.', 'For a first overview it is good enough.', 'A textbook on ' + topic.field + ' would go deeper.')} {rng.choice(topic.facts)}"
    elif kind == 4:
        ask = pick(
            rng,
            "Explain it again for a child of ten years.",
            "How would you explain this to a child?",
            "Can you make it even simpler?",
        )
        second = f"{pick(rng, 'Imagine it like this.', 'Let me try it with simpler words.', 'Here is a simpler version.')} {topic.definition} {topic.example} {rng.choice(topic.facts)} {pick(rng, 'If you want, you can draw a picture of it.', 'That is really the whole idea.', 'Now you can explain it to somebody else.')}"
    elif kind == 5:
        other = rng.choice([t for t in TOPICS if t.name != topic.name])
        ask = pick(
            rng,
            f"How is this different from {other.name}?",
            f"Can you compare it with {other.name}?",
            f"And what about {other.name}?",
        )
        second = (
            f"The first subject is a part of {topic.field}, while {other.name} {_is(other)} a subject of {other.field}. {other.definition} {rng.choice(other.facts)} {pick(rng, 'By contrast,', 'On the other hand,', 'In comparison,')} {_lower(topic.definition)} {pick(rng, 'So the two subjects are quite different.', 'Both are worth knowing.', 'Both have a large effect on our lives.')}"
            if topic.field != other.field
            else f"Both subjects belong to {topic.field}. {other.definition} {rng.choice(other.facts)} {pick(rng, 'By contrast,', 'On the other hand,')} {_lower(topic.definition)} {other.example}"
        )
    else:
        items = list(topic.facts[:3])
        ask = pick(
            rng,
            "Write three quiz questions about it with answers.",
            "Make a short quiz from this.",
            "Can you write a few questions to test my knowledge?",
        )
        second = "Here is a short quiz:\n\n" + "\n\n".join(
            f"Question {i}: True or false? {fact}\nAnswer: {pick(rng, 'True.', 'This is true.')}"
            for i, fact in enumerate(items, 1)
        )
    return conversation(_ask(rng, topic), first, ask, second)


def _essay(rng: Random) -> Chat:
    topic = rng.choice(TOPICS)
    facts = rng.sample(topic.facts, 4)
    question = pick(
        rng,
        f"Write a short essay about {topic.name}.",
        f"Write three paragraphs about {topic.name} for a school magazine.",
        f"Please write a blog post about {topic.name}.",
        f"Write an article that introduces {topic.name} to a general audience.",
    )
    opening = pick(
        rng,
        f"{capital(topic.name)} {_is(topic)} one of the great subjects of {topic.field}.",
        f"Few subjects in {topic.field} are as interesting as {topic.name}.",
        f"Many people have heard of {topic.name}, but few can explain it.",
        f"What {_is(topic)} {topic.name}? The question sounds simple, and yet the answer is full of surprises.",
    )
    body = f"{opening} {topic.definition} {facts[0]}\n\n{facts[1]} {facts[2]} {topic.example}\n\n{topic.matter} {topic.limit} {facts[3]} {pick(rng, 'There is still much to learn.', 'It is worth a closer look.', 'This is why the subject deserves our attention.')}"
    ask, answer = pick(
        rng,
        (
            "Suggest a title for it.",
            f'A good title would be "{pick(rng, "A Short Guide to", "Understanding", "The World of", "First Steps in", "Why We Should Care About")} {topic.name.title()}". It tells the reader what to expect and is easy to remember. It also fits the {pick(rng, "calm", "friendly", "clear")} tone of the text.',
        ),
        ("Make it shorter.", f"{topic.definition} {facts[0]} {topic.matter}"),
        (
            "Add a closing sentence that invites the reader to act.",
            f"{pick(rng, 'Take ten minutes today and read one more page about', 'Talk to a friend tonight about', 'Visit your local library and look for a book about')} {topic.name}, because {_lower(topic.matter.replace('It matters because ', ''))}",
        ),
        (
            "Which sentence is the most important one, and why?",
            f"The most important sentence is the definition: {topic.definition} All other sentences build on it. Without it, a reader could not understand why {_lower(topic.matter.replace('It matters because ', ''))}",
        ),
    )
    return conversation(question, body, ask, answer)


def _pros_and_cons(rng: Random) -> Chat:
    topic = rng.choice(TOPICS)
    facts = rng.sample(topic.facts, 2)
    stance = pick(
        rng,
        "Overall, I think the advantages are larger.",
        "In my view the subject is worth the effort.",
        "On balance, the benefits are convincing.",
    )
    question = pick(
        rng,
        f"What is your opinion about {topic.name}?",
        f"Do you think people should know more about {topic.name}?",
        f"What speaks for and against giving {topic.name} more attention?",
        f"Why should anyone care about {topic.name}?",
    )
    answer = f"There are good arguments on both sides. {pick(rng, 'On the one hand,', 'First of all,')} {_lower(topic.matter)} {facts[0]} {pick(rng, 'On the other hand,', 'However,')} {_lower(topic.limit)} {stance}"
    ask = pick(
        rng,
        "Can you support this with a fact?",
        "Give me one more reason, please.",
        "Could someone disagree with you?",
    )
    second = f"{pick(rng, 'Yes.', 'Certainly.', 'Of course.')} {facts[1]} {topic.example} {pick(rng, 'Someone may still disagree and point out that', 'Of course one could answer that', 'A fair critic would add that')} {_lower(topic.limit)} {pick(rng, 'That does not change my conclusion.', 'Both views can be true at the same time.', 'It is good to keep both points in mind.')}"
    return conversation(question, answer, ask, second)


def _fact_check(rng: Random) -> Chat:
    topic, other = rng.sample(TOPICS, 2)
    facts = rng.sample(topic.facts, 3)
    listed = "\n".join(
        f"{letter}) {fact}"
        for letter, fact in zip("ABC", sorted([facts[0], facts[1], other.facts[0]]), strict=True)
    )
    odd = next(line[0] for line in listed.split("\n") if line[3:] == other.facts[0])
    question = f"Which of these three statements does not belong to the subject of {topic.name}?\n\n{listed}"
    answer = f"Statement {odd} does not belong to {topic.name}. It says: {other.facts[0]} This is about {other.name}. The other two statements describe {topic.name}. {topic.definition}"
    ask = pick(
        rng,
        "Can you add one more statement that fits?",
        "What else can you say about it?",
        "Give me another fact about the subject.",
    )
    second = f"{pick(rng, 'Here is another one that fits:', 'Yes, this one also fits:', 'Sure:')} {facts[2]} {pick(rng, 'In addition,', 'Besides,')} {_lower(topic.matter)} {topic.example}"
    return conversation(question, answer, ask, second)


EXPLAIN_TEMPLATES: Final = (
    _explain_then_change,
    _explain_then_change,
    _explain_then_change,
    _essay,
    _pros_and_cons,
    _fact_check,
)
