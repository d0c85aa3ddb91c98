"""`rocketpy message`: single messages, looked up by key or by id."""

from typing import Annotated, Literal

import typer

from rocketpy import Admin, Answers, MessageTrace, ReceivedMessage, TracedSend
from rocketpy.admin.calls import BROKER_LIMIT, CUT_OFF, cut_off
from rocketpy.admin.trace import TRACE_TOPIC
from rocketpy.base.message_facts import as_json_or_damaged as facts_of
from rocketpy.base.text import printable
from rocketpy.cli.message_output import shortened, text_or_damaged
from rocketpy.cli.missing import check_missing
from rocketpy.cli.options import LOCAL, WAITING, Json, NameServer
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode
from rocketpy.commandline.selection import moment

TIMES = "--begin and --end leave out messages stored at other times"
AN_ID = "ids have 32 hexadecimal digits: msg_id, or offset_msg_id of a receipt; `consume --format json` shows msg_id"
HINTS = {
    "--key": f"keys are those of `rocketpy produce --key`; {TIMES}",
    "--id": AN_ID,
    "--unique-key": f"{AN_ID}; {TIMES}",
}
"""Hints for an empty result."""
KINDS: dict[str, Literal["key", "unique_key", "tag"]] = {"--key": "key", "--unique-key": "unique_key", "--tag": "tag"}


def query(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of the messages.")] = None,
    unique_key: Annotated[
        str | None, typer.Option("--unique-key", "-u", help="Id that the producer assigned to the message: msg_id.")
    ] = None,
    message_id: Annotated[
        str | None, typer.Option("--id", "-i", help="Id with the message's position (offset_msg_id), or its msg_id.")
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Tag of the messages.")] = None,
    begin: Annotated[
        str | None, typer.Option("--begin", metavar="TIME", help="Stored at or after this time, or -10m.")
    ] = None,
    end: Annotated[str | None, typer.Option("--end", metavar="TIME", help="Stored at or before this time.")] = None,
    most: Annotated[int, typer.Option("--max", min=1, help="Maximum number of messages; the newest are kept.")] = 64,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Find the messages of a topic that have a key, a tag, or an id."""
    wanted = {"--key": key, "--unique-key": unique_key, "--id": message_id, "--tag": tag}
    given = [(flag, value) for flag, value in wanted.items() if value is not None]
    if not given:
        missing = f"missing option: one of {', '.join(wanted)}"
        raise CommandError(missing, ExitCode.USAGE, "add one of them, such as --key KEY")
    if len(given) > 1:
        both = " and ".join(flag for flag, _ in given)
        raise CommandError(f"{both} cannot be given together", ExitCode.USAGE, "query by one of them at a time")
    [(flag, value)] = given
    with Admin(name_servers=name_server, **WAITING) as admin:
        if flag == "--id":
            one = admin.message(topic, value)
            found = [] if one is None else [one]
        else:
            found = admin.query_messages(
                topic,
                value,
                kind=KINDS[flag],
                begin=None if begin is None else moment(begin, "--begin"),
                end=None if end is None else moment(end, "--end"),
                max_messages=most,
                partial=True,
            )
    away = found.missing if isinstance(found, Answers) else ()
    for broker_name in cut_off(found, most):
        text = CUT_OFF % (broker_name, BROKER_LIMIT, value)
        output.STDERR.print(printable(text), soft_wrap=True, markup=False, highlight=False)
    if found or as_json:
        rows = [facts_of(one) if as_json else row(one) for one in found]
        output.show(rows, as_json=as_json, empty=f"no messages of {topic} at {name_server}", in_blocks=True)
    check_missing(away, f"messages of {topic}")
    if not found:
        raise CommandError(
            f"no message of {topic} at {name_server} has {flag} {value}", ExitCode.NOT_FOUND, HINTS.get(flag, TIMES)
        )


def trace(
    msg_id: Annotated[str, typer.Argument(metavar="MSG_ID")],
    topic: Annotated[str, typer.Option("--trace-topic", metavar="TOPIC", help="Topic of the traces.")] = TRACE_TOPIC,
    begin: Annotated[
        str | None, typer.Option("--begin", metavar="TIME", help="Traces stored at or after this time, or -10m.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--end", metavar="TIME", help="Traces stored at or before this time.")
    ] = None,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Show the trace of a message from tracing clients: where it was stored, who consumed it, when, and durations."""
    with Admin(name_servers=name_server, **WAITING) as admin:
        found = admin.trace(
            msg_id,
            trace_topic=topic,
            begin=None if begin is None else moment(begin, "--begin"),
            end=None if end is None else moment(end, "--end"),
        )
    if not found:
        hint = f"only clients with trace=True write traces, some seconds later; {AN_ID}; {TIMES}"
        raise CommandError(f"no trace of message {msg_id} in {topic} at {name_server}", ExitCode.NOT_FOUND, hint)
    if as_json:
        output.show_one(output.plain(found), as_json=True)
    else:
        empty = f"no trace of message {msg_id} in {topic} at {name_server}"
        output.show(steps(found), as_json=False, title=f"message {msg_id}", empty=empty, in_blocks=True)


def steps(found: MessageTrace) -> list[dict[str, object]]:
    """Returns the rows of a trace in time order."""
    rows = [
        step("stored", one.at, one.group, one.client, one.cost_ms, outcome(one.success), stored_where(one))
        for one in found.sends
    ]
    rows += [
        step(
            "consumed",
            one.began_at or one.ended_at,
            one.group,
            one.client,
            one.cost_ms,
            one.result or outcome(one.success),
            f"retry {one.retries}" if one.retries else None,
        )
        for one in found.deliveries
    ]
    rows += [
        step("transaction", one.at, one.group, one.client, None, one.state, f"at {one.store_host}")
        for one in found.transactions
    ]
    rows += [step("recalled", one.at, one.group, one.client, None, outcome(one.success), None) for one in found.recalls]
    return sorted(rows, key=lambda row: str(row["at"]))


def step(
    what: str, at: object, group: str | None, client: str, cost_ms: int | None, result: str, details: str | None
) -> dict[str, object]:
    """Returns a row of a trace."""
    return {
        "step": what,
        "at": at,
        "group": group,
        "client": client,
        "ms": cost_ms,
        "result": result,
        "details": details,
    }


def outcome(success: bool | None) -> str:
    """Returns the outcome of a step in a word."""
    return "not done" if success is None else "success" if success else "failed"


def stored_where(sent: TracedSend) -> str:
    """Returns topic, broker and position of a message."""
    place = f", offset_msg_id {sent.offset_msg_id}" if sent.offset_msg_id else ""
    return f"{sent.topic} at {sent.store_host}{place}"


def row(message: ReceivedMessage) -> dict[str, object]:
    """Returns the table row of a message."""
    return {
        "broker_name": message.broker_name,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "stored_at": message.stored_at,
        "msg_id": message.msg_id,
        "tag": message.tag and shortened(message.tag),
        "keys": shortened(" ".join(message.keys)),
        "body": text_or_damaged(message),
    }
