//! The keys of the `runner` section, as tables: they give the checker and the JSON Schema alike.

use gateway::config::{FOLDER, SOCKET};
use netpolicy::document::shape::{Field, Format, Kind, Lexis, Need, Shape};

use super::LARGEST_POOL;
use crate::job::ImageName;
use crate::pull::line::Address;

const fn field(key: &'static str, kind: Kind, help: &'static str) -> Field {
    Field {
        key,
        kind,
        need: Need::Optional,
        help,
    }
}

/// From 1 to far above what any machine has.
const fn amount() -> Kind {
    Kind::Whole {
        min: 1,
        max: 1 << 40,
    }
}

/// The `runner` section.
pub static RUNNER: Shape = Shape {
    what: "the runner section",
    fields: &[
        field(
            "engine",
            Kind::Text(&ENGINE),
            "`auto`, `docker`, `podman` or the absolute path of a socket. Default auto.",
        ),
        field(
            "pool",
            Kind::Whole {
                min: 0,
                max: LARGEST_POOL as u64,
            },
            "Wired holders kept ready; each costs one idle process and makes a start faster. Default 1.",
        ),
        field(
            "max_runs",
            Kind::Whole {
                min: 1,
                max: 10_000,
            },
            "Runs at the same time; more are refused. Default 64.",
        ),
        field(
            "control",
            Kind::Text(&SOCKET),
            "The gateway's control socket. Default: the one of the gateway section.",
        ),
        field(
            "socket",
            Kind::Text(&SOCKET),
            "Unix socket of the runner's API. Default: runner.sock in the gateway's run_dir.",
        ),
        field(
            "state_dir",
            Kind::Text(&FOLDER),
            "Folder of what must survive a restart; the same path for the engine. Default: runner in the gateway's state_dir.",
        ),
        field(
            "run_dir",
            Kind::Text(&FOLDER),
            "Folder of sockets and per-run files; the same path for the engine. Default: runner in the gateway's run_dir.",
        ),
        field(
            "console",
            Kind::Text(&CONSOLE),
            "The console that this runner pulls work from, such as https://sallyport.example.com. Default: none.",
        ),
        field(
            "ca_file",
            Kind::Text(&TOKEN_FILE),
            "Authorities (PEM) by which the console's certificate is known. Default: this system's.",
        ),
        field(
            "plain_http",
            Kind::Flag,
            "Speak plain HTTP to a console on another machine, inside a tunnel. Default false.",
        ),
        field(
            "token_file",
            Kind::Text(&TOKEN_FILE),
            "File with this runner's token, its owner's alone. Default: console-token in state_dir.",
        ),
        field(
            "limits",
            Kind::Object(&LIMITS),
            "Defaults and ceilings of a run.",
        ),
    ],
    bonds: &[],
};

static LIMITS: Shape = Shape {
    what: "limits",
    fields: &[
        field(
            "image",
            Kind::Text(&IMAGE),
            "Image of runs that name none. Default sallyport/sandbox:latest.",
        ),
        field(
            "isolation",
            Kind::Word(&["auto", "hardened", "gvisor"]),
            "Isolation class of runs that name none. Default auto: the strongest that the host has.",
        ),
        field(
            "timeout_seconds",
            amount(),
            "Seconds until a run is ended. Default 900.",
        ),
        field(
            "max_timeout_seconds",
            amount(),
            "Longest timeout that a run may ask for. Default 86400.",
        ),
        field("memory_mib", amount(), "Memory in MiB. Default 1024."),
        field(
            "max_memory_mib",
            amount(),
            "Most memory that a run may ask for. Default 65536.",
        ),
        field("cpu_millis", amount(), "CPU in thousandths. Default 1000."),
        field(
            "max_cpu_millis",
            amount(),
            "Most CPU that a run may ask for. Default 64000.",
        ),
        field("pids", amount(), "Processes and threads. Default 256."),
        field(
            "max_pids",
            amount(),
            "Most processes that a run may ask for. Default 32768.",
        ),
        field(
            "output_bytes",
            amount(),
            "Bytes of output that are passed on; the rest is dropped behind a marker. Default 1073741824.",
        ),
    ],
    bonds: &[],
};

static ENGINE: Format = Format {
    expected: "`auto`, `docker`, `podman` or the absolute path of a socket",
    pattern: Some("^(auto|docker|podman|(unix://)?/.+)$"),
    fits: |text| {
        let path = text.strip_prefix("unix://").unwrap_or(text);
        matches!(text, "auto" | "docker" | "podman") || path.starts_with('/')
    },
    lexis: Lexis::Words,
};

static CONSOLE: Format = Format {
    expected: "an address such as https://sallyport.example.com",
    pattern: Some("^https?://"),
    fits: |text| Address::parse(text).is_some(),
    lexis: Lexis::Words,
};

static TOKEN_FILE: Format = Format {
    expected: "an absolute path",
    pattern: Some("^/"),
    fits: |text| text.starts_with('/'),
    lexis: Lexis::Words,
};

static IMAGE: Format = Format {
    expected: "the name of an image such as debian:12",
    pattern: None,
    fits: |text| text.parse::<ImageName>().is_ok(),
    lexis: Lexis::Words,
};
