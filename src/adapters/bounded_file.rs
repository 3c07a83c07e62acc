//! Reads files that the user names, up to a size limit, because a device or a pipe may have no end.

use std::{
    fs::File,
    io::{self, ErrorKind, Read},
    path::Path,
};

/// The limit for a URL, a certificate or a key, in MiB. The CA certificates of a whole system take a quarter of it.
pub const SMALL: u32 = 1;

/// Reads a file of at most `mebibytes` MiB.
///
/// # Errors
/// When the file cannot be read, or is larger.
pub fn read(path: impl AsRef<Path>, mebibytes: u32) -> io::Result<Vec<u8>> {
    let too_large = || format!("it has more than {mebibytes} MiB");
    read_to_end(File::open(path)?, u64::from(mebibytes) << 20, too_large)
}

/// Whether a file can be read a second time: a pipe, as of a shell's `<(...)`, would block for ever. A file that is gone can:
/// reading it says so.
pub fn may_change(path: impl AsRef<Path>) -> bool {
    std::fs::metadata(path).map_or(true, |found| found.is_file())
}

/// Reads the whole input, which may have at most `most` bytes.
///
/// # Errors
/// When the input cannot be read, or is larger. The error of an input that is too large has the text `too_large`.
pub fn read_to_end(input: impl Read, most: u64, too_large: impl FnOnce() -> String) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = input.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if read as u64 > most {
        return Err(io::Error::new(ErrorKind::FileTooLarge, too_large()));
    }
    Ok(bytes)
}

/// Reads a text file of at most `mebibytes` MiB.
///
/// # Errors
/// When the file cannot be read, is larger, or is not UTF-8.
pub fn read_text(path: impl AsRef<Path>, mebibytes: u32) -> io::Result<String> {
    let text = String::from_utf8(read(path, mebibytes)?);
    text.map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, vec![b'x'; 1 << 20]).expect("written");
        assert_eq!(read(&path, 1).expect("it is not too large").len(), 1 << 20);
        let endless = read("/dev/zero", 1).expect_err("it has no end").to_string();
        assert_eq!(endless, "it has more than 1 MiB");
    }

    #[test]
    fn a_text_is_utf_8() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, b"a\xff").expect("written");
        assert_eq!(read_text(&path, 1).expect_err("it is no text").to_string(), "it is not UTF-8");
    }
}
