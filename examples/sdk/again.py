"""Comes back to a job: under its key while it is made, by its id afterwards, in the list of all plans.

python again.py [http://127.0.0.1:8000]
"""

import sys
import uuid

from bapipe.examples import load_example
from bapipe.presets import cluster_from_spec
from bapipe_client import Client, StillRunningError

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
key = f"nightly-{uuid.uuid4()}"  # kept by the caller, so that a second run asks for the same job

asked = {"profile": load_example("vgg16"), "cluster": cluster_from_spec("2xV100-16G:pcie3"), "batch_size": 16}
with Client(url) as client:
    job = client.submit(**asked, idempotency_key=key)
    assert client.submit(**asked, idempotency_key=key).id == job.id

with Client(url) as client:
    job = client.job(job.id)
    try:
        job.wait(timeout_s=60)
    except StillRunningError as error:
        print(error)
    for summary in client.plans(page_size=10):
        print(f"{summary.created_at:%H:%M:%S} {summary.id} {summary.state}{' *' if summary.id == job.id else ''}")
