//! The control socket against the wrong people and the wrong requests, each with its permitted twin.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use tokio::io::AsyncReadExt;

use super::lab::*;
use crate::config::ControlUsers;
use crate::control::api::{ExplainRequest, FourTuple};
use crate::control::descriptor::send;
use crate::record::Entry;

const CHILD: &str = "SALLYPORT_TEST_CONTROL_CHILD";
/// Names a network to that child.
const NETWORK: &str = "SALLYPORT_TEST_NETWORK";

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n")
}

fn raw(lab: &Lab, request: &[u8]) -> String {
    let mut stream = UnixStream::connect(lab.socket()).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn a_user_that_is_not_listed_gets_nothing_and_a_listed_one_exactly_its_group() {
    if let Ok(socket) = std::env::var(CHILD) {
        let ask = |request: &str| {
            let mut stream = UnixStream::connect(&socket).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            let _ = stream.read_to_string(&mut answer);
            answer.split(' ').nth(1).unwrap_or_default().to_owned()
        };
        let id = std::env::var(NETWORK).unwrap();
        let body = r#"{"preset":"none"}"#;
        let length = body.len();
        let replace = format!(
            "PUT /v1/networks/{id}/policy HTTP/1.1\r\nHost: g\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        let delete =
            format!("DELETE /v1/networks/{id} HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n");
        let rows = r#"{"why":"asked","took_ms":1,"checks":[{"check":"x","family":"ipv4","variant":"hardened","outcome":"skipped","promise":"p","detail":"d"}]}"#;
        let length = rows.len();
        let report = format!(
            "POST /v1/selftest/containers HTTP/1.1\r\nHost: g\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{rows}"
        );
        println!(
            "statuses {} {} {} {}",
            ask(&get("/v1/networks")),
            ask(&replace),
            ask(&delete),
            ask(&report)
        );
        return;
    }
    let lab = Lab::new();
    let mut config = lab.config();
    config.control_users = ControlUsers {
        observe: [61001, 61002].into(),
        attach: [61002, 61003].into(),
        attach_any: [61004].into(),
        ..ControlUsers::default()
    };
    lab.start(config.clone());
    for folder in [lab.dir.path(), &config.run_dir] {
        std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let sandbox = lab.attach(&far_only());
    let exe = lab.dir.path().join("test-binary");
    std::fs::copy(std::env::current_exe().unwrap(), &exe).unwrap();
    let statuses = |uid: u32| {
        let out = Command::new(&exe)
            .args(["--exact", "appliance::tests::control::a_user_that_is_not_listed_gets_nothing_and_a_listed_one_exactly_its_group", "--nocapture"])
            .env(CHILD, lab.socket())
            .env(NETWORK, sandbox.view.id.as_str())
            .current_dir("/")
            .uid(uid)
            .gid(uid)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        text.split_once("statuses ").map_or_else(
            || panic!("{text}{}", String::from_utf8_lossy(&out.stderr)),
            |(_, rest)| rest.lines().next().unwrap().to_owned(),
        )
    };
    assert_eq!(statuses(61000), "403 403 403 403");
    assert_eq!(statuses(61001), "200 403 403 403");
    // in the right group, but another user's network: it is not its own, and for who may not look there is none
    assert_eq!(statuses(61002), "200 403 403 403");
    assert_eq!(statuses(61003), "403 404 404 403");
    assert_eq!(statuses(61004), "403 403 403 200");
    sandbox.echoes(FAR).unwrap();
    assert_eq!(statuses(0), "200 200 200 200");
}

#[test]
fn malformed_requests_change_nothing_and_are_told_what_is_wrong() {
    let lab = Lab::started();
    let post = |path: &str, body: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: g\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let cases = [
        (get("/"), "404"),
        (get("/v1/networks/../../etc"), "404"),
        (get("/v1/networks/A%00"), "400"),
        (get("/v1/records?after=-1"), "400"),
        (get("/v1/records?after=18446744073709551616"), "400"),
        (get("/v1/records?file=/etc/passwd"), "400"),
        (post("/v1/networks", "{}"), "400"),
        (post("/v1/own", "[]"), "400"),
        (post("/v1/own", "{\"local\":\"x\",\"remote\":\"y\"}"), "400"),
        (post("/v1/networks/nobody/ingress", "{\"port\":80}"), "426"),
        (post("/v1/selftest/x", ""), "404"),
        (
            "PATCH /v1/networks HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n".to_owned(),
            "404",
        ),
        ("nonsense\r\n\r\n".to_owned(), "400"),
    ];
    for (request, status) in cases {
        let answer = raw(&lab, request.as_bytes());
        assert_eq!(
            answer.split(' ').nth(1),
            Some(status),
            "{request}\n{answer}"
        );
    }
    assert!(lab.block(async |c| c.networks().await.unwrap()).is_empty());
    assert!(lab.block(async |c| c.health().await.unwrap()).open);
}

#[test]
fn descriptors_are_taken_only_by_attach_and_only_one() {
    let lab = Lab::started();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let with = |request: String, descriptors: Vec<OwnedFd>| {
        let stream = UnixStream::connect(lab.socket()).unwrap();
        let borrowed: Vec<_> = descriptors.iter().map(std::os::fd::AsFd::as_fd).collect();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
        assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&borrowed)));
        rustix::net::sendmsg(
            &stream,
            &[std::io::IoSlice::new(request.as_bytes())],
            &mut control,
            rustix::net::SendFlags::empty(),
        )
        .unwrap();
        let mut answer = String::new();
        (&stream).read_to_string(&mut answer).unwrap();
        answer
    };
    let body = serde_json::to_string(&request(&far_only())).unwrap();
    let attach = format!(
        "POST /v1/networks HTTP/1.1\r\nHost: g\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let no_namespace: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    let own: OwnedFd = std::fs::File::open(format!("/run/netns/{}u", lab.name))
        .unwrap()
        .into();
    let status = |answer: &str| answer.split(' ').nth(1).unwrap().to_owned();
    assert_eq!(
        status(&with(get("/v1/health"), vec![fresh_namespace()])),
        "400"
    );
    assert_eq!(
        status(&with(
            attach.clone(),
            vec![fresh_namespace(), fresh_namespace()]
        )),
        "400"
    );
    assert_eq!(
        status(&with(
            attach.clone(),
            (0..8).map(|_| fresh_namespace()).collect()
        )),
        "400"
    );
    assert_eq!(status(&with(attach.clone(), vec![no_namespace])), "400");
    assert_eq!(status(&with(attach.clone(), vec![own])), "403");
    assert!(lab.block(async |c| c.networks().await.unwrap()).is_empty());
    assert_eq!(status(&with(attach, vec![fresh_namespace()])), "200");
    // A descriptor behind the first byte belongs to no request: it is closed, or the kernel refuses it. (Where the gateway
    // had not read the first byte yet, it comes with it as far as anybody can tell, and is refused.)
    let behind = || {
        runtime.block_on(async {
            let stream = tokio::net::UnixStream::connect(lab.socket()).await.unwrap();
            let request = get("/v1/health");
            let (first, rest) = request.split_at(1);
            stream.writable().await.unwrap();
            stream.try_write(first.as_bytes()).unwrap();
            if send(&stream, rest.as_bytes(), &fresh_namespace()).is_err() {
                stream.try_write(rest.as_bytes()).unwrap();
            }
            let mut answer = String::new();
            let mut stream = stream;
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        })
    };
    eventually("an answer to the request alone", || {
        behind().starts_with("HTTP/1.1 200").then_some(())
    });
}

#[test]
fn user_text_reaches_neither_the_kernel_nor_a_path() {
    let lab = Lab::started();
    for run in ["x\"; flush ruleset; #", "a\nb", "../../x", &"y".repeat(300)] {
        let mut request = request(&far_only());
        request.run = Some(run.to_owned());
        request.labels = [("job".to_owned(), run.to_owned())].into();
        let attached = lab.try_attach(&request);
        assert_eq!(
            attached.is_ok(),
            !run.contains('\n') && run.len() < 256,
            "{run:?}"
        );
        if let Ok(sandbox) = attached {
            assert_eq!(sandbox.view.run.as_deref(), Some(run));
            let rules = lab.block(async |c| c.rules().await.unwrap());
            assert!(!rules.contains("; #") && !rules.contains("../"));
            sandbox.echoes(FAR).unwrap();
        }
    }
    let mut request = request(&far_only());
    request.workspace = "../../etc".to_owned();
    assert_eq!(
        lab.try_attach(&request)
            .err()
            .unwrap()
            .problem()
            .unwrap()
            .status,
        400
    );
}

#[test]
fn a_wished_name_is_refused_while_it_lives_and_ever_after_and_other_names_are_free() {
    let lab = Lab::started();
    let named = |name: &str| crate::control::AttachRequest {
        id: Some(name.parse().unwrap()),
        ..request(&far_only())
    };
    let refused = |name: &str| {
        let error = lab.try_attach(&named(name)).err().unwrap();
        let problem = error.problem().unwrap();
        assert_eq!((problem.status, &*problem.code), (409, "conflict"));
        problem.message.clone()
    };
    // an attach that failed has used nothing up
    let wrong = crate::control::AttachRequest {
        policy: document("policy: x\nnetwork: all\n"),
        ..named("dev")
    };
    assert!(lab.try_attach(&wrong).is_err());
    let first = lab.try_attach(&named("dev")).unwrap();
    assert!(refused("dev").contains("there is a network dev already"));
    lab.block(async |c| c.detach(&first.view.id).await.unwrap());
    eventually("the link to be gone", || {
        refused("dev").contains("used up").then_some(())
    });
    assert!(refused("n0123456789abcdef").contains("drawn by the gateway"));
    lab.try_attach(&named("dev2")).unwrap().echoes(FAR).unwrap();
    lab.kill();
    lab.start(lab.config());
    assert!(refused("dev").contains("used up"));
    lab.try_attach(&named("dev3")).unwrap().echoes(FAR).unwrap();
}

#[test]
fn followers_see_flows_and_records_as_they_come() {
    let lab = Lab::started();
    let sandbox = lab.attach(&far_only());
    lab.block(async |c| {
        let mut flows = c.follow_flows(Some(&sandbox.view.id)).await.unwrap();
        let mut records = c.follow_records(0).await.unwrap();
        let stream = sandbox.echoes(FAR).unwrap();
        let opened = flows.next().await.unwrap().unwrap();
        let crate::control::api::FlowEvent::Open(view) = opened else { panic!("{opened:?}") };
        assert_eq!(view.upstream.to_string(), format!("{FAR}:7"));
        drop(stream);
        let closed = flows.next().await.unwrap().unwrap();
        assert!(matches!(closed, crate::control::api::FlowEvent::Close { id, .. } if id == view.id));
        let mut seq = 0;
        while !matches!(records.next().await.unwrap().unwrap(), crate::record::Line { seq: n, entry: Entry::Close(_), .. } if { seq = n; true }) {}
        // A cursor resumes behind what was seen.
        let mut resumed = c.records(seq - 1).await.unwrap();
        assert_eq!(resumed.next().await.unwrap().unwrap().seq, seq);
    });
}

#[test]
fn an_upstream_socket_is_ours_and_others_are_not() {
    let lab = Lab::started();
    let sandbox = lab.attach(&far_only());
    let _stream = sandbox.echoes(FAR).unwrap();
    let flow = lab.block(async |c| c.flows(None).await.unwrap()).remove(0);
    let local = eventually("the open record", || {
        lab.block(async |c| {
            let mut lines = c.records(0).await.unwrap();
            while let Some(line) = lines.next().await.unwrap() {
                if let Entry::Open(open) = line.entry {
                    return open.local;
                }
            }
            None
        })
    });
    let owner =
        |local, remote| lab.block(async |c| c.owner(&FourTuple { local, remote }).await.unwrap());
    assert_eq!(
        owner(local, flow.upstream).network,
        Some(sandbox.view.id.clone())
    );
    assert_eq!(owner(flow.upstream, local).flow, Some(flow.id));
    assert!(!owner(local, "93.184.216.35:7".parse().unwrap()).ours);
}

#[test]
fn explanations_come_from_the_policy_in_force() {
    let lab = Lab::started();
    let sandbox = lab.attach(&far_only());
    let ask = |destination: &str| {
        let request = ExplainRequest {
            destination: destination.to_owned(),
            protocol: netpolicy::policy::Protocol::Tcp,
            sni: None,
            resolves_to: Vec::new(),
            method: None,
            path: None,
        };
        lab.block(async |c| c.explain(&sandbox.view.id, &request).await.unwrap())
    };
    assert_eq!(ask(&format!("{FAR}:7"))["decision"], "permit");
    assert_eq!(
        ask(&format!("{ELSEWHERE}:7"))["reason"],
        "address_not_allowed"
    );
}
