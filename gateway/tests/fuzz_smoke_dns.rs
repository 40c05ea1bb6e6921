//! Two seconds of the DNS fuzz target: real messages first, then seeded mutations of them.
//!
//! The seed is fixed, so a failure repeats; the offending octets are printed with it.
#![expect(
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "a wrong fixture should fail the test loudly"
)]

#[path = "../fuzz/targets/dns_message.rs"]
mod dns_message;

use std::panic::catch_unwind;
use std::time::{Duration, Instant};

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use hickory_proto::rr::rdata::svcb::{IpHint, SVCB, SvcParamKey, SvcParamValue};
use hickory_proto::rr::rdata::{A, CNAME, HTTPS, SOA, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};

/// How long it runs: two seconds, or `FUZZ_SECONDS`.
fn time() -> Duration {
    let asked = std::env::var("FUZZ_SECONDS").ok();
    Duration::from_secs(asked.and_then(|s| s.parse().ok()).unwrap_or(2))
}

fn name(text: &str) -> Name {
    Name::from_ascii(text).expect("a name")
}

fn corpus() -> Vec<Vec<u8>> {
    let service = SVCB::new(
        1,
        name("svc."),
        vec![(
            SvcParamKey::Ipv4Hint,
            SvcParamValue::Ipv4Hint(IpHint(vec![A::new(1, 2, 3, 4)])),
        )],
    );
    let data = [
        RData::A(A::new(93, 184, 216, 34)),
        RData::CNAME(CNAME(name("a.b.ok.net."))),
        RData::TXT(TXT::new(vec!["x".repeat(200)])),
        RData::SOA(SOA::new(name("."), name("x."), 1, 2, 3, 4, 5)),
        RData::HTTPS(HTTPS(service)),
    ];
    let mut messages = Vec::new();
    for (index, data) in data.into_iter().enumerate() {
        let mut message = Message::new(0x1234, MessageType::Query, OpCode::Query);
        message.add_query(Query::query(name("Ok.net."), data.record_type()));
        if index % 2 == 0 {
            message.set_edns(Edns::new());
        }
        messages.push(message.clone());
        message.metadata.message_type = MessageType::Response;
        message.queries[0].query_type = RecordType::A;
        message.add_answer(Record::from_rdata(name("ok.net."), 60, data));
        messages.push(message);
    }
    messages
        .iter()
        .enumerate()
        .map(|(n, m)| {
            [
                vec![u8::try_from(n * 29 % 256).expect("an octet")],
                m.to_vec().expect("octets"),
            ]
            .concat()
        })
        .collect()
}

/// xorshift: repeatable, and good enough to choose octets.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound.max(1) as u64).expect("below a usize")
    }

    fn octet(&mut self) -> u8 {
        u8::try_from(self.below(256)).expect("below 256")
    }
}

fn mutated(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(6) {
        let at = random.below(bytes.len());
        match random.below(5) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.octet()),
            2 => bytes.splice(at..at, [0xc0, random.octet()]).for_each(drop),
            3 => bytes.extend_from_slice(&corpus[random.below(corpus.len())]),
            _ => {
                if let Some(octet) = bytes.get_mut(at) {
                    *octet = random.octet();
                }
            }
        }
    }
    bytes
}

#[test]
fn no_message_panics_and_every_reply_is_a_message() {
    let (corpus, mut random) = (corpus(), Random(0x5a11_9047));
    let check = |input: &[u8]| {
        assert!(
            catch_unwind(|| dns_message::run(input)).is_ok(),
            "fails for b\"{}\"",
            input.escape_ascii()
        );
    };
    for input in &corpus {
        check(input);
    }
    let begin = Instant::now();
    let mut runs = 0_u32;
    while begin.elapsed() < time() {
        check(&mutated(&corpus, &mut random));
        runs += 1;
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "fuzz dns_message: {runs} inputs in {seconds:.1} s, {:.0} a second",
        f64::from(runs) / seconds
    );
    assert!(runs > 1000, "{runs} runs in two seconds");
}
