"""`rocketpy dlq`: list, show, resend, export the dead letters of consumer groups."""

import json
import os
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from rocketpy import Admin, InvalidArgumentError, Message, RocketPyError, TopicNotFoundError
from rocketpy.admin.dead_letters import PREFIX, DeadLetter, DeadLetterFilter, Resent
from rocketpy.base.message_facts import letter_facts
from rocketpy.base.text import printable
from rocketpy.cli.message_output import shortened, text_or_damaged
from rocketpy.cli.missing import notice
from rocketpy.cli.options import LOCAL, WAITING, DryRun, Json, NameServer
from rocketpy.commandline import output
from rocketpy.commandline.exits import CommandError, ExitCode
from rocketpy.commandline.selection import Property, Since, Until, dead_letters, filter_of
from rocketpy.errors import UNKNOWN, UNREADABLE_BODY


def group_of(given: str) -> str:
    """Returns the group; accepts the name of its dead-letter topic too."""
    return given.removeprefix(PREFIX)


Group = Annotated[
    str,
    typer.Argument(
        metavar="GROUP",
        help="Consumer group, or its dead-letter topic.",
        callback=group_of,
    ),
]
Topic = Annotated[str | None, typer.Option("--topic", help="Only dead letters with this topic of origin.")]
Key = Annotated[str | None, typer.Option("--key", "-k", help="Only dead letters with this key.")]
Id = Annotated[str | None, typer.Option("--id", "-i", metavar="MSG_ID", help="Only this msg_id.")]
Most = Annotated[int | None, typer.Option("--max", min=1, help="Maximum number of messages; the oldest are selected.")]

STDOUT = Path("-")


def list_groups(
    check: Annotated[
        int,
        typer.Option(
            "--check", min=0, metavar="N", help="Look up resent copies of at most N dead letters of all groups."
        ),
    ] = 1000,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """List the consumer groups that have dead letters, with the number of resent ones and the error of the newest.

    Resent dead letters stay until they expire. A copy sent to another topic by --to does not count.
    """
    with Admin(name_servers=name_server, **WAITING) as admin:
        groups = admin.dead_letter_groups(check_resent=check, partial=True)
    rows = output.rows_of(groups)
    for row in rows:
        if (problem := row.pop("resent_error")) is not None:
            notice_unknown(problem)
    output.show(rows, as_json=as_json, empty=f"no group has dead letters at {name_server}", in_blocks=True)
    notice(groups.missing, "dead letters")


def show(
    group: Group,
    topic: Topic = None,
    since: Since = None,
    until: Until = None,
    key: Key = None,
    msg_id: Id = None,
    properties: Property = None,
    most: Annotated[
        int, typer.Option("--max", min=1, help="Maximum number of messages: the oldest, or the newest with --newest.")
    ] = 64,
    newest: Annotated[bool, typer.Option("--newest", help="The newest first.")] = False,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Show dead letters of a group, with topic of origin, reason, error of the handler and beginning of the body.

    `resent` is true if the topic of origin has the copy of a resend, and empty if a broker does not answer.
    """
    which = filter_of(topic, since, until, key, msg_id, properties)
    with Admin(name_servers=name_server, **WAITING) as admin:
        letters: list[DeadLetter] = []
        problem: RocketPyError | None = None
        try:
            letters.extend(islice(dead_letters(admin, group, which, newest_first=newest), most + 1))
        except UNKNOWN as error:
            if not letters:
                raise
            problem = error  # of a broker that does not answer, after the dead letters of the others
        resent = resent_of(admin, letters[:most])
    shown = zip(letters, resent, strict=False)
    rows = [{**(letter_facts(letter) if as_json else row(letter)), "resent": is_resent} for letter, is_resent in shown]
    output.show(rows, as_json=as_json, empty=none_of(group, which, name_server), in_blocks=True)
    if len(letters) > most:
        stream = sys.stderr if as_json else sys.stdout
        print(f"only the {'newest' if newest else 'oldest'} {most} are shown: --max N shows N", file=stream)
    if problem is not None:
        raise CommandError(str(problem), ExitCode.UNAVAILABLE, "the dead letters of the other brokers are printed")


def resent_of(admin: Admin, letters: Iterable[DeadLetter]) -> list[bool | None]:
    """Returns whether each dead letter was resent, or None if its topic of origin cannot be read; prints one notice."""
    unknown: dict[str | None, Exception] = {}
    found: list[bool | None] = []
    for letter in letters:
        resent = None
        if letter.topic not in unknown:
            try:
                resent = admin.was_resent(letter)
            except UNKNOWN as error:
                unknown[letter.topic] = error
        found.append(resent)
    if unknown:
        notice_unknown(next(iter(unknown.values())))
    return found


def notice_unknown(problem: object) -> None:
    """Prints that `resent` is unknown."""
    print(printable(f"`resent` is unknown: {problem}"), file=sys.stderr)


def export(
    group: Group,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="File to write; - or omitted: standard output.")
    ] = None,
    topic: Topic = None,
    since: Since = None,
    until: Until = None,
    key: Key = None,
    msg_id: Id = None,
    properties: Property = None,
    most: Most = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    name_server: NameServer = LOCAL,
) -> None:
    """Write dead letters of a group as JSON lines, in the form that `rocketpy produce --format json` reads."""
    which = filter_of(topic, since, until, key, msg_id, properties)
    if file == STDOUT:
        file = None
    if file is not None and file.exists() and not force:
        raise CommandError(
            f"{file} already exists", ExitCode.USAGE, "choose another name, or add --force to replace it"
        )
    with Admin(name_servers=name_server, **WAITING) as admin:
        letters = islice(dead_letters(admin, group, which), most)
        if file is None:
            write(letters, sys.stdout)
            return
        count = write_file(letters, file)
    output.STDERR.print(f"{output.counted(count, 'dead letter')} of {group} in {file}", markup=False)


def write_file(letters: Iterable[DeadLetter], file: Path) -> int:
    """Writes one line per dead letter to a file, which is replaced when it is complete; returns their number.

    A device or a pipe is written in place. A link stays: the file that it points to is replaced.
    """
    if file.exists() and not file.is_file():
        with file.open("w", encoding="utf-8") as stream:
            return write(letters, stream)
    file = Path(os.path.realpath(file))
    part = file.with_name(f"{file.name}.part")
    try:
        with part.open("w", encoding="utf-8") as stream:
            count = write(letters, stream)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
    return count


def write(letters: Iterable[DeadLetter], stream: Any) -> int:
    """Writes one line per dead letter; returns their number."""
    count = 0
    escapes = stream.encoding.lower().replace("-", "") != "utf8"  # any charset has ASCII
    for letter in letters:
        stream.write(json.dumps(letter_facts(letter), ensure_ascii=escapes) + "\n")
        count += 1
    return count


def preview(
    admin: Admin, letters: Iterable[DeadLetter], to: str | None, again: bool, as_json: bool, empty: str
) -> None:
    """Prints the dead letters that `resend --yes` would send, and how many it would leave out."""
    rejections: dict[str, str | None] = {}
    rows: list[dict[str, Any]] = []
    damaged = 0
    for letter in letters:
        target = to or letter.topic
        if target is not None and target not in rejections:
            rejections[target] = rejection_of(admin, target)
        reason = None if target is None else rejections[target]
        if target is not None and reason is None and (reason := damage_of(letter)) is not None:
            damaged += 1
        facts = {"to": target, "sent_before": admin.was_resent(letter, to=to), "rejected": reason}
        rows.append({**row(letter), **facts})
    output.show(rows, as_json=as_json, empty=empty, in_blocks=True)
    if rows and not as_json:
        left = sum(one["to"] is None for one in rows)
        rejected = sum(one["rejected"] is not None for one in rows)
        known = 0 if again else sum(one["sent_before"] is True for one in rows)
        print(f"{output.counted(len(rows) - known - left - rejected, 'dead letter')} would be sent: add --yes")
        print(others(known, left), end="")
        if rejected > damaged:
            away = rejected - damaged
            print(f"{away:,} cannot be sent to the topic of origin, see `rejected`: --to TOPIC names another one")
        if damaged:
            print(f"{damaged:,} cannot be sent, because the body does not decompress")


def damage_of(letter: DeadLetter) -> str | None:
    """Returns the error of a body that does not decompress; None if it does."""
    try:
        _ = letter.message.body
    except UNREADABLE_BODY as error:
        return str(error)
    return None


def rejection_of(admin: Admin, topic: str) -> str | None:
    """Returns why a topic takes no dead letter: its name is invalid, or it does not exist. None if it takes them."""
    try:
        Message(topic, b" ")  # checks the name
        admin.describe_topic(topic)
    except (TopicNotFoundError, InvalidArgumentError) as error:
        return str(error)
    return None


def resend(
    group: Group,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TOPIC", help="Target instead of the topic of origin.")
    ] = None,
    topic: Topic = None,
    since: Since = None,
    until: Until = None,
    key: Key = None,
    msg_id: Id = None,
    properties: Property = None,
    most: Most = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.001, metavar="N", help="Maximum number of messages per second.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Also send dead letters that were resent before.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Send. Without it, the messages are only shown.")] = False,
    dry_run: DryRun = False,
    name_server: NameServer = LOCAL,
    as_json: Json = False,
) -> None:
    """Send dead letters again, each to its topic of origin. They are kept, and none is sent twice by mistake."""
    which = filter_of(topic, since, until, key, msg_id, properties)
    with ExitStack() as stack:
        admin = stack.enter_context(Admin(name_servers=name_server, **WAITING))
        if to is not None:
            admin.describe_topic(to)  # the preview refuses a topic that is not there, as the resend does
        letters = islice(dead_letters(admin, group, which), most)
        if dry_run or not yes:
            preview(admin, letters, to, again, as_json, none_of(group, which, name_server))
            return
        bar = stack.enter_context(output.progress(quiet=as_json))
        task = bar.add_task(f"dead letters of {group}", total=None)
        sent = known = left = 0
        rejected: list[Resent] = []
        try:
            for resent in admin.resend_dead_letters(letters, to=to, rate=rate, again=again):
                if resent.rejected is not None:
                    rejected.append(resent)
                elif resent.topic is None:
                    left += 1
                elif resent.receipt is None:
                    known += 1
                else:
                    sent += 1
                bar.update(task, completed=sent + known + left + len(rejected))
        except BaseException:
            notice_of_end(sent)
            raise
    if as_json:
        facts = {
            "group": group,
            "sent": sent,
            "sent_before": known,
            "without_origin": left,
            "rejected": [{"msg_id": one.letter.message.msg_id, "reason": str(one.rejected)} for one in rejected],
        }
        output.show_one(facts, as_json=True)
    else:
        print(f"{output.counted(sent, 'dead letter')} sent\n{others(known, left)}", end="")
    output.check_rejected("dead letter", [f"{one.letter.message.msg_id}: {one.rejected}" for one in rejected])


def notice_of_end(sent: int) -> None:
    """Prints how many dead letters an interrupted resend has sent."""
    count = output.counted(sent, "dead letter")
    output.STDERR.print(f"{count} sent; run the command again to continue", markup=False)


def others(known: int, left: int) -> str:
    """Returns lines about the dead letters that are not sent."""
    lines = ""
    if known:
        lines += f"{output.counted(known, 'dead letter')} sent before: --again sends once more\n"
    if left:
        without = output.counted(left, "dead letter")
        lines += f"{without} without a topic of origin: --to TOPIC sends those that --id or other options select\n"
    return lines


def none_of(group: str, which: DeadLetterFilter, name_server: str) -> str:
    """Returns the text for an empty result."""
    return f"{group} has no {'' if which == DeadLetterFilter() else 'matching '}dead letters at {name_server}"


def row(letter: DeadLetter) -> dict[str, object]:
    """Returns the table row of a dead letter."""
    message = letter.message
    return {
        "topic": letter.topic,
        "died_at": message.stored_at,
        "tries": message.reconsume_times,
        "reason": letter.reason,
        "error": letter.error,
        "msg_id": message.msg_id,
        "tag": message.tag and shortened(message.tag),
        "keys": shortened(" ".join(message.keys)),
        "body": text_or_damaged(message),
    }
