'use strict';
// Connections and processes that end, each in its own way; what they held is free, and only that.

const { held, info, lmx, run, waiting } = require('./harness');

const LONG = 600000;

// freed ends a holder and expects its key to come free while that of somebody else stays held.
async function freed(c, hold, end) {
  const [bystander, next] = await c.several(2);
  await bystander.acquire(c.key('of the bystander'), { ttl: LONG });
  await hold(c.key());
  c.ok('held before', await held(next, c.key()));
  await end();
  await c.within('the key to come free', next.acquire(c.key(), { ttl: LONG, maxRetries: 20 }));
  c.ok('the bystander still holds', await held(next, c.key('of the bystander')));
  const holders = (await info(next, c.key('of the bystander'))).lockholderUUIDs;
  c.equal('holders of its key', holders.length, 1);
}

// comesBack cuts a client off; its holds are gone, what it waited for fails, and it connects again by itself.
async function comesBack(c, cut) {
  const [client, other] = await c.several(2);
  await client.acquire(c.key('held'), { ttl: LONG });
  await other.acquire(c.key('waited for'), { ttl: LONG });
  const waits = client.acquire(c.key('waited for'), { ttl: LONG });
  await c.until('it to wait', async () => (await waiting(other, c.key('waited for'))) === 1);
  cut(client);
  await c.refused('what was waited for fails', waits);
  await c.within('the old hold to be gone', other.acquire(c.key('held'), { ttl: LONG, maxRetries: 20 }));
  await c.until('it to lock again', async () => {
    try {
      await client.run(await client.acquire(c.key('after'), { lockRequestTimeout: 300 }));
      return true;
    } catch (err) {
      return false;
    }
  });
  c.equal('nobody waits for it', await waiting(other, c.key('waited for')), 0);
}

// kept has a child take a lock that outlives it, and then the next process fail at it until it is forced. A plain lock of
// the child tells when the broker has seen the end, which may be later than its parent does. With an option of the whole
// client no lock is plain.
async function kept(c, client, lock) {
  const plain = Object.keys(client).length ? [] : [c.key('plain')];
  const child = c.child('hold', { keys: [c.key()], plain, client, lock });
  await child.hears('held');
  const [a, b] = await c.several(2);
  const seen = plain.map((key) => b.acquire(key, { maxRetries: 20 }));
  child.tell('exit');
  await c.within('the child to end', child.gone);
  await c.within('the broker to see that', Promise.all(seen));
  c.ok('held after its holder', await held(a, c.key()));
  await a.release(c.key(), { force: true });
  await b.run(await c.within('the key after the force', b.acquire(c.key())));
}

run({
  'client.close frees its keys alone': async (c) => {
    const client = await c.client();
    await freed(c, (key) => client.acquire(key, { ttl: LONG }), () => client.close());
  },

  'an orderly end frees its keys alone': async (c) => {
    const client = await c.client();
    client.setNoRecover();
    await freed(c, (key) => client.acquire(key, { ttl: LONG }), () => client.endCurrentConnection());
  },

  'SIGKILL frees its keys alone': async (c) => {
    const child = c.child('hold', { keys: [c.key()], lock: { ttl: LONG } });
    await freed(c, () => child.hears('held'), () => child.kill());
  },

  'ttl null does not outlive its process': async (c) => {
    const child = c.child('hold', { keys: [c.key()], lock: { ttl: null } });
    await freed(c, () => child.hears('held'), () => child.kill());
  },

  'the exit of a process frees its keys alone': async (c) => {
    const child = c.child('hold', { keys: [c.key()], lock: { ttl: LONG } });
    await freed(c, () => child.hears('held'), () => child.tell('exit'));
  },

  'an end by the broker frees its keys alone': async (c) => {
    const client = await c.client();
    await freed(c, (key) => client.acquire(key, { ttl: LONG }), () => client._invokeBrokerSideEndCall());
  },

  'a destruction by the broker frees its keys alone': async (c) => {
    const client = await c.client();
    await freed(c, (key) => client.acquire(key, { ttl: LONG }), () => client._invokeBrokerSideDestroyCall());
  },

  'a killed waiter leaves the queue': async (c) => {
    const [a, b] = await c.several(2);
    const holder = await a.acquire(c.key(), { ttl: LONG });
    const child = c.child('wait', { key: c.key() });
    await c.until('the child to wait', async () => (await waiting(a, c.key())) === 1);
    const next = b.acquire(c.key(), { ttl: LONG, maxRetries: 20 });
    await c.until('another behind it', async () => (await waiting(a, c.key())) === 2);
    child.kill();
    await c.until('the child to leave the queue', async () => (await waiting(a, c.key())) === 1);
    const start = performance.now();
    await a.run(holder);
    await c.within('the next one to get the key', next);
    c.ok('at once', performance.now() - start < 4000);
  },

  'a client connects again after its own end': (c) => comesBack(c, (client) => client.createNewConnection()),

  'a client connects again after an orderly end': (c) => comesBack(c, (client) => client.endCurrentConnection()),

  'a client connects again after an end by the broker': (c) => comesBack(c, (client) => client._invokeBrokerSideEndCall()),

  'a client connects again after its destruction by the broker':
    (c) => comesBack(c, (client) => client._invokeBrokerSideDestroyCall()),

  'a version mismatch': async (c) => {
    c.mayEmitErrors = true;
    const [client, other] = await c.several(2);
    await client.acquire(c.key(), { ttl: LONG });
    const mismatch = new Promise((resolve) => client.emitter.once('error', resolve));
    client._simulateVersionMismatch();
    const frame = await c.within('the mismatch', mismatch);
    c.equal('type', frame.type, 'version-mismatch');
    c.equal('version of the client', frame.versions.clientVersion, '0.0.1');
    c.ok('version of the broker', /^0\.2\.\d+$/.test(frame.versions.brokerVersion));
    await c.within('its hold to be gone', other.acquire(c.key(), { ttl: LONG, maxRetries: 20 }));
    const err = await c.refused('no lock from then on', client.acquire(c.key('another')));
    c.ok(`code ${err.code}`, ['cannot_continue', 'connection_is_recovering'].includes(err.code));
  },

  'keepLocksAfterDeath with a lock': (c) => kept(c, {}, { ttl: null, keepLocksAfterDeath: true }),

  'keepLocksOnExit with a lock': (c) => kept(c, {}, { ttl: null, keepLocksOnExit: true }),

  'keepLocksAfterDeath with a client': (c) => kept(c, { keepLocksAfterDeath: true }, { ttl: null }),

  'a kept lock ends with its ttl': async (c) => {
    const child = c.child('hold', { keys: [c.key()], plain: [c.key('plain')], lock: { ttl: 8000, keepLocksAfterDeath: true } });
    const a = await c.client();
    await child.hears('held');
    const seen = a.acquire(c.key('plain'), { maxRetries: 20 });
    child.kill();
    await c.within('the broker to see the end', seen);
    c.ok('held after its holder', await held(a, c.key()));
    await a.run(await c.within('the ttl to pass', a.acquire(c.key(), { maxRetries: 20 })));
  },

  'a writer that is killed lets readers in': async (c) => {
    const child = c.child('rwhold', { key: c.key(), kind: 'writer' });
    await child.hears('held');
    const reader = await c.client({}, lmx.RWLockWritePrefClient);
    const reading = reader.beginReadp(c.key());
    child.kill();
    await c.within('a reader after the writer', reading);
    await reader.endReadp(c.key());
  },

  'readers that are killed let a writer in': async (c) => {
    const children = [1, 2].map(() => c.child('rwhold', { key: c.key(), kind: 'reader' }));
    for (const child of children) await child.hears('held');
    const writer = await c.client({}, lmx.RWLockWritePrefClient);
    let writes = false;
    const writing = writer.beginWritep(c.key()).then(() => { writes = true; });
    await writer.run(await writer.acquire(c.key('a round trip')));
    children[0].kill();
    await children[0].gone;
    await writer.run(await writer.acquire(c.key('a round trip')));
    c.ok('no writer beside a reader', !writes);
    children[1].kill();
    await c.within('the writer', writing);
    await writer.endWritep(c.key());
  },
});
