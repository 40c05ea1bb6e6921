//! The policy verbs, black box: what `sallyport policy` says about files, destinations, presets and records.

mod check;
mod completeness;
mod explain;
mod language;
mod records;
mod text;
mod tools;
