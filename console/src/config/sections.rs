//! The sections until the roles bring their own.
use std::path::PathBuf;
use serde::{Deserialize, Serialize};

/// Gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayConfig { /// x
 pub namespace: String, /// x
 pub control: PathBuf, /// x
 pub state_dir: PathBuf, /// x
 pub run_dir: PathBuf }
impl Default for GatewayConfig { fn default() -> Self { Self { namespace: "sallyport".into(), control: "/run/sallyport/control.sock".into(), state_dir: "/var/lib/sallyport/gateway".into(), run_dir: "/run/sallyport/gateway".into() } } }
impl GatewayConfig { /// x
 pub fn mistakes(&self) -> Vec<String> { Vec::new() } }
/// Runner.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunnerConfig { /// x
 pub pool: usize, /// x
 pub socket: PathBuf, /// x
 pub control: PathBuf, /// x
 pub state_dir: PathBuf, /// x
 pub run_dir: PathBuf }
impl Default for RunnerConfig { fn default() -> Self { Self { pool: 1, socket: "/run/sallyport/runner.sock".into(), control: "/run/sallyport/control.sock".into(), state_dir: "/var/lib/sallyport/runner".into(), run_dir: "/run/sallyport/runner".into() } } }
impl RunnerConfig { /// x
 pub fn mistakes(&self) -> Vec<String> { Vec::new() } }
