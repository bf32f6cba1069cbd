'use strict';
// The client of the npm package live-mutex as an agent: commands come as lines of JSON, and so do the answers.

const readline = require('node:readline');
const {Client} = require('live-mutex');

let client;

const say = (event) => process.stdout.write(JSON.stringify(event) + '\n');

async function connect({addr}) {
  const [host, port] = addr.split(':');
  client = new Client({host, port: Number(port)});
  client.emitter.on('warning', () => {}); // it warns of what it counts, and would print that
  await client.ensure();
  say({event: 'connected'});
}

async function bench({key, in_flight: callers, ms}) {
  let pairs = 0, errors = 0;
  const start = performance.now();
  const caller = async (name) => {
    while (performance.now() - start < ms) {
      try {
        const {id} = await client.acquire(name);
        await client.release(name, {id});
        pairs++;
      } catch (err) {
        errors++;
        process.stderr.write(`${name}: ${err && (err.stack || err.message || JSON.stringify(err))}\n`);
        return;
      }
    }
  };
  await Promise.all(Array.from({length: callers}, (_, i) => caller(`${key}-${i}`)));
  say({event: 'bench', pairs, ms: performance.now() - start, errors});
}

const lines = readline.createInterface({input: process.stdin});
lines.on('line', async (line) => {
  const command = JSON.parse(line);
  try {
    if (command.do === 'connect') await connect(command);
    else if (command.do === 'bench') await bench(command);
    else say({event: 'error', text: `there is no ${command.do} here`});
  } catch (err) {
    say({event: 'error', text: String(err && (err.message || err))});
  }
});
lines.on('close', () => { if (client) client.close(); });
