"""The connection of people to the API server: kubeconfig, logging in, requests, and what refusals mean.

Where to change what:

- add a way to log in to a cluster: the settings of a connection: `login.py`; whose they are: `login_lookup.py`;
  kubeconfig files: `kubeconfig.py`; another program that logs in: `login_plugins.py`; proxies:
  `proxy_environment.py`.
- when a login is read anew: `session.py`.
- what a person is told when the cluster refuses: `cluster_errors.py`.
- which versions of an API are read, the newest first: `known_api.py`.
- what does not end a wait, and when it is tried again: `long_wait.py`.
"""
