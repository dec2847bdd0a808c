"""Whether a cluster has what elastic training needs: facts in, findings out.

Where to change what:

- add a check of the cluster: a function in a module of `checks/`, listed in `CHECKS` of `examination.py`; what it
  judges is read by `fact_reader.py`.
- what a rehearsal plays: `rehearsal.py`; where it may: `rehearsal_stage.py`; what is made of what it saw:
  `rehearsal_record.py`.
"""
