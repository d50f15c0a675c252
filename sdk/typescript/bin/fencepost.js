#!/usr/bin/env node
// Runs the program with this process's arguments and streams. Signals and the exit status pass through.
import { spawn } from "node:child_process";
import { constants } from "node:os";
import { isatty } from "node:tty";
import { ownPath } from "../dist/binary.js";

// What fencepost answers when it failed itself.
const FAILED = 125;

/** @param {unknown} error @returns {never} */
function fail(error) {
  console.error(error instanceof Error ? error.message : error);
  process.exit(FAILED);
}

function program() {
  try {
    return ownPath();
  } catch (error) {
    return fail(error);
  }
}

const path = program();

// On a terminal the kernel sends these to the whole process group, the program included: sent twice, the second one would
// end jobs at once.
const isOnTerminal = [0, 1, 2].some((fd) => isatty(fd));
/** @type {NodeJS.Signals[]} */
const fromTerminal = ["SIGINT", "SIGQUIT"];
/** @type {NodeJS.Signals[]} */
const passed = ["SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", ...fromTerminal];

/** @type {import("node:child_process").ChildProcess | undefined} */
let child;
/** @type {NodeJS.Signals[]} */
const early = [];
for (const signal of passed) {
  process.on(signal, () => {
    if (isOnTerminal && fromTerminal.includes(signal)) return;
    if (child) child.kill(signal);
    else early.push(signal);
  });
}
child = spawn(path, process.argv.slice(2), { stdio: "inherit" });
for (const signal of early) child.kill(signal);
child.on("error", (error) => fail(new Error(`fencepost: ${path} cannot be executed: ${error.message}`)));
child.on("exit", (code, signal) => {
  if (signal === null) process.exit(code ?? FAILED);
  // Ends by the same signal; where that is not possible, by the status that a shell would give.
  for (const name of passed) process.removeAllListeners(name);
  process.kill(process.pid, signal);
  setTimeout(() => process.exit(128 + constants.signals[signal]), 1000);
});
