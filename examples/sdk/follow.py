"""Submits a search, follows it, and takes what there is after a few seconds.

python follow.py [http://127.0.0.1:8000]
"""

import sys
import time

from bapipe.examples import load_example
from bapipe.presets import cluster_from_spec
from bapipe_client import Client

PATIENCE_S = 5.0

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"

with Client(url) as client:
    job = client.submit(
        profile=load_example("gnmt8"), cluster=cluster_from_spec("8xV100-16G:gloo-pcie"), batch_size=64, fresh=True
    )
    print(f"plan {job.id} is {job.state}")
    started = time.monotonic()
    for event in job.events():
        if event.incumbent_s is None or event.lower_bound_s is None or event.gap is None:
            print(f"{event.phase}: no plan yet")
        else:
            found = f"{event.incumbent_s:.4f} s a step, none below {event.lower_bound_s:.4f} s"
            print(f"{event.phase}: {found}, gap {event.gap:.1%}")
        if time.monotonic() - started > PATIENCE_S and not event.finished:
            job.cancel()
    resource = job.wait()

print(f"{resource.state}, with a plan: {resource.plan is not None}")
