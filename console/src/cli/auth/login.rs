//! `sallyport auth login`: asks the console for a code, waits until a person typed it in a browser, keeps the token.
//!
//! The address that is shown is the one that was named, never one that the console says. The token is none before
//! somebody said yes, and is kept only after it was seen to hold.

use std::time::Duration;

use ::console::settings::AppUrl;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::cli::remote::{At, Call, Client, Token, cell, id, may_send, text};
use crate::exit::Failure;
use crate::show;

/// Whatever a console says, a person is not waited for longer.
const LONGEST: u64 = 15 * 60;
/// Between two looks, whatever a console says.
const INTERVALS: (u64, u64) = (1, 30);

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Wish<'a> {
    /// What the token is called.
    pub name: &'a str,
    /// Whether it may only read.
    pub read_only: bool,
    /// Days until it ends.
    pub days: Option<u32>,
}

/// Gets a token by a person's yes.
pub async fn by_code(at: &At, url: &AppUrl, wish: &Wish<'_>) -> Result<Token, Failure> {
    // it comes the way that it is sent later
    may_send(url, at.door.insecure())?;
    let client = Client::new(url.clone(), at.door.authorities(), None)?;
    let scope = if wish.read_only { "read" } else { "write" };
    let body = json!({ "name": wish.name, "scope": scope, "expires_in_days": wish.days });
    let asked = client
        .call(Call::new(Method::POST, "/api/v1/codes").with(&body))
        .await?
        .body;
    let token = Token::parse(&text(&asked, "token"))?;
    let number = |key: &str| asked.get(key).and_then(Value::as_u64).unwrap_or_default();
    let code = cell(&text(&asked, "code"));
    show::note(format_args!(
        "Open {}/device in a browser, sign in, and type this code:\n\n    {}\n\nWaiting until it is let in; Ctrl-C gives up.",
        client.origin(),
        show::clean(&code)
    ));
    let path = format!("/api/v1/codes/{}", id(&text(&asked, "id"))?);
    let interval = Duration::from_secs(number("interval").clamp(INTERVALS.0, INTERVALS.1));
    let patience = Duration::from_secs(number("expires_in").min(LONGEST));
    let settled = timeout(patience, settled(&client, &path, interval)).await;
    match settled.unwrap_or_else(|_| Err(over()))?.as_str() {
        "approved" => Ok(token),
        "refused" => Err(Failure::new("it was refused").code(1)),
        _ => Err(over()),
    }
}

fn over() -> Failure {
    Failure::new("nobody let it in in time")
        .hint("`sallyport auth login` asks again, with another code")
}

/// Until somebody said something.
async fn settled(client: &Client, path: &str, interval: Duration) -> Result<String, Failure> {
    let begun = Instant::now();
    loop {
        sleep(interval).await;
        match client.get(path).await {
            Ok(answer) if text(&answer.body, "state") == "waiting" => {}
            Ok(answer) => return Ok(text(&answer.body, "state")),
            Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => return Err(over()),
            // a console that is restarted knows the code afterwards
            Err(error) if error.may_pass() && begun.elapsed().as_secs() < LONGEST => {}
            Err(error) => return Err(error.into()),
        }
    }
}
