"""What a job's own words change in the manifests: `workers.pod` and `launcher.pod`, and `patches`.

- how two pod templates become one: `pod_merge.py`
- what a patch does to which objects: `patches.py`
- what must stay as it is, whatever changed it: `promises.py`
- all of it, in order: `customized.py`
"""
