"""Signals at every moment of the demo's start: each is obeyed, soon, and nothing stays."""

from __future__ import annotations

import signal
from collections.abc import Callable

import psutil
import pytest

from tests.support.demo import READY_WITHIN_S, STOPPED_WITHIN_S, Demo, Demos
from tests.support.waiting import until

pytestmark = [pytest.mark.timeout(180), pytest.mark.anyio]

# What runs at each step, and how many of it before the next one.
STARTS = {"initdb": 1, "postgres": 1, "migrate": 1, "gateway": 1, "worker": 2}


def running(demos: Demos, program: str) -> int:
    """How many of the demo's processes have the program, or the module, in their command."""
    return sum(any(word.endswith(program) for word in _command(process)) for process in demos.processes())


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def blocked(process: psutil.Process) -> Callable[[], bool]:
    """Tells whether it has slept ever since the last time that it was asked."""
    last = process.num_ctx_switches()

    def condition() -> bool:
        nonlocal last
        before, last = last, process.num_ctx_switches()
        return before == last and process.status() == psutil.STATUS_SLEEPING

    return condition


async def assert_it_stopped(demos: Demos, demo: Demo) -> None:
    assert await demo.ended() == 0, demo.said
    assert "Everything is stopped" in demo.said
    assert "Traceback" not in demo.said
    assert (demos.directory / "runner.lock").read_text() == ""
    await until(lambda: demos.processes() == [], STOPPED_WITHIN_S)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("ignoring", [(), (signal.SIGINT,)], ids=["", "background"])
async def test_it_obeys_before_its_first_word(
    demos: Demos, number: signal.Signals, ignoring: tuple[signal.Signals, ...]
) -> None:
    """It obeyed only a moment after the first line: Ctrl-C in between ended it by an exception, or, where SIGINT was
    ignored from the start as for a command in the background of a script, was lost, and the demo went on for good."""
    demo = demos.run(ignoring=ignoring, mute=True)
    lock = demos.directory / "runner.lock"
    await until(lambda: lock.exists() and "its page is" in lock.read_text(), READY_WITHIN_S)
    await until(blocked(psutil.Process(demo.process.pid)), READY_WITHIN_S)
    demo.process.send_signal(number)
    demo.listen()
    await assert_it_stopped(demos, demo)


@pytest.mark.parametrize("program", STARTS)
async def test_ctrl_c_while_it_starts_leaves_nothing(demos: Demos, program: str) -> None:
    demo = demos.run()
    await until(lambda: running(demos, program) == STARTS[program], READY_WITHIN_S, what=program)
    demo.process.send_signal(signal.SIGINT)
    await assert_it_stopped(demos, demo)
    assert "is ready" not in demo.said


@pytest.mark.parametrize("program", ["initdb", "postgres"])
async def test_a_second_signal_while_it_starts_leaves_nothing_either(demos: Demos, program: str) -> None:
    demo = demos.run()
    await until(lambda: running(demos, program) == STARTS[program], READY_WITHIN_S, what=program)
    demo.process.send_signal(signal.SIGINT)
    await demo.says("Stopping")
    demo.process.send_signal(signal.SIGTERM)
    await assert_it_stopped(demos, demo)


async def test_after_a_start_that_was_cut_the_next_one_runs(demos: Demos) -> None:
    cut = demos.run()
    await until(lambda: running(demos, "initdb"), READY_WITHIN_S, what="initdb")
    cut.process.send_signal(signal.SIGTERM)
    await assert_it_stopped(demos, cut)
    following = demos.run()
    await following.ready()
    following.process.send_signal(signal.SIGINT)
    await assert_it_stopped(demos, following)


async def test_nohup_keeps_it_when_the_terminal_goes(demos: Demos) -> None:
    demo = demos.run(ignoring=(signal.SIGHUP,))
    await demo.says("Starting PostgreSQL")
    demo.process.send_signal(signal.SIGHUP)
    await demo.says("Starting one gateway")
    demo.process.send_signal(signal.SIGINT)
    await assert_it_stopped(demos, demo)
    assert demo.said.count("Stopping") == 1
