'use strict';
// Requests that do not get their lock at once: order, repeats, giving up, and locks that end by themselves.

const net = require('net');
const { host, held, pause, port, run, waiting } = require('./harness');

const LONG = 600000;

// queue makes clients wait for a key one after the other, each seen in the queue before the next one comes.
async function queue(c, key, clients, options, granted) {
  for (const [i, client] of clients.entries()) {
    client.acquire(key, { ttl: LONG, ...options }).then((lock) => granted(i, client, lock), (err) => granted(i, client, null, err));
    await c.until(`client ${i} to be queued`, async () => (await waiting(client, key)) === i + 1);
  }
}

// slowly starts a proxy that passes bytes on one at a time, so that frames and characters arrive in pieces.
function slowly(c) {
  return new Promise((resolve) => {
    const server = net.createServer((near) => {
      const far = net.connect({ host, port, noDelay: true });
      far.setNoDelay(true);
      for (const [from, to] of [[near, far], [far, near]]) {
        const pending = [];
        let busy = false;
        const next = () => {
          busy = pending.length > 0 && !to.destroyed;
          if (busy) to.write(Buffer.from([pending.shift()]), () => setImmediate(next));
        };
        from.on('data', (data) => {
          pending.push(...data);
          if (!busy) next();
        });
        from.on('close', () => to.destroy());
        from.on('error', () => to.destroy());
      }
    });
    // The package takes no port that systems give out by themselves.
    const listen = () => server.listen(20000 + Math.floor(Math.random() * 10000), '127.0.0.1');
    server.on('error', listen);
    server.on('listening', () => resolve(server));
    listen();
  });
}

run({
  'first come, first served': async (c) => {
    const clients = await c.several(10);
    const holder = await clients[0].acquire(c.key(), { ttl: LONG });
    const order = [];
    await queue(c, c.key(), clients.slice(1), { maxRetries: 20 }, (i, client, lock, err) => {
      order.push(err ? String(err.message) : i);
      if (lock) client.run(lock);
    });
    await clients[0].run(holder);
    await c.until('everybody to have had the key', () => order.length === 9);
    c.equal('order', order, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
  },

  'a repeat keeps its place': async (c) => {
    const [a, b, d, e] = await c.several(4);
    const holder = await a.acquire(c.key(), { ttl: LONG });
    const order = [];
    // Both ask again every 200 ms; the queue must not grow and must not turn.
    await queue(c, c.key(), [b, d], { lockRequestTimeout: 200, maxRetries: 20 }, (i, client, lock, err) => {
      order.push(err ? String(err.message) : i);
      if (lock) client.run(lock);
    });
    const repeats = () => c.seen.warnings.filter((w) => w.startsWith('retrying lock request')).length;
    await c.until('repeats', () => repeats() >= 6);
    c.equal('queue', await waiting(e, c.key()), 2);
    await a.run(holder);
    await c.until('both to have had the key', () => order.length === 2);
    c.equal('order', order, [0, 1]);
    c.equal('nothing left in the queue', await waiting(e, c.key()), 0);
    await c.free(e, c.key());
  },

  'a request that timed out leaves nothing': async (c) => {
    const [a, b, d] = await c.several(3);
    const holder = await a.acquire(c.key(), { ttl: LONG });
    const err = await c.refused('no lock in time', b.acquire(c.key(), { ttl: LONG, lockRequestTimeout: 60, maxRetries: 2 }));
    c.equal('code', err.code, 'request_timeout');
    const next = d.acquire(c.key(), { ttl: LONG });
    await c.until('one waiter', async () => (await waiting(a, c.key())) === 1);
    const start = performance.now();
    await a.run(holder);
    await c.within('the next waiter to get the key', next);
    c.ok('at once', performance.now() - start < 4000);
    c.equal('queue', await waiting(a, c.key()), 0);
  },

  'a repeat that finds the key free gets it': async (c) => {
    const [a, b] = await c.several(2);
    const holder = await a.acquire(c.key(), { ttl: LONG });
    const later = b.acquire(c.key(), { ttl: LONG, lockRequestTimeout: 200, maxRetries: 20 });
    await c.until('a repeat', () => c.seen.warnings.some((w) => w.startsWith('retrying lock request')));
    await a.run(holder);
    const lock = await later;
    await b.run(lock);
    await c.free(a, c.key());
  },

  'wait: false': async (c) => {
    const [a, b, d] = await c.several(3);
    await b.run(await b.acquire(c.key('before')));
    const holder = await a.acquire(c.key(), { ttl: LONG });
    const err = await c.refused('wait is false', b.acquire(c.key(), { ttl: LONG, wait: false }));
    c.equal('code', err.code, 'wait_option_is_false');
    await a.run(holder);
    // The package forgets to tell the broker, which finds out by itself, and long before the ttl.
    await d.run(await c.within('the key to be usable', d.acquire(c.key(), { ttl: LONG, maxRetries: 20 })));
    await c.free(d, c.key());
    const free = await b.acquire(c.key('free'), { wait: false });
    await b.run(free);
  },

  'wait: false as the first thing that a client says': async (c) => {
    const [a, b, d] = await c.several(3);
    const holder = await a.acquire(c.key(), { ttl: LONG });
    const err = await c.refused('wait is false', b.acquire(c.key(), { ttl: LONG, wait: false }));
    c.equal('code', err.code, 'wait_option_is_false');
    await a.run(holder);
    await d.run(await c.within('the key to be usable', d.acquire(c.key(), { ttl: LONG, maxRetries: 20 })));
  },

  'wait: false from several': async (c) => {
    const [a, d, ...others] = await c.several(5);
    const holder = await a.acquire(c.key(), { ttl: LONG });
    for (const client of others) await c.refused('wait is false', client.acquire(c.key(), { ttl: LONG, wait: false }));
    await a.run(holder);
    await d.run(await c.within('the key to be usable', d.acquire(c.key(), { ttl: LONG, maxRetries: 20 })));
  },

  'maxRetries 0 asks once': async (c) => {
    const [a, b] = await c.several(2);
    const holder = await a.acquire(c.key(), { ttl: LONG, maxRetries: 0 });
    const err = await c.refused('no lock in time', b.acquire(c.key(), { lockRequestTimeout: 60, maxRetries: 0 }));
    c.equal('code', err.code, 'request_timeout');
    await c.until('the queue to be empty', async () => (await waiting(a, c.key())) === 0);
    await a.run(holder);
  },

  'requests that time out just when they are granted leave nothing': async (c) => {
    // Most of these give up within milliseconds of their turn, some before it, some after.
    const clients = await c.several(6);
    let [granted, refused] = [0, 0];
    await c.within('everybody to have tried', Promise.all(clients.map(async (client, i) => {
      for (let round = 0; round < 20 || granted === 0 || refused === 0; round++) {
        try {
          const lock = await client.acquire(c.key(), { ttl: LONG, lockRequestTimeout: 20 + i, maxRetries: 1 });
          granted++;
          await pause(9);
          await client.run(lock);
        } catch (err) {
          if (err.code !== 'request_timeout') throw err;
          refused++;
        }
      }
    })));
    await c.until('the queue to be empty', async () => (await waiting(clients[0], c.key())) === 0);
    await clients[0].run(await c.within('the key to be free', clients[0].acquire(c.key(), { ttl: LONG })));
  },

  'a holder that is busy for 5 seconds keeps its lock': async (c) => {
    const [a, b] = await c.several(2);
    const holder = await a.acquire(c.key(), { ttl: LONG });
    const child = c.child('busy', { key: c.key(), ms: 5000 });
    await c.until('the child to wait', async () => (await waiting(a, c.key())) === 1);
    let taken = false;
    const next = b.acquire(c.key(), { ttl: LONG, maxRetries: 20 }).then(() => { taken = true; });
    await c.until('another behind it', async () => (await waiting(a, c.key())) === 2);
    child.tell('be busy');
    await child.hears('busy');
    await a.run(holder); // the child gets the lock, and cannot say so
    await child.hears('granted');
    await waiting(b, c.key());
    c.ok('it is alone', !taken);
    child.tell('unlock');
    await c.within('the next one', next);
  },

  'a ttl that passes frees the key': async (c) => {
    const [a, b, d] = await c.several(3);
    const start = performance.now();
    const old = await a.acquire(c.key(), { ttl: 200 });
    const next = await c.within('the ttl to pass', b.acquire(c.key(), { ttl: LONG }));
    c.ok(`not before: ${performance.now() - start} ms`, performance.now() - start >= 200);
    c.ok('the late unlock is answered', (await a.run(old)).unlocked);
    c.ok('and harms nobody', await held(d, c.key()));
    await b.run(next);
  },

  'the ttl of the constructor counts': async (c) => {
    const a = await c.client({ ttl: 150 });
    const b = await c.client();
    const start = performance.now();
    await a.acquire(c.key());
    await c.within('the ttl to pass', b.acquire(c.key(), { ttl: LONG }));
    c.ok('not before', performance.now() - start >= 150);
  },

  'the ttl of a lock that waited starts with its grant': async (c) => {
    const [a, b, d] = await c.several(3);
    const holder = await a.acquire(c.key(), { ttl: LONG });
    const second = b.acquire(c.key(), { ttl: 400, maxRetries: 20, lockRequestTimeout: 200 });
    await c.until('a wait longer than the ttl', () => c.seen.warnings.filter((w) => w.startsWith('retrying')).length >= 3);
    const start = performance.now();
    await a.run(holder);
    await second;
    await c.within('the ttl to pass', d.acquire(c.key(), { ttl: LONG, maxRetries: 20 }));
    c.ok('not before', performance.now() - start >= 400);
  },

  'ttl null lasts': async (c) => {
    const [a, b, d] = await c.several(3);
    await a.acquire(c.key(), { ttl: null });
    // The key of another lock is the clock: its ttl is the longest that a broker or a client takes by default.
    await a.acquire(c.key('clock'), { ttl: 7050 });
    await c.within('another ttl to pass', d.acquire(c.key('clock'), { ttl: LONG, maxRetries: 20 }));
    c.ok('still held', await held(b, c.key()));
  },

  'frames and characters in pieces': async (c) => {
    const server = await slowly(c);
    try {
      const slow = await c.client({ port: server.address().port, host: '127.0.0.1' });
      const fast = await c.client();
      for (const part of ['ключ', '日本語', '🔑🔒🗝', 'añb🔑']) {
        const key = c.key(part);
        const lock = await c.within(`a lock on ${part}`, slow.acquire(key, { ttl: LONG, lockRequestTimeout: 60000 }));
        c.ok(`${part} is one key for both`, await held(fast, key));
        await c.within(`an unlock of ${part}`, slow.run(lock));
        await c.free(fast, key);
      }
    } finally {
      server.close();
    }
  },
});
