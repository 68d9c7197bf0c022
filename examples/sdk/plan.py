"""Asks a service for a plan, and waits for it.

python plan.py [http://127.0.0.1:8000]
"""

import sys

from bapipe.examples import load_example
from bapipe.presets import cluster_from_spec
from bapipe_client import Client

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"

with Client(url) as client:
    plan = client.plan(profile=load_example("vgg16"), cluster=cluster_from_spec("4xV100-16G:pcie3"), batch_size=32)

print(f"{plan.status}: {plan.prediction.step_time_s * 1e3:.2f} ms a step, gap {plan.proof.gap:.2%}")
for stage in plan.stages:
    print(f"stage {stage.index} on {', '.join(stage.devices)}: {stage.layers[0]} … {stage.layers[-1]}")
