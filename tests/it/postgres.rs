//! A PostgreSQL server of its own for a test: the real one, in a folder, reached by a socket there.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// Where Debian has the programs of its versions.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The user that Debian's package makes; the server refuses to run as root.
const USER: &str = "postgres";

pub(crate) struct Postgres {
    folder: TempDir,
}

impl Postgres {
    pub(crate) fn start() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("pg")
            .tempdir_in("/tmp")
            .unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let data = folder.path().join("data");
        let data = data.to_str().unwrap();
        run(
            folder.path(),
            "initdb",
            &["-D", data, "-A", "trust", "-U", USER, "--no-sync"],
        );
        let options = format!(
            "-c listen_addresses='' -c fsync=off -k {}",
            folder.path().display()
        );
        let log = folder.path().join("log");
        run(
            folder.path(),
            "pg_ctl",
            &[
                "-D",
                data,
                "-w",
                "-l",
                log.to_str().unwrap(),
                "-o",
                &options,
                "start",
            ],
        );
        Self { folder }
    }

    /// Fills its database with the tables of pgbench, 100,000 accounts for each unit of the scale.
    pub(crate) fn fill(&self, scale: u32) {
        let folder = self.folder.path();
        let (scale, host) = (scale.to_string(), folder.to_str().unwrap());
        run(
            folder,
            "pgbench",
            &["-i", "-q", "-s", &scale, "-h", host, "-U", USER, USER],
        );
    }

    /// The URL of its database.
    pub(crate) fn url(&self) -> String {
        format!(
            "postgres://{USER}@localhost/{USER}?host={}",
            self.folder.path().display()
        )
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let data = self.folder.path().join("data");
        run(
            self.folder.path(),
            "pg_ctl",
            &[
                "-D",
                data.to_str().unwrap(),
                "-m",
                "immediate",
                "-w",
                "stop",
            ],
        );
    }
}

/// Runs a program of PostgreSQL in a folder, as the user that may.
fn run(folder: &Path, program: &str, arguments: &[&str]) {
    let mut versions: Vec<_> = std::fs::read_dir(DEBIAN)
        .unwrap_or_else(|error| panic!("PostgreSQL is missing, `make test` installs it: {error}"))
        .map(|entry| entry.unwrap().path())
        .collect();
    versions.sort();
    let program = versions.last().unwrap().join("bin").join(program);
    let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    let mut command = if is_root {
        let mut command = Command::new("runuser");
        command.args(["-u", USER, "--"]).arg(&program);
        command
    } else {
        Command::new(&program)
    };
    // The server keeps what it is given open: a pipe of the test would never end.
    let output = command
        .args(arguments)
        .current_dir(folder)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::fs::File::create(folder.join(format!("{}.err", arguments.len()))).unwrap())
        .status()
        .unwrap();
    assert!(
        output.success(),
        "{} {arguments:?}: see {}",
        program.display(),
        folder.display()
    );
}
