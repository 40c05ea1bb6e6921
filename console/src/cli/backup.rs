//! `sallyport backup` and `sallyport restore`: the console's store into one encrypted file, and back.

use std::path::PathBuf;

use clap::Args;
use console::backup::{self, BackupError, KeyInside, Opens, Seals, Summary, Target};
use console::store::Store;
use console::vault::Vault;

use super::{Shared, wait};
use crate::exit::{Failure, Outcome, Verdict};
use crate::show::{self, Format};

const BACKUP: &str = "\
Reads the whole store in one moment while consoles serve, and encrypts it for public keys of age's (make one with \
`age-keygen -o KEYS`; keep KEYS elsewhere) or with a passphrase. The instance key, without which no secret in the backup \
can be read, is not inside: keep a copy of its file apart, or ask for it with --with-key. Sessions are left out, and what \
asks sign-in providers about people again. The store is neither made nor migrated; that there is a backup is noted in it, \
for the checklist.

Examples:
  sallyport backup --to sallyport.age --recipient age1...
  sallyport restore sallyport.age --identity KEYS";

const RESTORE: &str = "\
Makes the store that the configuration names, where there must be none; SQLite and PostgreSQL take each other's backups. \
A backup that a newer Sallyport made is refused, one that an older one made is brought to this version. What fails leaves \
an empty database at most; what is killed also the instance key, if it was inside: the same restore may be done again. Runs \
that waited or ran then are lost, and notifications that waited are not sent.";

#[derive(Debug, Args)]
#[command(after_help = BACKUP)]
pub struct Arguments {
    /// The file to make
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// For whom it is encrypted, a public key of age's; may be given several times
    #[arg(long, value_name = "KEY", required_unless_present = "passphrase_file")]
    recipient: Vec<String>,
    /// A file whose first line is the passphrase that it is encrypted with
    #[arg(long, value_name = "FILE", conflicts_with = "recipient")]
    passphrase_file: Option<PathBuf>,
    /// Put the instance key inside: who opens the backup then reads every secret
    #[arg(long)]
    with_key: bool,
}

#[derive(Debug, Args)]
#[command(after_help = RESTORE)]
pub struct RestoreArguments {
    /// The backup
    file: PathBuf,
    /// A file with the secret key, as age-keygen makes it
    #[arg(long, value_name = "FILE", required_unless_present = "passphrase_file")]
    identity: Option<PathBuf>,
    /// A file whose first line is the passphrase
    #[arg(long, value_name = "FILE", conflicts_with = "identity")]
    passphrase_file: Option<PathBuf>,
}

pub fn perform(arguments: &Arguments, shared: &Shared) -> Verdict {
    let config = shared.load()?.console;
    let seals = match &arguments.passphrase_file {
        Some(file) => Seals::passphrase(file),
        None => Seals::keys(&arguments.recipient),
    };
    let seals = seals.map_err(|error| failure(&error))?;
    let inside = if arguments.with_key {
        KeyInside::Yes
    } else {
        KeyInside::No
    };
    let made = wait(async {
        let store = Store::existing(&config.database).await;
        let store = store.map_err(|error| failure(&BackupError::Store(error)))?;
        let vault = Vault::at(config.key_file.clone());
        let made = backup::write(&store, &vault, inside, seals, &arguments.to).await;
        if let Ok(made) = &made
            && let Err(error) = store.note_backup(made.at).await
        {
            // the backup is whole all the same
            show::note(format_args!(
                "the checklist does not know of it: {}",
                Failure::from_error(&error).message
            ));
        }
        store.close().await;
        made.map_err(|error| failure(&error))
    })?;
    tell(&made, "written", shared)?;
    if let Some(key) = made.key_id.filter(|_| !made.has_key) {
        let file = config.key_file.display();
        show::note(format_args!(
            "secrets in it need the instance key {key}: keep a copy of {file} where the backup is not"
        ));
    }
    Ok(Outcome::Good)
}

pub fn restore(arguments: &RestoreArguments, shared: &Shared) -> Verdict {
    let config = shared.load()?.console;
    let opens = match (&arguments.passphrase_file, &arguments.identity) {
        (Some(file), _) => Opens::passphrase(file),
        (None, Some(file)) => Opens::keys(file),
        (None, None) => return Err(Failure::new("--identity or --passphrase-file is needed")),
    };
    let opens = opens.map_err(|error| failure(&error))?;
    let into = Target {
        database: &config.database,
        key_file: &config.key_file,
    };
    let back = wait(async {
        let back = backup::restore(into, &opens, &arguments.file).await;
        back.map_err(|error| failure(&error))
    })?;
    tell(&back, "restored", shared)?;
    if let Some(key) = back.key_id.filter(|_| !back.has_key) {
        let file = config.key_file.display();
        show::note(format_args!(
            "secrets need the instance key {key} in {file}; the console does not start without it"
        ));
    }
    Ok(Outcome::Good)
}

fn tell(summary: &Summary, what: &str, shared: &Shared) -> Result<(), Failure> {
    match shared.format() {
        Format::Json => show::json(&serde_json::json!({
            "rows": summary.rows, "at": summary.at, "key": summary.key_id, "key_inside": summary.has_key,
        })),
        Format::Text => show::out(format_args!("{} rows {what}", summary.rows)),
    }
}

fn failure(error: &BackupError) -> Failure {
    let mut failure = Failure::from_error(error);
    failure.hint = error.hint().map(str::to_owned);
    failure
}
