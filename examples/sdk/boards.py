"""Plans for a cluster of FPGAs, and emulates it: as it is, and with each of its boards slow.

python boards.py [http://127.0.0.1:8000]
"""

import sys

from bapipe.emulation import EmulationOptions, SlowBoard
from bapipe.examples import load_example
from bapipe.precision import at_precision
from bapipe.presets import cluster_from_spec
from bapipe_client import Client

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
profile, cluster = at_precision(load_example("vgg16"), "fp16"), cluster_from_spec("2xVCU118:100Gb,mode=streaming")

with Client(url) as client:
    plan = client.plan(profile=profile, cluster=cluster, batch_size=8, dtype="fp16", time_limit_s=3.0)
    report = client.emulate(plan)
    print(f"a step: {report.step_time_s * 1e3:.1f} ms, {report.energy.total_j:.1f} J")

    jobs = {}
    for device in cluster.devices:
        slow = EmulationOptions(slow_boards=(SlowBoard(device=device.id, speed=0.5),))
        jobs[device.id] = client.submit_emulation(plan, slow)
    for name, job in jobs.items():
        print(f"with {name} at half its speed: {job.result().step_time_s * 1e3:.1f} ms")

    for summary in client.emulations(states=["succeeded"], page_size=1):
        print(f"{summary.id}: {client.emulation_job(summary.id).result().samples_per_s:.1f} samples/s")
