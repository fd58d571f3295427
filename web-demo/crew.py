"""The demo's processes: started on a leash, their lines prefixed, ended in order."""

import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT

import anyio
from anyio.abc import ByteReceiveStream, Process, TaskGroup
from anyio.lowlevel import checkpoint_if_cancelled

LEASH = Path(__file__).resolve().with_name("leash.py")
HOLDER_STOP_SECONDS = 35.0  # schema.embedded gives PostgreSQL 30 s to write out and end
LINE_MAX_BYTES = 65_536
NAME_WIDTH = 8


class ChildEnded(Exception):
    """A process of the demo ended that should have stayed or succeeded."""

    def __init__(self, name: str, code: int) -> None:
        how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        super().__init__(f"{name} ended with {how}; its last lines above say why. Everything else was stopped.")
        self.name = name
        self.code = code


class Lines:
    """A process's output, line by line; what is longer than LINE_MAX_BYTES comes in pieces."""

    def __init__(self, stream: ByteReceiveStream) -> None:
        self._stream = stream
        self._rest = b""

    async def next(self) -> str | None:
        """The next line without its end, or None after the last."""
        while b"\n" not in self._rest and len(self._rest) < LINE_MAX_BYTES:
            try:
                self._rest += await self._stream.receive()
            except anyio.EndOfStream:
                if not self._rest:
                    return None
                break
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "replace")


class Crew:
    """All processes of one demo. `scope` is what the demo does with them; it is cancelled when one ends."""

    def __init__(self, tasks: TaskGroup, grace_seconds: float) -> None:
        self.scope = anyio.CancelScope()
        self.environment: dict[str, str] = {}
        self.ended: ChildEnded | None = None
        self._tasks = tasks
        self._grace_seconds = grace_seconds
        self._members: dict[str, Process] = {}
        self._stopping = False

    async def start(self, name: str, module: str, **own: str) -> None:
        """Starts `python -m MODULE`, which is to stay until stop(); `own` are variables that only it gets."""
        process = await self._spawn(name, _on_leash(module), own=own)
        self._look_after(name, process, Lines(_output(process)))

    async def hold(self, name: str, module: str, *arguments: str, answer: str) -> str:
        """Starts `python -m MODULE`, which is to stay until its input ends; returns its line that begins so.

        Cancelled before that line, it asks the process to give up its start, and stop() waits for that.
        """
        return await self._heard(name, await self._spawn(name, _python(module, *arguments), stdin=PIPE), answer)

    async def lead(self, name: str, module: str, *arguments: str, answer: str) -> str:
        """The same for one that stays until stop(), as start() has it."""
        return await self._heard(name, await self._spawn(name, _on_leash(module, *arguments)), answer)

    async def _heard(self, name: str, process: Process, answer: str) -> str:
        lines = Lines(_output(process))
        try:
            while (line := await lines.next()) is not None:
                if line.startswith(answer):
                    self._look_after(name, process, lines)
                    return line
                _show(name, line)
        except anyio.get_cancelled_exc_class():
            _terminate(process)
            raise
        raise ChildEnded(name, await process.wait())

    async def run(self, name: str, module: str, *arguments: str) -> None:
        """Runs `python -m MODULE` to its end; raises ChildEnded, after showing what it said, if it fails."""
        process = await self._spawn(name, _on_leash(module, *arguments))
        lines = Lines(_output(process))
        said = []
        while (line := await lines.next()) is not None:
            said.append(line)
        code = await process.wait()
        del self._members[name]
        if code:
            for line in said:
                _show(name, line)
            raise ChildEnded(name, code)

    async def stop(self, *order: Sequence[str]) -> None:
        """Ends everything: first what is not named, then group after group, each politely and then by force."""
        self._stopping = True
        named = {name for group in order for name in group}
        for group in ([name for name in self._members if name not in named], *order):
            async with anyio.create_task_group() as ends:
                for name in group:
                    if process := self._members.get(name):
                        ends.start_soon(self._end, process)

    def hurry(self) -> None:
        """Kills what is on a leash; stop() goes on with the rest."""
        for process in self._members.values():
            if process.stdin is None and process.returncode is None:
                _kill(process)

    async def _spawn(
        self, name: str, command: Sequence[str], stdin: int = DEVNULL, own: Mapping[str, str] | None = None
    ) -> Process:
        environment = {**self.environment, **(own or {})}
        await checkpoint_if_cancelled()
        # Cancelled in the middle, open_process would kill what it has started and tell nobody, who then waits for it.
        with anyio.CancelScope(shield=True):
            # A session of its own: Ctrl-C is for the runner alone, which then ends the others in order.
            process = await anyio.open_process(
                command, stdin=stdin, stdout=PIPE, stderr=STDOUT, env=environment, start_new_session=True
            )
        self._members[name] = process
        return process

    def _look_after(self, name: str, process: Process, lines: Lines) -> None:
        self._tasks.start_soon(self._pump, name, lines)
        self._tasks.start_soon(self._watch, name, process)

    async def _pump(self, name: str, lines: Lines) -> None:
        while (line := await lines.next()) is not None:
            _show(name, line)

    async def _watch(self, name: str, process: Process) -> None:
        code = await process.wait()
        if not self._stopping:
            self.ended = self.ended or ChildEnded(name, code)
            self.scope.cancel()

    async def _end(self, process: Process) -> None:
        if process.stdin is None:
            await self._end_within(process, self._grace_seconds)
            return
        await process.stdin.aclose()
        with anyio.move_on_after(HOLDER_STOP_SECONDS):
            await process.wait()
        await self._end_within(process, HOLDER_STOP_SECONDS)

    async def _end_within(self, process: Process, seconds: float) -> None:
        _terminate(process)
        with anyio.move_on_after(seconds):
            await process.wait()
        if process.returncode is None:
            _kill(process)
            await process.wait()


def _python(module: str, *arguments: str) -> list[str]:
    # -P: the folder that the demo was started in must not lend it a module of the same name.
    return [sys.executable, "-P", "-u", "-m", module, *arguments]


def _on_leash(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), *_python(module, *arguments)]


def _output(process: Process) -> ByteReceiveStream:
    assert process.stdout is not None
    return process.stdout


def _terminate(process: Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()


def _kill(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _show(name: str, line: str) -> None:
    print(f"{name:<{NAME_WIDTH}} | {line}", flush=True)
