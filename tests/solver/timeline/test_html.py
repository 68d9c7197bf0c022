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


def test_what_a_sound_plan_declares_is_shown(plan_for: Any) -> None:
    plan = plan_for()
    proof = plan.proof.model_copy(update={"lower_bound_s": 9.0, "gap": 0.0})
    page = html_timeline(plan.model_copy(update={"status": "optimal", "proof": proof}), simulate(plan))

    assert "; optimal</p>" in page
    assert "proven lower bound" in page
    assert "Faults" not in page


@pytest.mark.parametrize("memory_bytes", [1, 10**6])
def test_what_an_unsound_plan_declares_is_not_shown_as_true(memory_bytes: int, plan_for: Any) -> None:
    """Whatever is wrong: memory that the request does not have, or figures of another plan."""
    plan = plan_for(limit_bytes=memory_bytes)
    stages = tuple(stage.model_copy(update={"memory_limit_bytes": 10**9}) for stage in plan.stages)

    page = html_timeline(plan.model_copy(update={"status": "optimal", "stages": stages}), simulate(plan))

    assert re.search(r"declared optimal, with \d+ faults?<", page)
    assert "proven lower bound" not in page
    assert "<h2>Faults</h2>" in page
    assert page.count('class="over"') == (2 if memory_bytes == 1 else 0)


def test_a_fault_cannot_break_the_page(plan_for: Any) -> None:
    plan = plan_for()
    layers = tuple(layer.model_copy(update={"id": f"<img>{layer.id}"}) for layer in plan.request.profile.layers)
    profile = plan.request.profile.model_copy(update={"layers": layers, "groups": (("<img>a", "<img>b"),)})
    request = plan.request.model_copy(update={"profile": profile})
    stages = tuple(stage.model_copy(update={"layers": (f"<img>{stage.layers[0]}",)}) for stage in plan.stages)

    page = html_timeline(plan.model_copy(update={"request": request, "stages": stages}), simulate(plan))

    assert "&lt;img&gt;a" in page
    assert "<img" not in page


def test_transfers_are_hatched_and_the_legend_explains_the_shades(plan_for: Any) -> None:
    plan = plan_for(cluster="2xreference:1B/s")

    page = html_timeline(plan, simulate(plan))

    kinds = {kind["name"]: kind["hatched"] for kind in page_data(page)["kinds"]}
    assert {name for name, hatched in kinds.items() if hatched} == {"send activation", "send gradient"}
    assert page.count('<i class="hatched"') == 2
    assert "odd ones are paler" in page
