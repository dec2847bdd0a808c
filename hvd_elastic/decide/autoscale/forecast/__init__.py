"""What inference will soon ask for, beyond the pods that are there: by its scalers, or by a query of Prometheus.

Where to change what:

- what an HPA calls for: `hpa_demand.py`; KEDA: `scaled_object.py`; how many GPUs that is: `scaler_demand.py`; which
  APIs are asked: `scaler_reader.py`.
"""
