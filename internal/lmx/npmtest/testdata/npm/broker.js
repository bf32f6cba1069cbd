'use strict';
// The npm package's own broker, with its ordinary options. It ends when its standard input does.
//
//   node broker.js PORT [SOCKET]

const { Broker } = require('live-mutex');

const [port, udsPath] = process.argv.slice(2);
const brokers = [new Broker({ host: '127.0.0.1', port: Number(port) })];
if (udsPath) brokers.push(new Broker({ udsPath }));

async function start() {
  for (const broker of brokers) {
    for (const event of ['error', 'warning']) broker.emitter.on(event, () => {});
    await broker.ensure();
  }
  console.log('listening');
}

process.stdin.resume().on('end', () => process.exit(0));
start().catch((err) => {
  console.error(err);
  process.exit(1);
});
