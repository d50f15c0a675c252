// The object that keeps one store: the only place where anything is read or written.
//
// Each method looks into the storage before it answers, also where it could answer without: an instance that was
// replaced by another finds that out when it touches its storage, and never by itself. No method waits for anything
// between reading and writing, and the runtime holds each answer back until what was written is safe.

import { DurableObject } from "cloudflare:workers";

export interface Env {
  STORE: DurableObjectNamespace<FencepostStore>;
  /** The secret that clients send. */
  FENCEPOST_TOKEN?: string;
  /** A second one that is taken as well, while the first is being changed everywhere. */
  FENCEPOST_TOKEN_OLD?: string;
  /** How many requests a second one store serves; more are put off. */
  FENCEPOST_RATE?: string;
}

/** `tick` never goes back while the object lives in one place. */
export interface Clock {
  wall: number;
  tick: number;
  era: string;
}

export interface Entry {
  version: string;
  value: ArrayBuffer;
}

export type Read = { kind: "read"; entry: Entry | null; clock: Clock };
export type Won = { kind: "won"; version: string | null; clock: Clock };
export type Lost = { kind: "lost"; entry: Entry | null; clock: Clock };
export type Keys = { kind: "keys"; keys: string[]; clock: Clock };
export type Busy = { kind: "busy"; retryAfterS: number };
export type Outcome = Read | Won | Lost | Keys | Busy;

const RATE_PER_S = 500;

/** How far the wall clock may step back and the tick stand still instead. */
const STEP_BACK_MAX_MS = 1000;

const VERSION_BYTES = 16;

const LAYOUT = "fencepost store, layout 1";

export class FencepostStore extends DurableObject<Env> {
  readonly #sql: SqlStorage;
  readonly #era: string;
  readonly #ratePerS: number;
  #lastTick = 0;
  #allowance: number;
  #allowanceAt = 0;

  constructor(ctx: DurableObjectState, env: Env) {
    super(ctx, env);
    this.#sql = ctx.storage.sql;
    this.#era = `do-${ctx.id.toString().slice(0, 16)}`;
    const rate = Number(env.FENCEPOST_RATE);
    this.#ratePerS = rate > 0 ? rate : RATE_PER_S;
    this.#allowance = 2 * this.#ratePerS;
    this.#prepare();
  }

  read(key: string): Read | Busy {
    return this.#busy() ?? { kind: "read", entry: this.#entry(key), clock: this.#clock() };
  }

  /** A `version` of null expects nothing, a `value` of null removes. */
  swap(key: string, version: string | null, value: ArrayBuffer | null): Won | Lost | Busy {
    const busy = this.#busy();
    if (busy) return busy;
    const current = this.#entry(key);
    const clock = this.#clock();
    if ((current?.version ?? null) !== version) return { kind: "lost", entry: current, clock };
    if (value === null) {
      this.#sql.exec("DELETE FROM entries WHERE key = ?", key);
      return { kind: "won", version: null, clock };
    }
    const fresh = freshVersion();
    this.#sql.exec(
      `INSERT INTO entries (key, version, value) VALUES (?, ?, ?)
       ON CONFLICT (key) DO UPDATE SET version = excluded.version, value = excluded.value`,
      key,
      fresh,
      value,
    );
    return { kind: "won", version: fresh, clock };
  }

  scan(prefix: string, after: string, limit: number): Keys | Busy {
    const busy = this.#busy();
    if (busy) return busy;
    // Keys are ASCII, so that its last sign bounds those with a prefix from above.
    const rows = this.#sql.exec<{ key: string }>(
      "SELECT key FROM entries WHERE key >= ? AND key < ? AND key > ? ORDER BY key LIMIT ?",
      prefix,
      `${prefix}\x7f`,
      after,
      limit,
    );
    return { kind: "keys", keys: rows.toArray().map((row) => row.key), clock: this.#clock() };
  }

  #prepare(): void {
    this.#sql.exec("CREATE TABLE IF NOT EXISTS layout (layout TEXT NOT NULL)");
    const layout = this.#sql.exec<{ layout: string }>("SELECT layout FROM layout").toArray()[0]?.layout;
    if (layout === undefined) this.#sql.exec("INSERT INTO layout VALUES (?)", LAYOUT);
    else if (layout !== LAYOUT) throw new Error(`This store has another layout (${layout}): deploy a newer worker.`);
    this.#sql.exec(
      "CREATE TABLE IF NOT EXISTS entries (key TEXT PRIMARY KEY, version TEXT NOT NULL, value BLOB NOT NULL)",
    );
  }

  #entry(key: string): Entry | null {
    const rows = this.#sql.exec<{ version: string; value: ArrayBuffer }>(
      "SELECT version, value FROM entries WHERE key = ?",
      key,
    );
    return rows.toArray()[0] ?? null;
  }

  /** The era is the object's for ever: another would end every lease at once. */
  #clock(): Clock {
    const wall = Date.now();
    const behindMs = this.#lastTick - wall;
    const tick = behindMs > 0 && behindMs <= STEP_BACK_MAX_MS ? this.#lastTick : wall;
    this.#lastTick = tick;
    return { wall, tick, era: this.#era };
  }

  /** Two seconds' worth of requests may come at once, and then as many a second as are allowed. */
  #busy(): Busy | null {
    const now = Date.now();
    const earned = (Math.max(0, now - this.#allowanceAt) / 1000) * this.#ratePerS;
    this.#allowance = Math.min(2 * this.#ratePerS, this.#allowance + earned);
    this.#allowanceAt = now;
    if (this.#allowance < 1) return { kind: "busy", retryAfterS: 1 };
    this.#allowance -= 1;
    return null;
  }
}

/** Random, because a counter would start again when a key is removed, or the storage restored. */
function freshVersion(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(VERSION_BYTES));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
