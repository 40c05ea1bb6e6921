//! A program inherits nothing, ends in time with its children, and what it says is cut and made harmless.

use super::*;

fn shell(time: Duration) -> Program {
    let limits = Limits {
        file: 1 << 20,
        memory: 1 << 30,
        time,
    };
    Program {
        name: "sh",
        environment: Vec::new(),
        limits,
    }
}

const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn nothing_of_the_own_environment_is_inherited() {
    let printed = shell(SOON).run(&["-c", "env"], b"", 4096).await.unwrap();
    let text = String::from_utf8(printed.good().unwrap()).unwrap();
    let mut keys: Vec<&str> = text
        .lines()
        .filter_map(|l| l.split('=').next())
        .filter(|k| !matches!(*k, "PWD" | "SHLVL" | "_" | "OLDPWD"))
        .collect();
    keys.sort_unstable();
    assert_eq!(keys, ["LC_ALL", "PATH"]);
}

#[tokio::test]
async fn a_late_program_is_killed_with_its_children_and_a_loud_one_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pid");
    let script = format!("sleep 600 & echo $! > {}; wait", file.display());
    let error = shell(Duration::from_millis(300))
        .run(&["-c", &script], b"", 10)
        .await
        .unwrap_err();
    assert!(matches!(error, ProgramError::Late { .. }), "{error}");
    let child: i32 = std::fs::read_to_string(&file)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    // An orphan's end is seen when its new parent has reaped it; a zombie has no command line.
    let began = std::time::Instant::now();
    while std::fs::read(format!("/proc/{child}/cmdline")).is_ok_and(|line| !line.is_empty()) {
        assert!(
            began.elapsed() < SOON,
            "the child of a killed program lives"
        );
        tokio::task::yield_now().await;
    }
    let loud = shell(SOON)
        .run(&["-c", "exec yes"], b"", 1000)
        .await
        .unwrap_err();
    assert!(
        matches!(loud, ProgramError::TooMuch { most: 1000, .. }),
        "{loud}"
    );
}

#[tokio::test]
async fn a_file_beyond_the_limit_ends_it_and_words_are_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!(
        "exec head -c 2000000 /dev/zero > {}/big",
        dir.path().display()
    );
    let error = shell(SOON)
        .run(&["-c", &script], b"", 10)
        .await
        .unwrap()
        .good()
        .unwrap_err();
    assert!(
        error.to_string().contains("larger than the limit"),
        "{error}"
    );
    let error = shell(SOON)
        .run(
            &[
                "-c",
                "printf 'fatal: \\033]0;x\\007 no\\nhint: y\\n' >&2; exit 3",
            ],
            b"",
            10,
        )
        .await
        .unwrap();
    assert_eq!(
        error.good().unwrap_err().to_string(),
        "sh failed with 3: fatal: \\u{1b}]0;x\\u{7} no"
    );
}
