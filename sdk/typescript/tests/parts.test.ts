// Parts that need no store.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { mock, test } from "node:test";
import { PACKAGE, REPOSITORY } from "./support.js";

test("a session that hangs is asked, then killed; a line in between is enough", async () => {
  const { Watch } = (await import(`${PACKAGE}dist/watch.js`)) as typeof import("../dist/watch.js");
  mock.timers.enable({ apis: ["setInterval"] });
  const done: string[] = [];
  const watch = new Watch({ ping: () => done.push("ping"), kill: () => done.push("kill") });
  watch.start();
  mock.timers.tick(10_000);
  assert.deepEqual(done, ["ping"]);
  watch.heard();
  mock.timers.tick(19_000);
  assert.deepEqual(done, ["ping", "ping"]);
  mock.timers.tick(1000);
  assert.deepEqual(done, ["ping", "ping", "kill"]);
  watch.stop();
  mock.timers.tick(60_000);
  assert.deepEqual(done, ["ping", "ping", "kill"]);
  mock.timers.reset();
});

test("the types are those of the schema", () => {
  execFileSync(process.execPath, ["generate.js", "--check"], { cwd: PACKAGE });
});

test("the reasons of this package are those of the page", () => {
  const page = readFileSync(join(REPOSITORY, "docs/reference/reasons.md"), "utf8");
  const section = page.split("\n## Words of the packages\n")[1]?.split("\n## ")[0] ?? "";
  const described = [...section.matchAll(/^\| `(\w+)` \|/gm)].map(([, word]) => word);
  const union = /PackageReason =([^;]*);/.exec(readFileSync(join(PACKAGE, "src/errors.ts"), "utf8"))?.[1] ?? "";
  const own = [...union.matchAll(/"(\w+)"/g)].map(([, word]) => word);
  // Here a lease that the silent session has lost is an error with the reason `lost`.
  assert.deepEqual([...own, "session_silent"], described);
});

/** Puts the examples of the pages where they are compiled. */
function extractPages(): void {
  const pages = join(PACKAGE, "target/pages");
  rmSync(pages, { recursive: true, force: true });
  mkdirSync(pages, { recursive: true });
  for (const page of [join(REPOSITORY, "docs/sdk/typescript.md"), join(PACKAGE, "README.md")]) {
    const blocks = readFileSync(page, "utf8").matchAll(/^```(ts|js)\n(.*?)^```$/gms);
    for (const [index, [, language = "", code = ""]] of [...blocks].entries()) {
      writeFileSync(join(pages, `${basename(page, ".md")}-${index}.${language}`), code);
    }
  }
}

test("a run that was not checked does not compile, and every example of the pages does", { timeout: 60_000 }, () => {
  extractPages();
  const words = ["-p", "tests/types"];
  const { status, stdout } = spawnSync("node_modules/.bin/tsc", words, { cwd: PACKAGE, encoding: "utf8" });
  assert.notEqual(status, 0);
  const lines = stdout.split("\n").filter((line) => /^\S+\(\d+,\d+\)/.test(line));
  const found = lines.map((line) => line.replace(/,\d+\).*/, ""));
  const expected = [5, 6, 7, 8].map((line) => `tests/types/unchecked.ts(${line}`);
  assert.deepEqual(found, expected, stdout);
  assert.match(stdout, /'tttl' does not exist in type 'RunOptions'/);
  assert.match(stdout, /Property 'token' does not exist on type 'NotGrantedRun'/);
});
