// Claims a job once and holds it until its input ends: racer JOB. Prints whether it was granted.
import { once } from "node:events";
import * as fencepost from "fencepost";

const run = await fencepost.run(process.argv[2] ?? "race", { ttl: "60s" });
console.log(JSON.stringify({ granted: run.granted, token: run.granted ? run.token : null }));
process.stdin.resume();
await once(process.stdin, "end");
if (run.granted) await run.ok();
await run.close();
