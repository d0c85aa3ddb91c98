"""Checks of a consumer of the flights: each aircraft's departures arrive in order, none missing, none twice."""

from collections.abc import Collection

from rocketpy.demo.flights import Flights

NONE = -1


class Mismatch(Exception):
    """Messages read differ from messages sent."""


class Departures:
    """Checks messages as they arrive against the flights that were sent.

    Attributes:
        expected: Number of expected flights.
        seen: Number of flights received so far.
    """

    def __init__(self, flights: Flights, carriers: Collection[str] | None = None) -> None:
        """Prepares the check.

        Args:
            flights: Flights that were sent.
            carriers: Carriers whose flights are expected; None for all.
        """
        self.seen = 0
        self._aircraft = flights.aircraft
        self._row_of = {body: row for row, body in enumerate(flights.bodies)}
        self._following = [NONE] * len(flights)
        self._next: dict[str, int] = {}
        last: dict[str, int] = {}
        wanted = [row for row, carrier in enumerate(flights.carriers) if carriers is None or carrier in carriers]
        for row in wanted:
            aircraft = self._aircraft[row]
            if aircraft in last:
                self._following[last[aircraft]] = row
            else:
                self._next[aircraft] = row
            last[aircraft] = row
        self.expected = len(wanted)

    def see(self, body: bytes) -> None:
        """Checks the body of the next message.

        Raises:
            Mismatch: The message was not sent, not expected, arrived twice, or overtook one of the same aircraft.
        """
        row = self._row_of.get(body, NONE)
        if row == NONE:
            raise Mismatch(f"unknown message: {body[:200]!r}")
        aircraft = self._aircraft[row]
        due = self._next.get(aircraft, NONE)
        if row != due:
            raise Mismatch(f"aircraft {aircraft}: received flight {row}, expected flight {due}")
        self._next[aircraft] = self._following[row]
        self.seen += 1

    @property
    def complete(self) -> bool:
        """Whether all flights arrived. Together with `see`: once each, in order."""
        return self.seen == self.expected
