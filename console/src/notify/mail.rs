//! Mail by the operator's server.
//!
//! The server's name is resolved and judged like every host that the console calls, and the connection goes to the address
//! that was judged; TLS is checked for the name. A message is plain text: what a run's name says is shown and not acted on.

use lettre::message::header::ContentType;
use lettre::message::{Mailbox, MessageBuilder};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, CertificateStore, Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor};
use serde_json::Value;
use std::time::Duration;

use super::{Undelivered, chain};
use crate::outbound::Purpose;
use crate::server::app::App;
use crate::settings::{AppUrl, MailSettings, MailTls};
use crate::store::notifications::{Delivery, Notification};

/// A server that takes longer to say something is tried again.
const PATIENCE: Duration = Duration::from_secs(15);

pub(super) async fn send(
    app: &App,
    whom: &Notification,
    delivery: &Delivery,
) -> Result<String, Undelivered> {
    let settings = app.config.mail.as_ref();
    let settings =
        settings.ok_or_else(|| Undelivered("no mail server is set (`mail`)".to_owned()))?;
    let message = message(app, settings, whom, delivery)?;
    let addresses = app
        .outbound
        .addresses(Purpose::Operator, &settings.host, settings.port)
        .await;
    let addresses = addresses.map_err(|error| chain(&error))?;
    let address = addresses
        .first()
        .ok_or_else(|| Undelivered("no address".to_owned()))?;
    let mut transport =
        AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(address.to_string())
            .port(settings.port)
            .timeout(Some(PATIENCE))
            .tls(tls(app, settings)?);
    if let Some((user, password)) = &settings.credentials {
        transport =
            transport.credentials(Credentials::new(user.clone(), password.reveal().to_owned()));
    }
    let sent = transport.build().send(message).await;
    let answer = sent.map_err(|error| chain(&error))?;
    Ok(format!("taken by the mail server: {}", answer.code()))
}

fn tls(app: &App, settings: &MailSettings) -> Result<Tls, Undelivered> {
    let parameters = || {
        let mut parameters = TlsParameters::builder(settings.host.to_string())
            .certificate_store(CertificateStore::WebpkiRoots);
        if let Some(file) = &app.config.outbound.ca_file {
            let pem = std::fs::read(file).map_err(|error| chain(&error))?;
            let authority = Certificate::from_pem(&pem).map_err(|error| chain(&error))?;
            parameters = parameters.add_root_certificate(authority);
        }
        parameters.build_rustls().map_err(|error| chain(&error))
    };
    Ok(match settings.tls {
        MailTls::Implicit => Tls::Wrapper(parameters()?),
        MailTls::StartTls => Tls::Required(parameters()?),
        MailTls::None => Tls::None,
    })
}

fn message(
    app: &App,
    settings: &MailSettings,
    whom: &Notification,
    delivery: &Delivery,
) -> Result<Message, Undelivered> {
    let body: Value = serde_json::from_str(&delivery.body).unwrap_or_default();
    let run = body
        .pointer("/data/run")
        .and_then(Value::as_str)
        .unwrap_or("-");
    // whatever it is called, it is a part of one line
    let run: String = run.chars().filter(|c| !c.is_control()).take(100).collect();
    let state = body.pointer("/data/state").and_then(Value::as_str);
    let enforcing = state == Some("enforcing");
    let subject = match delivery.topic.as_str() {
        "run.failed" => format!("Sallyport: run {run} failed"),
        "run.succeeded" => format!("Sallyport: run {run} succeeded"),
        "run.denied" => {
            format!("Sallyport: run {run} was denied names that its job was not before")
        }
        "gateway.enforcement" if enforcing => {
            "Sallyport: the egress firewall is enforced again".to_owned()
        }
        "gateway.enforcement" => "Sallyport: the egress firewall is not enforced".to_owned(),
        _ => "Sallyport: a test".to_owned(),
    };
    let origin = app
        .config
        .url
        .as_ref()
        .map_or_else(String::new, AppUrl::origin);
    let shown = serde_json::to_string_pretty(&body).unwrap_or_default();
    let text = format!(
        "{subject}\n\n{shown}\n\n{origin}\nSent to {} because \"{}\" asks for it.\n",
        whom.address, whom.name
    );
    let mailbox = |text: &str| text.parse::<Mailbox>().map_err(|error| chain(&error));
    let built: MessageBuilder = Message::builder()
        .from(mailbox(&settings.from)?)
        .to(mailbox(&whom.address)?)
        // the same at each attempt
        .message_id(Some(format!("<{}@sallyport>", delivery.id)))
        .subject(subject)
        .header(ContentType::TEXT_PLAIN);
    built.body(text).map_err(|error| chain(&error))
}
