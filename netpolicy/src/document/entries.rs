//! The grammar of `allow` and `deny` entries.

use super::forms::{CIDR, HOST, METHOD, PATH};
use super::grammar::field;
use super::shape::{Bond, Kind, Need, Shape};
use super::values::{DATE, PORT_RANGE, WORDS};

use Need::Optional;

/// Why ICMP and ports exclude each other.
const PORTLESS: &str = "an echo has no ports";

/// The list of a set.
pub(super) static ALLOW_LIST: Kind = Kind::List {
    of: &Kind::Object(&ALLOW),
    min: 1,
};

/// An entry of `allow` or of a set.
pub static ALLOW: Shape = Shape {
    what: "an allow entry",
    fields: &[
        field(
            "host",
            Optional,
            Kind::Text(&HOST),
            "A host name, or *.example.com for every name below it and not itself.",
        ),
        field(
            "cidr",
            Optional,
            Kind::Text(&CIDR),
            "A prefix or a single address; needs `ports`, except for icmp.",
        ),
        field(
            "ports",
            Optional,
            PORTS,
            "Ports and ranges, or any. A host without it: 80 and 443.",
        ),
        field(
            "protocol",
            Optional,
            Kind::Word(&["tcp", "udp", "icmp"]),
            "Transport; icmp is echo (ping) and nothing else. Default tcp.",
        ),
        field(
            "speaks",
            Optional,
            Kind::Word(&["tls", "http", "any"]),
            "How bytes are judged. Default tls on 443 (QUIC over udp), http on 80 over tcp, any elsewhere.",
        ),
        field(
            "until",
            Optional,
            Kind::Text(&DATE),
            "Last day (UTC) on which the entry is in force.",
        ),
        field(
            "http",
            Optional,
            Kind::List {
                of: &Kind::Object(&HTTP),
                min: 1,
            },
            "Permitted methods and paths; implies inspection.",
        ),
    ],
    bonds: &[
        Bond::OneOf(&["host", "cidr"]),
        Bond::NeedsUnless("cidr", "ports", ("protocol", "icmp")),
        Bond::Apart("cidr", "http", "requests are judged by host"),
        Bond::ApartIf {
            key: "speaks",
            word: "any",
            other: "http",
            why: "what may be anything has no methods and paths",
        },
        Bond::ApartIf {
            key: "protocol",
            word: "udp",
            other: "http",
            why: "requests are judged on TCP",
        },
        Bond::ApartIf {
            key: "protocol",
            word: "icmp",
            other: "ports",
            why: PORTLESS,
        },
        Bond::ApartIf {
            key: "protocol",
            word: "icmp",
            other: "speaks",
            why: "an echo has no bytes to judge",
        },
        Bond::ApartIf {
            key: "protocol",
            word: "icmp",
            other: "http",
            why: "requests are judged on TCP",
        },
        Bond::ApartWords(
            ("protocol", "udp"),
            ("speaks", "http"),
            "HTTP over datagrams is QUIC, which is `tls`",
        ),
    ],
};

/// An entry of `deny`.
pub static DENY: Shape = Shape {
    what: "a deny entry",
    fields: &[
        field(
            "host",
            Optional,
            Kind::Text(&HOST),
            "A host name, or *.example.com for every name below it and not itself.",
        ),
        field(
            "cidr",
            Optional,
            Kind::Text(&CIDR),
            "A prefix or a single address; it beats every name that leads to it.",
        ),
        field(
            "ports",
            Optional,
            PORTS,
            "Ports and ranges, or any. Default any.",
        ),
        field(
            "protocol",
            Optional,
            Kind::Word(&["tcp", "udp", "icmp"]),
            "Transport. Default all; ping only with `ports: any` or none.",
        ),
        field(
            "reason",
            Optional,
            Kind::Text(&WORDS),
            "Why, in words; shown with the denial.",
        ),
    ],
    bonds: &[
        Bond::OneOf(&["host", "cidr"]),
        Bond::ApartIf {
            key: "protocol",
            word: "icmp",
            other: "ports",
            why: PORTLESS,
        },
    ],
};

static HTTP: Shape = Shape {
    what: "an http entry",
    fields: &[
        field(
            "methods",
            Optional,
            Kind::List {
                of: &Kind::Text(&METHOD),
                min: 1,
            },
            "Methods; any if left out.",
        ),
        field(
            "paths",
            Optional,
            Kind::List {
                of: &Kind::Text(&PATH),
                min: 1,
            },
            "Paths: * is one segment, ** any number; any if left out.",
        ),
    ],
    bonds: &[],
};

/// Ports and ranges, or any.
pub(super) const PORTS: Kind = Kind::Either {
    of: &[
        Kind::Word(&["any"]),
        Kind::List {
            of: &Kind::Either {
                of: &[
                    Kind::Whole {
                        min: 1,
                        max: 65_535,
                    },
                    Kind::Text(&PORT_RANGE),
                ],
                expected: "a port from 1 to 65535 or a range like 6000-6100",
            },
            min: 1,
        },
    ],
    expected: "a list of ports and ranges, or any",
};
