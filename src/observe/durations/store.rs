//! The content of the file: routes, tools, and the durations of their calls. Each use opens the file exclusively and
//! closes it again, so that many processes share the file, and a killed process leaves no unfinished write.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use redb::backends::FileBackend;
use redb::{
    Database, ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata,
    TableDefinition, TableError, TableHandle, WriteTransaction,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::file::{self, MissingFile};
use super::place::path_in_label;
use crate::progress::durations::{Durations, Sample};

/// The name of the file in the state directory.
pub const FILE: &str = "durations.redb";

// `redb` keeps the durations: it is crash-safe, one file, and pure Rust. Each write opens the file, which locks it, and
// closes it again, because dozens of `wrap` processes share the file and none may keep it locked for long.
/// The version of the file's format. A file of a newer version is left unchanged.
const VERSION: u64 = 1;

/// Maximum number of tools of all routes in the state file. Beyond the limit the tenth that was unused for longest is
/// removed. A full file has about 4 MB.
const ENTRIES_MAX: u64 = 2000;

/// Deadline for other processes to close the file. A process has it open for some milliseconds.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// Maximum number of bytes of the file that are cached while it is open.
const CACHE: usize = 1 << 20;

/// A table whose rows have two names (a route, and a tool or client) and a value in JSON.
pub(super) type RowTable = TableDefinition<'static, (&'static str, &'static str), &'static [u8]>;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const ENTRIES: RowTable = RowTable::new("durations");

/// The stored data of one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRow {
    /// The path of the route, or the label that a conversation without a route has instead.
    pub route: String,
    /// The name of the tool.
    pub tool: String,
    /// The durations of the tool's calls.
    pub durations: Durations,
    /// The time of the last call, in seconds since 1970.
    pub seen: u64,
}

/// Durations that wait to be added, by route and tool.
pub(super) type PendingSamples = BTreeMap<std::sync::Arc<str>, BTreeMap<Box<str>, Durations>>;

/// The reason why the file could not be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Other processes had the file open until the deadline.
    #[error("{} is in use by other processes; try again", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// The file belongs to a newer version of the program.
    #[error("{} was written by a newer version of Milepost; use that version, or another --state-dir", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
    },
    /// The system does not allow the use of the file.
    #[error("{} cannot be used", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// The reason why an open file cannot be used.
pub(super) enum FileFault {
    Busy,
    Newer,
    /// The file is not a state file, or is damaged.
    Bad(String),
    Io(io::Error),
}

impl<E: Into<redb::Error>> From<E> for FileFault {
    fn from(error: E) -> Self {
        use io::ErrorKind::{InvalidData, UnexpectedEof};
        match error.into() {
            redb::Error::DatabaseAlreadyOpen | redb::Error::LockProtocolMismatch => Self::Busy,
            redb::Error::Io(error) if ![InvalidData, UnexpectedEof].contains(&error.kind()) => {
                Self::Io(error)
            }
            error => Self::Bad(error.to_string()),
        }
    }
}

/// The durations of one tool, in the stored form.
#[derive(Serialize, Deserialize)]
struct StoredDuration {
    /// For each call, oldest first: the milliseconds, and whether the server reported values.
    took: Vec<(u32, bool)>,
    errors: u64,
    given_up: u64,
    seen: u64,
}

impl StoredDuration {
    fn durations(&self) -> Durations {
        let samples = self
            .took
            .iter()
            .map(|(millis, has_figure)| Sample { millis: *millis, has_figure: *has_figure });
        Durations::new(samples, self.errors, self.given_up)
    }

    fn of(durations: &Durations, seen: u64) -> Self {
        let took = durations.samples().map(|sample| (sample.millis, sample.has_figure));
        let (errors, given_up) = (durations.errors, durations.given_up);
        Self { took: took.collect(), errors, given_up, seen }
    }
}

/// The file in a state directory.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    integrity: Integrity,
    /// The longest wait for other processes that have the file open.
    lock_wait: Duration,
}

impl Store {
    /// Returns the store in a directory, without opening a file.
    pub fn new(folder: &Path) -> Self {
        Self { path: folder.join(FILE), integrity: Integrity::Unchecked, lock_wait: LOCK_WAIT }
    }

    /// Reads all durations, by route and tool.
    ///
    /// # Errors
    /// If the file exists and cannot be used. A damaged file is renamed, and counts as empty.
    pub fn read(&mut self) -> Result<Vec<ToolRow>, StoreError> {
        self.read_rows(ENTRIES, |route, tool, kept: StoredDuration| ToolRow {
            route: route.into(),
            tool: tool.into(),
            durations: kept.durations(),
            seen: kept.seen,
        })
    }

    /// Adds calls that ended at `now`, in seconds since 1970.
    ///
    /// # Errors
    /// If the file cannot be used or created. A damaged file is renamed.
    pub(super) fn add(&mut self, added: &PendingSamples, now: u64) -> Result<(), StoreError> {
        self.with(MissingFile::Create, |database| {
            let to = database.begin_write()?;
            claim(&to)?;
            let mut changed = false;
            {
                let mut entries = to.open_table(ENTRIES)?;
                let tools = added.iter().flat_map(|(route, tools)| {
                    tools.iter().map(move |(tool, durations)| ((&**route, &**tool), durations))
                });
                for (key, durations) in tools {
                    let read = |text: &[u8]| serde_json::from_slice::<StoredDuration>(text).ok();
                    let mut old = entries.get(key)?.and_then(|old| read(old.value()));
                    if old.is_none()
                        && let Some(path) = path_in_label(key.0)
                    {
                        // In earlier versions the label was only the path: move that entry to the new label.
                        old = entries.remove((path, key.1))?.and_then(|old| read(old.value()));
                    }
                    // Do not add a tool only because of an error: errors have no duration.
                    if old.is_none() && durations.samples().len() == 0 {
                        continue;
                    }
                    let mut all = durations.clone();
                    // Put older durations before newer ones, because the list keeps only the last ones.
                    old.inspect(|old| all.precede(&old.durations()));
                    let text =
                        serde_json::to_vec(&StoredDuration::of(&all, now)).unwrap_or_default();
                    entries.insert(key, &text[..])?;
                    changed = true;
                }
                if entries.len()? > ENTRIES_MAX {
                    evict(&mut entries)?;
                }
            }
            // Without a change the transaction is dropped, which writes nothing to the disk.
            if changed {
                to.commit()?;
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Forgets a route, or one tool of the route. Returns the number of forgotten tools.
    ///
    /// # Errors
    ///
    /// If the file exists but cannot be used.
    pub fn forget(&mut self, route: &str, tool: Option<&str>) -> Result<usize, StoreError> {
        self.forget_rows(ENTRIES, |on, name| on == route && tool.is_none_or(|tool| name == tool))
    }

    /// Returns the rows of a table, each made of its two names and its value.
    pub(super) fn read_rows<V: DeserializeOwned, R>(
        &mut self,
        table: RowTable,
        row: impl Fn(&str, &str, V) -> R,
    ) -> Result<Vec<R>, StoreError> {
        let rows = self.with(MissingFile::Empty, |database| {
            let from = database.begin_read()?;
            if !is_claimed(&from)? {
                return Ok(Vec::new());
            }
            let stored = match from.open_table(table) {
                // An earlier version has written the file, or nothing of this kind was learned yet.
                Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                opened => opened?,
            };
            let mut rows = Vec::new();
            for entry in stored.iter()? {
                let (key, value) = entry?;
                let (route, name) = key.value();
                // A value that cannot be read is left out: one bad row must not lose all others.
                if let Ok(value) = serde_json::from_slice(value.value()) {
                    rows.push(row(route, name, value));
                }
            }
            Ok(rows)
        })?;
        Ok(rows.unwrap_or_default())
    }

    /// Removes the rows of a table whose two names are chosen, and returns their number.
    pub(super) fn forget_rows(
        &mut self,
        table: RowTable,
        is_chosen: impl Fn(&str, &str) -> bool,
    ) -> Result<usize, StoreError> {
        let gone = self.with(MissingFile::Empty, |database| {
            let to = database.begin_write()?;
            claim(&to)?;
            let mut gone = 0;
            to.open_table(table)?.retain(|(route, name), _| {
                let is_gone = is_chosen(route, name);
                gone += usize::from(is_gone);
                !is_gone
            })?;
            to.commit()?;
            Ok(gone)
        })?;
        Ok(gone.unwrap_or_default())
    }

    /// Opens the file and works on it. Returns `None` if the file does not exist and is not to be created. A damaged
    /// file is renamed, and the work is tried once more.
    pub(super) fn with<T>(
        &mut self,
        missing: MissingFile,
        work: impl Fn(&Database) -> Result<T, FileFault>,
    ) -> Result<Option<T>, StoreError> {
        let until = Instant::now() + self.lock_wait;
        let unusable = |source| StoreError::Unusable { path: self.path.clone(), source };
        for attempt in 0.. {
            // Open the file again in each attempt: another process may have renamed it meanwhile.
            let Some(open) = file::open(&self.path, missing).map_err(unusable)? else {
                return Ok(None);
            };
            // A second handle of the open file stays valid after the database has closed its own.
            let again = open.try_clone().map_err(unusable)?;
            match with_database(again, self.integrity, &work) {
                Ok(done) => {
                    self.integrity = Integrity::Checked;
                    return Ok(Some(done));
                }
                // Neither read nor rename the file of a newer version: a process of that version may be using it.
                Err(FileFault::Newer) => return Err(StoreError::Newer { path: self.path.clone() }),
                Err(FileFault::Io(source)) => return Err(unusable(source)),
                Err(FileFault::Busy) => {}
                Err(FileFault::Bad(why)) => {
                    self.integrity = Integrity::Unchecked;
                    if let Some(bad) = file::set_aside(&self.path, &open).map_err(unusable)? {
                        let (path, bad) = (self.path.display(), bad.display());
                        warn!(%path, why, "not a file that can be read; it is {bad} now");
                    }
                }
            }
            if Instant::now() >= until {
                break;
            }
            // Close the file before the pause, because the next attempt opens it by its name.
            drop(open);
            thread::sleep(pause(attempt));
        }
        Err(StoreError::Busy { path: self.path.clone() })
    }
}

/// Returns a pause of some milliseconds, which differs between waiting processes.
fn pause(attempt: u32) -> Duration {
    let spread = u64::from(std::process::id().wrapping_add(attempt).wrapping_mul(7) % 20);
    Duration::from_millis(3 + spread)
}

/// Whether this process has checked the whole file before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Integrity {
    Unchecked,
    Checked,
}

/// Opens the database, works on it and closes it. An unchecked database is read whole first. A damaged database can
/// still make the library panic.
fn with_database<T>(
    file: File,
    integrity: Integrity,
    work: impl Fn(&Database) -> Result<T, FileFault>,
) -> Result<T, FileFault> {
    let all = AssertUnwindSafe(|| {
        let file = FileBackend::new(file)?;
        let mut builder = Database::builder();
        let checks = integrity == Integrity::Unchecked;
        builder.set_cache_size(CACHE).set_check_integrity_on_open(checks);
        let database = builder.create_with_backend(file)?;
        work(&database)
    });
    catch_unwind(all)
        .unwrap_or_else(|_| Err(FileFault::Bad("it cannot be made sense of".to_owned())))
}

/// Whether the file has data. Fails if the data was not written by Milepost.
pub(super) fn is_claimed(from: &ReadTransaction) -> Result<bool, FileFault> {
    let mut names = from.list_tables()?.map(|table| table.name().to_owned());
    let version = match from.open_table(META) {
        Ok(meta) => meta.get("version")?.map(|version| version.value()),
        Err(TableError::TableDoesNotExist(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let is_claimed = is_own_version(version)?;
    if !is_claimed && names.next().is_some() {
        return Err(of_something_else());
    }
    Ok(is_claimed)
}

/// Marks an empty file as Milepost's.
pub(super) fn claim(to: &WriteTransaction) -> Result<(), FileFault> {
    let is_empty = to.list_tables()?.next().is_none();
    let mut meta = to.open_table(META)?;
    let version = meta.get("version")?.map(|version| version.value());
    if !is_own_version(version)? {
        if !is_empty {
            return Err(of_something_else());
        }
        meta.insert("version", VERSION)?;
    }
    // Earlier versions take a file without this table for damaged, also where only habits of clients have been added.
    to.open_table(ENTRIES)?;
    Ok(())
}

/// Whether the version of a file is the one of this process; false without a version, as in an empty file.
fn is_own_version(version: Option<u64>) -> Result<bool, FileFault> {
    match version {
        Some(VERSION) => Ok(true),
        Some(version) if version > VERSION => Err(FileFault::Newer),
        Some(_) => Err(of_something_else()),
        None => Ok(false),
    }
}

fn of_something_else() -> FileFault {
    FileFault::Bad("it is the database of something else".to_owned())
}

/// Forgets the tools that were used longest ago.
fn evict(
    entries: &mut redb::Table<'_, (&'static str, &'static str), &'static [u8]>,
) -> Result<(), FileFault> {
    let seen =
        |text: &[u8]| serde_json::from_slice::<StoredDuration>(text).map_or(0, |kept| kept.seen);
    let mut ages = Vec::new();
    for entry in entries.iter()? {
        ages.push(seen(entry?.1.value()));
    }
    ages.sort_unstable();
    let surplus = ages.len().saturating_sub((ENTRIES_MAX - ENTRIES_MAX / 10) as usize);
    // Many tools may have the same age in seconds, so `left` limits how many are removed.
    let mut left = surplus;
    let Some(oldest) = ages.get(surplus) else { return Ok(()) };
    entries.retain(|_, text| {
        let goes = left > 0 && seen(text) <= *oldest;
        left -= usize::from(goes);
        !goes
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::durations::{REMEMBERED, SampleOutcome};
    use redb::DatabaseError;
    use tempfile::TempDir;

    const NOW: u64 = 1_750_000_000;

    fn store() -> (TempDir, Store) {
        let folder = TempDir::new().unwrap();
        let store = Store::new(folder.path());
        (folder, store)
    }

    /// Opens the database directly. Retries, because a child that another test starts has the lock too until its
    /// program runs.
    fn open(store: &Store) -> Database {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            match Database::create(&store.path) {
                Err(DatabaseError::DatabaseAlreadyOpen) if Instant::now() < until => {
                    thread::sleep(pause(0));
                }
                opened => return opened.unwrap(),
            }
        }
    }

    fn calls(tools: &[(&str, &[u32])]) -> PendingSamples {
        let durations = |millis: &[u32]| {
            let sample = |millis: &u32| Sample { millis: *millis, has_figure: false };
            Durations::new(millis.iter().map(sample), 0, 0)
        };
        let tools = tools.iter().map(|(tool, millis)| ((*tool).into(), durations(millis)));
        PendingSamples::from([("/r".into(), tools.collect())])
    }

    fn millis(store: &mut Store) -> Vec<(String, Vec<u32>)> {
        let entries = store.read().unwrap().into_iter();
        let took =
            |entry: &ToolRow| entry.durations.samples().map(|sample| sample.millis).collect();
        entries.map(|entry| (entry.tool.clone(), took(&entry))).collect()
    }

    #[test]
    fn what_is_added_comes_after_what_is_there() {
        let (folder, mut store) = store();
        assert_eq!(store.read().unwrap(), []);
        assert!(!store.path.exists());
        store.add(&calls(&[("a", &[1, 2]), ("b", &[9])]), NOW).unwrap();
        let mut other = Store::new(folder.path());
        other.add(&calls(&[("a", &[3])]), NOW).unwrap();
        assert_eq!(millis(&mut store), [("a".into(), vec![1, 2, 3]), ("b".into(), vec![9])]);
        store.add(&calls(&[("a", &[7; REMEMBERED - 1])]), NOW).unwrap();
        let all = millis(&mut store);
        assert_eq!((all[0].1.len(), &all[0].1[..2]), (REMEMBERED, &[3, 7][..]));
        assert_eq!(store.forget("/r", Some("a")).unwrap(), 1);
        assert_eq!(store.forget("/s", None).unwrap(), 0);
        assert_eq!(millis(&mut other), [("b".into(), vec![9])]);
    }

    #[test]
    fn an_entry_under_a_path_alone_moves_once_to_the_label_of_its_server() {
        let (_folder, mut store) = store();
        let of = |route: &str, millis: &[u32]| -> PendingSamples {
            let pending = calls(&[("a", millis)]).into_values();
            pending.map(|tools| (route.into(), tools)).collect()
        };
        store.add(&of("/r", &[1, 2]), NOW).unwrap();
        store.add(&of("/r#01234567", &[3]), NOW).unwrap();
        store.add(&of("/r#89abcdef", &[4]), NOW).unwrap();
        let routes: Vec<String> =
            store.read().unwrap().iter().map(|row| row.route.to_string()).collect();
        assert_eq!(routes, ["/r#01234567", "/r#89abcdef"]);
        let (first, second) = (("a".into(), vec![1, 2, 3]), ("a".into(), vec![4]));
        assert_eq!(millis(&mut store), [first, second]);
    }

    #[test]
    fn errors_count_for_tools_that_are_known() {
        let (_folder, mut store) = store();
        let mut failed = Durations::default();
        failed.note(SampleOutcome::Failed);
        failed.note(SampleOutcome::GivenUp);
        let failed = PendingSamples::from([("/r".into(), BTreeMap::from([("a".into(), failed)]))]);
        store.add(&failed, NOW).unwrap();
        assert_eq!(store.read().unwrap(), []);
        store.add(&calls(&[("a", &[1])]), NOW).unwrap();
        store.add(&failed, NOW).unwrap();
        let known = store.read().unwrap().remove(0).durations;
        assert_eq!((known.errors, known.given_up, known.samples().len()), (1, 1, 1));
    }

    #[test]
    fn the_file_of_a_newer_version_is_left_alone() {
        let (folder, mut store) = store();
        store.add(&calls(&[("a", &[1])]), NOW).unwrap();
        let database = open(&store);
        let to = database.begin_write().unwrap();
        to.open_table(META).unwrap().insert("version", VERSION + 1).unwrap();
        to.commit().unwrap();
        drop(database);
        assert!(matches!(store.add(&calls(&[("a", &[2])]), NOW), Err(StoreError::Newer { .. })));
        assert!(matches!(store.read(), Err(StoreError::Newer { .. })));
        assert!(matches!(store.forget("/r", None), Err(StoreError::Newer { .. })));
        let database = open(&store);
        let entries = database.begin_read().unwrap().open_table(ENTRIES).unwrap();
        let kept = entries.get(("/r", "a")).unwrap().unwrap();
        assert!(kept.value().starts_with(b"{\"took\":[[1,false]]"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_database_of_something_else_is_set_aside() {
        const OTHER: TableDefinition<'_, u64, u64> = TableDefinition::new("durations");
        let (folder, mut store) = store();
        let database = open(&store);
        let to = database.begin_write().unwrap();
        to.open_table(OTHER).unwrap().insert(1, 1).unwrap();
        to.commit().unwrap();
        drop(database);
        store.add(&calls(&[("a", &[1])]), NOW).unwrap();
        assert_eq!(millis(&mut store), [("a".into(), vec![1])]);
        assert!(folder.path().join("durations.redb.bad-1").exists());
    }

    #[test]
    fn a_value_that_cannot_be_read_is_begun_anew() {
        let (_folder, mut store) = store();
        store.add(&calls(&[("a", &[1]), ("b", &[1])]), NOW).unwrap();
        let database = open(&store);
        let to = database.begin_write().unwrap();
        to.open_table(ENTRIES).unwrap().insert(("/r", "a"), &b"{"[..]).unwrap();
        to.commit().unwrap();
        drop(database);
        assert_eq!(millis(&mut store), [("b".into(), vec![1])]);
        store.add(&calls(&[("a", &[2])]), NOW).unwrap();
        assert_eq!(millis(&mut store)[0], ("a".into(), vec![2]));
    }

    #[test]
    fn the_number_of_tools_is_bounded_and_the_oldest_go() {
        let (_folder, mut store) = store();
        let names: Vec<String> = (0..ENTRIES_MAX).map(|number| format!("t{number}")).collect();
        let tools: Vec<(&str, &[u32])> = names.iter().map(|name| (&**name, &[1][..])).collect();
        store.add(&calls(&tools), NOW).unwrap();
        assert_eq!(store.read().unwrap().len() as u64, ENTRIES_MAX);
        // All old entries have the same age.
        store.add(&calls(&[("new", &[1]), ("t7", &[2])]), NOW + 1).unwrap();
        let left = millis(&mut store);
        assert_eq!(left.len() as u64, ENTRIES_MAX - ENTRIES_MAX / 10);
        let has = |name: &str| left.iter().any(|(tool, _)| tool == name);
        assert!(has("new") && has("t7"));
    }

    #[test]
    fn whoever_has_the_file_is_waited_for() {
        let (_folder, mut store) = store();
        store.lock_wait = Duration::from_secs(60);
        store.add(&calls(&[("a", &[1])]), NOW).unwrap();
        let database = open(&store);
        let waits = thread::spawn(move || {
            store.add(&calls(&[("a", &[2])]), NOW).unwrap();
            millis(&mut store)
        });
        thread::sleep(Duration::from_millis(50));
        assert!(!waits.is_finished());
        drop(database);
        assert_eq!(waits.join().unwrap(), [("a".into(), vec![1, 2])]);
    }
}
