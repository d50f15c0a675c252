// Fenced requests by fetch, and the same write by the session: a server sees no difference.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingHttpHeaders, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import * as fencepost from "fencepost";
import { type FencedInit, fencedFetch, levelOf } from "fencepost/http";
import { errorOf, Sandbox, until } from "./support.js";

interface Request {
  method: string | undefined;
  headers: IncomingHttpHeaders;
  body: string;
}

/** A server that answers as it is told, and keeps what it got. */
class Recorder implements Disposable {
  readonly requests: Request[] = [];
  #answer: (response: ServerResponse) => void = (response) => response.setHeader("Fencepost-Fence", "accepted").end();
  readonly #server = createServer((request, response) => {
    const recorded: Request = { method: request.method, headers: request.headers, body: "" };
    request.setEncoding("utf8").on("data", (chunk: string) => {
      recorded.body += chunk;
    });
    request.on("end", () => {
      this.requests.push(recorded);
      this.#answer(response);
    });
  });

  async start(): Promise<string> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/report`;
  }

  answerBy(answer: (response: ServerResponse) => void): void {
    this.#answer = answer;
  }

  [Symbol.dispose](): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

/** The headers of the fence. */
function fence({ headers }: Request): Record<string, unknown> {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => /^(fencepost-|idempotency-key)/.test(name)));
}

test("the headers are those of `publish http`", { timeout: 60_000 }, async () => {
  using sandbox = new Sandbox();
  await using session = sandbox.session();
  using server = new Recorder();
  const url = await server.start();
  await session.job("report", async (run) => {
    for (const [op, mode] of [
      ["charge/ü 7%", "many"],
      [undefined, "once"],
    ] as const) {
      server.requests.length = 0;
      await run.publish("http", { url, data: "text", op, mode });
      const init: FencedInit = { body: "text", headers: { "Content-Type": "text/plain" }, fence: { op, mode } };
      assert.equal(levelOf(await fencedFetch(run, url, init)), "atomic");
      const [ours, other] = [server.requests[1], server.requests[0]];
      assert.ok(ours && other);
      assert.deepEqual(fence(ours), fence(other));
      assert.deepEqual([ours.method, ours.body, ours.headers["content-type"]], ["PUT", "text", "text/plain"]);
    }
    server.requests.length = 0;
    await fencedFetch(run, url, { body: "x" });
    await fencedFetch(run, url, { body: "x" });
    const keys = new Set(server.requests.map(({ headers }) => headers["idempotency-key"]));
    assert.equal(keys.size, 2);
  });
});

test(
  "the loss of the lease and the caller's signal abort a request; a request to stop does not",
  { timeout: 60_000 },
  async () => {
    using sandbox = new Sandbox();
    await using session = sandbox.session();
    using server = new Recorder();
    const url = await server.start();
    const run = await session.run("report", { timeout: "300ms", ttl: "3s", grace: "1s", onSkip: "throw" });
    await until(() => run.signal.aborted);
    assert.equal(levelOf(await fencedFetch(run, url)), "atomic");
    server.answerBy(() => {});
    await assert.rejects(fencedFetch(run, url, { signal: AbortSignal.timeout(50) }), { name: "TimeoutError" });
    // Never answered: the caller's own signal takes nothing from that of the loss.
    const { signal } = new AbortController();
    await errorOf(fencedFetch(run, url, { signal }), fencepost.LeaseLostError);
    await errorOf(fencedFetch(run, url), fencepost.LeaseLostError);
    await errorOf(run.close(), fencepost.LeaseLostError);
  },
);

test("a refusal is a stale token; every other answer is the caller's", { timeout: 60_000 }, async () => {
  using sandbox = new Sandbox();
  await using session = sandbox.session();
  using server = new Recorder();
  const url = await server.start();
  await session.job("report", async (run) => {
    const problem = JSON.stringify({ type: "urn:fencepost:other-run", detail: "token 5 was used by another run" });
    server.answerBy((response) => response.writeHead(412, { "Content-Type": "application/problem+json" }).end(problem));
    const error = await errorOf(fencedFetch(run, url), fencepost.StaleTokenError);
    assert.equal(error.reason, "other_run");
    assert.match(error.message, /token 5 was used by another run/);
    server.answerBy((response) => response.writeHead(412, { "Fencepost-Seen": "6" }).end());
    assert.match((await errorOf(fencedFetch(run, url), fencepost.StaleTokenError)).message, /seen token 6/);
    server.answerBy((response) => response.writeHead(412).end());
    assert.equal((await fencedFetch(run, url)).status, 412);
    server.answerBy((response) => response.writeHead(302, { Location: "/elsewhere" }).end());
    assert.equal((await fencedFetch(run, url)).status, 302);
    server.answerBy((response) => response.end());
    assert.equal(levelOf(await fencedFetch(run, url)), "gated");
  });
});
