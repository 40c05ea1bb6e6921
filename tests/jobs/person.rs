//! Somebody who uses the console's API from the uplink of a lab: its first owner.

use std::process::Output;

use lab::cli::Said;
use serde_json::{Value, json};

use crate::world::Here;

const API: &str = "http://127.0.0.1:8420/api/v1";

/// See the module.
#[derive(Debug)]
pub struct Person<'a> {
    lab: &'a Here,
    /// Their own workspace.
    pub workspace: String,
}

/// The text at a JSON pointer.
pub fn text(value: &Value, at: &str) -> String {
    let found = value.pointer(at).and_then(Value::as_str);
    found.expect("a text in the answer").to_owned()
}

impl<'a> Person<'a> {
    /// Becomes the owner by a fresh link, and finds their workspace.
    pub fn first(lab: &'a Here) -> Self {
        let config = lab.directory().join("config.yml").display().to_string();
        let mut command = lab.command(&["console", "owner-link", "--config", &config]);
        command.stdout(std::process::Stdio::piped());
        let child = lab.topology.uplink.start(&mut command).expect("start");
        let said: Said = child.wait_with_output().expect("it ends").into();
        let said = said.expect(0);
        let link = said.out.trim().rsplit_once("#owner=").expect("a link").1;
        let mut person = Self {
            lab,
            workspace: String::new(),
        };
        let owner = json!({ "link": link, "email": "ada@example.com", "name": "Ada", "password": "a long password" });
        person.post("/owner", &owner);
        person.workspace = text(&person.get("/workspaces"), "/items/0/id");
        person
    }

    fn curl(&self, arguments: &[&str]) -> Output {
        let jar = self.lab.directory().join("jar").display().to_string();
        let mut all = vec![
            "curl",
            "-sS",
            "--fail-with-body",
            "-m",
            "30",
            "-b",
            &jar,
            "-c",
            &jar,
        ];
        all.extend_from_slice(arguments);
        self.lab.topology.uplink.exec(&all)
    }

    fn asked(&self, arguments: &[&str]) -> Vec<u8> {
        // a console that was killed comes back
        let patient = ["--retry", "30", "--retry-delay", "1", "--retry-connrefused"];
        let output = self.curl(&[&patient, arguments].concat());
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        output.stdout
    }

    /// An answer's bytes.
    pub fn bytes(&self, path: &str) -> Vec<u8> {
        self.asked(&[&format!("{API}{path}")])
    }

    /// An answer.
    pub fn get(&self, path: &str) -> Value {
        serde_json::from_slice(&self.bytes(path)).expect("JSON")
    }

    /// What was made.
    pub fn post(&self, path: &str, body: &Value) -> Value {
        let (url, body) = (format!("{API}{path}"), body.to_string());
        let made = self.asked(&["-H", "content-type: application/json", "-d", &body, &url]);
        serde_json::from_slice(&made).expect("JSON")
    }

    /// What the event stream says of topics from its beginning, for some seconds.
    pub fn events(&self, topics: &str, seconds: u32) -> String {
        let url = format!("{API}/events?after=0&topics={topics}");
        let output = self.curl(&["-N", "-m", &seconds.to_string(), &url]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A path in the workspace.
    pub fn within(&self, path: &str) -> String {
        format!("/workspaces/{}{path}", self.workspace)
    }
}
