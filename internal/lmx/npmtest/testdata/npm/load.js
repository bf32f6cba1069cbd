'use strict';
// Many requests at once, from one process and from several.

const { Exclusion, rounds, run, tick, waiting } = require('./harness');

// many takes and gives back every one of the keys from clients by turns, all at once.
async function many(c, clients, keys) {
  const inside = new Map();
  await c.within(`${keys.length} locks`, Promise.all(keys.map(async (key, i) => {
    const client = clients[i % clients.length];
    const lock = await client.acquire(key, { maxRetries: 20, ttl: 600000 });
    if (!inside.has(key)) inside.set(key, new Exclusion(1));
    const here = inside.get(key);
    here.enter();
    await tick();
    here.leave();
    await client.run(lock);
  })));
  for (const [key, here] of inside) c.equal(`times that two held ${key}`, here.broken, 0);
  await c.within('every key to be free after all', Promise.all([...inside.keys()].map(async (key) => {
    c.equal(`requests that wait for ${key}`, await waiting(clients[0], key), 0);
    await clients[0].run(await clients[0].acquire(key, { lockRequestTimeout: 20000, maxRetries: 1 }));
  })));
}

run({
  '1000 at once on one key from one client': async (c) => many(c, [await c.client()], Array(1000).fill(c.key())),

  '1000 at once on one key from 10 clients': async (c) => many(c, await c.several(10), Array(1000).fill(c.key())),

  '1000 at once on 1000 keys': async (c) => many(c, await c.several(4), Array.from({ length: 1000 }, (_, i) => c.key(i))),

  '1000 at once on 50 keys': async (c) => many(c, await c.several(7), Array.from({ length: 1000 }, (_, i) => c.key(i % 50))),

  'processes keep each other out': async (c) => {
    const met = await rounds(c, 'lock', 3, { key: c.key(), rounds: 60, clients: 3 });
    c.equal('meetings', met.broken, []);
    c.equal('rounds', met.rounds, 3 * 3 * 60);
  },
});
