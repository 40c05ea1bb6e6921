//! Policies in git on live networks: loaded, applied, recorded, and kept when the remote is not in order.

mod many;
mod networks;
mod repository;
