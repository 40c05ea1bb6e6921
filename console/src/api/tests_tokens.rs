//! Tokens of others, as an admin of their workspace meets them.

use http::Method;
use serde_json::json;

use crate::access::Role;
use crate::accounts::secret::{Opens, Secret};
use crate::clock;
use crate::server::testing::Console;
use crate::store::Store;
use crate::store::sessions::{NewSession, NewToken};
use crate::store::testing::each;
use crate::store::users::{Home, NewUser};

async fn user(store: &Store, name: &str) -> (String, String) {
    let new = NewUser {
        email: format!("{name}@example.com"),
        name: name.into(),
        password: None,
        instance_admin: false,
    };
    let user = store.add_user(&new, Home::Personal, 1).await.unwrap();
    let secret = Secret::fresh(Opens::Session).unwrap();
    let session = NewSession {
        user: &user,
        proven: None,
        digest: &secret.digest,
        address: "",
        agent: "",
        ends: clock::now() + clock::DAY,
    };
    store.add_session(session, clock::now()).await.unwrap();
    (user, format!("sallyport_session={}", secret.text))
}

#[tokio::test]
async fn an_admin_ends_a_members_token_in_their_workspace_and_nowhere_else() {
    each(async |store| {
        let (ada, admin) = user(&store, "ada").await;
        let (bob, member) = user(&store, "bob").await;
        let ours = store.add_workspace("A", &ada, 1).await.unwrap();
        let theirs = store.add_workspace("B", &bob, 1).await.unwrap();
        store
            .add_member(&ours, &bob, Role::Member, 1)
            .await
            .unwrap();
        let mut made = Vec::new();
        for workspace in [&ours, &theirs] {
            let secret = Secret::fresh(Opens::Api).unwrap();
            let token = NewToken {
                workspace,
                user: &bob,
                name: "t",
                scope: "read",
                digest: &secret.digest,
                ends: None,
            };
            made.push((store.add_token(token, 1).await.unwrap(), secret.text));
        }
        let console = Console::on(store);
        let base = format!("/api/v1/workspaces/{ours}/members/{bob}/tokens");
        let list = console.ask(Method::GET, &base, &[("cookie", &admin)]).await;
        assert_eq!(
            list.json["items"].as_array().unwrap().len(),
            1,
            "{}",
            list.text
        );
        assert_eq!(list.json["items"][0]["id"], made[0].0.as_str());
        let end = |token: &str| format!("{base}/{token}");
        for (cookie, token, status) in [
            (&member, &made[0].0, 403),
            (&admin, &made[1].0, 404),
            (&admin, &made[0].0, 204),
            (&admin, &made[0].0, 404),
        ] {
            let answer = console
                .tell(
                    Method::DELETE,
                    &end(token),
                    &[("cookie", cookie)],
                    json!({}),
                )
                .await;
            assert_eq!(answer.status, status, "{}", answer.text);
        }
        for ((_, secret), status) in made.iter().zip([401, 200]) {
            let header = format!("Bearer {secret}");
            let asked = console
                .ask(
                    Method::GET,
                    "/api/v1/session",
                    &[("authorization", &header)],
                )
                .await;
            assert_eq!(asked.status, status, "{}", asked.text);
        }
    })
    .await;
}
