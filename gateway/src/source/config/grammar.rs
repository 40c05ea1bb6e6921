//! The keys of a source, as tables.

use netpolicy::document::shape::{Field, Format, Kind, Lexis, Need, Shape};
use netpolicy::document::values::{DATE, SIZE};

use crate::source::names::is_short_name;

const fn field(key: &'static str, kind: Kind, help: &'static str) -> Field {
    Field {
        key,
        kind,
        need: Need::Optional,
        help,
    }
}

/// `sources`: by name.
pub const SOURCES: Kind = Kind::Named {
    keys: &NAME,
    of: &Kind::Object(&SOURCE),
};

static SOURCE: Shape = Shape {
    what: "a source",
    fields: &[
        Field {
            key: "remote",
            kind: Kind::Text(&REMOTE),
            need: Need::Required,
            help: "The repository: https://, ssh://, user@host:path, or an absolute path of this machine.",
        },
        field(
            "branch",
            Kind::Text(&WORD),
            "The branch that is followed. Default main.",
        ),
        field(
            "folder",
            Kind::Text(&WORD),
            "Folder of policies in the repository. Default policies.",
        ),
        field(
            "floors",
            Kind::Text(&WORD),
            "Folder of workspace floors in the repository, WORKSPACE.yml each. Default: none.",
        ),
        field(
            "workspaces",
            Kind::List {
                of: &Kind::Text(&NAME),
                min: 1,
            },
            "Workspaces that it speaks for. Default: all.",
        ),
        field(
            "poll",
            Kind::Whole {
                min: 5,
                max: 86_400,
            },
            "Seconds between looks at the remote. Default 60.",
        ),
        field(
            "rewrites",
            Kind::Word(&["follow", "refuse"]),
            "A branch whose history was rewritten or set back: follow and flag it, or refuse it until `policy sync --accept`. Default follow; refuse where signatures are required.",
        ),
        field(
            "signatures",
            Kind::Object(&SIGNATURES),
            "Whose signatures every new commit must carry.",
        ),
        field("ssh_key", Kind::Text(&FILE), "Private key for ssh."),
        field(
            "known_hosts",
            Kind::Text(&FILE),
            "Host keys for ssh; a host that is not in it is refused.",
        ),
        field(
            "ca",
            Kind::Text(&FILE),
            "Certificates for https, instead of the system's.",
        ),
        field(
            "token",
            Kind::Text(&FILE),
            "File with USER:TOKEN for https, readable by root only.",
        ),
        field(
            "proposals",
            Kind::Word(&["refused", "allowed"]),
            "Whether `policy propose` may push branches. Default refused.",
        ),
        field("limits", Kind::Object(&LIMITS), "What the source may cost."),
    ],
    bonds: &[],
};

static SIGNATURES: Shape = Shape {
    what: "signatures",
    fields: &[
        field(
            "ssh",
            Kind::List {
                of: &Kind::Object(&SSH),
                min: 1,
            },
            "SSH keys (ed25519, ecdsa on P-256).",
        ),
        field(
            "openpgp",
            Kind::Text(&FILE),
            "A keyring of OpenPGP keys (binary, as `gpg --export` writes it).",
        ),
    ],
    bonds: &[],
};

static SSH: Shape = Shape {
    what: "an SSH signer",
    fields: &[
        Field {
            key: "key",
            kind: Kind::Text(&WORD),
            need: Need::Required,
            help: "A line of a .pub file.",
        },
        field(
            "until",
            Kind::Text(&DATE),
            "Last day on which it signs anything new.",
        ),
    ],
    bonds: &[],
};

static LIMITS: Shape = Shape {
    what: "limits of a source",
    fields: &[
        field("fetch", Kind::Text(&SIZE), "One fetch. Default 64MiB."),
        field(
            "files",
            Kind::Whole {
                min: 1,
                max: 100_000,
            },
            "Files and folders below `folder`. Default 2000.",
        ),
        field("file", Kind::Text(&SIZE), "One policy. Default 1MiB."),
        field("total", Kind::Text(&SIZE), "All policies. Default 16MiB."),
        field(
            "seconds",
            Kind::Whole { min: 1, max: 3600 },
            "Each act of git. Default 60.",
        ),
    ],
    bonds: &[],
};

static NAME: Format = Format {
    expected: "a name of 1 to 40 characters of a-z, 0-9 and '-'",
    pattern: Some("^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$"),
    fits: is_short_name,
    lexis: Lexis::Words,
};

/// Goes through a shell on git's way to ssh, and ssh expands '%' and '~': neither has a form.
static FILE: Format = Format {
    expected: "an absolute path of letters, digits and -._/ without '..'",
    pattern: Some("^/[A-Za-z0-9._/-]+$"),
    fits: |text| {
        text.starts_with('/')
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'/'))
            && text.split('/').all(|part| part != "..")
    },
    lexis: Lexis::Words,
};

/// Checked by the reader, with the reasons that names know.
static REMOTE: Format = Format {
    expected: "a remote such as ssh://git@git.example.com/policies.git",
    pattern: None,
    fits: |t| !t.is_empty(),
    lexis: Lexis::Words,
};
static WORD: Format = Format {
    expected: "a text",
    pattern: None,
    fits: |t| !t.is_empty(),
    lexis: Lexis::Words,
};
