//! Who may do what: every action of the API and one table that says who may.
//!
//! A route names its [`Action`], an action has a row in [`matrix`]: neither can be left out, the program would not
//! compile. Refuses to own: who somebody is (`server::identify`).

mod matrix;
#[cfg(test)]
mod tests;

pub use matrix::{Action, ByToken, Reach, Role, Rule, rule};
