//! The gateway of this machine, as people see it: whether what sandboxes may reach is enforced. Asked, never changed.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use gateway::control::Client;
use serde::Serialize;
use utoipa::ToSchema;

use crate::clock::Millis;
use crate::server::app::App;

/// A gateway that lives answers at once; a page waits for this.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the gateway says of itself.
#[derive(Debug, Serialize, ToSchema)]
pub struct GatewayView {
    /// `enforcing`, `sealed`, `without_enforcement`, or `unknown` where none answers.
    pub state: String,
    /// **Egress firewall** in words: "Private networks blocked", "Not enforced", "Turned off"; none where no gateway answers.
    pub label: Option<String>,
    /// Why it is not enforcing.
    pub cause: Option<String>,
    /// The command or change that mends it.
    pub hint: Option<String>,
    /// Since when, in milliseconds since 1970.
    pub since: Option<Millis>,
    /// What holds the kernel rules: `nftables` or `iptables`.
    pub enforcement: Option<String>,
}

/// Whether this machine's gateway enforces what sandboxes may reach.
#[utoipa::path(get, path = "/api/v1/gateway", tag = "gateway", responses((status = 200, body = GatewayView)))]
pub async fn read(State(app): State<App>) -> Json<GatewayView> {
    let client = Client::new(&app.config.gateway.control);
    let cause = match tokio::time::timeout(PATIENCE, client.posture()).await {
        Ok(Ok(posture)) => {
            return Json(GatewayView {
                state: posture.state,
                label: Some(posture.label),
                cause: posture.cause,
                hint: posture.hint,
                since: Some(posture.since_ms),
                enforcement: Some(posture.enforcement).filter(|word| !word.is_empty()),
            });
        }
        Ok(Err(error)) => {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "the gateway does not say how it is"
            );
            "no gateway answers on this machine"
        }
        Err(_) => "the gateway of this machine does not answer in time",
    };
    Json(GatewayView {
        state: "unknown".to_owned(),
        label: None,
        cause: Some(cause.to_owned()),
        hint: Some(
            "start `sallyport gateway`, or `sallyport up`; `sallyport doctor` says what it lacks"
                .to_owned(),
        ),
        since: None,
        enforcement: None,
    })
}
