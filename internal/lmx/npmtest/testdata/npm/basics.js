'use strict';
// What every user of the package does: take and give back, with promises and with callbacks, ask who holds what.

const { host, info, held, lmx, port, run, unix, waiting } = require('./harness');

const LONG = 600000; // a ttl that no case outlives

// called turns a function that takes a callback into a promise.
const called = (fn) => new Promise((resolve, reject) => fn((err, value) => (err ? reject(err) : resolve(value))));

function list(client) {
  return called((cb) => client.ls(cb)).then((answer) => answer.ls_result);
}

// everyKey locks keys that are hard to carry, all held at once, and looks them up.
async function everyKey(c, client, other) {
  const keys = ['ключ', '日本語のキー', 'clé 🔑🔒', '\u0000\t\n\r"\\/', '\u2028\u2029', '{"type":"unlock"}', ' ', 'null', '0', '__proto__',
    'constructor', 'x'.repeat(400)].map((part) => c.key(part));
  keys.push('__proto__', '日'.repeat(150));
  const locks = await c.within('every key', Promise.all(keys.map((key) => client.acquire(key, { ttl: LONG }))));
  await Promise.all(keys.map(async (key, i) => {
    c.equal('key of a lock', locks[i].key, key);
    c.ok(`${JSON.stringify(key)} keeps others out`, await held(other, key));
  }));
  for (const lock of locks) await client.run(lock);
}

run({
  'promises': async (c) => {
    const client = await c.client();
    const lock = await client.acquire(c.key());
    c.ok('acquired', lock.acquired === true);
    c.equal('key', lock.key, c.key());
    c.ok('an id', typeof lock.id === 'string' && lock.id === lock.lockUuid);
    const done = await client.release(c.key(), lock.id);
    c.ok('unlocked', done.unlocked === true);
    c.equal('key of the answer', done.key, c.key());
  },

  'callbacks': async (c) => {
    const client = await c.client();
    const unlock = await called((cb) => client.lock(c.key(), cb));
    c.ok('acquired', unlock.acquired);
    const done = await called((cb) => unlock(cb));
    c.ok('unlocked', done.unlocked);
    const again = await called((cb) => client.lock(c.key(), { ttl: 2000 }, cb));
    await called((cb) => client.unlock(c.key(), { id: again.id }, cb));
  },

  'callbacks of connecting': async (c) => {
    const client = await called((cb) => new lmx.Client({ host, port }, cb));
    c.clients.push(client);
    await called((cb) => client.ensure(cb));
    await called((cb) => client.connect(cb));
    await client.run(await client.acquire(c.key()));
  },

  'every name of the client': async (c) => {
    for (const Class of [lmx.Client, lmx.LMXClient, lmx.LvMtxClient, lmx.RWLockWritePrefClient]) {
      const client = await c.client({}, Class);
      await called((cb) => client.lock(c.key(), (err, unlock) => (err ? cb(err) : unlock(cb))));
    }
    const created = lmx.Client.create({ host, port });
    c.clients.push(created);
    await created.ensure();
    for (const [take, give] of [['acquire', 'release'], ['acquireLock', 'releaseLock'], ['lockp', 'unlockp']]) {
      const lock = await created[take](c.key());
      await created[give](c.key(), lock.id);
    }
  },

  'every way to unlock': async (c) => {
    const [client, other] = await c.several(2);
    const ways = {
      'the grant, with a callback': (lock) => called((cb) => lock(cb)),
      'lock.unlock': (lock) => called((cb) => lock.unlock(cb)),
      'lock.release': (lock) => called((cb) => lock.release(cb)),
      'client.run': (lock) => client.run(lock),
      'client.runUnlock': (lock) => client.runUnlock(lock),
      'client.execUnlock': (lock) => client.execUnlock(lock.unlock),
      'client.unlock with the id': (lock) => called((cb) => client.unlock(c.key(), lock.id, cb)),
      'client.unlock with options': (lock) => called((cb) => client.unlock(c.key(), { _uuid: lock.id }, cb)),
      'client.release with options': (lock) => client.release(c.key(), { id: lock.lockUuid }),
      'client.release by force': () => client.release(c.key(), true),
      'a client that does not hold it': (lock) => other.release(c.key(), lock.id),
    };
    for (const [what, way] of Object.entries(ways)) {
      const lock = await client.acquire(c.key(), { ttl: LONG });
      c.ok(`${what} answers`, (await c.within(what, way(lock))).unlocked === true);
      await c.free(other, c.key());
    }
  },

  'two clients keep each other out': async (c) => {
    const [a, b] = await c.several(2);
    const lock = await a.acquire(c.key(), { ttl: LONG });
    c.ok('held', await held(b, c.key()));
    c.ok('held for the same client too', await held(a, c.key()));
    await a.run(lock);
    await c.free(b, c.key());
  },

  'a wrong id is refused': async (c) => {
    c.mayEmitErrors = true;
    const [a, b] = await c.several(2);
    await a.acquire(c.key(), { ttl: LONG });
    const err = await c.refused('a wrong id', b.release(c.key(), 'not-the-id'));
    c.equal('code', err.code, 'internal_error');
    c.ok(`text: ${err.message}`, /correct uuid/.test(err.message));
    c.ok('still held', await held(b, c.key()));
  },

  'no id is refused': async (c) => {
    c.mayEmitErrors = true;
    const [a, b] = await c.several(2);
    await a.acquire(c.key(), { ttl: LONG });
    await c.refused('no id, another client', called((cb) => b.unlock(c.key(), cb)));
    await c.refused('no id, the holder', called((cb) => a.unlock(c.key(), cb)));
    c.ok('still held', await held(b, c.key()));
  },

  'an unknown key unlocks with a warning': async (c) => {
    const client = await c.client();
    const done = await client.release(c.key('never locked'), 'not-the-id');
    c.ok('unlocked', done.unlocked);
    c.ok('a warning', c.seen.warnings.some((w) => w.startsWith('no lock with key')));
  },

  'force frees': async (c) => {
    const [a, b, d] = await c.several(3);
    const old = await a.acquire(c.key(), { ttl: LONG });
    const next = b.acquire(c.key(), { ttl: LONG });
    await c.until('the waiter to be seen', async () => (await waiting(d, c.key())) === 1);
    c.ok('unlocked', (await d.release(c.key(), { force: true })).unlocked);
    await c.within('the waiter to get the key', next);
    c.ok('the late unlock is answered', (await a.run(old)).unlocked);
    c.ok('and harms nobody', await held(d, c.key()));
  },

  'force with a foreign id is refused': async (c) => {
    c.mayEmitErrors = true;
    const [a, b] = await c.several(2);
    await a.acquire(c.key(), { ttl: LONG });
    await c.refused('force with an id that holds nothing', b.release(c.key(), { force: true, _uuid: 'not-the-id' }));
    c.ok('still held', await held(b, c.key()));
  },

  'lock info is true': async (c) => {
    const [a, b] = await c.several(2);
    const free = await info(b, c.key());
    c.ok('free', free.isLocked === false);
    c.equal('no holders', free.lockholderUUIDs, []);
    const one = await a.acquire(c.key(), { ttl: LONG, max: 2 });
    const two = await b.acquire(c.key(), { ttl: LONG, max: 2 });
    const third = a.acquire(c.key(), { ttl: LONG, max: 2 });
    await c.until('the third to wait', async () => (await waiting(b, c.key())) === 1);
    const full = await info(b, c.key());
    c.ok('locked', full.isLocked === true);
    c.equal('holders', full.lockholderUUIDs.slice().sort(), [one.id, two.id].sort());
    await a.run(one);
    const rest = await third;
    await Promise.all([a.run(rest), b.run(two)]);
    const after = await info(b, c.key());
    c.ok('free again', after.isLocked === false);
    c.equal('no holders again', after.lockholderUUIDs, []);
  },

  'ls is true': async (c) => {
    const client = await c.client();
    const mine = (keys) => keys.filter((key) => key.startsWith(c.key(''))).sort();
    c.equal('before', mine(await list(client)), []);
    const locks = [];
    for (const part of ['b', 'a', 'c']) locks.push(await client.acquire(c.key(part), { ttl: LONG }));
    c.equal('held', mine(await list(client)), ['a', 'b', 'c'].map((part) => c.key(part)));
    await client.run(locks[0]);
    c.equal('after an unlock', mine(await list(client)), ['a', 'c'].map((part) => c.key(part)));
  },

  'odd keys': async (c) => everyKey(c, await c.client(), await c.client()),

  'a unix socket': async (c) => {
    c.ok('a path is given', unix !== '');
    const [a, b] = await c.several(2, { udsPath: unix });
    const lock = await a.acquire(c.key(), { ttl: LONG });
    c.ok('held', await held(b, c.key()));
    const next = b.acquire(c.key());
    await c.until('the waiter', async () => (await waiting(a, c.key())) === 1);
    await a.run(lock);
    await b.run(await next);
  },

  'the same keys over both sockets': async (c) => {
    const a = await c.client({ udsPath: unix });
    const b = await c.client();
    const lock = await a.acquire(c.key(), { ttl: LONG });
    c.ok('held', await held(b, c.key()));
    await a.run(lock);
    await c.free(b, c.key());
  },

  'a broker is found to be there': async (c) => {
    const found = await lmx.lmUtils.launchBrokerInChildProcessp({ host, port });
    c.ok('already running', found.alreadyRunning === true);
    c.equal('conditionally', await lmx.lmUtils.conditionallyLaunchSocketServerp({ host, port }), 'available');
    c.equal('by its other name', await lmx.lmUtils.launchSocketServerp({ host, port }), 'available');
    const client = await c.client();
    await client.run(await client.acquire(c.key()));
  },
});
