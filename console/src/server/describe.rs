//! The API's description (OpenAPI 3.1), made from the routes themselves; served at `/api/v1/openapi.json`.

use serde_json::{Value, json};
use utoipa::PartialSchema;
use utoipa::openapi::{InfoBuilder, OpenApi};

use super::problem::{Problem, Wrong};
use crate::access::{Action, ByToken, Reach, Rule, rule};

/// Completes what the routes say: every operation may answer with a problem, and says who may.
pub fn document((mut described, actions): (OpenApi, Vec<(String, String, Action)>)) -> Value {
    described.info = InfoBuilder::new()
        .title("Sallyport")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "The console's API. Errors are problem+json; lists that take `cursor` and `limit` are paged: \
             an answer's `next` is the next page's cursor. Audit logs are read on with `after`.",
        ))
        .build();
    let mut document = serde_json::to_value(described).unwrap_or_default();
    for (path, method, action) in actions {
        let mut tell = |what: &[&str], value: Value| {
            let operation = ["paths", &path, &method].into_iter();
            put(
                &mut document,
                &operation.chain(what.iter().copied()).collect::<Vec<_>>(),
                value,
            );
        };
        tell(&["x-sallyport-action"], json!(action.word()));
        // the handlers' own names repeat, and generators of clients need one for each
        tell(&["operationId"], json!(action.word().replace('.', "_")));
        tell(
            &["responses", "default"],
            json!({ "$ref": "#/components/responses/Problem" }),
        );
        let Rule { reach, by_token } = rule(action);
        let security = match (reach, by_token) {
            (Reach::Open, _) => json!([]),
            (Reach::Runner, _) => json!([{ "runner": [] }]),
            (_, ByToken::Never) => json!([{ "session": [] }]),
            (_, ByToken::Read | ByToken::Write) => json!([{ "session": [] }, { "token": [] }]),
        };
        tell(&["security"], security);
        let takes = !matches!(reach, Reach::Open | Reach::Runner) && !action.only_asks();
        if method == "post" && takes {
            take_keys(&mut document, &path);
        }
    }
    let schemas = [("Problem", Problem::schema()), ("Wrong", Wrong::schema())];
    for (name, schema) in schemas {
        let schema = serde_json::to_value(schema).unwrap_or_default();
        put(&mut document, &["components", "schemas", name], schema);
    }
    let problem = json!({
        "description": "Why the request was not answered.",
        "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
    });
    put(
        &mut document,
        &["components", "responses", "Problem"],
        problem,
    );
    let schemes = json!({
        "session": { "type": "apiKey", "in": "cookie", "name": "sallyport_session" },
        "token": { "type": "http", "scheme": "bearer" },
        "runner": { "type": "http", "scheme": "bearer", "description": "The token of a runner." },
    });
    put(&mut document, &["components", "securitySchemes"], schemes);
    document
}

/// Says that an operation takes an `Idempotency-Key`.
fn take_keys(document: &mut Value, path: &str) {
    let at = ["paths", path, "post", "parameters"];
    let there = at
        .iter()
        .try_fold(&*document, |within, key| within.get(key));
    let mut parameters = there.and_then(Value::as_array).cloned().unwrap_or_default();
    parameters.push(json!({
        "name": "Idempotency-Key", "in": "header", "required": false,
        "description": "1 to 255 letters; the same request with it is answered as the first time, for a day.",
        "schema": { "type": "string", "minLength": 1, "maxLength": 255 },
    }));
    put(document, &at, Value::Array(parameters));
}

/// Puts a value at a path of keys, making what is not there.
fn put(at: &mut Value, path: &[&str], value: Value) {
    let Some((key, rest)) = path.split_first() else {
        *at = value;
        return;
    };
    if !at.is_object() {
        *at = json!({});
    }
    if let Some(map) = at.as_object_mut() {
        put(map.entry(*key).or_insert(Value::Null), rest, value);
    }
}
