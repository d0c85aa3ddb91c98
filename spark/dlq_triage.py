"""Why messages died, when, and what they look like; and their way back. A job for spark-submit.

    spark-submit spark/dlq_triage.py --name-server 127.0.0.1:9876
    spark-submit spark/dlq_triage.py --name-server 127.0.0.1:9876 --group billing --since -6h --resend --rate 100

`--help` lists the options, docs/spark-jobs.md explains them. This file only starts `rocketpy.spark.dlq_triage`.
"""

from rocketpy.spark.dlq_triage import main

if __name__ == "__main__":
    raise SystemExit(main())
