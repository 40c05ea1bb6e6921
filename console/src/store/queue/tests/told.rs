//! What holders tell, once, twice and out of order: output and records.

use serde_json::json;

use super::*;

#[tokio::test]
async fn output_is_kept_once_whatever_is_told_twice_or_out_of_order() {
    each(async |store| {
        let w = workspace(&store).await;
        let run = queued(&store, &new(&w, "j", &JobSpec::default()), 1).await;
        let held = claim(&store, "r", 2).await.unwrap().hold;
        let piece = |data: &'static [u8]| Piece {
            to: Printed::Stdout,
            data,
            at: 3,
        };
        let tell = async |starts, pieces: &[Piece<'_>]| {
            store.tell_output(&held, starts, pieces, 3).await.unwrap()
        };
        assert_eq!(
            tell(0, &[piece(b"\x1b[31mab\0"), piece(b"\xff\xfe")]).await,
            Told::Taken { next: 10 }
        );
        assert_eq!(
            tell(0, &[piece(b"\x1b[31mab\0")]).await,
            Told::Taken { next: 10 }
        );
        assert_eq!(
            tell(6, &[piece(b"b\0\xff\xfecd")]).await,
            Told::Taken { next: 12 }
        );
        assert_eq!(tell(13, &[piece(b"x")]).await, Told::Gap { next: 12 });
        assert_eq!(tell(-1, &[piece(b"x")]).await, Told::Gap { next: 12 });
        let chunks = store.output(&run, 0, 100).await.unwrap();
        let bytes: Vec<u8> = chunks.iter().flat_map(|c| c.data.clone()).collect();
        assert_eq!(bytes, b"\x1b[31mab\0\xff\xfecd");
        let starts: Vec<i64> = store
            .output(&run, 9, 1)
            .await
            .unwrap()
            .iter()
            .map(|c| c.starts)
            .collect();
        assert_eq!(starts, [8]);
        store.finish_run(&held, &FAILED, 4).await.unwrap();
        let run = store.run(&w, &run).await.unwrap().unwrap();
        assert_eq!(run.output_bytes, 12);
        assert_eq!(run.message.as_deref(), Some("it failed"));
    })
    .await;
}

#[tokio::test]
async fn records_are_kept_once_and_add_up_and_a_close_completes_its_flow() {
    each(async |store| {
        let w = workspace(&store).await;
        let run = queued(&store, &new(&w, "j", &JobSpec::default()), 1).await;
        let held = claim(&store, "r", 2).await.unwrap().hold;
        let subject = json!({ "network": "n", "door": "tcp", "direction": "egress", "protocol": "tcp",
            "source": "198.18.0.2:40000", "name": "a.example", "address": "198.19.0.1", "port": 443 });
        let line = |value| serde_json::from_value::<Line>(value).unwrap();
        let open = line(json!({ "seq": 4, "t": 20_000, "prev": "", "hash": "", "kind": "open", "flow": 1, "subject": subject,
            "upstream": "203.0.113.1:443", "policy": "0".repeat(64), "generation": 1,
            "by": [{ "layer": "job", "policy": "p", "at": { "file": "p.yaml", "line": 7, "column": 1 } }] }));
        let close = line(json!({ "seq": 9, "t": 20_500, "prev": "", "hash": "", "kind": "close", "flow": 1, "subject": subject,
            "http": ["GET", "/\u{0}x"], "up": 10, "down": u64::MAX, "duration_ms": 500, "end": "client_closed" }));
        let hostile = record(12, "e\0vil\u{202e}<script>.example");
        let first = store.tell_flows(&held, &[record(2, "b.example"), open.clone()], 3).await.unwrap();
        assert_eq!(first, Told::Taken { next: 4 });
        let again = store.tell_flows(&held, &[record(2, "b.example"), open, close, hostile], 3).await.unwrap();
        assert_eq!(again, Told::Taken { next: 12 });
        let flows = store.flows(&run, FlowFilter::default(), 0, 10).await.unwrap();
        assert_eq!(flows.len(), 3, "{flows:?}");
        let flow = &flows[1];
        assert_eq!((flow.file.as_deref(), flow.line, flow.is_open), (Some("p.yaml"), Some(7), false));
        assert_eq!((flow.up, flow.http.as_deref()), (10, Some("GET /x")));
        assert_eq!(flow.down, 1 << 44, "no flow is so long");
        let found = FlowFilter { outcome: "denied", text: "B.EXAMPLE", ..FlowFilter::default() };
        assert_eq!(store.flows(&run, found, 0, 10).await.unwrap().len(), 1);
        let none = FlowFilter { outcome: "", text: "%", ..FlowFilter::default() };
        assert_eq!(store.flows(&run, none, 0, 10).await.unwrap(), []);
        let run = store.run(&w, &run).await.unwrap().unwrap();
        assert_eq!((run.denied, run.flows_kept, run.up), (2, 3, 10));
        let rates = store.flow_rates(&w, 0).await.unwrap();
        let sums: Vec<_> = rates.iter().map(|r| (r.starts, r.permitted, r.denied)).collect();
        assert_eq!(sums, [(0, 0, 2), (20_000, 1, 0)]);
        let top = store.recent_destinations(&w, 0, 100, 10).await.unwrap();
        assert_eq!(top.len(), 3);
    })
    .await;
}
