//! What an image printed, read as a stranger's word.
//!
//! Owns the strict form of a line (`tool<TAB>URL`) and its limits. Only host names come out of it: no address, no
//! wildcard, no port but the web's, no special name, and nothing of the text itself reaches a person (a URL may carry a
//! password, or control characters). Whatever does not fit is left out and counted; leaving out only narrows.

use std::collections::BTreeSet;
use std::fmt;

use netpolicy::decide::special::special;
use netpolicy::document::sets::MOST_IMAGE_HOSTS;
use netpolicy::name::{Authority, Host, Name};

/// Tools that the script reports; also what people are shown, so never the image's choice.
const TOOLS: [&str; 12] = [
    "apk", "apt", "cargo", "composer", "dnf", "gem", "go", "npm", "pip", "pnpm", "uv", "yarn",
];
/// Longer than any setting that people write.
const LONGEST_LINE: usize = 1024;

/// Hosts that an image's package managers use, each with the tool that said so.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reading {
    entries: BTreeSet<(&'static str, Name)>,
    names: BTreeSet<Name>,
    left_out: usize,
}

impl Reading {
    /// Reads what the script printed.
    pub fn of(output: &[u8]) -> Self {
        let mut reading = Self::default();
        for line in output.split(|&byte| byte == b'\n') {
            if line.is_empty() {
                continue;
            }
            match entry(line) {
                Some(entry) if reading.has_room_for(&entry.1) => {
                    reading.names.insert(entry.1.clone());
                    reading.entries.insert(entry);
                }
                _ => reading.left_out += 1,
            }
        }
        reading
    }

    fn has_room_for(&self, name: &Name) -> bool {
        self.names.len() < MOST_IMAGE_HOSTS || self.names.contains(name)
    }

    /// The hosts, each once, in a fixed order.
    pub fn hosts(&self) -> Vec<String> {
        self.names.iter().map(|n| n.as_str().to_owned()).collect()
    }
}

/// For people: which tool named which hosts.
impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.entries.is_empty() {
            f.write_str("its package managers name no host")?;
        }
        let mut before = "";
        for (tool, name) in &self.entries {
            match before {
                same if same == *tool => write!(f, ", {}", name.as_str())?,
                "" => write!(f, "{tool} uses {}", name.as_str())?,
                _ => write!(f, "; {tool} uses {}", name.as_str())?,
            }
            before = tool;
        }
        match self.left_out {
            0 => Ok(()),
            1 => f.write_str(" (one line that is no plain URL of a named host was left out)"),
            many => write!(
                f,
                " ({many} lines that are no plain URLs of named hosts, or too many, were left out)"
            ),
        }
    }
}

fn entry(line: &[u8]) -> Option<(&'static str, Name)> {
    let line = std::str::from_utf8(line).ok()?;
    let (tool, url) = line.split_once('\t')?;
    let tool = TOOLS.into_iter().find(|known| *known == tool)?;
    let plain = line.len() <= LONGEST_LINE && url.bytes().all(|b| b.is_ascii_graphic());
    plain.then(|| host(url)).flatten().map(|name| (tool, name))
}

fn host(url: &str) -> Option<Name> {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"))?;
    // Some programs take it for a slash: what is no host to one is another's.
    if rest.contains('\\') {
        return None;
    }
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = match authority.split_once('@') {
        // Credentials are the image's own business.
        Some((_, host)) if !host.contains('@') => host,
        Some(_) => return None,
        None => authority,
    };
    let authority = Authority::parse(authority.as_bytes()).ok()?;
    let web = matches!(authority.port, None | Some(80 | 443));
    match authority.host {
        Host::Name(name) if web && special(&name).is_none() => Some(name),
        Host::Name(_) | Host::Address(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(text: &str) -> Vec<String> {
        Reading::of(text.as_bytes()).hosts()
    }

    #[test]
    fn hosts_of_plain_urls_are_read_once_each() {
        let reading = Reading::of(
            b"apt\thttp://mirror.example.net/debian/\napt\thttp://mirror.example.net/security/\n\
              pip\thttps://user:hunter2@Index.example.net:443/simple\nnpm\thttps://mirror.example.net\n",
        );
        assert_eq!(reading.hosts(), ["index.example.net", "mirror.example.net"]);
        let told = reading.to_string();
        assert_eq!(
            told,
            "apt uses mirror.example.net; npm uses mirror.example.net; pip uses index.example.net"
        );
    }

    #[test]
    fn nothing_but_names_on_web_ports_comes_out_of_a_hostile_image() {
        for line in [
            "apt\thttp://203.0.113.9/debian",
            "apt\thttp://[2001:db8::1]/",
            "apt\thttp://0x7f.1/",
            "apt\thttp://2130706433/",
            "apt\thttp://*/",
            "apt\thttp://*.example.net/",
            "apt\tfile:///etc/passwd",
            "apt\tftp://a.example.net/",
            "apt\tssh://a.example.net/",
            "apt\tHTTP://a.example.net/",
            "apt\t//a.example.net/",
            "apt\thttp://a.example.net:22/",
            "apt\thttp://a.example.net:99999/",
            "apt\thttp://a@b@c.example.net/",
            "apt\thttp://a.example.net\\@b.example.net/",
            "apt\thttp://a.example.net /",
            "apt\thttp://a.example.net\u{1b}[2J/",
            "apt\thttp://a.example.net/\r",
            "apt\thttp://ä.example.net/",
            "apt\thttp://localhost/",
            "apt\thttp://mirror/",
            "apt\thttp://metadata.google.internal/",
            "apt\thttp://broker.sallyport.internal/",
            "apt\thttp:///",
            "apt\thttp://",
            "apt\thttp://a.example.net\thttp://b.example.net/",
            "rm -rf\thttp://a.example.net/",
            "\thttp://a.example.net/",
            "http://a.example.net/",
            "apt http://a.example.net/",
            "apt",
        ] {
            assert!(hosts(line).is_empty(), "{line:?}");
        }
        let long = format!("apt\thttp://a.example.net/{}", "x".repeat(2000));
        assert!(hosts(&long).is_empty());
        assert!(
            Reading::of(b"apt\thttp://a.example.net/\xff")
                .hosts()
                .is_empty()
        );
        // the permitted twin, in the middle of it all
        let twin = "\n\u{1b}]0;x\u{7}\napt\thttp://a.example.net:80/x?y#z\n*\n";
        assert_eq!(hosts(twin), ["a.example.net"]);
    }

    #[test]
    fn ten_thousand_lines_give_no_more_than_a_policy_takes() {
        let flood = (0..10_000).fold(String::new(), |flood, n| {
            flood + &format!("pip\thttps://h{n}.example.net/\n*\n")
        });
        let reading = Reading::of(flood.as_bytes());
        assert_eq!(reading.hosts().len(), MOST_IMAGE_HOSTS);
        assert!(reading.to_string().ends_with("were left out)"));
        let text = "policy: p\nnetwork: domains\nuse: [packages]\n";
        let policy = netpolicy::document::parse("p.yml", text, Some(&reading.hosts())).unwrap();
        assert_eq!(policy.allow.len(), MOST_IMAGE_HOSTS);
    }

    #[test]
    fn nothing_that_an_image_prints_reaches_a_person_as_it_is() {
        let reading = Reading::of(b"apt\t\x1b[31mred\nevil\x07\thttp://a.example.net/\n");
        assert!(!reading.to_string().chars().any(char::is_control));
        assert!(reading.hosts().is_empty());
    }
}
