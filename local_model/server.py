"""The model's server as a child: it ends when we do, however that is, because its input then does."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv-llm" / "bin" / "python"
MODEL_FILE = ROOT / ".venv-llm" / "gemma3-270m.gguf"
MODEL = "gemma3-270m"
SAYS = "local model listening on "
# It looks at its input all the time; what it computes meanwhile it may finish.
END_SECONDS = 10.0


class NoModel(Exception):
    """The model is not installed or does not start; the message says what to do."""


@contextmanager
def running(log: Path) -> Iterator[str]:
    """Its address, as long as the block runs; llama.cpp's own log goes to `log`. Raises NoModel."""
    if not PYTHON.exists():
        raise NoModel("The local model is not installed; `make demo-llm` installs it.")
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [PYTHON, Path(__file__).with_name("serve.py"), MODEL_FILE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            # Ctrl-C is for the runner alone, which then ends this one in order.
            start_new_session=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode()
            if not line.startswith(SAYS):
                raise NoModel(f"The local model did not start; {log} says why.")
            yield line.removeprefix(SAYS).strip()
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def table(url: str, *, default: bool = True) -> str:
    """Its table of a providers file. A laptop reads a long prompt for minutes."""
    return (
        f'[providers.local]\ntype = "openai_chat"\nprofile = "llamacpp"\nbase_url = "{url}/v1"\n'
        f'models = ["{MODEL}"]\n'
        f"first_chunk = 300\nmax_running = 2\ndefault = {str(default).lower()}\n"
        "price_input_usd_per_million = 0\nprice_output_usd_per_million = 0\n"
    )
