"""Changes of settings as commands print them."""

from collections.abc import Sequence

from rocketpy import SettingChange
from rocketpy.commandline import output
from rocketpy.commandline.exits import INVALID_PARAMETER, CommandError, ExitCode

AGAIN = "correct the cause, then run the command again: it changes only the settings that still differ"


def show_changes(
    changes: Sequence[SettingChange], subject: str, *, dry_run: bool, as_json: bool, place: str = "broker_name"
) -> None:
    """Prints changes by broker, and fails if a broker did not make them.

    Args:
        changes: Changes of all brokers.
        subject: Topic, group or user with its kind.
        dry_run: Whether nothing was changed.
        as_json: Whether to print JSON.
        place: Name of the column of brokers and other servers.

    Raises:
        CommandError: A broker did not make its changes.
    """
    done = "would change" if dry_run else "changed"
    rows = [
        {
            place: one.broker_name,
            "setting": one.setting,
            "before": one.before,
            "after": one.after,
            "state": one.error or done,
        }
        for one in changes
    ]
    output.show(rows, as_json=as_json, title=subject, empty=f"{subject} has these settings already")
    failed = [one for one in changes if one.error is not None]
    if failed:
        places = ", ".join(sorted({one.broker_name for one in failed}))
        is_usage = all(one.code == INVALID_PARAMETER for one in failed)  # as if one broker had refused a creation
        code = ExitCode.USAGE if is_usage else ExitCode.UNAVAILABLE
        raise CommandError(f"{subject} is not changed at {places}: {failed[0].error}", code, AGAIN)
