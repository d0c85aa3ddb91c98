"""`python -m rocketpy.spark.archive`: the job of that name."""

from rocketpy.spark.archive import main

raise SystemExit(main())
