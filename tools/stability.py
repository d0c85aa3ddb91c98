#!/usr/bin/env python3
"""Compares what users may rely on (docs/stability.md) with the lists of the last release in tools/public.

    tools/stability.py            fails for a removal or an incompatible change that tools/public/changes.toml lacks
    tools/stability.py --update   writes the lists of a new release, and removes the reasons that it publishes

Additions pass. The commands are those of the installed package, everything else is read from the sources.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))

from public import others
from public.compare import breaks, name_of
from public.names import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ROOT = Path(__file__).parents[1]
LISTS = ROOT / "tools/public"
REASONS = LISTS / "changes.toml"
KINDS: dict[str, Callable[[], list[str]]] = {
    "names": lambda: names(ROOT),
    "commands": others.commands,
    "keys": lambda: others.keys(ROOT),
    "exit-codes": lambda: others.exit_codes(ROOT),
    "metrics": lambda: others.metrics(ROOT),
}
RELEASED = ("removed", "changed")
"""Tables of reasons that a release empties; deprecated names stay listed until they are removed."""


def problems(
    old: Mapping[str, Sequence[str]], new: Mapping[str, Sequence[str]], reasons: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """Yields every break without a reason, and every reason without its break.

    Args:
        old: Lists of the last release by kind.
        new: Lists of now by kind.
        reasons: Tables `removed`, `changed` and `deprecated`: reasons by name.
    """
    used: set[tuple[str, str]] = set()
    for kind, lines in old.items():
        for found in breaks(lines, new[kind]):
            table = "removed" if found.is_removal else "changed"
            if found.name in reasons.get(table, {}):
                used.add((table, found.name))
            else:
                yield f'{kind}: {found.text}\n  a reason is missing: [{table}] "{found.name}" = "..."'
    known = {name_of(line) for lines in new.values() for line in lines}
    for table, listed in reasons.items():
        for name, reason in listed.items():
            if not reason.strip():
                yield f'[{table}] "{name}" has no reason'
            elif table == "deprecated" and name not in known:
                yield f'[deprecated] "{name}" does not exist: move it to [removed]'
            elif table in RELEASED and (table, name) not in used:
                yield f'[{table}] "{name}" does not describe a difference from the last release'


def update() -> None:
    """Writes the lists of now, and empties the tables of reasons that this release publishes."""
    for kind, lines in {kind: listed() for kind, listed in KINDS.items()}.items():
        (LISTS / f"{kind}.txt").write_text("".join(f"{line}\n" for line in lines))
    kept: list[str] = []
    keeps = True
    for line in REASONS.read_text().splitlines():
        if line.startswith("["):
            keeps = line.strip("[] ") not in RELEASED
            kept += ["", line]
        elif keeps and (line or not kept):
            kept.append(line)
    REASONS.write_text("\n".join(kept) + "\n")


def main() -> int:
    """Runs the command line; the exit code is 1 for a break without a reason."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="write the lists of a new release")
    if parser.parse_args().update:
        update()
        return 0
    old = {kind: (LISTS / f"{kind}.txt").read_text().splitlines() for kind in KINDS}
    reasons: dict[str, Any] = tomllib.loads(REASONS.read_text())
    found = list(problems(old, {kind: listed() for kind, listed in KINDS.items()}, reasons))
    for problem in found:
        print(f"error: {problem}", file=sys.stderr)
    if found:
        print(
            "hint: keep the name and deprecate it (docs/stability.md), or give the reason in tools/public/changes.toml",
            file=sys.stderr,
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
