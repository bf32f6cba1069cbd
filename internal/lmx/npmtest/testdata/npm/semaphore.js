'use strict';
// Locks that several may hold at once.

const { Exclusion, held, run, tick, waiting } = require('./harness');

const LONG = 600000;

run({
  'max 3 lets three in and never a fourth': async (c) => {
    const clients = await c.several(12);
    const inside = new Exclusion(3);
    let together = false; // the first three stay until all of them are there
    await c.within('everybody to have been in', Promise.all(clients.map(async (client) => {
      for (let round = 0; round < 5; round++) {
        const lock = await client.acquire(c.key(), { max: 3, ttl: LONG, maxRetries: 20 });
        inside.enter();
        together = together || inside.inside === 3;
        await c.until('three to be in', () => together);
        await tick();
        inside.leave();
        await client.run(lock);
      }
    })));
    c.equal('times that a fourth was in', inside.broken, 0);
    c.equal('the most at once', inside.most, 3);
  },

  'one client may hold a key several times': async (c) => {
    const client = await c.client();
    const locks = [];
    for (let i = 0; i < 4; i++) locks.push(await client.acquire(c.key(), { max: 4, ttl: LONG }));
    const fifth = client.acquire(c.key(), { max: 4, ttl: LONG });
    await c.until('the fifth to wait', async () => (await waiting(client, c.key())) === 1);
    await client.run(locks[2]);
    await c.within('the fifth to get in', fifth);
    const sixth = await c.refused('the sixth', client.acquire(c.key(), { max: 4, ttl: LONG, lockRequestTimeout: 60, maxRetries: 1 }));
    c.equal('code', sixth.code, 'request_timeout');
  },

  'one expiry ends one hold': async (c) => {
    const [a, b, d, e, f] = await c.several(5);
    await a.acquire(c.key(), { max: 3, ttl: 300 });
    const second = await b.acquire(c.key(), { max: 3, ttl: LONG });
    await d.acquire(c.key(), { max: 3, ttl: LONG });
    const granted = [];
    const asks = (name, client) => client.acquire(c.key(), { max: 3, ttl: LONG, maxRetries: 20 }).then(() => granted.push(name));
    const fourth = asks('fourth', e);
    await c.until('the fourth to wait', async () => granted.length > 0 || (await waiting(b, c.key())) === 1);
    const fifth = asks('fifth', f);
    await c.within('the ttl to pass', fourth);
    await c.until('the fifth to wait', async () => granted.length > 1 || (await waiting(b, c.key())) === 1);
    await waiting(f, c.key()); // by the way that a grant would come
    c.equal('who got in', granted, ['fourth']);
    await b.run(second);
    await c.within('the fifth to get in', fifth);
  },

  'a later grant does not shorten or lengthen an earlier one': async (c) => {
    const [a, b, d] = await c.several(3);
    const start = performance.now();
    await a.acquire(c.key(), { max: 2, ttl: 400 });
    await b.acquire(c.key(), { max: 2, ttl: LONG });
    await c.within('the first ttl to pass', d.acquire(c.key(), { max: 2, ttl: LONG, maxRetries: 20 }));
    c.ok('not before', performance.now() - start >= 400);
    c.ok('not long after', performance.now() - start < 10000);
    const err = await c.refused('two are in', a.acquire(c.key(), { max: 2, lockRequestTimeout: 60, maxRetries: 1 }));
    c.equal('code', err.code, 'request_timeout');
  },

  'different max on one key': async (c) => {
    const [a, b, d, e] = await c.several(4);
    const first = await a.acquire(c.key(), { max: 3, ttl: LONG });
    let [alone, third] = [null, null];
    const one = b.acquire(c.key(), { max: 1, ttl: LONG, maxRetries: 20 }).then((lock) => { alone = lock; });
    await c.until('max 1 to wait for the holder', async () => (await waiting(e, c.key())) === 1);
    const behind = d.acquire(c.key(), { max: 3, ttl: LONG, maxRetries: 20 }).then((lock) => { third = lock; });
    await c.until('max 3 to wait behind it', async () => third || (await waiting(e, c.key())) === 2);
    c.ok('nobody overtakes', !third && !alone);
    await a.run(first);
    await c.within('max 1 to get in', one);
    await waiting(e, c.key());
    c.ok('alone', !third);
    await b.run(alone);
    await c.within('max 3 to get in', behind);
    await e.run(await c.within('a second of max 3', e.acquire(c.key(), { max: 3 })));
  },

  'a max sticks to no idle key': async (c) => {
    const [a, b] = await c.several(2);
    await a.run(await a.acquire(c.key(), { max: 5, ttl: LONG }));
    await a.acquire(c.key(), { ttl: LONG });
    c.ok('an ordinary lock is alone', await held(b, c.key()));
  },

  'a max above what any broker counts to is taken': async (c) => {
    const client = await c.client();
    const locks = await Promise.all([1, 2].map(() => client.acquire(c.key(), { max: 1000000, ttl: LONG })));
    for (const lock of locks) await client.run(lock);
  },
});
