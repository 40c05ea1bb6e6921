//! Calls against servers of the test: each that is refused has a twin that is made.

use super::testing::{Origin, answer, local};
use super::*;

const MOST: usize = 1024;

fn client(settings: OutboundSettings) -> Outbound {
    Outbound::new(settings, &[]).unwrap()
}

async fn get(client: &Outbound, url: &str) -> Result<Response<Bytes>, CallError> {
    let request = Request::get(url)
        .header("authorization", "Bearer t")
        .body(Bytes::new())
        .unwrap();
    client.call(Purpose::Member, request, MOST).await
}

fn refused(called: &Result<Response<Bytes>, CallError>) -> Option<Refusal> {
    match called {
        Err(CallError::Refused(refusal)) => Some(*refusal),
        _ => None,
    }
}

#[tokio::test]
async fn a_name_that_points_elsewhere_later_is_not_dialled() {
    let origin = Origin::answering(answer("200 OK", "", "yes")).await;
    let url = format!("http://hooks.example:{}/x", origin.address.port());
    // public when it was saved, loopback when it is called
    let client_ =
        client(OutboundSettings::default()).resolving(&[&["93.184.216.34"], &["127.0.0.1"]]);
    client_.check(Purpose::Member, &url).await.unwrap();
    assert_eq!(refused(&get(&client_, &url).await), Some(Refusal::Private));
    let mixed =
        client(OutboundSettings::default()).resolving(&[&["93.184.216.34", "::ffff:127.0.0.1"]]);
    assert_eq!(refused(&get(&mixed, &url).await), Some(Refusal::Private));
    assert!(origin.asked().is_empty());
    let twin = client(local()).resolving(&[&["127.0.0.1"]]);
    assert_eq!(get(&twin, &url).await.unwrap().body(), "yes");
    assert!(origin.asked()[0].contains(&format!("host: hooks.example:{}", origin.address.port())));
}

#[tokio::test]
async fn literals_are_judged_though_no_resolver_is_asked() {
    let origin = Origin::answering(answer("200 OK", "", "yes")).await;
    let port = origin.address.port();
    let strict = client(OutboundSettings::default());
    for host in ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "localhost"] {
        let called = get(&strict, &format!("http://{host}:{port}/")).await;
        assert_eq!(refused(&called), Some(Refusal::Private), "{host}");
    }
    for host in ["0.0.0.0", "[::]"] {
        let called = get(&client(local()), &format!("http://{host}:{port}/")).await;
        assert_eq!(refused(&called), Some(Refusal::Never), "{host}");
    }
    assert!(origin.asked().is_empty());
    assert!(
        get(&client(local()), &format!("http://127.0.0.1:{port}/"))
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn each_redirect_goes_the_whole_way_again() {
    let goal = Origin::answering(answer("200 OK", "", "there")).await;
    let to = |location: String| answer("302 Found", &format!("location: {location}\r\n"), "");
    let permitted = local();
    for location in [
        "http://127.0.0.2:9/".to_owned(),
        format!("http://[::1]:{}/", goal.address.port()),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "http://metadata.google.internal/".to_owned(),
        "file:///etc/passwd".to_owned(),
        "//127.0.0.2/".to_owned(),
    ] {
        let first = Origin::answering(to(location.clone())).await;
        let called = get(
            &client(permitted.clone()),
            &format!("http://{}/", first.address),
        )
        .await;
        assert!(refused(&called).is_some(), "{location}: {called:?}");
    }
    assert!(goal.asked().is_empty());
    let first = Origin::answering(to(format!("http://{}/y", goal.address))).await;
    let called = get(
        &client(permitted.clone()),
        &format!("http://{}/", first.address),
    )
    .await;
    assert_eq!(called.unwrap().body(), "there");
    // another origin does not get the credential
    assert!(first.asked()[0].contains("authorization"));
    assert!(!goal.asked()[0].contains("authorization"));
    let forever = Origin::answering(to("/again".to_owned())).await;
    let called = get(
        &client(permitted.clone()),
        &format!("http://{}/", forever.address),
    )
    .await;
    assert!(matches!(called, Err(CallError::Redirects(_))), "{called:?}");
    assert_eq!(forever.asked().len(), 1 + MOST_REDIRECTS);
    // what changes something follows nothing
    let request = Request::post(format!("http://{}/", first.address))
        .body(Bytes::from("x"))
        .unwrap();
    let posted = client(permitted)
        .call(Purpose::Member, request, MOST)
        .await
        .unwrap();
    assert_eq!(posted.status(), 302);
}

#[tokio::test]
async fn an_answer_without_end_or_sense_is_bounded() {
    let endless = answer("200 OK", "", &"x".repeat(MOST + 1));
    let fits = answer("200 OK", "", &"x".repeat(MOST));
    let head = answer("200 OK", &format!("x: {}\r\n", "y".repeat(HEAD * 2)), "");
    for (bytes, whole) in [
        (fits, true),
        (endless, false),
        (head, false),
        (b"SSH-2.0-x\r\n".to_vec(), false),
    ] {
        let origin = Origin::answering(bytes).await;
        let called = get(&client(local()), &format!("http://{}/", origin.address)).await;
        assert_eq!(called.is_ok(), whole, "{called:?}");
    }
}

#[tokio::test]
async fn a_certificate_by_an_authority_of_the_operators_is_taken_for_its_name_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (origin, pem) = Origin::with_tls("hooks.example", answer("200 OK", "", "yes")).await;
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, pem).unwrap();
    let trusting = OutboundSettings {
        ca_file: Some(file),
        ..local()
    };
    let port = origin.address.port();
    for (settings, name, fits) in [
        (trusting.clone(), "hooks.example", true),
        (trusting, "other.example", false),
        (local(), "hooks.example", false),
    ] {
        let client = client(settings).resolving(&[&["127.0.0.1"]]);
        let called = get(&client, &format!("https://{name}:{port}/?x=s3cret")).await;
        assert_eq!(called.is_ok(), fits, "{name}: {called:?}");
        if let Err(error) = called {
            assert!(matches!(error, CallError::Connect { .. }), "{error}");
            assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
        }
    }
    assert_eq!(origin.asked().len(), 1);
}

#[tokio::test]
async fn where_an_operators_server_redirects_to_is_not_the_operators_word() {
    let goal = Origin::answering(answer("200 OK", "", "inside")).await;
    let strict = client(OutboundSettings::default()).resolving(&[&["127.0.0.1"]]);
    let ask = async |url: String| {
        let request = Request::get(url)
            .header("accept", "application/json")
            .header("x-api-key", "s3cret")
            .body(Bytes::new())
            .unwrap();
        strict.call(Purpose::Operator, request, MOST).await
    };
    let port = goal.address.port();
    let to = |host: &str| {
        let location = format!("location: http://{host}:{port}/\r\n");
        Origin::answering(answer("302 Found", &location, ""))
    };
    let first = to("127.0.0.1").await;
    let url = |host: &str| format!("http://{host}:{}/", first.address.port());
    let called = ask(url("id.example")).await;
    assert_eq!(refused(&called), Some(Refusal::Private));
    assert!(goal.asked().is_empty());
    // the same host at another port is still the one that was named, and gets nothing but what is asked for
    let called = ask(url("127.0.0.1")).await;
    assert_eq!(called.unwrap().body(), "inside");
    let asked = goal.asked();
    assert!(asked[0].contains("accept: application/json"), "{asked:?}");
    assert!(!asked[0].contains("s3cret"), "{asked:?}");
}
