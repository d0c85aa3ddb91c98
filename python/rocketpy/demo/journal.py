"""Journal of the demo: prints each step and sums the steps up in the closing table."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from rocketpy.base.clock import monotonic
from rocketpy.commandline import output


@dataclass
class Step:
    """One line of the closing table.

    Attributes:
        what: Name of the step.
        rows: Number of messages or rows; None if not applicable.
        seconds: Elapsed time.
        note: Result of the step.
    """

    what: str
    rows: int | None = None
    seconds: float = 0.0
    note: str = ""


@dataclass
class Journal:
    """The steps so far.

    Attributes:
        console: Console to print on.
        steps: Finished steps in the order of their ends.
    """

    console: Console
    steps: list[Step] = field(default_factory=list)
    _began: float = field(default_factory=monotonic)

    def head(self, number: int, title: str) -> None:
        """Prints the title of a part."""
        self.console.print(f"\n[bold]{number}. {title}[/bold]")

    @contextmanager
    def step(self, what: str) -> Generator[Step, None, None]:
        """Times a step and adds it to the table after success."""
        step = Step(what)
        began = monotonic()
        yield step
        step.seconds = monotonic() - began
        self.add(step)

    def add(self, step: Step) -> None:
        """Adds a step that was timed elsewhere."""
        self.steps.append(step)
        rate = f", {step.rows / step.seconds:,.0f}/s" if step.rows and step.seconds else ""
        rows = f"{step.rows:,} in " if step.rows is not None else ""
        note = f": {step.note}" if step.note else ""
        self.console.print(f"   {step.what}: {rows}{step.seconds:.2f} s{rate}{note}", highlight=False, soft_wrap=True)

    def progress(self) -> Progress:
        """Returns bars with messages per second on standard error, if that is a terminal; removed after the step."""
        return output.progress(transient=True)

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return monotonic() - self._began

    def table(self) -> Table:
        """Returns the closing table."""
        table = Table(title="What was done", title_justify="left", title_style="bold", header_style="bold")
        table.add_column("step")
        for name in ("rows", "seconds", "per second"):
            table.add_column(name, justify="right")
        table.add_column("found", overflow="fold")
        for step in self.steps:
            rows = f"{step.rows:,}" if step.rows is not None else ""
            rate = f"{step.rows / step.seconds:,.0f}" if step.rows and step.seconds else ""
            table.add_row(step.what, rows, f"{step.seconds:.2f}", rate, step.note)
        table.add_section()
        table.add_row("all", "", f"{self.seconds:.1f}", "", "every comparison held")
        return table
