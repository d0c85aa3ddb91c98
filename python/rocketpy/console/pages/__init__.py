"""Handlers of the console: one module per page, named in the table of `rocketpy.console.routes`."""
