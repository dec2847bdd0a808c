"""What a platform team sets up once: alert rules and a dashboard over the metrics that jobs serve. Pure.

Where to change what:

- add an alert: `alert_rules.py`; its tests: `tests/hvd_elastic/setup/monitoring/alert_rules_test.yaml`.
- add a panel: `dashboard_panels.py`; how Grafana draws it: `grafana_dashboard.py`.
"""
