//! Notifications from an event to what a receiver sees.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use futures_util::stream::{FuturesUnordered, StreamExt};
use http::Method;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use super::*;
use crate::api::tests::owned;
use crate::outbound::testing::{Origin, answer, local};
use crate::server::testing::{Answer, Console};
use crate::settings::{Allowed, ConsoleConfig, MailSettings, MailTls};
use crate::store::Store;
use crate::store::testing::each;

struct Asks {
    console: Console,
    cookie: String,
    workspace: String,
}

impl Asks {
    async fn of(store: Store, config: ConsoleConfig) -> Self {
        let (owner, cookie) = owned(store.clone()).await;
        let list = owner
            .ask(Method::GET, "/api/v1/workspaces", &[("cookie", &cookie)])
            .await;
        let workspace = list.json["items"][0]["id"].as_str().unwrap().to_owned();
        Self {
            console: Console::with(store, config),
            cookie,
            workspace,
        }
    }

    async fn tell(&self, method: Method, below: &str, body: Value) -> Answer {
        let path = format!("/api/v1/workspaces/{}/notifications{below}", self.workspace);
        self.console
            .tell(method, &path, &[("cookie", &self.cookie)], body)
            .await
    }

    async fn add(&self, kind: &str, address: &str) -> Answer {
        let body =
            json!({ "name": "n", "kind": kind, "address": address, "topics": ["run.failed"] });
        self.tell(Method::POST, "", body).await
    }

    /// Something happens to a run.
    async fn happens(&self, state: &str) {
        let topic = format!("workspace/{}", self.workspace);
        let data = json!({ "run": "r1\n<b>", "state": state });
        let store = &self.console.app.store;
        store
            .append_event(&topic, "run", &data, clock::now())
            .await
            .unwrap();
    }

    async fn read_all(&self) {
        while read(&self.console.app).await.unwrap() {}
    }

    async fn sent(&self, id: &str) -> Value {
        self.tell(Method::GET, &format!("/{id}/deliveries"), json!({}))
            .await
            .json["items"]
            .clone()
    }
}

fn calling() -> ConsoleConfig {
    ConsoleConfig {
        outbound: local(),
        ..ConsoleConfig::default()
    }
}

fn header<'a>(request: &'a str, name: &str) -> &'a str {
    let line = request
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap();
    line.trim_start_matches(": ")
}

#[tokio::test]
async fn a_failed_run_is_told_once_and_signed() {
    each(async |store| {
        let asks = Asks::of(store, calling()).await;
        asks.read_all().await;
        let origin = Origin::answering(answer("200 OK", "", "")).await;
        let made = asks
            .add("webhook", &format!("http://{}/hook", origin.address))
            .await;
        assert_eq!(made.status, 201, "{}", made.text);
        let (id, key) = (
            made.json["id"].as_str().unwrap(),
            made.json["signing_key"].as_str().unwrap(),
        );
        for state in ["running", "succeeded", "failed", "cancelled"] {
            asks.happens(state).await;
        }
        // read by two consoles at the same time
        let app = &asks.console.app;
        let (one, two) = tokio::join!(read(app), read(app));
        // the second may find that the first has read all of it
        let (one, two) = (one.unwrap(), two.unwrap());
        assert!(one || two);
        asks.read_all().await;
        assert_eq!(send_due(app, clock::now()).await.unwrap(), 1);
        assert_eq!(send_due(app, clock::now()).await.unwrap(), 0);
        let asked = origin.asked();
        assert_eq!(asked.len(), 1, "{asked:?}");
        let (_, body) = asked[0].split_once("\r\n\r\n").unwrap();
        let seconds: i64 = header(&asked[0], "webhook-timestamp").parse().unwrap();
        let signed = signature(key, header(&asked[0], "webhook-id"), seconds, body);
        assert_eq!(
            Some(header(&asked[0], "webhook-signature")),
            signed.as_deref()
        );
        assert!(body.contains("run.failed"), "{body}");
        let sent = asks.sent(id).await;
        assert_eq!(
            (&sent[0]["state"], &sent[0]["outcome"]),
            (&json!("done"), &json!("answered 200 OK"))
        );
        // the key is shown once
        let list = asks.tell(Method::GET, "", json!({})).await;
        assert!(!list.text.contains("whsec_"), "{}", list.text);
        assert_eq!(
            asks.tell(Method::DELETE, &format!("/{id}"), json!({}))
                .await
                .status,
            204
        );
        asks.happens("failed").await;
        asks.read_all().await;
        assert_eq!(send_due(app, clock::now()).await.unwrap(), 0);
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_sent_is_tried_more_and_more_slowly_under_one_id() {
    each(async |store| {
        let asks = Asks::of(store, calling()).await;
        let origin = Origin::answering(answer("503 Busy\u{1b}[31m", "", "")).await;
        let made = asks
            .add("webhook", &format!("http://{}/hook", origin.address))
            .await;
        let id = made.json["id"].as_str().unwrap();
        let queued = asks
            .tell(Method::POST, &format!("/{id}/test"), json!({}))
            .await;
        assert_eq!(queued.status, 202, "{}", queued.text);
        let app = &asks.console.app;
        let mut now = clock::now();
        let mut pauses = Vec::new();
        for attempt in 1..=MOST_ATTEMPTS {
            assert_eq!(send_due(app, now).await.unwrap(), 1, "attempt {attempt}");
            let sent = asks.sent(id).await;
            assert_eq!(sent[0]["attempts"], attempt);
            if let Some(next) = sent[0]["next_at"].as_i64() {
                assert_eq!(
                    send_due(app, next - 1).await.unwrap(),
                    0,
                    "attempt {attempt}"
                );
                pauses.push(next - now);
                now = next;
            }
        }
        assert!(
            pauses.is_sorted() && pauses.len() == PAUSES.len(),
            "{pauses:?}"
        );
        assert_eq!(send_due(app, now + 10 * HOUR).await.unwrap(), 0);
        let sent = asks.sent(id).await;
        assert_eq!(sent[0]["state"], "failed", "{sent}");
        let asked = origin.asked();
        let first = header(&asked[0], "webhook-id");
        assert!(
            asked
                .iter()
                .all(|request| header(request, "webhook-id") == first)
        );
        assert_eq!(first, queued.json["id"]);
    })
    .await;
}

#[tokio::test]
async fn a_delivery_whose_sender_died_is_sent_by_another() {
    each(async |store| {
        let asks = Asks::of(store.clone(), calling()).await;
        let origin = Origin::answering(answer("204 No Content", "", "")).await;
        let made = asks
            .add("webhook", &format!("http://{}/hook", origin.address))
            .await;
        let id = made.json["id"].as_str().unwrap();
        asks.tell(Method::POST, &format!("/{id}/test"), json!({}))
            .await;
        let now = clock::now();
        // claimed by a console that is killed then
        let claimed = store.claim_delivery(id, now, now + CLAIM).await;
        assert!(claimed.unwrap().is_some());
        let app = &asks.console.app;
        assert_eq!(send_due(app, now + CLAIM - 1).await.unwrap(), 0);
        assert_eq!(send_due(app, now + CLAIM).await.unwrap(), 1);
        assert_eq!(asks.sent(id).await[0]["state"], "done");
    })
    .await;
}

#[tokio::test]
async fn where_nothing_may_be_sent_is_said_when_it_is_set_up() {
    each(async |store| {
        let asks = Asks::of(store, ConsoleConfig::default()).await;
        for (kind, address, said) in [
            (
                "webhook",
                "http://127.0.0.1:8080/",
                "points to a private or local network address",
            ),
            (
                "webhook",
                "http://[::ffff:127.0.0.1]/",
                "points to a private or local network address",
            ),
            ("webhook", "http://169.254.169.254/", "cloud metadata"),
            ("webhook", "file:///etc/passwd", "https://"),
            ("webhook", "https://u:p@example.com/", "password"),
            ("email", "ada@example.com", "no mail server"),
            ("pager", "x", "webhook or email"),
        ] {
            let refused = asks.add(kind, address).await;
            assert_eq!(refused.status, 422, "{address}: {}", refused.text);
            let message = refused.json["fields"][0]["message"].as_str().unwrap();
            assert!(message.contains(said), "{address}: {message}");
        }
        let strict = OutboundOff::config();
        let asks = Asks {
            console: Console::with(asks.console.app.store.clone(), strict),
            ..asks
        };
        let refused = asks.add("webhook", "http://10.0.0.5/").await;
        assert_eq!(
            refused.json["fields"][0]["message"],
            "points to a private or local network address"
        );
    })
    .await;
}

/// `network.allow_private_targets: false`.
struct OutboundOff;

impl OutboundOff {
    fn config() -> ConsoleConfig {
        let mut config = ConsoleConfig::default();
        config.outbound.allow_private = false;
        config
    }
}

/// A server that takes connections and says nothing: where it is, and how many it has, now and at most.
pub(super) async fn hanging() -> (SocketAddr, Arc<Mutex<(usize, usize)>>) {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let open = Arc::new(Mutex::new((0, 0)));
    let counted = open.clone();
    gateway::tasks::Tasks::default().spawn("hanging", async move {
        let mut connections = FuturesUnordered::new();
        loop {
            tokio::select! {
                // who went away is none of those who are there when somebody comes
                biased;
                Some(()) = connections.next() => counted.lock().unwrap().0 -= 1,
                Ok((mut stream, _)) = listener.accept() => {
                    let mut open = counted.lock().unwrap();
                    open.0 += 1;
                    open.1 = open.1.max(open.0);
                    connections.push(async move {
                        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.ok();
                    });
                }
            }
        }
    });
    (address, open)
}

/// Until something is so.
pub(super) async fn until(what: &str, is: impl Fn() -> bool) {
    let waiting = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let done = tokio::time::timeout(Duration::from_secs(15), waiting).await;
    assert!(done.is_ok(), "{what}");
}

#[tokio::test]
async fn a_receiver_that_hangs_keeps_only_its_own_waiting() {
    each(async |store| {
        let mut config = calling();
        config.outbound.allowed = vec![Allowed::Net("127.0.0.0/8".parse().unwrap())];
        let asks = Asks::of(store, config).await;
        asks.read_all().await;
        let (address, open) = hanging().await;
        for _ in 0..6 {
            let hook = format!("http://127.0.0.2:{}/", address.port());
            let made = asks.add("webhook", &hook).await;
            assert_eq!(made.status, 201, "{}", made.text);
        }
        let origin = Origin::answering(answer("204 No Content", "", "")).await;
        asks.add("webhook", &format!("http://{}/", origin.address))
            .await;
        let app = asks.console.app.clone();
        app.tasks.spawn("sending", keep_sending(app.clone()));
        // what is told after the first round is told while all six are due
        for told in 1..=5 {
            asks.happens("failed").await;
            asks.read_all().await;
            until("the other one is told", || origin.asked().len() == told).await;
            until("the host that hangs is asked", || {
                open.lock().unwrap().1 >= 4
            })
            .await;
        }
        assert_eq!(open.lock().unwrap().1, 4, "at the same time");
    })
    .await;
}

/// A mail server that takes everything; what it was told.
async fn mail_server() -> (u16, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let told = Arc::new(Mutex::new(String::new()));
    let heard = told.clone();
    gateway::tasks::Tasks::default().spawn("mail", async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (read, mut write) = stream.into_split();
            let mut lines = BufReader::new(read).lines();
            write.write_all(b"220 mail\r\n").await.ok();
            let mut in_data = false;
            while let Ok(Some(line)) = lines.next_line().await {
                heard.lock().unwrap().extend([line.as_str(), "\n"]);
                let said: &[u8] = match line.as_str() {
                    "." => b"250 taken\r\n",
                    _ if in_data => continue,
                    "DATA" => b"354 go on\r\n",
                    "QUIT" => b"221 bye\r\n",
                    _ => b"250 fine\r\n",
                };
                in_data = line == "DATA";
                write.write_all(said).await.ok();
            }
        }
    });
    (port, told)
}

#[tokio::test]
async fn mail_goes_by_the_operators_server_and_never_in_the_clear_where_tls_is_asked() {
    each(async |store| {
        let (port, told) = mail_server().await;
        let mail = |tls| MailSettings {
            host: netpolicy::name::Host::Address("127.0.0.1".parse().unwrap()),
            port,
            tls,
            credentials: None,
            from: "Sallyport <sallyport@example.com>".into(),
        };
        let config = |tls| ConsoleConfig {
            mail: Some(mail(tls)),
            ..ConsoleConfig::default()
        };
        let asks = Asks::of(store.clone(), config(MailTls::None)).await;
        asks.read_all().await;
        let made = asks.add("email", "ops@example.com").await;
        assert_eq!(
            (made.status.as_u16(), &made.json["signing_key"]),
            (201, &Value::Null),
            "{}",
            made.text
        );
        let id = made.json["id"].as_str().unwrap();
        asks.happens("failed").await;
        asks.read_all().await;
        assert_eq!(send_due(&asks.console.app, clock::now()).await.unwrap(), 1);
        let sent = asks.sent(id).await;
        assert_eq!(sent[0]["state"], "done", "{sent}");
        let text = told.lock().unwrap().clone();
        assert!(text.contains("RCPT TO:<ops@example.com>"), "{text}");
        assert!(
            text.contains("Message-ID: <") && text.contains("Subject: Sallyport: run r1"),
            "{text}"
        );
        // a run's name makes no header
        assert!(!text.lines().any(|line| line.starts_with("<b>")), "{text}");
        // a server without STARTTLS gets nothing where that is asked
        told.lock().unwrap().clear();
        let strict = Asks {
            console: Console::with(store, config(MailTls::StartTls)),
            ..asks
        };
        strict
            .tell(Method::POST, &format!("/{id}/test"), json!({}))
            .await;
        assert_eq!(
            send_due(&strict.console.app, clock::now()).await.unwrap(),
            1
        );
        assert_eq!(strict.sent(id).await[0]["state"], "waiting");
        assert!(!told.lock().unwrap().contains("MAIL FROM"));
    })
    .await;
}

#[tokio::test]
async fn a_signing_key_is_shown_once_and_tests_are_no_way_to_flood_somebody() {
    each(async |store| {
        let asks = Asks::of(store.clone(), calling()).await;
        let origin = Origin::answering(answer("204 No Content", "", "")).await;
        let path = format!("/api/v1/workspaces/{}/notifications", asks.workspace);
        let address = format!("http://{}/hook", origin.address);
        let body =
            json!({ "name": "n", "kind": "webhook", "address": address, "topics": ["run.failed"] });
        let headers = [("cookie", &*asks.cookie), ("idempotency-key", "k")];
        let add = async || {
            asks.console
                .tell(Method::POST, &path, &headers, body.clone())
                .await
        };
        let made = add().await;
        assert_eq!(made.status, 201, "{}", made.text);
        let again = add().await;
        assert_eq!(
            (again.status.as_u16(), &again.json["code"]),
            (409, &json!("shown_once")),
            "{}",
            again.text
        );
        let id = made.json["id"].as_str().unwrap();
        let mut queued = 0;
        for _ in 0..50 {
            let test = asks
                .tell(Method::POST, &format!("/{id}/test"), json!({}))
                .await;
            queued += u16::from(test.status == 202);
        }
        assert_eq!(queued, 20);
    })
    .await;
}
