// What the tests share: places of their own, servers, and programs that run beside the test.
import { type ChildProcess, execFile, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, chownSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { Session } from "fencepost";
import pg from "pg";

export const BINARY = process.env["FENCEPOST_BIN"] ?? "";

/** sdk/typescript: the tests run from target/sdk/typescript/tests. */
export const PACKAGE = new URL("../../../../", import.meta.url).pathname;
export const REPOSITORY = join(PACKAGE, "../..");

/** A directory and a store for one test. */
export class Sandbox implements Disposable {
  readonly directory = mkdtempSync(join(tmpdir(), "fencepost-test-"));
  readonly env: Record<string, string>;
  readonly #groups: number[] = [];

  constructor(store?: string) {
    this.env = {
      FENCEPOST_STATE_DIR: this.directory,
      FENCEPOST_CONFIG: "",
      ...(store === undefined ? {} : { FENCEPOST_STORE: store }),
    };
  }

  session(): Session {
    return new Session({ env: this.env });
  }

  path(name: string): string {
    return join(this.directory, name);
  }

  read(name: string): string {
    return readFileSync(this.path(name), "utf8");
  }

  exists(name: string): boolean {
    return existsSync(this.path(name));
  }

  /** Runs the command line on this store. */
  fencepost(...words: string[]): Promise<{ stdout: string; stderr: string }> {
    return promisify(execFile)(BINARY, words, { env: { ...process.env, ...this.env }, cwd: this.directory });
  }

  /** How the newest run of a job ended. */
  async newest(job: string): Promise<{ status: string; note: string | null }> {
    const { stdout } = await this.fencepost("runs", job, "--json");
    return JSON.parse(stdout.split("\n", 1)[0] ?? "") as { status: string; note: string | null };
  }

  start(program: string, ...words: string[]): Program {
    return new Program(this, compiled(program), words);
  }

  /** Ends a process group with the test, if it is still there then. */
  adopt(group: number | undefined): void {
    if (group !== undefined) this.#groups.push(group);
  }

  [Symbol.dispose](): void {
    for (const group of this.#groups) {
      try {
        process.kill(-group, "SIGKILL");
      } catch {
        // It has ended.
      }
    }
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** Where a program of the tests is after compilation. */
export function compiled(program: string): string {
  return join(PACKAGE, "target/sdk/typescript/tests/programs", `${program}.js`);
}

/** A program in a process group of its own, with what it prints. */
export class Program {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  #stderr = "";

  constructor(sandbox: Sandbox, path: string, words: string[]) {
    const env = { ...process.env, ...sandbox.env };
    this.#child = spawn(process.execPath, [path, ...words], { env, cwd: sandbox.directory, detached: true });
    sandbox.adopt(this.#child.pid);
    this.#child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.#stderr += text;
    });
    if (this.#child.stdout === null) throw new Error("the program has no output");
    this.#lines = createInterface(this.#child.stdout)[Symbol.asyncIterator]();
  }

  get pid(): number {
    if (this.#child.pid === undefined) throw new Error("the program did not start");
    return this.#child.pid;
  }

  /** The next line that it prints, as JSON. */
  async next<T = Record<string, unknown>>(): Promise<T> {
    const line = await this.#lines.next();
    if (line.done) throw new Error(`the program has ended: ${this.#stderr}`);
    return JSON.parse(line.value) as T;
  }

  say(line: string): void {
    this.#child.stdin?.write(`${line}\n`);
  }

  closeInput(): void {
    this.#child.stdin?.end();
  }

  /** Signals the program and everything that it started. */
  signalAll(signal: NodeJS.Signals): void {
    process.kill(-this.pid, signal);
  }

  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  async ended(): Promise<{ code: number | null; signal: NodeJS.Signals | null; stderr: string }> {
    if (this.#child.exitCode === null && this.#child.signalCode === null) await once(this.#child, "exit");
    return { code: this.#child.exitCode, signal: this.#child.signalCode, stderr: this.#stderr };
  }
}

/** The processes that a process has started. */
export function childrenOf(pid: number): number[] {
  const text = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8");
  return text.split(" ").filter(Boolean).map(Number);
}

/** Waits until something holds. The test's own timeout ends the wait. */
export async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await holds())) await sleep(20);
}

export function isAlive(pid: number): boolean {
  try {
    // A zombie has ended: its parent has not read its status yet.
    return !/^State:\tZ/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}

/** The error of a promise that has to reject. */
export async function errorOf<E extends Error>(
  promise: Promise<unknown>,
  Class: new (...args: never[]) => E,
): Promise<E> {
  const error = await promise.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (error instanceof Class) return error;
  throw new Error(`${Class.name} was expected, not ${String(error)}`);
}

/** A server with a directory of its own. */
export interface Server extends AsyncDisposable {
  readonly url: string;
}

export async function startRedis(): Promise<Server> {
  const [directory, port] = [ownDirectory(), await freePort()];
  const words = ["--port", `${port}`, "--bind", "127.0.0.1", "--save", "", "--loglevel", "warning", "--dir", directory];
  return await serve("redis-server", words, directory, `redis://127.0.0.1:${port}`, () => accepts(port));
}

/** PostgreSQL, without a password and with a database `postgres`. */
export async function startPostgres(): Promise<Server> {
  const [directory, port] = [ownDirectory(), await freePort()];
  const data = join(directory, "data");
  const initialize = ["-U", "fencepost", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N", "-D", data];
  const made = spawnSync(postgresProgram("initdb"), initialize, {
    ...unprivileged(),
    cwd: directory,
    encoding: "utf8",
  });
  if (made.status !== 0) throw new Error(`initdb failed: ${made.stderr}`);
  const words = ["-D", data, "-k", directory, "-h", "127.0.0.1", "-p", `${port}`];
  const url = `postgres://fencepost@127.0.0.1:${port}/postgres?sslmode=disable`;
  return await serve(postgresProgram("postgres"), words, directory, url, () => connects(url));
}

async function serve(
  program: string,
  words: string[],
  directory: string,
  url: string,
  isReady: () => Promise<boolean>,
): Promise<Server> {
  const child = spawn(program, words, { ...unprivileged(), cwd: directory, stdio: "ignore" });
  await until(isReady);
  return {
    url,
    async [Symbol.asyncDispose]() {
      child.kill("SIGINT");
      if (child.exitCode === null) await once(child, "exit");
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

/** A directory that an unprivileged user may use. PostgreSQL refuses to run as root. */
function ownDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), "fencepost-server-"));
  chmodSync(directory, 0o755);
  const { uid, gid } = unprivileged();
  if (uid !== undefined && gid !== undefined) chownSync(directory, uid, gid);
  return directory;
}

function unprivileged(): { uid?: number; gid?: number } {
  return process.getuid?.() === 0 ? { uid: 65534, gid: 65534 } : {};
}

/** Debian keeps the programs of a server beside each other by version, outside the path. */
function postgresProgram(name: string): string {
  const root = "/usr/lib/postgresql";
  const newest = readdirSync(root).sort().at(-1);
  return join(root, newest ?? "", "bin", name);
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  if (address === null || typeof address === "string") throw new Error("no port is free");
  return address.port;
}

async function accepts(port: number): Promise<boolean> {
  const socket = connect(port, "127.0.0.1");
  try {
    await once(socket, "connect");
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

/** PostgreSQL accepts connections before it serves them. */
async function connects(url: string): Promise<boolean> {
  const client = new pg.Client(url);
  try {
    await client.connect();
    await client.end();
    return true;
  } catch {
    return false;
  }
}
