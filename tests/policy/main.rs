//! The policy verbs, black box: what `sallyport policy` says about files, destinations and presets.

mod check;
mod completeness;
mod explain;
mod language;
