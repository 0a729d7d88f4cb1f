"""What a comparison gives its jobs on the command line."""

from __future__ import annotations

from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from as_lightning.benchmark.compare.configured_space import configured_space, plain
from as_lightning.benchmark.compare.job_overrides import check_taken, kept_settings, override_value, overrides_for
from as_lightning.benchmark.run.config_dir import config_dir
from as_lightning.benchmark.run.settings import SettingError

TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), max_size=8)
NUMBERS = st.integers(-1000, 1000) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(st.none() | st.booleans() | NUMBERS | TEXTS, lambda items: st.lists(items, max_size=3))


@given(VALUES)
def test_a_value_is_read_back_as_it_was(value: Any) -> None:
    (override,) = OverridesParser.create().parse_overrides([f"++method.x={override_value(value)}"])
    read = override.value()
    assert (str(read) if isinstance(value, str) else read) == value
    assert not override.is_sweep_override()


def test_plain_cross_entropy_with_skipping_stays_that_where_other_methods_get_a_margin() -> None:
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        configs = {name: compose("compare", [f"method={name}"]) for name in ("as_softmax", "softmax_skip", "softmax")}
    kept = {name: kept_settings(config.method) for name, config in configs.items()}
    assert kept == {"as_softmax": set(), "softmax_skip": {"delta"}, "softmax": set()}
    given_ = ["++method.delta=0.2", "++method.sleep_delta=0.3", "trainer.max_epochs=1"]
    assert overrides_for(given_, kept["softmax_skip"]) == given_[1:]
    assert overrides_for(given_, kept["as_softmax"]) == given_
    space = configured_space(configs["softmax_skip"], {"delta": [0.1, 0.2]}, (), 6, kept["softmax_skip"])
    assert set(space) == {"lr", "sleep_delta"}
    methods = {name: config.method for name, config in configs.items()}
    check_taken(["delta", "sleep_delta"], methods, kept)
    with pytest.raises(SettingError, match=r"no method of the comparison takes method.delta: softmax_skip without"):
        check_taken(["delta"], {"softmax_skip": methods["softmax_skip"]}, {"softmax_skip": {"delta"}})
    with pytest.raises(SettingError, match=r"no method of the comparison has method.k: there are: criterion"):
        check_taken(["k"], {"softmax": methods["softmax"]}, {"softmax": set()})
    assert plain(configs["softmax_skip"].method.delta) == 1.0
