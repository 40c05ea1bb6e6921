//! A provider's discovery document: where its endpoints are, and whether anybody is asked there.
//!
//! The operator's word stands behind the issuer's host alone: other hosts that a document names are called like those that
//! members name, and none without TLS if the issuer has it. Failure stance: one address that may not be called refuses
//! the document, before a browser is sent away.

use serde::Deserialize;

use super::oidc::{ProviderError, get, json};
use crate::outbound::{CallError, Outbound, Purpose, Refusal, Target};
use crate::settings::{OidcSettings, Scheme};

/// Where the provider's endpoints are.
#[derive(Clone, Debug, Deserialize)]
pub struct Discovered {
    issuer: String,
    pub(super) authorization_endpoint: String,
    pub(super) token_endpoint: String,
    pub(super) jwks_uri: String,
    pub(super) userinfo_endpoint: Option<String>,
    #[serde(default)]
    pub(super) token_endpoint_auth_methods_supported: Vec<String>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

/// Asks the provider where its endpoints are.
pub async fn discover(
    outbound: &Outbound,
    settings: &OidcSettings,
) -> Result<Discovered, ProviderError> {
    let base = settings.issuer.trim_end_matches('/');
    let url = format!("{base}/.well-known/openid-configuration");
    let request = (Purpose::Operator, get(&url, None)?);
    let found: Discovered = json(outbound, request, "discovery document").await?;
    if found.issuer != settings.issuer {
        return Err(ProviderError::Issuer);
    }
    found.check(outbound, settings).await?;
    Ok(found)
}

/// On whose word an address of a discovery document is called.
pub(super) fn purpose(settings: &OidcSettings, url: &str) -> Purpose {
    match (Target::parse(&settings.issuer), Target::parse(url)) {
        (Ok(issuer), Ok(target)) if issuer.host == target.host => Purpose::Operator,
        _ => Purpose::Member,
    }
}

impl Discovered {
    /// Refuses a document as soon as one of its addresses may not be called: before a browser is sent away.
    async fn check(
        &self,
        outbound: &Outbound,
        settings: &OidcSettings,
    ) -> Result<(), ProviderError> {
        let issuer = Target::parse(&settings.issuer).map_err(CallError::from)?;
        let called = [
            ("token_endpoint", Some(&self.token_endpoint)),
            ("jwks_uri", Some(&self.jwks_uri)),
            ("userinfo_endpoint", self.userinfo_endpoint.as_ref()),
        ];
        let shown = ("authorization_endpoint", Some(&self.authorization_endpoint));
        for (endpoint, url) in called.into_iter().chain([shown]) {
            let refused = |why| ProviderError::Endpoint { endpoint, why };
            let Some(url) = url else { continue };
            let target = Target::parse(url).map_err(refused)?;
            if issuer.scheme == Scheme::Https && target.scheme == Scheme::Http {
                return Err(refused(Refusal::Downgrade));
            }
            if endpoint == shown.0 {
                continue;
            }
            match outbound.check(purpose(settings, url), url).await {
                Ok(_) => {}
                Err(CallError::Refused(why)) => return Err(refused(why)),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Whether the answer came from this provider and no other (RFC 9207).
    pub fn is_from(&self, issuer: Option<&str>) -> bool {
        match issuer {
            Some(issuer) => issuer == self.issuer,
            None => !self.authorization_response_iss_parameter_supported,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::settings::{OutboundSettings, Redacted};

    /// What becomes of a document of an issuer with TLS, whose names all have this address.
    async fn read(change: Value, address: &str, allow_private: bool) -> Result<(), ProviderError> {
        let issuer = "https://id.example";
        let mut document = json!({ "issuer": issuer, "authorization_endpoint": "https://id.example/authorize",
            "token_endpoint": "https://id.example/token", "jwks_uri": "https://id.example/keys" });
        for (name, value) in change.as_object().unwrap() {
            document[name] = value.clone();
        }
        let found: Discovered = serde_json::from_value(document).unwrap();
        let settings = OidcSettings {
            name: "Company".into(),
            issuer: issuer.into(),
            client_id: "us".into(),
            client_secret: Redacted::new("s3cret".to_owned()),
            allowed_groups: None,
            groups_claim: "groups".into(),
            scopes: vec!["openid".into()],
        };
        let outbound = OutboundSettings {
            allow_private,
            ..OutboundSettings::default()
        };
        let outbound = Outbound::new(outbound, &[]).unwrap();
        found
            .check(&outbound.resolving(&[&[address]]), &settings)
            .await
    }

    #[tokio::test]
    async fn an_issuer_with_tls_leads_to_nobody_without() {
        for endpoint in [
            "token_endpoint",
            "jwks_uri",
            "userinfo_endpoint",
            "authorization_endpoint",
        ] {
            let told = read(
                json!({ endpoint: "http://id.example/x" }),
                "203.0.114.7",
                true,
            )
            .await;
            let told = told.unwrap_err().to_string();
            assert_eq!(
                told,
                format!("the discovery document's {endpoint} leads from https to http")
            );
            read(
                json!({ endpoint: "https://login.example/x" }),
                "203.0.114.7",
                true,
            )
            .await
            .unwrap();
        }
    }

    #[tokio::test]
    async fn where_private_targets_are_refused_only_the_issuers_own_host_may_be_one() {
        let elsewhere = json!({ "token_endpoint": "https://login.example/token" });
        let told = read(elsewhere.clone(), "10.1.2.3", false)
            .await
            .unwrap_err();
        assert_eq!(
            told.to_string(),
            "the discovery document's token_endpoint points to a private or local network address"
        );
        read(elsewhere, "10.1.2.3", true).await.unwrap();
        read(json!({}), "10.1.2.3", false).await.unwrap();
    }
}
