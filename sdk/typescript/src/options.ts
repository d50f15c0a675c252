// Misspelled options. The session ignores fields that it does not know, so they are found here.
import { UsageError } from "./errors.js";
import { FIELDS } from "./protocol.js";

/** The error of an option that the session would ignore. The compiler finds it too, where there is one. */
export function unknownOption({ request, ...options }: { request: string }): UsageError | undefined {
  const known = FIELDS[request] ?? [];
  const isUnknown = ([name, value]: [string, unknown]) => value !== undefined && !known.includes(name);
  const name = Object.entries(options).find(isUnknown)?.[0];
  if (name === undefined) return undefined;
  const near = known.find((option) => isNear(option, name));
  const hint = near === undefined ? `The options are: ${known.join(", ")}.` : `Did you mean ${near}?`;
  return new UsageError(`${request} has no option ${name}. ${hint} Nothing was done.`);
}

/** Whether two names differ by their case, or by one letter that is wrong, missing or doubled. */
function isNear(one: string, other: string): boolean {
  const [short, long] = [one.toLowerCase(), other.toLowerCase().replaceAll(/[_-]/g, "")].sort(
    (a, b) => a.length - b.length,
  );
  if (short === undefined || long === undefined || long.length - short.length > 1) return short === long;
  let start = 0;
  while (start < short.length && short[start] === long[start]) start += 1;
  return short.slice(start + (short.length === long.length ? 1 : 0)) === long.slice(start + 1);
}
