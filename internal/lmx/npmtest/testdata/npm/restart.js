'use strict';
// Brokers that end and come back. They are started here: LMX_PROGRAM is the program, LMX_PORTS has a port for each case.

const fs = require('fs');
const os = require('os');
const path = require('path');
const { spawn } = require('child_process');
const { held, host, run, waiting } = require('./harness');

const LONG = 600000;
const ports = process.env.LMX_PORTS.split(',').map(Number);

// serve starts a broker and waits until it listens. It ends with the case.
async function serve(c, port, args = []) {
  const broker = spawn(process.env.LMX_PROGRAM, ['serve', '--json', '--http', '', '--listen', `${host}:${port}`, ...args],
    { stdio: ['ignore', 'pipe', 'inherit'] });
  c.children.push(broker);
  const gone = new Promise((resolve) => broker.once('exit', (code, signal) => resolve(code === null ? signal : code)));
  await c.within('a broker to listen', new Promise((resolve, reject) => {
    broker.stdout.once('data', resolve);
    gone.then((code) => reject(new Error(`the broker ended with ${code}`)));
  }));
  return (signal) => {
    broker.kill(signal);
    return c.within('a broker to end', gone);
  };
}

// withDirectory has a lock that outlives its process and one that does not; so it is after a restart, too.
const withDirectory = (port, signal, status) => async (c) => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'broker'));
  try {
    const stop = await serve(c, port, ['--data', dir]);
    const kept = c.child('hold', { keys: [c.key('kept')], client: { port }, lock: { ttl: null, keepLocksAfterDeath: true } });
    const plain = c.child('hold', { keys: [c.key('plain')], client: { port }, lock: { ttl: LONG } });
    await kept.hears('held');
    await plain.hears('held');
    kept.tell('exit');
    await c.within('a child to end', kept.gone);
    c.equal('end of the broker', await stop(signal), status);
    await serve(c, port, ['--data', dir]);
    const [a, b] = await c.several(2, { port });
    c.ok('a lock that was to outlive its process is held', await held(a, c.key('kept')));
    await a.run(await c.within('the other one', b.acquire(c.key('plain'), { ttl: LONG, maxRetries: 20 })));
    await a.release(c.key('kept'), { force: true });
    await b.run(await c.within('it after a force', b.acquire(c.key('kept'))));
  } finally {
    fs.rmSync(dir, { recursive: true, force: true });
  }
};

run({
  'a broker that ends and comes back': async (c) => {
    c.mayEmitErrors = true; // of an unlock that is refused
    const port = ports[0];
    const stop = await serve(c, port);
    const [a, b] = await c.several(2, { port });
    const old = await a.acquire(c.key(), { ttl: LONG });
    const waits = c.refused('what waits fails', b.acquire(c.key(), { ttl: LONG }));
    await c.until('one to wait', async () => (await waiting(a, c.key())) === 1);
    c.equal('end of the broker', await stop('SIGTERM'), 0);
    await c.within('what waits to fail', waits);
    c.equal('errors that a client emitted', c.seen.errors, []);
    await serve(c, port);
    // The package tries to connect once, and not again when the broker is away then; but a request does.
    await c.within('a lock without another word', b.acquire(c.key(), { ttl: LONG, maxRetries: 20 }));
    await c.within('a lock of the other client', a.acquire(c.key('of the other'), { ttl: LONG, maxRetries: 20 }));
    await c.refused('an unlock of what the broker does not know', a.run(old));
    c.ok('held', await held(a, c.key()));
  },

  'a broker with a directory that is asked to end': withDirectory(ports[1], 'SIGTERM', 0),

  'a broker with a directory that is killed': withDirectory(ports[2], 'SIGKILL', 'SIGKILL'),
}, /ECONNREFUSED|ECONNRESET/); // the package rejects a promise of its own when it cannot connect again
