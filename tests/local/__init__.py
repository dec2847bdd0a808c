"""Jobs on this machine: real launchers, real training.

Where to change what:

- try another library that trains or tracks: an example in `examples/`, its case in `test_bridges.py` or, over
  torch.distributed, in `test_native_libraries.py`, and its row in the table of docs/libraries.md.
"""
