'use strict';
const { spawn } = require('child_process');
const fs = require('fs');
const path = require('path');
console.log('Starting pool dev server');
const once = path.join(process.env.STATE || __dirname, 'crash-once');
const child = spawn(process.execPath, [path.join(__dirname, 'worker.js')], { stdio: 'inherit', detached: true });
child.on('exit', (code) => process.exit(code || 1));
if (fs.existsSync(once)) setTimeout(() => { fs.unlinkSync(once); throw new Error('the parent crashed, and its child goes on'); }, 800);
