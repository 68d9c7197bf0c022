"""Has the service read a PipeDream profile, checks the request, writes the plan's files, and simulates it.

python files.py [http://127.0.0.1:8000] [graph.txt]
"""

import sys
from pathlib import Path

from bapipe_client import Client

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
graph = Path(sys.argv[2] if len(sys.argv) > 2 else "examples/tiny.graph.txt")

with Client(url) as client:
    profile = client.import_profile(graph.read_bytes(), profile_batch=32, name="tiny")
    asked = {"profile": profile, "cluster": client.clusters()["4xV100-pcie3"], "batch_size": 32}
    for assumption in client.validate(**asked).assumptions:
        print(f"assumed: {assumption}")
    job = client.submit(**asked)
    plan = job.plan()
    for form, name in (
        ("json", "plan.json"),
        ("html", "timeline.html"),
        ("csv", "orders.csv"),
        ("trace", "trace.json"),
    ):
        Path(name).write_text(client.export(job.id, form))
        print(f"written: {name}")
    result = client.simulate(plan)
    print(f"simulated: {result.prediction.step_time_s * 1e3:.2f} ms a step, {len(result.faults)} faults")

    # the same as a job, which has files too, and can be come back to
    simulation = client.simulation_job(client.submit_simulation(plan).id)
    simulation.wait()
    Path("simulated.html").write_text(simulation.export("html"))
    print(f"written: simulated.html; simulations: {', '.join(each.state for each in client.simulations())}")
