// Ledger and barrier, the upstream: fetches prices and records how that went.
//
//   ledger-refresh.js SOURCE        (a file with one "item price" per line)
//
// ledger-report.ts is the downstream. `ok` and `empty` are the program's own word: an old file in place proves nothing.
import { readFile } from "node:fs/promises";
import * as fencepost from "fencepost";

const source = process.argv[2] ?? "prices.txt";

const terms = { slot: "day", produces: ["prices.json"], again: true };

const result = await fencepost.job("refresh", terms, async (run) => {
  const lines = (await readFile(source, "utf8")).split("\n").filter(Boolean);
  if (lines.length === 0) {
    await run.empty("the exchange is closed today");
    return;
  }
  const prices = new Map(lines.map((line) => line.split(" ") as [string, string]));
  await run.publishFile("prices.json", JSON.stringify(Object.fromEntries(prices)));
});

console.log(`refresh: ${result.status}`);
