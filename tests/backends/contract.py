"""What every backend promises, driver or wrapper. A test module derives a class from `Contract` and gives it a fixture
`backend`, empty and unclaimed; pytest then runs all of this against it."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator

import pytest

from backends import base, errors
from backends.base import Backend, Buffer, Fence, IssuedToken, Listed, Marker

BLOCK_BYTES = (8 << 20) + 4_096  # a full block, sealed: plain bytes, tags and header
SIZES = [0, 1, 4_096, 64 << 10, (256 << 10) + 1, BLOCK_BYTES]
SITE, OTHER_SITE = "5e" * 16, "07" * 16


def key(number: int, session: int = 5) -> str:
    """A key as blocks have it: the session, and something random."""
    return f"{session:016x}/{number:032x}"


def stamped(counter: int, replaces: str) -> Marker:
    """The marker of backend 3, stamped by the committer of this counter."""
    draw = IssuedToken(counter, f"{counter:032x}", counter, f"{counter:064x}")
    fence = Fence(counter, draw.nonce, counter + 2, f"{counter:064x}", 1_700_000_000 * 10**9, replaces, (draw,))
    return Marker(SITE, 3, 1, fence)


def fence_key(marker: Marker) -> str:
    assert marker.fence is not None
    return marker.fence.key


async def put(backend: Backend, at: str, *value: Buffer) -> None:
    """Put with the right checksum."""
    await backend.put(at, value, base.crc32c_of(value))


async def listed(lines: AsyncIterator[Listed]) -> list[Listed]:
    return [line async for line in lines]


class Contract:
    """Derive from it and define the fixture `backend`."""

    @pytest.mark.parametrize("size", SIZES)
    async def test_what_was_put_comes_back(self, backend: Backend, size: int) -> None:
        value = os.urandom(size)
        await put(backend, key(1), value)
        assert bytes(await backend.get(key(1))) == value
        found = await backend.stat(key(1))
        assert found.size == size
        assert found.md5 in ("", hashlib.md5(value).hexdigest())

    @pytest.mark.parametrize("size", [0, 1, 4_096, 64 << 10])
    async def test_an_answer_that_is_at_hand_is_the_right_one(self, backend: Backend, size: int) -> None:
        value = os.urandom(size)
        await put(backend, key(1), value)
        for _ in range(2):
            now = backend.get_now(key(1))
            assert now is None or bytes(now) == value
            now = backend.get_now(key(1), size // 2, size // 4)
            assert now is None or bytes(now) == value[size // 2 :][: size // 4]
            await backend.get(key(1))

    async def test_what_is_not_there_is_not_at_hand_either(self, backend: Backend) -> None:
        assert backend.get_now(key(1)) is None
        await put(backend, key(1), b"abc")
        await backend.get(key(1))
        assert backend.get_now(key(1), 2, 2) is None
        assert backend.get_now(key(1), 9) is None
        await backend.delete(key(1))
        assert backend.get_now(key(1)) is None

    async def test_buffers_of_every_type_are_joined(self, backend: Backend) -> None:
        parts: list[Buffer] = [b"ab", bytearray(b"cd"), memoryview(b"xefx")[1:3], b"", memoryview(bytearray(b"gh"))]
        await put(backend, key(1), *parts)
        assert bytes(await backend.get(key(1))) == b"abcdefgh"

    @pytest.mark.parametrize("count", [3_000])
    async def test_more_buffers_than_one_system_call_takes(self, backend: Backend, count: int) -> None:
        for number, size in ((1, 7), (2, 700)):
            parts = [os.urandom(size) for _ in range(count)]
            await put(backend, key(number), *parts)
            assert bytes(await backend.get(key(number))) == b"".join(parts)

    async def test_ranges(self, backend: Backend) -> None:
        value = os.urandom(200_000)
        await put(backend, key(1), value)
        for start, length in [(0, 1), (0, 200_000), (199_999, 1), (65_536, 65_536), (200_000, 0), (77, 0), (1, None)]:
            end = None if length is None else start + length
            assert bytes(await backend.get(key(1), start, length)) == value[start:end]

    @pytest.mark.parametrize(("start", "length"), [(0, 11), (10, 1), (11, None), (5, 6), (1 << 40, 1)])
    async def test_a_range_behind_the_end_is_damaged(self, backend: Backend, start: int, length: int | None) -> None:
        await put(backend, key(1), b"0123456789")
        with pytest.raises(errors.Corrupted) as caught:
            await backend.get(key(1), start, length)
        assert caught.value.key == key(1)

    @pytest.mark.parametrize(("start", "length"), [(-1, 1), (0, -1)])
    async def test_a_negative_range_is_a_mistake(self, backend: Backend, start: int, length: int) -> None:
        await put(backend, key(1), b"0123456789")
        with pytest.raises(ValueError, match="not a range"):
            await backend.get(key(1), start, length)

    @pytest.mark.parametrize(
        "bad", ["", "/a", "a/", "a//b", "..", "a/../b", ".a", "a/.b", "A", "a b", "ä", "a\0", "a\n", "x" * 600]
    )
    async def test_a_malformed_key_is_a_mistake_everywhere(self, backend: Backend, bad: str) -> None:
        with pytest.raises(ValueError, match="key"):
            await put(backend, bad, b"x")
        for call in (backend.get, backend.stat, backend.delete):
            with pytest.raises(ValueError, match="key"):
                await call(bad)

    async def test_what_is_absent_is_not_found(self, backend: Backend) -> None:
        await put(backend, key(2), b"x")
        for at in (key(1), key(1, session=9), "never"):
            for call in (backend.get, backend.stat):
                with pytest.raises(errors.NotFound) as caught:
                    await call(at)
                assert caught.value.key == at

    @pytest.mark.parametrize("size", [10, 300_000])
    async def test_a_value_that_differs_from_its_checksum_is_refused(self, backend: Backend, size: int) -> None:
        value = os.urandom(size)
        with pytest.raises(errors.Corrupted):
            await backend.put(key(1), [value], base.crc32c_of([value]) ^ 1)
        with pytest.raises(errors.NotFound):
            await backend.get(key(1))
        assert await listed(backend.list()) == []

    async def test_the_same_key_again_with_the_same_bytes_is_fine(self, backend: Backend) -> None:
        for value in (b"small", os.urandom(300_000)):
            at = key(len(value))
            await asyncio.gather(*(put(backend, at, value) for _ in range(4)))
            await put(backend, at, value)
            assert bytes(await backend.get(at)) == value

    async def test_a_deleted_value_is_gone_and_deleting_it_again_is_fine(self, backend: Backend) -> None:
        for value in (b"small", os.urandom(300_000)):
            at = key(len(value))
            await put(backend, at, value)
            await backend.get(at)
            await backend.delete(at)
            await backend.delete(at)
            with pytest.raises(errors.NotFound):
                await backend.get(at)
            await put(backend, at, value)
            assert bytes(await backend.get(at)) == value
        await backend.delete(key(77))
        await backend.delete("never/was")

    async def test_many_puts_and_gets_at_once(self, backend: Backend) -> None:
        async def one(number: int) -> None:
            value = os.urandom(number * 997 % 70_000)
            await put(backend, key(number, session=number % 3), value)
            got = await asyncio.gather(*(backend.get(key(number, session=number % 3)) for _ in range(3)))
            assert all(bytes(each) == value for each in got)
            if number % 2:
                await backend.delete(key(number, session=number % 3))

        await asyncio.gather(*(one(number) for number in range(200)))
        lines = await listed(backend.list())
        assert [line.key for line in lines] == sorted(key(n, session=n % 3) for n in range(0, 200, 2))

    async def test_nobody_sees_part_of_a_value(self, backend: Backend) -> None:
        value = os.urandom(BLOCK_BYTES)
        putting = asyncio.create_task(put(backend, key(1), value))
        while not putting.done():
            try:
                assert bytes(await backend.get(key(1))) == value
            except errors.NotFound:
                await asyncio.sleep(0)
            assert all(line.size == len(value) for line in await listed(backend.list()))
        await putting
        assert bytes(await backend.get(key(1))) == value

    async def test_a_listing_is_in_byte_order_and_begins_behind_after(self, backend: Backend) -> None:
        keys = ["a", "a-b", "a-b/c", "a.b/c", "a0", "b/0", "b/00", "b/1/x", "b/1-", "b/1.y", "b-/1", "b_/1", "c"]
        sizes = {at: number for number, at in enumerate(keys)}
        sizes.pop("a-b")  # a key is never a folder of another
        for at, size in sizes.items():
            await put(backend, at, bytes(size))
        ordered = [Listed(at, sizes[at]) for at in sorted(sizes)]
        assert await listed(backend.list()) == ordered
        for prefix in ("", "a", "a-b/", "b", "b/", "b/1", "b/1/", "b/1/x", "z"):
            for after in ("", "a", "a-b", "a-b/", "b/0", "b/1", "b/1/", "b/1/x", "b0", "zz"):
                wanted = [line for line in ordered if line.key.startswith(prefix) and line.key > after]
                assert await listed(backend.list(prefix, after)) == wanted, (prefix, after)

    async def test_a_long_listing_is_whole(self, backend: Backend) -> None:
        keys = sorted(key(number * 7_919 % 2_500, session=number % 4) for number in range(2_500))
        await asyncio.gather(*(put(backend, at, b"x") for at in keys))
        assert [line.key for line in await listed(backend.list())] == keys
        assert [line.key for line in await listed(backend.list(after=keys[1_234]))] == keys[1_235:]
        of_two = await listed(backend.list(prefix=f"{2:016x}/"))
        assert [line.key for line in of_two] == [at for at in keys if at[15] == "2"]

    async def test_a_listing_that_is_given_up_holds_nothing(self, backend: Backend) -> None:
        for number in range(5):
            await put(backend, key(number), b"x")
        async for line in backend.list():
            assert line.key == key(0)
            break
        await put(backend, key(9), b"x")

    async def test_who_comes_first_claims_the_place(self, backend: Backend) -> None:
        assert await backend.marker() is None
        await backend.claim(Marker(SITE, 3, 1))
        await backend.claim(Marker(SITE, 3, 1))
        assert await backend.marker() == Marker(SITE, 3, 1)
        assert await listed(backend.list()) == []

    @pytest.mark.parametrize("other", [Marker(OTHER_SITE, 3, 5), Marker(SITE, 3, 1), Marker(SITE, 4, 2)])
    async def test_a_foreign_claim_is_refused_and_changes_nothing(self, backend: Backend, other: Marker) -> None:
        await backend.claim(Marker(SITE, 3, 2))
        with pytest.raises(errors.OwnedByAnotherSite):
            await backend.claim(other)
        assert await backend.marker() == Marker(SITE, 3, 2)

    async def test_a_restored_site_shuts_the_old_one_out(self, backend: Backend) -> None:
        await backend.claim(Marker(SITE, 3, 1))
        await backend.claim(Marker(SITE, 7, 2))
        assert await backend.marker() == Marker(SITE, 7, 2)
        with pytest.raises(errors.OwnedByAnotherSite, match="restored"):
            await backend.claim(Marker(SITE, 3, 1))

    async def test_of_many_who_claim_at_once_one_wins(self, backend: Backend) -> None:
        claims = [Marker(f"{site:032x}", 1, 1) for site in range(8)]
        outcomes = await asyncio.gather(*(backend.claim(each) for each in claims), return_exceptions=True)
        winners = [each for each, outcome in zip(claims, outcomes, strict=True) if outcome is None]
        assert winners == [await backend.marker()]
        assert all(isinstance(outcome, errors.OwnedByAnotherSite) for outcome in outcomes if outcome is not None)

    async def test_a_stamp_replaces_exactly_the_fence_that_it_names(self, backend: Backend) -> None:
        await backend.claim(Marker(SITE, 3, 1))
        first = stamped(1, "")
        await backend.claim(first)
        await backend.claim(first)
        assert await backend.marker() == first
        for other in (stamped(2, ""), stamped(2, "1.00.9.00"), stamped(9, fence_key(stamped(8, "")))):
            with pytest.raises(errors.OwnedByAnotherSite, match="another committer"):
                await backend.claim(other)
        assert await backend.marker() == first
        second = stamped(2, fence_key(first))
        await backend.claim(second)
        assert await backend.marker() == second

    async def test_a_claim_without_a_fence_leaves_the_fence_alone(self, backend: Backend) -> None:
        await backend.claim(Marker(SITE, 3, 1))
        await backend.claim(stamped(1, ""))
        await backend.claim(Marker(SITE, 3, 1))
        assert await backend.marker() == stamped(1, "")
        await backend.claim(Marker(SITE, 3, 2))
        assert await backend.marker() == Marker(SITE, 3, 2), "a restored site begins anew"
        with pytest.raises(errors.OwnedByAnotherSite):
            await backend.claim(stamped(2, fence_key(stamped(1, ""))))

    async def test_only_a_claimed_place_is_stamped(self, backend: Backend) -> None:
        with pytest.raises(errors.OwnedByAnotherSite):
            await backend.claim(stamped(1, ""))
        assert await backend.marker() is None

    async def test_of_many_who_stamp_at_once_one_wins(self, backend: Backend) -> None:
        await backend.claim(Marker(SITE, 3, 1))
        stamps = [stamped(counter, "") for counter in range(1, 9)]
        outcomes = await asyncio.gather(*(backend.claim(each) for each in stamps), return_exceptions=True)
        winners = [each for each, outcome in zip(stamps, outcomes, strict=True) if outcome is None]
        assert winners == [await backend.marker()]
        assert all(isinstance(outcome, errors.OwnedByAnotherSite) for outcome in outcomes if outcome is not None)

    async def test_closing_twice_is_fine_and_it_has_a_name(self, backend: Backend) -> None:
        assert backend.name
        await put(backend, key(1), b"x")
        await backend.close()
        await backend.close()
