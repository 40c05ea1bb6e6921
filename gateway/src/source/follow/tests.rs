//! When what is in force counts as outdated.

use super::*;

fn config() -> SourceConfig {
    let text = "gateway:\n  sources:\n    a: { remote: /srv/a, poll: 120 }\n";
    crate::config::GatewayConfig::parse("c.yml", text)
        .unwrap()
        .sources
        .remove(0)
}

/// GIT-13
#[test]
fn what_was_not_confirmed_for_long_is_stale() {
    let mut inner = Inner {
        kept: Kept::fresh(String::new()),
        problem: None,
        checked_ms: Some(1_000),
    };
    let limit = 1_000 + 120_000 * STALE_LOOKS;
    assert!(!is_stale(&config(), &inner, limit) && is_stale(&config(), &inner, limit + 1));
    inner.checked_ms = None;
    assert!(
        !is_stale(&config(), &inner, limit),
        "nothing was loaded, so nothing is outdated"
    );
    let good = Good::new(
        Oid::from_bytes(&[1; 20]).unwrap(),
        1_000,
        None,
        &load::Documents::default(),
    );
    inner.kept.good = Some(good);
    assert!(is_stale(&config(), &inner, limit + 1));
}
