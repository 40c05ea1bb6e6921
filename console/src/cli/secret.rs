//! `sallyport secret`: secrets of a workspace. A value comes in by standard input alone: what stands in an argument is
//! seen by everybody on the machine and kept by shells.

use std::io::{IsTerminal, Read};

use clap::{Args, Subcommand};
use http::Method;
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::remote::{At, Call, Form, Session, cell, id, quoted, text, time};
use super::{Shared, wait};
use crate::exit::{Failure, Outcome, Verdict};
use crate::show;

/// The API takes no longer one.
const LONGEST: u64 = 64 << 10;

const HELP: &str = "\
Examples:
  sallyport secret set API_KEY --host api.example.com < key.txt
  sallyport secret set API_KEY        # asks for it, without showing it
  sallyport secret list
  sallyport secret delete API_KEY

A value is never shown again, to nobody. One line break at its end is left out, unless --exact is said. With --host it is \
given only to runs that reach no other host.";

/// `sallyport secret`
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// The secrets of the workspace, without their values
    List,
    /// Keep a secret, or replace its value; the value comes by standard input
    Set(Set),
    /// Delete a secret
    Delete {
        /// Its name
        name: String,
    },
}

#[derive(Debug, Args)]
struct Set {
    /// Its name: capital letters, digits and `_`
    name: String,
    /// A host at which it may be used; repeat for several [default: as before, or wherever a run may go]
    #[arg(long, value_name = "HOST")]
    host: Vec<String>,
    /// Keep the line break at its end
    #[arg(long)]
    exact: bool,
}

pub fn perform(arguments: &Arguments, shared: &Shared) -> Verdict {
    let form = arguments.at.form(shared);
    match &arguments.verb {
        Verb::List => wait(async {
            let session = arguments.at.enter().await?;
            let secrets = session.client.list(&session.path("secrets")).await?;
            form.print(&Value::Array(secrets.clone()), || table(&secrets))?;
            Ok(Outcome::Good)
        }),
        Verb::Set(set) => {
            let value = value(set.exact)?;
            wait(async {
                let session = arguments.at.enter().await?;
                put(&session, set, &value, form).await
            })
        }
        Verb::Delete { name } => wait(async {
            let session = arguments.at.enter().await?;
            let secret = find(&session, name).await?;
            let secret = secret
                .ok_or_else(|| Failure::new(format!("there is no secret {}", quoted(name))))?;
            let path = session.path(&format!("secrets/{}", id(&text(&secret, "id"))?));
            session
                .client
                .call(Call::new(Method::DELETE, &path))
                .await?;
            show::note(format_args!("deleted {}", show::clean(name)));
            Ok(Outcome::Good)
        }),
    }
}

fn table(secrets: &[Value]) -> String {
    let rows = secrets.iter().map(|secret| {
        let hosts = secret
            .get("hosts")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let hosts: Vec<&str> = hosts.iter().filter_map(Value::as_str).collect();
        let hosts = if hosts.is_empty() {
            "wherever a run may go".to_owned()
        } else {
            hosts.join(" ")
        };
        [
            cell(&text(secret, "name")),
            cell(&hosts),
            cell(&text(secret, "version")),
            time(secret, "changed_at"),
            time(secret, "used_at"),
        ]
    });
    show::table(["name", "hosts", "values", "set", "last used"], rows)
}

async fn find(session: &Session, name: &str) -> Result<Option<Value>, Failure> {
    let secrets = session.client.list(&session.path("secrets")).await?;
    Ok(secrets
        .into_iter()
        .find(|secret| text(secret, "name") == name))
}

async fn put(session: &Session, set: &Set, value: &str, form: Form) -> Verdict {
    let there = find(session, &set.name).await?;
    let (method, path, body) = match &there {
        None => (
            Method::POST,
            session.path("secrets"),
            json!({ "name": set.name, "value": value, "hosts": set.host }),
        ),
        Some(secret) => {
            let path = session.path(&format!("secrets/{}", id(&text(secret, "id"))?));
            let hosts = (!set.host.is_empty()).then_some(&set.host);
            (
                Method::PATCH,
                path,
                json!({ "value": value, "hosts": hosts }),
            )
        }
    };
    let secret = session
        .client
        .call(Call::new(method, &path).with(&body))
        .await?
        .body;
    form.print(&secret, || table(std::slice::from_ref(&secret)))?;
    Ok(Outcome::Good)
}

/// The value, from a pipe or from somebody who types it unseen.
fn value(exact: bool) -> Result<Zeroizing<String>, Failure> {
    let stdin = std::io::stdin();
    let mut value = Zeroizing::new(String::new());
    let failed = |error: std::io::Error| Failure::new(format!("reading the value: {error}"));
    if stdin.is_terminal() {
        show::note("the value, which is not shown:");
        let _unseen = Unseen::begin()?;
        stdin.read_line(&mut value).map_err(failed)?;
    } else {
        stdin
            .lock()
            .take(LONGEST + 2)
            .read_to_string(&mut value)
            .map_err(failed)?;
    }
    if !exact && value.ends_with('\n') {
        value.pop();
    }
    if value.is_empty() {
        return Err(Failure::new("the value is empty")
            .hint("it comes by standard input: `sallyport secret set NAME < file`"));
    }
    Ok(value)
}

/// A terminal that does not show what is typed, until this is dropped.
struct Unseen(Termios);

impl Unseen {
    fn begin() -> Result<Self, Failure> {
        let before = tcgetattr(std::io::stdin()).map_err(|error| Failure::from_error(&error))?;
        let mut now = before.clone();
        now.local_flags.remove(LocalFlags::ECHO);
        tcsetattr(std::io::stdin(), SetArg::TCSAFLUSH, &now)
            .map_err(|error| Failure::from_error(&error))?;
        Ok(Self(before))
    }
}

impl Drop for Unseen {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), SetArg::TCSANOW, &self.0);
    }
}
