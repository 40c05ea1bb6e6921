//! What the verbs that speak to a console share: which console, as whom, in which workspace, and how answers are printed.
//!
//! Everything goes over the API, with one client that follows no redirect, reads no more than an answer can have and
//! sends a token to nobody but the console it was made for. Refuses to own: what a verb asks.

mod call;
mod client;
mod events;
mod keep;
mod list;
mod print;
mod secret;
mod yaml;

use std::path::PathBuf;

use ::console::settings::AppUrl;
use clap::Args;
use serde_json::Value;

pub use call::{Call, CallError};
pub use client::Client;
pub use events::{Events, Said};
pub use keep::{Login, Logins};
pub use print::{Form, ago, cell, span, text, time};
pub use secret::{Token, may_send, owner_only};
pub use yaml::yaml;

use super::Shared;
use crate::exit::Failure;

/// Names the console where no argument does.
pub const URL_VARIABLE: &str = "SALLYPORT_URL";
/// The token for it.
const TOKEN_VARIABLE: &str = "SALLYPORT_TOKEN";

/// Which console, and with what.
#[derive(Clone, Debug, Default, Args)]
pub struct Door {
    /// The console's address, such as https://sallyport.example.com [env: SALLYPORT_URL]
    #[arg(long, global = true, value_name = "URL", help_heading = "Console")]
    url: Option<String>,
    /// File with an API token, readable by its owner only [env: SALLYPORT_TOKEN, the token itself]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Console")]
    token_file: Option<PathBuf>,
    /// Further certificate authorities (PEM) to know the console by
    #[arg(long, global = true, value_name = "FILE", help_heading = "Console")]
    ca_file: Option<PathBuf>,
    /// Send the token in the clear also to another machine
    #[arg(long, global = true, help_heading = "Console")]
    insecure: bool,
}

/// Where a verb acts and how it prints.
#[derive(Clone, Debug, Default, Args)]
pub struct At {
    #[command(flatten)]
    pub door: Door,
    /// The workspace, by name or id [default: the token's]
    #[arg(
        long,
        global = true,
        value_name = "WORKSPACE",
        help_heading = "Console"
    )]
    workspace: Option<String>,
    /// How to print
    #[arg(long, short, global = true, value_enum, value_name = "FORM")]
    output: Option<Form>,
}

impl At {
    /// How to print.
    pub fn form(&self, shared: &Shared) -> Form {
        let json = shared.json.then_some(Form::Json);
        self.output.or(json).unwrap_or(Form::Table)
    }

    /// The console, as whom, in which workspace.
    pub async fn enter(&self) -> Result<Session, Failure> {
        self.door.enter(self.workspace.as_deref()).await
    }

    /// The workspace that was named.
    pub fn named(&self) -> Option<&str> {
        self.workspace.as_deref()
    }
}

/// A console, a token for it, and the token's workspace.
pub struct Session {
    /// Speaks to it.
    pub client: Client,
    /// The workspace's id.
    pub workspace: String,
}

impl Door {
    /// The address that was named, if one was: by an argument, or by the environment.
    pub fn address(&self) -> Result<Option<AppUrl>, Failure> {
        let text = self.url.clone().or_else(|| variable(URL_VARIABLE));
        text.map(|text| parse(&text)).transpose()
    }

    /// Whether a token may go in the clear to another machine.
    pub const fn insecure(&self) -> bool {
        self.insecure
    }

    /// The authorities that were named.
    pub fn authorities(&self) -> Option<&std::path::Path> {
        self.ca_file.as_deref()
    }

    /// Whether there is a console to speak to at all.
    pub fn is_configured(&self) -> Result<bool, Failure> {
        Ok(self.address()?.is_some() || Logins::read()?.current().is_some())
    }

    /// The console, as whom, in which workspace.
    pub async fn enter(&self, workspace: Option<&str>) -> Result<Session, Failure> {
        let (named, given) = (self.address()?, self.token()?);
        if named.is_none() && given.is_some() {
            // whoever is signed in may be so at another console than this token is of
            return Err(Failure::new("a token is given and no console")
                .hint("SALLYPORT_URL or --url names the console that it is of"));
        }
        let logins = Logins::read()?;
        let url = match (&named, logins.current()) {
            (Some(url), _) => url.clone(),
            (None, Some(login)) => parse(&login.url)?,
            (None, None) => {
                return Err(Failure::new("no console is named, and nobody is signed in at one")
                    .hint("`sallyport auth login --url URL`, or set SALLYPORT_URL and SALLYPORT_TOKEN"));
            }
        };
        // a token that was kept goes to the console it was kept for, whatever else is named
        let login = logins
            .at(&url.origin(), workspace)
            .filter(|_| given.is_none());
        let token = match (given, login) {
            (Some(token), _) => token,
            (None, Some(login)) => Token::parse(&login.token)?,
            (None, None) => return Err(signed_out(&url, workspace)),
        };
        may_send(
            &url,
            self.insecure || login.is_some_and(|login| login.insecure),
        )?;
        let kept = login.and_then(|login| login.ca_file.as_deref());
        let authorities = self.ca_file.as_deref().or(kept);
        let client = Client::new(url, authorities, Some(token))?;
        let workspace = match login {
            Some(login) => id(&login.workspace)?.to_owned(),
            None => found(&client, workspace).await?,
        };
        Ok(Session { client, workspace })
    }

    fn token(&self) -> Result<Option<Token>, Failure> {
        if let Some(file) = &self.token_file {
            let text = owner_only(file)?;
            return Token::parse(text.trim()).map(Some);
        }
        variable(TOKEN_VARIABLE)
            .map(|text| Token::parse(text.trim()))
            .transpose()
    }
}

/// A variable of the environment; one that is set to nothing is not set.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

fn parse(text: &str) -> Result<AppUrl, Failure> {
    AppUrl::parse(text).ok_or_else(|| {
        Failure::new(format!("{} is no address of a console", quoted(text)))
            .hint("write scheme and host, perhaps a port: https://sallyport.example.com")
    })
}

/// A text of somebody else in a message; not longer than a message.
pub fn quoted(text: &str) -> String {
    format!("{:?}", cell(text))
}

fn signed_out(url: &AppUrl, workspace: Option<&str>) -> Failure {
    let message = match workspace {
        Some(name) => format!(
            "nobody is signed in to the workspace {} at {}",
            quoted(name),
            url.origin()
        ),
        None => format!("nobody is signed in at {}", url.origin()),
    };
    Failure::new(message).hint(format!("`sallyport auth login --url {}`", url.origin()))
}

/// The workspace of the token that was given.
async fn found(client: &Client, named: Option<&str>) -> Result<String, Failure> {
    let mine = client.list("/api/v1/workspaces").await?;
    let is_meant = |workspace: &&Value| {
        named.is_none_or(|named| text(workspace, "id") == named || text(workspace, "name") == named)
    };
    match mine.iter().find(is_meant) {
        Some(workspace) => Ok(id(&text(workspace, "id"))?.to_owned()),
        None => Err(Failure::new(match named {
            Some(named) => format!("the token is of another workspace than {}", quoted(named)),
            None => "the token has no workspace".to_owned(),
        })),
    }
}

/// What may stand in a path: ids are letters, digits and dashes, whoever says them.
pub fn id(text: &str) -> Result<&str, Failure> {
    let fits = (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if fits {
        Ok(text)
    } else {
        Err(Failure::new(format!("{} is no id", quoted(text))))
    }
}

impl Session {
    /// A path below the workspace.
    pub fn path(&self, rest: &str) -> String {
        format!("/api/v1/workspaces/{}/{rest}", self.workspace)
    }
}
