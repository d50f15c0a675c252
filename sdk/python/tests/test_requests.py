"""Requests that the session could not read are refused before they are sent, and no call waits for ever."""

from __future__ import annotations

import asyncio
import sys
import unittest
from pathlib import Path
from typing import Callable, List
from unittest import mock

import fencepost
from fencepost import _session, aio
from tests.support import Case

BAD_BYTE = b"\xff".decode(errors="surrogateescape")
LONG = "x" * 5_000_000


class Exceptions(Case):
    def test_an_exception_of_any_text_is_recorded_and_the_lease_released(self) -> None:
        for error, note in (
            (ValueError(f"bad {BAD_BYTE} name"), "ValueError: bad ? name"),
            (ValueError(LONG), f"ValueError: {LONG}"[:8192]),
            (ValueError("ü" * 8000), "ValueError: " + "ü" * 4090),
            (ValueError("first\nlast"), "last"),
        ):
            with self.subTest(note[:20]):
                with self.assertRaises(ValueError), fencepost.run("nightly", ttl="1m"):
                    raise error
                newest = self.runs("nightly")[0]
                self.assertEqual((newest["status"], newest["note"]), ("error", note))

    @unittest.skipIf(sys.version_info < (3, 11), "exceptions have no notes")
    def test_the_notes_of_an_exception_do_not_hide_it(self) -> None:
        error = ValueError("no such thing")
        error.add_note("a hint")  # type: ignore[attr-defined, unused-ignore]
        with self.assertRaises(ValueError), fencepost.run("nightly"):
            raise error
        self.assertEqual(self.runs("nightly")[0]["note"], "ValueError: no such thing")


class Refused(Case):
    def test_a_call_under_a_lease(self) -> None:
        calls: List[Callable[[fencepost.Run], object]] = [
            lambda run: run.publish_file(f"caf{BAD_BYTE}.txt", "x"),
            lambda run: run.publish_file("out.txt", BAD_BYTE),
            lambda run: run.gate("zzz", slot=float("nan")),  # type: ignore[arg-type]
            lambda run: run.gate(BAD_BYTE),
            lambda run: run.ok(LONG),
            lambda run: run.empty(BAD_BYTE),
        ]
        with fencepost.run("nightly", ttl="1m") as run:
            for call in calls:
                with self.assertRaises(fencepost.UsageError) as caught:
                    call(run)
                self.assertEqual((caught.exception.code, caught.exception.reason), (2, "usage"))
                self.assertIn("Nothing was sent.", str(caught.exception))
            run.publish_file("out.txt", "x")
        self.assertEqual(run.result.status, "ok")

    def test_a_claim(self) -> None:
        claims: List[Callable[[], fencepost.Run]] = [
            lambda: fencepost.once("k", params="p" * 5_000_000),
            lambda: fencepost.run("nightly", retries=float("nan")),  # type: ignore[arg-type]
            lambda: fencepost.run("nightly", retries=10**5000),
            lambda: fencepost.run("nightly", needs=[BAD_BYTE]),
        ]
        for claim in claims:
            with self.assertRaises(fencepost.UsageError), claim():
                self.fail("the block must not run")
        for session in _session._sessions.values():
            self.assertTrue(session.is_idle, "nothing is registered")
        with fencepost.run("nightly") as run:
            self.assertTrue(run)

    def test_a_number_without_a_unit(self) -> None:
        with self.assertRaisesRegex(fencepost.UsageError, 'ttl is 5, which has no unit: write "5s", or a timedelta'):
            fencepost.run("nightly", ttl=5)  # type: ignore[arg-type]

    def test_asyncio(self) -> None:
        async def work() -> None:
            async with aio.run("nightly", ttl="1m") as run:
                with self.assertRaises(fencepost.UsageError):
                    await run.ok(LONG)
            with self.assertRaises(ValueError):
                async with aio.run("nightly"):
                    raise ValueError(BAD_BYTE)

        asyncio.run(work())
        self.assertEqual(self.runs("nightly")[0]["note"], "ValueError: ?")

    def test_a_request_that_the_session_could_not_read_ends_it(self) -> None:
        with self.assertRaises(fencepost.LeaseLost), fencepost.run("nightly", ttl="1m") as run:
            with (
                mock.patch.object(_session, "_line", lambda *_: b"{\n"),
                self.assertRaisesRegex(
                    fencepost.StoreError, "could not read a request: This is not JSON.*[^.]\\)\\. Its"
                ) as caught,
            ):
                run.ok()
            self.assertEqual(caught.exception.reason, "session_ended")
            self.assertTrue(run.lost.wait(20))
        with fencepost.run("other") as other:
            self.assertTrue(other)


class Content(Case):
    def test_it_may_come_from_a_file(self) -> None:
        Path("made.txt").write_text("made before")
        with fencepost.run("nightly") as run:
            run.publish("file", path="out.txt", source_file="made.txt")
            with self.assertRaises(fencepost.UsageError):
                run.publish("file", path="out.txt", source_file="made.txt", data=b"\xff")
        self.assertEqual(Path("out.txt").read_text(), "made before")


class Interrupted(Case):
    def test_between_the_answer_and_the_block_the_lease_is_released(self) -> None:
        run = fencepost.run("nightly", ttl="1m")
        with mock.patch.object(run, "_begin", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt), run:
            self.fail("the block must not run")
        with fencepost.run("nightly", wait="20s") as after:
            self.assertTrue(after)
