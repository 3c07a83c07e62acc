//! What this thread logs, and with it a test whose tasks all run there.
//!
//! One subscriber for all threads, and a text for each: with a subscriber for each thread `tracing` may remember for all of
//! them that nobody wants a line.

use std::{
    cell::RefCell,
    io,
    sync::{Arc, Mutex, Once},
};

type Text = Arc<Mutex<Vec<u8>>>;

thread_local! {
    static HERE: RefCell<Option<Text>> = const { RefCell::new(None) };
}

/// The log of this thread, from warnings on, until this is dropped.
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

    /// The lines that have all of these texts.
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

/// Where a line goes: nowhere, unless somebody captures the log here.
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
