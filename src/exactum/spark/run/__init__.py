"""One run of a query: what is opened, what is called for each micro-batch, what listens."""
