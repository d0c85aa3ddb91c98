"""Helpers that all parts of the package share: names, times, signatures, and the life of clients."""

from rocketpy_mq import check_installation

check_installation()  # `rocketpy/__init__` may be that of another distribution
