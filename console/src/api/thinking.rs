//! Questions to the policy engine that take a while: a few of each account, off the threads that answer everybody.

use crate::jobs::spec::NetworkSpec;
use crate::server::app::App;
use crate::server::held::Hold;
use crate::server::identify::Caller;
use crate::server::problem::Problem;
use crate::server::rate::Counted;
use crate::server::turns::TurnError;

/// Of one account at once: the page of policies asks for a check, a table, tests and differences at the same time.
const AT_ONCE: usize = 6;
/// Bytes of a policy that are read in far less than a millisecond.
const SHORT: usize = 8 << 10;

/// A place of an account among its questions that take a while.
pub(super) fn place(app: &App, caller: &Caller) -> Result<Hold, Problem> {
    let account = Counted::Account(caller.user()?.id.clone());
    app.thinkers.take(account, AT_ONCE).ok_or_else(|| {
        Problem::slow_down(
            "too_many_questions",
            format!("an account asks at most {AT_ONCE} things that take a while at once"),
            1,
        )
    })
}

/// Answers by work that keeps a processor busy, about what is looked up first: neither is begun without a place.
pub(super) async fn think_about<D: Send + 'static, T: Send + 'static>(
    app: &App,
    caller: &Caller,
    look: impl Future<Output = Result<D, Problem>>,
    work: impl FnOnce(D) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let _place = place(app, caller)?;
    let found = look.await?;
    app.thinking.take(move || work(found)).await?
}

/// Answers by work that keeps a processor busy.
pub(super) async fn think<T: Send + 'static>(
    app: &App,
    caller: &Caller,
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    think_about(app, caller, async { Ok(()) }, |()| work()).await
}

/// How long the policy of a network setting is.
pub(super) fn length(network: &NetworkSpec) -> usize {
    let text = network.policy.as_deref().map_or(0, str::len);
    let names: usize = network.domains.iter().map(String::len).sum();
    text.max(names)
}

/// The same about a policy of this [`length`]; nearly all are read between two other requests.
pub(super) async fn read<T: Send + 'static>(
    app: &App,
    caller: &Caller,
    length: usize,
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    if length <= SHORT {
        return work();
    }
    think(app, caller, work).await
}

impl From<TurnError> for Problem {
    fn from(error: TurnError) -> Self {
        if matches!(error, TurnError::Busy) {
            return Self::busy("too many questions to the policy engine wait; try again");
        }
        tracing::error!(%error, "a request failed");
        Self::internal()
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::json;

    use super::*;
    use crate::server::testing::{Console, signed_in};
    use crate::store::testing::each;

    fn policy(entries: usize, letter: char) -> String {
        let allow: Vec<String> = (0..entries)
            .map(|n| format!("  - host: {letter}{n}.example.com\n"))
            .collect();
        format!("policy: p\nnetwork: domains\nallow:\n{}", allow.concat())
    }

    #[tokio::test]
    async fn nobody_keeps_the_policy_engine_to_themselves() {
        each(async |store| {
            let console = Console::on(store.clone());
            let mut people = Vec::new();
            for name in ["ada", "eve"] {
                let (user, cookie) = signed_in(&store, name, false).await;
                let place = store.add_workspace("W", &user, 1).await.unwrap();
                people.push((user, cookie, place));
            }
            let compare = async |who: usize, entries| {
                let (_, cookie, place) = &people[who];
                let path = format!("/api/v1/workspaces/{place}/policies/diff");
                let both = json!({ "before": policy(entries, 'a'), "after": policy(entries, 'b') });
                console
                    .tell(Method::POST, &path, &[("cookie", cookie)], both)
                    .await
            };
            assert!(compare(1, 10).await.json["changes"][19].is_object());
            // what it takes grows with the square: seconds of a processor for the largest policies that there can be
            let refused = compare(1, 501).await;
            assert_eq!(refused.status, 422, "{}", refused.text);
            assert!(refused.json["help"].is_string(), "{}", refused.text);
            let eve = || Counted::Account(people[1].0.clone());
            let held: Vec<_> = (0..AT_ONCE)
                .map(|_| console.app.thinkers.take(eve(), AT_ONCE).unwrap())
                .collect();
            assert_eq!(compare(1, 1).await.status, 429);
            // nor is much read for them: what finds its flows by an index is answered all the same
            let (_, cookie, place) = &people[1];
            for (query, status) in [("?q=x", 429), ("?outcome=denied", 429), ("", 200)] {
                let path = format!("/api/v1/workspaces/{place}/flows{query}");
                let answer = console.ask(Method::GET, &path, &[("cookie", cookie)]).await;
                assert_eq!(answer.status, status, "{query}");
            }
            assert_eq!(compare(0, 1).await.status, 200);
            drop(held);
            assert_eq!(compare(1, 1).await.status, 200);
        })
        .await;
    }
}
