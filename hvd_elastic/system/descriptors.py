"""How many files and sockets this process may have open."""

import resource


def raise_limit() -> int:
    """Raise the limit to what this process may set by itself, the hard limit, and return it.

    The soft limit is 1,024 almost everywhere, for the sake of programs that call select(2). Call it only where nothing
    does.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def limit() -> int:
    """How many descriptors this process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
