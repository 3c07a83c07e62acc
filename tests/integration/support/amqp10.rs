//! A publisher that speaks AMQP 1.0, written byte by byte: only AMQP 1.0 has the types that RabbitMQ cannot translate.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use url::Url;

use super::server::PATIENCE;

/// The codes of what frames contain.
const OPEN: u8 = 0x10;
const BEGIN: u8 = 0x11;
const ATTACH: u8 = 0x12;
const FLOW: u8 = 0x13;
const TRANSFER: u8 = 0x14;
const DISPOSITION: u8 = 0x15;
const SASL_INIT: u8 = 0x41;
const ACCEPTED: u8 = 0x24;
const NULL: &[u8] = &[0x40];

/// A message that RabbitMQ accepts, and cannot translate for consumers that speak AMQP 0.9.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Untranslatable {
    /// An application property of the type `uuid`.
    Uuid,
    /// An application property of the type `char`.
    Char,
    /// A content type of more than 255 bytes.
    ContentType,
    /// A content encoding of more than 255 bytes.
    ContentEncoding,
    /// An application property that is no number. RabbitMQ 4.3 translates it.
    NotANumber,
}

impl Untranslatable {
    pub(crate) const ALL: [Self; 5] =
        [Self::Uuid, Self::Char, Self::ContentType, Self::ContentEncoding, Self::NotANumber];

    /// Returns the sections of a message of this kind, without its body.
    fn sections(self) -> Vec<u8> {
        let property = |value: &[u8]| described(0x74, &map(&[&[0xa1, 1, b'p'], value]));
        let long = [&[0xb3, 0, 0, 1, 0][..], &[b'x'; 256]].concat();
        match self {
            Self::Uuid => property(&[&[0x98][..], &[7; 16]].concat()),
            Self::Char => property(&[0x73, 0, 0, 0, b'x']),
            Self::ContentType => described(0x73, &list(&[&[NULL; 6][..], &[&long]].concat())),
            Self::ContentEncoding => described(0x73, &list(&[&[NULL; 7][..], &[&long]].concat())),
            Self::NotANumber => property(&[&[0x82][..], &f64::NAN.to_be_bytes()].concat()),
        }
    }
}

/// Publishes a message of this kind to an address, such as `/queues/q`, and waits until the broker has accepted it.
pub(crate) fn publish(url: &str, address: &str, kind: Untranslatable, body: &str) {
    let body = described(0x75, &[&[0xb0][..], &u32_of(body.len()), body.as_bytes()].concat());
    Sender::attach(url, address).send(&[kind.sections(), body].concat());
}

struct Sender(TcpStream);

impl Sender {
    fn attach(url: &str, address: &str) -> Self {
        let url = Url::parse(url).unwrap();
        let stream = TcpStream::connect((url.host_str().unwrap(), url.port().unwrap())).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut sender = Self(stream);
        sender.greet(3);
        sender.read(1); // the mechanisms
        let secret = [b"\0", url.username().as_bytes(), b"\0", url.password().unwrap().as_bytes()].concat();
        sender.write(1, SASL_INIT, &[&[&[0xa3, 5][..], b"PLAIN"].concat(), &binary(&secret)], &[]);
        sender.read(1); // the outcome
        sender.greet(0);
        let host = format!("vhost:{}", &url.path()[1..]);
        sender.write(0, OPEN, &[&text("a test"), &text(&host)], &[]);
        sender.until(OPEN);
        sender.write(0, BEGIN, &[NULL, &[0x43], &uint(100), &uint(100)], &[]);
        sender.until(BEGIN);
        let source = described(0x28, &list(&[]));
        let target = described(0x29, &list(&[&text(address)]));
        let attach = [&text("link")[..], &[0x43], &[0x42], NULL, NULL, &source, &target, NULL, NULL, &[0x43]];
        sender.write(0, ATTACH, &attach, &[]);
        sender.until(FLOW);
        sender
    }

    fn send(&mut self, message: &[u8]) {
        self.write(0, TRANSFER, &[&[0x43], &[0x43], &binary(b"1"), &[0x43], &[0x42]], message);
        let outcome = self.until(DISPOSITION);
        assert!(outcome.windows(3).any(|bytes| bytes == [0, 0x53, ACCEPTED]), "{outcome:?}");
    }

    fn greet(&mut self, protocol: u8) {
        let greeting = [b'A', b'M', b'Q', b'P', protocol, 1, 0, 0];
        self.0.write_all(&greeting).unwrap();
        let mut answer = [0; 8];
        self.0.read_exact(&mut answer).unwrap();
        assert_eq!(answer, greeting);
    }

    fn write(&mut self, kind: u8, code: u8, fields: &[&[u8]], payload: &[u8]) {
        let content = [&described(code, &list(fields))[..], payload].concat();
        let frame = [&u32_of(content.len() + 8)[..], &[2, kind, 0, 0], &content].concat();
        self.0.write_all(&frame).unwrap();
    }

    /// Reads a frame of this kind, and returns its content.
    fn read(&mut self, kind: u8) -> Vec<u8> {
        let mut head = [0; 8];
        self.0.read_exact(&mut head).unwrap();
        assert_eq!(head[4..6], [2, kind]);
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let mut content = vec![0; usize::try_from(length).unwrap() - 8];
        self.0.read_exact(&mut content).unwrap();
        content
    }

    /// Reads frames up to the first one with this code.
    fn until(&mut self, code: u8) -> Vec<u8> {
        const ENDS: [u8; 3] = [0x16, 0x17, 0x18];
        loop {
            let content = self.read(0);
            assert!(!ENDS.contains(&content[2]), "{}", String::from_utf8_lossy(&content));
            if content[2] == code {
                return content;
            }
        }
    }
}

fn u32_of(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap().to_be_bytes()
}

fn text(text: &str) -> Vec<u8> {
    [&[0xa1, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
}

fn binary(bytes: &[u8]) -> Vec<u8> {
    [&[0xa0, u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

fn uint(number: u32) -> Vec<u8> {
    [&[0x70][..], &number.to_be_bytes()].concat()
}

fn described(code: u8, value: &[u8]) -> Vec<u8> {
    [&[0, 0x53, code], value].concat()
}

fn list(fields: &[&[u8]]) -> Vec<u8> {
    compound(0xd0, fields)
}

fn map(keys_and_values: &[&[u8]]) -> Vec<u8> {
    compound(0xd1, keys_and_values)
}

fn compound(code: u8, items: &[&[u8]]) -> Vec<u8> {
    let content = items.concat();
    [&[code][..], &u32_of(content.len() + 4), &u32_of(items.len()), &content].concat()
}
