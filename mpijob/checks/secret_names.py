"""Environment variables whose values are secrets, by their names."""

from typing import Final

_ENDINGS: Final = (
    "PASSWORD",
    "PASSWD",
    "_APIKEY",
    "_API_KEY",
    "_ACCOUNT_KEY",
    "_CREDENTIALS",
    "_OPENAI_KEY",
    "_PAT",
    "_PRIVATE_KEY",
    "_SECRET",
    "_SECRET_ACCESS_KEY",
    "_SECRET_KEY",
    "_STORAGE_KEY",
    "_TOKEN",
)
"""`PGPASSWORD` is one word. Before the others stands an underscore, or nothing."""
_NAMES_OF_FILES: Final = frozenset({"GOOGLE_APPLICATION_CREDENTIALS"})


def is_secret_name(name: str) -> bool:
    """Whether what a variable of this name holds is a secret, in upper case or lower case."""
    upper = name.upper()
    return f"_{upper}".endswith(_ENDINGS) and upper not in _NAMES_OF_FILES
