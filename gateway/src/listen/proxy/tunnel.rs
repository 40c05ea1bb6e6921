//! CONNECT: a flow to the host it names; what is said inside is judged like on any other flow.

use netpolicy::name::Authority;
use netpolicy::reason::Reason;
use tokio::net::TcpStream;

use super::{Visit, asked_for, malformed, unreached};
use crate::detect::http::HeadError;
use crate::listen::deny::last_words;
use crate::listen::flow::{self, Accepted, Unreached};
use crate::relay::{Early, destination_text, plain_denial, send};

/// What a client waits for before it speaks through the tunnel.
const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection Established\r\n\r\n";

/// Runs a tunnel to its end.
pub(super) async fn run(visit: Visit, client: TcpStream, authority: &Authority, early: Early) {
    let Some(port) = authority.port.filter(|port| *port != 0) else {
        return last_words(
            client,
            &malformed(HeadError::Malformed("a CONNECT target without a port")),
        )
        .await;
    };
    let Visit { origin, slot } = visit;
    let (mut intent, budget) = asked_for(&origin, &authority.host, port);
    let open = if origin.ctx.may_pass(&origin.network) {
        budget
    } else {
        Err(Reason::GatewaySealed)
    };
    let reached = match open {
        Ok(()) => flow::reach(&origin, &mut intent).await,
        Err(reason) => Err(Unreached::Denied(plain_denial(reason), None)),
    };
    match reached {
        Ok(reach) => {
            // a client that is gone by now is met by the relay
            if send(&client, ESTABLISHED).await.is_ok() {
                flow::run(
                    Accepted {
                        origin,
                        client,
                        intent,
                        slot,
                    },
                    reach,
                    early,
                )
                .await;
            }
        }
        Err(why) => {
            flow::record_unreached(&origin, &intent, &why);
            let said = unreached(&origin, &why, &destination_text(&intent, None));
            last_words(client, &said.unwrap_or_default()).await;
        }
    }
}
