"""Files are sent packed to who takes that, the same for everybody; a large one takes no memory of the service."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from serving.asking import SIMULATIONS
from serving.processes import Service

MICROBATCHES = 20_000
PACKED = ("gzip", "br, gzip;q=0.5", "*", "GZIP")
UNPACKED = ("identity", "", "br", "gzip;q=0", "*, gzip; q=0.0")


@pytest.fixture(scope="module")
def traced(service: Service) -> str:
    """The trace of a simulation, which has some megabytes."""
    plan = SIMULATIONS.asked()
    plan["request"]["batch_size"] = plan["schedule"]["num_microbatches"] = MICROBATCHES
    plan["schedule"]["microbatch_size"] = 1
    numbers = range(MICROBATCHES)
    plan["schedule"]["orders"] = [[f"{stage}{kind}{k}" for k in numbers for kind in "FB"] for stage in range(2)]
    response = httpx.post(f"{service.url}/v1/simulations", json=plan, headers={"Prefer": "wait=60"}, timeout=60)
    return f"{service.url}{response.raise_for_status().headers['location']}/trace"


def peak_bytes(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to see memory")
def test_a_large_file_takes_no_memory_of_the_service(service: Service, traced: str) -> None:
    before = peak_bytes(service.process.pid)
    sizes = [len(httpx.get(traced, headers={"Accept-Encoding": coding}, timeout=60).content) for coding in ("gzip", "")]
    assert sizes[0] == sizes[1] > 30e6
    assert peak_bytes(service.process.pid) - before < sizes[0]


@pytest.mark.parametrize("accepted", [*PACKED, *UNPACKED])
def test_a_file_is_packed_for_who_takes_that(http: httpx.Client, accepted: str) -> None:
    location = http.post("/v1/simulations", json=SIMULATIONS.asked()).raise_for_status().headers["location"]
    first = http.get(f"{location}/exports/html", headers={"Accept-Encoding": "gzip"})
    given = http.get(f"{location}/exports/html", headers={"Accept-Encoding": accepted})
    assert given.content == first.content
    assert given.headers.get("content-encoding") == ("gzip" if accepted in PACKED else None)
    assert given.headers["vary"] == "Accept-Encoding"
    assert (given.headers["etag"] == first.headers["etag"]) == (accepted in PACKED)
    known = {"Accept-Encoding": accepted, "If-None-Match": given.headers["etag"]}
    assert http.get(f"{location}/exports/html", headers=known).status_code == 304
