//! The `mast` binary from outside: exit codes and messages of its commands.

use std::{
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

fn mast(dir: &Path, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_mast"))
        .args(arguments)
        .current_dir(dir)
        .env_clear()
        .env("HOME", dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("write");
    child.wait_with_output().expect("the binary ends")
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_bad_configuration_ends_with_78_and_names_the_place() {
    let dir = tempfile::tempdir().expect("temporary directory");
    std::fs::write(dir.path().join("mast.toml"), "[mqtt]\nmax_qso = 1\n").expect("write");
    for arguments in [&["-c", "mast.toml"][..], &["config", "check", "-c", "mast.toml"]] {
        let output = mast(dir.path(), arguments, "");
        assert_eq!(code(&output), 78, "{arguments:?}");
        let error = stderr(&output);
        assert!(
            error.contains("mast.toml:2: unknown key `mqtt.max_qso`; did you mean `mqtt.max_qos`?"),
            "{error}"
        );
    }
    std::fs::write(dir.path().join("mast.toml"), "[auth]\nacl_file = \"acl\"\n").expect("write");
    std::fs::write(dir.path().join("acl"), "nonsense\n").expect("write");
    let output = mast(dir.path(), &["config", "check", "-c", "mast.toml"], "");
    assert_eq!(code(&output), 78);
    assert!(stderr(&output).contains("acl:1"), "{}", stderr(&output));
}

#[test]
fn wrong_usage_ends_with_2() {
    let dir = tempfile::tempdir().expect("temporary directory");
    assert_eq!(code(&mast(dir.path(), &["--nonsense"], "")), 2);
    assert_eq!(code(&mast(dir.path(), &["pub", "-t", "a"], "")), 2);
    let core = mast(dir.path(), &["--role", "core"], "");
    assert_eq!(code(&core), 2);
    assert!(stderr(&core).contains("no cluster yet"), "{}", stderr(&core));
}

#[test]
fn users_are_added_changed_and_deleted() {
    let dir = tempfile::tempdir().expect("temporary directory");
    assert_eq!(code(&mast(dir.path(), &["passwd", "-c", "-b", "pw", "ann", "one"], "")), 0);
    assert_eq!(
        code(&mast(dir.path(), &["passwd", "-c", "-b", "pw", "bob", "x"], "")),
        1,
        "-c overwrites nothing"
    );
    assert_eq!(code(&mast(dir.path(), &["passwd", "pw", "ann"], "two\n")), 0);
    let file = mast::auth::PasswordFile::read(&dir.path().join("pw")).expect("a good file");
    assert!(
        file.len() == 1
            && file.verify("ann", b"two") == Some(true)
            && file.verify("ann", b"one") == Some(false)
    );
    assert_eq!(code(&mast(dir.path(), &["passwd", "-D", "pw", "ann"], "")), 0);
    assert_eq!(code(&mast(dir.path(), &["passwd", "-D", "pw", "ann"], "")), 1);
}

#[test]
fn what_is_printed_for_machines_goes_to_standard_output() {
    let dir = tempfile::tempdir().expect("temporary directory");
    for (arguments, words) in [
        (&["config", "reference"][..], "# Configuration reference"),
        (&["config", "show", "--origin", "--shards", "2"], "# flag --shards"),
        (&["completion", "bash"], "_mast()"),
        (&["--version"], "mast "),
    ] {
        let output = mast(dir.path(), arguments, "");
        assert_eq!(code(&output), 0, "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains(words), "{arguments:?}");
    }
}
