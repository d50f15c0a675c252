// A store filled by real runs, and a real server on it.
import { execFile, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const program = process.env.FENCEPOST_PROGRAM;
const exec = promisify(execFile);

// Texts of attackers, by the way they come in.
export const HOSTILE = {
  job: `"><img src=x onerror=alert('job')>`,
  note: `</li><script>alert('note')</script>`,
  pause: `"><svg onload=alert('pause')>`,
  host: `<b onclick=alert('host')>mini</b>`,
  log: `<script>alert('log')</script>`,
};

const CONFIG = `
timezone = "UTC"

[job.reference]
schedule = "0 7 * * *"
command = "echo reference"

[job.article]
schedule = "0 12 * * *"
needs = ["reference@same-day"]
command = "echo article"

[job."agent/triage"]
schedule = "every 45m"
command = "sleep 600"

[job.backup]
schedule = "0 */6 * * *"
command = "echo backup; sleep 0.1"

[job.failing]
schedule = "*/10 * * * *"
command = '''printf "%s\\n" "${HOSTILE.log}"; exit 3'''

[job.${JSON.stringify(HOSTILE.job)}]
command = "true"
`;

export class World {
  static async create() {
    const world = await World.empty(CONFIG);
    await world.fill();
    await world.serve();
    return world;
  }

  // So many jobs with 40 outcomes each.
  static async ofJobs(count) {
    const world = await World.empty("");
    await world.run(["run", "job", "--", "true"]);
    const [header, line] = (await world.run(["store", "export"])).split("\n");
    const { key, value } = JSON.parse(line);
    const record = JSON.parse(value);
    const [outcome] = record.ledger.ring;
    const earlier = (hours) => {
      const times = ["slot", "started", "finished", "token"].map((name) => [name, outcome[name] - hours * 3_600_000]);
      return { ...outcome, ...Object.fromEntries(times), took_ms: 1000 + 37 * hours, status: hours % 13 === 5 ? "error" : "ok" };
    };
    record.ledger.ring = Array.from({ length: 40 }, (_, place) => earlier(39 - place));
    const lines = Array.from({ length: count }, (_, number) => {
      const name = `job${number}`;
      return JSON.stringify({ key: key.replace(/job$/, name), value: JSON.stringify({ ...record, job: { name } }) });
    });
    const text = [header, ...lines, ""].join("\n");
    const digest = createHash("sha256").update(text).digest("hex");
    const file = join(world.directory, "thousand.jsonl");
    await writeFile(file, `${text}${JSON.stringify({ entries: count, digest: `sha256:${digest}` })}\n`);
    world.env.FENCEPOST_STATE_DIR = join(world.directory, "filled");
    await world.run(["store", "import", file]);
    await world.serve();
    return world;
  }

  static async empty(config) {
    const world = new World();
    world.directory = await mkdtemp(join(tmpdir(), "fencepost-browser-"));
    world.env = {
      ...process.env,
      FENCEPOST_STATE_DIR: join(world.directory, "state"),
      FENCEPOST_CONFIG: join(world.directory, "fencepost.toml"),
    };
    await writeFile(world.env.FENCEPOST_CONFIG, config, { mode: 0o600 });
    return world;
  }

  // Runs the program, and returns what it printed. A job that fails is not a mistake of the test.
  async run(words, { env = {}, may = [0] } = {}) {
    try {
      const { stdout } = await exec(program, words, { cwd: this.directory, env: { ...this.env, ...env } });
      return stdout;
    } catch (error) {
      if (may.includes(error.code)) return error.stdout;
      throw new Error(`fencepost ${words.join(" ")}: exit ${error.code}\n${error.stderr}`);
    }
  }

  async fill() {
    const day = 86_400_000;
    const slot = (ago) => new Date(Math.floor(Date.now() / day) * day - ago).toISOString();
    for (let days = 20; days > 1; days--) {
      const outcome = days % 9 ? "ok" : "error";
      await this.run(["record", "backup", outcome, "--slot", slot(days * day), "--note", HOSTILE.note]);
    }
    await this.run(["run", "backup", "--now"]);
    await this.run(["run", "failing", "--now"], { may: [3] });
    await this.run(["run", "article", "--now"], { may: [115] });
    await this.run(["run", "elsewhere", "--", "true"], { env: { FENCEPOST_TEST_HOST: HOSTILE.host } });
    await this.run(["run", "paused", "--", "true"]);
    await this.run(["pause", "paused", "--note", HOSTILE.pause]);
    const file = join(this.directory, "report.txt");
    await writeFile(file, "one");
    await this.run(["run", "writer", "--", program, "publish", "file", join(this.directory, "out.txt"), "--from", file]);
    this.going = spawn(program, ["run", "agent/triage", "--now"], { cwd: this.directory, env: this.env, stdio: "ignore" });
  }

  async serve() {
    const tokens = join(this.directory, "tokens");
    this.token = (await this.run(["serve", "token", "anna", "--token-file", tokens])).trim();
    const words = ["serve", "--listen", "127.0.0.1:0", "--allow-actions", "--token-file", tokens];
    this.server = spawn(program, words, { cwd: this.directory, env: this.env, stdio: ["ignore", "pipe", "pipe"] });
    this.said = "";
    this.url = await new Promise((resolve, reject) => {
      const hear = (bytes) => {
        this.said += bytes;
        const found = /http:\/\/127\.0\.0\.1:\d+/.exec(this.said);
        if (found) resolve(found[0]);
      };
      this.server.stdout.on("data", hear);
      this.server.stderr.on("data", hear);
      this.server.on("exit", (code) => reject(new Error(`serve ended with ${code}: ${this.said}`)));
    });
  }

  async end() {
    const ended = (child) => new Promise((resolve) => (child.exitCode === null ? child.once("exit", resolve) : resolve()));
    for (const child of [this.server, this.going].filter(Boolean)) {
      child.kill("SIGTERM");
      await ended(child);
    }
    await rm(this.directory, { recursive: true, force: true });
  }
}
