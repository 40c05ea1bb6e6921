//! Builds the guest helper for this very runner and hands its path to `include_bytes!`.
//!
//! The helper must be static, because it runs in images of any libc, and must match the runner, because they speak to
//! each other; so it is not a file to be found at run time but a part of the program. A nested cargo with its own
//! target folder (the outer one holds its lock on the shared folder), the workspace's lock file and no network.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let (Some(here), Some(out), Some(cargo)) = (
        variable("CARGO_MANIFEST_DIR"),
        variable("OUT_DIR"),
        variable("CARGO"),
    ) else {
        eprintln!("cargo sets CARGO_MANIFEST_DIR, OUT_DIR and CARGO for build scripts");
        return ExitCode::FAILURE;
    };
    let guest = here.join("../images/guest");
    println!("cargo:rerun-if-changed={}", guest.join("src").display());
    println!(
        "cargo:rerun-if-changed={}",
        guest.join("Cargo.toml").display()
    );
    let target = std::env::var("TARGET").unwrap_or_default();
    let built = build(&cargo, &guest, &out.join("guest"), &target);
    match built.and_then(|binary| std::fs::copy(binary, out.join("sally"))) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("building the guest helper: {error}");
            ExitCode::FAILURE
        }
    }
}

fn build(cargo: &Path, guest: &Path, folder: &Path, target: &str) -> std::io::Result<PathBuf> {
    let mut command = Command::new(cargo);
    command.args([
        "build",
        "--release",
        "--locked",
        "--offline",
        "--bin",
        "sally",
        "--target",
        target,
    ]);
    command.arg("--manifest-path").arg(guest.join("Cargo.toml"));
    command.arg("--target-dir").arg(folder);
    // Small and without unwinding: it runs as process 1 of every sandbox.
    command.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "z");
    command.env("CARGO_PROFILE_RELEASE_PANIC", "abort");
    command.env("CARGO_PROFILE_RELEASE_LTO", "true");
    command.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1");
    command.env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
    command.env(
        "CARGO_ENCODED_RUSTFLAGS",
        "-Ctarget-feature=+crt-static\u{1f}-Crelocation-model=static",
    );
    // Under clippy or a coverage tool the outer build's wrapper must not judge or instrument the helper.
    for wrapper in [
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTFLAGS",
        "CARGO_BUILD_TARGET",
        "CARGO_TARGET_DIR",
    ] {
        command.env_remove(wrapper);
    }
    let status = command.status()?;
    if !status.success() {
        return Err(std::io::Error::other(format!("cargo ended with {status}")));
    }
    Ok(folder.join(target).join("release/sally"))
}
