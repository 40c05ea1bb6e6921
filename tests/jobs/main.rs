//! Runs through a real engine.
