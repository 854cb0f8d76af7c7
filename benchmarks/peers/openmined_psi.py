"""OpenMined's PSI, client and server in one process: python openmined_psi.py A B reads two files of identifiers.

Its client alone learns the result; ours tells both. It offers no network, so none is counted.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path

import private_set_intersection.python as psi


def identifiers(path: str) -> list[str]:
    return [line.split(",")[0] for line in Path(path).read_text().splitlines()[1:]]


ours, theirs = (identifiers(path) for path in sys.argv[1:])
start = time.perf_counter()
client, server = psi.client.CreateWithNewKey(True), psi.server.CreateWithNewKey(True)
setup = server.CreateSetupMessage(1e-9, len(ours), theirs, psi.DataStructure.RAW)
answer = server.ProcessRequest(client.CreateRequest(ours))
common = client.GetIntersection(setup, answer)
print(
    json.dumps(
        {
            "seconds": time.perf_counter() - start,
            "common": len(common),
            "version": version("openmined-psi"),
        }
    )
)
