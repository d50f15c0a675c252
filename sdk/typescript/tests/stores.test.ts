// The promises that need a store, on each of three: the embedded one, Redis and PostgreSQL.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import * as fencepost from "fencepost";
import { check, transaction } from "fencepost/pg";
import pg from "pg";
import { childrenOf, errorOf, Sandbox, type Server, startPostgres, startRedis, until } from "./support.js";

const RACERS = 32;
const TIMEOUT = { timeout: 60_000 };

let [redis, postgres]: Server[] = [];
/** A client of the database that fenced transactions write to. */
let client: pg.Client;

before(async () => {
  [redis, postgres] = await Promise.all([startRedis(), startPostgres()]);
  client = new pg.Client(postgres.url);
  await client.connect();
  await client.query("CREATE TABLE shop (said text)");
  await client.query("INSERT INTO shop VALUES ('nothing')");
}, TIMEOUT);

after(async () => {
  await client?.end();
  await redis?.[Symbol.asyncDispose]();
  await postgres?.[Symbol.asyncDispose]();
}, TIMEOUT);

test("without the function, the error names the command that installs it", TIMEOUT, async () => {
  using sandbox = new Sandbox();
  await using session = sandbox.session();
  const work = session.job("shop", (run) => transaction(client, run, "sql:shop", () => assert.fail("not fenced")));
  const error = await errorOf(work, fencepost.FencepostError);
  assert.deepEqual([error.code, error.reason], [125, "not_installed"]);
  assert.match(
    error.message,
    /fencepost publish sql --url postgres:\/\/fencepost@127\.0\.0\.1:\d+\/postgres --install/,
  );
  await sandbox.fencepost("publish", "sql", "--url", postgres?.url ?? "", "--install");
});

for (const kind of ["embedded", "redis", "postgres"]) {
  const store = () => ({ embedded: undefined, redis: redis?.url, postgres: postgres?.url })[kind];

  describe(`on the ${kind} store`, TIMEOUT, () => {
    test("one lease at a time, renewed beyond its ttl, with growing tokens", async () => {
      using sandbox = new Sandbox(store());
      await using session = sandbox.session();
      await using other = sandbox.session();
      const first = await session.run("lease", { ttl: "3s", onSkip: "throw" });
      await new Promise((resolve) => setTimeout(resolve, 3500));
      const skipped = await other.run("lease");
      assert.equal(skipped.granted, false);
      assert.equal(skipped.result.status, "skipped_overlap");
      await first.publishFile(sandbox.path("out"), "first");
      await first.ok();
      assert.equal((await first.close()).status, "ok");
      const second = await other.run("lease", { onSkip: "throw" });
      assert.ok(second.token > first.token);
      await second.empty("no news");
      assert.equal((await second.close()).status, "empty");
      assert.equal(sandbox.read("out"), "first");
    });

    test("the fence refuses a stale run whose session has not learned of the loss", async () => {
      using sandbox = new Sandbox(store());
      await using session = sandbox.session();
      const path = sandbox.path("out");
      const old = await session.run("stale", { ttl: "1m", onSkip: "throw" });
      await old.publishFile(path, "old");
      await sandbox.fencepost("lease", "release", "stale", "--force");
      assert.equal((await session.job("stale", (run) => run.publishFile(path, "new"))).status, "ok");
      const error = await errorOf(old.publishFile(path, "old"), fencepost.StaleTokenError);
      assert.deepEqual([error.code, error.reason, old.lost], [13, "stale", undefined]);
      assert.equal(sandbox.read("out"), "new");
      await errorOf(old.close(), fencepost.StaleTokenError);
    });

    test(`of ${RACERS} programs one wins`, async () => {
      using sandbox = new Sandbox(store());
      const racers = Array.from({ length: RACERS }, () => sandbox.start("racer", "race"));
      const answers = await Promise.all(racers.map((racer) => racer.next<{ granted: boolean }>()));
      assert.equal(answers.filter(({ granted }) => granted).length, 1);
      for (const racer of racers) racer.closeInput();
      const ends = await Promise.all(racers.map((racer) => racer.ended()));
      assert.deepEqual(
        ends.filter(({ code }) => code !== 0),
        [],
      );
      assert.equal((await sandbox.newest("race")).status, "ok");
    });

    test("a stopped program cannot write after another run has", async () => {
      using sandbox = new Sandbox(store());
      await using session = sandbox.session();
      const job = `zombie-${kind}`;
      const resource = `sql:${job}`;
      const zombie = sandbox.start("holder", job, JSON.stringify({ ttl: "2s", grace: "200ms" }), resource);
      assert.equal((await zombie.next<{ granted: boolean }>()).granted, true);
      zombie.signalAll("SIGSTOP");
      try {
        await session.job(job, { wait: "30s" }, async (run) => {
          await run.publishFile(sandbox.path("out"), "new");
          await transaction(client, run, resource, () => client.query("UPDATE shop SET said = 'new'"));
        });
        zombie.say(`publish ${sandbox.path("out")}`);
        zombie.say(`transact ${postgres?.url}`);
        zombie.say(`untold ${postgres?.url}`);
        zombie.say("signal");
        zombie.say("close");
      } finally {
        zombie.signalAll("SIGCONT");
      }
      assert.deepEqual(await zombie.next(), { publish: "LeaseLostError" });
      assert.deepEqual(await zombie.next(), { transact: "LeaseLostError" });
      assert.deepEqual(await zombie.next(), { untold: "StaleTokenError" });
      assert.deepEqual(await zombie.next(), { signal: "LeaseLostError", lost: true });
      assert.deepEqual(await zombie.next(), { close: "LeaseLostError" });
      zombie.closeInput();
      assert.equal((await zombie.ended()).code, 0);
      assert.equal(sandbox.read("out"), "new");
      assert.deepEqual((await client.query("SELECT said FROM shop")).rows, [{ said: "new" }]);
    });

    test("an item of work is done once, and one that may have had its effect is not repeated", async () => {
      using sandbox = new Sandbox(store());
      await using session = sandbox.session();
      let charged = 0;
      const charge = () => ++charged;
      assert.equal((await session.once("invoice/7", { params: "10 EUR" }, charge)).granted, true);
      const again = await session.once("invoice/7", { params: "10 EUR" }, charge);
      assert.deepEqual([again.granted, again.reason, charged], [false, "done", 1]);

      const broken = () => Promise.reject(new Error("the connection broke"));
      await errorOf(session.once("invoice/8", broken), Error);
      const unknown = await errorOf(session.once("invoice/8", charge), fencepost.UnknownOutcomeError);
      assert.equal((await session.once("invoice/8", { retryAfter: unknown.token }, charge)).granted, true);

      await errorOf(
        session.once("invoice/9", { noEffect: [RangeError] }, () => Promise.reject(new RangeError())),
        RangeError,
      );
      assert.equal((await session.once("invoice/9", charge)).granted, true);
      assert.equal(charged, 3);
    });
  });
}

test("a transaction is the caller's own: the check and the statements are committed, or neither", TIMEOUT, async () => {
  using sandbox = new Sandbox();
  await using session = sandbox.session();
  await session.job("own", async (run) => {
    const failing = transaction(client, run, "sql:own", async () => {
      await client.query("UPDATE shop SET said = 'half'");
      throw new RangeError("half-way");
    });
    await errorOf(failing, RangeError);
    assert.deepEqual((await client.query("SELECT count(*) FROM fencepost_fences WHERE resource = 'sql:own'")).rows, [
      { count: "0" },
    ]);
    const value = await transaction(client, run, "sql:own", () => 7, { op: "ship" });
    assert.equal(value, 7);
    const repeated = transaction(client, run, "sql:own", () => assert.fail("twice"), { op: "ship" });
    const { code, reason } = await errorOf(repeated, fencepost.AlreadyAppliedError);
    assert.deepEqual([code, reason], [0, "already_applied"]);
    await using pool = {
      pool: new pg.Pool({ connectionString: postgres?.url }),
      [Symbol.asyncDispose]: () => pool.pool.end(),
    };
    await errorOf(check(pool.pool, run, "sql:own"), fencepost.UsageError);
  });
});

test("a check outside a transaction is refused, because it protects nothing", TIMEOUT, async () => {
  using sandbox = new Sandbox();
  await using session = sandbox.session();
  await session.job("alone", async (run) => {
    const error = await errorOf(check(client, run, "sql:alone"), fencepost.UsageError);
    assert.match(error.message, /in no transaction/);
    await client.query("BEGIN");
    await check(client, run, "sql:alone");
    await client.query("ROLLBACK");
  });
});

test("a lease that is lost during the work is not committed", TIMEOUT, async () => {
  using sandbox = new Sandbox();
  await using session = sandbox.session();
  const run = await session.run("late", { onSkip: "throw" });
  const work = transaction(client, run, "sql:late", async () => {
    await client.query("UPDATE shop SET said = 'late'");
    process.kill(childrenOf(process.pid).at(-1) ?? 0, "SIGKILL");
    await until(() => run.lost !== undefined);
  });
  await errorOf(work, fencepost.LeaseLostError);
  await errorOf(check(client, run, "sql:late"), fencepost.LeaseLostError);
  assert.deepEqual((await client.query("SELECT said FROM shop WHERE said = 'late'")).rows, []);
});
