"""Horovod itself: how it is built, and what is changed in it. `import horovod` is the real one, as everywhere.

Where to change what:

- Horovod itself: `patches/`, whose README says how, and what is different without each patch.
"""
