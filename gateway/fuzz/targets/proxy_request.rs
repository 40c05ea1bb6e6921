//! Any bytes as a request to the explicit proxy: what is forwarded is one request that reads as the one that was decided.

use gateway::detect::http::{HeadReader, Target};
use gateway::listen::proxy::origin_form;

/// One run.
pub fn run(bytes: &[u8]) {
    let Ok(Some(head)) = HeadReader::default().advance(bytes) else {
        return;
    };
    let Target::Absolute { authority, .. } = &head.target else {
        return;
    };
    let raw = origin_form(&head);
    let forwarded = HeadReader::default()
        .advance(&raw)
        .expect("well-formed")
        .expect("whole");
    assert_eq!(forwarded.length, raw.len(), "nothing after it");
    assert_eq!(
        (&forwarded.method, forwarded.path(), forwarded.framing),
        (&head.method, head.path(), head.framing)
    );
    assert_eq!(
        forwarded.host.as_ref(),
        head.host.as_ref().or(Some(authority))
    );
    assert!(
        head.host
            .as_ref()
            .is_none_or(|host| host.host == authority.host)
    );
    assert!(forwarded.upgrade.is_empty());
    for gone in [
        "connection",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "upgrade",
        "keep-alive",
    ] {
        assert!(
            forwarded.fields.iter().all(|field| field.name != gone),
            "{gone} went on"
        );
    }
}
