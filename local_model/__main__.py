"""`python -m local_model`: the demo with a real model behind `chat`; `make demo-llm` installs what it takes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from local_model.server import ROOT, NoModel, running, table

FOLDER = ROOT / ".outlive"


def main() -> int:
    """Runs the demo as a child until it ends; Ctrl-C reaches that one, and the model goes last."""
    FOLDER.mkdir(exist_ok=True)
    try:
        with running(FOLDER / "local-model.log") as url:
            print(f"A small model answers at {url}. It is a base model: fluent, and no help.", flush=True)
            return _demo(url)
    except NoModel as error:
        print(error, file=sys.stderr)
        return 1


def _demo(url: str) -> int:
    providers = FOLDER / "local-model.toml"
    own = os.environ.get("OUTLIVE_PROVIDERS")
    # What a user has of his own comes first, and so stays the default.
    providers.write_text((Path(own).read_text("utf-8") + "\n" if own else "") + table(url), encoding="utf-8")
    # A terminal sends Ctrl-C to both. The demo obeys it and ends; we wait for that, and only then end the model.
    signal.signal(signal.SIGINT, lambda *_: None)
    environment = {**os.environ, "OUTLIVE_PROVIDERS": str(providers)}
    demo = subprocess.Popen([sys.executable, str(ROOT / "web-demo")], env=environment)
    signal.signal(signal.SIGTERM, lambda *_: demo.terminate())
    return demo.wait()


if __name__ == "__main__":
    sys.exit(main())
