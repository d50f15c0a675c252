// Lines of the session: names in camelCase here, in snake_case there.

import { UsageError } from "./errors.js";

/** The most bytes that the session takes in one line. */
export const LINE_BYTES_MAX = 4 * 1024 * 1024;

type Fields = Record<string, unknown>;

/** A request as a line. What the session could not read is refused here: its answer would name no request. */
export function encode(request: object): string {
  const fields = Object.entries(request as Fields).map(([name, value]) => {
    const why = unsendable(value);
    if (why !== undefined) throw new UsageError(`${name} ${why}. Nothing was sent.`);
    return [snakeCase(name), value] as const;
  });
  const line = `${JSON.stringify(Object.fromEntries(fields))}\n`;
  if (Buffer.byteLength(line) > LINE_BYTES_MAX)
    throw new UsageError(`A request may have ${LINE_BYTES_MAX} bytes. Nothing was sent.`);
  return line;
}

/** Why the session could not read a value. */
function unsendable(value: unknown): string | undefined {
  if (Array.isArray(value)) return value.map(unsendable).find((why) => why !== undefined);
  if (typeof value === "string" && !value.isWellFormed()) return "contains a lone surrogate";
  if (typeof value === "number" && !Number.isFinite(value)) return `is ${value}`;
  return undefined;
}

/** A line as an object. Throws on what is not JSON. */
export function decode(line: string): unknown {
  const value: unknown = JSON.parse(line);
  return isFields(value) ? camelFields(value) : value;
}

/** What an answer holds besides the fields of every answer. */
export function contentOf<T extends { v: unknown; id: unknown; answer: unknown }>(
  reply: T,
): Omit<T, "v" | "id" | "answer"> {
  const content: Partial<T> = { ...reply };
  delete content.v;
  delete content.id;
  delete content.answer;
  return content as Omit<T, "v" | "id" | "answer">;
}

/** Splits chunks of text into whole lines. */
export class LineBuffer {
  #rest = "";

  take(chunk: string): string[] {
    const lines = (this.#rest + chunk).split("\n");
    this.#rest = lines.pop() ?? "";
    return lines;
  }
}

/** Renames fields, also of objects in arrays. A nested object is a map, whose keys are names of jobs. */
function camelFields(fields: Fields): Fields {
  const renamed = (value: unknown): unknown => (isFields(value) ? camelFields(value) : value);
  const entries = Object.entries(fields).map(
    ([name, value]) => [camelCase(name), Array.isArray(value) ? value.map(renamed) : value] as const,
  );
  return Object.fromEntries(entries);
}

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

const camelCase = (name: string) => name.replace(/_[a-z0-9]/g, (found) => found.slice(1).toUpperCase());
const snakeCase = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
