// The life of a session: what it answers, what it tells, and how it ends.
import assert from "node:assert/strict";
import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import { describe, test } from "node:test";
import * as fencepost from "fencepost";
import { childrenOf, errorOf, isAlive, Sandbox, until } from "./support.js";

const TIMEOUT = { timeout: 60_000 };

/** The process of a session that this process has started last. */
function sessionProcess(pid = process.pid): number {
  const child = childrenOf(pid).at(-1);
  assert.ok(child !== undefined);
  return child;
}

describe("outcomes", TIMEOUT, () => {
  test("a function's return is ok, its word is kept, and its error is recorded by its last line", async () => {
    using sandbox = new Sandbox();
    await using session = sandbox.session();
    const result = await session.job("nightly", (run) => run.token);
    assert.ok(result.granted);
    assert.equal(result.status, "ok");
    assert.equal(typeof result.value, "number");
    assert.equal((await session.job("nightly", (run) => run.empty("no news"))).status, "empty");
    assert.deepEqual(pick(await sandbox.newest("nightly")), { status: "empty", note: "no news" });
    const failing = session.job("nightly", () => Promise.reject(new RangeError("first line\nsecond: boom")));
    await errorOf(failing, RangeError);
    assert.deepEqual(pick(await sandbox.newest("nightly")), { status: "error", note: "second: boom" });
  });

  test("a block that states no outcome ends as an error, because it does not tell whether it threw", async () => {
    using sandbox = new Sandbox();
    await using session = sandbox.session();
    {
      await using run = await session.run("block");
      assert.ok(run.granted);
    }
    assert.equal((await sandbox.newest("block")).status, "error");
    {
      await using run = await session.run("block");
      assert.ok(run.granted);
      await run.ok("3 pages");
    }
    assert.deepEqual(pick(await sandbox.newest("block")), { status: "ok", note: "3 pages" });
    const run = await session.run("block", { onSkip: "throw" });
    try {
      await run.error("no input");
    } finally {
      assert.deepEqual(await run.close(), await run.close());
    }
    assert.deepEqual(pick(await sandbox.newest("block")), { status: "error", note: "no input" });
  });

  test("a gate reads what is recorded", async () => {
    using sandbox = new Sandbox();
    await using session = sandbox.session();
    assert.equal((await session.gate("refresh")).decision, "halt");
    const halted = await session.run("report", { needs: ["refresh"] });
    assert.ok(!halted.granted);
    assert.equal(halted.result.status, "halted");
    await errorOf(session.run("report", { needs: ["refresh"], onSkip: "throw" }), fencepost.HaltedError);
    await session.record("refresh", "empty", { note: "nothing new" });
    const { decision, upstreams } = await session.gate(["refresh"]);
    assert.deepEqual([decision, upstreams[0]?.status], ["skip", "empty"]);
    await errorOf(session.run("report", { needs: ["refresh"], onSkip: "throw" }), fencepost.SkippedError);
    await session.job("other", async (run) => assert.equal((await run.gate("refresh")).decision, "skip"));
  });
});

describe("writes", TIMEOUT, () => {
  test("bytes and long texts arrive as they are", async () => {
    using sandbox = new Sandbox();
    await using session = sandbox.session();
    const [bytes, long] = [Uint8Array.from([0, 255, 10, 128]), "é".repeat(3_000_000)];
    await session.job("write", async (run) => {
      const published = await run.publishFile(sandbox.path("bytes"), bytes);
      assert.deepEqual([published.level, published.token], ["atomic", run.token]);
      await run.publishFile(sandbox.path("long"), long);
      await run.publish("file", { path: sandbox.path("copy"), from: sandbox.path("bytes") });
      await errorOf(run.publish("file", { path: sandbox.path("none") }), fencepost.UsageError);
    });
    assert.deepEqual(readFileSync(sandbox.path("bytes")), Buffer.from(bytes));
    assert.deepEqual(readFileSync(sandbox.path("copy")), Buffer.from(bytes));
    assert.equal(sandbox.read("long"), long);
  });

  test("a refused write makes the run end as fenced", async () => {
    using sandbox = new Sandbox();
    await using session = sandbox.session();
    await session.job("one", (run) => run.publishFile(sandbox.path("out"), "1"));
    const other = await session.run("two", { onSkip: "throw" });
    const error = await errorOf(other.publishFile(sandbox.path("out"), "2"), fencepost.StaleTokenError);
    assert.deepEqual([error.code, error.reason], [13, "other_lineage"]);
    await other.ok();
    assert.equal((await other.close()).status, "fenced");
    const failing = session.job("two", (run) => run.publishFile(sandbox.path("out"), "3").catch(() => "ignored"));
    assert.equal((await errorOf(failing, fencepost.StaleTokenError)).reason, "fenced");
    assert.equal(sandbox.read("out"), "1");
  });

  test("a request that is too long is refused before it is sent", async () => {
    using sandbox = new Sandbox();
    await using session = sandbox.session();
    await errorOf(session.record("long", "ok", { note: "x".repeat(5_000_000) }), fencepost.UsageError);
    assert.equal((await session.job("long", () => 1)).status, "ok");
  });
});

test("in plain JavaScript too, a run that was not granted cannot be used", TIMEOUT, async () => {
  using sandbox = new Sandbox();
  await using session = sandbox.session();
  const held = await session.run("held", { onSkip: "throw" });
  const run = (await session.run("held")) as unknown as fencepost.GrantedRun;
  assert.throws(() => run.token, fencepost.SkippedError);
  assert.throws(() => run.publishFile("out", "x"), fencepost.SkippedError);
  await run.close();
  await held.ok();
  await held.close();
});

test("a misspelled option is an error, and nothing is claimed", TIMEOUT, async () => {
  using sandbox = new Sandbox();
  await using session = sandbox.session();
  const typo = (options: object) => errorOf(session.run("typo", options), fencepost.UsageError);
  assert.match((await typo({ tll: "1m" })).message, /claim has no option tll\. Did you mean ttl\? Nothing was done/);
  assert.match((await typo({ catch_up: 3 })).message, /Did you mean catchUp\?/);
  assert.match((await typo({ retires: 3 })).message, /The options are: .*retries/);
  assert.equal((await session.job("typo", { ttl: undefined }, () => 1)).status, "ok");
});

test("a signal gives up a claim that waits, and nothing is recorded", TIMEOUT, async () => {
  using sandbox = new Sandbox();
  await using session = sandbox.session();
  const held = await session.run("busy", { onSkip: "throw", ttl: "1m" });
  const waits = session.run("busy", { wait: "10m", signal: AbortSignal.timeout(300) });
  await assert.rejects(waits, { name: "TimeoutError" });
  await assert.rejects(
    session.once("item", { signal: AbortSignal.abort(new RangeError("no")) }, () => 1),
    RangeError,
  );
  await held.ok();
  await held.close();
  const next = await session.run("busy", { onSkip: "throw" });
  await next.ok();
  await next.close();
  const { stdout } = await sandbox.fencepost("runs", "busy", "--json");
  const statuses = stdout
    .trim()
    .split("\n")
    .map((line) => (JSON.parse(line) as { status: string }).status);
  assert.deepEqual(statuses, ["ok", "ok"]);
});

test("a run that takes too long is asked to stop, and may end in order", TIMEOUT, async () => {
  using sandbox = new Sandbox();
  await using session = sandbox.session();
  const run = await session.run("slow", { timeout: "500ms", ttl: "20s", grace: "5s", onSkip: "throw" });
  await until(() => run.signal.aborted);
  assert.ok(run.signal.reason instanceof fencepost.StopRequestedError);
  assert.deepEqual([run.signal.reason.reason, run.lost], ["timeout", undefined]);
  await run.publishFile(sandbox.path("out"), "what there is");
  assert.equal((await run.close()).status, "timeout");
});

test("a loss after a request to stop fires the signal of the loss", TIMEOUT, async () => {
  using sandbox = new Sandbox();
  await using session = sandbox.session();
  const run = await session.run("slow", { timeout: "300ms", ttl: "3s", grace: "500ms", onSkip: "throw" });
  await until(() => run.signal.aborted);
  assert.ok(run.signal.reason instanceof fencepost.StopRequestedError);
  assert.equal(run.lostSignal.aborted, false);
  await until(() => run.lostSignal.aborted);
  assert.equal(run.lostSignal.reason, run.lost);
  assert.ok(run.signal.reason instanceof fencepost.StopRequestedError);
  await errorOf(run.close(), fencepost.LeaseLostError);
});

test("a program that computes for longer than its ttl keeps its lease", TIMEOUT, async () => {
  using sandbox = new Sandbox();
  await using session = sandbox.session();
  const run = await session.run("busy", { ttl: "2s", onSkip: "throw" });
  for (const end = Date.now() + 5000; Date.now() < end;);
  await run.publishFile(sandbox.path("out"), "computed");
  assert.equal(run.signal.aborted, false);
  await run.ok();
  assert.equal((await run.close()).status, "ok");
});

test("a session that hangs loses the lease by its deadline", TIMEOUT, async () => {
  using sandbox = new Sandbox();
  await using session = sandbox.session();
  const run = await session.run("hangs", { ttl: "1s", onSkip: "throw" });
  const pid = sessionProcess();
  process.kill(pid, "SIGSTOP");
  await until(() => run.signal.aborted);
  assert.match(run.lost?.message ?? "", /did not renew/);
  process.kill(pid, "SIGKILL");
  await errorOf(run.close(), fencepost.LeaseLostError);
});

describe("the end of a session", TIMEOUT, () => {
  test("loses its leases, fails what was asked, and the next claim starts another", async () => {
    using sandbox = new Sandbox();
    await using session = sandbox.session();
    const run = await session.run("dies", { onSkip: "throw" });
    const pid = sessionProcess();
    process.kill(pid, "SIGSTOP");
    const [write, gate] = [run.publishFile(sandbox.path("out"), "x"), session.gate("other")];
    process.kill(pid, "SIGKILL");
    const [lost, failed] = await Promise.all([
      errorOf(write, fencepost.LeaseLostError),
      errorOf(gate, fencepost.StoreError),
    ]);
    assert.match(lost.message, /was ended by SIGKILL/);
    assert.match(failed.message, /may still have taken effect/);
    assert.ok(run.signal.aborted && run.signal.reason instanceof fencepost.LeaseLostError);
    await errorOf(run.ok(), fencepost.LeaseLostError);
    await errorOf(run.close(), fencepost.LeaseLostError);
    assert.equal((await session.job("after", () => 7)).granted, true);
  });

  test("comes with the end of the program, however it ends", async () => {
    using sandbox = new Sandbox();
    const ends: [string, (holder: ReturnType<Sandbox["start"]>) => void, object][] = [
      ["SIGKILL", (holder) => holder.signal("SIGKILL"), { code: null, signal: "SIGKILL", stderr: "" }],
      ["ctrl-C", (holder) => holder.signalAll("SIGINT"), { code: null, signal: "SIGINT", stderr: "" }],
      ["exit", (holder) => holder.say("exit"), { code: 3, signal: null, stderr: "" }],
      ["leave", (holder) => holder.say("leave"), { code: 0, signal: null, stderr: "" }],
    ];
    for (const [name, end, expected] of ends) {
      const holder = sandbox.start("holder", name, JSON.stringify({ ttl: "1s", grace: "100ms" }));
      assert.equal((await holder.next<{ granted: boolean }>()).granted, true);
      const pid = sessionProcess(holder.pid);
      end(holder);
      assert.deepEqual(await holder.ended(), expected, name);
      await until(() => !isAlive(pid));
    }
    // The leases were not released, and have ended by their ttl.
    await using session = sandbox.session();
    for (const [name] of ends) assert.equal((await session.job(name, { wait: "30s" }, () => 1)).granted, true, name);
  });

  test("close ends the process at once", async () => {
    using sandbox = new Sandbox();
    const session = sandbox.session();
    await session.gate("any");
    const pid = sessionProcess();
    await session.close();
    assert.equal(isAlive(pid), false);
  });
});

describe("a program that does not fit", TIMEOUT, () => {
  const script = (sandbox: Sandbox, text: string) => {
    const path = sandbox.path("fencepost");
    writeFileSync(path, `#!/bin/sh\n${text}\n`);
    chmodSync(path, 0o755);
    return new fencepost.Session({ binary: path });
  };

  test("another version of the protocol is named, with the places searched", async () => {
    using sandbox = new Sandbox();
    const said = '{"v":1,"id":1,"answer":"hello","version":"9.9.9","protocol":9}';
    const session = script(
      sandbox,
      `[ "$1" = --version ] && echo fencepost 9.9.9 && exit\nread line; echo '${said}'; read line`,
    );
    const error = await errorOf(session.gate("any"), fencepost.ProgramError);
    assert.match(error.message, /fencepost 9\.9\.9 speaks version 9 of the protocol/);
    assert.match(error.message, /needs a program with version 1 .* Searched: FENCEPOST_BIN .*; PATH/);
  });

  test("one without sessions, or that is not there, is an error and no hang", async () => {
    using sandbox = new Sandbox();
    const old = await errorOf(script(sandbox, "echo no such verb >&2; exit 2").gate("any"), fencepost.ProgramError);
    assert.match(old.message, /exited with 2 \(no such verb\)/);
    const none = new fencepost.Session({ binary: sandbox.path("missing") });
    assert.match((await errorOf(none.gate("any"), fencepost.ProgramError)).message, /ENOENT/);
  });
});

/** What a test compares of a run. */
function pick({ status, note }: { status: string; note: string | null }): { status: string; note: string | null } {
  return { status, note };
}
