"""Plain words of every room: numbers of things, long sentences made short, and strangers' words made harmless."""


def count_words(count: int, thing: str) -> str:
    """`1 resize`, `2 resizes`, `2 batches`, `2 entries`. What is told ends with the thing's noun."""
    if count == 1:
        return f"{count} {thing}"
    if thing.endswith("y"):
        return f"{count} {thing[:-1]}ies"
    return f"{count} {thing}{'es' if thing.endswith(('s', 'tch')) else 's'}"


def cut_middle(text: str, longest: int) -> str:
    """At most so many characters. The middle is left out: reasons begin with a subject and end with the cause."""
    if len(text) <= longest:
        return text
    kept = max(0, longest - 5)
    return f"{text[: kept - kept // 2].rstrip()} ... {text[len(text) - kept // 2 :].lstrip()}"


def printable(text: str) -> str:
    """The text on one line, with `?` in place of each control character: a name must not steer a terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)
