// Lease lock and publish gate: one run at a time writes the article, and one that was overtaken cannot publish.
//
//   publish-gate.js OUTPUT
//
// Start it from cron on as many machines as you like, all with the same store. The variables TTL and DRAFT_MS are for trying it out.
import { setTimeout as sleep } from "node:timers/promises";
import * as fencepost from "fencepost";

const output = process.argv[2] ?? "article.md";
const { TTL: ttl = "10m", DRAFT_MS: draftTime = "1000" } = process.env;

/** The slow part: a model's call, a download. The signal ends it when the lease is lost or the run is asked to stop. */
async function writeDraft(run: fencepost.GrantedRun): Promise<string> {
  await sleep(Number(draftTime), undefined, { signal: run.signal });
  return `# The news of ${run.date}\n\nWritten under token ${run.token}.\n`;
}

const result = await fencepost.job("article", { ttl }, async (run) => {
  console.log("drafting");
  const draft = await writeDraft(run);
  // The fence beside the file remembers the highest token. A run with a lower one is refused here, also if it slept.
  await run.publishFile(output, draft);
});

console.log(result.granted ? `published ${output}` : result.message);
