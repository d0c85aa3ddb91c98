"""The main job on real data: `rocketpy demo` publishes, reads, kills, recovers and hands over to Spark.

It needs the extra `demo` and a JDK 17+. Every number that it prints was compared with the original data.
"""
