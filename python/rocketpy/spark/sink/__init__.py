"""The sink of the data source: the parts of a write that stores each row as one message."""
