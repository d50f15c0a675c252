"use strict";
// Finds the program.
const fs = require("fs");
const path = require("path");

const SUPPORTED = ["linux-x64", "linux-arm64", "darwin-x64", "darwin-arm64"];

/** The program in the package for this platform, or undefined. */
function contained() {
  const platform = `${process.platform}-${process.arch}`;
  if (!SUPPORTED.includes(platform)) return undefined;
  try {
    return require.resolve(`@fencepost/${platform}/bin/fencepost`);
  } catch {
    return undefined;
  }
}

function missing() {
  const platform = `${process.platform}-${process.arch}`;
  const why = SUPPORTED.includes(platform)
    ? `the package @fencepost/${platform} is not installed. Install again, with optional dependencies (without --omit=optional)`
    : `there is no program for ${platform}. Build it from source and name it by FENCEPOST_BIN`;
  return new Error(`fencepost: ${why}. Supported: ${SUPPORTED.join(", ")}.`);
}

function onPath() {
  for (const directory of (process.env.PATH || "").split(path.delimiter)) {
    const candidate = path.join(directory || ".", "fencepost");
    try {
      fs.accessSync(candidate, fs.constants.X_OK);
      if (fs.statSync(candidate).isFile()) return path.resolve(candidate);
    } catch {
      // Not here.
    }
  }
  return undefined;
}

/** The program that the command `fencepost` of this package runs. Not from PATH: that may be the command itself. */
function ownPath() {
  const found = process.env.FENCEPOST_BIN || contained();
  if (!found) throw missing();
  return found;
}

/** The path of the program: FENCEPOST_BIN, the one in the package for this platform, or the one on PATH. */
function binaryPath() {
  const found = process.env.FENCEPOST_BIN || contained() || onPath();
  if (!found) throw missing();
  return found;
}

module.exports = { binaryPath, ownPath, version: require("../package.json").version };
