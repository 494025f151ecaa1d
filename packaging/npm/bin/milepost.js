#!/usr/bin/env node
// Runs the program of this platform. Standard input and output are the program's own: not a byte of the
// protocol passes through here.
'use strict';

const { spawn } = require('node:child_process');
const { constants } = require('node:os');

function program() {
  if (process.env.MILEPOST_BINARY) return process.env.MILEPOST_BINARY;
  const name = `milepost-${process.platform}-${process.arch}`;
  try {
    return require.resolve(`${name}/bin/milepost${process.platform === 'win32' ? '.exe' : ''}`);
  } catch {
    console.error(
      `milepost: the package ${name} is not installed. There may be none for this platform, or optional ` +
        'dependencies were left out; MILEPOST_BINARY=/path/to/milepost names a program that was built otherwise'
    );
    process.exit(127);
  }
}

const child = spawn(program(), process.argv.slice(2), { stdio: 'inherit' });

// A terminal sends its signals to the program too; what one process is sent is passed on.
const fromTerminal = ['SIGINT', 'SIGQUIT'];
for (const signal of ['SIGTERM', 'SIGHUP', 'SIGUSR1', 'SIGUSR2', ...fromTerminal]) {
  process.on(signal, () => {
    if (!(process.stdin.isTTY && fromTerminal.includes(signal))) child.kill(signal);
  });
}

child.on('error', (error) => {
  console.error(`milepost: ${error.message}`);
  process.exit(127);
});

child.on('exit', (code, signal) => {
  // As a shell says it: 128 and the signal's number.
  process.exit(signal ? 128 + (constants.signals[signal] ?? 0) : code);
});
