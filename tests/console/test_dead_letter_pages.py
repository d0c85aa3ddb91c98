"""Pages of dead letters on a real server: lists, filters, one letter, jobs, export, roles, hostile bodies."""

import json

import pytest
from group_pages import SAME, hidden, text_of, visiting
from wire import give_up

from rocketpy import Message
from rocketpy.console.masking import MaskRule
from rocketpy.testing import fresh_name
from waiting import wait_until

HOSTILE = "<script>alert(1)</script>\"'>{{7*7}}\x1b[31m\u202e"


@pytest.fixture(scope="module")
def visitor(rocketpy_server):
    with visiting(rocketpy_server.name_server) as visitor:
        yield visitor


@pytest.fixture
def group():
    return fresh_name("gives-up")


@pytest.fixture
def die(rocketpy_server, rocketpy_topic, group):
    """Makes dead letters of bodies."""

    def make(*bodies, error=None, **fields):
        with rocketpy_server.producer("shop") as producer, rocketpy_server.admin() as admin:
            before = len(list(admin.dead_letters(group))) if group in {one.name for one in admin.groups()} else 0
            sent = [
                producer.send(Message(rocketpy_topic, body, keys=[f"k-{n}"], **fields)) for n, body in enumerate(bodies)
            ]
            give_up(rocketpy_server.broker, group, *sent, error=error)
            wait_until(lambda: len(list(admin.dead_letters(group))) == before + len(bodies))
            return sent

    return make


def letters_of(visitor, group, **query):
    return visitor.get("api", "dead-letters", group, **query).json()["letters"]


def parts_of(letter):
    return letter["broker"], str(letter["queue"]), str(letter["offset"])


def preview(visitor, group, form):
    page = visitor.post("dead-letters", group, "resend", form=form, status=200).text
    return text_of(page), hidden(page)


def finished(visitor, group, location):
    """Job of an answer, after its end."""
    job = location.rsplit("/", 1)[-1]

    def facts():
        return visitor.get("api", "dead-letters", group, "~jobs", job).json()

    wait_until(lambda: facts()["state"] != "running", "the end of the job")
    return facts()


def test_list_shows_counts_and_times_but_no_error_without_waiting(visitor, group, die):
    die(b"a", b"b", error="ValueError: no such order")
    visitor.shows(f"{group} 2 20", "dead-letters", q=group)
    wait_until(lambda: visitor.get("api", "dead-letters", q=group).json()["groups"][0]["oldest"], "the ages are read")
    text = visitor.text("dead-letters", q=group)
    assert text.count("20") >= 2, "the oldest and the newest"
    data = visitor.get("api", "dead-letters", q=group).json()
    assert [(one["group"], one["count"]) for one in data["groups"]] == [(group, 2)]
    assert "no such order" not in text + str(data), "read with the collector's rights"
    assert "No group with dead letters matches" in visitor.text("dead-letters", q=fresh_name("nobody"))


def test_letters_are_shown_the_newest_first_and_filtered(visitor, rocketpy_topic, group, die):
    die(b"0", b"1", b"2")
    text = visitor.text("dead-letters", group)
    assert "3 shown, 3 read." in text
    assert [one["key"] for one in letters_of(visitor, group)] == ["k-2", "k-1", "k-0"]
    for query, keys in [
        ({"key": "k-1"}, ["k-1"]),
        ({"topic": rocketpy_topic, "since": "2020-01-01"}, ["k-2", "k-1", "k-0"]),
        ({"reason": "none"}, []),
        ({"reason": "GIVEN_UP"}, ["k-2", "k-1", "k-0"]),
        ({"until": "2020-01-01 00:00 UTC"}, []),
    ]:
        assert [one["key"] for one in letters_of(visitor, group, **query)] == keys, query
    assert "No dead letter matches." in visitor.text("dead-letters", group, key="nothing")
    visitor.get("dead-letters", group, since="soon", status=400)
    visitor.get("dead-letters", group, older="nowhere", status=400)
    visitor.get("dead-letters", fresh_name("nobody"), status=404)


def test_body_is_shown_on_the_page_of_its_letter_and_audited(rocketpy_server, visitor, group, die):
    die(b'{"order": 100000000000000000000, "note": "</script>"}')
    (letter,) = letters_of(visitor, group)
    assert "100000000000000000000" not in visitor.text("dead-letters", group), "no list has bodies"
    text = visitor.text("dead-letters", group, *parts_of(letter))
    assert '"order": 100000000000000000000' in text
    assert "Resent no" in text
    assert "GIVEN_UP" in text
    (line,) = [one for one in visitor.console.audit.recent if one["object"] == group and one["result"] == "started"
               and one["action"] == "read dead letter"]  # fmt: skip
    assert line["parameters"] == {"place": letter["place"], "body": True}
    assert "100000000000000000000" not in json.dumps(list(visitor.console.audit.recent)), "no line has bodies"
    with visiting(rocketpy_server.name_server, host="0.0.0.0") as remote:
        text = remote.text("dead-letters", group, *parts_of(letter))
        assert "Show body" in text
        assert "100000000000000000000" not in text
        assert "100000000000000000000" in remote.text("dead-letters", group, *parts_of(letter), bodies="1")
    visitor.get("dead-letters", group, letter["broker"], "0", "999", status=404)
    visitor.get("dead-letters", group, letter["broker"], "x", "y", status=400)


def test_hostile_letter_is_shown_as_text(visitor, group, die):
    die(HOSTILE.encode(), b"\xff\x00", b"[" * 100_000, b"x" * (3 << 20), error=HOSTILE, tag="<b>tag</b>")
    pages = [visitor.get("dead-letters", group).text]
    letters = letters_of(visitor, group)
    pages += [visitor.get("dead-letters", group, *parts_of(one)).text for one in letters]
    pages.append(visitor.get("dead-letters", group, *parts_of(letters[0]), view="hex").text)
    typed = visitor.get("dead-letters", group, topic=HOSTILE, key=HOSTILE, older="").text
    assert "<script>alert" not in typed
    for page in pages:
        for bad in ("<script>alert", "<b>tag", "\x1b", "\u202e"):
            assert bad not in page
        assert len(page) < 1_000_000, "a body is cut"
    assert "<script>alert(1)</script>" in text_of(pages[0])


def test_selected_letters_are_resent_after_a_preview(visitor, rocketpy_server, rocketpy_topic, group, die):
    die(b"0", b"1", b"2")
    chosen = [one["place"] for one in letters_of(visitor, group)[:2]]
    form = [("step", "preview"), ("rate", "500"), *(("place", one) for one in chosen)]
    text, _ = preview(visitor, group, form)
    assert "2 dead letters, at most 500 a second" in text
    assert f"{rocketpy_topic} 2" in text
    assert "The command line selects by topic, time and key only" in text
    assert visitor.audit("resend dead letters") == [] or visitor.audit("resend dead letters")[-1][0] != group
    answer = visitor.post("dead-letters", group, "resend", form=[("step", "apply"), *form[1:], ("count", "2")])
    facts = finished(visitor, group, answer.headers["location"])
    assert (facts["state"], facts["counts"], facts["total"]) == ("done", {"sent": 2}, 2)
    assert sorted(one["place"] for one in facts["newest"]) == sorted(chosen)
    with rocketpy_server.admin() as admin:
        for one in facts["newest"]:
            assert admin.message(rocketpy_topic, one["msg_id"]) is not None
    page = visitor.client.get(answer.headers["location"]).text
    assert "2 of 2" in text_of(page)
    ends = [one for one in visitor.audit("end of resend") if one[0] == group]
    assert ends[-1] == (group, "done", "2 sent; done")
    assert [one[1] for one in visitor.audit("resend dead letters") if one[0] == group] == ["started", "done"]


def test_all_that_match_are_resent_with_the_same_command(visitor, group, die):
    die(b"0", b"1", b"2")
    text, form = preview(visitor, group, {"all": "1", "key": "k-1", "rate": "500"})
    assert "1 dead letter, at most 500 a second" in text
    assert f"rocketpy dlq resend {group} --key=k-1 --rate=500 --yes" in text
    assert (form["all"], form["key"], form["step"], form["count"]) == ("1", "k-1", "apply", "1")
    answer = visitor.post("dead-letters", group, "resend", form=form)
    facts = finished(visitor, group, answer.headers["location"])
    assert (facts["counts"], facts["selection"]) == ({"sent": 1}, "key k-1")


def test_job_of_a_group_excludes_another_and_can_be_cancelled(visitor, group, die):
    die(*(b"%d" % n for n in range(10)))
    answer = visitor.post("dead-letters", group, "resend", form={"step": "apply", "all": "1", "rate": "0.1"})
    job = answer.headers["location"].rsplit("/", 1)[-1]
    text, form = preview(visitor, group, {"all": "1"})
    assert f"Job {job} of this group is running" in text
    assert form == {}
    refused = visitor.post("dead-letters", group, "resend", form={"step": "apply", "all": "1"}, status=409)
    assert f"job {job} of this group is running" in text_of(refused.text)
    assert visitor.audit("resend dead letters")[-1][:2] == (group, "failed")
    assert f"Job {job}" in visitor.text("dead-letters"), "the list leads to it"
    visitor.post("dead-letters", group, "~jobs", job, "cancel")
    facts = visitor.get("api", "dead-letters", group, "~jobs", job).json()
    assert facts["state"] == "cancelled"
    assert facts["handled"] < 10
    visitor.get("dead-letters", group, "~jobs", "unknown", status=404)
    visitor.get("dead-letters", fresh_name("other"), "~jobs", job, status=404)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ({"step": "apply"}, "no dead letter is selected"),
        ({"all": "1", "rate": "0"}, "rate must be a number from 0.1 to 1,000"),
        ({"all": "1", "rate": "nan"}, "rate must be a number"),
        ({"all": "1", "step": "x"}, "step must be preview or apply"),
        ({"place": "x"}, "place of a dead letter must be"),
        ({"all": "1", "since": "soon"}, "not a point in time"),
    ],
)
def test_invalid_form_of_a_resend_is_refused(visitor, group, form, text):
    assert text in text_of(visitor.post("dead-letters", group, "resend", form=form, status=400).text)


def test_unknown_target_topic_is_refused_before_anything_is_sent(visitor, group, die):
    die(b"0")
    form = {"step": "apply", "all": "1", "to": fresh_name("nowhere")}
    visitor.post("dead-letters", group, "resend", form=form, status=404)
    assert [one for one in visitor.audit("resend dead letters") if one[0] == group] == []


def test_export_streams_all_matching_letters_as_lines(visitor, group, die):
    die(b"0", b"\xff", error=HOSTILE)
    answer = visitor.get("dead-letters", group, "export")
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [one.get("body", one.get("body_base64")) for one in lines] == ["0", "/w=="]
    assert all(one["error"].startswith("<script>alert(1)</script>") for one in lines)
    assert answer.headers["content-disposition"] == 'attachment; filename="dead-letters.jsonl"'
    assert answer.headers["content-type"] == "application/octet-stream"
    assert [one for one in visitor.audit("end of export") if one[0] == group][-1][1:] == (
        "done",
        "2 messages, complete",
    )
    only = visitor.get("dead-letters", group, "export", key="k-1").text.splitlines()
    assert len(only) == 1
    assert [one[1] for one in visitor.audit("export dead letters") if one[0] == group][:2] == ["started", "done"]
    visitor.get("dead-letters", fresh_name("nobody"), "export", status=404)
    visitor.get("dead-letters", group, "export", since="soon", status=400)
    visitor.get("dead-letters", group, "export")  # failures gave the claim back


PAGES = [(), ("G",), ("G", "broker", "0", "0"), ("G", "export"), ("G", "~jobs", "x")]
WRITES = [("G", "resend"), ("G", "~jobs", "x", "cancel")]


def test_reader_neither_sees_letters_nor_resends(rocketpy_server, group, die):
    die(b"secret")
    with visiting(rocketpy_server.name_server, "reader") as reader:
        for parts in PAGES:
            names = [group if one == "G" else one for one in parts]
            page = reader.get("dead-letters", *names, status=403)
            assert "secret" not in page.text
            reader.get("api", "dead-letters", *names, status=403)
        for parts in WRITES:
            names = [group if one == "G" else one for one in parts]
            reader.post("dead-letters", *names, form={"all": "1"}, status=403)
            reader.post("api", "dead-letters", *names, form={"all": "1"}, status=403)
        assert "Dead letters" not in [one.title for one in _nav(reader)]


def _nav(visitor):
    """Lines of the side bar, by the table of routes."""
    page = visitor.get("groups").text
    return [line for line in page.split("<li>") if "dead-letters" in line]


@pytest.mark.parametrize("role", ["operator", "admin"])
def test_operator_and_admin_resend(rocketpy_server, group, die, role):
    die(b"0")
    with visiting(rocketpy_server.name_server, role) as visitor:
        answer = visitor.post("dead-letters", group, "resend", form={"step": "apply", "all": "1", "rate": "500"})
        assert finished(visitor, group, answer.headers["location"])["counts"] == {"sent": 1}


def test_write_of_another_site_is_refused(visitor, group, die):
    die(b"0")
    headers = {**SAME, "Sec-Fetch-Site": "cross-site"}
    found = visitor.client.post(visitor.url("dead-letters", group, "resend"), headers=headers)
    assert found.status_code == 403


def test_hidden_fields_stay_hidden_on_all_ways(rocketpy_server, rocketpy_topic, group, die):
    die(b'{"card": "4111", "order": 1}', error="ValueError: card 4111", properties={"token": "t-4111"})
    rules = (MaskRule(rocketpy_topic, paths=("card",), properties=("token", "KEYS")),)
    other = fresh_name("other")
    with visiting(rocketpy_server.name_server, masks=rules) as visitor:
        (letter,) = letters_of(visitor, group)
        ways = [
            visitor.get("dead-letters", group).text,
            visitor.get("dead-letters", group, *parts_of(letter)).text,
            visitor.get("api", "dead-letters", group, *parts_of(letter)).text,
            visitor.get("dead-letters", group, "export").text,
            visitor.get("dead-letters").text,
            json.dumps(list(visitor.console.audit.recent)),
        ]
        for way in ways:
            assert "4111" not in way
            assert "k-0" not in way
        assert "•••" in ways[1]
        visitor.get("dead-letters", group, key="k-0", status=400)
        with rocketpy_server.admin() as admin:
            admin.create_topic(other, queues=1)
        form = {"all": "1", "to": other}
        text = text_of(visitor.post("dead-letters", group, "resend", form=form, status=409).text)
        assert "some of its fields are hidden from your role" in text
    with visiting(rocketpy_server.name_server, "admin", masks=rules) as admin:
        assert "4111" in admin.get("dead-letters", group, "export").text
