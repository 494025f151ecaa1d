#!/usr/bin/env node
// Makes the package of one platform, which holds the program and nothing else:
//
//   node packaging/npm/platform.js linux x64 target/x86_64-unknown-linux-musl/dist/milepost FOLDER
'use strict';

const fs = require('node:fs');
const path = require('node:path');

const [os, cpu, binary, folder] = process.argv.slice(2);
if (!folder) {
  console.error('usage: platform.js OS CPU BINARY FOLDER');
  process.exit(2);
}
const main = require('./package.json');
const name = `${main.name}-${os}-${cpu}`;
if (!(name in main.optionalDependencies)) {
  console.error(`${name} is no optional dependency of ${main.name}`);
  process.exit(2);
}
const out = path.join(folder, name);
fs.mkdirSync(path.join(out, 'bin'), { recursive: true });
const program = path.join(out, 'bin', os === 'win32' ? 'milepost.exe' : 'milepost');
fs.copyFileSync(binary, program);
fs.chmodSync(program, 0o755);
const { version, description, license } = main;
const about = { name, version, description, license, os: [os], cpu: [cpu], files: ['bin'] };
fs.writeFileSync(path.join(out, 'package.json'), JSON.stringify(about, null, 2) + '\n');
console.log(out);
