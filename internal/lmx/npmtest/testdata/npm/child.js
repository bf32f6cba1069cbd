'use strict';
// A process that a case starts beside its own: to be killed, or to compete. It ends with its parent.

const { connect, lmx, pause, tick } = require('./harness');
const { Witness } = require('./witness');

const [role, text] = process.argv.slice(2);
const args = JSON.parse(text);
const seen = { errors: [], warnings: [] };

function say(what, more = {}) {
  return new Promise((resolve) => process.send({ what, ...more }, resolve));
}

// fraction makes the same numbers for the same seed (mulberry32).
function fraction(seed) {
  let a = seed;
  return () => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const roles = {
  // hold takes keys and keeps them; it ends as it is told. The options of a lock are for keys, not for plain ones.
  async hold({ keys, plain = [], client = {}, lock = {} }) {
    const c = await connect(client, lmx.Client, seen);
    for (const key of keys) await c.acquire(key, { ...lock });
    for (const key of plain) await c.acquire(key, { ttl: 600000 });
    process.on('message', ({ what }) => {
      if (what === 'exit') process.exit(0);
      c.setNoRecover();
      if (what === 'end') c.endCurrentConnection();
    });
    await say('held');
  },

  // wait stands in the queue of a key.
  async wait({ key }) {
    const c = await connect({}, lmx.Client, seen);
    c.lock(key, { maxRetries: 20 }, () => say('granted'));
    await say('asked');
  },

  // busy waits for a key, and on being told to does nothing else for a while: nothing of this process runs.
  async busy({ key, ms }) {
    const c = await connect({}, lmx.Client, seen);
    const done = new Promise((resolve) => process.on('message', async ({ what }) => {
      if (what === 'unlock') resolve();
      if (what !== 'be busy') return;
      await say('busy');
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
    }));
    const lock = await c.acquire(key, { ttl: 600000, maxRetries: 20 });
    await say('granted');
    await done;
    await c.run(lock);
  },

  // lock goes in and out of one key. The first of several may be told to break a rule.
  async lock({ key, rounds, clients, dir, first, plant }) {
    const witness = new Witness(dir);
    const breaks = (rule) => first && plant === rule;
    const all = [];
    for (let i = 0; i < clients; i++) all.push(await connect({}, lmx.Client, seen));
    await Promise.all(all.map(async (c, i) => {
      const name = `${process.pid}.${i}`;
      for (let n = 0; n < rounds; n++) {
        if (breaks('force')) await c.release(key, true);
        const options = plant === 'max' ? { maxRetries: 20, max: 2 } : { maxRetries: 20 };
        const lock = await c.acquire(breaks('key') ? `${key}, another` : key, options);
        if (breaks('early')) await c.run(lock);
        witness.enter('writer', name);
        await tick();
        witness.leave('writer', name);
        if (!breaks('early')) await c.run(lock);
      }
    }));
    await say('done', { ...witness, errors: seen.errors });
  },

  // rwhold begins to read or to write and does not end.
  async rwhold({ key, kind }) {
    const c = await connect({}, lmx.RWLockWritePrefClient, seen);
    await (kind === 'reader' ? c.beginReadp(key) : c.beginWritep(key));
    await say('held');
  },

  // rw reads and writes by turns that the seed tells. The first of several may be told to break a rule.
  async rw({ key, rounds, clients, dir, seed, first, plant }) {
    const random = fraction(seed);
    const witness = new Witness(dir);
    const breaks = (rule, kind) => first && plant === rule && kind === (rule === 'asks nobody' ? 'reader' : 'writer');
    const all = [];
    for (let i = 0; i < clients; i++) all.push(await connect({}, lmx.RWLockWritePrefClient, seen));
    await Promise.all(all.map(async (c, i) => {
      const name = `${process.pid}.${i}`;
      const begin = (kind) => (kind === 'reader' ? c.beginReadp(key) : c.beginWritep(key));
      const end = (kind) => (kind === 'reader' ? c.endReadp(key) : c.endWritep(key));
      for (let n = 0; n < rounds; n++) {
        const kind = random() < 0.7 ? 'reader' : 'writer';
        const asks = breaks('reads', kind) ? 'reader' : kind;
        const silent = breaks('asks nobody', kind);
        if (!silent) await begin(asks);
        if (breaks('early', kind)) await end(asks);
        witness.enter(kind, name);
        await pause(random() * 4);
        witness.leave(kind, name);
        if (!silent && !breaks('early', kind)) await end(asks);
      }
    }));
    await say('done', { ...witness, errors: seen.errors });
  },
};

process.on('disconnect', () => process.exit(0));
roles[role](args).catch((err) => {
  console.error(`child ${role}:`, err);
  process.exit(1);
});
