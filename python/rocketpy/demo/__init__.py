"""The main job on real data: `rocketpy demo` publishes, reads, kills, recovers and reads with Spark.

The demo needs the extra `demo` and a JDK 17+. Every number that it prints is compared with the original data.
"""
