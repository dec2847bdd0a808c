"""How a person or a pod logs in to the API server, by the `kubernetes` package."""

import os
from pathlib import Path
from typing import Any

from yaml import YAMLError

from hvd_elastic.jobs.cluster_client import NotConfiguredError


def log_in(context: str | None) -> tuple[Any, str]:
    """A `kubernetes.client.ApiClient` that has sent nothing yet, and the default namespace.

    A pod's own account counts only if no context is named and there is no KUBECONFIG. Raises NotConfiguredError.
    """
    try:
        from kubernetes import client, config
        from kubernetes.config.incluster_config import SERVICE_TOKEN_FILENAME
    except ImportError as error:
        raise NotConfiguredError("this needs the extra: pip install 'hvd-elastic[cluster]'") from error
    settings = client.Configuration()
    settings.retries = False
    try:
        if context is None and "KUBECONFIG" not in os.environ and Path(SERVICE_TOKEN_FILENAME).exists():
            config.load_incluster_config(client_configuration=settings)
            namespace = Path(SERVICE_TOKEN_FILENAME).with_name("namespace").read_text(encoding="ascii").strip()
        else:
            config.load_kube_config(client_configuration=settings, context=context)
            contexts, active = config.list_kube_config_contexts()
            chosen = next((entry for entry in contexts if entry["name"] == context), active)
            namespace = chosen["context"].get("namespace", "")
    except (config.ConfigException, OSError, TypeError, YAMLError) as error:
        said = " ".join(str(error).split())
        raise NotConfiguredError(f"no cluster to talk to: {said}: set KUBECONFIG, or name a --context") from error
    return client.ApiClient(settings), namespace or "default"
