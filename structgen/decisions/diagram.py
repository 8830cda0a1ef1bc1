"""The reliability diagram: how often a label was right, by the probability that it had.

It owns the drawing. Matplotlib is imported when one is drawn.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from structgen.errors import OptionError

from .metrics import N_BINS, Metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def reliability_diagram(
    measured: Mapping[str, Metrics], path: str | os.PathLike[str] | None = None
) -> Figure:
    """Draw a reliability diagram for each of some measurements, side by side.

    Args:
        measured: title to measurement.
        path: where to save it; the ending says the format. None: nowhere.

    Raises:
        OptionError: Matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise OptionError(
            "A reliability diagram needs Matplotlib: pip install 'structgen[plot]'."
        ) from None
    figure = Figure(figsize=(3.6 * len(measured), 3.8), layout="constrained")
    axes = figure.subplots(1, len(measured), squeeze=False, sharey=True)[0]
    for axis, (title, one) in zip(axes, measured.items(), strict=True):
        axis.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--")
        for part in one.bins:
            axis.bar(
                part.low,
                part.accuracy,
                width=1 / N_BINS,
                align="edge",
                color="#4878a8",
                edgecolor="white",
                alpha=0.25 + 0.75 * part.count / one.n,  # darker: more examples
            )
            axis.plot(part.confidence, part.accuracy, "o", color="#b04030", markersize=4)
        axis.set_title(f"{title}\naccuracy {one.accuracy:.2f}, ECE {one.ece:.3f}", fontsize=9)
        axis.set_xlabel("probability of the likeliest label", fontsize=8)
        axis.set_xlim(0, 1)
        axis.set_ylim(0, 1)
    axes[0].set_ylabel("how often it was right", fontsize=8)
    if path is not None:
        figure.savefig(path)
    return figure
