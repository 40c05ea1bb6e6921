//! A claimed run as its runner gets it: the request, and the secrets sealed to the runner's key.

use runner::JobRequest;
use runner::protocol::context;
use runner::sealed::PublicKey;

use super::spec::JobSpec;
use crate::clock;
use crate::server::app::App;
use crate::store::queue::Claimed;
use crate::store::runners::Runner;
use crate::vault::ForRun;

/// What the runner is asked to run. A run that no trigger sent anything reads nothing.
pub fn request(claimed: &Claimed, spec: &JobSpec) -> JobRequest {
    let mut request = spec.request(&claimed.run.workspace_id);
    request.takes.stdin &= claimed.input.is_some();
    request
}

/// The job's secrets, sealed to the runner; `None`: it has none. An error is why the run cannot be run, for people.
pub async fn sealed(
    app: &App,
    runner: &Runner,
    claimed: &Claimed,
    spec: &JobSpec,
) -> Result<Option<Vec<u8>>, String> {
    if spec.secrets.is_empty() {
        return Ok(None);
    }
    let key = runner.public_key.as_deref();
    let key = key.and_then(|key| PublicKey::parse(key).ok());
    let key = key.ok_or("the runner has no key to seal secrets to")?;
    let policy = match spec.network.policy() {
        Some(Ok(policy)) => policy,
        Some(Err(_)) => return Err("the job's policy has mistakes".to_owned()),
        // what only the gateway reads may permit anything
        None => netpolicy::document::preset("internet").ok_or("there is no such preset")?,
    };
    let asked = ForRun {
        workspace: &claimed.run.workspace_id,
        names: &spec.secrets,
        policy: &policy,
        runner: &key,
        context: &context(&claimed.hold.run, claimed.hold.fence),
    };
    let sealed = app.vault.reveal_for_run(&app.store, asked, clock::now());
    sealed.await.map(Some).map_err(|error| error.to_string())
}
