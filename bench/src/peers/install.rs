//! Installs the peers: copies `bench/peers` into a folder that git ignores, with the packages beside the programs.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use hatchery_soak::console::Console;
use tokio::process::Command;

/// The programs, and the files with the exact versions of their packages.
const SOURCE: &str = "bench/peers";
const FOLDER: &str = ".services/peers";
/// The files that say which packages are needed.
const PINS: [&str; 3] = ["package.json", "package-lock.json", "requirements.txt"];
/// Has the content of [`PINS`] once the packages are installed.
const STAMP: &str = "installed";

pub(super) struct Installed {
    folder: PathBuf,
}

impl Installed {
    /// Copies the programs, and installs the packages if they are not there in these versions.
    pub(super) async fn new(console: &Console) -> anyhow::Result<Self> {
        fs::create_dir_all(FOLDER).with_context(|| format!("cannot create {FOLDER}"))?;
        let folder = Path::new(FOLDER).canonicalize()?;
        let entries =
            fs::read_dir(SOURCE).with_context(|| format!("{SOURCE}; run this from the repository's folder"))?;
        for entry in entries {
            let file = entry?.path();
            // Python's cache is a folder.
            if let (true, Some(name)) = (file.is_file(), file.file_name()) {
                fs::copy(&file, folder.join(name))?;
            }
        }
        let installed = Self { folder };
        let pins = PINS
            .map(|file| fs::read_to_string(installed.folder.join(file)))
            .into_iter()
            .collect::<Result<String, _>>()?;
        let stamp = installed.folder.join(STAMP);
        if fs::read_to_string(&stamp).is_ok_and(|text| text == pins) {
            console.note(&format!("{FOLDER} has them already"));
        } else {
            installed.install().await?;
            fs::write(stamp, pins)?;
        }
        Ok(installed)
    }

    async fn install(&self) -> anyhow::Result<()> {
        // None of the packages needs its install script.
        self.call("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).await?;
        self.call("python3", ["-m", "venv", "--clear", "venv"]).await?;
        let pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"];
        self.call(self.python(), pip.into_iter().chain(["--requirement", "requirements.txt"])).await
    }

    async fn call<'a>(
        &self,
        program: impl AsRef<OsStr>,
        arguments: impl IntoIterator<Item = &'a str>,
    ) -> anyhow::Result<()> {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.folder).kill_on_drop(true);
        let text = format!("{:?}", command.as_std());
        let needs = || format!("{text}; --peers needs node 20 with npm, and Python 3.11 with venv");
        let output = command.output().await.with_context(needs)?;
        ensure!(output.status.success(), "{}: {}", needs(), String::from_utf8_lossy(&output.stderr).trim());
        Ok(())
    }

    /// Returns the command that runs one of the programs.
    pub(super) fn command(&self, program: &str) -> Command {
        let is_python = Path::new(program).extension() == Some(OsStr::new("py"));
        let mut command = if is_python { Command::new(self.python()) } else { Command::new("node") };
        command.arg(self.folder.join(program)).current_dir(&self.folder);
        command
    }

    fn python(&self) -> PathBuf {
        self.folder.join("venv/bin/python")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_pin_names_the_host_of_a_registry() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(SOURCE);
        for file in PINS {
            let text = fs::read_to_string(folder.join(file)).unwrap();
            assert!(!["\"resolved\"", "index-url"].iter().any(|word| text.contains(word)), "{file}");
        }
    }
}
