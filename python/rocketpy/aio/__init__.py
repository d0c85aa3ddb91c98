"""Clients for asyncio: twins of `Producer`, `Consumer` and `Admin`, by name and meaning."""

from __future__ import annotations

from rocketpy.aio.consumer import AsyncConsumer
from rocketpy.aio.producer import AsyncProducer

__all__ = ["AsyncConsumer", "AsyncProducer"]
