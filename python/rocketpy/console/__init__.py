"""What the commands of `rocketpy` and the jobs of Spark share: output, exit codes, and the way a command line runs."""
