//! The grammar of policy documents, as tables: checker, schema and messages read the same rows.

pub use super::entries::{ALLOW, DENY};
use super::entries::{ALLOW_LIST, PORTS};
use super::forms::{
    ADDRESS, DESTINATION, HEADER, HOST, METHOD, PATH, REASON, SECRET_NAME, SERVER_NAME, SET_NAME,
};
use super::shape::{Bond, Field, Kind, Need, Shape};
use super::values::{LABEL, SIZE, WORDS};

use Need::{Optional, Required};

/// One row of a table.
pub(crate) const fn field(key: &'static str, need: Need, kind: Kind, help: &'static str) -> Field {
    Field {
        key,
        kind,
        need,
        help,
    }
}

/// A policy document.
pub static POLICY: Shape = Shape {
    what: "a policy",
    fields: &[
        field(
            "policy",
            Required,
            Kind::Text(&LABEL),
            "The policy's name, as records and denials show it.",
        ),
        field(
            "description",
            Optional,
            Kind::Text(&WORDS),
            "What it is for, in words.",
        ),
        field(
            "network",
            Required,
            Kind::Word(&["none", "domains", "internet"]),
            "none: nothing; domains: what `allow` lists; internet: every public destination that nothing denies.",
        ),
        field(
            "private",
            Optional,
            Kind::Flag,
            "Whether private networks and the host may be reached. Default false.",
        ),
        field(
            "names",
            Optional,
            Kind::Word(&["leased", "real"]),
            "What DNS answers for permitted names: synthetic addresses (default) or the checked real ones.",
        ),
        field(
            "use",
            Optional,
            Kind::List {
                of: &Kind::Text(&SET_NAME),
                min: 0,
            },
            "Named sets to allow: `packages` (from the image), shipped ones, your own under `sets`.",
        ),
        field(
            "sets",
            Optional,
            Kind::Named {
                keys: &SET_NAME,
                of: &ALLOW_LIST,
            },
            "Your own sets: a name and its `allow` entries.",
        ),
        field(
            "allow",
            Optional,
            Kind::List {
                of: &Kind::Object(&ALLOW),
                min: 0,
            },
            "Permitted destinations.",
        ),
        field(
            "deny",
            Optional,
            Kind::List {
                of: &Kind::Object(&DENY),
                min: 0,
            },
            "Forbidden destinations; deny beats every allow.",
        ),
        field(
            "ingress",
            Optional,
            Kind::List {
                of: &Kind::Object(&INGRESS),
                min: 0,
            },
            "Ports of the sandbox that the gateway may connect to.",
        ),
        field(
            "limits",
            Optional,
            Kind::Object(&LIMITS),
            "Budgets of one run.",
        ),
        field(
            "secrets",
            Optional,
            Kind::List {
                of: &Kind::Object(&SECRET),
                min: 0,
            },
            "Secrets that the gateway puts into requests.",
        ),
        field(
            "unknown",
            Optional,
            Kind::Word(&["deny", "ask"]),
            "What becomes of a first contact that nothing names. Default deny.",
        ),
        field(
            "explain",
            Optional,
            Kind::Flag,
            "Whether denials name policy and rule to the sandbox. Default true.",
        ),
        field(
            "tests",
            Optional,
            Kind::List {
                of: &Kind::Object(&TEST),
                min: 0,
            },
            "What this policy shall decide, checked by `sallyport policy test`.",
        ),
    ],
    bonds: &[],
};

static INGRESS: Shape = Shape {
    what: "an ingress entry",
    fields: &[field("ports", Required, PORTS, "Ports of the sandbox.")],
    bonds: &[],
};

/// `limits:`
pub static LIMITS: Shape = Shape {
    what: "limits",
    fields: &[
        field(
            "flows",
            Optional,
            Kind::Whole {
                min: 1,
                max: 1_000_000,
            },
            "Flows open at once.",
        ),
        field(
            "rate",
            Optional,
            Kind::Whole {
                min: 1,
                max: 1_000_000,
            },
            "New flows a second.",
        ),
        field(
            "upload",
            Optional,
            Kind::Text(&SIZE),
            "Bytes up for the whole run.",
        ),
        field(
            "download",
            Optional,
            Kind::Text(&SIZE),
            "Bytes down for the whole run.",
        ),
        field(
            "bandwidth",
            Optional,
            Kind::Text(&SIZE),
            "Bytes a second, each way.",
        ),
        field(
            "names",
            Optional,
            Kind::Whole {
                min: 1,
                max: 1_000_000,
            },
            "Distinct names looked up.",
        ),
        field(
            "records",
            Optional,
            Kind::Whole {
                min: 1,
                max: 1_000_000_000,
            },
            "Record entries.",
        ),
    ],
    bonds: &[],
};

static SECRET: Shape = Shape {
    what: "a secrets entry",
    fields: &[
        field(
            "secret",
            Required,
            Kind::Text(&SECRET_NAME),
            "The secret's name.",
        ),
        field("host", Required, Kind::Text(&HOST), "Where it may go."),
        field(
            "header",
            Required,
            Kind::Text(&HEADER),
            "Header and value; {} stands for the secret.",
        ),
    ],
    bonds: &[],
};

static TEST: Shape = Shape {
    what: "a test",
    fields: &[
        field(
            "to",
            Required,
            Kind::Text(&DESTINATION),
            "host:port, ip:port or [ipv6]:port; for icmp without the port.",
        ),
        field(
            "protocol",
            Optional,
            Kind::Word(&["tcp", "udp", "icmp"]),
            "Transport. Default tcp.",
        ),
        field(
            "resolves_to",
            Optional,
            Kind::List {
                of: &Kind::Text(&ADDRESS),
                min: 1,
            },
            "Addresses that the name shall be taken to have.",
        ),
        field(
            "sni",
            Optional,
            Kind::Text(&SERVER_NAME),
            "The server name or Host that the client sends, if it is not the host of `to`.",
        ),
        field(
            "method",
            Optional,
            Kind::Text(&METHOD),
            "The method of a request. With `path` alone: GET.",
        ),
        field(
            "path",
            Optional,
            Kind::Text(&PATH),
            "The path of a request, as the client sends it. With `method` alone: /.",
        ),
        field(
            "expect",
            Required,
            Kind::Word(&["permit", "deny", "ask"]),
            "What shall be decided.",
        ),
        field(
            "reason",
            Optional,
            Kind::Text(&REASON),
            "The reason code of the denial.",
        ),
    ],
    bonds: &[
        Bond::ApartIf {
            key: "expect",
            word: "permit",
            other: "reason",
            why: "only a denial has a reason",
        },
        Bond::ApartIf {
            key: "expect",
            word: "ask",
            other: "reason",
            why: "only a denial has a reason",
        },
        Bond::ApartIf {
            key: "protocol",
            word: "udp",
            other: "sni",
            why: "datagrams are not judged by their bytes",
        },
        Bond::ApartIf {
            key: "protocol",
            word: "udp",
            other: "method",
            why: "requests are judged on TCP",
        },
        Bond::ApartIf {
            key: "protocol",
            word: "udp",
            other: "path",
            why: "requests are judged on TCP",
        },
        Bond::ApartIf {
            key: "protocol",
            word: "icmp",
            other: "sni",
            why: "an echo has no bytes to judge",
        },
        Bond::ApartIf {
            key: "protocol",
            word: "icmp",
            other: "method",
            why: "an echo has no bytes to judge",
        },
        Bond::ApartIf {
            key: "protocol",
            word: "icmp",
            other: "path",
            why: "an echo has no bytes to judge",
        },
    ],
};
