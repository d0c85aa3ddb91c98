"""`rocketpy message resend`."""

from typing import Annotated

import typer

from rocketpy import Admin, DirectResult, ResentMessage
from rocketpy.cli.group import existing
from rocketpy.cli.message_output import text_or_damaged
from rocketpy.cli.options import LOCAL, WAITING, DryRun, Json, NameServer
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode

DIRECT = "--now needs --group GROUP: the group whose member handles the message"


def resend(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    msg_id: Annotated[str, typer.Argument(metavar="MSG_ID", help="msg_id, or offset_msg_id.")],
    to: Annotated[str | None, typer.Option("--to", metavar="TOPIC", help="Target instead of the same topic.")] = None,
    group: Annotated[
        str | None, typer.Option("--group", help="Only this group receives the copy, by its retry topic.")
    ] = None,
    now: Annotated[
        bool, typer.Option("--now", help="A live member of the group handles the message at once; nothing is stored.")
    ] = False,
    client: Annotated[
        str | None, typer.Option("--client", metavar="ID", help="Member for --now. Default: the first one.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Send even if the target has a copy.")] = False,
    dry_run: DryRun = False,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Send a stored message again: to its topic, to another topic, or to one consumer group. No copy is sent twice."""
    if now and group is None:
        raise CommandError("--now names no group", ExitCode.USAGE, DIRECT)
    if to is not None and group is not None:
        raise CommandError("--to and --group cannot be given together", ExitCode.USAGE, "a group reads its own copy")
    with Admin(name_servers=name_server, **WAITING) as admin, existing(group or ""):
        if now and group is not None and not dry_run:
            show_direct(admin.consume_directly(topic, msg_id, group, client_id=client), msg_id, as_json)
            return
        resent = admin.resend_message(topic, msg_id, to=to, group=group, again=again, dry_run=dry_run or now)
    show_resent(resent, group, is_direct=now, dry_run=dry_run, again=again, as_json=as_json)


def show_direct(result: DirectResult, msg_id: str, as_json: bool) -> None:
    """Prints the outcome of a handler.

    Raises:
        CommandError: The handler failed.
    """
    facts = {"msg_id": msg_id, **output.plain(result)}
    output.show_one(facts, as_json=as_json)
    if result.result != "success":
        text = f"handler of {result.client_id} did not succeed: {result.error or result.result}"
        raise CommandError(text, ExitCode.REFUSED, "the log of that consumer has the error; the message is unchanged")


def show_resent(
    resent: ResentMessage, group: str | None, *, is_direct: bool, dry_run: bool, again: bool, as_json: bool
) -> None:
    """Prints the message and the state of its copy."""
    if resent.receipt is not None:
        state = "sent"
    elif resent.sent_before and not again and not is_direct:
        state = "sent before: --again sends once more"
    else:
        state = "would be handled at once" if is_direct else "would be sent" if dry_run else "not sent"
    facts = {
        "topic": resent.message.topic,
        "msg_id": resent.message.msg_id,
        "to": resent.topic,
        "group": group,
        "body": text_or_damaged(resent.message),
        "copy_msg_id": resent.receipt and resent.receipt.msg_id,
        "state": state,
    }
    output.show_one(facts, as_json=as_json)
