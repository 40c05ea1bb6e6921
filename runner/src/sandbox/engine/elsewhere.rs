//! Engines that are not on this kernel: a virtual machine's (Docker Desktop, OrbStack, ...) behind a local socket.
//!
//! Such an engine's sandboxes have network namespaces of another kernel. Nothing here could own them, so the engine is
//! recognised and refused, with what to do, before anything is made in it. What counts is the kernel: a Sallyport that
//! runs inside of that machine shares it and is served like anywhere. Refuses to own: asking the engine.

use std::fmt;

/// Products by what their engine says of its system or its host name, and the name that people know.
const PRODUCTS: [(&str, &str); 4] = [
    ("docker desktop", "Docker Desktop"),
    ("docker-desktop", "Docker Desktop"),
    ("orbstack", "OrbStack"),
    ("colima", "Colima"),
];

/// An engine on another kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Elsewhere {
    /// Which product, if it is known.
    pub product: Option<&'static str>,
    /// Its kernel.
    pub theirs: String,
    /// This machine's.
    pub ours: String,
}

impl Elsewhere {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        "run Sallyport where the engine's kernel is: inside a Linux machine of its own (an OrbStack machine, Lima, WSL 2, \
         a server) with Docker Engine or Podman in it, and `sallyport up` there; or install one of them on this Linux"
    }
}

impl fmt::Display for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the container engine is {} and runs its containers in a virtual machine (kernel {}, here {}): the gateway \
             cannot own their networks from outside",
            self.product.unwrap_or("not on this kernel"),
            self.theirs,
            self.ours
        )
    }
}

/// What an engine says about itself, against this machine's kernel.
pub fn elsewhere(
    operating_system: Option<&str>,
    name: Option<&str>,
    kernel: Option<&str>,
) -> Option<Elsewhere> {
    // without /proc nothing of Sallyport works; then every engine is here
    let ours = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    judge((operating_system, name), kernel, ours.trim().to_owned())
}

fn judge(
    (operating_system, name): (Option<&str>, Option<&str>),
    kernel: Option<&str>,
    ours: String,
) -> Option<Elsewhere> {
    let words = [operating_system, name].map(|word| word.unwrap_or_default().to_lowercase());
    let known = |(word, _): &&(&str, &str)| words.iter().any(|said| said.contains(word));
    let product = PRODUCTS.iter().find(known).map(|(_, product)| *product);
    let kernel = kernel.filter(|kernel| !kernel.is_empty());
    let other = match kernel {
        Some(kernel) => kernel != ours,
        // an engine that hides its kernel is taken by its name
        None => product.is_some(),
    };
    other.then(|| Elsewhere {
        product,
        theirs: kernel.unwrap_or("unknown").to_owned(),
        ours,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(system: &str, name: &str, kernel: &str) -> Option<Elsewhere> {
        judge((Some(system), Some(name)), Some(kernel), "6.1.0".to_owned())
    }

    #[test]
    fn engines_of_virtual_machines_are_known_by_name_and_by_kernel() {
        for (system, name, kernel, product) in [
            (
                "Docker Desktop",
                "docker-desktop",
                "6.6.12-linuxkit",
                Some("Docker Desktop"),
            ),
            (
                "Alpine",
                "docker-desktop",
                "5.15.49",
                Some("Docker Desktop"),
            ),
            ("OrbStack", "orbstack", "6.6.30-0-virt", Some("OrbStack")),
            ("Ubuntu 24.04", "colima", "6.8.0", Some("Colima")),
            ("Fedora CoreOS", "localhost", "6.9.4", None),
        ] {
            let found = judged(system, name, kernel).map(|e| e.product);
            assert!(
                found.is_some_and(|found| found == product),
                "{system} {name}"
            );
        }
    }

    #[test]
    fn an_engine_on_this_kernel_is_here_whatever_it_is_called() {
        assert_eq!(judged("Debian GNU/Linux 12", "vm", "6.1.0"), None);
        assert_eq!(judged("Docker Desktop", "docker-desktop", "6.1.0"), None);
        assert_eq!(judge((None, None), None, "6.1.0".to_owned()), None);
        assert!(judge((Some("OrbStack"), None), Some(""), "6.1.0".to_owned()).is_some());
    }

    #[test]
    fn the_refusal_says_what_and_where() {
        let said = judge((Some("OrbStack"), None), Some("6.6.30"), "6.1.0".to_owned()).unwrap();
        assert_eq!(
            said.to_string(),
            "the container engine is OrbStack and runs its containers in a virtual machine (kernel 6.6.30, here 6.1.0): \
             the gateway cannot own their networks from outside"
        );
    }
}
