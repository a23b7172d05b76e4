"""A tour of the broker with paho-mqtt: QoS 0 to 2, retained, Will, session; over the transport that is asked for."""

import argparse
import queue
import socket
import ssl

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

DEADLINE = 60

args = argparse.ArgumentParser()
args.add_argument("--version", type=int, required=True)
args.add_argument("--transport", default="tcp")
args.add_argument("--host", required=True)
args.add_argument("--port", type=int, default=0)
args.add_argument("--ca")
args.add_argument("--cert")
args.add_argument("--key")
args = args.parse_args()
V5 = args.version == 5


class Peer:
    """A connected client with queues of what happened."""

    def __init__(self, name, clean=True, will=None):
        protocol = {3: mqtt.MQTTv31, 4: mqtt.MQTTv311, 5: mqtt.MQTTv5}[args.version]
        options = {} if V5 else {"clean_session": clean}
        self.c = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, name, protocol=protocol, transport=args.transport, **options
        )
        self.connected, self.subscribed, self.messages = queue.Queue(), queue.Queue(), queue.Queue()
        self.published, self.left = queue.Queue(), queue.Queue()
        self.c.on_connect = lambda c, u, flags, reason, props: self.connected.put((flags.session_present, reason))
        self.c.on_subscribe = lambda c, u, mid, reasons, props: self.subscribed.put(reasons)
        self.c.on_message = lambda c, u, m: self.messages.put(m)
        self.c.on_publish = lambda c, u, mid, reason, props: self.published.put(mid)
        self.c.on_disconnect = lambda c, u, flags, reason, props: self.left.put(reason)
        if will:
            self.c.will_set(*will)
        if args.transport == "websockets":
            self.c.ws_set_options(path="/mqtt")
        if args.ca:
            self.c.tls_set(args.ca, args.cert, args.key, cert_reqs=ssl.CERT_REQUIRED)
            self.c.tls_insecure_set(True)
        extra = {}
        if V5:
            extra["clean_start"] = clean
            props = Properties(PacketTypes.CONNECT)
            if not clean:
                props.SessionExpiryInterval = 300
            extra["properties"] = props
        self.c.connect(args.host, args.port or 1883, keepalive=60, **extra)
        self.c.loop_start()
        self.present, reason = self.connected.get(timeout=DEADLINE)
        assert reason == 0, reason

    def subscribe(self, topic, qos):
        self.c.subscribe(topic, qos)
        reasons = self.subscribed.get(timeout=DEADLINE)
        assert reasons[0].value == qos, reasons

    def publish(self, *what, **more):
        self.c.publish(*what, **more)
        self.published.get(timeout=DEADLINE)

    def message(self):
        return self.messages.get(timeout=DEADLINE)

    def leave(self):
        self.c.disconnect()
        self.left.get(timeout=DEADLINE)
        self.c.loop_stop()


name = f"paho-{args.transport}-{args.version}-{args.port}"
base = f"tour/{name}"
reader, writer = Peer(name + "-r"), Peer(name + "-w")
reader.subscribe(base + "/+", 2)
for qos in range(3):
    for n in range(20):
        writer.publish(f"{base}/q{qos}", f"{n}", qos)
    for n in range(20):
        m = reader.message()
        assert (m.topic, m.payload, m.qos, m.retain) == (f"{base}/q{qos}", b"%d" % n, qos, False), m

big = bytes(range(256)) * 1000
writer.publish(base + "/big", big, 1)
assert reader.message().payload == big

if V5:
    props = Properties(PacketTypes.PUBLISH)
    props.UserProperty = [("b", "2"), ("a", "1"), ("b", "1")]
    props.ResponseTopic = "answer/here"
    props.CorrelationData = b"\x00\xff"
    props.MessageExpiryInterval = 100
    writer.publish(base + "/props", "x", 1, properties=props)
    got = reader.message().properties
    assert got.UserProperty == [("b", "2"), ("a", "1"), ("b", "1")], got
    assert (got.ResponseTopic, got.CorrelationData) == ("answer/here", b"\x00\xff"), got

writer.publish(base + "/kept", "kept", 1, True)
assert reader.message().retain is False
late = Peer(name + "-late")
late.subscribe(base + "/kept", 1)
m = late.message()
assert (m.payload, m.retain) == (b"kept", True)
late.leave()

dying = Peer(name + "-dies", will=(base + "/will", "gone", 1, False))
dying.c.loop_stop()
sock = dying.c.socket()
sock.shutdown(socket.SHUT_RDWR) if hasattr(sock, "shutdown") else sock.close()
assert reader.message().payload == b"gone"

lasting = Peer(name + "-lasting", clean=False)
lasting.subscribe(base + "/queue", 1)
lasting.leave()
for n in range(30):
    writer.publish(base + "/queue", f"{n}", 1)
lasting = Peer(name + "-lasting", clean=False)
assert lasting.present or args.version == 3
assert [int(lasting.message().payload) for _ in range(30)] == list(range(30))
lasting.leave()
writer.leave()
reader.leave()
print("ok")
