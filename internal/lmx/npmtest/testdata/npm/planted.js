'use strict';
// Clients that break the rules, each in its own way, among others that keep them: whoever judges exclusion must see it.

const { Exclusion, run, rounds, tick } = require('./harness');

const LOCK = { rounds: 40, clients: 3 };
const RW = { rounds: 12, clients: 3 };

// seen expects a checker over several processes to find that two met.
const seen = (role, plant, args) => async (c) => {
  const met = await rounds(c, role, 3, { key: c.key(), plant, ...args });
  c.ok('somebody met somebody', met.broken.length > 0);
};

run({
  'all ask for max 2': seen('lock', 'max', LOCK),
  'one locks another key': seen('lock', 'key', LOCK),
  'one unlocks before it leaves': seen('lock', 'early', LOCK),
  'one forces its way in': seen('lock', 'force', LOCK),

  'a writer that asks to read': seen('rw', 'reads', RW),
  'a reader that asks nobody': seen('rw', 'asks nobody', RW),
  'a writer that ends before it leaves': seen('rw', 'early', RW),

  'one process that holds two at once': async (c) => {
    const client = await c.client();
    const inside = new Exclusion(1);
    await Promise.all([0, 1].map(async (i) => {
      const lock = await client.acquire(c.key(i));
      inside.enter();
      await c.until('both to be in', () => inside.inside === 2 || inside.most === 2);
      await tick();
      inside.leave();
      await client.run(lock);
    }));
    c.equal('times that two were in', inside.broken, 1);
    c.equal('the most at once', inside.most, 2);
  },
});
