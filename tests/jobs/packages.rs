//! `use: [packages]`: what an image's own package managers name, and nothing that an image makes up beyond names.

use std::process::Command;

use lab::policies;
use lab::topology::{OTHER4, OTHER6, PUBLIC4, PUBLIC6, ip};

use crate::world::{lab, run};

const POLICY: &str = "policy: installs\nnetwork: domains\nuse: [packages]\n";

/// An image made of the sandbox image and a few files; removed with the test.
struct Derived(String);

impl Derived {
    fn new(lab: &lab::Lab, label: &str, files: &[(&str, &str)]) -> Self {
        let name = format!("sallyport/test-{label}-{}:latest", std::process::id());
        let made = docker(&["create", "--network", "none", "sallyport/sandbox:latest"]);
        for (number, (path, text)) in files.iter().enumerate() {
            let file = lab.file(&format!("{label}-{number}"), text);
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&file, mode).expect("mode");
            docker(&["cp", &file.display().to_string(), &format!("{made}:{path}")]);
        }
        docker(&["commit", &made, &name]);
        docker(&["rm", &made]);
        Self(name)
    }
}

impl Drop for Derived {
    fn drop(&mut self) {
        let _ = Command::new("docker").args(["rmi", "-f", &self.0]).output();
    }
}

fn docker(arguments: &[&str]) -> String {
    let said = Command::new("docker").args(arguments).output();
    let said = said.expect("docker");
    assert!(said.status.success(), "{arguments:?}: {said:?}");
    String::from_utf8_lossy(&said.stdout).trim().to_owned()
}

#[test]
fn the_set_packages_permits_what_the_image_reports_and_nothing_else() {
    let lab = lab();
    // No test names a package host: the image says it.
    let ask = "apt-get indextargets --no-release-info --format '$(REPO_URI)' | sed 's|.*://||; s|/.*||' | sort -u | head -n 1";
    let reported = run(&lab, "none", &["--quiet"], ask).expect(0).out;
    let host = reported.trim();
    assert!(host.contains('.'), "{reported:?}");
    lab.origins.zone.addresses(host, &[PUBLIC4, PUBLIC6]);
    let mark = lab.capture.mark();
    let script = format!(
        "curl -sS -m 10 http://{host}/ && ! curl -sSf -m 10 http://x.{host}/ && ! curl -sSf -m 10 http://evil.sallylab.net/"
    );
    let said = run(&lab, POLICY, &[], &script).expect(0);
    assert!(said.out.contains("lab connection"), "{said:?}");
    for words in [
        format!("apt uses {host}"),
        format!("permitted  {host}:80"),
        "set:packages:1".to_owned(),
        format!("denied     look-up of x.{host}"),
        "denied     look-up of evil.sallylab.net".to_owned(),
    ] {
        assert!(
            said.err.contains(&words),
            "{words} is missing in {}",
            said.err
        );
    }
    lab.capture.none_to(mark, ip(OTHER4));
    // without the set, the same image reaches nothing of it
    let bare = "policy: bare\nnetwork: domains\nallow:\n  - host: ok.sallylab.net\n";
    run(
        &lab,
        bare,
        &[],
        &format!("! curl -sSf -m 10 http://{host}/"),
    )
    .expect(0);
}

#[test]
fn a_hostile_image_adds_names_at_most_and_never_beats_a_denial() {
    let lab = lab();
    let hostile = "#!/bin/sh\n\
        printf '\\033[2J\\033]0;owned\\007\\n*\\nhttp://*/\\nhttp://*.sallylab.net/\\nfile:///etc/shadow\\n'\n\
        echo http://142.250.74.110/ http://[2606:4700::1]/ http://169.254.169.254/ http://127.0.0.1/\n\
        echo http://metadata.google.internal/ http://ok.sallylab.net:22/ http://ok.sallylab.net/ http://denied.sallylab.net/\n\
        i=0; while [ $i -lt 10000 ]; do echo \"http://h$i.sallylab.net/\"; i=$((i + 1)); done\n";
    let image = Derived::new(&lab, "hostile", &[("/usr/local/bin/npm", hostile)]);
    lab.origins
        .zone
        .addresses("denied.sallylab.net", &[OTHER4, OTHER6]);
    let mark = lab.capture.mark();
    let script = format!(
        "curl -sS -m 10 http://ok.sallylab.net/ || exit 8\n\
         for url in http://denied.sallylab.net/ http://evil.sallylab.net/ http://h9999.sallylab.net/ http://{OTHER4}/ \
            http://ok.sallylab.net:22/ http://169.254.169.254/ http://metadata.google.internal/\n\
         do curl -sSf -m 5 $url && exit 9; done; exit 0"
    );
    let policy = format!("{POLICY}deny:\n  - host: denied.sallylab.net\n");
    let said = run(&lab, &policy, &["--image", &image.0], &script).expect(0);
    assert!(said.out.contains("lab connection"), "{said:?}");
    assert!(said.err.contains("were left out"), "{said:?}");
    assert!(
        !said.err.contains('\u{1b}') && !said.err.contains("owned"),
        "{said:?}"
    );
    lab.capture.none_to(mark, ip(OTHER4));
}

#[test]
fn a_network_without_an_image_has_no_packages() {
    let lab = lab();
    let policy = lab.file("packages.yml", POLICY).display().to_string();
    let namespace = lab::namespace::Namespace::new("without an image");
    let path = namespace.path().display().to_string();
    let said = lab
        .sallyport(&["net", "attach", "--netns", &path, "--policy", &policy])
        .expect(3);
    assert!(
        said.err.contains("the set `packages` needs") && said.err.contains("sallyport run"),
        "{said:?}"
    );
    lab.sallyport(&["policy", "check", &policy]).expect(0);
    let said = lab
        .sallyport(&["policy", "explain", &policy, "a.example.com:443"])
        .expect(1);
    assert!(said.out.contains("from the image"), "{said:?}");
}

#[test]
fn sally_is_on_the_path_and_root_cannot_replace_it() {
    let lab = lab();
    let script = "command -v sally && cd /usr/local/bin || exit 9\n\
        before=$(cksum < sally)\n\
        for change in 'echo x > sally' 'rm -f sally' 'mv sally other' 'mv /bin/true sally' 'cp /bin/true sally' \
            'ln -sf /bin/true sally' 'chmod 777 sally' 'umount /usr/local/bin/sally'; do\n\
            sh -c \"$change\" 2> /dev/null && echo \"succeeded: $change\"\n\
        done\n\
        [ \"$before\" = \"$(cksum < sally)\" ] && sally version";
    let said = run(&lab, policies::DOMAINS, &["--quiet", "--root"], script).expect(0);
    let lines: Vec<_> = said.out.lines().collect();
    assert_eq!(lines.len(), 2, "{said:?}");
    assert_eq!(lines[0], "/usr/local/bin/sally");
    assert!(lines[1].starts_with("sally "), "{said:?}");
}
