#!/usr/bin/env node
// Starts the program from the package for this platform, in this process's place as far as
// node allows: with its input, output and exit code.
"use strict";
const { spawn } = require("node:child_process");

const platform = process.platform === "darwin" ? "darwin" : `${process.platform}-${process.arch}`;
const file = process.platform === "win32" ? "colab-relay.exe" : "colab-relay";
let program;
try {
  program = require.resolve(`@PACKAGE@-${platform}/bin/${file}`);
} catch {
  console.error(`colab-relay: the package @PACKAGE@-${platform} is not installed: there is none for this platform, or npm was told to omit optional packages`);
  process.exit(69);
}
const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
child.on("error", (error) => {
  console.error(`colab-relay: start ${program}: ${error.message}`);
  process.exit(69);
});
// A terminal sends Ctrl-C to both processes. The program decides what it means.
process.on("SIGINT", () => {});
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("exit", (code, signal) => {
  if (!signal) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
