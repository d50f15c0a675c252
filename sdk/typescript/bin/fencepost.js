#!/usr/bin/env node
"use strict";
// Runs the program with this process's arguments and streams. Signals and the exit status pass through.
const { spawn } = require("child_process");
const os = require("os");
const { ownPath } = require("../lib/binary.js");

// What fencepost answers when it failed itself.
const FAILED = 125;

let program;
try {
  program = ownPath();
} catch (error) {
  console.error(error.message);
  process.exit(FAILED);
}

// On a terminal the kernel sends these to the whole process group, the program included: sent twice, the second one would
// end jobs at once.
const isOnTerminal = [0, 1, 2].some((fd) => require("tty").isatty(fd));
const fromTerminal = ["SIGINT", "SIGQUIT"];
const passed = ["SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", ...fromTerminal];

let child;
const early = [];
for (const signal of passed) {
  process.on(signal, () => {
    if (isOnTerminal && fromTerminal.includes(signal)) return;
    if (child) child.kill(signal);
    else early.push(signal);
  });
}
child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
early.forEach((signal) => child.kill(signal));
child.on("error", (error) => {
  console.error(`fencepost: ${program} cannot be executed: ${error.message}`);
  process.exit(FAILED);
});
child.on("exit", (code, signal) => {
  if (signal === null) process.exit(code);
  // Ends by the same signal; where that is not possible, by the status that a shell would give.
  passed.forEach((name) => process.removeAllListeners(name));
  process.kill(process.pid, signal);
  setTimeout(() => process.exit(128 + os.constants.signals[signal]), 1000);
});
