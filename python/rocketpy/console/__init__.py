"""The web console: pages and a JSON API over `rocketpy.AsyncAdmin`, started by `rocketpy console`."""

from rocketpy.console.app import create_app
from rocketpy.console.settings import Settings

__all__ = ["Settings", "create_app"]
