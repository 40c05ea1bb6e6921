//! Records of other types on their way to a sandbox: what passes, and what is taken out.
//!
//! HTTPS and SVCB lose address hints (the lease is the address), ECH (the outer name decides, so an inner one must not
//! be offered) and every parameter that is not known to be harmless (DNS-32, DNS-33). Targets inside
//! records (HTTPS and SVCB of both modes, MX, SRV, NS and the like) pass as text, also denied ones: they become permitted by
//! nothing, a client must ask for them, and is judged then. Aliases (CNAME) are another matter: the gateway itself follows
//! them, so they are judged on the way.

use std::sync::Arc;

use hickory_proto::rr::rdata::HTTPS;
use hickory_proto::rr::rdata::svcb::{Mandatory, SvcParamKey, SvcParamValue};
use hickory_proto::rr::{RData, RecordType};
use hickory_proto::serialize::binary::{BinDecoder, Restrict};

use crate::resolve::Wire;

/// Types about signatures: what the gateway answers is not what the zone signed.
pub(super) fn is_dnssec(kind: RecordType) -> bool {
    use RecordType::{CDNSKEY, CDS, DNSKEY, DS, KEY, NSEC, NSEC3, NSEC3PARAM, RRSIG, SIG};
    // DLV is 32769
    matches!(
        kind,
        CDNSKEY
            | CDS
            | DNSKEY
            | DS
            | KEY
            | NSEC
            | NSEC3
            | NSEC3PARAM
            | RRSIG
            | SIG
            | RecordType::Unknown(32769)
    )
}

/// What a sandbox may see of these records.
pub fn cleaned(kind: RecordType, records: &Arc<[Wire]>) -> Arc<[Wire]> {
    match kind {
        RecordType::HTTPS | RecordType::SVCB => records
            .iter()
            .filter_map(|wire| without_hints(kind, wire))
            .collect(),
        _ => records.clone(),
    }
}

/// The record without what it must not say; `None` if nothing usable is left.
fn without_hints(kind: RecordType, wire: &Wire) -> Option<Wire> {
    let mut decoder = BinDecoder::new(&wire.data);
    let length = u16::try_from(wire.data.len()).ok()?;
    let data = RData::read(&mut decoder, kind, Restrict::new(length)).ok()?;
    let (RData::HTTPS(HTTPS(mut svcb)) | RData::SVCB(mut svcb)) = data else {
        return None;
    };
    let needs_more = |(_, value): &(SvcParamKey, SvcParamValue)| match value {
        SvcParamValue::Mandatory(Mandatory(keys)) => !keys.iter().copied().all(is_harmless),
        _ => false,
    };
    // a client that obeys `mandatory` could not use the rest
    if svcb.svc_params.iter().any(needs_more) {
        return None;
    }
    svcb.svc_params.retain(|(key, _)| is_harmless(*key));
    let data = match kind {
        RecordType::HTTPS => RData::HTTPS(HTTPS(svcb)),
        _ => RData::SVCB(svcb),
    };
    Wire::new(&data)
}

fn is_harmless(key: SvcParamKey) -> bool {
    matches!(
        key,
        SvcParamKey::Mandatory | SvcParamKey::Alpn | SvcParamKey::NoDefaultAlpn | SvcParamKey::Port
    )
}
