//! The grammar of policy documents, as tables: checker, schema and messages read the same rows.

use super::shape::{Bond, Field, Format, Kind, Lexis, Need, Shape};
use super::values::{DATE, LABEL, PORT_RANGE, SIZE, WORDS};

use Need::{Optional, Required};

const fn field(key: &'static str, need: Need, kind: Kind, help: &'static str) -> Field {
    Field { key, kind, need, help }
}

/// A policy document.
pub static POLICY: Shape = Shape {
    what: "a policy",
    fields: &[
        field("policy", Required, Kind::Text(&LABEL), "The policy's name, as records and denials show it."),
        field("description", Optional, Kind::Text(&WORDS), "What it is for, in words."),
        field("network", Required, Kind::Word(&["none", "domains", "internet"]), "none: nothing; domains: what `allow` lists; internet: every public destination that nothing denies."),
        field("private", Optional, Kind::Flag, "Whether private networks and the host may be reached. Default false."),
        field("names", Optional, Kind::Word(&["leased", "real"]), "What DNS answers for permitted names: synthetic addresses (default) or the checked real ones."),
        field("use", Optional, Kind::List { of: &Kind::Text(&SET_NAME), min: 0 }, "Named sets to allow: `packages` (from the image), shipped ones, your own under `sets`."),
        field("sets", Optional, Kind::Named { keys: &SET_NAME, of: &ALLOW_LIST }, "Your own sets: a name and its `allow` entries."),
        field("allow", Optional, Kind::List { of: &Kind::Object(&ALLOW), min: 0 }, "Permitted destinations."),
        field("deny", Optional, Kind::List { of: &Kind::Object(&DENY), min: 0 }, "Forbidden destinations; deny beats every allow."),
        field("ingress", Optional, Kind::List { of: &Kind::Object(&INGRESS), min: 0 }, "Ports of the sandbox that the gateway may connect to."),
        field("limits", Optional, Kind::Object(&LIMITS), "Budgets of one run."),
        field("secrets", Optional, Kind::List { of: &Kind::Object(&SECRET), min: 0 }, "Secrets that the gateway puts into requests."),
        field("unknown", Optional, Kind::Word(&["deny", "ask"]), "What becomes of a first contact that nothing names. Default deny."),
        field("explain", Optional, Kind::Flag, "Whether denials name policy and rule to the sandbox. Default true."),
        field("tests", Optional, Kind::List { of: &Kind::Object(&TEST), min: 0 }, "What this policy shall decide, checked by `sallyport policy test`."),
    ],
    bonds: &[],
};

static ALLOW_LIST: Kind = Kind::List { of: &Kind::Object(&ALLOW), min: 1 };

/// An entry of `allow` or of a set.
pub static ALLOW: Shape = Shape {
    what: "an allow entry",
    fields: &[
        field("host", Optional, Kind::Text(&HOST), "A host name, or *.example.com for every name below it and not itself."),
        field("cidr", Optional, Kind::Text(&CIDR), "A prefix or a single address; needs `ports`."),
        field("ports", Optional, PORTS, "Ports and ranges, or any. A host without it: 80 and 443."),
        field("protocol", Optional, Kind::Word(&["tcp", "udp"]), "Transport. Default tcp."),
        field("speaks", Optional, Kind::Word(&["tls", "http", "any"]), "How bytes are judged. Default tls on 443, http on 80, any elsewhere."),
        field("until", Optional, Kind::Text(&DATE), "Last day (UTC) on which the entry is in force."),
        field("http", Optional, Kind::List { of: &Kind::Object(&HTTP), min: 1 }, "Permitted methods and paths; implies inspection."),
    ],
    bonds: &[
        Bond::OneOf(&["host", "cidr"]),
        Bond::Needs("cidr", "ports"),
        Bond::Apart("cidr", "http", "requests are judged by host"),
        Bond::ApartIf { key: "speaks", word: "any", other: "http", why: "what may be anything has no methods and paths" },
        Bond::ApartIf { key: "protocol", word: "udp", other: "http", why: "requests are judged on TCP" },
        Bond::ApartIf { key: "protocol", word: "udp", other: "speaks", why: "datagrams are not judged by their bytes" },
    ],
};

/// An entry of `deny`.
pub static DENY: Shape = Shape {
    what: "a deny entry",
    fields: &[
        field("host", Optional, Kind::Text(&HOST), "A host name, or *.example.com for every name below it and not itself."),
        field("cidr", Optional, Kind::Text(&CIDR), "A prefix or a single address; it beats every name that leads to it."),
        field("ports", Optional, PORTS, "Ports and ranges, or any. Default any."),
        field("protocol", Optional, Kind::Word(&["tcp", "udp"]), "Transport. Default both."),
        field("reason", Optional, Kind::Text(&WORDS), "Why, in words; shown with the denial."),
    ],
    bonds: &[Bond::OneOf(&["host", "cidr"])],
};

static INGRESS: Shape = Shape {
    what: "an ingress entry",
    fields: &[field("ports", Required, PORTS, "Ports of the sandbox.")],
    bonds: &[],
};

static HTTP: Shape = Shape {
    what: "an http entry",
    fields: &[
        field("methods", Optional, Kind::List { of: &Kind::Text(&METHOD), min: 1 }, "Methods; any if left out."),
        field("paths", Optional, Kind::List { of: &Kind::Text(&PATH), min: 1 }, "Paths: * is one segment, ** any number; any if left out."),
    ],
    bonds: &[],
};

/// `limits:`
pub static LIMITS: Shape = Shape {
    what: "limits",
    fields: &[
        field("flows", Optional, Kind::Whole { min: 1, max: 1_000_000 }, "Flows open at once."),
        field("rate", Optional, Kind::Whole { min: 1, max: 1_000_000 }, "New flows a second."),
        field("upload", Optional, Kind::Text(&SIZE), "Bytes up for the whole run."),
        field("download", Optional, Kind::Text(&SIZE), "Bytes down for the whole run."),
        field("bandwidth", Optional, Kind::Text(&SIZE), "Bytes a second, each way."),
        field("names", Optional, Kind::Whole { min: 1, max: 1_000_000 }, "Distinct names looked up."),
        field("records", Optional, Kind::Whole { min: 1, max: 1_000_000_000 }, "Record entries."),
    ],
    bonds: &[],
};

static SECRET: Shape = Shape {
    what: "a secrets entry",
    fields: &[
        field("secret", Required, Kind::Text(&SECRET_NAME), "The secret's name."),
        field("host", Required, Kind::Text(&HOST), "Where it may go."),
        field("header", Required, Kind::Text(&HEADER), "Header and value; {} stands for the secret."),
    ],
    bonds: &[],
};

static TEST: Shape = Shape {
    what: "a test",
    fields: &[
        field("to", Required, Kind::Text(&DESTINATION), "host:port, ip:port or [ipv6]:port."),
        field("protocol", Optional, Kind::Word(&["tcp", "udp"]), "Transport. Default tcp."),
        field("resolves_to", Optional, Kind::List { of: &Kind::Text(&ADDRESS), min: 1 }, "Addresses that the name shall be taken to have."),
        field("expect", Required, Kind::Word(&["permit", "deny", "ask"]), "What shall be decided."),
        field("reason", Optional, Kind::Text(&REASON), "The reason code of the denial."),
    ],
    bonds: &[
        Bond::ApartIf { key: "expect", word: "permit", other: "reason", why: "only a denial has a reason" },
        Bond::ApartIf { key: "expect", word: "ask", other: "reason", why: "only a denial has a reason" },
    ],
};

const PORTS: Kind = Kind::Either {
    of: &[
        Kind::Word(&["any"]),
        Kind::List {
            of: &Kind::Either {
                of: &[Kind::Whole { min: 1, max: 65_535 }, Kind::Text(&PORT_RANGE)],
                expected: "a port from 1 to 65535 or a range like 6000-6100",
            },
            min: 1,
        },
    ],
    expected: "a list of ports and ranges, or any",
};

/// What the forms below leave to the builder is checked there, with the reasons that names and addresses know.
const fn anything(expected: &'static str) -> Format {
    Format { expected, pattern: None, fits: |text| !text.is_empty(), lexis: Lexis::Words }
}

static HOST: Format = anything("a host name such as example.com or *.example.com");
static CIDR: Format = anything("a prefix such as 203.0.113.0/24");
static ADDRESS: Format = anything("an address such as 203.0.113.7");
static DESTINATION: Format = anything("a destination such as example.com:443");
static REASON: Format = anything("a reason code such as name_denied");

static SET_NAME: Format = Format {
    expected: "the name of a set: 1 to 40 of a-z, 0-9 and '-'",
    pattern: Some("^[a-z0-9][a-z0-9-]{0,39}$"),
    fits: |text| {
        (1..=40).contains(&text.len())
            && !text.starts_with('-')
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    },
    lexis: Lexis::Words,
};

static METHOD: Format = Format {
    expected: "a method in capital letters, such as GET",
    pattern: Some("^[A-Z][A-Z0-9_-]{0,31}$"),
    fits: |text| {
        (1..=32).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_uppercase())
            && text.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
    },
    lexis: Lexis::Words,
};

static PATH: Format = anything("a path such as /repos/acme/**");

static SECRET_NAME: Format = Format {
    expected: "a secret's name of letters, digits and '_'",
    pattern: Some("^[A-Za-z_][A-Za-z0-9_]{0,127}$"),
    fits: |text| {
        (1..=128).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    },
    lexis: Lexis::Words,
};

static HEADER: Format = Format {
    expected: "a header with {} where the secret goes, such as \"Authorization: Bearer {}\"",
    pattern: Some("^[A-Za-z0-9!#$%&'*+.^_`|~-]+: [^{}]*\\{\\}[^{}]*$"),
    fits: is_header,
    lexis: Lexis::Words,
};

fn is_header(text: &str) -> bool {
    let Some((name, value)) = text.split_once(": ") else { return false };
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+.^_`|~-".contains(&b);
    let braces = value.matches(['{', '}']).count();
    !name.is_empty() && name.bytes().all(token) && value.contains("{}") && braces == 2 && value.bytes().all(|b| (0x20..0x7f).contains(&b))
}
