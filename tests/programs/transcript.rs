//! A shell script of many steps, and what each of them said, how it ended and how long it took.

use std::collections::HashMap;
use std::fmt::Write as _;

/// No step may take longer; the shell ends it.
const LIMIT_SECONDS: u32 = 40;

/// How one step went.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Both streams.
    pub output: String,
    /// Exit code; 124 or 143 after the limit.
    pub code: i32,
    /// Seconds.
    pub took: f64,
}

/// One script for all steps. Works in dash and in busybox: time comes from /proc/uptime, the command is quoted whole.
pub fn script<'a>(steps: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut text = String::from("now() { cut -d' ' -f1 /proc/uptime; }\ncd /tmp\n");
    for (name, command) in steps {
        let quoted = command.replace('\'', r"'\''");
        let _ = write!(
            text,
            "printf '\\n@begin {name}\\n'; from=$(now)\n\
             timeout {LIMIT_SECONDS} /bin/sh -c '{quoted}' < /dev/null 2>&1; code=$?\n\
             printf '\\n@end {name} %s %s %s\\n' $code $from $(now)\n"
        );
    }
    text.push_str("exit 0\n");
    text
}

/// Reads what the script printed.
pub fn read(printed: &str) -> HashMap<String, Outcome> {
    let mut outcomes = HashMap::new();
    let mut output = String::new();
    for line in printed.lines() {
        if line.starts_with("@begin ") {
            output.clear();
        } else if let Some(rest) = line.strip_prefix("@end ") {
            let words: Vec<&str> = rest.split_whitespace().collect();
            let [name, code, from, to] = words.try_into().expect("a whole line of the transcript");
            let second = |text: &str| text.parse::<f64>().expect("seconds in the transcript");
            let outcome = Outcome {
                output: output.trim().to_owned(),
                code: code.parse().expect("an exit code in the transcript"),
                took: second(to) - second(from),
            };
            outcomes.insert(name.to_owned(), outcome);
        } else {
            output.push_str(line);
            output.push('\n');
        }
    }
    outcomes
}
