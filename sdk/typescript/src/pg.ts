/**
 * Fenced transactions in PostgreSQL, with the client `pg`: the fence is checked in the caller's own transaction.
 *
 * ```ts
 * import { transaction } from "fencepost/pg";
 *
 * await transaction(client, run, "sql:shop", () => client.query("UPDATE orders SET shipped = true WHERE …"));
 * ```
 *
 * @module
 */
import { AlreadyAppliedError, FencepostError, StaleTokenError, StoreError, UsageError } from "./errors.js";
import type { GrantedRun } from "./run.js";

/** A client of `pg`, or another with the same method. A pool is none: each of its queries may take another connection. */
export interface PgClient {
  query(text: string, values?: unknown[]): Promise<unknown>;
  /** Where it is connected to, for the command that an error names. */
  readonly user?: string | undefined;
  readonly host?: string | undefined;
  readonly port?: number | undefined;
  readonly database?: string | undefined;
}

export interface FenceOptions {
  /** How often one token may write (default: many). */
  mode?: "many" | "once" | undefined;
  /** The operation's name: the same name under the same token is the same write. */
  op?: string | undefined;
  /** The digest of what is written, as "sha256:…". */
  digest?: string | undefined;
}

type Refusal = (message: string, cause: unknown) => FencepostError;

/** What the SQLSTATEs of fencepost_check mean: docs/publish/sql.md. */
const REFUSALS: Record<string, Refusal> = {
  ZF000: (message, cause) => new AlreadyAppliedError(message, { cause }),
  ZF001: (message, cause) => new StaleTokenError(message, { reason: "stale", cause }),
  ZF002: (message, cause) => new StaleTokenError(message, { reason: "spent", cause }),
  ZF003: (message, cause) => new StaleTokenError(message, { reason: "other_run", cause }),
  ZF004: (message, cause) => new StaleTokenError(message, { reason: "other_lineage", cause }),
  ZF005: (message, cause) => new StoreError(message, { reason: "unreadable", cause }),
  "22023": (message, cause) => new UsageError(message, { cause }),
};

/** After the check its transaction has a number. In a new transaction there is none: each statement is committed by itself. */
const IS_OPEN = "SELECT txid_current_if_assigned() IS NOT NULL";

/**
 * Checks the fence of a resource, and advances it, in the transaction that the client is in. Call it first after BEGIN. If it
 * throws, roll the transaction back. It throws `run.lost` if the lease is lost.
 */
export async function check(
  client: PgClient,
  run: GrantedRun,
  resource: string,
  options: FenceOptions = {},
): Promise<void> {
  if ("totalCount" in client) {
    throw new UsageError("A pool has no transactions: take a client by `await pool.connect()`. Nothing was written.");
  }
  if (run.lost !== undefined) throw run.lost;
  const { mode = "many", op = null, digest = null } = options;
  const values = [resource, run.store, run.job, run.token, run.id, mode, op, digest, run.host];
  try {
    await client.query("SELECT public.fencepost_check($1, $2, $3, $4, $5, $6, $7, $8, $9)", values);
  } catch (error) {
    throw refusalOf(error, client) ?? error;
  }
  const { rows } = (await client.query(IS_OPEN)) as { rows: object[] };
  if (Object.values(rows[0] ?? {})[0] !== true) {
    throw new UsageError(
      "The client is in no transaction, so the check protects nothing that follows. Send BEGIN before it.",
    );
  }
}

/**
 * Does work in a transaction of its own that begins with the check. Commits if the work returns; rolls back if it throws, or if
 * the lease is lost by then.
 */
export async function transaction<T>(
  client: PgClient,
  run: GrantedRun,
  resource: string,
  work: () => T | Promise<T>,
  options: FenceOptions = {},
): Promise<T> {
  await client.query("BEGIN");
  let value: T;
  try {
    await check(client, run, resource, options);
    value = await work();
    if (run.lost !== undefined) throw run.lost;
  } catch (error) {
    // A connection that is gone has rolled back: the error above says why.
    await client.query("ROLLBACK").catch(() => {});
    throw error;
  }
  await client.query("COMMIT");
  return value;
}

function refusalOf(error: unknown, client: PgClient): FencepostError | undefined {
  if (!(error instanceof Error) || !("code" in error)) return undefined;
  switch (error.code) {
    case "42883":
      return new FencepostError(
        `This database has no function fencepost_check. Roll back, and install it once as the owner: ${installation(client)}`,
        { code: 125, reason: "not_installed", cause: error, nextStep: installation(client) },
      );
    case "42501":
      return new FencepostError(
        `${error.message}. Roll back. The owner of fencepost_check allows it by: ` +
          "GRANT EXECUTE ON FUNCTION public.fencepost_check TO ROLE",
        { code: 125, reason: "not_permitted", cause: error },
      );
    default:
      return REFUSALS[String(error.code)]?.(error.message, error);
  }
}

/** The command that installs the function. A password is not part of it. */
function installation({ user = "OWNER", host = "HOST", port = 5432, database = "DATABASE" }: PgClient): string {
  return `fencepost publish sql --url postgres://${user}@${host}:${port}/${database} --install`;
}
