//! Messages that try to be read in two ways, and what of a client's message reaches the server: nothing.

use hickory_proto::op::{Edns, Message, OpCode, ResponseCode};
use hickory_proto::rr::rdata::opt::{ClientSubnet, EdnsOption};
use hickory_proto::rr::rdata::{A, TXT};
use hickory_proto::rr::{DNSClass, RData, RecordType};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::lab::{Lab, Read as _, assert_denied, domains, internet, query, real};
use crate::upstream::{Say, Upstream, host, record};

fn web() -> Upstream {
    Upstream::zone(vec![
        host("ok.net", "93.184.216.34"),
        host("a.ok.net", "93.184.216.34"),
    ])
}

/// A message without EDNS: header with these counts, then this.
fn raw(counts: [u16; 4], rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x12, 0x34, 0x01, 0x00];
    for count in counts {
        bytes.extend_from_slice(&count.to_be_bytes());
    }
    bytes.extend_from_slice(rest);
    bytes
}

const OK: &[u8] = b"\x02ok\x03net\x00\x00\x01\x00\x01";
const SECRET: &[u8] = b"\x06secret\x04evil\x03net\x00\x00\x01\x00\x01";

#[tokio::test]
async fn message_with_another_number_of_questions_is_malformed() {
    // DNS-10
    let upstream = web();
    let lab = Lab::new(&upstream, domains(&["ok.net"])).await;
    let two = [OK, SECRET].concat();
    let cases = [
        raw([2, 0, 0, 0], &two),
        raw([0, 0, 0, 0], b""),
        raw([65535, 0, 0, 0], OK),
        raw([1, 0, 0, 0], &two),
        raw(
            [1, 1, 0, 0],
            &[
                OK,
                b"\xc0\x0c\x00\x01\x00\x01\0\0\0\0\0\x04\x01\x02\x03\x04",
            ]
            .concat(),
        ),
        raw([1, 0, 0, 1], OK),
        raw([1, 0, 0, 0], &OK[..OK.len() - 1]),
        raw([1, 0, 0, 0], &[OK, b"x"].concat()),
    ];
    for bytes in cases {
        let reply = Message::from_vec(&lab.ask_octets(2, &bytes).await.unwrap()).unwrap();
        assert_eq!(reply.code(), ResponseCode::FormErr, "{bytes:02x?}");
    }
    assert!(upstream.log().is_empty());
    let reply =
        Message::from_vec(&lab.ask_octets(2, &raw([1, 0, 0, 0], OK)).await.unwrap()).unwrap();
    assert_eq!(reply.addresses().len(), 1);
}

#[tokio::test]
async fn compression_in_a_question_is_malformed() {
    // DNS-25: self, forward, header, and a long chain
    let upstream = web();
    let lab = Lab::new(&upstream, internet()).await;
    let mut chain = Vec::new();
    for link in 0_u16..200 {
        chain.extend_from_slice(&(0xc000 | (14 + 2 * link)).to_be_bytes());
    }
    let tail = b"\x00\x01\x00\x01";
    for name in [
        &b"\xc0\x0c"[..],
        b"\xc0\x20",
        b"\xc0\x00",
        b"\x02ok\xc0\x0c",
        b"\x40ok",
        b"\x80ok",
        &chain,
    ] {
        let bytes = raw([1, 0, 0, 0], &[name, tail].concat());
        let reply = Message::from_vec(&lab.ask_octets(2, &bytes).await.unwrap()).unwrap();
        assert_eq!(reply.code(), ResponseCode::FormErr, "{name:02x?}");
    }
    assert!(upstream.log().is_empty());
}

#[tokio::test]
async fn lengths_of_labels_and_names_are_exact() {
    // DNS-24
    let upstream = Upstream::start(|_, _, _| Say::records(vec![]));
    let lab = Lab::new(&upstream, internet()).await;
    let wire = |labels: &[usize]| {
        let mut name: Vec<u8> = Vec::new();
        for length in labels {
            name.push(u8::try_from(*length).unwrap());
            name.extend(std::iter::repeat_n(b'a', *length));
        }
        name.extend_from_slice(b"\0\0\x01\0\x01");
        raw([1, 0, 0, 0], &name)
    };
    let fits: [&[usize]; 4] = [&[63, 3], &[63, 63, 63, 61], &[63, 63, 63, 57, 3], &[1; 127]];
    for labels in fits {
        let reply = Message::from_vec(&lab.ask_octets(2, &wire(labels)).await.unwrap()).unwrap();
        assert_eq!(reply.code(), ResponseCode::NoError, "{labels:?}");
    }
    let asked = upstream.log().len();
    assert_eq!(asked, 8);
    let too_long: [&[usize]; 4] = [&[64, 3], &[63, 63, 63, 62], &[63, 63, 63, 63], &[1; 128]];
    for labels in too_long {
        let reply = Message::from_vec(&lab.ask_octets(2, &wire(labels)).await.unwrap()).unwrap();
        assert_eq!(reply.code(), ResponseCode::FormErr, "{labels:?}");
    }
    assert_eq!(upstream.log().len(), asked);
}

#[tokio::test]
async fn label_that_holds_a_dot_or_nul_is_never_two_labels() {
    // DNS-17
    let upstream = web();
    let lab = Lab::new(&upstream, domains(&["ok.net", "*.ok.net"])).await;
    for name in [
        &b"\x06ok.net\x00"[..],
        b"\x04evil\x04net\0\x02ok\x03net\x00",
        b"\x04a.ok\x03net\x00",
        b"\x01\xff\x02ok\x03net\x00",
    ] {
        let mut bytes = raw([1, 0, 0, 0], &[name, b"\x00\x01\x00\x01"].concat());
        bytes[11] = 1;
        bytes.extend_from_slice(b"\0\0\x29\x04\xd0\0\0\0\0\0\0");
        let reply = lab.ask_octets(2, &bytes).await.unwrap();
        let code = reply[3] & 0x0f;
        assert_eq!(code, 3, "{name:02x?}");
        let reply = Message::from_vec(&reply).unwrap();
        assert_denied(&reply, "name_invalid");
    }
    assert!(upstream.log().is_empty());
    assert_eq!(
        lab.ask("a.ok.net", RecordType::A).await.addresses().len(),
        1
    );
}

#[tokio::test]
async fn nothing_of_the_clients_message_reaches_the_server() {
    // DNS-11, DNS-15
    let upstream = web();
    let lab = Lab::new(&upstream, domains(&["ok.net"])).await;
    let mut message = query("oK.nET", RecordType::A);
    message.metadata.checking_disabled = true;
    message.metadata.authentic_data = true;
    let mut edns = Edns::new();
    edns.set_dnssec_ok(true).set_max_payload(4096);
    edns.options_mut()
        .insert(EdnsOption::Subnet(ClientSubnet::new(
            "10.1.2.0".parse().unwrap(),
            24,
            0,
        )));
    edns.options_mut()
        .insert(EdnsOption::Unknown(10, b"cookie!!".to_vec()));
    edns.options_mut()
        .insert(EdnsOption::Unknown(12, vec![0; 64]));
    edns.options_mut()
        .insert(EdnsOption::Unknown(65001, b"exfiltrated".repeat(20)));
    message.set_edns(edns);
    message.add_additional(record("smuggled.evil.net", 1, RData::A(A::new(1, 2, 3, 4))));
    let reply = lab.ask_octets(2, &message.to_vec().unwrap()).await.unwrap();
    assert!(
        reply.windows(8).any(|w| w == b"\x02oK\x03nET\x00"),
        "the question comes back as it was spelt"
    );
    assert_eq!(Message::from_vec(&reply).unwrap().addresses().len(), 1);
    let log = upstream.log();
    assert_eq!(log.len(), 2);
    for heard in &log {
        let asked = u8::try_from(u16::from(heard.kind)).unwrap();
        let question = [b"\x02ok\x03net\x00\x00".as_slice(), &[asked, 0, 1]].concat();
        // RD alone; one question; an empty OPT record that says 1232
        let expected = [
            b"\x01\x00\x00\x01\x00\x00\x00\x00\x00\x01",
            &question[..],
            b"\x00\x00\x29\x04\xd0\0\0\0\0\0\0",
        ];
        assert_eq!(heard.bytes[2..], expected.concat()[..]);
    }
    assert_ne!(
        log[0].from.port(),
        log[1].from.port(),
        "each query has its own port"
    );
    assert_ne!(
        log[0].bytes[..2],
        4711_u16.to_be_bytes(),
        "and not the client's id"
    );
}

#[tokio::test]
async fn spelling_is_no_channel() {
    // DNS-15: 64 spellings, one name, one look-up
    let upstream = web();
    let lab = Lab::new(&upstream, domains(&["a.ok.net"])).await;
    for bits in 0_u8..64 {
        let mut letters = *b"a.ok.net";
        for (bit, at) in [0, 2, 3, 5, 6, 7].into_iter().enumerate() {
            if bits >> bit & 1 == 1 {
                letters[at] = letters[at].to_ascii_uppercase();
            }
        }
        let spelt = std::str::from_utf8(&letters).unwrap();
        let reply = lab.ask(spelt, RecordType::A).await;
        assert_eq!(reply.addresses().len(), 1, "{spelt}");
        assert_eq!(reply.queries[0].name.to_ascii(), format!("{spelt}."));
    }
    assert_eq!(upstream.log().len(), 2);
    assert!(upstream.log().iter().all(|heard| heard.name == "a.ok.net"));
    assert_eq!(lab.network(2).leases.len(), 1);
}

#[tokio::test]
async fn other_operations_transfers_and_classes_are_refused() {
    // DNS-34
    let upstream = web();
    let lab = Lab::new(&upstream, domains(&["ok.net"])).await;
    for name in ["ok.net", "evil.net"] {
        for op_code in [
            OpCode::Notify,
            OpCode::Update,
            OpCode::Status,
            OpCode::Unknown(1),
        ] {
            let mut message = query(name, RecordType::SOA);
            message.metadata.op_code = op_code;
            let reply = lab.ask_octets(2, &message.to_vec().unwrap()).await.unwrap();
            assert_eq!(reply[3] & 0x0f, 4, "{op_code:?}");
        }
        for kind in [RecordType::AXFR, RecordType::IXFR] {
            assert_eq!(lab.ask(name, kind).await.code(), ResponseCode::Refused);
        }
        let mut message = query("version.bind", RecordType::TXT);
        message.queries[0].query_class = DNSClass::CH;
        let reply =
            Message::from_vec(&lab.ask_octets(2, &message.to_vec().unwrap()).await.unwrap())
                .unwrap();
        assert_eq!(reply.code(), ResponseCode::Refused);
    }
    assert_denied(
        &lab.ask("evil.net", RecordType::ANY).await,
        "name_not_allowed",
    );
    let any = lab.ask("ok.net", RecordType::ANY).await;
    assert!(
        matches!(&any.answers[0].data, RData::HINFO(hinfo) if &*hinfo.cpu == b"RFC8482"),
        "{any:?}"
    );
    assert!(upstream.log().is_empty());
}

#[tokio::test]
async fn reply_is_never_answered() {
    let upstream = web();
    let lab = Lab::new(&upstream, internet()).await;
    let socket = tokio::net::UdpSocket::bind("127.0.0.2:0").await.unwrap();
    let mut bytes = query("ok.net", RecordType::A).to_vec().unwrap();
    bytes[2] |= 0x80;
    for datagram in [&bytes[..], b"", b"\x12\x34\x01"] {
        socket.send_to(datagram, lab.door).await.unwrap();
    }
    assert_eq!(
        lab.ask("a.ok.net", RecordType::A).await.addresses().len(),
        1
    );
    assert!(socket.try_recv_from(&mut [0; 512]).is_err());
    assert_eq!(upstream.asked_for("ok.net"), 0);
}

#[tokio::test]
async fn answers_are_cut_to_what_the_client_takes() {
    // DNS-27
    let text = TXT::new((0..8).map(|n| format!("{n}").repeat(200)).collect());
    let upstream = Upstream::zone(vec![
        record("ok.net", 60, RData::TXT(text)),
        host("ok.net", "93.184.216.34"),
    ]);
    let lab = Lab::new(&upstream, domains(&["ok.net"])).await;
    let sized = |size: Option<u16>| {
        let mut message = query("ok.net", RecordType::TXT);
        message.edns = size.map(|size| {
            let mut edns = Edns::new();
            edns.set_max_payload(size);
            edns
        });
        message.to_vec().unwrap()
    };
    for (size, limit) in [
        (None, 512),
        (Some(0), 512),
        (Some(512), 512),
        (Some(65535), 1232),
    ] {
        let bytes = lab.ask_octets(2, &sized(size)).await.unwrap();
        assert!(bytes.len() <= limit, "{size:?}: {}", bytes.len());
        let reply = Message::from_vec(&bytes).unwrap();
        assert!(reply.metadata.truncation && reply.answers.is_empty());
        assert_eq!(reply.edns.is_some(), size.is_some());
    }
    let mut stream = lab.stream(2).await;
    let bytes = sized(None);
    stream
        .write_u16(u16::try_from(bytes.len()).unwrap())
        .await
        .unwrap();
    stream.write_all(&bytes).await.unwrap();
    let mut whole = vec![0; usize::from(stream.read_u16().await.unwrap())];
    stream.read_exact(&mut whole).await.unwrap();
    assert!(whole.len() > 1600);
    assert_eq!(Message::from_vec(&whole).unwrap().answers.len(), 1);
}

#[tokio::test]
async fn other_edns_version_is_answered_badvers() {
    // DNS-27
    let upstream = web();
    let lab = Lab::new(&upstream, domains(&["ok.net"])).await;
    let mut message = query("ok.net", RecordType::A);
    let mut edns = Edns::new();
    edns.set_version(1);
    message.set_edns(edns);
    let bytes = lab.ask_octets(2, &message.to_vec().unwrap()).await.unwrap();
    let reply = Message::from_vec(&bytes).unwrap();
    // 16 is BADVERS here and BADSIG elsewhere
    assert_eq!(u16::from(reply.code()), 16, "{reply:?}");
    assert_eq!(reply.edns.as_ref().map(Edns::version), Some(0));
    assert!(upstream.log().is_empty());
}

#[tokio::test]
async fn authenticated_data_is_never_claimed_and_signatures_are_absent() {
    let upstream = web();
    let lab = Lab::new(&upstream, real(domains(&["ok.net"]))).await;
    assert!(
        !lab.ask("ok.net", RecordType::A)
            .await
            .metadata
            .authentic_data
    );
    let asked = upstream.log().len();
    for kind in [
        RecordType::DS,
        RecordType::DNSKEY,
        RecordType::RRSIG,
        RecordType::NSEC,
        RecordType::NSEC3,
    ] {
        assert!(lab.ask("ok.net", kind).await.is_nodata(), "{kind}");
    }
    assert_eq!(upstream.log().len(), asked);
}
