"""Servers, in this process and in others."""
