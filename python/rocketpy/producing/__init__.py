"""Producers: sending messages, alone or in transactions."""
