"""How far consumer groups are behind, and when retention takes what they have not read. A job for spark-submit.

    spark-submit spark/lag_report.py --name-server 127.0.0.1:9876 --retention-hours 72

`--help` lists the options, docs/spark-jobs.md explains them. This file only starts `rocketpy.spark.lag_report`.
"""

from rocketpy.spark.lag_report import main

if __name__ == "__main__":
    raise SystemExit(main())
