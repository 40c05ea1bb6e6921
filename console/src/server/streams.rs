//! Streams of events as their readers meet them.

use std::time::Duration;

use axum::body::Body;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::follow::{follow, listen};
use super::testing::{Console, signed_in};
use crate::accounts::secret::{Opens, Secret};
use crate::store::forget::Passing;
use crate::store::sessions::NewToken;
use crate::store::testing::each;
use crate::store::users::{Changed, UserChange};
use crate::store::{Store, on};

/// Two cores may be busy with other tests.
const LIMIT: Duration = Duration::from_mins(1);

async fn running(store: &Store) -> Console {
    let console = Console::on(store.clone());
    console
        .app
        .tasks
        .spawn("follow", follow(console.app.clone()));
    console
        .app
        .tasks
        .spawn("listen", listen(console.app.clone()));
    let mut newest = console.app.tail.newest();
    let last = store.last_event().await.unwrap();
    timeout(LIMIT, newest.wait_for(|seq| *seq >= last))
        .await
        .unwrap()
        .unwrap();
    console
}

/// One stream, read event by event.
struct Stream {
    body: Body,
    text: String,
    /// The last id that was said.
    last: i64,
}

#[derive(Debug, PartialEq)]
struct Seen {
    id: i64,
    kind: String,
    data: Value,
}

impl Stream {
    async fn open(console: &Console, headers: &[(&str, &str)], query: &str) -> Self {
        let path = format!("/api/v1/events{query}");
        let response = console
            .open(Method::GET, &path, headers, Body::empty())
            .await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut this = Self {
            body: response.into_body(),
            text: String::new(),
            last: -1,
        };
        this.piece().await;
        assert!(this.text.starts_with("retry: "), "{}", this.text);
        if !this.text.contains("event:") {
            this.block();
        }
        this
    }

    /// Reads one more piece; `false`: it is over.
    async fn piece(&mut self) -> bool {
        match timeout(LIMIT, self.body.frame())
            .await
            .expect("something is said")
        {
            Some(frame) => {
                self.text
                    .push_str(std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap());
                true
            }
            None => false,
        }
    }

    /// What is said up to the next empty line.
    fn block(&mut self) -> Option<Seen> {
        let (block, rest) = self.text.split_once("\n\n")?;
        let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
        let id = field("id: ").map_or(self.last, |id| id.parse().unwrap());
        let seen = Seen {
            id,
            kind: field("event: ").unwrap_or_default().to_owned(),
            data: serde_json::from_str(field("data: ").unwrap_or("null")).unwrap(),
        };
        self.text = rest.to_owned();
        self.last = id;
        Some(seen)
    }

    /// The next event; `None`: the stream is over.
    async fn next(&mut self) -> Option<Seen> {
        loop {
            match self.block() {
                Some(seen) if !seen.kind.is_empty() => return Some(seen),
                Some(_) => {}
                None if self.piece().await => {}
                None => return None,
            }
        }
    }
}

async fn append(store: &Store, topic: &str, kind: &str, n: i64) -> i64 {
    store
        .append_event(topic, kind, &json!({ "n": n }), 5)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_reader_hears_what_it_may_see_and_goes_on_where_it_was() {
    each(async |store| {
        let (ada, cookie) = signed_in(&store, "ada", false).await;
        let (_, other) = signed_in(&store, "eve", false).await;
        let place = store.add_workspace("A", &ada, 1).await.unwrap();
        let (mine, below) = (
            format!("workspace/{place}"),
            format!("workspace/{place}/run/r"),
        );
        append(&store, &mine, "before", 0).await;
        let console = running(&store).await;
        let mut all = Stream::open(&console, &[("cookie", &cookie)], "").await;
        let mut one = Stream::open(
            &console,
            &[("cookie", &cookie)],
            &format!("?topics={below}"),
        )
        .await;
        append(&store, "instance", "secret", 1).await;
        append(&store, &mine, "made", 2).await;
        let run = append(&store, &below, "output", 3).await;
        let last = append(&store, &mine, "gone", 4).await;
        let seen = all.next().await.unwrap();
        assert_eq!(
            (
                seen.kind.as_str(),
                &seen.data["data"]["n"],
                &seen.data["topic"]
            ),
            ("made", &json!(2), &json!(mine))
        );
        assert_eq!(all.next().await.unwrap().id, last);
        assert_eq!(one.next().await.unwrap().id, run);
        // cut here, and back
        let seen_to = seen.id.to_string();
        drop(all);
        for _ in 0..2 {
            let mut back = Stream::open(
                &console,
                &[("cookie", &cookie), ("last-event-id", &seen_to)],
                "",
            )
            .await;
            assert_eq!(back.next().await.unwrap().id, last);
        }
        for topic in [
            mine.as_str(),
            &below,
            "instance",
            "user/x",
            "workspace",
            "",
            "workspace/%00",
        ] {
            let path = format!("/api/v1/events?topics={topic}");
            let refused = console.ask(Method::GET, &path, &[("cookie", &other)]).await;
            assert!(
                matches!(refused.status.as_u16(), 404 | 422),
                "{topic}: {}",
                refused.text
            );
        }
        // a name that only begins like one's own is another's
        let path = format!("/api/v1/events?topics={mine}x");
        assert_eq!(
            console
                .ask(Method::GET, &path, &[("cookie", &cookie)])
                .await
                .status,
            404
        );
    })
    .await;
}

#[tokio::test]
async fn a_stream_ends_with_the_session_and_the_membership_that_it_stands_on() {
    each(async |store| {
        let (ada, one) = signed_in(&store, "ada", false).await;
        let (bob, two) = signed_in(&store, "bob", false).await;
        let place = store.add_workspace("A", &ada, 1).await.unwrap();
        store
            .add_member(&place, &bob, crate::access::Role::Member, 1)
            .await
            .unwrap();
        let console = running(&store).await;
        let topic = format!("workspace/{place}");
        let mut named =
            Stream::open(&console, &[("cookie", &two)], &format!("?topics={topic}")).await;
        let mut every = Stream::open(&console, &[("cookie", &two)], "").await;
        let mut stays = Stream::open(&console, &[("cookie", &one)], "").await;
        let out = crate::store::workspaces::MemberChange {
            workspace: &place,
            by: &ada,
            user: &bob,
            role: None,
        };
        store.change_member(out).await.unwrap();
        let begun = std::time::Instant::now();
        assert_eq!(named.next().await.unwrap().kind, "end");
        assert!(
            begun.elapsed() < Duration::from_secs(8),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(named.next().await, None);
        // the other goes on without the workspace, until its session ends
        let begun = std::time::Instant::now();
        store.end_sessions(&bob).await.unwrap();
        append(&store, &topic, "made", 1).await;
        assert_eq!(stays.next().await.unwrap().kind, "made");
        let last = loop {
            let seen = every.next().await.unwrap();
            if seen.kind == "end" {
                break begun.elapsed();
            }
        };
        assert!(last < Duration::from_secs(8), "{last:?}");
        assert_eq!(every.next().await, None);
    })
    .await;
}

#[tokio::test]
async fn who_is_cut_off_for_good_does_not_take_a_stream_up_again() {
    each(async |store| {
        let (ada, _) = signed_in(&store, "ada", true).await;
        let (bob, cookie) = signed_in(&store, "bob", false).await;
        let place = store.add_workspace("A", &ada, 1).await.unwrap();
        let member = crate::access::Role::Member;
        assert!(store.add_member(&place, &bob, member, 1).await.unwrap());
        let secret = Secret::fresh(Opens::Api).unwrap();
        let new = NewToken {
            workspace: &place,
            user: &bob,
            name: "ci",
            scope: "read",
            digest: &secret.digest,
            ends: None,
        };
        let token = store.add_token(new, 1).await.unwrap();
        let console = running(&store).await;
        let query = format!("?topics=workspace/{place}");
        let bearer = format!("Bearer {}", secret.text);
        let by_token = [("authorization", bearer.as_str())];
        let by_cookie = [("cookie", cookie.as_str())];
        let mut first = Stream::open(&console, &by_token, &query).await;
        let mut second = Stream::open(&console, &by_cookie, &query).await;
        store.end_token(&place, &bob, &token).await.unwrap();
        assert_eq!(first.next().await.unwrap().kind, "end");
        let off = UserChange {
            deactivated: Some(true),
            ..UserChange::default()
        };
        let user = store.user(&bob).await.unwrap().unwrap();
        let done = store.change_user(&user, &off, 5).await.unwrap();
        assert_eq!(done, Changed::Done);
        assert_eq!(second.next().await.unwrap().kind, "end");
        let path = format!("/api/v1/events{query}");
        for (credential, last) in [(by_token[0], first.last), (by_cookie[0], second.last)] {
            let last = last.to_string();
            let again = [credential, ("last-event-id", last.as_str())];
            let refused = console.ask(Method::GET, &path, &again).await;
            assert_eq!(refused.status, 401, "{}", refused.text);
        }
    })
    .await;
}

#[tokio::test]
async fn two_hundred_readers_hear_everything_in_order() {
    each(async |store| {
        let console = running(&store).await;
        let mut streams = Vec::new();
        for n in 0..10 {
            let (_, cookie) = signed_in(&store, &format!("u{n}"), true).await;
            for _ in 0..20 {
                streams
                    .push(Stream::open(&console, &[("cookie", &cookie)], "?topics=instance").await);
            }
        }
        // one never reads, and nobody waits for it
        let idle = streams.pop();
        let writing = async {
            for n in 0..300 {
                append(&store, "instance", "flow", n).await;
            }
        };
        let reading = streams.iter_mut().map(async |stream| {
            let mut last = 0;
            for n in 0..300 {
                let seen = stream.next().await.unwrap();
                assert_eq!(seen.data["data"]["n"], json!(n));
                assert!(seen.id > last);
                last = seen.id;
            }
        });
        let both = futures_util::future::join(writing, futures_util::future::join_all(reading));
        timeout(Duration::from_mins(2), both)
            .await
            .expect("everybody has heard everything");
        drop(idle);
    })
    .await;
}

#[tokio::test]
async fn an_account_has_some_streams_and_no_more() {
    each(async |store| {
        let (_, cookie) = signed_in(&store, "ada", false).await;
        let console = running(&store).await;
        let mut held = Vec::new();
        for _ in 0..32 {
            held.push(Stream::open(&console, &[("cookie", &cookie)], "").await);
        }
        let more = console
            .ask(Method::GET, "/api/v1/events", &[("cookie", &cookie)])
            .await;
        assert_eq!(
            (more.status.as_u16(), &more.json["code"]),
            (429, &json!("too_many_streams"))
        );
        held.pop();
        assert_eq!(
            console
                .ask(Method::GET, "/api/v1/events", &[("cookie", &cookie)])
                .await
                .status,
            200
        );
    })
    .await;
}

#[tokio::test]
async fn whoever_was_away_too_long_is_told_to_begin_anew() {
    each(async |store| {
        let (_, cookie) = signed_in(&store, "ada", true).await;
        let first = append(&store, "instance", "old", 1).await;
        append(&store, "instance", "old", 2).await;
        store.forget(Passing::Events, 6).await.unwrap();
        append(&store, "instance", "new", 3).await;
        let console = running(&store).await;
        let from = first.to_string();
        let past = i64::MAX.to_string();
        for (from, kind) in [(&*from, "reset"), ("999999", "reset"), (&*past, "reset")] {
            let mut stream = Stream::open(
                &console,
                &[("cookie", &cookie), ("last-event-id", from)],
                "",
            )
            .await;
            assert_eq!(stream.next().await.unwrap().kind, kind);
        }
    })
    .await;
}

#[tokio::test]
async fn what_an_event_says_stays_one_line_and_of_a_size() {
    each(async |store| {
        let (_, cookie) = signed_in(&store, "ada", true).await;
        let console = running(&store).await;
        let mut stream = Stream::open(&console, &[("cookie", &cookie)], "").await;
        let hostile = json!({ "n": "a\n\ndata: x\r\rid: 7\u{2028}\u{202e}<script>\u{0}" });
        store
            .append_event("instance", "out\n\nput", &hostile, 5)
            .await
            .unwrap();
        let seen = stream.next().await.unwrap();
        assert_eq!(
            (seen.kind.as_str(), &seen.data["data"]),
            ("output", &hostile)
        );
        let huge = json!({ "n": "x".repeat(1 << 20) });
        store
            .append_event("instance", "huge", &huge, 5)
            .await
            .unwrap();
        assert_eq!(
            stream.next().await.unwrap().data["data"],
            json!({ "too_long": true })
        );
    })
    .await;
}

#[tokio::test]
async fn a_reader_far_behind_catches_up_from_the_store() {
    each(async |store| {
        let (_, cookie) = signed_in(&store, "ada", true).await;
        let first = append(&store, "instance", "n", 0).await;
        for n in 1..1200 {
            append(
                &store,
                if n % 2 == 0 { "instance" } else { "elsewhere" },
                "n",
                n,
            )
            .await;
        }
        let console = running(&store).await;
        let from = first.to_string();
        let mut stream = Stream::open(
            &console,
            &[("cookie", &cookie), ("last-event-id", &from)],
            "",
        )
        .await;
        for n in (2..1200).step_by(2) {
            assert_eq!(stream.next().await.unwrap().data["data"]["n"], json!(n));
        }
        append(&store, "instance", "last", 0).await;
        assert_eq!(stream.next().await.unwrap().kind, "last");
    })
    .await;
}

#[tokio::test]
async fn a_cut_connection_to_listen_on_misses_nothing() {
    each(async |store| {
        let Store::Postgres(pool) = &store else { return };
        let (_, cookie) = signed_in(&store, "ada", true).await;
        let console = running(&store).await;
        let mut stream = Stream::open(&console, &[("cookie", &cookie)], "?topics=instance").await;
        // as another console would: nothing in this process rings
        let elsewhere = async |n: i64| {
            let mut tx = pool.begin().await.unwrap();
            let insert = "INSERT INTO events (topic, kind, data, at) VALUES ('instance', 'n', $1, 1)";
            sqlx::query(insert).bind(json!(n).to_string()).execute(&mut *tx).await.unwrap();
            sqlx::query("SELECT pg_notify('sallyport_events', '')").execute(&mut *tx).await.unwrap();
            tx.commit().await.unwrap();
        };
        for n in 0..5 {
            elsewhere(n).await;
            assert_eq!(stream.next().await.unwrap().data["data"], json!(n));
            let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                       WHERE query LIKE 'LISTEN%' AND datname = current_database() AND pid <> pg_backend_pid()";
            let _: i64 = on!(&store, pool => sqlx::query_scalar(cut).fetch_one(pool).await).unwrap();
        }
    })
    .await;
}
