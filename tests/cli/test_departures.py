"""The demo's own check must be able to fail."""

import pytest

from rocketpy.demo.departures import Departures, Mismatch
from rocketpy.demo.flights import Flights

pandas = pytest.importorskip("pandas")


@pytest.fixture
def flights() -> Flights:
    frame = pandas.DataFrame(
        {
            "carrier": ["UA", "AA", "UA", "B6", "UA"],
            "flight": [1, 2, 3, 4, 5],
            "tailnum": ["N1", "N2", "N1", None, "N1"],
        }
    )
    return Flights(frame, {"UA": "United"}, pandas.DataFrame({"faa": ["EWR"]}))


def test_an_aircraft_without_a_tail_number_is_ordered_by_its_flight(flights: Flights):
    assert flights.aircraft == ["N1", "N2", "N1", "B64", "N1"]


def test_each_aircraft_in_order_and_others_in_between_is_complete(flights: Flights):
    check = Departures(flights)
    for row in (1, 0, 2, 3, 4):
        check.see(flights.bodies[row])
    assert check.complete


def test_a_missing_flight_is_found(flights: Flights):
    check = Departures(flights)
    check.see(flights.bodies[0])
    with pytest.raises(Mismatch, match="N1: received flight 4, expected flight 2"):
        check.see(flights.bodies[4])


def test_a_missing_last_flight_leaves_it_incomplete(flights: Flights):
    check = Departures(flights)
    for row in (0, 2, 4, 3):
        check.see(flights.bodies[row])
    assert not check.complete


def test_a_flight_that_comes_twice_is_found(flights: Flights):
    check = Departures(flights)
    check.see(flights.bodies[1])
    with pytest.raises(Mismatch, match="N2"):
        check.see(flights.bodies[1])


def test_a_flight_that_was_never_sent_is_found(flights: Flights):
    with pytest.raises(Mismatch, match="unknown message"):
        Departures(flights).see(b"{}")


def test_a_group_of_two_carriers_expects_only_theirs(flights: Flights):
    check = Departures(flights, ("UA", "AA"))
    assert check.expected == 4
    with pytest.raises(Mismatch):
        check.see(flights.bodies[3])
