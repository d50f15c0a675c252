"""The verbs that block, on every kind of store."""

from __future__ import annotations

import inspect
import os
import pickle
import subprocess
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Callable, List, Optional, Union

import fencepost
from tests.support import BINARY, Case, new_database, redis_store


class OnEmbedded(Case):
    def test_a_block_holds_its_lease_publishes_and_is_recorded(self) -> None:
        with fencepost.run("nightly", ttl="10m") as run:
            self.assertTrue(run)
            self.assertEqual(run.job, "nightly")
            self.assertGreater(run.token, 0)
            self.assertLess(datetime.now(timezone.utc) - run.slot, timedelta(minutes=1))
            self.assertFalse(run.lost)
            written = run.publish_file("out.txt", "the report")
            self.assertEqual((written.level, written.token), ("atomic", run.token))
            self.assertEqual(self.command("lease", "show", "nightly")["token"], run.token)
        self.assertEqual((run.result.status, run.result.granted), ("ok", True))
        self.assertEqual(Path("out.txt").read_text(), "the report")
        self.assertEqual([run["status"] for run in self.runs("nightly")], ["ok"])

    def test_an_exception_is_recorded_with_its_last_line(self) -> None:
        with self.assertRaises(ValueError), fencepost.run("nightly") as run:
            raise ValueError("no such thing")
        self.assertEqual(run.result.status, "error")
        newest = self.runs("nightly")[0]
        self.assertEqual((newest["status"], newest["note"]), ("error", "ValueError: no such thing"))

    def test_the_program_states_its_outcome(self) -> None:
        with fencepost.run("nightly") as run:
            run.empty("no news")
        self.assertEqual(run.result.status, "empty")
        Path("out.csv").write_text("1,2")
        with fencepost.run("nightly") as run:
            run.ok("two numbers", artifacts=[self.place / "out.csv"])
        with fencepost.run("nightly") as run:
            run.error("the provider is down")
        self.assertEqual(run.result.status, "error")
        recorded = [(run["status"], run["note"]) for run in self.runs("nightly")]
        self.assertEqual(recorded[:2], [("error", "the provider is down"), ("ok", "two numbers")])
        self.assertEqual(recorded[2], ("empty", "no news"))

    def test_a_run_that_is_not_granted_is_a_result(self) -> None:
        with fencepost.run("nightly", ttl="1m") as first:
            self.assertTrue(first)
            with fencepost.run("nightly") as second:
                self.assertFalse(second)
            self.assertEqual((second.result.status, second.result.reason), ("skipped_overlap", "held"))
            self.assertTrue(second.result.skipped)
            with self.assertRaises(fencepost.Skipped) as caught, fencepost.run("nightly", on_skip="raise"):
                self.fail("the block must not run")
            self.assertEqual((caught.exception.code, caught.exception.reason), (11, "held"))

    def test_every_other_use_of_it_raises_and_so_does_leaving_its_block(self) -> None:
        with fencepost.run("nightly", ttl="1m") as first:
            self.assertTrue(first)
            uses: List[Callable[[fencepost.Run], object]] = [
                lambda run: run.token,
                lambda run: run.lost,
                lambda run: run.publish_file("out.txt", ""),
                lambda run: run.empty(),
                lambda run: run.check(),
            ]
            for use in uses:
                with self.assertRaises(fencepost.NotGranted), fencepost.run("nightly") as run:
                    use(run)
            with self.assertRaises(fencepost.NotGranted) as caught, fencepost.run("nightly"):
                pass
            self.assertIn("if not run: return run.result", str(caught.exception))
            with self.assertRaises(KeyError), fencepost.run("nightly"):
                raise KeyError("of the program itself")
        self.assertFalse(Path("out.txt").exists())

    def test_a_job_is_not_called_without_a_lease(self) -> None:
        calls: List[str] = []

        @fencepost.job("nightly", ttl="1m")
        def nightly(run: fencepost.Run, name: str, times: int = 1) -> str:
            """Greets."""
            calls.append(name)
            self.assertTrue(nightly("nested").skipped)
            return name * times

        result = nightly("a", times=2)
        self.assertEqual((result.status, result.value, calls), ("ok", "aa", ["a"]))
        self.assertEqual((nightly.__name__, nightly.__doc__), ("nightly", "Greets."))
        self.assertEqual(list(inspect.signature(nightly).parameters), ["name", "times"])

    def test_needs_halt_skip_or_hand_over_the_input(self) -> None:
        with fencepost.run("report", needs=["reference,artifact=reference.csv"]) as run:
            self.assertFalse(run)
        self.assertEqual((run.result.status, run.result.reason, run.result.halted), ("halted", "halted", True))
        with self.assertRaises(fencepost.Halted) as caught, fencepost.run("report", needs="reference", on_skip="raise"):
            self.fail("the block must not run")
        self.assertEqual(caught.exception.code, 15)
        self.assertFalse(fencepost.gate("reference"))
        Path("reference.csv").write_text("1,2")
        with fencepost.run("reference") as run:
            run.ok(artifacts=["reference.csv"])
        said = fencepost.gate("reference")
        self.assertEqual((said.decision, said.upstreams[0].status), ("proceed", "ok"))
        with fencepost.run("report", needs=["reference,artifact=reference.csv"]) as run:
            self.assertEqual(run.inputs["reference"].read_text(), "1,2")
            self.assertTrue(run.gate("reference"))

    def test_an_item_is_done_once(self) -> None:
        for attempt in range(2):
            with fencepost.once("invoice/7", params="3 EUR") as item:
                if item:
                    self.assertEqual((attempt, item.key), (0, "invoice/7"))
        self.assertEqual((item.result.reason, item.result.exit_code), ("done", 0))
        with self.assertRaises(fencepost.Error) as caught, fencepost.once("invoice/7", params="4 EUR"):
            self.fail("the block must not run")
        self.assertEqual(caught.exception.reason, "other_parameters")

    def test_after_an_exception_it_is_not_known_whether_an_item_is_done(self) -> None:
        with self.assertRaises(OSError), fencepost.once("invoice/7"):
            raise OSError("the connection was lost")
        with self.assertRaises(fencepost.UnknownOutcome) as caught, fencepost.once("invoice/7"):
            self.fail("the block must not run")
        self.assertEqual(caught.exception.code, 17)
        self.assertIsNotNone(caught.exception.token)
        with (
            self.assertRaises(LookupError),
            fencepost.once("invoice/7", retry_after=caught.exception.token or 0, no_effect=(LookupError,)),
        ):
            raise LookupError("there is no such customer")
        with fencepost.once("invoice/7") as item:
            self.assertTrue(item)

    def test_a_stale_run_cannot_publish(self) -> None:
        # Its session does not learn of the loss before the next renewal, 20 seconds later: only the fence can refuse the write.
        with self.assertRaises(fencepost.StaleToken) as ended, fencepost.run("nightly", ttl="1m") as old:
            old.publish_file("out.txt", "old")
            self.command("lease", "release", "nightly", "--force")
            with fencepost.run("nightly", ttl="1m") as new:
                new.publish_file("out.txt", "new")
                with self.assertRaises(fencepost.StaleToken) as refusal:
                    old.publish_file("out.txt", "old")
                self.assertEqual((refusal.exception.code, refusal.exception.reason), (13, "stale"))
                words = ["publish", "file", "out.txt", "--job", "nightly", "--token", str(old.token)]
                refused = subprocess.run([str(BINARY), *words], input=b"old", capture_output=True, check=False)
                self.assertEqual(refused.returncode, 13, refused.stderr)
        self.assertEqual(ended.exception.reason, "fenced")
        self.assertEqual(Path("out.txt").read_text(), "new")


class OnRedis(OnEmbedded):
    def store_url(self) -> Optional[str]:
        return redis_store()


class OnPostgres(OnEmbedded):
    def store_url(self) -> Optional[str]:
        return new_database()


class Calls(Case):
    """What does not depend on the store."""

    def test_a_typing_mistake_is_an_error_of_the_call(self) -> None:
        with self.assertRaisesRegex(TypeError, r"run\(\) got an unexpected keyword argument 'tll'. Did you mean 'ttl'\?"):
            fencepost.run("nightly", tll="10m")  # type: ignore[call-arg]
        with self.assertRaises(fencepost.UsageError) as caught, fencepost.run("nightly", ttl="10"):
            self.fail("the block must not run")
        self.assertEqual((caught.exception.code, caught.exception.reason), (2, "usage"))
        with self.assertRaises(fencepost.UsageError):
            fencepost.run("nightly", on_skip="ignore")

    def test_lengths_and_instants_may_be_objects(self) -> None:
        slot = datetime(2026, 11, 18, 7, tzinfo=timezone.utc)
        with fencepost.run("nightly", ttl=timedelta(minutes=3), slot=slot) as run:
            self.assertEqual((run.slot, run.grant.ttl_ms, run.date), (slot, 180_000, "2026-11-18"))
        with fencepost.run("nightly", slot=slot) as run:
            self.assertFalse(run)
        self.assertEqual((run.result.reason, run.result.slot), ("done", slot))

    def test_a_declared_file_that_was_not_written_is_an_error(self) -> None:
        with self.assertRaises(fencepost.Error) as caught, fencepost.run("nightly", produces=["out.txt"]):
            pass
        self.assertEqual((caught.exception.code, caught.exception.reason), (18, "no_output"))

    def test_a_run_is_for_one_block(self) -> None:
        run = fencepost.run("nightly")
        self.assertRaises(fencepost.UsageError, lambda: run.token)
        with run:
            self.assertRaises(fencepost.UsageError, lambda: run.result)
        self.assertRaises(fencepost.UsageError, run.empty)
        with self.assertRaises(fencepost.UsageError), run:
            self.fail("the block must not run")

    def test_content_of_any_kind_and_size_is_published(self) -> None:
        with fencepost.run("nightly") as run:
            contents: List[Union[str, bytes]] = [b"", b"\xff\x00\xfe", "ü\x00\n" * 3, b"x" * (8 << 20), "\x01" * 300_000]
            for number, data in enumerate(contents):
                run.publish_file(f"out{number}", data)
                raw = data.encode() if isinstance(data, str) else data
                self.assertEqual(Path(f"out{number}").read_bytes(), raw)

    def test_paths_belong_to_the_directory_of_the_call(self) -> None:
        with fencepost.run("nightly") as run:
            (self.place / "below").mkdir()
            os.chdir("below")
            run.publish_file("out.txt", "here")
        self.assertEqual((self.place / "below/out.txt").read_text(), "here")

    def test_threads_share_a_session(self) -> None:
        failures: List[str] = []

        def work(number: int) -> None:
            with fencepost.run(f"job{number}") as run:
                run.publish_file(f"out{number}", str(run.token))
            if run.result.status != "ok":
                failures.append(run.result.status)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((failures, len(list(self.place.glob("out*")))), ([], 16))

    def test_an_outcome_by_hand(self) -> None:
        fencepost.record("reference", "ok", note="by hand")
        self.assertTrue(fencepost.gate("reference"))

    def test_the_store_and_the_configuration_may_be_named(self) -> None:
        (self.place / "jobs.toml").write_text('timezone = "Europe/London"\n[job.nightly]\nttl = "7m"\ncommand = "true"\n')
        with fencepost.run("nightly", config=self.place / "jobs.toml", store=f"sqlite:{self.place}/other.db") as run:
            self.assertEqual((run.grant.ttl_ms, run.grant.timezone), (420_000, "Europe/London"))
        self.assertTrue((self.place / "other.db").exists())

    def test_a_store_that_fails_is_an_error_and_never_a_skip(self) -> None:
        with self.assertRaises(fencepost.StoreError) as caught, fencepost.run("nightly", store="redis://127.0.0.1:1"):
            self.fail("the block must not run")
        self.assertEqual(caught.exception.code, 125)
        again = pickle.loads(pickle.dumps(caught.exception))
        self.assertEqual((str(again), again.reason), (str(caught.exception), caught.exception.reason))
