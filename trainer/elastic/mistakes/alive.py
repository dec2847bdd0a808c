"""What objects of some classes this process has."""

import gc


def alive(wanted: tuple[type, ...]) -> list[object]:
    """Return all objects of these classes. Takes some ten milliseconds for a process that has imported torch."""
    # `type()`, because isinstance asks a lazy proxy for its class, which may import or raise. Once for each class,
    # because there are some hundred thousand objects of a few thousand classes.
    known: dict[type, bool] = {}
    found = []
    for thing in gc.get_objects():
        kind = type(thing)
        if kind not in known:
            known[kind] = issubclass(kind, wanted)
        if known[kind]:
            found.append(thing)
    return found
