//! Every mistake at once, each with its place; and the settings that are meant.

use super::*;
use crate::kernel::Enforcement;

fn mistakes(text: &str) -> Vec<String> {
    GatewayConfig::parse("c.yml", text)
        .unwrap_err()
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn no_section_and_an_empty_list_are_the_defaults() {
    assert_eq!(
        GatewayConfig::parse("c.yml", "runner:\n  pool: 2\n").unwrap(),
        GatewayConfig::default()
    );
    let empty = GatewayConfig::parse("c.yml", "gateway:\n  host_addresses: []\n").unwrap();
    assert_eq!(empty, GatewayConfig::default());
}

#[test]
fn all_mistakes_come_at_once_with_their_places() {
    let found = mistakes(
        "gateway:\n  namespace: ../x\n  contrl: /x\n  state_dir: relative\n  pools:\n    sandboxes: 10.0.0.0/8\n    leases: 10.1.0.0/16\n    ula: 2001:db8::/48\n  resolvers: [dns.example, 192.0.2.053]\n  host_addresses: [\"0x7f.1\"]\n  uplink: nowhere\n  journal: { days: 0 }\n",
    );
    let wanted = [
        "c.yml:2:14",
        "c.yml:3:3",
        "c.yml:4:14",
        "c.yml:6:5",
        "c.yml:8:10",
        "c.yml:9:15",
        "c.yml:9:28",
        "c.yml:10:20",
        "c.yml:11:11",
        "c.yml:12:20",
    ];
    let places: Vec<&str> = found
        .iter()
        .map(|m| m.split_once(": ").unwrap().0)
        .collect();
    assert_eq!(places, wanted, "{found:#?}");
}

#[test]
fn every_word_for_filter_and_rules_is_taken_and_a_wrong_one_is_corrected() {
    for line in [
        "egress_filter: required",
        "egress_filter: auto",
        "egress_filter: \"off\"",
        "enforcement: auto",
        "enforcement: nftables",
        "enforcement: iptables",
    ] {
        assert!(
            GatewayConfig::parse("c.yml", &format!("gateway:\n  {line}\n")).is_ok(),
            "{line}"
        );
    }
    assert!(
        mistakes("gateway:\n  egress_filter: requierd\n")[0].contains("did you mean `required`?")
    );
}

#[test]
fn the_kind_of_kernel_rules_is_chosen_and_auto_without_a_word() {
    let of = |line: &str| {
        let text = format!("gateway:\n  namespace: sallyport\n  {line}\n");
        GatewayConfig::parse("c.yml", &text).unwrap().enforcement
    };
    assert_eq!(of(""), Enforcement::Auto);
    assert_eq!(of("enforcement: auto"), Enforcement::Auto);
    assert_eq!(of("enforcement: nftables"), Enforcement::Nftables);
    assert_eq!(of("enforcement: iptables"), Enforcement::Iptables);
    assert!(mistakes("gateway:\n  enforcement: iptable\n")[0].contains("did you mean `iptables`?"));
}

#[test]
fn a_group_of_users_includes_the_greater_ones() {
    let text = "gateway:\n  control_users: { observe: [1001], attach: [1002, root], attach_any: [1004], operate: [1003] }\n";
    let users = GatewayConfig::parse("c.yml", text).unwrap().control_users;
    assert_eq!(users.observe, BTreeSet::from([0, 1001, 1002, 1003, 1004]));
    assert_eq!(users.attach, BTreeSet::from([0, 1002, 1003, 1004]));
    assert_eq!(users.attach_any, BTreeSet::from([1004]));
    assert_eq!(users.operate, BTreeSet::from([1003]));
    let bound =
        "gateway:\n  control_users: { attach: [1001, { user: 1002, workspaces: [shop, web] }] }\n";
    let users = GatewayConfig::parse("c.yml", bound).unwrap().control_users;
    assert_eq!(users.attach, BTreeSet::from([1001, 1002]));
    let names = ["shop", "web"].map(str::to_owned);
    assert_eq!(users.workspaces, BTreeMap::from([(1002, names.into())]));
    for wrong in [
        "{ user: 1002 }",
        "{ user: 1002, workspaces: [\"../x\"] }",
        "{ workspaces: [shop] }",
    ] {
        let text = format!("gateway:\n  control_users: {{ attach: [{wrong}] }}\n");
        assert!(!mistakes(&text).is_empty(), "{wrong}");
    }
    assert!(
        mistakes("gateway:\n  control_users: { attach: [no-such-user-here] }\n")[0]
            .contains("no user")
    );
}

#[test]
fn resolvers_are_a_list_or_split_by_domain() {
    let list = GatewayConfig::parse(
        "c.yml",
        "gateway:\n  resolvers: [192.0.2.53, \"[2001:db8::53]:5353\"]\n",
    )
    .unwrap();
    let Resolvers::Fixed(servers) = list.resolvers else {
        panic!("not fixed")
    };
    assert_eq!(
        servers.default,
        [
            "192.0.2.53:53".parse().unwrap(),
            "[2001:db8::53]:5353".parse().unwrap()
        ]
    );
    let text = "gateway:\n  resolvers:\n    default: [192.0.2.53]\n    domains:\n      corp.example: [10.0.0.53]\n";
    let Resolvers::Fixed(split) = GatewayConfig::parse("c.yml", text).unwrap().resolvers else {
        panic!("not fixed")
    };
    assert_eq!(split.domains.len(), 1);
    assert_eq!(mistakes("gateway:\n  resolvers: []\n").len(), 1);
}

#[test]
fn folders_follow_the_state_and_run_directories() {
    let text = "gateway:\n  state_dir: /srv/a\n  run_dir: /run/a\n  journal: { size: 100MiB }\n";
    let config = GatewayConfig::parse("c.yml", text).unwrap();
    assert_eq!(config.control, Path::new("/run/a/control.sock"));
    assert_eq!(config.journal.dir, Path::new("/srv/a/journal"));
    assert_eq!(config.journal.network_bytes, 10 << 20);
    assert_eq!(
        GatewayConfig::under(Path::new("/srv/a"), Path::new("/run/a")).control,
        config.control
    );
}

#[test]
fn anchors_go_to_a_daemon_or_a_server_and_never_to_a_name() {
    let target = |text: &str| {
        let text = format!("gateway:\n  journal: {{ syslog: \"{text}\" }}\n");
        GatewayConfig::parse("c.yml", &text).map(|c| c.journal.syslog.unwrap().to_string())
    };
    assert_eq!(target("local").unwrap(), "/dev/log");
    assert_eq!(target("/run/log.sock").unwrap(), "/run/log.sock");
    assert_eq!(target("192.0.2.14").unwrap(), "192.0.2.14:514");
    assert_eq!(target("[2001:db8::1]:1514").unwrap(), "[2001:db8::1]:1514");
    for wrong in ["logs.example", "relative/path", "192.0.2.014"] {
        let found = target(wrong).unwrap_err();
        assert!(found[0].to_string().starts_with("c.yml:2:22"), "{found:?}");
    }
}

#[test]
fn metrics_are_off_by_default_and_listen_on_this_machine_only() {
    let read = |text: &str| {
        let text = format!("gateway:\n  management: {{ listen: \"{text}\" }}\n");
        GatewayConfig::parse("c.yml", &text)
    };
    assert_eq!(GatewayConfig::default().management, None);
    let loopback = read("127.0.0.1:9466").unwrap();
    assert_eq!(
        loopback.management,
        Some(Management::Address(([127, 0, 0, 1], 9466).into()))
    );
    assert!(loopback.own.ports.contains(&9466), "no policy opens it");
    assert!(read("[::1]:9466").is_ok());
    assert_eq!(
        read("/run/m.sock").unwrap().management,
        Some(Management::Socket("/run/m.sock".into()))
    );
    for wrong in [
        "0.0.0.0:9466",
        "192.0.2.1:9466",
        "[::]:9466",
        "127.0.0.1",
        "127.0.0.1:0",
        "localhost:9466",
    ] {
        let found = read(wrong).unwrap_err();
        assert!(
            found[0].to_string().contains("loopback"),
            "{wrong}: {found:?}"
        );
    }
}

#[test]
fn a_collector_of_telemetry_is_an_http_address() {
    let read = |text: &str| {
        let text = format!("gateway:\n  telemetry: {{ otlp: \"{text}\" }}\n");
        GatewayConfig::parse("c.yml", &text).map(|c| c.telemetry.unwrap().to_string())
    };
    assert_eq!(GatewayConfig::default().telemetry, None);
    assert_eq!(
        read("http://127.0.0.1:4318/").unwrap(),
        "http://127.0.0.1:4318"
    );
    for wrong in [
        "https://c.example",
        "127.0.0.1:4318",
        "http://user@c.example",
    ] {
        let found = read(wrong).unwrap_err();
        assert!(found[0].to_string().starts_with("c.yml:2:22"), "{found:?}");
    }
}

#[test]
fn the_schema_names_every_key() {
    let schema = schema();
    for field in SHAPE.fields {
        assert!(
            schema
                .pointer(&format!("/properties/{}", field.key))
                .is_some(),
            "{}",
            field.key
        );
    }
}
