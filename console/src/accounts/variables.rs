//! What a secret may be called: the name of a variable that changes nothing but the program that asks for it.

use crate::server::problem::Wrong;

/// More is not a name.
const LONGEST: usize = 64;

/// Variables that decide what a loader, a shell or an interpreter runs, or which way a client's calls take: whoever may
/// set one of them runs what they like with the secrets beside it.
const TAKEN: [&str; 44] = [
    "ALL_PROXY",
    "BASHOPTS",
    "BASH_ENV",
    "CDPATH",
    "CURL_CA_BUNDLE",
    "EDITOR",
    "ENV",
    "FTP_PROXY",
    "GCONV_PATH",
    "GLOBIGNORE",
    "HOME",
    "HOSTALIASES",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "IFS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "LOCALDOMAIN",
    "LOCPATH",
    "LOGNAME",
    "NLSPATH",
    "NODE_EXTRA_CA_CERTS",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NO_PROXY",
    "PAGER",
    "PATH",
    "PERL5LIB",
    "PERL5OPT",
    "PROMPT_COMMAND",
    "PS4",
    "PWD",
    "REQUESTS_CA_BUNDLE",
    "RES_OPTIONS",
    "RUBYLIB",
    "RUBYOPT",
    "SHELL",
    "SHELLOPTS",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TMPDIR",
    "USER",
    "VISUAL",
    "ZDOTDIR",
];
/// Families of them.
const PREFIXES: [&str; 9] = [
    "BASH_FUNC_",
    "DYLD_",
    "GIT_CONFIG",
    "GIT_EXEC",
    "GIT_SSH",
    "GLIBC_",
    "LD_",
    "PYTHON",
    "SALLYPORT_",
];

/// A name that a secret may have.
pub fn name(text: &str) -> Result<String, Wrong> {
    let letters = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
    let fits = text.len() <= LONGEST
        && text.bytes().all(letters)
        && text.bytes().next().is_some_and(|b| b.is_ascii_uppercase());
    if !fits {
        return Err(Wrong::new(
            "name",
            format!("capital letters, digits and _, beginning with a letter, at most {LONGEST}"),
        ));
    }
    if TAKEN.contains(&text) || PREFIXES.iter().any(|prefix| text.starts_with(prefix)) {
        return Err(Wrong::new(
            "name",
            "a variable of this name changes how programs start; take another one",
        ));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_change_how_programs_start_are_refused() {
        for wrong in [
            "LD_PRELOAD",
            "PATH",
            "BASH_ENV",
            "NODE_OPTIONS",
            "HTTP_PROXY",
            "http_proxy",
            "PYTHONPATH",
            "SALLYPORT_RUN",
            "GIT_SSH_COMMAND",
            "A=B",
            "",
            "1A",
            "_A",
            "a",
            "A B",
            "A\nB",
            "A\0",
            "Ä",
            &"A".repeat(65),
        ] {
            assert!(name(wrong).is_err(), "{wrong:?}");
        }
        for right in ["A", "GITHUB_TOKEN", "API_KEY_2", "PATHS", "ENVIRONMENT"] {
            assert_eq!(name(right).as_deref(), Ok(right));
        }
        assert!(TAKEN.is_sorted());
    }
}
