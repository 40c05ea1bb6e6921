//! `sallyport token` and `sallyport workspace`: what this user's tokens are and where they act.
//!
//! A token makes and ends no other token: `create` asks a person in a browser, and ending one is done there, or by
//! `sallyport auth logout` for one's own.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::auth::{self, Wish};
use super::remote::{At, cell, text, time};
use super::{Shared, wait};
use crate::exit::{Outcome, Verdict};
use crate::show;

const TOKEN_HELP: &str = "\
Examples:
  sallyport token list
  sallyport token create ci --days 90 > token   # a person lets it in
  sallyport auth logout                         # revokes the token in use

Tokens are revoked on the page Tokens of the browser app; a token can end itself and no other.";

/// `sallyport token`
#[derive(Debug, Args)]
#[command(after_help = TOKEN_HELP)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Your tokens in the workspace, without their secrets; asked by one that may write
    List,
    /// Make a token; a person lets it in, in a browser, and it is printed once
    Create {
        /// What to call it
        name: String,
        /// It may read what runs and where it goes, and change nothing; not the audit log, nor which tokens there are
        #[arg(long)]
        read_only: bool,
        /// Days until it ends
        #[arg(long, value_name = "DAYS")]
        days: Option<u32>,
    },
}

pub fn perform(arguments: &Arguments, shared: &Shared) -> Verdict {
    let form = arguments.at.form(shared);
    match &arguments.verb {
        Verb::List => wait(async {
            let session = arguments.at.enter().await?;
            let tokens = session.client.list(&session.path("tokens")).await?;
            form.print(&Value::Array(tokens.clone()), || table(&tokens))?;
            Ok(Outcome::Good)
        }),
        Verb::Create {
            name,
            read_only,
            days,
        } => {
            let url = auth::address_or_current(&arguments.at)?;
            let wish = Wish {
                name,
                read_only: *read_only,
                days: *days,
            };
            let token = wait(auth::by_code(&arguments.at, &url, &wish))?;
            let said = json!({ "url": url.origin(), "token": token.reveal() });
            form.print(&said, || token.reveal().to_owned())?;
            Ok(Outcome::Good)
        }
    }
}

fn table(tokens: &[Value]) -> String {
    let rows = tokens.iter().map(|token| {
        [
            cell(&text(token, "name")),
            cell(&text(token, "scope")),
            time(token, "created_at"),
            time(token, "used_at"),
            time(token, "expires_at"),
            cell(&text(token, "id")),
        ]
    });
    show::table(["name", "may", "made", "last used", "ends", "id"], rows)
}

const WORKSPACE_HELP: &str = "\
Examples:
  sallyport workspace list
  sallyport workspace members -o json

A token acts in one workspace. `sallyport auth login` signs in to further ones, `sallyport auth use NAME` chooses, and \
--workspace names one for a command.";

/// `sallyport workspace`
#[derive(Debug, Args)]
#[command(after_help = WORKSPACE_HELP)]
pub struct WorkspaceArguments {
    #[command(subcommand)]
    verb: WorkspaceVerb,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Subcommand)]
enum WorkspaceVerb {
    /// The workspace of the token in use
    List,
    /// Who is in it, and what they may
    Members,
}

pub fn workspaces(arguments: &WorkspaceArguments, shared: &Shared) -> Verdict {
    let form = arguments.at.form(shared);
    wait(async {
        let session = arguments.at.enter().await?;
        match arguments.verb {
            WorkspaceVerb::List => {
                let found = session.client.list("/api/v1/workspaces").await?;
                let row =
                    |one: &Value| ["name", "kind", "role", "id"].map(|key| cell(&text(one, key)));
                form.print(&Value::Array(found.clone()), || {
                    show::table(["name", "kind", "role", "id"], found.iter().map(row))
                })?;
            }
            WorkspaceVerb::Members => {
                let found = session.client.list(&session.path("members")).await?;
                let row = |one: &Value| {
                    ["name", "email", "role", "user"].map(|key| cell(&text(one, key)))
                };
                form.print(&Value::Array(found.clone()), || {
                    show::table(["name", "email", "role", "user"], found.iter().map(row))
                })?;
            }
        }
        Ok(Outcome::Good)
    })
}
