// Claims a job and does what the test tells it: holder JOB OPTIONS RESOURCE. Prints one JSON line per answer.
import { createInterface } from "node:readline";
import * as fencepost from "fencepost";
import { transaction } from "fencepost/pg";
import pg from "pg";

const [job = "job", options = "{}", resource = "sql:shop"] = process.argv.slice(2);
const say = (answer: object) => console.log(JSON.stringify(answer));

/** How an attempt ended: "done", or the name of its error. */
async function attempt(work: () => Promise<unknown>): Promise<string> {
  return await work().then(
    () => "done",
    (error: unknown) => (error instanceof Error ? error.name : String(error)),
  );
}

async function write(run: fencepost.GrantedRun, url: string): Promise<unknown> {
  const client = new pg.Client(url);
  await client.connect();
  try {
    return await transaction(client, run, resource, () => client.query("UPDATE shop SET said = 'stale'"));
  } finally {
    await client.end();
  }
}

/** Does one thing. Returns false if the program shall do nothing more. */
async function obey(run: fencepost.GrantedRun, verb: string | undefined, word: string): Promise<boolean> {
  switch (verb) {
    case "publish":
      say({ publish: await attempt(() => run.publishFile(word, "stale")) });
      break;
    case "transact":
      say({ transact: await attempt(() => write(run, word)) });
      break;
    case "untold": {
      // As if the program had not been told: the fence is in the database.
      const untold = Object.create(run, { lost: { value: undefined } }) as fencepost.GrantedRun;
      say({ untold: await attempt(() => write(untold, word)) });
      break;
    }
    case "signal":
      if (!run.signal.aborted) await new Promise((resolve) => run.signal.addEventListener("abort", resolve));
      say({ signal: (run.signal.reason as Error).name, lost: run.lost !== undefined });
      break;
    case "close":
      say({ close: await attempt(() => run.close()) });
      break;
    case "exit":
      process.exit(3);
      break;
    default:
      return false;
  }
  return true;
}

const run = await fencepost.run(job, JSON.parse(options) as fencepost.RunOptions);
if (!run.granted) {
  say({ granted: false, status: run.result.status });
  process.exit(0);
}
say({ granted: true, token: run.token });
for await (const line of createInterface(process.stdin)) {
  const [verb, word = ""] = line.split(" ");
  if (!(await obey(run, verb, word))) break;
}
// If the run is not closed by now, its session does not keep this process alive.
process.stdin.destroy();
