//! Numbers for collectors: requests by method and status, time to answer, connections that were refused.
//!
//! Labels come from fixed lists; nothing that a caller names is ever one.

use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// From what a person does not notice to what they give up at.
const SECONDS: [f64; 9] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct Answered {
    method: Method,
    status: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EncodeLabelValue)]
enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
    Other,
}

/// The console's numbers.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    answered: Family<Answered, Counter>,
    took: Histogram,
    /// Connections that came from a sandbox.
    pub from_sandboxes: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("sallyport_console");
        let answered = Family::<Answered, Counter>::default();
        registry.register("requests", "Requests that were answered", answered.clone());
        let took = Histogram::new(SECONDS);
        registry.register(
            "request_seconds",
            "Time to the head of the answer",
            took.clone(),
        );
        let from_sandboxes = Counter::default();
        registry.register(
            "connections_from_sandboxes",
            "Connections that were refused because a sandbox made them",
            from_sandboxes.clone(),
        );
        Self {
            registry,
            answered,
            took,
            from_sandboxes,
        }
    }
}

impl Metrics {
    /// Counts one answer.
    pub fn answered(&self, method: &http::Method, status: u16, took: Duration) {
        let method = match *method {
            http::Method::GET | http::Method::HEAD => Method::Get,
            http::Method::POST => Method::Post,
            http::Method::PUT => Method::Put,
            http::Method::PATCH => Method::Patch,
            http::Method::DELETE => Method::Delete,
            _ => Method::Other,
        };
        self.answered
            .get_or_create(&Answered { method, status })
            .inc();
        self.took.observe(took.as_secs_f64());
    }

    /// OpenMetrics text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // writing to a String does not fail
        let _ = encode(&mut text, &self.registry);
        text
    }
}
