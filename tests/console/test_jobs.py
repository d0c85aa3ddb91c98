"""Jobs that resend dead letters, and exports: limits, ends, and results, with a false client."""

import asyncio
import json
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from rocketpy import ConnectionFailedError, RefusedError
from rocketpy.console.audit import AuditError
from rocketpy.console.exports import ExportRefusedError, Exports
from rocketpy.console.jobs import MAX_KEPT, MAX_RUNNING, JobRefusedError, Jobs, Order, count_of


def queue(number=0):
    return SimpleNamespace(broker_name="broker-a", queue_id=number)


def letter(offset):
    message = SimpleNamespace(queue=queue(), queue_offset=offset, msg_id=f"ID-{offset}")
    return SimpleNamespace(message=message, topic="orders")


def sent(one):
    receipt = SimpleNamespace(queue=queue(1), queue_offset=100 + one.message.queue_offset)
    return SimpleNamespace(letter=one, topic="orders", receipt=receipt, rejected=None)


class FalseClient:
    """Client that resends letters in memory, and stops before a letter until `gate` is set."""

    def __init__(self, *, stop_at=None, fail_at=None):
        self.stop_at, self.fail_at, self.options = stop_at, fail_at, None
        self.gate, self.reached, self.is_open = asyncio.Event(), asyncio.Event(), False

    @asynccontextmanager
    async def opened(self):
        self.is_open = True
        try:
            yield self
        finally:
            self.is_open = False

    async def letters(self, count):
        for offset in range(count):
            yield letter(offset)

    async def resend_dead_letters(self, letters, **options):
        self.options = options
        async for one in letters:
            offset = one.message.queue_offset
            if offset == self.stop_at:
                self.reached.set()
                await self.gate.wait()
            if offset == self.fail_at:
                raise ConnectionFailedError("cannot connect to 10.0.0.5:10911")
            yield sent(one)


def order(group="mailer", **fields):
    return Order("shop", group, "ada", "all", **fields)


async def finished(jobs, job):
    """Waits until a job has ended, with its record."""
    (task,) = [one for one in asyncio.all_tasks() if one.get_name() == f"resend {job.id}"] or [None]
    if task is not None:
        await asyncio.wait([task])
    assert not job.is_running


class Ends:
    """Records of the audit."""

    def __init__(self, error=None):
        self.error, self.jobs = error, []

    async def __call__(self, job):
        self.jobs.append((job.id, job.summary()))
        if self.error is not None:
            raise self.error


def start(jobs, client, ended, count=3, **fields):
    return jobs.start(order(**fields), lambda one: one.letters(count), client.opened, ended)


def test_job_resends_all_letters_and_reports_its_end_once():
    async def main():
        jobs, client, ended = Jobs(), FalseClient(), Ends()
        job = start(jobs, client, ended, rate=50.0, to="copies", again=True, total=3)
        assert (job.is_running, count_of(job), jobs.running("shop", "mailer")) == (True, "0 of 3", job)
        await finished(jobs, job)
        assert client.options == {"to": "copies", "rate": 50.0, "again": True}
        assert (job.state, count_of(job), job.share, client.is_open) == ("done", "3 of 3", 1.0, False)
        assert [(one.place, one.outcome, one.detail) for one in job.newest] == [
            (f"broker-a:0:{n}", "sent", f"broker-a:1:{100 + n}") for n in range(3)
        ]
        assert ended.jobs == [(job.id, "3 sent; done")]
        assert jobs.running("shop", "mailer") is None
        assert jobs.get("shop", job.id) is job
        assert jobs.get("other", job.id) is None, "a job is found through its own cluster only"

    asyncio.run(main())


def test_job_counts_each_outcome_and_keeps_reasons_of_rejections():
    outcomes = [
        {"topic": None, "receipt": None},
        {"receipt": None},
        {"receipt": None, "rejected": RefusedError("body exceeds " + "x" * 1000)},
    ]

    async def main():
        client = FalseClient()

        async def resend(letters, **_):
            async for one in letters:
                fields = outcomes[one.message.queue_offset]
                yield SimpleNamespace(**{**vars(sent(one)), **fields})

        client.resend_dead_letters = resend
        jobs = Jobs()
        job = start(jobs, client, Ends())
        await finished(jobs, job)
        assert dict(job.counts) == {"no topic": 1, "sent before": 1, "rejected": 1}
        (rejected,) = job.rejected
        assert len(rejected.detail) == 500, "a reason is cut"
        assert job.summary() == "0 sent, 1 sent before, 1 without an original topic, 1 rejected; done"

    asyncio.run(main())


def test_second_job_of_a_group_is_refused_until_the_first_ends():
    async def main():
        jobs, client, ended = Jobs(), FalseClient(stop_at=1), Ends()
        job = start(jobs, client, ended)
        await client.reached.wait()
        with pytest.raises(JobRefusedError, match=f"job {job.id} of this group is running"):
            start(jobs, client, ended)
        assert start(jobs, FalseClient(), ended, group="billing").is_running, "another group has its own"
        await jobs.cancel(job)
        assert (job.state, job.handled, client.is_open) == ("cancelled", 1, False)
        assert (job.id, "1 sent; cancelled") in ended.jobs
        assert start(jobs, FalseClient(), ended).is_running
        await jobs.cancel(job)  # does nothing
        await jobs.close()

    asyncio.run(main())


def test_number_of_running_and_of_kept_jobs_is_bounded():
    async def main():
        jobs, client, ended = Jobs(), FalseClient(stop_at=0), Ends()
        running = [start(jobs, client, ended, group=f"g-{n}") for n in range(MAX_RUNNING)]
        with pytest.raises(JobRefusedError, match="jobs are running"):
            start(jobs, client, ended, group="one-more")
        await jobs.cancel(running.pop())
        for n in range(MAX_KEPT + 5):
            await finished(jobs, start(jobs, FalseClient(), ended, group=f"f-{n}"))
        assert len(jobs.all()) == MAX_KEPT + len(running)
        assert jobs.all()[0].order.group == f"f-{MAX_KEPT + 4}", "the newest is first"
        assert all(one.is_running for one in running), "running jobs are never forgotten"
        await jobs.close()
        assert {one.state for one in running} == {"cancelled"}
        with pytest.raises(JobRefusedError, match="the console is ending"):
            start(jobs, client, ended)

    asyncio.run(main())


def test_job_ends_at_its_maximum_number_of_letters():
    async def main():
        jobs = Jobs(max_letters=2)
        job = start(jobs, FalseClient(), Ends(), count=3)
        await finished(jobs, job)
        assert (job.handled, job.is_cut, job.state) == (2, True, "done")
        whole = start(jobs, FalseClient(), Ends(), count=2)
        await finished(jobs, whole)
        assert not whole.is_cut

    asyncio.run(main())


def test_failed_job_shows_its_error_and_a_failed_audit_apart_from_it():
    async def main():
        jobs = Jobs()
        job = start(jobs, FalseClient(fail_at=1), Ends(AuditError("cannot write the audit log: no space left")))
        await finished(jobs, job)
        assert (job.state, job.handled) == ("failed", 1)
        assert job.summary() == "1 sent; failed: cannot connect to 10.0.0.5:10911"
        assert job.audit_error == "cannot write the audit log: no space left"

    asyncio.run(main())


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


async def lines_of(exports, claim, letters, facts):
    chunks = [chunk async for chunk in exports.lines(claim, letters, facts)]
    return [json.loads(line) for line in b"".join(chunks).splitlines()]


async def numbers(count):
    for number in range(count):
        yield number


def test_export_ends_at_its_maximum_size_or_duration_and_says_so():
    async def main():
        clock = Clock()
        exports = Exports(max_bytes=50, max_seconds=600, clock=clock)
        claim = exports.claim("ada")
        found = await lines_of(exports, claim, numbers(9), lambda n: {"n": "x" * n})
        assert [one.get("n") for one in found[:-1]] == ["", "x", "xx", "xxx"]
        assert found[-1] == {"incomplete": "the export reached its maximum size of 50 bytes", "letters": 4}
        exports.release(claim)
        claim = exports.claim("ada")

        def slow(number):
            clock.now += 400
            return {"n": number}

        found = await lines_of(exports, claim, numbers(9), slow)
        assert [one.get("n") for one in found[:-1]] == [0]
        assert "maximum duration of 600 s" in found[-1]["incomplete"]

    asyncio.run(main())


def test_export_that_fails_ends_with_its_error():
    async def broken():
        yield 1
        raise ConnectionFailedError("cannot connect to 10.0.0.5:10911")

    exports = Exports()
    found = asyncio.run(lines_of(exports, exports.claim("ada"), broken(), lambda n: {"n": n}))
    assert found == [
        {"n": 1},
        {"incomplete": "the export failed: cannot connect to 10.0.0.5:10911", "letters": 1},
    ]


def test_user_has_one_export_at_a_time_and_a_lost_claim_expires():
    clock = Clock()
    exports = Exports(max_seconds=600, clock=clock)
    first = exports.claim("ada")
    exports.claim("bob")
    with pytest.raises(ExportRefusedError, match="user ada has another one"):
        exports.claim("ada")
    clock.now = 611
    second = exports.claim("ada")
    exports.release(first)  # the old one does not give back the new one
    with pytest.raises(ExportRefusedError):
        exports.claim("ada")
    exports.release(second)
    exports.claim("ada")


def test_response_gives_the_claim_back_when_its_client_leaves_or_does_not_read():
    async def main(receive_now, seconds):
        exports = Exports(max_seconds=seconds)
        claim = exports.claim("ada")
        ends = []

        async def ended():
            ends.append(claim.reason)

        response = exports.response(claim, numbers(3), lambda n: {"n": n}, ended)
        response._seconds = seconds

        async def receive():
            if not receive_now:
                await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        async def send(message):
            if message["type"] == "http.response.body":
                await asyncio.Event().wait()

        await response({"type": "http", "asgi": {"spec_version": "2.0"}}, receive, send)
        exports.claim("ada")
        assert ends == ["the client left"]
        return dict(response.headers)

    headers = asyncio.run(main(True, 60))
    assert headers["content-disposition"] == 'attachment; filename="dead-letters.jsonl"'
    assert headers["content-type"] == "application/octet-stream"
    asyncio.run(main(False, 0.05))
