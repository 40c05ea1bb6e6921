//! A console of one's own, its owner, its runner, and a home for whoever speaks to it.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lab::cli::{self, Said};
use lab::wait::eventually;
use runner::sealed::OwnKey;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A console, gone with its test.
pub struct Console {
    /// Everything of it, and a home.
    pub folder: TempDir,
    /// Where it answers.
    pub port: u16,
    child: Child,
    cookie: String,
    /// The owner's workspace.
    pub workspace: String,
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An answer of the API.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub json: Value,
}

/// One request as a program without any library makes it.
pub fn ask(
    port: u16,
    method: &str,
    path: &str,
    headers: &str,
    body: Option<&Value>,
) -> Option<Answer> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream
        .set_read_timeout(Some(Duration::from_secs(40)))
        .ok()?;
    let body = body.map_or_else(String::new, Value::to_string);
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n{headers}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer {
        status,
        head: head.to_owned(),
        json: serde_json::from_str(body).unwrap_or(Value::Null),
    })
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("its address")
        .port()
}

impl Console {
    /// Started, with its first owner signed in.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let port = free_port();
        let at = folder.path().display();
        let text = format!(
            "gateway: {{ state_dir: {at}/gateway, run_dir: {at}/run }}\n\
             console: {{ listen: \"127.0.0.1:{port}\", state_dir: {at}/state }}\n"
        );
        let config = folder.path().join("config.yml");
        fs::write(&config, text).expect("write");
        fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).expect("mode");
        let mut this = Self {
            child: spawn(folder.path()),
            folder,
            port,
            cookie: String::new(),
            workspace: String::new(),
        };
        this.await_ready();
        this.claim();
        this
    }

    fn await_ready(&self) {
        eventually("the console to answer", || {
            ask(self.port, "GET", "/api/v1", "", None).filter(|answer| answer.status == 200)
        });
    }

    fn claim(&mut self) {
        let config = self.folder.path().join("config.yml").display().to_string();
        let link = cli::sallyport(&["console", "owner-link", "--config", &config, "--json"])
            .expect(0)
            .json();
        let link = link["link"]
            .as_str()
            .and_then(|link| link.split_once("#owner="))
            .expect("a link")
            .1
            .to_owned();
        let body = json!({ "link": link, "email": "ada@example.com", "name": "Ada", "password": "a password of hers" });
        let answer = ask(self.port, "POST", "/api/v1/owner", "", Some(&body)).expect("an answer");
        assert_eq!(answer.status, 201, "{}", answer.json);
        let cookie = answer
            .head
            .lines()
            .find_map(|line| line.strip_prefix("set-cookie: "))
            .expect("a cookie");
        cookie
            .split(';')
            .next()
            .expect("its value")
            .clone_into(&mut self.cookie);
        let mine = self.owner("GET", "/api/v1/workspaces", None);
        mine["items"][0]["id"]
            .as_str()
            .expect("a workspace")
            .clone_into(&mut self.workspace);
    }

    /// Kills it and starts it again on the same store.
    pub fn restart(&mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
        self.child = spawn(self.folder.path());
        self.await_ready();
    }

    /// What its owner asks, signed in by a browser.
    pub fn owner(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let answer = self.try_owner(method, path, body);
        assert!(
            answer.status < 300,
            "{method} {path}: {} {}",
            answer.status,
            answer.json
        );
        answer.json
    }

    /// The same, refused or not.
    pub fn try_owner(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        ask(
            self.port,
            method,
            path,
            &format!("cookie: {}\r\n", self.cookie),
            body,
        )
        .expect("an answer")
    }

    /// A path of the owner's workspace.
    pub fn path(&self, rest: &str) -> String {
        format!("/api/v1/workspaces/{}/{rest}", self.workspace)
    }

    /// A fresh API token.
    pub fn token(&self, scope: &str) -> String {
        let made = self.owner(
            "POST",
            &self.path("tokens"),
            Some(&json!({ "name": "t", "scope": scope })),
        );
        made["token"].as_str().expect("a token").to_owned()
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// A command of somebody whose home is in the console's folder and who has a token that may write.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.stranger(arguments);
        command
            .env("SALLYPORT_URL", self.url())
            .env("SALLYPORT_TOKEN", self.token("write"));
        command
    }

    /// A command of somebody who has nothing but a home.
    pub fn stranger(&self, arguments: &[&str]) -> Command {
        at_home(self.folder.path(), arguments)
    }

    /// Runs it to its end.
    pub fn run(&self, arguments: &[&str]) -> Said {
        self.command(arguments).output().expect("start").into()
    }

    /// A runner of this console, which a test plays.
    pub fn runner(&self) -> Runner {
        let made = self.owner("POST", "/api/v1/runners", Some(&json!({ "name": "r" })));
        let runner = Runner {
            port: self.port,
            token: made["token"].as_str().expect("a token").to_owned(),
        };
        let key = OwnKey::fresh().expect("a key");
        let hello = json!({ "version": "1", "session": "one", "key": key.public().text(), "engine": "x",
            "isolation": ["hardened"], "most": 2 });
        assert_eq!(runner.ask("hello", &hello).status, 200);
        runner
    }
}

fn spawn(folder: &Path) -> Child {
    let config = folder.join("config.yml").display().to_string();
    let log = fs::File::options()
        .create(true)
        .append(true)
        .open(folder.join("log"))
        .expect("a log");
    cli::command(&["console", "--config", &config])
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("start the console")
}

/// A command with a home in a folder and nothing else of this machine's settings.
pub fn at_home(folder: &Path, arguments: &[&str]) -> Command {
    let home = folder.join("home");
    fs::create_dir_all(&home).expect("a home");
    let mut command = cli::command(arguments);
    command
        .env("HOME", home)
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("SALLYPORT_URL")
        .env_remove("SALLYPORT_TOKEN");
    command
}

/// A runner that a test plays.
pub struct Runner {
    port: u16,
    token: String,
}

impl Runner {
    fn ask(&self, verb: &str, body: &Value) -> Answer {
        let headers = format!(
            "authorization: Bearer {}\r\nsallyport-session: one\r\n",
            self.token
        );
        ask(
            self.port,
            "POST",
            &format!("/runner/v1/{verb}"),
            &headers,
            Some(body),
        )
        .expect("an answer")
    }

    /// Takes the next run and begins it.
    pub fn take(&self) -> Work<'_> {
        let claimed = eventually("a run to take", || {
            Some(self.ask("claim", &json!({ "holding": [] }))).filter(|answer| answer.status == 200)
        });
        let run = claimed.json["run"].as_str().expect("a run").to_owned();
        let work = Work {
            runner: self,
            run,
            fence: claimed.json["fence"].clone(),
            job: claimed.json.clone(),
        };
        assert_eq!(work.ask("begin", json!({})).status, 200);
        let step = json!([{ "seq": 1, "at": 5, "kind": "started", "data": { "image": "i" } }]);
        assert_eq!(
            work.ask("tell", json!({ "starts": 0, "output": [], "steps": step }))
                .status,
            200
        );
        work
    }
}

/// A run that was taken.
pub struct Work<'a> {
    runner: &'a Runner,
    /// Its id.
    pub run: String,
    fence: Value,
    /// What the runner was given.
    pub job: Value,
}

impl Work<'_> {
    fn ask(&self, verb: &str, mut body: Value) -> Answer {
        body["fence"] = self.fence.clone();
        self.runner.ask(&format!("runs/{}/{verb}", self.run), &body)
    }

    /// Prints something; `starts`: the number of its first byte.
    pub fn print(&self, starts: usize, error: bool, bytes: &[u8]) {
        let piece = json!({ "error": error, "at": 5, "data": STANDARD.encode(bytes) });
        let told = self.ask("tell", json!({ "starts": starts, "output": [piece] }));
        assert_eq!(told.status, 200, "{}", told.json);
    }

    /// Prints each byte as a piece of its own.
    pub fn print_each(&self, starts: usize, bytes: &[u8]) {
        let piece =
            |byte: &u8| json!({ "error": false, "at": 5, "data": STANDARD.encode([*byte]) });
        let pieces: Vec<Value> = bytes.iter().map(piece).collect();
        let told = self.ask("tell", json!({ "starts": starts, "output": pieces }));
        assert_eq!(told.status, 200, "{}", told.json);
    }

    /// Ends it.
    pub fn end(&self, code: i32, reason: &str) {
        let end = json!({ "end": { "ended": { "code": code, "reason": reason } } });
        assert_eq!(self.ask("finish", end).status, 204);
    }
}
