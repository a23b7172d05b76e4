// A tour of the broker with MQTT.js: QoS 0 to 2, retained, Will, session.
// usage: node mqttjs_tour.js URL VERSION [CA [CERT KEY]]; NODE_PATH names the directory of the module mqtt.
const assert = require('node:assert');
const fs = require('node:fs');
const mqtt = require('mqtt');

const [url, version, ca, cert, key] = process.argv.slice(2);
const v = Number(version);
const deadline = setTimeout(() => { console.error('deadline'); process.exit(1); }, 60000);

async function peer(name, more = {}) {
  const options = {
    clientId: name, protocolVersion: v, reconnectPeriod: 0, clean: true, rejectUnauthorized: true,
    checkServerIdentity: () => undefined, ...more,
  };
  if (v === 3) options.protocolId = 'MQIsdp';
  if (ca) options.ca = fs.readFileSync(ca);
  if (cert) Object.assign(options, { cert: fs.readFileSync(cert), key: fs.readFileSync(key) });
  const waiting = [], arrived = [];
  const c = mqtt.connect(url, options);
  c.on('message', (topic, payload, packet) => {
    const m = { topic, payload, packet };
    waiting.length ? waiting.shift()(m) : arrived.push(m);
  });
  const connack = await new Promise((done, fail) => {
    c.on('connect', done);
    c.on('error', fail);
    c.on('close', () => fail(new Error('closed')));
  });
  return {
    c, connack,
    message: () => arrived.length ? Promise.resolve(arrived.shift()) : new Promise((done) => waiting.push(done)),
    publish: (t, p, o) => c.publishAsync(t, p, o),
    subscribe: async (t, qos) => { const g = await c.subscribeAsync(t, { qos }); assert.equal(g[0].qos, qos); },
    leave: () => c.endAsync(),
  };
}

async function main() {
  const name = `js-${url.split(':')[0]}-${url.split(':')[2].split('/')[0]}-${v}`;
  const base = `tour/${name}`;
  const reader = await peer(`${name}-r`);
  const writer = await peer(`${name}-w`);
  await reader.subscribe(`${base}/+`, 2);
  for (const qos of [0, 1, 2]) {
    for (let n = 0; n < 20; n++) await writer.publish(`${base}/q${qos}`, `${n}`, { qos });
    for (let n = 0; n < 20; n++) {
      const { topic, payload, packet } = await reader.message();
      assert.deepEqual([topic, payload.toString(), packet.qos, packet.retain], [`${base}/q${qos}`, `${n}`, qos, false]);
    }
  }
  const big = Buffer.alloc(200000, 'xyz');
  await writer.publish(`${base}/big`, big, { qos: 1 });
  assert((await reader.message()).payload.equals(big));
  if (v === 5) {
    const properties = { userProperties: { a: ['1', '2'] }, responseTopic: 'r/t', correlationData: Buffer.from([0, 255]) };
    await writer.publish(`${base}/props`, 'x', { qos: 1, properties });
    const got = (await reader.message()).packet.properties;
    assert.deepEqual([...got.userProperties.a], ['1', '2']);
    assert.equal(got.responseTopic, 'r/t');
  }
  await writer.publish(`${base}/kept`, 'kept', { qos: 1, retain: true });
  assert.equal((await reader.message()).packet.retain, false);
  const late = await peer(`${name}-late`);
  await late.subscribe(`${base}/kept`, 1);
  assert.equal((await late.message()).packet.retain, true);
  await late.leave();

  const dies = await peer(`${name}-d`, { will: { topic: `${base}/will`, payload: Buffer.from('gone'), qos: 1, retain: false } });
  dies.c.on('error', () => {});
  dies.c.stream.destroy();
  assert.equal((await reader.message()).payload.toString(), 'gone');

  const lasting = () => peer(`${name}-l`, { clean: false, properties: v === 5 ? { sessionExpiryInterval: 300 } : undefined });
  let s = await lasting();
  await s.subscribe(`${base}/queue`, 1);
  await s.leave();
  for (let n = 0; n < 30; n++) await writer.publish(`${base}/queue`, `${n}`, { qos: 1 });
  s = await lasting();
  for (let n = 0; n < 30; n++) assert.equal((await s.message()).payload.toString(), `${n}`);
  await s.leave();
  await writer.leave();
  await reader.leave();
  clearTimeout(deadline);
  console.log('ok');
}

main().catch((e) => { console.error(e); process.exit(1); });
