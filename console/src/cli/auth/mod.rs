//! `sallyport auth`: tokens of this user for consoles, got, looked at, chosen, given up.

mod login;

use std::io::Read;
use std::path::PathBuf;

use ::console::settings::AppUrl;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::remote::{
    At, Call, Client, Form, Login, Logins, Token, cell, id, may_send, quoted, text,
};
use super::{Shared, wait};
use crate::exit::{Failure, Outcome, Verdict};
use crate::show;
pub use login::{Wish, by_code};

const HELP: &str = "\
Examples:
  sallyport auth login --url https://sallyport.example.com
  sallyport auth login --url https://sallyport.example.com --with-token < token
  sallyport auth status
  sallyport auth use staging
  sallyport auth logout

A token is kept in ~/.config/sallyport/logins.json (mode 600), one for each console and workspace, and goes to the \
console it was made for and to no other. Without a file: SALLYPORT_URL with SALLYPORT_TOKEN, or --url with --token-file.";

/// `sallyport auth`
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
    /// Get a token for a console: somebody who is signed in there types a code
    Login(LoginArguments),
    /// Where you are signed in, and whether those tokens still hold
    Status,
    /// Use another of the workspaces that you are signed in to
    Use {
        /// The workspace, by name or id
        workspace: String,
    },
    /// Revoke the token of a workspace and forget it [default: the one in use]
    Logout,
}

#[derive(Debug, Args)]
struct LoginArguments {
    /// Take an API token from standard input instead
    #[arg(long, conflicts_with_all = ["read_only", "days", "name"])]
    with_token: bool,
    /// Ask for a token that may read and change nothing
    #[arg(long)]
    read_only: bool,
    /// Days until the token ends
    #[arg(long, value_name = "DAYS", default_value_t = 90)]
    days: u32,
    /// What the token is called [default: the name of this machine]
    #[arg(long)]
    name: Option<String>,
}

pub fn perform(arguments: &Arguments, shared: &Shared) -> Verdict {
    let form = arguments.at.form(shared);
    let at = &arguments.at;
    match &arguments.verb {
        Verb::Login(login) if login.with_token => with_token(at, form),
        Verb::Login(login) => with_code(at, login, form),
        Verb::Status => status(form),
        Verb::Use { workspace } => choose(at, workspace),
        Verb::Logout => logout(at),
    }
}

/// The console to sign in at.
fn address(at: &At) -> Result<AppUrl, Failure> {
    at.door.address()?.ok_or_else(|| {
        Failure::new("no console is named")
            .hint("--url https://sallyport.example.com, or SALLYPORT_URL")
    })
}

/// The same, or the one in use.
pub fn address_or_current(at: &At) -> Result<AppUrl, Failure> {
    let logins = Logins::read()?;
    let current = logins.current().and_then(|login| AppUrl::parse(&login.url));
    at.door
        .address()?
        .or(current)
        .map_or_else(|| address(at), Ok)
}

fn with_code(at: &At, asked: &LoginArguments, form: Form) -> Verdict {
    let url = address_or_current(at)?;
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let usual = || format!("sallyport on {}", machine.trim());
    let name = asked.name.clone().unwrap_or_else(usual);
    let wish = Wish {
        name: &name,
        read_only: asked.read_only,
        days: Some(asked.days),
    };
    let token = wait(by_code(at, &url, &wish))?;
    checked(at, &url, &token, form)
}

fn with_token(at: &At, form: Form) -> Verdict {
    let url = address(at)?;
    let mut given = zeroize::Zeroizing::new(String::new());
    std::io::stdin()
        .lock()
        .take(1 << 10)
        .read_to_string(&mut given)?;
    let token = Token::parse(given.trim())?;
    may_send(&url, at.door.insecure())?;
    checked(at, &url, &token, form)
}

/// Keeps a token that was seen to hold.
fn checked(at: &At, url: &AppUrl, token: &Token, form: Form) -> Verdict {
    let login = wait(async {
        let client = Client::new(url.clone(), at.door.authorities(), Some(token.clone()))?;
        let own = client.list("/api/v1/workspaces").await?;
        let own = own
            .first()
            .ok_or_else(|| Failure::new("the token has no workspace"))?;
        Ok(Login {
            url: url.origin(),
            workspace: id(&text(own, "id"))?.to_owned(),
            name: text(own, "name"),
            token: token.reveal().to_owned(),
            ca_file: at.door.authorities().map(absolute),
            insecure: at.door.insecure(),
        })
    })?;
    keep(login, form)
}

fn absolute(path: &std::path::Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Keeps a token, and uses it from now on.
fn keep(login: Login, form: Form) -> Verdict {
    let (url, name, workspace) = (
        login.url.clone(),
        login.name.clone(),
        login.workspace.clone(),
    );
    let token = login.token.clone();
    let mut logins = Logins::read()?;
    let earlier = logins.put(login);
    logins.write()?;
    if let Some(earlier) = earlier.filter(|earlier| earlier.token != token) {
        give_up(&earlier);
    }
    let said = json!({ "url": url, "workspace": workspace, "name": name });
    form.print(&said, || {
        show::clean(&format!(
            "signed in to the workspace {} at {url}",
            cell(&name)
        ))
        .into_owned()
    })?;
    Ok(Outcome::Good)
}

/// Revokes a token that another one took the place of: nobody would know of it any more.
fn give_up(earlier: &Login) {
    match client(earlier).and_then(|client| wait(async { revoke(&client).await })) {
        Ok(()) => show::note("the earlier token for this workspace is revoked"),
        Err(failure) => show::note(format_args!(
            "the earlier token for this workspace could not be revoked: {}; {} revokes it",
            show::clean(&failure.message),
            tokens_page(earlier)
        )),
    }
}

/// Where a person revokes tokens.
fn tokens_page(login: &Login) -> String {
    format!("{}/w/{}/tokens", login.url, login.workspace)
}

/// Asks each console whether the token still holds.
fn status(form: Form) -> Verdict {
    let logins = Logins::read()?;
    let rows = wait(async {
        let mut rows: Vec<Value> = Vec::new();
        for (place, login) in logins.all().iter().enumerate() {
            let (who, state) = match whose(login).await {
                Ok(who) => (text(&who, "email"), "valid".to_owned()),
                Err(failure) => (String::new(), failure.message),
            };
            rows.push(json!({
                "url": login.url, "workspace": login.workspace, "name": login.name,
                "person": who, "state": state, "in_use": place == 0,
            }));
        }
        Ok(rows)
    })?;
    if rows.is_empty() {
        show::note("nobody is signed in");
    }
    let good = rows
        .first()
        .is_some_and(|row| text(row, "state") == "valid");
    form.print(&Value::Array(rows.clone()), || {
        let mark = |row: &Value| {
            if row.get("in_use") == Some(&Value::Bool(true)) {
                "*"
            } else {
                ""
            }
        };
        let line = |row: &Value| {
            [
                mark(row).to_owned(),
                cell(&text(row, "name")),
                text(row, "url"),
                cell(&text(row, "person")),
                cell(&text(row, "state")),
            ]
        };
        show::table(
            ["", "workspace", "console", "person", "token"],
            rows.iter().map(line),
        )
    })?;
    Ok(if good {
        Outcome::Good
    } else {
        Outcome::Negative
    })
}

fn client(login: &Login) -> Result<Client, Failure> {
    let url = AppUrl::parse(&login.url).ok_or_else(|| Failure::new("an address that is none"))?;
    may_send(&url, login.insecure)?;
    Client::new(
        url,
        login.ca_file.as_deref(),
        Some(Token::parse(&login.token)?),
    )
}

async fn whose(login: &Login) -> Result<Value, Failure> {
    Ok(client(login)?.get("/api/v1/session").await?.body)
}

fn choose(at: &At, workspace: &str) -> Verdict {
    let mut logins = Logins::read()?;
    let url = at.door.address()?.map(|url| url.origin());
    let found = logins.all().iter().find(|login| {
        let named = login.name == workspace || login.workspace == workspace;
        named && url.as_ref().is_none_or(|url| *url == login.url)
    });
    let Some((url, id)) = found.map(|login| (login.url.clone(), login.workspace.clone())) else {
        return Err(Failure::new(format!(
            "nobody is signed in to the workspace {}",
            quoted(workspace)
        ))
        .hint("`sallyport auth status` shows those there are"));
    };
    if let Some(login) = logins.take(&url, &id) {
        logins.put(login);
    }
    logins.write()?;
    Ok(Outcome::Good)
}

/// The login that is meant.
fn meant<'a>(at: &At, logins: &'a Logins) -> Result<&'a Login, Failure> {
    let found = match (at.door.address()?, at.named()) {
        (Some(url), named) => logins.at(&url.origin(), named),
        (None, Some(named)) => logins
            .all()
            .iter()
            .find(|login| login.name == named || login.workspace == named),
        (None, None) => logins.current(),
    };
    found.ok_or_else(|| {
        Failure::new("nobody is signed in there").hint("`sallyport auth status` shows where")
    })
}

fn logout(at: &At) -> Verdict {
    let mut logins = Logins::read()?;
    let login = meant(at, &logins)?.clone();
    let revoked = client(&login).and_then(|client| wait(async { revoke(&client).await }));
    logins.take(&login.url, &login.workspace);
    logins.write()?;
    match revoked {
        Ok(()) => show::note("the token is revoked and forgotten"),
        // forgotten all the same: whoever signs out wants it gone from here
        Err(failure) => {
            return Err(Failure {
                message: format!(
                    "the token is forgotten, and could not be revoked: {}",
                    failure.message
                ),
                hint: Some(format!("{} revokes it", tokens_page(&login))),
                ..failure
            });
        }
    }
    Ok(Outcome::Good)
}

/// Ends the client's own token; one that is none any more is ended. Other refusals, such as of somebody whose address is
/// not confirmed, leave it alive.
async fn revoke(client: &Client) -> Result<(), Failure> {
    match client
        .call(Call::new(Method::DELETE, "/api/v1/token"))
        .await
    {
        Err(error) if error.code() == "bad_token" => Ok(()),
        answer => Ok(answer.map(|_| ())?),
    }
}
