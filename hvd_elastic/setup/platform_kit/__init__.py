"""What a platform team sets up once for all jobs, as a kustomize base: a folder to keep in its repository.

Where to change what:

- add a part to the platform team's kit: `kit_parts.py`; how the folder is laid out: `kit_files.py`; what may be
  replaced there: `kit_folder.py`; options that it shares with `priorityclasses`:
  `hvd_elastic/cli/clusters/class_options.py`.
"""
