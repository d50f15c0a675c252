// The packages: packed as for a release, installed in a clean directory, and used.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { BINARY, REPOSITORY, Sandbox } from "./support.js";

function call(program: string, words: string[], cwd: string): void {
  const { status, stdout, stderr, error } = spawnSync(program, words, { cwd, encoding: "utf8" });
  assert.equal(status, 0, `${program} ${words.join(" ")}: ${error?.message ?? ""}\n${stdout}\n${stderr}`);
}

test("the packages install and work", { timeout: 300_000 }, () => {
  using sandbox = new Sandbox();
  const manifest = JSON.parse(readFileSync(join(REPOSITORY, "sdk/typescript/package.json"), "utf8")) as {
    version: string;
  };
  const machine = process.arch === "arm64" ? "aarch64" : "x86_64";
  const name = `fencepost-${manifest.version}-${machine}-unknown-linux-musl`;
  // An archive as tools/release makes it, as far as the npm packages take from it.
  const content = sandbox.path(name);
  mkdirSync(content);
  call("strip", ["-o", join(content, "fencepost"), BINARY], REPOSITORY);
  for (const licence of ["LICENSE-MIT", "LICENSE-APACHE"])
    copyFileSync(join(REPOSITORY, licence), join(content, licence));
  writeFileSync(join(content, "THIRD-PARTY-LICENCES.txt"), "");
  const dist = sandbox.path("dist");
  mkdirSync(dist);
  call("tar", ["-c", "-f", join(dist, `${name}.tar`), "-C", sandbox.directory, name], REPOSITORY);
  call("gzip", ["-1", join(dist, `${name}.tar`)], REPOSITORY);
  call(join(REPOSITORY, "tools/package"), ["--dist", dist, "--only", "npm"], REPOSITORY);
  const tests = ["Npm.test_install", "Npm.test_sdk"];
  call(join(REPOSITORY, "tools/test-release"), ["--dist", dist, ...tests], REPOSITORY);
});
