//! AMQP 0.9.1 written byte by byte, for messages that no proper client sends.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use url::Url;

use super::server::PATIENCE;

/// A connection with one open channel.
pub(crate) struct Wire(TcpStream);

impl Wire {
    pub(crate) fn connect(url: &str) -> Self {
        let url = Url::parse(url).unwrap();
        let address = (url.host_str().unwrap(), url.port().unwrap());
        let mut wire = Self(TcpStream::connect(address).unwrap());
        wire.0.set_read_timeout(Some(PATIENCE)).unwrap();
        wire.0.write_all(b"AMQP\0\0\x09\x01").unwrap();
        wire.expect(10, 10);
        let secret = [b"\0", url.username().as_bytes(), b"\0", url.password().unwrap().as_bytes()].concat();
        let start_ok = [&long(&[])[..], &short(b"PLAIN"), &long(&secret), &short(b"en_US")].concat();
        wire.method(0, 10, 11, &start_ok);
        wire.expect(10, 30);
        wire.method(0, 10, 31, &[0, 1, 0, 2, 0, 0, 0, 0]); // one channel, 131,072 bytes a frame, no heartbeat
        wire.method(0, 10, 40, &[&short(&url.path().as_bytes()[1..])[..], &[0, 0]].concat());
        wire.expect(10, 41);
        wire.method(1, 20, 10, &[0]);
        wire.expect(20, 11);
        wire.method(1, 85, 10, &[0]);
        wire.expect(85, 11);
        wire
    }

    /// Publishes with these property flags and property bytes, and waits for the confirm.
    pub(crate) fn publish(&mut self, exchange: &str, key: &[u8], flags: u16, properties: &[u8], body: &[u8]) {
        let publish = [&[0, 0][..], &short(exchange.as_bytes()), &short(key), &[0]].concat();
        self.method(1, 60, 40, &publish);
        let length = u64::try_from(body.len()).unwrap().to_be_bytes();
        let header = [&[0, 60, 0, 0][..], &length, &flags.to_be_bytes(), properties].concat();
        self.frame(2, 1, &header);
        if !body.is_empty() {
            self.frame(3, 1, body);
        }
        self.expect(60, 80);
    }

    fn method(&mut self, channel: u16, class: u16, method: u16, arguments: &[u8]) {
        self.frame(1, channel, &[&class.to_be_bytes()[..], &method.to_be_bytes(), arguments].concat());
    }

    fn frame(&mut self, kind: u8, channel: u16, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let frame = [&[kind][..], &channel.to_be_bytes(), &length, payload, &[0xce]].concat();
        self.0.write_all(&frame).unwrap();
    }

    /// Reads a frame, and expects it to be this method.
    fn expect(&mut self, class: u16, method: u16) {
        let mut head = [0; 7];
        self.0.read_exact(&mut head).unwrap();
        let length = u32::from_be_bytes([head[3], head[4], head[5], head[6]]);
        let mut payload = vec![0; usize::try_from(length).unwrap() + 1];
        self.0.read_exact(&mut payload).unwrap();
        let expected = [class.to_be_bytes(), method.to_be_bytes()].concat();
        assert_eq!(payload[..4], expected, "{:?}", String::from_utf8_lossy(&payload));
    }
}

/// Encodes a short string: any bytes, at most 255.
pub(crate) fn short(bytes: &[u8]) -> Vec<u8> {
    [&[u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

/// Encodes a long string, or the bytes of a table.
pub(crate) fn long(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}
