"""How long messages take to be stored, to be delivered, and to be worked on. A job for spark-submit.

    spark-submit spark/trace_latency.py --name-server 127.0.0.1:9876 --topic flights --out latency

`--help` lists the options, docs/spark-jobs.md explains them. This file only starts `rocketpy.spark.trace_latency`.
"""

from rocketpy.spark.trace_latency import main

if __name__ == "__main__":
    raise SystemExit(main())
