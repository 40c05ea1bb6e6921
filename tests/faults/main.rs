//! Faults and crowds: what goes wrong around a gateway, or comes all at once, costs the one who does it and nobody else.

mod crowds;
mod leases;
mod meter;
mod resets;
mod server;
mod shortage;
mod storms;
