// Must not compile: each use of a run below comes before the check that it was granted.
import * as fencepost from "fencepost";

const run = await fencepost.run("nightly");
console.log(run.token);
await run.publishFile("report.txt", "text");
console.log(run.signal.aborted);
await fencepost.run("nightly", { tttl: "10m" });
