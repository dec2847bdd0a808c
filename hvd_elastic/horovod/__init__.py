"""Horovod itself: how it is built, and what is changed in it. `import horovod` is the real one, as everywhere."""
