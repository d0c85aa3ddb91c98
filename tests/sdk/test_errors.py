"""The error tree: one root, three answers, and errors that travel."""

import builtins
import pickle

import pytest

import rocketpy
from rocketpy import errors

CLASSES = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_has_the_root_and_its_three_answers(kind):
    error = kind("text", code=3, retryable=True, may_have_been_applied=True, hint="do this")
    assert isinstance(error, rocketpy.RocketPyError)
    assert (str(error), error.code, error.retryable, error.may_have_been_applied) == ("text", 3, True, True)
    assert error.hint == "do this"
    assert error.__notes__ == ["hint: do this"]
    assert getattr(rocketpy, kind.__name__) is kind


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_travels_between_processes(kind):
    facts = {
        "code": 3,
        "retryable": True,
        "may_have_been_applied": True,
        "hint": "do this",
        "msg_id": "A1",
        "broker": "b",
    }
    error = pickle.loads(pickle.dumps(kind("text", **facts)))
    assert (type(error), str(error)) == (kind, "text")
    assert {name: getattr(error, name) for name in facts} == facts


def test_a_lost_connection_is_no_failed_one_after_which_a_repeat_is_safe():
    assert not issubclass(errors.ConnectionLostError, errors.ConnectionFailedError)
    assert not issubclass(errors.ConnectionFailedError, errors.ConnectionLostError)


def test_an_error_without_facts_has_the_careful_ones():
    error = rocketpy.RocketPyError("text")
    assert (error.code, error.retryable, error.may_have_been_applied, error.hint) == (None, False, False, None)


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        ("InvalidArgumentError", "ValueError"),
        ("ConfigError", "ValueError"),
        ("RequestTimeoutError", "TimeoutError"),
        ("ConnectionFailedError", "ConnectionError"),
        ("ConnectionLostError", "ConnectionError"),
        ("TopicNotFoundError", "LookupError"),
        ("GroupNotFoundError", "LookupError"),
        ("StoreError", "OSError"),
        ("PortInUseError", "OSError"),
    ],
)
def test_errors_are_caught_by_pythons_own_names_too(kind, builtin):
    assert issubclass(getattr(errors, kind), getattr(builtins, builtin))


def test_a_timed_out_send_says_that_it_may_have_been_applied(stoppable):
    with rocketpy.Producer("errors", name_servers=[stoppable.name_server], retries=0) as producer:
        producer.send(rocketpy.Message("errors", b"first"), timeout=60)
        stoppable.freeze()
        with pytest.raises(rocketpy.RequestTimeoutError) as timed_out:
            producer.send(rocketpy.Message("errors", b"second"), timeout=0.3)
        stoppable.thaw()
        assert timed_out.value.broker == "broker-a"
        again = producer.send(rocketpy.Message("errors", b"second"), msg_id=timed_out.value.msg_id, timeout=60)
        assert again.msg_id == timed_out.value.msg_id
        assert timed_out.value.may_have_been_applied
        assert timed_out.value.retryable
        assert timed_out.value.code == 10002


def test_an_address_without_a_server_is_a_failed_connection_that_names_it(free_port):
    with (
        rocketpy.Admin(name_servers=[f"127.0.0.1:{free_port}"]) as admin,
        pytest.raises(rocketpy.ConnectionFailedError, match=str(free_port)) as failed,
    ):
        admin.topics()
    assert failed.value.retryable
    assert not failed.value.may_have_been_applied
    assert "listens" in failed.value.hint
