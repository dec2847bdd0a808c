"""A login and its connections, read anew when they are not accepted any more: authorities and credentials change."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from hvd_elastic.client.connection.cluster_errors import CredentialsError, NotConfiguredError
from hvd_elastic.client.connection.connection_pool import open_pool
from hvd_elastic.client.connection.login import Login

if TYPE_CHECKING:
    import urllib3

RENEW_SECONDS: Final = 10.0
"""Between two renewals at least: one may run another program. A kubelet takes a minute to bring a new authority."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Connections:
    """One reading of a login, and what was connected with it."""

    login: Login
    pool: "urllib3.PoolManager"

    @classmethod
    def open(cls, login: Login) -> "Connections":
        """Sends nothing yet. Raises NotConfiguredError."""
        return cls(login=login, pool=open_pool(login))


class Session:
    """One caller at one API server. Any thread may use it."""

    def __init__(
        self,
        login: Login,
        *,
        log_in: Callable[[], Login] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`log_in` reads the same caller's login anew; None: there is no other than `login`.

        Raises NotConfiguredError for certificates that are none.
        """
        self.connections = Connections.open(login)
        """The newest."""
        self._log_in, self._clock = log_in, clock
        self._lock = threading.Lock()
        """Of several requests that are refused, one renews."""
        self._renewed_at = float("-inf")

    def renew(self, refused: Connections) -> Connections | None:
        """Others than those that the API server, or this side, has just refused; None: there are none yet.

        Raises CredentialsError if this caller cannot log in any more.
        """
        with self._lock:
            if self.connections is not refused:
                return self.connections
            if self._log_in is None or self._clock() - self._renewed_at < RENEW_SECONDS:
                return None
            self._renewed_at = self._clock()
            before = refused.login
            try:
                login = replace(self._log_in(), namespace=before.namespace, impersonation=before.impersonation)
                self.connections = Connections.open(login)
            except (NotConfiguredError, OSError) as error:
                raise CredentialsError(f"{before.server} does not accept this login any more: {error}") from error
            return self.connections
