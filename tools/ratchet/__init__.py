"""Reads the sources for tools/ratchets.py: circles of modules, sizes, assertions, and the texts that users read."""
