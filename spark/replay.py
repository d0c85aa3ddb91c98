"""Sends stored messages again, to another topic or another cluster. A job for spark-submit.

    spark-submit spark/replay.py --path data --topic flights --since -2h --to-topic again --to-name-server host:9876

`--help` lists the options, docs/spark-jobs.md explains them. This file only starts `rocketpy.spark.replay`.
"""

from rocketpy.spark.replay import main

if __name__ == "__main__":
    raise SystemExit(main())
