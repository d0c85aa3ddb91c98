"""Topics as Parquet files or a Delta table by topic and day, every message exactly once. A job for spark-submit.

    spark-submit spark/archive.py --name-server 127.0.0.1:9876 --topic flights --out archive
    spark-submit spark/archive.py --path data --topic flights --out archive --dry-run

Each run copies what came since the last one; a run that was killed is started again. `--help` lists the options,
docs/spark-jobs.md explains them. This file only starts `rocketpy.spark.archive`.
"""

from rocketpy.spark.archive import main

if __name__ == "__main__":
    raise SystemExit(main())
