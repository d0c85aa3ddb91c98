"""Sizes, rate, and how evenly queues, tags and keys share the messages of a topic. A job for spark-submit.

    spark-submit spark/topic_profile.py --path data --topic flights --out profile

`--help` lists the options, docs/spark-jobs.md explains them. This file only starts `rocketpy.spark.topic_profile`.
"""

from rocketpy.spark.topic_profile import main

if __name__ == "__main__":
    raise SystemExit(main())
