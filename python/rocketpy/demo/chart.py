"""Draws the table of delays: one row per airline, one column per hour."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

LATEST_MINUTES = 60
"""Mean delays above this share the darkest colour: a few hours with two flights would hide all others."""


def draw(table: "pandas.DataFrame", airlines: Mapping[str, str], path: Path) -> None:
    """Writes the chart as PNG.

    Args:
        table: Columns carrier, hour, flights, mean_departure_delay (minutes) and cancelled_share (0 to 1).
        airlines: Names by carrier code.
        path: File to write.
    """
    import matplotlib
    import pandas

    matplotlib.use("Agg")  # no window
    from matplotlib import pyplot

    cancelled = (table["cancelled_share"] * table["flights"]).groupby(table["carrier"]).sum()
    flights: Any = table.groupby("carrier")["flights"].sum()  # one column, which pandas' hints do not know
    order = flights.sort_values(ascending=False).index
    grid = table.pivot_table(index="carrier", columns="hour", values="mean_departure_delay").reindex(order)
    share = (cancelled / flights).reindex(order) * 100

    figure, (left, right) = pyplot.subplots(
        1, 2, figsize=(11, 6), width_ratios=(4, 1), sharey=True, layout="constrained"
    )
    image = left.imshow(grid, aspect="auto", cmap="YlOrRd", vmin=0, vmax=LATEST_MINUTES)
    left.set_xticks(range(grid.shape[1]), [str(hour) for hour in grid.columns])
    left.set_yticks(range(len(order)), [f"{airlines.get(carrier, carrier)}  {carrier}" for carrier in order])
    left.set_xlabel("scheduled hour of departure")
    left.set_title("mean departure delay")
    for place, minutes in enumerate(grid.to_numpy().flat):
        row, column = divmod(place, grid.shape[1])
        if not pandas.isna(minutes):
            colour = "white" if minutes > 0.6 * LATEST_MINUTES else "black"
            left.text(column, row, f"{round(minutes)}", ha="center", va="center", fontsize=7, color=colour)
    figure.colorbar(image, ax=left, location="bottom", shrink=0.6, pad=0.02, label="minutes", extend="max")
    right.barh(range(len(order)), share, color="#4338ca")
    for row, percent in enumerate(share):
        right.text(percent, row, f" {percent:.1f}", va="center", fontsize=8)
    right.set_xlabel("%")
    right.set_title("cancelled")
    right.margins(x=0.2)
    for side in ("top", "right"):
        right.spines[side].set_visible(False)
    figure.suptitle(f"{int(flights.sum()):,} flights from New York in 2013, by airline (largest first) and hour")
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
