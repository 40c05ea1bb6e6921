//! The console: what people and their programs see of Sallyport, and the store behind it.
//!
//! A request's way: `server::listen` accepts it (never from a sandbox), `server::stack` wraps it, `server::routes` names
//! the handler and the [`access::Action`] that it needs, `server::guard` asks `access` whether this caller may, a file of
//! `api` answers from `store`. To add a resource: one file in `store`, one in `api`, one line in `server::routes`, one
//! row in `access::matrix`. Refuses to own: decisions about traffic (gateway), sandboxes (runner). It needs no powers
//! and reaches the others through their sockets alone.

pub mod access;
pub mod accounts;
pub mod api;
pub mod backup;
pub mod clock;
pub mod jobs;
pub mod notify;
pub mod outbound;
pub mod server;
pub mod settings;
pub mod store;
pub mod vault;

pub use server::local::runner_token;
pub use server::owner::fresh_link;
pub use server::{ServeError, run};
