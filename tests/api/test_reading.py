"""How many bodies are read at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bapipe_api.dependencies import places
from bapipe_api.problems import RefusedError
from bapipe_api.reading import MOST_WAITING, SMALL_VALUES, read_body


def test_large_bodies_that_wait_are_so_many_and_keep_no_small_one() -> None:
    async def reading() -> None:
        found, nobody = places(1), None
        request: Any = nobody
        service: Any = nobody
        large = found.large_bodies
        holders = [asyncio.create_task(large.acquire_on_behalf_of(object())) for _ in range(1 + MOST_WAITING)]
        await asyncio.sleep(0)
        assert await read_body(request, b"{}", bytes.decode, service, found) == "{}"
        with pytest.raises(RefusedError) as caught:
            await read_body(request, b"," * SMALL_VALUES, bytes.decode, service, found)
        assert (caught.value.status, caught.value.headers) == (503, {"Retry-After": "5"})
        for holder in holders:
            holder.cancel()

    asyncio.run(reading())
