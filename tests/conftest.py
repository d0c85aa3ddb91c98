"""What all tests share: a real embedded server."""

pytest_plugins = ["rocketpy.testing"]
