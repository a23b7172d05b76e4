//! MQTT packets on the wire.
