"""A proxy that breaks connections by the seed: what stands between reporters and aggregator."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Literal, Self

from .traffic import Message, Traffic

Fate = Literal["pass", "delay", "drop", "truncate", "duplicate", "mute"]
Point = Literal["sent", "answered", "passed on"]

# How often each fate comes; what is not named passes.
FATES: tuple[tuple[Fate, float], ...] = (
    ("delay", 0.08),
    ("drop", 0.05),
    ("truncate", 0.05),
    ("duplicate", 0.1),
    ("mute", 0.07),
)
BROKEN = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError)
LIMIT = 1 << 24


class Proxy:
    """Listens on a port of its own, in a thread of its own.

    Args:
        port: where the aggregator listens.
        seed: decides the fate of each rank's n-th request.
        refusals: the statuses by which a request may be refused for now.
    """

    def __init__(self, port: int, seed: int, refusals: frozenset[int]) -> None:
        self.traffic = Traffic(refusals)
        self.faults: Counter[str] = Counter()
        self.calm = False
        self._target, self._seed = port, seed
        self._ambush: tuple[Point, float, Callable[[], object]] | None = None
        self._requests: Counter[object] = Counter()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")

    def __enter__(self) -> Self:
        self._thread.start()
        listening = asyncio.start_server(self._serve, "127.0.0.1", 0, limit=LIMIT)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(10)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def ambush(self, point: Point, delay: float, strike: Callable[[], object]) -> None:
        """Strike at the next request, a delay after it reached a point of its way.

        Only where that is "passed on" does the reporter get its answer.
        """
        self._ambush = (point, delay, strike)

    def spare(self) -> None:
        """Call the ambush off."""
        self._ambush = None

    async def _close(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a reporter's requests until something breaks."""
        with contextlib.suppress(*BROKEN, asyncio.CancelledError):
            while True:
                raw = await _read_message(reader)
                message = self.traffic.note(raw)
                answer = await self._treat(message)
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
        writer.close()

    def deliver(self, message: Message, *ports: int) -> None:
        """Bring a request to the aggregator once more, for nobody who waits for its answer.

        Args:
            message: the request.
            ports: several to bring it to at the same moment; without, where all else goes.
        """

        async def forward(port: int) -> None:
            with contextlib.suppress(*BROKEN):
                await self._forward(message, port)

        async def all_at_once() -> None:
            await asyncio.gather(*map(forward, ports or (self._target,)))

        asyncio.run_coroutine_threadsafe(all_at_once(), self._loop).result(60)

    def _fate(self, message: Message) -> tuple[Fate, float]:
        """Return what becomes of a request, and after how many seconds."""
        number = self._requests[message.who]
        self._requests[message.who] += 1
        rng = random.Random(f"{self._seed}/{message.who}/{number}")
        draw, delay = rng.random(), rng.uniform(0.02, 0.3)
        for fate, share in FATES:
            if draw < share and not self.calm:
                self.faults[fate] += 1
                return fate, delay
            draw -= share
        return "pass", 0.0

    async def _treat(self, message: Message) -> bytes | None:
        """Bring a request to the aggregator, or not; return its answer, or None to break off."""
        if self._ambush is not None:
            ambush, self._ambush = self._ambush, None
            return await self._betray(message, *ambush)
        fate, delay = self._fate(message)
        match fate:
            case "drop":
                return None
            case "truncate":
                await self._send_part(message)
                return None
            case "delay":
                await asyncio.sleep(delay)
            case "duplicate":
                await asyncio.gather(self._forward(message), return_exceptions=True)
            case _:
                pass
        answer = await self._forward(message)
        return None if fate == "mute" else answer

    async def _betray(
        self, message: Message, point: Point, delay: float, strike: Callable[[], object]
    ) -> bytes | None:
        """Bring a request to the aggregator and strike at a point of its way."""
        forwarding = asyncio.ensure_future(self._forward(message))
        if point != "sent":
            await asyncio.wait([forwarding])
        if point == "passed on":
            self._loop.call_later(delay, strike)
            return await forwarding
        await asyncio.sleep(delay)
        strike()
        await asyncio.gather(forwarding, return_exceptions=True)
        return None

    async def _forward(self, message: Message, port: int | None = None) -> bytes:
        where = ("127.0.0.1", port or self._target)
        reader, writer = await asyncio.open_connection(*where, limit=LIMIT)
        try:
            writer.write(message.raw)
            await writer.drain()
            answer = await asyncio.wait_for(_read_message(reader), 30)
        finally:
            writer.close()
        self.traffic.answered(message, answer)
        return answer

    async def _send_part(self, message: Message) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", self._target)
        writer.write(message.raw[: len(message.raw) * 2 // 3])
        await writer.drain()
        writer.close()


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    """Return the next request or answer, head and body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    return head + await reader.readexactly(length)
