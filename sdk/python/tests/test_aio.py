"""The verbs for asyncio."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import List

import fencepost
from fencepost import aio
from fencepost._session import Session
from tests.support import BINARY, Case, wait_for


class Asyncio(Case):
    def test_the_same_verbs(self) -> None:
        async def work() -> None:
            async with aio.run("nightly", ttl="1m") as run:
                self.assertTrue(run)
                await run.publish_file("out.txt", b"\xff")
                async with aio.run("nightly") as second:
                    self.assertEqual((bool(second), second.result.reason), (False, "held"))
                with self.assertRaises(fencepost.NotGranted):
                    async with aio.run("nightly"):
                        pass
                self.assertFalse(await run.gate("reference"))
                await run.empty("no news")
            self.assertEqual(run.result.status, "empty")
            self.assertFalse(await aio.gate("reference"))
            await aio.record("reference", "ok")
            self.assertTrue(await aio.gate("reference"))
            async with aio.once("invoice/7") as item:
                self.assertEqual(item.key, "invoice/7")
            with self.assertRaises(ValueError):
                async with aio.run("nightly"):
                    raise ValueError("no")

        asyncio.run(work())
        self.assertEqual(Path("out.txt").read_bytes(), b"\xff")
        self.assertEqual(self.runs("nightly")[0]["note"], "ValueError: no")

    def test_a_job_is_a_coroutine_function(self) -> None:
        @aio.job("nightly")
        async def nightly(run: aio.Run, name: str) -> str:
            self.assertTrue((await nightly("nested")).skipped)
            return name

        async def work() -> "fencepost.Result[str]":
            return await nightly("a")

        self.assertEqual(asyncio.run(work()).value, "a")

    def release_by_force(self) -> None:
        subprocess.run([str(BINARY), "lease", "release", "nightly", "--force"], check=True, capture_output=True)

    def test_a_lost_lease_cancels_the_task_if_that_is_wanted(self) -> None:
        async def work() -> str:
            try:
                async with aio.run("nightly", ttl="1s", cancel_on_loss=True) as run:
                    self.release_by_force()
                    await asyncio.sleep(30)
            except fencepost.LeaseLost as error:
                task = asyncio.current_task()
                if sys.version_info >= (3, 11) and task is not None:
                    self.assertEqual(task.cancelling(), 0)
                self.assertTrue(run.lost)
                return error.reason
            return "not cancelled"

        self.assertEqual(asyncio.run(work()), "lost")

    def test_a_lost_lease_is_an_event_and_a_callback(self) -> None:
        async def work() -> None:
            called: List[object] = []
            with self.assertRaises(fencepost.LeaseLost):
                async with aio.run("nightly", ttl="1s") as run:
                    run.lost.add_callback(called.append)
                    self.assertFalse(await run.lost.wait(0.05))
                    self.release_by_force()
                    self.assertTrue(await run.lost.wait(30))
                    await run.publish_file("out.txt", "")
            self.assertEqual(called, [run.lost])

        asyncio.run(work())

    def test_a_claim_that_is_cancelled_while_it_waits_leaves_no_lease(self) -> None:
        async def work() -> None:
            async def wait() -> None:
                async with aio.run("nightly", wait="10m"):
                    self.fail("the block must not run")

            async with aio.run("nightly", ttl="1m") as holder:
                for pause in (0.0, 0.3):
                    task = asyncio.create_task(wait())
                    await asyncio.sleep(pause)
                    task.cancel()
                    with self.assertRaises(asyncio.CancelledError):
                        await task
                # The holder itself releases: a claim that still waited would get the lease now.
                assert holder._asked is not None
                session = holder._asked.session
                await asyncio.get_running_loop().run_in_executor(None, wait_for, "the claims end", lambda: is_alone(session))
            self.assertEqual([run["status"] for run in self.runs("nightly")], ["ok"])

        def is_alone(session: Session) -> bool:
            return len(session._listeners) == 1 and not session._pending

        asyncio.run(work())

    def test_a_cancelled_block_is_recorded(self) -> None:
        async def work() -> None:
            async with aio.run("nightly"):
                await asyncio.sleep(30)

        async def main() -> None:
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(work(), 0.3)

        asyncio.run(main())
        self.assertIn("CancelledError", self.runs("nightly")[0]["note"])
