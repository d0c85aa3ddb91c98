"""Mean departure delay and share of cancelled flights, by carrier and hour, as a job for spark-submit.

    spark-submit spark/flight_delays.py --path data --out delays
    spark-submit spark/flight_delays.py --name-server 127.0.0.1:9876 --out delays
    spark-submit spark/flight_delays.py --name-server 127.0.0.1:9876 --out delays --stream

`--out` gets the table as Parquet and a chart as PNG. With `--stream` the job goes on until it is ended, and replaces
the table after each batch. The steps are functions of `rocketpy.spark.flight_delays`, where `rocketpy demo` takes them
from; this file only starts them.
"""

from rocketpy.spark.flight_delays import main

if __name__ == "__main__":
    main()
