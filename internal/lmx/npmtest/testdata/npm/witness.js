'use strict';
// A Witness sees whether processes keep each other out: whoever is inside has a file in a folder that all of them use.
// Everyone makes a file first and looks second, so of two that meet at least one sees the other.

const fs = require('fs');
const path = require('path');

class Witness {
  constructor(dir) {
    this.dir = dir;
    this.broken = [];
    this.readers = 0; // the most that read at once
    this.rounds = 0;
  }

  // enter says whether somebody was met who should not have been there.
  enter(kind, name) {
    const mine = `${kind}-${name}`;
    fs.writeFileSync(path.join(this.dir, mine), '', { flag: 'wx' });
    const others = fs.readdirSync(this.dir).filter((file) => file !== mine);
    const reading = others.filter((file) => file.startsWith('reader-')).length;
    if (kind === 'reader') this.readers = Math.max(this.readers, reading + 1);
    const met = kind === 'reader' ? others.filter((file) => file.startsWith('writer-')) : others;
    if (met.length > 0) this.broken.push(`${mine} met ${met.join(', ')}`);
    this.rounds++;
  }

  leave(kind, name) {
    fs.unlinkSync(path.join(this.dir, `${kind}-${name}`));
  }
}

module.exports = { Witness };
