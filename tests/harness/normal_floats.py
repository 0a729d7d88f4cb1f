"""Random numbers without subnormal ones: code compiled with fast mathematics turns those off for its whole process."""

from __future__ import annotations

from hypothesis import strategies as st


def floats(low: float, high: float) -> st.SearchStrategy[float]:
    """Numbers from ``low`` to ``high``."""
    return st.floats(low, high, allow_subnormal=False)
