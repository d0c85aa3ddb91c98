"""What a consumer of the flights must see: each aircraft's departures in order, none missing, none twice."""

from collections.abc import Collection

from rocketpy.demo.flights import Flights

NONE = -1


class Mismatch(Exception):
    """What was read is not what was sent."""


class Departures:
    """Checks messages as they arrive against the flights that were sent.

    Attributes:
        expected: How many flights are to come in all.
        seen: How many came so far.
    """

    def __init__(self, flights: Flights, carriers: Collection[str] | None = None) -> None:
        """Prepares the check.

        Args:
            flights: What was sent.
            carriers: Only the flights of these carriers are to come; None for all.
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
        """Takes the body of the next message.

        Raises:
            Mismatch: It was not sent, not asked for, comes twice, or comes before an earlier one of the same aircraft.
        """
        row = self._row_of.get(body, NONE)
        if row == NONE:
            raise Mismatch(f"no one sent this message: {body[:200]!r}")
        aircraft = self._aircraft[row]
        due = self._next.get(aircraft, NONE)
        if row != due:
            raise Mismatch(f"aircraft {aircraft}: flight {row} came, flight {due} was due")
        self._next[aircraft] = self._following[row]
        self.seen += 1

    @property
    def complete(self) -> bool:
        """Whether everything came. With `see` this means: once each, in order."""
        return self.seen == self.expected
