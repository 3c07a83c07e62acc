//! Captures the log of one thread, and so of a test whose tasks all run in that thread.
//!
//! All threads share one subscriber, which writes to a text per thread. With a subscriber per thread, `tracing` may
//! cache for all threads that nobody is interested in a line.

use std::{
    cell::RefCell,
    io,
    sync::{Arc, Mutex, Once},
};

type Text = Arc<Mutex<Vec<u8>>>;

thread_local! {
    static HERE: RefCell<Option<Text>> = const { RefCell::new(None) };
}

/// The log of this thread, warnings and errors, until this value is dropped.
pub(crate) struct Logs(Text);

impl Logs {
    pub(crate) fn capture() -> Self {
        static SUBSCRIBED: Once = Once::new();
        SUBSCRIBED.call_once(|| {
            let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_ansi(false);
            let here = || Here(HERE.with_borrow(Clone::clone));
            tracing::subscriber::set_global_default(subscriber.with_writer(here).finish()).unwrap();
        });
        let text = Text::default();
        HERE.set(Some(Arc::clone(&text)));
        Self(text)
    }

    /// Returns the lines that contain all of these texts.
    pub(crate) fn with(&self, texts: &[&str]) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned();
        text.lines().filter(|line| texts.iter().all(|text| line.contains(text))).map(str::to_owned).collect()
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        HERE.set(None);
    }
}

/// The writer of one line. It discards the line unless this thread's log is captured.
struct Here(Option<Text>);

impl io::Write for Here {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(text) = &self.0 {
            text.lock().unwrap().extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
