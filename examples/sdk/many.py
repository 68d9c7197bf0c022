"""Asks for many plans at once: which cluster trains a network fastest?

python many.py [http://127.0.0.1:8000]
"""

import asyncio
import sys

from bapipe.examples import load_example
from bapipe.presets import cluster_from_spec
from bapipe_client import AsyncClient

SPECS = ("2xV100-16G:pcie3", "4xV100-16G:gloo-pcie", "4xV100-16G:pcie3", "4xV100-16G:nvlink2")


async def main(url: str) -> None:
    profile = load_example("vgg16")
    async with AsyncClient(url) as client:
        asked = [client.plan(profile=profile, cluster=cluster_from_spec(spec), batch_size=32) for spec in SPECS]
        plans = dict(zip(SPECS, await asyncio.gather(*asked), strict=True))
    for spec, plan in sorted(plans.items(), key=lambda pair: pair[1].prediction.step_time_s):
        print(f"{spec:22} {plan.schedule.name:14} {plan.prediction.samples_per_s:8.1f} samples/s")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"))
