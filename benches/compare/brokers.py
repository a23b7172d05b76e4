"""The brokers of the comparison, as the load generator's bench.py takes them (its --brokers).

Where they are comes from the environment: MAST_BIN, RUMQTTD, NATS_SERVER, MOSQUITTO (default: on the PATH) and
LOADGEN_BIN, the directory of the load generator's programs, for the roofline. What is not there is left out.
All listen on loopback alone. {dir} and {port} are filled in by bench.py, so other braces are doubled.
"""
import os
import shutil


def program(variable, name):
    return os.environ.get(variable) or shutil.which(name)


def mast(binary, *options):
    return dict(
        cmd=[binary, '--data-dir', '{dir}/data', '--port', '{port}', '--log-level', 'error', *options],
        env={'MAST__ADMIN__BIND': ''},
        proto=5)


MOSQUITTO = '''listener {port} 127.0.0.1
allow_anonymous true
max_inflight_messages 0
max_queued_messages 0
'''
# Its own example's limits, but for the number of connections and the size of a message.
RUMQTTD = '''id = 0
[router]
id = 0
max_connections = 30000
max_outgoing_packet_count = 200
max_segment_size = 104857600
max_segment_count = 10
[v5.1]
name = "v5"
listen = "127.0.0.1:{port}"
next_connection_delay_ms = 0
[v5.1.connections]
connection_timeout_ms = 60000
max_payload_size = 1048576
max_inflight_count = 1000
dynamic_filters = true
'''
# MQTT needs JetStream and a name; JetStream syncs every two minutes unless told.
NATS = '''server_name: compare
listen: "127.0.0.1:{port2}"
jetstream {{ store_dir: "{dir}/jetstream" }}
mqtt {{ listen: "127.0.0.1:{port}", max_ack_pending: 65535 }}
'''

B = {}
if loadgen := os.environ.get('LOADGEN_BIN'):
    roof = os.path.join(loadgen, 'nullfwd')
    B['roofline-pair'] = dict(cmd=[roof, '{port}', 'pair'], proto=5, only=['p2p', 'open'])
    B['roofline-all'] = dict(cmd=[roof, '{port}', 'all'], proto=5, only=['fanin', 'fanout', 'shared'])
if found := program('MAST_BIN', 'mast'):
    B['mast-1-shard'] = mast(found, '--shards', '1')
    B['mast'] = mast(found)
if found := program('MOSQUITTO', 'mosquitto'):
    B['mosquitto'] = dict(cmd=[found, '-c', '{dir}/m.conf'], files={'m.conf': MOSQUITTO}, proto=5)
if found := program('RUMQTTD', 'rumqttd'):
    B['rumqttd'] = dict(cmd=[found, '-q', '-c', '{dir}/r.toml'], files={'r.toml': RUMQTTD}, proto=5)
if found := program('NATS_SERVER', 'nats-server'):
    # It speaks MQTT 3.1.1 alone.
    B['nats-server'] = dict(cmd=[found, '-c', '{dir}/n.conf'], files={'n.conf': NATS}, mkdir=['jetstream'], proto=4)
