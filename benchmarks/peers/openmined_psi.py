"""OpenMined's private set intersection, with client and server in one process.

Its client alone learns the result; with tacit both parties do. It offers no network, so none is
counted.

Usage: python openmined_psi.py FILE FILE (CSV files with identifiers in the first column)
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path

import private_set_intersection.python as psi


def identifiers(path: str) -> list[str]:
    _header, *rows = Path(path).read_text().splitlines()
    return [row.split(",")[0] for row in rows]


client_ids = identifiers(sys.argv[1])
server_ids = identifiers(sys.argv[2])
start = time.perf_counter()
client = psi.client.CreateWithNewKey(True)
server = psi.server.CreateWithNewKey(True)
setup = server.CreateSetupMessage(1e-9, len(client_ids), server_ids, psi.DataStructure.RAW)
answer = server.ProcessRequest(client.CreateRequest(client_ids))
common = client.GetIntersection(setup, answer)
seconds = time.perf_counter() - start
report = {"seconds": seconds, "common": len(common), "version": version("openmined-psi")}
print(json.dumps(report))
