"""The page's JavaScript under node's own test runner; one pytest test per file, so that a failure names it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "js"
NODE = Path(sys.executable).parent / "node"
SCRIPTS = sorted(HERE.glob("*.test.js"))
# No package.json says that our .js files are modules, and node warns; its EventSource stands behind a flag.
OPTIONS = ["--test", "--test-reporter=tap", "--test-timeout=30000", "--experimental-eventsource", "--no-warnings"]
PASSED = re.compile(r"^# pass (\d+)$", re.MULTILINE)


def test_the_scripts_are_found() -> None:
    assert [script.name for script in SCRIPTS], f"no *.test.js in {HERE}"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_script(script: Path) -> None:
    command = [str(NODE), *OPTIONS, str(script)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=55, check=False)
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"
    passed = PASSED.search(run.stdout)
    assert passed, run.stdout
    assert int(passed[1]) > 0, "node ran no test"
