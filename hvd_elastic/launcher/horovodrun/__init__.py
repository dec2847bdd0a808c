"""`hvd-elastic horovodrun`: Horovod's own launcher, begun again when its workers were taken away (`supervisor.py`).

What is changed in it: `stock_horovodrun.py`, and its rendezvous server: `horovodrun_rendezvous.py`.
"""
