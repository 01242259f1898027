"""Raw requests of the driver and of operators. No other room here imports kafka-python."""
