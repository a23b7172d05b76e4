// Re-authentication with MQTT.js: a token is renewed before it ends, and the connection lives on; then a token of
// somebody else ends it.
// usage: node mqttjs_reauth.js URL SHORT LONG OTHER (three tokens); NODE_PATH names the directory of the module mqtt.
const assert = require('node:assert');
const mqtt = require('mqtt');

const [url, short, long, other] = process.argv.slice(2);
const deadline = setTimeout(() => { console.error('deadline'); process.exit(1); }, 60000);
const properties = (token) => ({ authenticationMethod: 'JWT', authenticationData: Buffer.from(token) });
const REAUTHENTICATE = 0x19;

async function main() {
  const c = mqtt.connect(url, {
    clientId: 'js', protocolVersion: 5, reconnectPeriod: 0, properties: properties(short),
  });
  const answers = [], waiting = [];
  c.handleAuth = (packet, done) => {
    waiting.length ? waiting.shift()(packet) : answers.push(packet);
    done();
  };
  const answer = () => new Promise((done) => (answers.length ? done(answers.shift()) : waiting.push(done)));
  await new Promise((done, fail) => { c.on('connect', done); c.on('error', fail); });
  const renew = (token) => c._sendPacket({ cmd: 'auth', reasonCode: REAUTHENTICATE, properties: properties(token) });

  renew(long);
  const renewed = await answer();
  assert.strictEqual(renewed.reasonCode, 0);
  assert.strictEqual(renewed.properties.authenticationMethod, 'JWT');
  let closed = false;
  c.on('close', () => { closed = true; });
  // The first token has ended by then.
  await new Promise((done) => setTimeout(done, 6000));
  assert(!closed);
  await new Promise((done, fail) => c.publish('t', 'x', { qos: 1 }, (e) => (e ? fail(e) : done())));

  const left = new Promise((done) => c.on('disconnect', done));
  renew(other);
  assert.strictEqual((await left).reasonCode, 0x87);
  c.end(true);
  clearTimeout(deadline);
  console.log('ok');
}

main().catch((error) => { console.error(error); process.exit(1); });
