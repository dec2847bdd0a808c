"""What only a GPU can show, and the CPU's form of it.

Where to change what:

- show one more thing on a GPU: a test here, with the device as a parameter (`devices` in `machine.py`); what `make
  test-gpu` says at its end: `report.py`.
"""
