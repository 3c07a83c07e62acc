//! Runs a page of the documentation as a reader would: writes its files, and runs its commands one after the other in one
//! shell.
//!
//! - A block after a paragraph that ends with a colon is the file that the paragraph names first, in backquotes and with a dot.
//! - A `console` block has commands after `$ `, each followed by what it prints. `…` stands for any text of a line, and alone
//!   for any lines. A command ends with 0 unless the page says `# exits with N`.
//! - A command that only looks is repeated until it prints what the page says.
//! - The page's broker, the one of a fresh installation, stands for the virtual host of the test. The ports 8080 and 8081 stand
//!   for free ones.

use std::{
    fs, iter,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use fancy_regex::Regex;
use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use super::{
    broker::{PATIENCE, VirtualHost},
    held::Held,
    process::python,
    redis,
};

/// The commands that change nothing, and so may be repeated.
const LOOKS: [&str; 10] = [
    "cat ",
    "tail ",
    "topology status",
    "topology events list",
    "topology events show",
    "topology schedule list",
    "topology schedule show",
    "topology dead-letter list",
    "topology dead-letter show",
    "topology plan",
];

/// One thing that a reader does.
enum Step {
    Write { name: String, content: String },
    Run { command: String, prints: Vec<String> },
}

impl Step {
    /// Returns whether this is a command that begins so, with the lines that it prints.
    fn begins_with(&self, text: &str) -> bool {
        match self {
            Self::Write { .. } => false,
            Self::Run { command, prints } => format!("{command}\n{}\n", prints.join("\n")).starts_with(text),
        }
    }
}

/// A command of a page that a reader leaves out, or does otherwise.
pub(crate) struct Otherwise {
    /// The beginning of the command and of the lines that it prints.
    pub(crate) command: &'static str,
    /// The commands in its place, as in a block. Empty if it is left out.
    pub(crate) instead: &'static str,
    /// The reason.
    pub(crate) why: &'static str,
}

/// Does what a page says on a broker and a Redis with nothing on them. Panics with the command that does not do what the page
/// says it does.
pub(crate) async fn follow(page: &str) {
    Reader::new(&VirtualHost::new(), redis::url()).follow(page).await;
}

/// Returns a page of the documentation by its path in the project.
pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(format!("{}/../{path}", env!("CARGO_MANIFEST_DIR")))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Somebody who follows pages, with a broker, a Redis and a folder.
pub(crate) struct Reader<'a> {
    shell: Shell,
    folder: TempDir,
    /// The virtual host is deleted when it is dropped. `None` without servers.
    _host: Option<&'a VirtualHost>,
    /// The words of pages, each with the words that this reader has in their place.
    instead: Vec<(String, String)>,
    /// The broker on which `rabbitmqctl` runs.
    node: Option<&'a mut Held>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(host: &'a VirtualHost, redis: &str) -> Self {
        let management = host.management();
        let management = management.trim_end_matches('/');
        let mut reader = Self::with(Some(host), [&host.amqp(), redis, management]);
        reader.has("http://guest:guest@localhost:15672", management);
        reader.has("%2F", &host.name);
        reader
    }

    /// Returns a reader whose servers do not exist.
    pub(crate) fn without_servers() -> Self {
        Self::with(None, ["amqp://127.0.0.1:1", "redis://127.0.0.1:1", "http://127.0.0.1:1"])
    }

    /// Returns a reader with the URLs of the broker, of Redis and of the management API in the environment.
    fn with(host: Option<&'a VirtualHost>, urls: [&str; 3]) -> Self {
        let folder = TempDir::new().unwrap();
        let shell = Shell::start(folder.path(), urls);
        let mut reader = Self { shell, folder, _host: host, instead: Vec::new(), node: None };
        reader.has("python3 ", &format!("{} ", python()));
        for port in ["8080", "8081"] {
            let free = iter::repeat_with(|| redis::free_port().to_string()).find(|free| !free.contains("808"));
            reader.has(port, &free.unwrap());
        }
        reader
    }

    /// Says what this reader has in place of what pages say.
    pub(crate) fn has(&mut self, said: &str, own: &str) {
        self.instead.push((said.to_owned(), own.to_owned()));
    }

    /// Says where the `rabbitmqctl` of pages runs.
    pub(crate) fn rules(&mut self, node: &'a mut Held) {
        self.node = Some(node);
    }

    pub(crate) fn writes(&self, name: &str, content: &str) {
        fs::write(self.folder.path().join(name), content).unwrap();
    }

    /// Runs a command that is no part of a page, and that has to end with 0.
    pub(crate) async fn runs(&mut self, command: &str) {
        self.shell.does(command, &["…".to_owned()]).await;
    }

    pub(crate) async fn follow(&mut self, page: &str) {
        self.follow_otherwise(page, &[]).await;
    }

    /// Follows a page, and does some of its commands otherwise. Panics if the page lacks one of them.
    pub(crate) async fn follow_otherwise(&mut self, page: &str, otherwise: &[Otherwise]) {
        let mut missing: Vec<&Otherwise> = otherwise.iter().collect();
        for step in steps(page) {
            let Some(other) = otherwise.iter().find(|other| step.begins_with(other.command)) else {
                self.does(step).await;
                continue;
            };
            missing.retain(|it| it.command != other.command);
            for step in commands(other.instead) {
                self.does(step).await;
            }
        }
        let missing: Vec<_> = missing.iter().map(|other| (other.command, other.why)).collect();
        assert!(missing.is_empty(), "the page has no such commands: {missing:#?}");
    }

    async fn does(&mut self, step: Step) {
        match step {
            Step::Write { name, content } => self.writes(&name, &self.own(&content)),
            Step::Run { command, prints } => {
                let (command, prints) =
                    (self.own(&command), prints.iter().map(|line| self.own(line)).collect::<Vec<_>>());
                match (command.strip_prefix("rabbitmqctl "), &mut self.node) {
                    (Some(arguments), Some(node)) => {
                        let printed = node.ctl(&shlex::split(arguments).unwrap().join(" ")).await.join("\n");
                        assert!(pattern(&prints).is_match(&printed).unwrap(), "`{command}` printed:\n{printed}");
                    }
                    _ => self.shell.does(&command, &prints).await,
                }
            }
        }
    }

    fn own(&self, text: &str) -> String {
        self.instead.iter().fold(text.to_owned(), |text, (said, own)| text.replace(said, own))
    }
}

/// Returns the steps of a page in their order.
fn steps(page: &str) -> Vec<Step> {
    let (mut steps, mut paragraph, mut file) = (Vec::new(), String::new(), None::<String>);
    let mut block: Option<(String, String)> = None;
    for event in Parser::new(page) {
        match event {
            Event::Start(Tag::Paragraph) => (paragraph, file) = (String::new(), None),
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                block = Some((language.into_string(), String::new()));
            }
            Event::End(TagEnd::CodeBlock) => {
                let Some((language, content)) = block.take() else { continue };
                if language == "console" {
                    steps.extend(commands(&content));
                } else if let Some(name) = file.take().filter(|name| name.contains('.') && paragraph.ends_with(':')) {
                    steps.push(Step::Write { name, content });
                }
                paragraph.clear();
            }
            Event::Code(code) => {
                paragraph += &code;
                file.get_or_insert_with(|| code.into_string());
            }
            Event::Text(text) => match &mut block {
                Some((_, content)) => *content += &text,
                None => paragraph += &text,
            },
            _ => {}
        }
    }
    steps
}

fn commands(block: &str) -> Vec<Step> {
    let mut commands: Vec<Step> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push(Step::Run { command: command.to_owned(), prints: Vec::new() }),
            (None, Some(Step::Run { prints, .. })) => prints.push(line.to_owned()),
            _ => panic!("a line before the first command: {line}"),
        }
    }
    commands
}

/// A shell with the test's servers in its environment.
struct Shell {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Shell {
    fn start(folder: &Path, [amqp, redis, management]: [&str; 3]) -> Self {
        let programs = Path::new(env!("CARGO_BIN_EXE_topology")).parent().unwrap();
        let mut child = Command::new("bash")
            .current_dir(folder)
            .env_clear()
            .env("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default()))
            .env("AMQP_URL", amqp)
            .env("REDIS_URL", redis)
            .env("RABBITMQ_MANAGEMENT_URL", management)
            .env("LANG", "C.UTF-8")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, stdin, lines: BufReader::new(stdout).lines() }
    }

    /// Runs a command, and expects that it prints this and ends as the page says.
    async fn does(&mut self, command: &str, prints: &[String]) {
        let code = command.split_once("# exits with ").map_or(0, |(_, code)| code.trim().parse().unwrap());
        let (expected, limit) = (pattern(prints), Instant::now() + PATIENCE);
        let looks = LOOKS.iter().any(|look| command.starts_with(look));
        loop {
            let (ended, printed) = self.run(command).await;
            if ended == code && expected.is_match(&printed).unwrap() {
                return;
            }
            assert!(
                looks && Instant::now() < limit,
                "`{command}` ends with {code} and prints:\n{}\nIt ended with {ended} and printed:\n{printed}",
                prints.join("\n")
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Runs a command. Returns its exit code and what it printed, with single spaces.
    async fn run(&mut self, command: &str) -> (i32, String) {
        const END: &str = "the command has ended with ";
        // The last command may have printed no end of line.
        let script = format!("{{ {command}\n}} 2>&1 </dev/null; printf '\\n{END}%s\\n' $?\n");
        self.stdin.write_all(script.as_bytes()).await.unwrap();
        let mut printed = Vec::new();
        let ended = tokio::time::timeout(PATIENCE, async {
            loop {
                let line = self.lines.next_line().await.unwrap().expect("the shell goes on");
                match line.strip_prefix(END) {
                    Some(code) => return code.parse().unwrap(),
                    // Readers have a newer broker, about which there is nothing to warn.
                    None if line.starts_with("warning: RabbitMQ 3.") => {}
                    None => printed.push(single_spaces(&line)),
                }
            }
        });
        let ended = ended.await.unwrap_or_else(|_| panic!("`{command}` did not end in time: {printed:#?}"));
        (ended, printed.join("\n").trim_end().to_owned())
    }
}

/// Ends what the page has left running.
impl Drop for Shell {
    fn drop(&mut self) {
        if let Some(group) = self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).unwrap())) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

fn single_spaces(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the pattern of what a command prints.
fn pattern(prints: &[String]) -> Regex {
    let lines = prints.iter().map(|line| single_spaces(line));
    let lines: String = lines
        .map(|line| match line.as_str() {
            "…" => "(?:.*(?:\\n|$))*".to_owned(),
            line => fancy_regex::escape(line).replace('…', ".*") + "(?:\\n|$)",
        })
        .collect();
    Regex::new(&format!("^{lines}$")).unwrap()
}
