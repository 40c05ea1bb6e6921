//! A job as a file: read with every mistake at its place, written so that it is read again as the same job.
//!
//! A file may come from somebody else's repository: what it names is looked for below its own folder only, and no link
//! is followed out of there.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use ::console::accounts::names;
use ::console::jobs::check;
use ::console::jobs::spec::{JobSpec, NetworkMode};
use netpolicy::document::tree::{self, Node, Value as Yaml};
use netpolicy::document::{self, Mistake, Mistakes, shape, text};
use netpolicy::policy::Place;
use serde_json::{Map, Value, json};

use super::form::JOB;
use crate::cli::remote::yaml;
use crate::config;
use crate::exit::Failure;

/// As long as a policy may be.
const LONGEST: u64 = 1 << 20;

/// A job that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// Where the name stands.
    pub at: Place,
    /// Whether it may be triggered.
    pub enabled: bool,
    /// What it runs.
    pub spec: JobSpec,
}

impl Job {
    /// What the API is sent.
    pub fn body(&self) -> Value {
        json!({ "name": self.name, "enabled": self.enabled, "spec": self.spec })
    }
}

/// The text of a file, or of standard input for `-`.
pub fn text_of(path: &Path) -> Result<String, Failure> {
    let bytes = bytes_of(path)?;
    String::from_utf8(bytes)
        .map_err(|_| Failure::new(format!("{} is not UTF-8 text", path.display())))
}

/// The same, of whatever encoding.
pub fn bytes_of(path: &Path) -> Result<Vec<u8>, Failure> {
    let shown = path.display();
    let failed = |error: std::io::Error| Failure::new(format!("reading {shown}: {error}"));
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin()
            .lock()
            .take(LONGEST + 1)
            .read_to_end(&mut bytes)
    } else {
        fs::File::open(path)
            .map_err(failed)?
            .take(LONGEST + 1)
            .read_to_end(&mut bytes)
    };
    read.map_err(failed)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > LONGEST) {
        return Err(Failure::new(format!(
            "{shown} is longer than {LONGEST} bytes"
        )));
    }
    Ok(bytes)
}

/// Reads one file; its mistakes are the failure's details.
pub fn read(path: &Path) -> Result<Job, Failure> {
    let bytes = bytes_of(path)?;
    let file = path.display().to_string();
    parse(&file, &bytes, path.parent().unwrap_or(Path::new("")))
        .map_err(|mistakes| wrong(&mistakes))
}

/// All mistakes as one failure.
pub fn wrong(mistakes: &[Mistake]) -> Failure {
    let mut failure = Failure::new(format!(
        "{} in what was written; nothing was sent",
        crate::show::count(mistakes.len(), "mistake")
    ));
    failure.details = mistakes.iter().map(ToString::to_string).collect();
    failure
}

/// Reads a text. `folder`: where the files that it names lie.
pub fn parse(file: &str, bytes: &[u8], folder: &Path) -> Result<Job, Vec<Mistake>> {
    let mut mistakes = Mistakes::new(file);
    let mut further = Vec::new();
    let job = text::decode(bytes, &mut mistakes)
        .and_then(|text| tree::read(text, &mut mistakes))
        .and_then(|root| build(&root, folder, &mut mistakes, &mut further));
    let mut found = match mistakes.finish(job) {
        Ok(job) if further.is_empty() => return Ok(job),
        Ok(_) => Vec::new(),
        Err(found) => found,
    };
    found.extend(further);
    Err(found)
}

fn build(
    root: &Node,
    folder: &Path,
    mistakes: &mut Mistakes,
    further: &mut Vec<Mistake>,
) -> Option<Job> {
    let before = mistakes.count();
    shape::check(root, &JOB, mistakes);
    if mistakes.count() != before {
        return None;
    }
    let Value::Object(mut fields) = config::json(root) else {
        return None;
    };
    let at = root
        .entry("job")
        .map_or_else(|| root.at.clone(), |entry| entry.value.at.clone());
    let name = match fields
        .remove("job")
        .as_ref()
        .and_then(Value::as_str)
        .map(names::name)
    {
        Some(Ok(name)) => name,
        Some(Err(wrong)) => {
            mistakes.add(&at, format!("`job` is {}", wrong.message));
            String::new()
        }
        None => return None,
    };
    let enabled = fields
        .remove("enabled")
        .is_none_or(|value| value == Value::Bool(true));
    if let Some(network) = root.field("network") {
        policy(network, &mut fields, folder, mistakes, further);
    }
    let spec = match serde_json::from_value::<JobSpec>(Value::Object(fields)) {
        Ok(spec) => spec,
        Err(error) => {
            mistakes.add(&root.at, error.to_string());
            return None;
        }
    };
    // a policy with mistakes has them told in its own file
    if further.is_empty() {
        for wrong in check::mistakes(&spec) {
            let place = place(root, wrong.field);
            mistakes.add(
                &place,
                format!(
                    "`{}`: {}",
                    wrong.field.trim_start_matches("spec."),
                    wrong.message
                ),
            );
        }
    }
    (mistakes.count() == before).then_some(Job {
        name,
        at,
        enabled,
        spec,
    })
}

/// Takes the text of a policy in, and from it what the settings beside it say, where they say nothing.
fn policy(
    network: &Node,
    fields: &mut Map<String, Value>,
    folder: &Path,
    mistakes: &mut Mistakes,
    further: &mut Vec<Mistake>,
) {
    let Some(Value::Object(settings)) = fields.get_mut("network") else {
        return;
    };
    if let (Some(Value::String(named)), Some(node)) =
        (settings.remove("policy_file"), network.field("policy_file"))
    {
        match beside(folder, &named) {
            Ok((path, text)) => {
                let file = path.display().to_string();
                if let Err(found) = document::parse(&file, &text, None) {
                    further.extend(found);
                }
                settings.insert("policy".to_owned(), Value::String(text));
            }
            Err(message) => mistakes.add(&node.at, message),
        }
    }
    let Some(Value::String(text)) = settings.get("policy") else {
        return;
    };
    if let Ok(policy) = document::parse("policy", text, None) {
        let (mode, private) = (NetworkMode::of(policy.network), policy.private);
        settings.entry("mode").or_insert_with(|| json!(mode));
        settings
            .entry("allow_private")
            .or_insert_with(|| json!(private));
    }
}

/// A file below a folder, and its text.
fn beside(folder: &Path, named: &str) -> Result<(PathBuf, String), String> {
    let outside = || "names a file in the folder of this one, or below".to_owned();
    let relative = Path::new(named);
    if !relative.components().all(|part| {
        matches!(
            part,
            std::path::Component::Normal(_) | std::path::Component::CurDir
        )
    }) {
        return Err(outside());
    }
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let path = folder.join(relative);
    let real = |path: &Path| {
        fs::canonicalize(path).map_err(|error| format!("{}: {error}", path.display()))
    };
    if !real(&path)?.starts_with(real(folder)?) {
        return Err(outside());
    }
    let text = text_of(&path).map_err(|failure| failure.message)?;
    Ok((path, text))
}

/// Where a field of the API stands; the deepest key of it that was written.
fn place(root: &Node, field: &str) -> Place {
    let (mut at, mut node) = (root.at.clone(), root);
    for key in field.trim_start_matches("spec.").split('.') {
        let entry = node
            .entry(key)
            .or_else(|| node.entry(&format!("{key}_file")));
        let Some(entry) = entry else { break };
        at = entry.value.at.clone();
        node = &entry.value;
        if matches!(node.value, Yaml::Refused) {
            break;
        }
    }
    at
}

/// A job of the API as a file: its name, and what is not as it would be anyway.
pub fn write(job: &Value) -> Result<String, Failure> {
    let odd = || Failure::new("the console answered with a job that cannot be read");
    let spec: JobSpec = job
        .get("spec")
        .and_then(|spec| serde_json::from_value(spec.clone()).ok())
        .ok_or_else(odd)?;
    let name = job.get("name").and_then(Value::as_str).ok_or_else(odd)?;
    let mut fields = Map::from_iter([("job".to_owned(), json!(name))]);
    if job.get("enabled") == Some(&Value::Bool(false)) {
        fields.insert("enabled".to_owned(), json!(false));
    }
    if let Value::Object(said) = beyond(&json!(spec), &json!(JobSpec::default())) {
        // the order of the form, which is that of the thought
        for field in JOB.fields {
            if let Some(value) = said.get(field.key) {
                fields.insert(field.key.to_owned(), value.clone());
            }
        }
    }
    Ok(ordered(&fields))
}

/// Objects are written in the order of their keys' letters; a file begins with its name.
fn ordered(fields: &Map<String, Value>) -> String {
    let keys = JOB.fields.iter().map(|field| field.key);
    keys.filter_map(|key| Some((key, fields.get(key)?)))
        .map(|(key, value)| yaml(&json!({ key: value })))
        .collect()
}

/// What of a value is not as the usual one; schedules have no usual one and are whole.
fn beyond(value: &Value, usual: &Value) -> Value {
    let (Value::Object(value), Value::Object(usual)) = (value, usual) else {
        return value.clone();
    };
    let said = value
        .iter()
        .filter_map(|(key, value)| match usual.get(key) {
            Some(same) if same == value => None,
            Some(other) => Some((key.clone(), beyond(value, other))),
            None => Some((key.clone(), value.clone())),
        });
    Value::Object(said.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<String> {
        let mistakes = parse("j.yml", text.as_bytes(), Path::new("/nonexistent")).unwrap_err();
        mistakes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_mistake_is_told_at_its_place() {
        let found = told(
            "job: a\nimge: x\ncommand: sh\nlimits: { memory_mib: much, pid: 3 }\nschedule: { cron: 5 }\n",
        );
        for (place, words) in [
            ("2:1:", "did you mean `image`?"),
            ("3:10:", "a list"),
            ("4:", "memory_mib"),
            ("4:", "did you mean `pids`?"),
            ("5:", "cron"),
        ] {
            let at = format!("j.yml:{place}");
            assert!(
                found
                    .iter()
                    .any(|m| m.starts_with(&at) && m.contains(words)),
                "{place} {words}: {found:#?}"
            );
        }
        let found = told(
            "job: a\nlimits:\n  memory_mib: 1\nschedule: { cron: every day }\noverlap: { most: 3 }\nenv: { SALLYPORT_X: a }\n",
        );
        for place in ["3:15:", "4:", "5:", "6:"] {
            let at = format!("j.yml:{place}");
            assert!(
                found.iter().any(|m| m.starts_with(&at)),
                "{place}: {found:#?}"
            );
        }
    }

    #[test]
    fn a_file_of_somebody_else_brings_nothing_from_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        fs::write(&secret, "policy: p\nnetwork: none\n").unwrap();
        let jobs = folder.path().join("jobs");
        fs::create_dir(&jobs).unwrap();
        std::os::unix::fs::symlink(&secret, jobs.join("link.yml")).unwrap();
        fs::write(jobs.join("own.yml"), "policy: p\nnetwork: internet\n").unwrap();
        let read = |named: &str| {
            let text = format!("job: a\nnetwork:\n  policy_file: \"{named}\"\n");
            parse("j.yml", text.as_bytes(), &jobs)
        };
        for elsewhere in ["../secret", "/etc/passwd", "link.yml", "x/../../secret"] {
            let found = read(elsewhere).unwrap_err();
            assert!(found[0].to_string().starts_with("j.yml:3:"), "{found:?}");
        }
        let job = read("./own.yml").unwrap();
        assert_eq!(job.spec.network.mode, NetworkMode::Internet);
    }

    #[test]
    fn mistakes_of_a_policy_stand_in_its_own_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(
            folder.path().join("p.yml"),
            "policy: p\nnetwork: domains\nalow: []\n",
        )
        .unwrap();
        let text = b"job: a\nnetwork: { policy_file: p.yml }\n";
        let found = parse("j.yml", text, folder.path()).unwrap_err();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].to_string().contains("p.yml:3:1:"), "{found:?}");
    }

    #[test]
    fn what_is_written_is_the_same_job_again() {
        let text = "job: nightly\nenabled: false\ncommand: [sh, \"-c\", \"echo 'x: y' # no\"]\nnetwork:\n  mode: domains\n  \
                    domains: [a.example, \"*.b.example\"]\nlimits: { pids: 7 }\nenv: { A: \"1\", B: \"no\" }\n\
                    schedule: { cron: \"30 4 * * MON-FRI\", timezone: Europe/Berlin }\nretry: { most: 2 }\n";
        let job = parse("j.yml", text.as_bytes(), Path::new("")).unwrap();
        let written = write(&job.body()).unwrap();
        let again = parse("j.yml", written.as_bytes(), Path::new(""))
            .unwrap_or_else(|e| panic!("{e:?}\n{written}"));
        assert_eq!(
            Job {
                at: job.at.clone(),
                ..again
            },
            job,
            "{written}"
        );
        assert!(
            written.starts_with("job: nightly\nenabled: false\n"),
            "{written}"
        );
    }

    #[test]
    fn no_setting_of_a_job_is_lost_on_the_way_through_a_file() {
        let spec = json!({
            "description": "what: it # is", "command": ["sh", "-c", "x"], "image": "debian:12", "isolation": "gvisor",
            "network": { "mode": "domains", "allow_private": true, "domains": ["a.example", "*.b.example"] },
            "root": true, "env": { "A": "1" }, "workdir": "/w", "secrets": ["API_KEY"], "input": true,
            "limits": { "timeout_seconds": 60, "memory_mib": 512, "cpu_millis": 1500, "pids": 64 },
            "schedule": { "cron": "30 4 * * *", "timezone": "Europe/Berlin", "catch_up": "never" },
            "overlap": { "rule": "parallel", "most": 2, "group": "g" },
            "retry": { "most": 2, "on": ["lost"], "wait_seconds": 5 },
            "notify": { "to": ["on call", "ops"], "on": ["failed", "succeeded", "denied"] },
        });
        // nobody is told, which is not the same as no rule
        let silent = json!({ "command": ["true"], "notify": { "to": [], "on": [] } });
        for spec in [spec, silent] {
            let spec: JobSpec = serde_json::from_value(spec).unwrap();
            let written = write(&json!({ "name": "n", "enabled": true, "spec": spec })).unwrap();
            let again = parse("j.yml", written.as_bytes(), Path::new(""))
                .unwrap_or_else(|mistakes| panic!("{mistakes:?}\n{written}"));
            assert_eq!(again.spec, spec, "{written}");
        }
    }
}
