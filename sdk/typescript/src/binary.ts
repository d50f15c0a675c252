// Finds the program.
import { accessSync, constants, readFileSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { delimiter, join, resolve } from "node:path";
import { NotFoundError } from "./errors.js";

const SUPPORTED = ["linux-x64", "linux-arm64", "darwin-x64", "darwin-arm64"];

const manifest = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")) as { version: string };

/** The version of this package and of its program. */
export const version = manifest.version;

/** Where a program was looked for. */
interface Place {
  /** The path of the program, if it is there. */
  path: string | undefined;
  /** The place and what was found there, for an error. */
  searched: string;
}

/** The path of the program: FENCEPOST_BIN, the one in the package for this platform, or the one on PATH. */
export function binaryPath(): string {
  return firstOf([named, contained, onPath]);
}

/** As `binaryPath`, without PATH, where the command of this package may be itself. */
export function ownPath(): string {
  return firstOf([named, contained]);
}

/** The places, for an error about a program that was found. */
export function placesSearched(): string {
  const places = [named(), contained(), onPath()];
  return places.map(({ searched }) => searched).join("; ");
}

/** The first of the places that has the program. Those after it are not looked at. */
function firstOf(places: (() => Place)[]): string {
  const searched: string[] = [];
  for (const place of places) {
    const found = place();
    if (found.path !== undefined) return found.path;
    searched.push(found.searched);
  }
  throw new NotFoundError(
    `fencepost: no program was found. Searched: ${searched.join("; ")}. Supported: ${SUPPORTED.join(", ")}. ` +
      "On another platform build it from source and name it by FENCEPOST_BIN.",
  );
}

function named(): Place {
  const path = process.env["FENCEPOST_BIN"];
  return path
    ? { path, searched: `FENCEPOST_BIN (${path})` }
    : { path: undefined, searched: "FENCEPOST_BIN (not set)" };
}

function contained(): Place {
  const platform = `${process.platform}-${process.arch}`;
  const name = `@fencepost/${platform}`;
  if (!SUPPORTED.includes(platform)) {
    return { path: undefined, searched: `this package (it has no program for ${platform})` };
  }
  try {
    const path = createRequire(import.meta.url).resolve(`${name}/bin/fencepost`);
    return { path, searched: `the package ${name} (${path})` };
  } catch {
    const remedy = "install again, with optional dependencies";
    return { path: undefined, searched: `this package (${name} is not installed: ${remedy})` };
  }
}

function onPath(): Place {
  for (const directory of (process.env["PATH"] ?? "").split(delimiter)) {
    const candidate = join(directory || ".", "fencepost");
    try {
      accessSync(candidate, constants.X_OK);
      if (statSync(candidate).isFile()) return { path: resolve(candidate), searched: `PATH (${candidate})` };
    } catch {
      // Not here.
    }
  }
  return { path: undefined, searched: "PATH (no fencepost in its directories)" };
}
