// Ledger and barrier, the downstream: writes a report of today's prices, or none.
//
//   ledger-report.js
//
// The upstream did not run today, or failed: halted, exit 1. It had nothing: skipped, exit 0. Its file is not the one that it
// recorded: halted. Otherwise the work gets a pinned copy of exactly the recorded bytes.
import { readFile } from "node:fs/promises";
import * as fencepost from "fencepost";

const terms = { slot: "day", needs: ["refresh,artifact=prices.json"], again: true };

const result = await fencepost.job("report", terms, async (run) => {
  const input = await readFile(run.inputs["refresh"] ?? "", "utf8");
  const lines = Object.entries(JSON.parse(input) as object).map(([item, price]) => `${item}: ${price}`);
  await run.publishFile("report.txt", `Prices of ${run.date}\n${lines.join("\n")}\n`);
});

if (!result.granted) console.log(result.message);
console.log(`report: ${result.status}`);
process.exitCode = result.status === "ok" || result.status.startsWith("skipped") ? 0 : 1;
