"""What a job's own words change in the manifests: a partial pod template for each role (`workers.pod`, `launcher.pod`).

- how two pod templates become one: `pod_merge.py`
- what must stay as it is, whatever changed it: `promises.py`
- which template is merged into which: `pod_overlays.py`
"""
