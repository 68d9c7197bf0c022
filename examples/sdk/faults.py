"""What goes wrong, and how a program is told.

python faults.py [http://127.0.0.1:8000]
"""

import sys

from bapipe.examples import load_example
from bapipe.presets import cluster_from_spec
from bapipe_client import Client, InvalidInputError, NotFoundError, ServiceError, ServiceUnreachableError

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
profile, cluster = load_example("vgg16"), cluster_from_spec("4xV100-16G:pcie3")

with Client(url) as client:
    try:
        client.plan(profile=profile, cluster=cluster, batch_size=-1, gap=2)
    except InvalidInputError as error:
        for fault in error.faults:
            print(f"{fault.pointer}: {fault.detail} [{fault.code}]")
    try:
        client.get_plan("0" * 32)
    except NotFoundError as error:
        print(error)

try:
    with Client("http://127.0.0.1:1", retries=1) as nowhere:
        print(f"ready: {nowhere.ready()}")
        nowhere.plan(profile=profile, cluster=cluster, batch_size=32)
except ServiceUnreachableError as error:
    print(f"not reached, and {'perhaps' if error.may_have_arrived else 'not'} carried out")
except ServiceError as error:  # the base of everything that is not the input's fault
    print(error)
