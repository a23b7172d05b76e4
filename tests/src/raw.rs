//! Packets as bytes, for what the codec refuses to build.

/// A packet of a first byte and a body, with its remaining length.
pub fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    out.extend(varint(body.len()));
    out.extend_from_slice(body);
    out
}

/// A variable byte integer.
pub fn varint(mut n: usize) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let byte = (n % 128) as u8;
        n /= 128;
        if n == 0 {
            out.push(byte);
            return out;
        }
        out.push(byte | 0x80);
    }
}

/// A string or binary field with its length.
pub fn field(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    let mut out = (bytes.len() as u16).to_be_bytes().to_vec();
    out.extend_from_slice(bytes);
    out
}

/// Parts one behind the other.
pub fn cat(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// A CONNECT of given flags; `rest` follows the keep alive (in MQTT 5 it begins with the properties).
pub fn connect(level: u8, flags: u8, rest: &[u8]) -> Vec<u8> {
    let name: &[u8] = if level & 0x7F == 3 { b"MQIsdp" } else { b"MQTT" };
    packet(0x10, &cat(&[&field(name), &[level, flags, 0, 60], rest]))
}

/// A MQTT 5 PUBLISH with raw properties.
pub fn publish5(first: u8, topic: &[u8], id: Option<u16>, props: &[u8], payload: &[u8]) -> Vec<u8> {
    let id = id.map(|id| id.to_be_bytes().to_vec()).unwrap_or_default();
    packet(first, &cat(&[&field(topic), &id, &varint(props.len()), props, payload]))
}

/// A MQTT 3.x PUBLISH.
pub fn publish3(first: u8, topic: &[u8], id: Option<u16>, payload: &[u8]) -> Vec<u8> {
    let id = id.map(|id| id.to_be_bytes().to_vec()).unwrap_or_default();
    packet(first, &cat(&[&field(topic), &id, payload]))
}

/// A SUBSCRIBE with raw properties (`None` before MQTT 5), filters and option bytes.
pub fn subscribe(first: u8, id: u16, props: Option<&[u8]>, filters: &[(&[u8], u8)]) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    if let Some(props) = props {
        body.extend(varint(props.len()));
        body.extend_from_slice(props);
    }
    for (filter, options) in filters {
        body.extend(field(filter));
        body.push(*options);
    }
    packet(first, &body)
}

/// An UNSUBSCRIBE likewise.
pub fn unsubscribe(first: u8, id: u16, props: Option<&[u8]>, filters: &[&[u8]]) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    if let Some(props) = props {
        body.extend(varint(props.len()));
        body.extend_from_slice(props);
    }
    for filter in filters {
        body.extend(field(filter));
    }
    packet(first, &body)
}

/// Reads to the end of a stream that the broker closes.
pub fn until_closed(stream: &mut impl std::io::Read) -> Vec<u8> {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => rest,
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => rest,
        Err(e) => panic!("not closed: {e}"),
    }
}
