//! Records as contacts: a journal's folder, an export as JSON Lines, or standard input.
//!
//! Every line must be a record of this program: a foreign or cut line is told with its place and stops the reading, for
//! an answer about part of a record would look like one about all of it. The chain is not verified here (`record
//! verify` does that).

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use gateway::network::names::is_probe;
use gateway::record::entry::{Close, Denied, Entry, Open, Subject};
use gateway::record::{Line, segment};
use netpolicy::addr::Class;
use netpolicy::decide::Direction;
use netpolicy::name::{Host, Name};
use netpolicy::policy::Protocol;
use netpolicy::reason::Reason;
use netpolicy::replay::{Contact, Example, Verdict, is_by_policy};

use crate::cli::Shared;
use crate::cli::journal::{self, Journal, Networks};
use crate::exit::Failure;

/// Longest line: a hundred times the longest record.
const MOST_BYTES: u64 = 1 << 20;
/// Flows that are open at once in one record; more is not what a gateway permits.
const MOST_OPEN: usize = 1_000_000;

/// Which records are meant.
#[derive(Debug, Clone, clap::Args)]
pub struct Source {
    /// Folder of a journal, a file of JSON Lines (`record export`), or - for standard input [default: the configured
    /// gateway's journal, from the gateway itself where this user may not open it]
    #[arg(long, value_name = "DIR|FILE|-")]
    pub record: Option<PathBuf>,
    /// Only records of this network
    #[arg(long, value_name = "NAME")]
    pub network: Option<String>,
}

/// What was read.
#[derive(Debug, Default)]
pub struct Summary {
    /// Contacts.
    pub contacts: u64,
    /// Denials and failures that no policy made (code and count): budgets, malformed bytes, the other side.
    pub other: std::collections::BTreeMap<&'static str, u64>,
}

/// Reads records and hands over each contact with how often it was and where it stands.
pub fn read(
    source: &Source,
    shared: &Shared,
    take: &mut dyn FnMut(&Contact, u64, Example),
) -> Result<Summary, Failure> {
    let mut reading = Reading {
        network: source.network.clone(),
        networks: Networks::wanting(source.network.as_deref()),
        open: HashMap::new(),
        summary: Summary::default(),
        take,
    };
    match source.record.as_deref() {
        Some(path) if path.as_os_str() == "-" => {
            reading.lines("standard input", Box::new(std::io::stdin()), Last::Whole)?;
        }
        Some(path) if !path.is_dir() => reading.file(path, Last::Whole)?,
        folder => match Journal::find(folder, shared)? {
            Journal::Folder(folder) => {
                let segments = segment::list(&folder).map_err(|e| journal::unread(&folder, &e))?;
                for segment in segments {
                    // a gateway may be writing the last line just now
                    reading.file(&segment.path, Last::MayBeCut)?;
                }
            }
            theirs @ Journal::Gateway(_) => {
                let mut number = 0_u64;
                theirs.each(0, &mut |line| {
                    number += 1;
                    reading.line(line.as_bytes(), &format!("the gateway's record:{number}"))
                })?;
            }
        },
    }
    reading.networks.known()?;
    Ok(reading.finish())
}

/// Whether the last line may lack its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Whole,
    MayBeCut,
}

struct Reading<'a> {
    network: Option<String>,
    networks: Networks,
    /// Flows whose close has not come yet: it tells what the bytes were.
    open: HashMap<u64, (Contact, Example)>,
    summary: Summary,
    take: &'a mut dyn FnMut(&Contact, u64, Example),
}

impl Reading<'_> {
    fn file(&mut self, path: &Path, last: Last) -> Result<(), Failure> {
        let shown = path.display().to_string();
        let file =
            std::fs::File::open(path).map_err(|e| Failure::new(format!("reading {shown}: {e}")))?;
        self.lines(&shown, Box::new(file), last)
    }

    fn lines(&mut self, shown: &str, from: Box<dyn Read>, last: Last) -> Result<(), Failure> {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        for number in 1_u64.. {
            line.clear();
            let read = (&mut from).take(MOST_BYTES).read_until(b'\n', &mut line);
            read.map_err(|e| Failure::new(format!("reading {shown}: {e}")))?;
            if line.is_empty() {
                break;
            }
            let place = format!("{shown}:{number}");
            if line.last() != Some(&b'\n') {
                if last == Last::MayBeCut {
                    break;
                }
                let whole = serde_json::from_slice::<Line>(&line).is_ok();
                if !whole {
                    return Err(unreadable(&place, "the line is cut off or too long"));
                }
            }
            if !line.iter().all(u8::is_ascii_whitespace) {
                self.line(&line, &place)?;
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8], place: &str) -> Result<(), Failure> {
        let record = serde_json::from_slice::<Line>(line);
        let record = record.map_err(|e| unreadable(place, &e.to_string()))?;
        if let Some(network) = record.entry.network() {
            self.networks.saw(network.as_str());
        }
        self.record(record, place)
    }

    fn record(&mut self, record: Line, place: &str) -> Result<(), Failure> {
        let t = record.t.div_euclid(1000);
        let example = |subject: &Subject| Example {
            place: place.to_owned(),
            t,
            network: subject.network.to_string(),
        };
        match record.entry {
            Entry::Open(open) if self.wants(&open.subject) => {
                let contact = opened(&open).map_err(|why| unreadable(place, &why))?;
                if self.open.len() >= MOST_OPEN {
                    return Err(Failure::new(format!(
                        "{place}: more than {MOST_OPEN} flows are open at once"
                    )));
                }
                let example = example(&open.subject);
                // numbers begin anew with each gateway
                if let Some((contact, example)) = self.open.insert(open.flow, (contact, example)) {
                    self.give(&contact, 1, example);
                }
            }
            Entry::Close(close) if self.wants(&close.subject) => {
                if let Some((contact, example)) = self.open.remove(&close.flow) {
                    self.closed(contact, &close, example);
                }
            }
            Entry::Denial(denied) => self
                .denied(&denied, 1, example(&denied.subject))
                .map_err(|why| unreadable(place, &why))?,
            Entry::Failure(failed) => self
                .failed(&failed, 1, example(&failed.subject))
                .map_err(|why| unreadable(place, &why))?,
            Entry::Folded {
                first,
                count,
                failed,
            } => {
                let example = example(&first.subject);
                let told = if failed {
                    self.failed(&first, count, example)
                } else {
                    self.denied(&first, count, example)
                };
                told.map_err(|why| unreadable(place, &why))?;
            }
            Entry::Open(_)
            | Entry::Close(_)
            | Entry::Network(_)
            | Entry::Source(_)
            | Entry::Selftest(_)
            | Entry::Posture { .. }
            | Entry::Gap { .. } => {}
        }
        Ok(())
    }

    /// Ways in are no contacts: nothing that a sandbox chose. Neither is what the gateway tries on itself.
    fn wants(&self, subject: &Subject) -> bool {
        subject.direction == Direction::Egress
            && !is_probe(&subject.network)
            && self
                .network
                .as_ref()
                .is_none_or(|wanted| subject.network.as_str() == wanted)
    }

    fn give(&mut self, contact: &Contact, count: u64, example: Example) {
        self.summary.contacts += count;
        (self.take)(contact, count, example);
    }

    fn closed(&mut self, mut contact: Contact, close: &Close, example: Example) {
        let cause = Reason::ALL.iter().find(|reason| reason.code() == close.end);
        if cause.is_some_and(|reason| is_by_policy(*reason)) {
            // its denial is a record of its own
            return;
        }
        let heard = close
            .sni
            .as_deref()
            .and_then(|text| Name::parse_ascii(text.as_bytes()).ok());
        if matches!(contact.to, Host::Address(_)) && contact.protocol == Protocol::Tcp {
            contact.heard = heard;
        }
        contact.opaque = contact.protocol == Protocol::Tcp
            && close.up > 0
            && close.sni.is_none()
            && close.http.is_none();
        contact.request.clone_from(&close.http);
        self.give(&contact, 1, example);
    }

    fn denied(&mut self, denied: &Denied, count: u64, example: Example) -> Result<(), String> {
        if !self.wants(&denied.subject) {
            return Ok(());
        }
        if !is_by_policy(denied.reason) {
            *self.summary.other.entry(denied.reason.code()).or_default() += count;
            return Ok(());
        }
        let contact = contact_of(
            &denied.subject,
            None,
            denied.class,
            Verdict::Deny(denied.reason),
        )?;
        if let Some(mut contact) = contact {
            let heard = denied
                .heard
                .as_deref()
                .and_then(|text| Name::parse_ascii(text.as_bytes()).ok());
            contact.heard =
                heard.filter(|_| contact.protocol == Protocol::Tcp && contact.port.is_some());
            self.give(&contact, count, example);
        }
        Ok(())
    }

    /// What failed was permitted: the policy let it pass, the other side did not answer.
    fn failed(&mut self, failed: &Denied, count: u64, example: Example) -> Result<(), String> {
        if !self.wants(&failed.subject) {
            return Ok(());
        }
        *self.summary.other.entry(failed.reason.code()).or_default() += count;
        let dialled = failed.upstream.map(|upstream| upstream.ip());
        let contact = contact_of(&failed.subject, dialled, failed.class, Verdict::Permit)?;
        if let Some(mut contact) = contact.filter(|contact| contact.port.is_some()) {
            contact.failed = true;
            self.give(&contact, count, example);
        }
        Ok(())
    }

    fn finish(mut self) -> Summary {
        let mut rest: Vec<_> = std::mem::take(&mut self.open).into_iter().collect();
        rest.sort_by_key(|(flow, _)| *flow);
        for (_, (contact, example)) in rest {
            self.give(&contact, 1, example);
        }
        self.summary
    }
}

fn unreadable(place: &str, why: &str) -> Failure {
    Failure::new(format!("{place}: this is no record: {why}"))
        .hint("`sallyport record export` writes records; `record verify` finds what was changed")
}

fn opened(open: &Open) -> Result<Contact, String> {
    let contact = contact_of(
        &open.subject,
        Some(open.upstream.ip()),
        open.class,
        Verdict::Permit,
    )?;
    contact.ok_or_else(|| "a flow without a destination".to_owned())
}

/// A subject as a contact; `None` where it names no destination.
fn contact_of(
    subject: &Subject,
    dialled: Option<IpAddr>,
    class: Option<Class>,
    was: Verdict,
) -> Result<Option<Contact>, String> {
    let name = subject
        .name
        .as_deref()
        .map(|text| Name::parse_ascii(text.as_bytes()));
    let name = name
        .transpose()
        .map_err(|e| format!("the name is none: {e}"))?;
    let to = match (name, dialled.or(subject.address)) {
        (Some(name), _) => Host::Name(name),
        (None, Some(address)) => Host::Address(address),
        (None, None) => return Ok(None),
    };
    Ok(Some(Contact {
        address: dialled.or(match to {
            Host::Address(address) => Some(address),
            // what a sandbox addresses for a name is its lease
            Host::Name(_) => None,
        }),
        to,
        // a question about a name has none; an echo has none either, and says 0
        port: (subject.port != 0 || subject.protocol == Protocol::Icmp).then_some(subject.port),
        protocol: subject.protocol,
        class,
        heard: None,
        request: None,
        opaque: false,
        failed: false,
        was,
    }))
}
