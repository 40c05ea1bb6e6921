//! The grammar of a job's file, as tables: what the checker takes is what is written here.
//!
//! It has the fields of a job of the API, with its name in front. Bounds of numbers and texts that depend on more than
//! one field are `jobs::check`'s, told at the place of their field.

use netpolicy::document::shape::{Bond, Field, Format, Kind, Lexis, Need, Shape};

const fn optional(key: &'static str, kind: Kind, help: &'static str) -> Field {
    Field {
        key,
        kind,
        need: Need::Optional,
        help,
    }
}

const TEXT: Format = Format {
    expected: "a text",
    pattern: None,
    fits: |_| true,
    lexis: Lexis::Words,
};

const VARIABLE: Format = Format {
    expected: "the name of a variable",
    pattern: Some("^[A-Za-z_][A-Za-z0-9_]*$"),
    fits: |text| {
        text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    },
    lexis: Lexis::Words,
};

const TEXTS: Kind = Kind::List {
    of: &Kind::Text(&TEXT),
    min: 0,
};
const MOST: u64 = 1 << 40;
const NUMBER: Kind = Kind::Whole { min: 0, max: MOST };

/// A job's file.
pub const JOB: Shape = Shape {
    what: "a job",
    fields: &[
        Field {
            key: "job",
            kind: Kind::Text(&TEXT),
            need: Need::Required,
            help: "its name, of which there is one in the workspace",
        },
        optional("enabled", Kind::Flag, "whether it may be triggered"),
        optional("description", Kind::Text(&TEXT), "what it is for"),
        optional(
            "command",
            TEXTS,
            "program and arguments; empty runs what the image itself would",
        ),
        optional("image", Kind::Text(&TEXT), "the image, or the runner's own"),
        optional(
            "isolation",
            Kind::Word(&["auto", "hardened", "gvisor"]),
            "the isolation class",
        ),
        optional("network", Kind::Object(&NETWORK), "what it may reach"),
        optional("root", Kind::Flag, "run as root instead of `agent`"),
        optional(
            "limits",
            Kind::Object(&LIMITS),
            "time, memory, CPU, processes",
        ),
        optional(
            "env",
            Kind::Named {
                keys: &VARIABLE,
                of: &Kind::Text(&TEXT),
            },
            "variables",
        ),
        optional("workdir", Kind::Text(&TEXT), "the working directory"),
        optional(
            "secrets",
            TEXTS,
            "names of secrets of the workspace that its runs get",
        ),
        optional(
            "input",
            Kind::Flag,
            "whether it reads what its trigger sends",
        ),
        optional(
            "schedule",
            Kind::Object(&SCHEDULE),
            "when it runs by itself",
        ),
        optional(
            "overlap",
            Kind::Object(&OVERLAP),
            "what happens when a run of it is there already",
        ),
        optional(
            "retry",
            Kind::Object(&RETRY),
            "which ends are followed by another attempt",
        ),
        optional(
            "notify",
            Kind::Object(&NOTIFY),
            "who is told about its runs, instead of as the workspace's notifications ask",
        ),
    ],
    bonds: &[],
};

const NETWORK: Shape = Shape {
    what: "a network setting",
    fields: &[
        optional(
            "mode",
            Kind::Word(&["none", "domains", "internet"]),
            "no network, allowed domains only, or internet",
        ),
        optional(
            "allow_private",
            Kind::Flag,
            "whether private networks and the host may be reached",
        ),
        optional(
            "domains",
            TEXTS,
            "names that may be reached with `mode: domains`",
        ),
        optional("policy", Kind::Text(&TEXT), "the text of a policy"),
        optional(
            "policy_file",
            Kind::Text(&TEXT),
            "a file with a policy, in the folder of this file or below",
        ),
        optional(
            "policy_name",
            Kind::Text(&TEXT),
            "the name of a policy in git that the gateway follows",
        ),
    ],
    bonds: &[
        Bond::Apart("policy", "policy_file", "one policy counts"),
        Bond::Apart("policy", "policy_name", "one policy counts"),
        Bond::Apart("policy_file", "policy_name", "one policy counts"),
    ],
};

const LIMITS: Shape = Shape {
    what: "limits",
    fields: &[
        optional("timeout_seconds", NUMBER, "seconds until the run is ended"),
        optional("memory_mib", NUMBER, "memory in MiB"),
        optional("cpu_millis", NUMBER, "thousandths of a CPU"),
        optional("pids", NUMBER, "processes and threads"),
    ],
    bonds: &[],
};

const SCHEDULE: Shape = Shape {
    what: "a schedule",
    fields: &[
        Field {
            key: "cron",
            kind: Kind::Text(&TEXT),
            need: Need::Required,
            help: "minute, hour, day of month, month, day of week",
        },
        optional("timezone", Kind::Text(&TEXT), "such as Europe/Berlin"),
        optional(
            "catch_up",
            Kind::Word(&["once", "never"]),
            "what becomes of times that passed meanwhile",
        ),
    ],
    bonds: &[],
};

const OVERLAP: Shape = Shape {
    what: "an overlap rule",
    fields: &[
        optional(
            "rule",
            Kind::Word(&["skip", "queue", "parallel"]),
            "what a run does that finds another one",
        ),
        optional(
            "most",
            Kind::Whole {
                min: 0,
                max: 1 << 20,
            },
            "how many at once with `parallel`",
        ),
        optional(
            "group",
            Kind::Text(&TEXT),
            "jobs with the same group count as one",
        ),
    ],
    bonds: &[],
};

const RETRY: Shape = Shape {
    what: "a retry rule",
    fields: &[
        optional(
            "most",
            Kind::Whole {
                min: 0,
                max: 1 << 20,
            },
            "further attempts, at most",
        ),
        optional(
            "on",
            Kind::List {
                of: &Kind::Word(&["failed", "timed_out", "lost"]),
                min: 0,
            },
            "after which ends",
        ),
        optional(
            "wait_seconds",
            Kind::Whole {
                min: 0,
                max: 1 << 20,
            },
            "seconds before the second attempt",
        ),
    ],
    bonds: &[],
};

const NOTIFY: Shape = Shape {
    what: "a rule who is told",
    fields: &[
        optional(
            "to",
            TEXTS,
            "names of notifications of the workspace; none: nobody is told",
        ),
        optional(
            "on",
            Kind::List {
                of: &Kind::Word(&["failed", "succeeded", "denied"]),
                min: 0,
            },
            "what of a run is told",
        ),
    ],
    bonds: &[],
};

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use ::console::jobs::spec::JobSpec;

    /// Every setting of a job, so that none is skipped where it is written.
    fn filled() -> Value {
        json!({
            "description": "d", "command": ["sh"], "image": "i", "isolation": "gvisor", "root": true,
            "network": { "mode": "domains", "allow_private": true, "domains": ["a.example"], "policy": "p",
                         "policy_name": "n" },
            "limits": { "timeout_seconds": 1, "memory_mib": 1, "cpu_millis": 1, "pids": 1 },
            "env": { "A": "b" }, "workdir": "/w", "secrets": ["S"], "input": true,
            "schedule": { "cron": "30 4 * * *", "timezone": "UTC", "catch_up": "never" },
            "overlap": { "rule": "parallel", "most": 2, "group": "g" },
            "retry": { "most": 1, "on": ["lost"], "wait_seconds": 1 },
            "notify": { "to": ["ops"], "on": ["failed", "succeeded", "denied"] },
        })
    }

    /// Whether each key of a value has its place in a form.
    fn covers(shape: &Shape, value: &Value, at: &str) {
        for (key, value) in value.as_object().unwrap() {
            let field = shape.fields.iter().find(|field| field.key == key);
            let field = field.unwrap_or_else(|| panic!("`{at}{key}` would be lost in a file"));
            if let Kind::Object(inner) = &field.kind {
                covers(inner, value, &format!("{at}{key}."));
            }
        }
    }

    #[test]
    fn a_file_has_a_place_for_every_setting_of_a_job() {
        // a setting that is new is named here first: without `..`, this does not compile before
        let JobSpec {
            description: _,
            command: _,
            image: _,
            isolation: _,
            network: _,
            root: _,
            limits: _,
            env: _,
            workdir: _,
            secrets: _,
            input: _,
            schedule: _,
            overlap: _,
            retry: _,
            notify: _,
        } = JobSpec::default();
        let spec: JobSpec = serde_json::from_value(filled()).unwrap();
        let written = json!(spec);
        assert_eq!(written, filled(), "nothing is skipped");
        covers(&JOB, &written, "");
    }
}
