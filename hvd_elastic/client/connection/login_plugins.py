"""Logging in by another program or a provider of tokens, as the `kubernetes` package does it. Its import takes long."""

import logging
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hvd_elastic.client.connection.cluster_errors import NotConfiguredError
from hvd_elastic.client.connection.kubeconfig import ChosenContext, settings_of
from hvd_elastic.client.connection.login import Login


def plugin_login(chosen: ChosenContext, paths: Iterable[Path]) -> Login:
    """The chosen context's Login, with what its program or its provider answers. Raises NotConfiguredError."""
    try:
        from kubernetes import client, config
    except ImportError as error:
        raise NotConfiguredError("this needs the extra: pip install 'hvd-elastic[cluster]'") from error
    settings = client.Configuration()
    complaints = _Complaints()
    try:
        logging.getLogger().addHandler(complaints)
        config.load_kube_config(
            config_file=os.pathsep.join(map(str, paths)), context=chosen.name, client_configuration=settings
        )
    except (config.ConfigException, OSError, TypeError, KeyError) as error:
        raise NotConfiguredError(_cannot_log_in(chosen, str(error))) from error
    finally:
        logging.getLogger().removeHandler(complaints)
    if chosen.needs_plugin and not (_authorization(settings) or settings.cert_file):
        raise NotConfiguredError(_cannot_log_in(chosen, *complaints.said))
    lock = threading.Lock()

    def authorization() -> str:
        with lock:  # asking for the header may run the program again
            return _authorization(settings)

    return Login(
        **settings_of(chosen),
        client_certificate=_content(settings.cert_file),
        client_key=_content(settings.key_file),
        authorization=authorization,
    )


class _Complaints(logging.Handler):
    """The package only logs that a program failed, and would go on as nobody."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def _cannot_log_in(chosen: ChosenContext, *said: str) -> str:
    return f"the user of context {chosen.name!r} cannot log in: {' '.join(' '.join(said).split()) or 'it got no token'}"


def _authorization(settings: Any) -> str:
    # Through `auth_settings`: the token's own key changed from release to release.
    return str(settings.auth_settings().get("BearerToken", {}).get("value") or "")


def _content(path: str | None) -> str:
    """The package leaves what it got in a file that only its owner may read, and deletes that as the process ends."""
    return Path(path).read_text(encoding="ascii", errors="ignore") if path else ""
