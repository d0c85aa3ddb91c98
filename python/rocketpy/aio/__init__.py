"""Clients for asyncio: twins of `Producer`, `Consumer`, `PushConsumer` and `Admin`, by name and meaning."""

from __future__ import annotations

from rocketpy.aio.consumer import AsyncConsumer
from rocketpy.aio.producer import AsyncProducer
from rocketpy.aio.push import AsyncPushConsumer

__all__ = ["AsyncConsumer", "AsyncProducer", "AsyncPushConsumer"]
