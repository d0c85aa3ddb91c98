"""Apache's Java, Go and C++ clients and RocketPy's under quotas: they come again, and nothing is lost or comes twice.

Shows how each client bears the answers to a send and to a pull over quota on one broker; how much passes when is shown
by the broker's own tests, with a clock of theirs.
"""

from concurrent.futures import ThreadPoolExecutor

from peers import Cpp, Go, Java, finish
from rocketpy import Admin, Quota, QuotaUse
from sdk import fresh, messages, read, send

CLIENTS = ("cpp", "go", "java", "python")


def quota_of(admin: Admin, name: str) -> QuotaUse:
    [use] = [use for use in admin.quotas(master(admin)) if use.quota.name == name]
    return use


def master(admin: Admin) -> str:
    return admin.brokers()[0].addresses[0]


def test_sends_over_quota_wait_and_come_again_when_they_are_rejected(
    cpp: Cpp, go: Go, java: Java, rocketpy_address: str, home
):
    """Each message takes 1.5 seconds of its quota, so that the third is rejected after one.

    Its client repeats it; Go's gives the error to its caller, and has nothing stored that was not acknowledged.
    """
    topics = {client: fresh(f"quota-{client}") for client in CLIENTS}
    names = {client: client for client in CLIENTS} | {
        "go": "g" * 3000
    }  # its driver pads no body, and has it as key too
    with Admin(rocketpy_address) as admin:
        for client, topic in topics.items():
            admin.create_topic(topic, queues=2)
            admin.set_quota(master(admin), Quota("topic", topic, send_bytes=4000 if client == "go" else 2000))
        peers = {"cpp": cpp, "go": go, "java": java}
        drivers = {
            client: peer.start_driver(
                home / client, "send", rocketpy_address, topics[client], "3", names[client], "A", "3000"
            )
            for client, peer in peers.items()
        }
        send(rocketpy_address, messages(topics["python"], 3, "python", "A", 3000))
        rejected = drivers.pop("go")
        out, error = rejected.communicate(timeout=600)
        assert f"CODE: 2, DESC: send quota of topic {topics['go']} exceeded: limit 4000 bytes/s, try again in" in error
        stored = dict.fromkeys(CLIENTS, 3) | {"go": out.count("SEND_OK")}
        for driver in drivers.values():
            assert {one["status"] for one in finish(driver)} <= {"OK", "SEND_OK"}
        for client, topic in topics.items():
            came = read(rocketpy_address, topic, stored[client])
            assert sorted(one["keys"] for one in came) == [f"{names[client]}-{i}" for i in range(stored[client])]
            use = quota_of(admin, topic)
            assert use.throttled > 0, client
            assert use.rejected > 0, client
            admin.remove_quota(master(admin), "topic", topic)


def test_consumers_over_quota_are_held_and_come_again(cpp: Cpp, go: Go, java: Java, rocketpy_address: str, home):
    """The first pull takes the messages of seven seconds: the next one is held, repeated, and held again."""
    topic, prefix = fresh("quota-pulled"), fresh("quota-readers")
    with Admin(rocketpy_address) as admin:
        admin.create_topic(topic, queues=1)
        send(rocketpy_address, messages(topic, 40, "p"))
        admin.set_quota(master(admin), Quota("group", f"{prefix}*", pull_messages=5))
        peers = {"cpp": cpp, "go": go, "java": java}
        drivers = {
            name: peer.start_driver(home / name, "push", rocketpy_address, topic, "40", f"{prefix}-{name}")
            for name, peer in peers.items()
        }
        with ThreadPoolExecutor(1) as pool:
            by_python = pool.submit(read, rocketpy_address, topic, 40, group=f"{prefix}-python")
            came = {name: finish(driver) for name, driver in drivers.items()} | {"python": by_python.result(120)}
        for name, lines in came.items():
            assert [one["body"] for one in sorted(lines, key=lambda one: one["queue_offset"])] == [
                f"p-{i}" for i in range(40)
            ], name
        use = quota_of(admin, f"{prefix}*")
        assert use.throttled >= len(CLIENTS)
        assert use.rejected > 0
        admin.remove_quota(master(admin), "group", f"{prefix}*")
