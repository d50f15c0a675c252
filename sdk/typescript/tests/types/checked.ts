// Must compile: the same uses after the check, or where the caller asked for an error.
import * as fencepost from "fencepost";

const run = await fencepost.run("nightly", { ttl: "10m", needs: ["reference"] });
if (run.granted) {
  console.log(run.token, run.signal.aborted);
  await run.publishFile("report.txt", "text");
} else {
  console.log(run.result.message);
}
await run.close();

const certain = await fencepost.run("nightly", { onSkip: "throw" });
console.log(certain.token);

const result = await fencepost.job("nightly", async (granted) => granted.token);
if (result.granted) console.log(result.value + 1);
