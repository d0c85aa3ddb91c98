"""Helpers that all parts of the package share: names, times, signatures, and the life of clients."""
