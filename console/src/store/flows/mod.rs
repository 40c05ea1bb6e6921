//! What the networks of runs saw: the gateway's records as its runner sends them on, one row for each flow, denial or
//! failure, and sums of them by time.
//!
//! The gateway's journal stays the record; this is a copy for pages and goes with its run. A sandbox chooses names and
//! how many there are, so the rows of a run are bounded ([`MOST_KEPT`]) and texts are cut. Records carry the numbers of
//! the journal: what was told already is not told twice.

mod keep;
mod recent;

use gateway::record::entry::{Close, DecidedBy, Denied, Open, Subject};
use gateway::record::{Entry, Line};
use serde::Serialize;
use utoipa::ToSchema;

use super::{Store, StoreError, on, row};
use crate::clock::{Millis, SECOND};

pub use recent::{FlowPage, FlowPlace, RecentFlow};

/// Rows of one run; the journal has the others.
pub const MOST_KEPT: i64 = 50_000;
/// A sum is of this much time.
pub const RATE: Millis = 10 * SECOND;
/// A name is shorter (RFC 1035 2.3.4), a path need not be.
const LONGEST: usize = 500;

row! {
    /// A flow, a denial or a failure.
    #[derive(Serialize, ToSchema)]
    pub struct Flow {
        /// Its number in the gateway's journal.
        pub seq: i64,
        /// When.
        pub at: Millis,
        /// `permitted`, `denied` or `failed`.
        pub outcome: String,
        /// Which flow of the gateway.
        pub flow: Option<i64>,
        /// Whether it has not ended yet.
        pub is_open: bool,
        /// `tcp`, `udp`, `icmp`, `dns`, `proxy`, `ingress`.
        pub door: String,
        /// Transport.
        pub protocol: String,
        /// Name, where known.
        pub name: Option<String>,
        /// What the sandbox addressed.
        pub address: Option<String>,
        /// Port; 0 of a look-up.
        pub port: i64,
        /// Address and port that were dialled.
        pub upstream: Option<String>,
        /// Class of the address that decided.
        pub class: Option<String>,
        /// Method and path of the last request, where seen.
        pub http: Option<String>,
        /// Bytes from the sandbox.
        pub up: i64,
        /// Bytes to it.
        pub down: i64,
        /// From open to close.
        pub duration_ms: Option<i64>,
        /// How it ended.
        pub ending: Option<String>,
        /// Why it was denied or failed.
        pub reason: Option<String>,
        /// Name of the policy that decided.
        pub policy: Option<String>,
        /// Its layer.
        pub layer: Option<String>,
        /// Its file.
        pub file: Option<String>,
        /// The line.
        pub line: Option<i64>,
        /// The commit that the gateway read the file from.
        pub commit_id: Option<String>,
        /// How many equal ones it stands for.
        pub times: i64,
    }
}

row! {
    /// What happened in a stretch of [`RATE`].
    #[derive(Serialize, ToSchema)]
    pub struct FlowRate {
        /// When it begins.
        pub starts: Millis,
        /// Flows that were permitted.
        pub permitted: i64,
        /// Denials.
        pub denied: i64,
        /// Permitted flows that failed.
        pub failed: i64,
        /// Bytes from sandboxes.
        pub up: i64,
        /// Bytes to them.
        pub down: i64,
    }
}

row! {
    /// A destination, and how often something became of flows to it.
    #[derive(Serialize, ToSchema)]
    pub struct Destination {
        /// Name or address.
        pub destination: String,
        /// Port; 0 of a look-up.
        pub port: i64,
        /// Transport.
        pub protocol: String,
        /// `permitted`, `denied` or `failed`.
        pub outcome: String,
        /// Why, if not permitted.
        pub reason: Option<String>,
        /// How often.
        pub times: i64,
        /// Bytes from the sandbox.
        pub up: i64,
        /// Bytes to it.
        pub down: i64,
        /// When last.
        pub last_at: Millis,
    }
}

/// Which flows.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowFilter<'a> {
    /// `permitted`, `denied` or `failed`; empty: any.
    pub outcome: &'a str,
    /// Part of a name, an address or a reason; empty: any.
    pub text: &'a str,
    /// A job's id, where flows of several are looked through; empty: any.
    pub job: &'a str,
}

/// A text that a sandbox or a runner chose, as the store takes it: PostgreSQL has no NUL in a text.
pub(super) fn plain(text: &str) -> String {
    text.chars().filter(|c| *c != '\0').take(LONGEST).collect()
}

/// The word that a value is written as.
fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

/// A count as the store takes it. No flow has more bytes, and half a million such ones can still be added up.
fn number(value: u64) -> i64 {
    const MOST: i64 = 1 << 44;
    i64::try_from(value).unwrap_or(MOST).min(MOST)
}

impl Flow {
    fn of(line: &Line, outcome: &str, subject: &Subject) -> Self {
        Self {
            seq: number(line.seq),
            at: line.t,
            outcome: outcome.to_owned(),
            flow: None,
            is_open: false,
            door: word(subject.door),
            protocol: word(subject.protocol),
            name: subject.name.as_deref().map(plain),
            address: subject.address.map(|a| a.to_string()),
            port: i64::from(subject.port),
            upstream: None,
            class: None,
            http: None,
            up: 0,
            down: 0,
            duration_ms: None,
            ending: None,
            reason: None,
            policy: None,
            layer: None,
            file: None,
            line: None,
            commit_id: None,
            times: 1,
        }
    }

    fn decided(mut self, by: Option<&DecidedBy>) -> Self {
        if let Some(by) = by {
            self.policy = Some(plain(&by.policy));
            self.layer = Some(by.layer.word().to_owned());
            self.file = Some(plain(&by.at.file));
            self.line = Some(i64::from(by.at.line));
            self.commit_id = by.at.commit.as_deref().map(plain);
        }
        self
    }

    fn opened(line: &Line, open: &Open) -> Self {
        Self {
            flow: Some(number(open.flow)),
            is_open: true,
            upstream: Some(open.upstream.to_string()),
            class: open.class.map(word),
            // the narrowest layer's line is the one that a job's author knows
            ..Self::of(line, "permitted", &open.subject).decided(open.by.last())
        }
    }

    fn closed(line: &Line, close: &Close) -> Self {
        Self {
            flow: Some(number(close.flow)),
            http: close
                .http
                .as_ref()
                .map(|(method, path)| plain(&format!("{method} {path}"))),
            up: number(close.up),
            down: number(close.down),
            duration_ms: Some(number(close.duration_ms)),
            ending: Some(plain(&close.end)),
            ..Self::of(line, "permitted", &close.subject)
        }
    }

    fn refused(line: &Line, outcome: &str, denied: &Denied, times: u64) -> Self {
        Self {
            upstream: denied.upstream.map(|a| a.to_string()),
            class: denied.class.map(word),
            reason: Some(denied.reason.code().to_owned()),
            times: number(times),
            ..Self::of(line, outcome, &denied.subject).decided(denied.by.as_ref())
        }
    }

    /// What a record says about a flow, if it is about one.
    pub fn read(line: &Line) -> Option<Self> {
        Some(match &line.entry {
            Entry::Open(open) => Self::opened(line, open),
            Entry::Close(close) => Self::closed(line, close),
            Entry::Denial(denied) => Self::refused(line, "denied", denied, 1),
            Entry::Failure(denied) => Self::refused(line, "failed", denied, 1),
            Entry::Folded {
                first,
                count,
                failed,
            } => Self::refused(
                line,
                if *failed { "failed" } else { "denied" },
                first,
                *count,
            ),
            Entry::Network(_)
            | Entry::Source(_)
            | Entry::Posture { .. }
            | Entry::Selftest(_)
            | Entry::Gap { .. } => return None,
        })
    }

    /// Whether it ends a flow that was told open.
    const fn ends(&self) -> bool {
        self.flow.is_some() && !self.is_open
    }
}

impl Store {
    /// The flows of a run after a number.
    pub async fn flows(
        &self,
        run: &str,
        filter: FlowFilter<'_>,
        after: i64,
        most: i64,
    ) -> Result<Vec<Flow>, StoreError> {
        let pattern = format!("%{}%", super::literal(&filter.text.to_lowercase()));
        Ok(on!(self, pool => sqlx::query_as(
            "SELECT seq, at, outcome, flow, is_open, door, protocol, name, address, port, upstream, class, http, up, down, \
             duration_ms, ending, reason, policy, layer, file, line, commit_id, times FROM flows \
             WHERE run_id = $1 AND seq > $2 AND ($3 = '' OR outcome = $3) AND ($4 = '%%' OR lower(name) LIKE $4 ESCAPE '!' \
             OR address LIKE $4 ESCAPE '!' OR upstream LIKE $4 ESCAPE '!' OR reason LIKE $4 ESCAPE '!') \
             ORDER BY seq LIMIT $5")
            .bind(run).bind(after).bind(filter.outcome).bind(&pattern).bind(most).fetch_all(pool).await)?)
    }

    /// The destinations of a run, most flows first.
    pub async fn destinations(&self, run: &str, most: i64) -> Result<Vec<Destination>, StoreError> {
        Ok(on!(self, pool => sqlx::query_as(
            "SELECT COALESCE(name, address, '') AS destination, port, protocol, outcome, reason, \
             CAST(sum(times) AS BIGINT) AS times, CAST(sum(up) AS BIGINT) AS up, CAST(sum(down) AS BIGINT) AS down, \
             max(at) AS last_at FROM flows WHERE run_id = $1 \
             GROUP BY COALESCE(name, address, ''), port, protocol, outcome, reason ORDER BY 6 DESC, 1 LIMIT $2")
            .bind(run).bind(most).fetch_all(pool).await)?)
    }

    /// The destinations of a workspace since a time, of its newest flows (at most `of`), most flows first.
    pub async fn recent_destinations(
        &self,
        workspace: &str,
        since: Millis,
        of: i64,
        most: i64,
    ) -> Result<Vec<Destination>, StoreError> {
        Ok(on!(self, pool => sqlx::query_as(
            "SELECT COALESCE(name, address, '') AS destination, port, protocol, outcome, reason, \
             CAST(sum(times) AS BIGINT) AS times, CAST(sum(up) AS BIGINT) AS up, CAST(sum(down) AS BIGINT) AS down, \
             max(at) AS last_at FROM (SELECT name, address, port, protocol, outcome, reason, times, up, down, at FROM flows \
             WHERE workspace_id = $1 AND at >= $2 ORDER BY at DESC LIMIT $3) AS newest \
             GROUP BY COALESCE(name, address, ''), port, protocol, outcome, reason ORDER BY 6 DESC, 1 LIMIT $4")
            .bind(workspace).bind(since).bind(of).bind(most).fetch_all(pool).await)?)
    }

    /// Sums since a time, oldest first.
    pub async fn flow_rates(
        &self,
        workspace: &str,
        since: Millis,
    ) -> Result<Vec<FlowRate>, StoreError> {
        Ok(on!(self, pool => sqlx::query_as(
            "SELECT starts, permitted, denied, failed, up, down FROM flow_rates \
             WHERE workspace_id = $1 AND starts >= $2 ORDER BY starts LIMIT 2000")
            .bind(workspace).bind(since).fetch_all(pool).await)?)
    }
}
