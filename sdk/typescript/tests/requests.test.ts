// Requests that the session could not read are refused before they are sent, and no lease is left behind.
import assert from "node:assert/strict";
import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import { describe, test } from "node:test";
import * as fencepost from "fencepost";
import { errorOf, Sandbox } from "./support.js";

const TIMEOUT = { timeout: 60_000 };

const LONG = "x".repeat(5_000_000);
const SURROGATE = "bad \udc80 name";

/** A program in place of `fencepost`, which answers a line by what `answers` returns for it, in one write. Logs each request. */
function inPlaceOf(sandbox: Sandbox, answers: string): fencepost.Session {
  const path = sandbox.path("fencepost");
  const log = JSON.stringify(sandbox.path("log"));
  const program = `#!${process.execPath}
const answers = ${answers};
const write = (...lines) => process.stdout.write(lines.map((line) => JSON.stringify({ v: 1, ...line }) + "\\n").join(""));
require("node:readline").createInterface(process.stdin).on("line", (line) => {
  const request = JSON.parse(line);
  require("node:fs").appendFileSync(${log}, line + "\\n");
  if (request.request === "hello") write({ id: request.id, answer: "hello", version: "0", protocol: 1 });
  else write(...answers(request));
});
`;
  writeFileSync(path, program);
  chmodSync(path, 0o755);
  return new fencepost.Session({ binary: path });
}

describe("the error of a function", TIMEOUT, () => {
  test("is recorded and thrown with any text, and the lease is released", async () => {
    using sandbox = new Sandbox();
    await using session = sandbox.session();
    const noText: unknown = Object.create(null);
    const errors: [unknown, string][] = [
      [new Error(SURROGATE), "Error: bad \ufffd name"],
      [new Error(LONG), `Error: ${LONG}`.slice(0, 8192)],
      [new Error("ü".repeat(8000)), `Error: ${"ü".repeat(4092)}`],
      [noText, "an error without a text"],
    ];
    for (const [error, note] of errors) {
      const failing = session.job("texts", { ttl: "1m" }, () => Promise.reject(error as Error));
      assert.equal(await failing.catch((thrown: unknown) => thrown), error);
      const newest = await sandbox.newest("texts");
      assert.deepEqual([newest.status, newest.note], ["error", note]);
    }
    await errorOf(
      session.once("item", { noEffect: [Error] }, () => Promise.reject(new Error(SURROGATE))),
      Error,
    );
    assert.equal((await session.once("item", () => 1)).granted, true);
  });

  test("a release that is refused as it is written is sent without its note", async () => {
    using sandbox = new Sandbox();
    await using session = sandbox.session();
    const run = await session.run("refused", { ttl: "1m", onSkip: "throw" });
    const internal = run as unknown as { end(how: object): Promise<fencepost.Result> };
    assert.equal((await internal.end({ outcome: "error", note: LONG, exitCode: 1 })).status, "error");
    assert.equal((await session.job("refused", () => 1)).granted, true);
  });
});

describe("a request that cannot be sent", TIMEOUT, () => {
  test("is a usage error, and the run goes on", async () => {
    using sandbox = new Sandbox();
    await using session = sandbox.session();
    const result = await session.job("calls", { ttl: "1m" }, async (run) => {
      const calls = [
        () => run.publishFile(SURROGATE, "x"),
        () => run.publishFile(sandbox.path("out"), SURROGATE),
        () => run.publishFile(sandbox.path("out"), LONG + SURROGATE),
        () => run.publish("file", { path: sandbox.path("out"), from: sandbox.path("in"), data: LONG }),
        () => run.publish("tree", { source: sandbox.path("in"), path: sandbox.path("out"), keep: NaN }),
        () => run.gate(SURROGATE),
        () => run.ok(SURROGATE),
        () => run.ok(LONG),
      ];
      for (const call of calls)
        assert.match((await errorOf(call(), fencepost.UsageError)).message, /Nothing was sent\.$/);
      await run.publishFile(sandbox.path("out"), "x");
    });
    assert.equal(result.status, "ok");
    for (const options of [{ retries: NaN }, { needs: [SURROGATE] }, { ttl: LONG }]) {
      await errorOf(session.run("calls", options), fencepost.UsageError);
    }
  });

  test("and was sent all the same ends the session, which fails what waits", async () => {
    using sandbox = new Sandbox();
    const unread =
      '() => [{ id: null, answer: "error", code: 2, reason: "usage", message: "This is not JSON.", next_step: null }]';
    await using session = inPlaceOf(sandbox, unread);
    const error = await errorOf(session.gate("any"), fencepost.StoreError);
    assert.equal(error.reason, "session_ended");
    assert.match(error.message, /The session could not read a request: This is not JSON\. The request may/);
  });
});

test("a claim that is given up just before or after its grant keeps no lease", TIMEOUT, async () => {
  using sandbox = new Sandbox();
  const granted =
    '{ answer: "granted", job: "busy", run: "r", token: 1, grants: 1, slot: "", date: "", timezone: "", trigger: "manual", ' +
    'late_seconds: 0, key: "", store: "", host: "", inputs: {}, ttl_ms: 60000, until: "", remaining_ms: 60000 }';
  // A claim that waits is granted in one chunk with an event of another lease, upon which the program gives the claim up.
  await using session = inPlaceOf(
    sandbox,
    `({ id, request, job, wait }) => {
      if (request === "release") return [{ id, answer: "released", status: "ok", reason: null, message: null }];
      const answer = { id, ...${granted} };
      const event = { claim: id - 1, at: "", event: "stop", reason: "replaced", message: "", until: "", remaining_ms: 9 };
      if (wait === undefined) return [answer];
      return job === "event-first" ? [event, answer] : [answer, event];
    }`,
  );
  for (const job of ["event-first", "answer-first"]) {
    for (let steps = 0; steps < 10; steps += 1) {
      const held = await session.run("held", { onSkip: "throw" });
      const controller = new AbortController();
      const giveUp = async () => {
        for (let step = 0; step < steps; step += 1) await Promise.resolve();
        controller.abort();
      };
      held.signal.addEventListener("abort", () => void giveUp());
      const claim = session.run(job, { wait: "10m", signal: controller.signal, onSkip: "throw" });
      await claim.then(
        (run) => run.close(),
        () => undefined,
      );
      await held.close();
    }
  }
  const requests = readFileSync(sandbox.path("log"), "utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as { id: number; request: string; claim?: number });
  const claimed = requests.filter(({ request }) => request === "claim").map(({ id }) => id);
  const released = new Set(requests.map(({ claim }) => claim));
  const left = claimed.filter((id) => !released.has(id));
  assert.deepEqual([claimed.length, left], [40, []]);
});

test("the version of another program is one short line in the error", TIMEOUT, async () => {
  await using session = new fencepost.Session({ binary: "/bin/cat" });
  const error = await errorOf(session.gate("any"), fencepost.ProgramError);
  assert.match(error.message, /^\/bin\/cat \(cat [^\n]{1,100}\) cannot be used: [^\n]*$/);
  assert.equal(error.reason, "program");
});
