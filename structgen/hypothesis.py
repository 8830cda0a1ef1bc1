"""Output types as strategies of Hypothesis: `from_type`. Needs the package ``hypothesis``.

from structgen.hypothesis import from_type

@given(from_type(Order))
def test_orders(order): ...
"""

from __future__ import annotations

from typing import Any

from hypothesis import reject
from hypothesis import strategies as st

from structgen.constraint import Sampler
from structgen.errors import ParseError


def from_type(output_type: Any, **options: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for values of an output type; they shrink to short texts.

    Args:
        output_type: anything that can be compiled.
        **options: compile options, as of `structgen.sample`.
    """
    sampler = Sampler(output_type, **options)

    @st.composite
    def values(draw: st.DrawFn) -> Any:
        text = sampler.draw(lambda weights: draw(st.integers(0, len(weights) - 1)))
        try:
            return sampler.output.parse(text)
        except ParseError:  # a validator that the mask does not know
            reject()

    return values()
