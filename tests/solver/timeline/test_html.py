"""The page stands alone, says what the simulation says, and cannot be broken by a name."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from bapipe.simulator import simulate
from bapipe.timeline import html_timeline


def page_data(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_the_page_loads_nothing(plan_for: Any) -> None:
    page = html_timeline(plan_for(), simulate(plan_for()))

    assert "default-src 'none'" in page
    assert not re.search(r"https?:|\b(src|href)=|@import|url\(", page)


def test_nothing_of_the_template_is_left(plan_for: Any) -> None:
    assert "{{" not in html_timeline(plan_for(), simulate(plan_for()))


def test_the_page_holds_every_operation_and_transfer(plan_for: Any) -> None:
    plan = plan_for(cluster="2xreference:1B/s")
    simulation = simulate(plan)

    data = page_data(html_timeline(plan, simulation))

    assert data["rows"] == [*simulation.devices, "host0/gpu0 → host0/gpu1", "host0/gpu1 → host0/gpu0"]
    assert data["span_s"] == simulation.step_time_s
    kinds = [data["kinds"][kind]["name"] for kind in data["operations"]["kind"]]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "forward": 4,
        "backward": 4,
        "send activation": 2,
        "send gradient": 2,
    }
    assert max(data["operations"]["end"]) == simulation.step_time_s


@pytest.mark.parametrize("name", ["</script><img src=x>", "<!--", "{{data}}", "a & b", "\\u003c"])
def test_a_name_cannot_break_the_page(name: str, plan_for: Any) -> None:
    plain = html_timeline(plan_for("plain"), simulate(plan_for("plain")))
    plan = plan_for(name)

    page = html_timeline(plan, simulate(plan))

    assert "<img" not in page
    assert page.count("<script") == plain.count("<script")
    assert page_data(page) == page_data(plain)


def test_memory_over_its_limit_is_marked(plan_for: Any) -> None:
    fits, over = plan_for(limit_bytes=10**6), plan_for(limit_bytes=1)

    assert 'class="over"' not in html_timeline(fits, simulate(fits))
    assert html_timeline(over, simulate(over)).count('class="over"') == 2
