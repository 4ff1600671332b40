#!/usr/bin/env node
// Starts the program for this platform, in this process's place as far as node allows: with
// its input, output and exit code.
"use strict";
const { spawn } = require("node:child_process");
const { program } = require("./fetch.js");

program().then(start, (error) => {
  console.error(`colab-relay: ${error.message}`);
  process.exit(69);
});

function start(file) {
  const child = spawn(file, process.argv.slice(2), { stdio: "inherit" });
  child.on("error", (error) => {
    console.error(`colab-relay: start ${file}: ${error.message}`);
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
}
