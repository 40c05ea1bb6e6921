//! What this is: version and the API's own description.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::server::app::App;

/// What this console is.
#[derive(Debug, Serialize, ToSchema)]
pub struct About {
    /// Always `sallyport`.
    pub product: &'static str,
    /// Its version.
    pub version: &'static str,
    /// What people type to reach it, where that is set.
    pub url: Option<String>,
    /// Whether people sign in with email and password.
    pub email_password: bool,
    /// Who else says who somebody is.
    pub providers: Vec<ProviderView>,
    /// Whether there are several workspaces.
    pub workspaces: bool,
}

/// A sign-in provider.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProviderView {
    /// As paths name it: `oidc` or `github`.
    pub id: &'static str,
    /// What a button says.
    pub name: String,
}

fn providers(app: &App) -> Vec<ProviderView> {
    let providers = &app.config.providers;
    let view = |id, name: &str| ProviderView {
        id,
        name: name.to_owned(),
    };
    let oidc = providers
        .oidc
        .as_ref()
        .map(|settings| view("oidc", &settings.name));
    let github = providers.github.as_ref().map(|_| view("github", "GitHub"));
    oidc.into_iter().chain(github).collect()
}

/// What this console is.
#[utoipa::path(get, path = "/api/v1", tag = "about", responses((status = 200, body = About)))]
pub async fn read(State(app): State<App>) -> Json<About> {
    Json(About {
        product: "sallyport",
        version: env!("CARGO_PKG_VERSION"),
        url: app.config.url.as_ref().map(crate::settings::AppUrl::origin),
        email_password: app.config.email_password,
        providers: providers(&app),
        workspaces: app.config.workspaces,
    })
}

/// This description.
#[utoipa::path(get, path = "/api/v1/openapi.json", tag = "about", responses((status = 200, body = serde_json::Value)))]
pub async fn description(State(app): State<App>) -> Json<serde_json::Value> {
    Json(app.description.clone())
}
