from __future__ import annotations

import pytest

from course_lib.widgets import assessment, live


@pytest.fixture
def shown(monkeypatch):
    """What a notebook would show: one bundle for each display, as it was updated last."""
    outputs = []

    class Handle:
        def __init__(self, item, raw=False, display_id=None):
            self.place = len(outputs)
            outputs.append(item)

        def update(self, item, raw=False):
            outputs[self.place] = item

    for module in (assessment, live):
        monkeypatch.setattr(module, "display", Handle)
    return outputs
