//! How a program without a browser is let in: it asks for a code, a person who is signed in types it and sees what asks
//! from where, and says yes or no.
//!
//! The program gets its token with the code, and the token is none until somebody said yes: nothing secret is sent twice
//! or kept. A code waits ten minutes, is settled once, and is looked at by people alone, a few times in a quarter of an
//! hour, so that guessing finds none of them. It never stands in an address: whoever sends somebody a link must also
//! get them to type letters that they did not ask for.

use axum::extract::State;
use axum::{Extension, Json};
use http::{HeaderMap, StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Fields;
use super::owner::address;
use super::session::count;
use crate::accounts::names;
use crate::accounts::secret::{NoRandom, Opens, Secret};
use crate::clock::{self, DAY, MINUTE, Millis};
use crate::server::app::App;
use crate::server::guard::About;
use crate::server::idempotent::ShownOnce;
use crate::server::identify::{Caller, Who};
use crate::server::input::{At, Input};
use crate::server::problem::{Problem, Wrong};
use crate::server::rate::network;
use crate::store::codes::{Code, Most, NewCode};
use crate::store::sessions::NewToken;

/// A code waits so long: enough to find the browser and sign in.
const WAITS: Millis = 10 * MINUTE;
/// Seconds between two looks of a program.
const INTERVAL: u32 = 2;
/// Waiting at once; a team behind one address signs in together. Where all places are taken the greediest network's oldest
/// code gives way, so that strangers keep nobody out.
const MOST: Most = Most {
    of_address: 20,
    of_all: 10_000,
};
/// Codes that one person types in a quarter of an hour. With 20^8 codes nobody guesses one of ten thousand.
const LOOKS: i64 = 20;
/// No vowels and nothing that looks like something else: no words, nothing misread.
const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
/// Of a code.
const LENGTH: usize = 8;
/// Ten years; longer is for ever.
const LONGEST_DAYS: i64 = 3650;
/// What is kept of what a program is.
const AGENT: usize = 200;

/// What a program asks for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CodeInput {
    /// What it calls itself: the token's name.
    name: String,
    /// `read` or `write`: the most that it is given.
    scope: String,
    /// For how many days.
    expires_in_days: Option<i64>,
}

/// A code that was just made.
#[derive(Debug, Serialize, ToSchema)]
pub struct FreshCode {
    /// Its id, to ask what became of it.
    pub id: String,
    /// What a person types at `/device`.
    pub code: String,
    /// The token: none until somebody said yes. It is shown this once.
    pub token: String,
    /// Seconds until it is over.
    pub expires_in: u32,
    /// Seconds between two looks.
    pub interval: u32,
}

/// What became of a code.
#[derive(Debug, Serialize, ToSchema)]
pub struct CodeState {
    /// `waiting`, `approved` or `refused`.
    pub state: String,
}

/// A code as a person types it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Typed {
    /// The letters, with or without what stands between them.
    code: String,
}

/// What asks, and from where.
#[derive(Debug, Serialize, ToSchema)]
pub struct CodeView {
    /// What it calls itself.
    pub name: String,
    /// What it is, by its own words.
    pub agent: String,
    /// From which address it asks.
    pub address: String,
    /// `read` or `write`: the most that it asks for.
    pub scope: String,
    /// For how many days it asks.
    pub expires_in_days: Option<i64>,
    /// When it asked, in milliseconds since 1970.
    pub created_at: Millis,
    /// When the code is over.
    pub expires_at: Millis,
}

/// Yes, and to what.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    /// The letters.
    code: String,
    /// `read` or `write`; no more than was asked for.
    scope: String,
    /// Days until the token ends; without, it ends when it is revoked.
    expires_in_days: Option<i64>,
}

/// The token that a program has from now on.
#[derive(Debug, Serialize, ToSchema)]
pub struct Approved {
    /// The token's id, as in the list of tokens.
    pub token: String,
}

/// A code out of letters that nobody can foresee. Rejection keeps them even: 240 is twelve times twenty.
fn fresh() -> Result<String, NoRandom> {
    let mut code = String::with_capacity(LENGTH);
    while code.len() < LENGTH {
        let bits = Secret::fresh(Opens::Api)?.digest;
        let letters = bits
            .iter()
            .filter(|byte| **byte < 240)
            .filter_map(|byte| LETTERS.get(usize::from(byte % 20)));
        code.extend(
            letters
                .take(LENGTH - code.len())
                .map(|letter| char::from(*letter)),
        );
    }
    Ok(code)
}

/// With a dash in its middle.
fn shown(code: &str) -> String {
    let (first, second) = code.split_at_checked(LENGTH / 2).unwrap_or((code, ""));
    format!("{first}-{second}")
}

/// The letters of what somebody typed; `None`: it can be no code.
fn typed(text: &str) -> Option<String> {
    let letters: String = text
        .chars()
        .take(40)
        .filter(|c| !matches!(c, '-' | ' '))
        .map(|c| c.to_ascii_uppercase())
        .collect();
    let fits = letters.len() == LENGTH && letters.bytes().all(|b| LETTERS.contains(&b));
    fits.then_some(letters)
}

fn wrong_code() -> Problem {
    Problem::invalid(
        "code",
        "no program waits with this code; it may be over, or was used",
    )
}

/// Counts the look, then looks.
async fn find(app: &App, caller: &Caller, text: &str) -> Result<Code, Problem> {
    let now = clock::now();
    count(app, &format!("codes:{}", caller.user()?.id), LOOKS, now).await?;
    let code = typed(text).ok_or_else(wrong_code)?;
    app.store.code(&code, now).await?.ok_or_else(wrong_code)
}

/// Ask to be let in.
#[utoipa::path(post, path = "/api/v1/codes", tag = "tokens", request_body = CodeInput,
    responses((status = 201, body = FreshCode)))]
pub async fn begin(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    Input(input): Input<CodeInput>,
) -> Result<(StatusCode, Extension<ShownOnce>, Json<FreshCode>), Problem> {
    let mut fields = Fields::new();
    let name = fields.take(names::name(&input.name));
    fields.0.extend(wrong_scope(&input.scope));
    fields.0.extend(wrong_days(input.expires_in_days));
    fields.done()?;
    let agent = headers
        .get(header::USER_AGENT)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    let agent: String = agent
        .chars()
        .filter(|c| !c.is_control())
        .take(AGENT)
        .collect();
    let (now, code, secret) = (clock::now(), fresh()?, Secret::fresh(Opens::Api)?);
    let new = NewCode {
        code: &code,
        digest: &secret.digest,
        name: &name,
        scope: &input.scope,
        days: input.expires_in_days,
        address: &address(caller.client),
        network: &network(caller.client.0).to_string(),
        agent: &agent,
        ends: now + WAITS,
    };
    let id = app.store.add_code(new, MOST, now).await?.ok_or_else(|| {
        Problem::slow_down(
            "too_many_codes",
            "too many programs of this address wait to be let in",
            60,
        )
    })?;
    let fresh = FreshCode {
        id,
        code: shown(&code),
        token: secret.text,
        expires_in: u32::try_from(WAITS / clock::SECOND).unwrap_or_default(),
        interval: INTERVAL,
    };
    Ok((StatusCode::CREATED, Extension(ShownOnce), Json(fresh)))
}

/// What became of a code. Its id is known to who asked for it alone, and says nothing else.
#[utoipa::path(get, path = "/api/v1/codes/{code}", tag = "tokens", params(("code" = String, Path, description = "Its id.")),
    responses((status = 200, body = CodeState)))]
pub async fn state(State(app): State<App>, At(id): At<String>) -> Result<Json<CodeState>, Problem> {
    let state = app.store.code_state(&id, clock::now()).await?;
    state
        .map(|state| Json(CodeState { state }))
        .ok_or_else(Problem::not_found)
}

/// What asks, and from where.
#[utoipa::path(post, path = "/api/v1/codes/look", tag = "tokens", request_body = Typed,
    responses((status = 200, body = CodeView)))]
pub async fn look(
    State(app): State<App>,
    caller: Caller,
    Input(input): Input<Typed>,
) -> Result<Json<CodeView>, Problem> {
    let code = find(&app, &caller, &input.code).await?;
    Ok(Json(CodeView {
        name: code.name,
        agent: code.agent,
        address: code.address,
        scope: code.scope,
        expires_in_days: code.days,
        created_at: code.created_at,
        expires_at: code.expires_at,
    }))
}

/// Say no.
#[utoipa::path(post, path = "/api/v1/codes/refuse", tag = "tokens", request_body = Typed, responses((status = 204)))]
pub async fn refuse(
    State(app): State<App>,
    caller: Caller,
    Input(input): Input<Typed>,
) -> Result<StatusCode, Problem> {
    let code = find(&app, &caller, &input.code).await?;
    if app.store.refuse_code(&code.id, clock::now()).await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(wrong_code())
    }
}

/// Say yes: the program's token acts with my role in this workspace.
#[utoipa::path(post, path = "/api/v1/workspaces/{workspace}/codes", tag = "tokens", request_body = Approval,
    params(("workspace" = String, Path)), responses((status = 201, body = Approved)))]
pub async fn approve(
    State(app): State<App>,
    caller: Caller,
    Input(input): Input<Approval>,
) -> Result<(StatusCode, Json<Approved>), Problem> {
    let code = find(&app, &caller, &input.code).await?;
    let mut fields = Fields::new();
    fields.0.extend(wrong_scope(&input.scope));
    if input.scope == "write" && code.scope != "write" {
        fields.0.push(Wrong::new(
            "scope",
            "the program asks for no more than read",
        ));
    }
    fields.0.extend(wrong_days(input.expires_in_days));
    fields.done()?;
    let now = clock::now();
    let token = NewToken {
        workspace: &caller.workspace()?.id,
        user: &caller.user()?.id,
        name: &code.name,
        scope: &input.scope,
        digest: &code.digest,
        ends: input.expires_in_days.map(|days| now + days * DAY),
    };
    let token = app
        .store
        .approve_code(&code.id, token, now)
        .await?
        .ok_or_else(wrong_code)?;
    Ok((StatusCode::CREATED, Json(Approved { token })))
}

/// End the token that this request comes with.
#[utoipa::path(delete, path = "/api/v1/token", tag = "tokens", responses((status = 204)))]
pub async fn end_own(
    State(app): State<App>,
    caller: Caller,
) -> Result<(StatusCode, Extension<About>), Problem> {
    let Who::Token(found) = &caller.who else {
        return Err(
            Problem::conflict("no_token", "this request comes with no token")
                .help("DELETE /api/v1/session signs out; tokens are ended by their id"),
        );
    };
    let (user, token) = (&found.0.id, &found.1);
    if !app
        .store
        .end_token(&token.workspace_id, user, &token.id)
        .await?
    {
        return Err(Problem::not_found());
    }
    let about = About(format!(
        "workspace={} token={}",
        token.workspace_id, token.id
    ));
    Ok((StatusCode::NO_CONTENT, Extension(about)))
}

fn wrong_scope(scope: &str) -> Option<Wrong> {
    (!matches!(scope, "read" | "write")).then(|| Wrong::new("scope", "read or write"))
}

fn wrong_days(days: Option<i64>) -> Option<Wrong> {
    let wrong = days.is_some_and(|days| !(1..=LONGEST_DAYS).contains(&days));
    wrong.then(|| Wrong::new("expires_in_days", format!("1 to {LONGEST_DAYS}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_letters_that_are_read_back_however_they_are_typed() {
        for _ in 0..100 {
            let code = fresh().unwrap();
            assert_eq!(typed(&shown(&code)).as_ref(), Some(&code));
            assert_eq!(
                typed(&shown(&code).to_lowercase().replace('-', " ")),
                Some(code)
            );
        }
        for wrong in [
            "",
            "BCDF",
            "BCDF-GHJA",
            "BCDF-GHJ1",
            "BCDF-GHJ\u{212a}",
            "BCDF-GHJK-L",
            "%",
            "BCDFGHJ\0",
        ] {
            assert_eq!(typed(wrong), None, "{wrong}");
        }
    }
}
