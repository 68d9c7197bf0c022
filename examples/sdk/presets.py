"""Plans with nothing of one's own: a network, a cluster and the figures of devices that come with the service.

python presets.py [http://127.0.0.1:8000]
"""

import sys

from bapipe_client import Client

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"

with Client(url) as client:
    for name, kind in client.devices().items():
        if kind.memory_bytes is not None:
            print(f"{name}: {kind.memory_bytes / 2**30:.0f} GiB, {kind.sources.get('memory_bytes', 'no source')}")
    print(f"links: {', '.join(client.links())}")
    for name, example in client.examples().items():
        print(f"{name}: {example.layers} layers, {example.parameters:,} parameters")
    plan = client.plan(profile=client.example("vgg16"), cluster=client.clusters()["4xV100-pcie3"], batch_size=32)

print(f"vgg16 on 4xV100-pcie3: {plan.prediction.samples_per_s:.1f} samples/s")
