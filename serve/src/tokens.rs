//! The tokens: a file with a line for each, with its name, its hash and what its holder may do.
//!
//! A token is random and as long as its hash, so SHA-256 alone keeps it secret: there is nothing to guess that a slow hash would
//! protect, and each request pays for the hash.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError, RwLock},
};

use axum::http::StatusCode;
use hatchery::{EventType, Topology, UnknownType};
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use subtle::ConstantTimeEq as _;

use crate::problem::Problem;

/// Whom the server answers. Copies are of the same tokens.
#[derive(Clone)]
pub struct Tokens(Arc<RwLock<Vec<Arc<Token>>>>);

/// A token's hash, and what its holder may do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Token {
    name: String,
    hash: [u8; SHA256_OUTPUT_LEN],
    rights: Rights,
}

/// What a holder may do.
#[derive(Debug, Default, PartialEq, Eq)]
struct Rights {
    read: bool,
    publish: Publish,
    operate: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Publish {
    #[default]
    Nothing,
    Types(BTreeSet<EventType>),
    All,
}

/// What an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// Nothing: not even a token.
    None,
    /// A token, whatever it may.
    Token,
    Read,
    /// To publish events of some type.
    Publish,
    Operate,
}

/// A line of the file is no token. The text of the line is not repeated, because somebody may have put the token itself there.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {cause}")]
pub struct TokensError {
    /// The number of the line, from 1.
    pub line: usize,
    cause: Cause,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Cause {
    #[error(
        "write a name, the SHA-256 of the token in 64 hexadecimal digits, and rights, such as `shop 9f86… publish:mail`"
    )]
    Fields,
    #[error("the second word is not a SHA-256 in 64 hexadecimal digits; the token itself does not belong here")]
    Hash,
    #[error("a right is none of `read`, `publish`, `publish:TYPE` and `operate`; commas separate them")]
    Right,
    #[error(transparent)]
    UnknownType(UnknownType),
    #[error("an earlier line has this name or this token")]
    Twice,
}

impl Tokens {
    /// Reads the text of a file. Blank lines, and lines that begin with `#`, mean nothing: a text of these alone has no token, and nobody is
    /// answered.
    ///
    /// # Errors
    /// When a line is no token, names a type that is not in the topology, or repeats a name or a token.
    ///
    /// ```
    /// use hatchery_serve::Tokens;
    ///
    /// let topology = hatchery::file::read("version: 1\nname: shop\ntypes: { mail: {} }", "topology.yaml")?;
    /// let hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    /// Tokens::read(&format!("till {hash} publish:mail,read"), &topology)?;
    /// let error = Tokens::read("till s3cret read", &topology).err().expect("no hash");
    /// assert!(error.to_string().starts_with("line 1: the second word is not a SHA-256"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read(text: &str, topology: &Topology) -> Result<Self, TokensError> {
        let mut tokens: Vec<Arc<Token>> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |cause| TokensError { line: at + 1, cause };
            let token = token(line, topology).map_err(wrong)?;
            if tokens.iter().any(|other| other.name == token.name || other.hash == token.hash) {
                return Err(wrong(Cause::Twice));
            }
            tokens.push(Arc::new(token));
        }
        Ok(Self(Arc::new(RwLock::new(tokens))))
    }

    /// Answers those of other tokens from now on, and nobody else.
    pub fn replace(&self, by: &Self) {
        let tokens = by.all();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = tokens;
    }

    /// Returns whether these are the tokens.
    #[must_use]
    pub fn are(&self, other: &Self) -> bool {
        self.all() == other.all()
    }

    /// Returns whether there is no token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    fn all(&self) -> Vec<Arc<Token>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether this token is among them, with the same rights.
    pub(crate) fn has(&self, token: &Token) -> bool {
        self.all().iter().any(|known| **known == *token)
    }

    /// Returns the token that this text is. Every hash is compared to its end, so that the time tells nothing about any of them.
    pub(crate) fn find(&self, text: &str) -> Option<Arc<Token>> {
        let hash = digest(&SHA256, text.as_bytes());
        let is_it = |token: &&Arc<Token>| bool::from(token.hash.ct_eq(hash.as_ref()));
        self.all().iter().filter(is_it).fold(None, |found, token| found.or(Some(token))).cloned()
    }
}

fn token(line: &str, topology: &Topology) -> Result<Token, Cause> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, hash, rights] = words[..] else { return Err(Cause::Fields) };
    Ok(Token { name: name.to_owned(), hash: bytes(hash).ok_or(Cause::Hash)?, rights: read(rights, topology)? })
}

fn bytes(hexadecimal: &str) -> Option<[u8; SHA256_OUTPUT_LEN]> {
    let mut bytes = [0; SHA256_OUTPUT_LEN];
    let is_hexadecimal = hexadecimal.bytes().all(|digit| digit.is_ascii_hexdigit());
    if !is_hexadecimal || hexadecimal.len() != 2 * bytes.len() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hexadecimal.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

fn read(text: &str, topology: &Topology) -> Result<Rights, Cause> {
    let mut rights = Rights::default();
    for word in text.split(',') {
        match word.split_once(':') {
            None if word == "read" => rights.read = true,
            None if word == "operate" => rights.operate = true,
            None if word == "publish" => rights.publish = Publish::All,
            Some(("publish", name)) => {
                let types = &topology.types;
                let unknown = || Cause::UnknownType(UnknownType::among(name, types.keys()));
                let (event_type, _) = types.get_key_value(name).ok_or_else(unknown)?;
                rights.publish = match rights.publish {
                    Publish::All => Publish::All,
                    Publish::Nothing => Publish::Types([event_type.clone()].into()),
                    Publish::Types(mut types) => {
                        types.insert(event_type.clone());
                        Publish::Types(types)
                    }
                };
            }
            _ => return Err(Cause::Right),
        }
    }
    Ok(rights)
}

/// Who sent a request: the holder of a token, or with `None` somebody on this machine, who may do everything.
#[derive(Clone, Debug)]
pub(crate) struct Caller(pub(crate) Option<Arc<Token>>);

impl Caller {
    /// Fails unless the caller has this right.
    pub(crate) fn may(&self, right: Right) -> Result<(), Problem> {
        let Some(token) = &self.0 else { return Ok(()) };
        let (has, what) = match right {
            Right::None | Right::Token => (true, ""),
            Right::Read => (token.rights.read, "read"),
            Right::Publish => (token.rights.publish != Publish::Nothing, "publish"),
            Right::Operate => (token.rights.operate, "operate"),
        };
        if has { Ok(()) } else { Err(token.refused(what)) }
    }

    /// Returns the name of the token, and its rights as the file writes them.
    pub(crate) fn describe(&self) -> (Option<&str>, Vec<String>) {
        let Some(token) = &self.0 else { return (None, ["read", "publish", "operate"].map(str::to_owned).into()) };
        let Rights { read, publish, operate } = &token.rights;
        let mut rights = Vec::new();
        rights.extend(read.then(|| "read".to_owned()));
        match publish {
            Publish::Nothing => {}
            Publish::All => rights.push("publish".to_owned()),
            Publish::Types(types) => rights.extend(types.iter().map(|name| format!("publish:{name}"))),
        }
        rights.extend(operate.then(|| "operate".to_owned()));
        (Some(&token.name), rights)
    }

    /// Fails unless the caller may publish events of this type. A type that is not in the file is none that a token can name.
    pub(crate) fn may_publish(&self, event_type: &str) -> Result<(), Problem> {
        let Some(token) = &self.0 else { return Ok(()) };
        match &token.rights.publish {
            Publish::All => Ok(()),
            Publish::Types(types) if types.iter().any(|known| known.as_str() == event_type) => Ok(()),
            Publish::Types(_) => Err(token.refused("publish events of this type")),
            Publish::Nothing => Err(token.refused("publish")),
        }
    }
}

impl Token {
    fn refused(&self, what: &str) -> Problem {
        Problem::new(StatusCode::FORBIDDEN, format!("the token `{}` may not {what}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// The SHA-256 of `test`.
    const HASH: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    fn topology() -> Topology {
        let text = "version: 1\nname: t\ntypes: { mail: {}, import: {} }";
        hatchery::file::read(text, "topology.yaml").expect("a topology")
    }

    fn caller(rights: &str) -> Caller {
        let tokens = Tokens::read(&format!("# the shop\n\n  shop {HASH} {rights}\n"), &topology()).expect("a token");
        Caller(Some(tokens.find("test").expect("it is known")))
    }

    #[rstest]
    #[case("read", [true, false, false], [false, false])]
    #[case("publish", [false, true, false], [true, true])]
    #[case("publish:mail", [false, true, false], [true, false])]
    #[case("publish:mail,publish:import", [false, true, false], [true, true])]
    #[case("publish,publish:mail", [false, true, false], [true, true])]
    #[case("publish:mail,publish", [false, true, false], [true, true])]
    #[case("operate", [false, false, true], [false, false])]
    #[case("read,operate,publish", [true, true, true], [true, true])]
    fn a_token_gives_the_rights_of_its_line_and_no_other(
        #[case] rights: &str,
        #[case] operations: [bool; 3],
        #[case] types: [bool; 2],
    ) {
        let caller = caller(rights);
        let may = [Right::Read, Right::Publish, Right::Operate].map(|right| caller.may(right).is_ok());
        assert_eq!(may, operations);
        assert_eq!(["mail", "import"].map(|name| caller.may_publish(name).is_ok()), types);
        assert!(caller.may(Right::None).is_ok() && caller.may(Right::Token).is_ok());
    }

    #[rstest]
    #[case("publish:mail,operate,publish:import", &["publish:import", "publish:mail", "operate"])]
    #[case("publish,read", &["read", "publish"])]
    fn a_token_says_what_its_holder_may_in_the_words_of_the_file(#[case] rights: &str, #[case] expected: &[&str]) {
        let caller = caller(rights);
        let (name, rights) = caller.describe();
        assert_eq!((name, rights.iter().map(String::as_str).collect::<Vec<_>>()), (Some("shop"), expected.to_vec()));
    }

    #[test]
    fn somebody_on_this_machine_may_do_everything_without_tokens() {
        let here = Caller(None);
        assert!(here.may(Right::Operate).is_ok() && here.may_publish("mail").is_ok());
    }

    #[rstest]
    #[case("shop", "line 1: write a name, the SHA-256")]
    #[case("shop HASH read operate", "line 1: write a name, the SHA-256")]
    #[case("shop s3cret read", "line 1: the second word is not a SHA-256")]
    #[case("shop ä9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a read", "line 1: the second word is")]
    #[case("shop +f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 read", "line 1: the second word is")]
    #[case("shop HASH write", "line 1: a right is none of")]
    #[case("shop HASH read,", "line 1: a right is none of")]
    #[case("shop HASH read:mail", "line 1: a right is none of")]
    #[case("\nshop HASH publish:mial", "line 2: there is no type `mial` in the file; is it `mail`?")]
    #[case("shop HASH read\ntill HASH read", "line 2: an earlier line has this name or this token")]
    fn a_line_that_is_no_token_is_named_and_not_repeated(#[case] text: &str, #[case] expected: &str) {
        let Err(error) = Tokens::read(&text.replace("HASH", HASH), &topology()) else { panic!("it is accepted") };
        let said = error.to_string();
        assert!(said.starts_with(expected) && !said.contains("s3cret"), "{said}");
    }

    #[rstest]
    #[case("")]
    #[case("\n# shop HASH read\n")]
    fn a_file_of_blank_lines_and_comments_has_no_token(#[case] text: &str) {
        let tokens = Tokens::read(&text.replace("HASH", HASH), &topology()).expect("no line is wrong");
        assert!(tokens.is_empty() && tokens.find("test").is_none());
    }

    #[rstest]
    #[case("test", true)]
    #[case("", false)]
    #[case("test ", false)]
    #[case(HASH, false)]
    fn a_token_is_found_by_itself_and_not_by_its_hash(#[case] text: &str, #[case] expected: bool) {
        let tokens = Tokens::read(&format!("shop {HASH} read"), &topology()).expect("a token");
        assert_eq!(tokens.find(text).is_some(), expected);
    }
}
