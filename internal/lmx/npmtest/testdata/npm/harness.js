'use strict';
// The frame of every test program here. A program names its cases; they run at once, in one process, against the broker
// that the environment names, and each prints one line of JSON. Only what the npm package exports is used.
//
//   LMX_HOST, LMX_PORT, LMX_UNIX   where the broker is
//   LMX_PATIENCE                   milliseconds after which a case that has not ended has failed
//   LMX_ONLY                       run the case of this name alone
//   LMX_LIST                       print the names and run nothing

const fs = require('fs');
const os = require('os');
const path = require('path');
const { fork } = require('child_process');
const lmx = require('live-mutex');

const host = process.env.LMX_HOST || '127.0.0.1';
const port = Number(process.env.LMX_PORT);
const unix = process.env.LMX_UNIX || '';
const patience = Number(process.env.LMX_PATIENCE || 30000);

// Every client adds listeners to the process; that many are meant.
process.setMaxListeners(0);

// print bypasses console, which the package itself writes to.
function print(line) {
  fs.writeSync(1, JSON.stringify(line) + '\n');
}

function text(err) {
  if (err && err.message) return String(err.message);
  return typeof err === 'string' ? err : JSON.stringify(err);
}

// connect opens a client of the package and writes down what it emits.
async function connect(options, Class, seen) {
  const address = options.udsPath ? {} : { host, port };
  const client = new Class({ connectTimeout: 19000, unlockRequestTimeout: 60000, ...address, ...options });
  client.emitter.on('error', (err) => seen.errors.push(text(err)));
  client.emitter.on('warning', (warning) => seen.warnings.push(text(warning)));
  await client.ensure();
  return client;
}

// A Case is what a case function gets: a name for its keys, clients that end with it, and ways to wait and to judge.
class Case {
  constructor(name) {
    this.name = name;
    this.seen = { errors: [], warnings: [] };
    this.clients = [];
    this.children = [];
    this.at = 'the start';
    this.mayEmitErrors = false; // set by cases in which the package has reason to emit 'error'
    this.over = false;
  }

  // key returns a key that no other case uses.
  key(part = 'key') {
    return `${this.name}: ${part}`;
  }

  async client(options = {}, Class = lmx.Client) {
    const client = await connect(options, Class, this.seen);
    this.clients.push(client);
    return client;
  }

  async several(n, options = {}, Class = lmx.Client) {
    const out = [];
    for (let i = 0; i < n; i++) out.push(await this.client(options, Class));
    return out;
  }

  // child starts child.js in a process of its own.
  child(role, args = {}) {
    const process_ = fork(path.join(__dirname, 'child.js'), [role, JSON.stringify(args)], {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    const said = [];
    process_.on('message', (message) => said.push(message));
    this.children.push(process_);
    return {
      gone: new Promise((resolve) => process_.once('exit', resolve)),
      tell: (what) => process_.send({ what }),
      kill: () => process_.kill('SIGKILL'),
      hears: async (what) => {
        await this.until(`a child to say ${what}`, () => said.some((m) => m.what === what));
        return said.find((m) => m.what === what);
      },
    };
  }

  // until polls a condition that nothing announces.
  async until(what, probe) {
    this.at = what;
    while (!this.over && !(await probe())) await new Promise((resolve) => setTimeout(resolve, 5));
    if (this.over) throw new Error('over');
  }

  // within is what else the case waits for; it names what hangs.
  async within(what, promise) {
    this.at = what;
    return promise;
  }

  // free waits until a key can be had; on a busy machine that may take more than one try.
  async free(client, key) {
    await this.until(`${JSON.stringify(key)} to be free`, async () => !(await held(client, key)));
  }

  ok(what, is) {
    if (!is) throw new Error(`not so: ${what}`);
  }

  equal(what, got, want) {
    const [g, w] = [JSON.stringify(got), JSON.stringify(want)];
    if (g !== w) throw new Error(`${what}: got ${g}, want ${w}`);
  }

  async refused(what, promise) {
    this.at = what;
    try {
      await promise;
    } catch (err) {
      return err;
    }
    throw new Error(`no error: ${what}`);
  }

  kill() {
    for (const child of this.children) child.kill('SIGKILL');
  }

  async end() {
    this.over = true;
    this.kill();
    // A client that is closed while it connects rejects a promise that nobody can get at: none is in the middle of that.
    await Promise.allSettled(this.clients.map((client) => client.ensure()));
    for (const client of this.clients) client.close();
  }
}

// info asks who holds and waits.
function info(client, key) {
  return new Promise((resolve, reject) => {
    client.requestLockInfo(key, (err, answer) => (err ? reject(err) : resolve(answer.data)));
  });
}

// waiting is how many requests are in the queue of a key.
async function waiting(client, key) {
  return (await info(client, key)).lockRequestCount || 0;
}

// held says whether a key that nobody is about to take or to release has a holder: a request that gives up soon must fail.
// The request for a free key that is sent behind it tells whether the broker was quick enough to answer: it takes what comes
// over one connection in order. If it was not, the request is made again with more time.
async function held(client, key) {
  for (let lockRequestTimeout = 1000; ; lockRequestTimeout = Math.min(2 * lockRequestTimeout, 5000)) {
    let pending = true;
    const asked = client.acquire(key, { lockRequestTimeout, maxRetries: 1 }).then((lock) => client.run(lock)).then(
      () => null,
      (err) => { pending = false; return err; },
    );
    const behind = await client.acquire(`${key}: behind a request`, { maxRetries: 20 });
    const answered = pending;
    const [err] = await Promise.all([asked, client.run(behind)]);
    if (!err) return false;
    if (err.code !== 'request_timeout') throw err;
    if (answered) return true;
  }
}

// Exclusion counts who is inside, and remembers when there were too many.
class Exclusion {
  constructor(limit) {
    this.limit = limit;
    this.inside = 0;
    this.most = 0;
    this.broken = 0;
  }

  enter() {
    this.inside++;
    this.most = Math.max(this.most, this.inside);
    if (this.inside > this.limit) this.broken++;
  }

  leave() {
    this.inside--;
  }
}

// rounds has children go in and out under the eyes of one witness, and returns what they all saw.
async function rounds(c, role, processes, args) {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'witness'));
  try {
    const children = [];
    for (let i = 0; i < processes; i++) children.push(c.child(role, { ...args, dir, seed: 1000 + i, first: i === 0 }));
    const all = { broken: [], readers: 0, rounds: 0 };
    for (const child of children) {
      const report = await child.hears('done');
      c.equal('errors that a client emitted', report.errors, []);
      all.broken.push(...report.broken);
      all.readers = Math.max(all.readers, report.readers);
      all.rounds += report.rounds;
    }
    return all;
  } finally {
    fs.rmSync(dir, { recursive: true, force: true });
  }
}

const tick = () => new Promise((resolve) => setImmediate(resolve));

// pause is work that takes a while, never a way to wait for something.
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function runOne(name, fn) {
  const c = new Case(name);
  process.on('exit', () => c.kill()); // whatever ends this process
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`after ${patience} ms still waiting for ${c.at}`)), patience);
  });
  let why = '';
  try {
    await Promise.race([fn(c), late]);
    if (c.seen.errors.length > 0 && !c.mayEmitErrors) {
      why = `a client emitted 'error': ${c.seen.errors[0]}`;
    }
  } catch (err) {
    why = text(err);
    if (c.seen.errors.length > 0) why += `; a client emitted 'error': ${c.seen.errors[0]}`;
  }
  clearTimeout(timer);
  await c.end();
  print({ case: name, ok: why === '', why });
}

// run is the last line of every program. Rejections that nobody can catch are ignored when they match.
async function run(cases, strays = /(?!)/) {
  const only = process.env.LMX_ONLY;
  const names = Object.keys(cases).filter((name) => !only || name === only);
  print({ cases: names });
  if (process.env.LMX_LIST) return;
  // The package swallows exceptions that nobody caught. Here they end the program, and with it all its cases.
  for (const event of ['uncaughtException', 'unhandledRejection']) {
    process.on(event, (err) => {
      if (strays.test(text(err))) return;
      print({ stray: `${event}: ${(err && err.stack) || text(err)}` });
      process.exit(1);
    });
  }
  await Promise.all(names.map((name) => runOne(name, cases[name])));
  process.exit(0);
}

module.exports = { host, port, unix, lmx, connect, info, waiting, held, Exclusion, rounds, tick, pause, run };
