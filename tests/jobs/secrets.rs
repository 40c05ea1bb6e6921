//! Secrets of a console's jobs: the command gets them, and nobody who reads what it printed does.

use std::fmt::Write as _;
use std::time::Duration;

use lab::wait::within;
use serde_json::{Value, json};

use crate::person::{Person, text};
use crate::pulled::{stop, with_console};
use crate::up::log;
use crate::world::Here;

const SECRET: &str = "s3cr3t-Value/with+sigils?";
const KEY: &str = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\n-----END KEY-----\n";

/// Prints what was given in many ways: at once, in two writes apart, half to each output, encoded.
const SCRIPT: &str = r#"
test ${#TOKEN} = 25 && echo it has the secret
echo plain "$TOKEN" end
n=1; while [ $n -lt 25 ]; do
  printf %s "$TOKEN" | head -c $n; printf %s "$TOKEN" | tail -c +$((n+1)); echo
  n=$((n+6))
done
printf %s "$TOKEN" | head -c 9; sleep 2; printf %s "$TOKEN" | tail -c +10; echo
printf %s "$TOKEN" | head -c 9 >&2; sleep 0.2; printf %s "$TOKEN" | tail -c +10; echo
printf %s "a$TOKEN" | base64
printf %s "$TOKEN" | od -An -v -tx1 | tr -d ' \n'; echo
echo "$PEM"
echo short "$PIN" over
"#;

fn run(person: &Person<'_>, lab: &Here) -> Value {
    for (name, value) in [("TOKEN", SECRET), ("PEM", KEY), ("PIN", "1234")] {
        person.post(
            &person.within("/secrets"),
            &json!({ "name": name, "value": value }),
        );
    }
    let spec = json!({ "command": ["/bin/sh", "-c", SCRIPT], "secrets": ["TOKEN", "PEM", "PIN"] });
    let job = json!({ "name": "print", "spec": spec });
    let job = person.post(&person.within("/jobs"), &job);
    let path = format!("/jobs/{}/runs", text(&job, "/id"));
    let run = person.post(&person.within(&path), &json!({}));
    let path = format!("/runs/{}", text(&run, "/id"));
    let ended = within(Duration::from_mins(1), || {
        let mut answer = person.get(&person.within(&path));
        let run = answer.get_mut("run").expect("the run").take();
        let ended = run.get("ended_at").is_some_and(Value::is_i64);
        ended.then_some(run)
    });
    assert!(ended.is_some(), "it does not end: {}", log(lab.directory()));
    ended.expect("it ended")
}

/// Whether bytes hold a secret in a form in which the script printed it.
fn tells(bytes: &[u8]) -> bool {
    let hex = SECRET.bytes().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    // what of the base64 text of the secret behind one letter is its alone
    let forms = [
        SECRET,
        &hex,
        "MzY3IzdC1WYWx1ZS93aXRoK3NpZ2lscz",
        "MIIEvQIBADANBgkqhkiG",
    ];
    forms.iter().any(|form| {
        bytes
            .windows(form.len())
            .any(|part| part == form.as_bytes())
    })
}

#[test]
fn a_secret_reaches_the_command_and_nobody_reads_it_in_output_stream_or_store() {
    let (lab, child) = with_console();
    let person = Person::first(&lab);
    let run = run(&person, &lab);
    let path = format!("/runs/{}", run["id"].as_str().expect("an id"));
    assert_eq!(run["state"], "succeeded", "{run}\n{}", log(lab.directory()));
    let raw = person.bytes(&person.within(&format!("{path}/output/raw")));
    let printed = String::from_utf8_lossy(&raw).into_owned();
    // everything else was kept
    for line in [
        "it has the secret\n",
        "plain *** end\n",
        "short 1234 over\n",
    ] {
        assert!(printed.contains(line), "{line:?}: {printed}");
    }
    assert!(!tells(&raw), "{printed}");
    assert!(printed.matches("***").count() >= 9, "{printed}");
    // what is too short is said, by name
    let steps = person.get(&person.within(&format!("{path}/steps")));
    let steps = steps["items"].as_array().expect("steps");
    let said = steps.iter().find(|step| step["kind"] == "not_masked");
    assert_eq!(said.expect("a step")["data"]["short"], json!(["PIN"]));
    // nor in any page of it, on the stream, or in the store's files
    for from in (0..raw.len()).step_by(97) {
        let page = person.within(&format!("{path}/output?from={from}&limit=64"));
        assert!(!tells(&person.bytes(&page)));
    }
    let topics = format!("workspace/{}", person.workspace);
    let events = person.events(&topics, 2);
    assert!(events.contains("succeeded"), "{events}");
    assert!(!tells(events.as_bytes()), "{events}");
    let mut kept = false;
    for file in std::fs::read_dir(lab.directory().join("state/console")).expect("the state") {
        let path = file.expect("a file").path();
        if path.is_file() {
            let bytes = std::fs::read(&path).expect("read");
            assert!(!tells(&bytes), "{}", path.display());
            kept |= bytes.windows(17).any(|part| part == b"it has the secret");
        }
    }
    assert!(kept, "the output is in the store");
    stop(&lab, child);
}
