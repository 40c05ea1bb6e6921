//! The one vocabulary of reason codes (DNS errors, HTTP 403 bodies, proxy, record, CLI).
//!
//! A code never changes its meaning; new ones are added at the end.

use serde::{Deserialize, Serialize};

macro_rules! reasons {
    ($($variant:ident $code:literal $help:literal),+ $(,)?) => {
        /// Why a flow was denied, or why a permitted one failed.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
        pub enum Reason {
            $(#[doc = $help] #[serde(rename = $code)] $variant),+
        }

        impl Reason {
            /// Every reason, in the order of the published list.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The code as it appears on every surface.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$variant => $code),+ }
            }

            /// One sentence: what happened and what to do about it.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help),+ }
            }

            /// The same sentence, and where the whole page is: what denials say.
            pub const fn guide(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($help, " More: sallyport policy reasons ", $code)),+
                }
            }
        }
    };
}

reasons! {
    NetworkNone "network_none" "The policy gives this sandbox no network; choose `network: domains` or `internet` to allow destinations.",
    NameNotAllowed "name_not_allowed" "No `allow` entry names this host; add one for it if the run needs it.",
    NameDenied "name_denied" "A `deny` entry names this host; deny beats every allow.",
    NameInvalid "name_invalid" "The name is malformed and can mean no host; correct its spelling.",
    NameAmbiguous "name_ambiguous" "Several names lead to this address and the flow did not say which; use a protocol that names its host.",
    NameUnresolvable "name_unresolvable" "The name is permitted but the upstream resolver gave no address for it; check the name and the resolver.",
    NameResolvesToForbidden "name_resolves_to_forbidden" "The name is permitted but leads to an address that is not; see the address class in `explain`.",
    LeaseUnknown "lease_unknown" "The address is a synthetic one that no look-up of this network handed out; look the name up again.",
    AddressNotAllowed "address_not_allowed" "No `allow` entry covers this address; connect by name, or add a `cidr` entry.",
    AddressPrivate "address_private" "The address is on a private network; `private: true` together with a matching entry opens it.",
    AddressSpecial "address_special" "The address is in a special-purpose range; only a `cidr` entry with `private: true` opens it.",
    AddressHost "address_host" "The address belongs to the machine itself; `private: true` opens it, Sallyport's own listeners stay closed.",
    AddressMetadata "address_metadata" "Cloud metadata services are never reachable.",
    AddressLoopback "address_loopback" "Loopback and unspecified addresses of the gateway's machine are never reachable.",
    AddressMulticast "address_multicast" "Multicast and broadcast are never reachable.",
    AddressGateway "address_gateway" "The address belongs to the gateway itself or to its pools.",
    AddressDenied "address_denied" "A `deny` entry covers this address; a denied address beats every name that leads to it.",
    PortNotAllowed "port_not_allowed" "The host is permitted, this port is not; add it under `ports`.",
    ProtocolNotAllowed "protocol_not_allowed" "The host is permitted, this protocol is not; see `protocol` and `speaks`.",
    TlsNameMissing "tls_name_missing" "The TLS ClientHello names no server, so the flow cannot be judged; send the server name.",
    TlsNameMismatch "tls_name_mismatch" "The TLS server name is not the name that was looked up or asked for.",
    TlsMalformed "tls_malformed" "The first bytes are not a well-formed TLS ClientHello.",
    HttpMalformed "http_malformed" "The request head is malformed or ambiguous, or the server speaks no HTTP.",
    HttpHostMismatch "http_host_mismatch" "The request's host is not the name that was looked up or asked for.",
    HttpRequestNotAllowed "http_request_not_allowed" "The host is permitted, this method or path is not.",
    LimitFlows "limit_flows" "Too many flows are open at once; close some, or raise `limits.flows`.",
    LimitRate "limit_rate" "New flows come too fast; slow down, or raise `limits.rate`.",
    LimitUpload "limit_upload" "The run's upload budget is used up; send less, or raise `limits.upload`.",
    LimitDownload "limit_download" "The run's download budget is used up; fetch less, or raise `limits.download`.",
    LimitNames "limit_names" "The run's budget of distinct names is used up; ask for fewer, or raise `limits.names`.",
    LimitRecords "limit_records" "The run's share of the record is used up; open fewer flows, or raise `limits.records` where a policy sets it.",
    AskPending "ask_pending" "A person has been asked; try again after the answer.",
    AskDenied "ask_denied" "A person said no to this destination.",
    AskExpired "ask_expired" "Nobody answered in time.",
    PolicySuperseded "policy_superseded" "A newer policy no longer permits this flow.",
    RunEnded "run_ended" "The run is over.",
    GatewaySealed "gateway_sealed" "The gateway is sealed and lets nothing out; `sallyport doctor` names the cause.",
    UpstreamRefused "upstream_refused" "The destination refused the connection.",
    UpstreamUnreachable "upstream_unreachable" "No route leads to the destination.",
    UpstreamTimeout "upstream_timeout" "The destination did not answer in time.",
    UpstreamTls "upstream_tls" "The TLS session with the destination failed.",
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.code())
    }
}
