"""``exactum verify``: what the records promise, against what is in the targets.

It never trusts the code that wrote. It reads Kafka's logs batch header by batch header, a
database's ledger and row versions, and the files themselves, by code of its own.
"""
