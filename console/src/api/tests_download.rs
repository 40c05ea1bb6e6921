//! Output on its way to somebody who loses access.

use axum::body::Body;
use http::Method;
use http_body_util::BodyExt;
use serde_json::json;

use super::runs_tests::Desk;
use crate::clock;
use crate::store::output::{Piece, Printed};
use crate::store::queue::{Begun, Claimer, QueueRules};
use crate::store::testing::each;

/// As much as is read from the store in one go.
const PIECE: usize = 1 << 20;

#[tokio::test]
async fn a_download_breaks_off_when_its_reader_loses_access() {
    each(async |store| {
        let desk = Desk::of(&store, "ada").await;
        let job = desk.job("j", json!({})).await;
        let run = desk.run(&job).await;
        let claimer = Claimer {
            runner: "r",
            workspace: None,
            most: 9,
        };
        let claimed = store
            .claim_run(claimer, &QueueRules::default(), clock::now())
            .await;
        let hold = claimed.unwrap().unwrap().hold;
        assert_eq!(store.begin_run(&hold, 5).await.unwrap(), Begun::Yes);
        let with = json!({ "engine": "test" });
        assert!(store.run_started(&hold, &with, 6).await.unwrap());
        for n in 0..3_u8 {
            let printed = vec![b'a' + n; PIECE];
            let piece = Piece {
                to: Printed::Stdout,
                data: &printed,
                at: 7,
            };
            let from = i64::from(n) << 20;
            store.tell_output(&hold, from, &[piece], 7).await.unwrap();
        }
        let below = format!("/runs/{run}/output/raw");
        assert_eq!(desk.get(&below).await.text.len(), 3 * PIECE);
        let path = format!("/api/v1/workspaces/{}{below}", desk.workspace);
        let headers = [("cookie", desk.cookie.as_str())];
        let answer = desk
            .console
            .open(Method::GET, &path, &headers, Body::empty())
            .await;
        let mut body = answer.into_body();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(!first.is_empty() && first.len() <= PIECE);
        store.end_every_session().await.unwrap();
        let broken = body.frame().await.unwrap();
        assert!(broken.is_err(), "it goes on");
    })
    .await;
}
