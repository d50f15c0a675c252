// The examples in TypeScript and bash, as a reader would run them.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { BINARY, PACKAGE, REPOSITORY, Sandbox, until } from "./support.js";

const TIMEOUT = { timeout: 60_000 };

/** An example that is running. */
class Example {
  stdout = "";
  stderr = "";
  readonly #child;
  readonly #ended;

  constructor(sandbox: Sandbox, program: string, words: string[], env: Record<string, string>) {
    const path = `${sandbox.directory}:${process.env["PATH"]}`;
    const all = { ...process.env, ...sandbox.env, PATH: path, ...env };
    this.#child = spawn(program, words, { cwd: sandbox.directory, env: all, detached: true });
    sandbox.adopt(this.#child.pid);
    this.#child.stdout.setEncoding("utf8").on("data", (text: string) => {
      this.stdout += text;
    });
    this.#child.stderr.setEncoding("utf8").on("data", (text: string) => {
      this.stderr += text;
    });
    this.#ended = once(this.#child, "close");
  }

  signalAll(signal: NodeJS.Signals): void {
    process.kill(-(this.#child.pid ?? 0), signal);
  }

  /** Its exit code and what it printed. */
  async end(): Promise<[number | null, string]> {
    await this.#ended;
    return [this.#child.exitCode, this.stdout];
  }
}

function typescript(sandbox: Sandbox, name: string, words: string[] = [], env: Record<string, string> = {}): Example {
  return new Example(sandbox, process.execPath, [join(PACKAGE, "target/examples", `${name}.js`), ...words], env);
}

function bash(sandbox: Sandbox, name: string, words: string[], env: Record<string, string> = {}): Example {
  return new Example(sandbox, join(REPOSITORY, "examples", `${name}.sh`), words, env);
}

test("lease lock and publish gate", TIMEOUT, async () => {
  using sandbox = new Sandbox();
  const first = typescript(sandbox, "publish-gate", ["article.md"], { DRAFT_MS: "4000" });
  await until(() => first.stdout.includes("drafting"));
  const [code, said] = await typescript(sandbox, "publish-gate", ["article.md"]).end();
  assert.equal(code, 0);
  assert.match(said, /^article skipped: /);
  assert.deepEqual(await first.end(), [0, "drafting\npublished article.md\n"]);

  const zombie = typescript(sandbox, "publish-gate", ["article.md"], { TTL: "2s", DRAFT_MS: "60000" });
  await until(() => zombie.stdout.includes("drafting"));
  zombie.signalAll("SIGSTOP");
  await until(async () => {
    const [, said] = await typescript(sandbox, "publish-gate", ["article.md"], { DRAFT_MS: "0" }).end();
    return said.includes("published");
  });
  const published = sandbox.read("article.md");
  zombie.signalAll("SIGCONT");
  assert.deepEqual(await zombie.end(), [1, "drafting\n"]);
  assert.match(zombie.stderr, /LeaseLostError/);
  assert.equal(sandbox.read("article.md"), published);
});

test("ledger and barrier", TIMEOUT, async () => {
  using sandbox = new Sandbox();
  const run = (name: string) => typescript(sandbox, name).end();
  const [code, said] = await run("ledger-report");
  assert.equal(code, 1);
  assert.match(said, /refresh has never run.*\nreport: halted\n$/);

  writeFileSync(sandbox.path("prices.txt"), "");
  assert.deepEqual(await run("ledger-refresh"), [0, "refresh: empty\n"]);
  const [skipped, why] = await run("ledger-report");
  assert.equal(skipped, 0);
  assert.match(why, /report: skipped_barrier\n$/);

  writeFileSync(sandbox.path("prices.txt"), "tea 3\ncoffee 4\n");
  assert.deepEqual(await run("ledger-refresh"), [0, "refresh: ok\n"]);
  assert.deepEqual(await run("ledger-report"), [0, "report: ok\n"]);
  assert.match(sandbox.read("report.txt"), /^Prices of .*\ntea: 3\ncoffee: 4\n$/);

  // Not the bytes that were recorded.
  writeFileSync(sandbox.path("prices.json"), "{}");
  assert.equal((await run("ledger-report"))[0], 1);
});

test("overlap and idempotency", TIMEOUT, async () => {
  using sandbox = new Sandbox();
  symlinkSync(BINARY, sandbox.path("fencepost"));
  writeFileSync(sandbox.path("invoices.txt"), "alice 10\nbob 20\n");
  const first = bash(sandbox, "overlap-and-idempotency", ["invoices.txt"], { CHARGE_SECONDS: "3" });
  await until(() => sandbox.exists("charged.log"));
  const second = bash(sandbox, "overlap-and-idempotency", ["invoices.txt"]);
  assert.equal((await second.end())[0], 0);
  const { stdout } = await sandbox.fencepost("status", "invoices", "--json");
  assert.match(stdout, /"skips":\{"overlap":1,/);
  assert.equal((await first.end())[0], 0, first.stderr);
  const charged = "invoices/2026-11/alice alice 10\ninvoices/2026-11/bob bob 20\n";
  assert.equal(sandbox.read("charged.log"), charged);

  // A repetition charges no item again, and a new one once.
  writeFileSync(sandbox.path("invoices.txt"), "alice 10\nbob 20\ncarol 30\n");
  assert.equal((await bash(sandbox, "overlap-and-idempotency", ["invoices.txt"]).end())[0], 0);
  assert.equal(sandbox.read("charged.log"), `${charged}invoices/2026-11/carol carol 30\n`);

  // Another amount under the same key is refused.
  writeFileSync(sandbox.path("invoices.txt"), "alice 11\n");
  assert.notEqual((await bash(sandbox, "overlap-and-idempotency", ["invoices.txt"]).end())[0], 0);
  assert.equal(sandbox.read("charged.log"), `${charged}invoices/2026-11/carol carol 30\n`);
});
