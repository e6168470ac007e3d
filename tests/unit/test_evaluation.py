from __future__ import annotations

import pytest

from edgespec.evaluation import floor_of


def test_the_floor_is_the_higher_of_the_two() -> None:
    assert floor_of({"min": 0.8}, None) == 0.8
    assert floor_of({"min": 0.8, "max_drop": 0.02}, 0.9) == 0.88
    assert floor_of({"min": 0.8, "max_drop": 0.2}, 0.9) == 0.8
    assert floor_of({"max_drop": 0.0}, 0.9) == 0.9
    assert floor_of({"max_drop": 0.1}, 0.83) == 0.73  # and not 0.7299999999999999 or a digit more
    with pytest.raises(ValueError, match="teacher"):
        floor_of({"max_drop": 0.1}, None)
