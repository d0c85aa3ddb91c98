"""Shared parts of the `rocketpy` commands and the Spark jobs: output, exit codes, and running a command line."""
