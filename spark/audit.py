"""Is everything there, once, in order, and the same as elsewhere? A job for spark-submit.

    spark-submit spark/audit.py --path data --topic flights --journal receipts.jsonl
    spark-submit spark/audit.py --name-server 127.0.0.1:9876 --topic flights --against-path copy

`--help` lists the options, docs/spark-jobs.md explains them. This file only starts `rocketpy.spark.audit`.
"""

from rocketpy.spark.audit import main

if __name__ == "__main__":
    raise SystemExit(main())
