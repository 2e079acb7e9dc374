"""What stands between E2B's clients and the daemon, and who says what to do: faults.py LOG-OF-THE-DAEMON

Clients word a refused certificate and an unknown name themselves, in ways that name no way out. tend env names the variable before
anything is called, the server in its answer, and the daemon's log if a client refuses its certificate.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

LOG = Path(sys.argv[1])
DOMAIN = os.environ["E2B_DOMAIN"]
PORT = DOMAIN.rpartition(":")[2]
PATIENCE = 120.0  # seconds; it only ends tests that fail
PYTHON = [sys.executable, "-c", "from e2b import Sandbox; Sandbox.create()"]
NODE = ["node", "--input-type=module", "-e", "import { Sandbox } from 'e2b'; await Sandbox.create()"]
JS = Path(__file__).resolve().parents[1] / "js"


def said(command, **change):
    """What a program says that cannot create a sandbox. None removes a variable."""
    env = {k: v for k, v in {**os.environ, **change}.items() if v is not None}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE, cwd=JS)
    assert done.returncode != 0, f"{command} with {change} ends well"
    return done.stdout + done.stderr


# The server's own answer, for a name that leads to it by TLS and is not below its domain.
for command in (PYTHON, NODE):
    text = said(command, E2B_DOMAIN=f"x.{DOMAIN}")  # api.x.tend.localhost: not of the certificate
    assert "api.x." in text and ("not valid for name" in text or "altnames" in text), text
    text = said(command, E2B_DOMAIN=f"no-such-name.invalid:{PORT}")
    assert "api.no-such-name.invalid" in text and any(why in text for why in ("dns error", "ENOTFOUND", "EAI_AGAIN")), text

# An authority that is not trusted: the client fails, and the log says which variables to set.
untrusted = {"SSL_CERT_FILE": None, "NODE_EXTRA_CA_CERTS": None, "REQUESTS_CA_BUNDLE": None}
for command in (PYTHON, NODE):
    said(command, **untrusted)
end = time.monotonic() + PATIENCE
while not all(name in LOG.read_text() for name in ("client refused the certificate", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")):
    assert time.monotonic() < end, LOG.read_text()
    time.sleep(0.1)
print("what stands in a client's way is named")
