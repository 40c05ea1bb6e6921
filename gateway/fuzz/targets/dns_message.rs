//! What a sandbox can send to the DNS door, and what a server can send back: no octets panic, every reply is a message.
//!
//! The first octet chooses what is answered, the rest is the message. The same body runs under libFuzzer and, for two
//! seconds, as a test.

use std::borrow::Cow;
use std::sync::Arc;

use gateway::listen::dns::forward;
use gateway::listen::dns::question::{Code, Parsed, parse};
use gateway::listen::dns::reply::{self, Answer, Body, Explanation, Way};
use gateway::resolve::Wire;
use gateway::resolve::upstream::message::Sent;
use hickory_proto::op::Message;
use hickory_proto::rr::{Name, RecordType};

/// One run.
pub fn run(bytes: &[u8]) {
    let Some((choice, message)) = bytes.split_first() else {
        return;
    };
    as_question(*choice, message);
    as_reply(message);
    as_service_record(message);
}

fn as_question(choice: u8, message: &[u8]) {
    let mut out = Vec::new();
    match parse(message) {
        Parsed::Ignore => {}
        Parsed::Refuse(head, code, raw) => {
            reply::refuse(&mut out, head, code, raw);
            let said = believed(message, &out);
            assert!(said.answers.is_empty() && said.queries.len() <= 1);
        }
        Parsed::Ask(question) => {
            // a name, where there is one, is what the labels say
            if let Ok(name) = question.name() {
                let labels: Vec<String> = question
                    .labels()
                    .map(|l| String::from_utf8_lossy(l).to_lowercase())
                    .collect();
                assert_eq!(name.as_str(), labels.join("."));
            }
            let answer = answer_of(choice, question.kind);
            let most = if let Body::Records(records) = &answer.body {
                records.len()
            } else {
                1
            };
            for (way, limit) in [(Way::Udp, 1232), (Way::Tcp, 65535)] {
                reply::write(&mut out, &question, &answer, way);
                assert!(out.len() <= limit);
                assert!(
                    out.get(12..12 + question.raw.len()) == Some(question.raw),
                    "the question is echoed as it came"
                );
                let said = believed(message, &out);
                assert!(said.answers.len() <= most && said.queries.len() == 1);
                assert!(
                    said.answers
                        .iter()
                        .all(|record| record.name == said.queries[0].name)
                );
            }
        }
    }
}

/// A reply as the client would read it.
fn believed(asked: &[u8], reply: &[u8]) -> Message {
    assert_eq!(asked.get(..2), reply.get(..2), "the id is the client's");
    assert_eq!(
        reply.get(2).map(|flags| flags & 0x84),
        Some(0x80),
        "a reply, and nobody's authority"
    );
    assert_eq!(
        reply.get(3).map(|flags| flags & 0x20),
        Some(0),
        "nothing is claimed to be authentic"
    );
    Message::from_vec(reply).expect("every reply is a message")
}

fn answer_of(choice: u8, kind: u16) -> Answer {
    let wire = |n: u8| Wire {
        kind: 16,
        data: vec![3, n, n, n].into(),
    };
    let body = match choice % 5 {
        0 => Body::Nothing,
        1 => Body::Address([198, 19, 0, 1].into()),
        2 => Body::Address(std::net::Ipv6Addr::LOCALHOST.into()),
        3 => Body::Records((0..choice).map(wire).collect()),
        _ => Body::Records(Arc::new([Wire {
            kind: if kind == 16 { kind } else { 65534 },
            data: Box::new([0; 1]),
        }])),
    };
    let code = [Code::NoError, Code::NxDomain, Code::ServFail][usize::from(choice) % 3];
    let text = Cow::Owned("x".repeat(usize::from(choice) * 2));
    Answer {
        code,
        body,
        ttl: u32::from(choice),
        why: (choice.is_multiple_of(2)).then_some(Explanation { code: 15, text }),
    }
}

fn as_reply(message: &[u8]) {
    let Ok(sent) = Sent::new(&Name::from_ascii("ok.net.").expect("a name"), RecordType::A) else {
        return;
    };
    let mut bytes = message.to_vec();
    // a guess of the id that hit: everything behind it is read
    if let (Some(id), Some(own)) = (bytes.get_mut(..2), sent.bytes.get(..2)) {
        id.copy_from_slice(own);
    }
    if let Ok(reply) = sent.read(&bytes) {
        for record in &reply.answers {
            if let Some(wire) = Wire::new(&record.data) {
                assert!(u16::try_from(wire.data.len()).is_ok());
                let _ = wire.address();
            }
        }
    }
}

fn as_service_record(data: &[u8]) {
    let records: Arc<[Wire]> = Arc::new([Wire {
        kind: 65,
        data: data.into(),
    }]);
    for record in forward::cleaned(RecordType::HTTPS, &records).iter() {
        // what passes, passes again unchanged: nothing was left that had to go
        let again: Arc<[Wire]> = Arc::new([record.clone()]);
        assert_eq!(forward::cleaned(RecordType::HTTPS, &again), again);
    }
}
