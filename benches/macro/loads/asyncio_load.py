"""What asyncio takes by itself: as many tasks, each of which awaits one future after the other. Nothing is sent.

One callback of the loop completes all futures that wait, as answers come to a client many at a time.
"""

import asyncio

from turn import Turn, main


async def tasks(turn: Turn) -> None:
    loop, waiting = asyncio.get_running_loop(), []

    def complete() -> None:
        done = waiting.copy()
        waiting.clear()
        for future in done:
            future.set_result(True)
        loop.call_soon(complete)

    async def send() -> bool:
        future = loop.create_future()
        waiting.append(future)
        return await future

    loop.call_soon(complete)
    await turn.send_in_tasks(send)


if __name__ == "__main__":
    main({"asyncio": lambda turn: asyncio.run(tasks(turn))})
