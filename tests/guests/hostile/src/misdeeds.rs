//! The misdeeds themselves. Each runs until the host stops it, unless its description says otherwise.

use std::hint::black_box;
use std::time::Duration;

use crate::bindings::plimsoll::plugin::log;
use crate::bindings::plimsoll::plugin::reply::{self, Demand};
use crate::bindings::plimsoll::plugin::shaping::PushDown;
use crate::bindings::plimsoll::plugin::types::Fault;
use crate::bindings::wasi::config::store;

/// One way to misbehave.
pub(crate) struct Misdeed {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    /// Takes the argument `count`.
    pub(crate) run: fn(Option<u64>) -> Result<(), Fault>,
}

macro_rules! misdeeds {
    ($($name:literal: $description:literal => $run:expr;)*) => {
        /// Every misdeed, and `fine`.
        pub(crate) const ALL: &[Misdeed] = &[$(Misdeed {
            name: $name,
            description: $description,
            run: $run,
        }),*];
    };
}

misdeeds! {
    "fine": "Hands over an array of `count` (3) small objects." => fine;
    "loop": "Computes without end." => |_| spin();
    "sleep": "Waits on a clock for `count` (60,000) milliseconds, then answers." => sleep;
    "grow": "Allocates memory without end." => |_| grow();
    "trap": "Executes an unreachable instruction." => |_| trap();
    "panic": "Panics, which writes to stderr and aborts." => |_| panic!("a panic, as ordered");
    "exit": "Leaves through wasi:cli/exit with code 3." => |_| std::process::exit(3);
    "recurse": "Calls itself without end." => |_| recurse();
    "many_rows": "Pushes `count` (1,000,000) rows of 1,074 bytes in pieces of 64 and returns when it hears enough." => many_rows;
    "slow_rest": "Says that there are `count` (60) rows, pushes 30 and, unless it hears enough, waits for a minute before it pushes the others." => slow_rest;
    "flood_rows": "Pushes rows without end, whatever it hears." => |_| flood_rows();
    "flood_one_row": "Pushes one row of `count` (100,000,000) bytes." => flood_one_row;
    "flood_document": "Hands over a document of `count` (200,000,000) bytes." => flood_document;
    "flood_attachments": "Attaches images of 1 MB without end." => |_| flood_attachments();
    "flood_log": "Writes log lines of 100 KB without end." => |_| flood_log();
    "flood_stdout": "Prints lines without end." => |_| flood_stdout();
    "flood_progress": "Reports progress without end." => |_| flood_progress();
    "progress_back": "Reports progress 5, 3 and 5 of 4, then answers." => progress_back;
    "fault_invalid_input": "Fails with invalid-input." => |_| Err(Fault::InvalidInput("this input is not for me".to_owned()));
    "fault_not_found": "Fails with not-found." => |_| Err(Fault::NotFound("nothing has that name".to_owned()));
    "fault_unavailable": "Fails with unavailable." => |_| Err(Fault::Unavailable("the backend asks for patience".to_owned()));
    "fault_internal": "Fails with internal." => |_| Err(Fault::Internal("something broke in here".to_owned()));
    "fault_long": "Fails with a text of `count` (1,000,000) bytes." => |count| Err(Fault::Internal("long ".repeat(or(count, 1_000_000) / 5)));
    "fault_after_rows": "Pushes rows, then fails." => fault_after_rows;
    "trap_after_rows": "Pushes rows, then traps." => |_| { reply::rows(b"{\"n\":1}\n"); trap() };
    "document_twice": "Hands over two documents." => document_twice;
    "document_and_rows": "Hands over a document and pushes rows." => document_and_rows;
    "nothing": "Returns without an answer." => |_| Ok(());
    "invalid_utf8": "Hands over a document that is not UTF-8." => |_| { reply::document(b"[\"\xff\xfe\"]"); Ok(()) };
    "invalid_utf8_rows": "Pushes a row that is not UTF-8." => |_| { reply::rows(b"{\"n\":\"\xc3(\"}\n"); Ok(()) };
    "invalid_json": "Hands over a document that begins like JSON and is cut." => |_| { reply::document(b"[{\"n\":1},{\"n\":"); Ok(()) };
    "invalid_rows": "Pushes lines, one of which is not JSON." => |_| { reply::rows(b"{\"n\":1}\n{\"n\":\n{\"n\":3}\n"); Ok(()) };
    "false_total": "Says that there are 10 rows and pushes 2." => |_| { reply::total(10); reply::rows(b"{\"n\":1}\n{\"n\":2}\n"); Ok(()) };
    "false_applied": "Says late that it applied everything." => |_| { reply::rows(b"{\"n\":1}\n"); reply::applied(PushDown::all()); Ok(()) };
    "loop_host_calls": "Calls the host without end." => |_| loop { reply::total(1) };
    "loop_poll": "Waits for nothing without end." => |_| loop { std::thread::sleep(Duration::from_nanos(1)) };
    "push_nothing": "Pushes empty lines without end." => |_| loop { reply::rows(b"\n") ; };
    "flood_small_attachments": "Attaches nothing without end." => |_| flood_small_attachments();
    "flood_stderr": "Prints errors without end." => |_| loop { eprintln!("an error that nobody asked for") };
    "attach_huge": "Attaches one image of `count` (100,000,000) bytes." => attach_huge;
    "attach_images": "Attaches `count` (30) images of 5,000 bytes, then answers." => attach_images;
    "attach_blob": "Attaches a resource of `count` (5,000) bytes that are not text, then answers." => attach_blob;
    "log_huge": "Writes a log line of `count` (100,000,000) bytes, then answers." => log_huge;
    "config_huge": "Reads a configuration value whose name has `count` (40,000,000) bytes, then answers." => config_huge;
    "progress_huge": "Reports progress in `count` (100,000,000) bytes of words, then answers." => progress_huge;
    "fault_huge": "Fails with a text of 10 MB." => |_| Err(Fault::Internal("long ".repeat(2_000_000)));
    "million_keys": "Hands over an object of `count` (1,000,000) members." => million_keys;
    "many_small_rows": "Hands over an array of `count` (10,000,000) numbers." => many_small_rows;
    "deep": "Hands over arrays, `count` (100,000) inside each other." => deep;
    "not_a_number": "Hands over NaN." => |_| { reply::document(b"[{\"n\":NaN}]"); Ok(()) };
    "lone_surrogate": "Hands over half of a surrogate pair." => |_| { reply::document(br#"[{"s":"\ud800"}]"#); Ok(()) };
    "long_number": "Hands over a number of `count` (1,000,000) digits." => long_number;
    "look_around": "Hands over the names of its environment variables, its arguments and what it can list of `/` and `..`." => look_around;
}

fn or(count: Option<u64>, default: usize) -> usize {
    count.map_or(default, |count| {
        usize::try_from(count).unwrap_or(usize::MAX)
    })
}

/// Objects `{"n":…}`, one a line.
fn lines(range: std::ops::Range<usize>) -> String {
    range.map(|n| format!("{{\"n\":{n}}}\n")).collect()
}

fn fine(count: Option<u64>) -> Result<(), Fault> {
    let rows = lines(0..or(count, 3));
    reply::document(format!("[{}]", rows.trim_end().replace('\n', ",")).as_bytes());
    Ok(())
}

pub(crate) fn spin() -> ! {
    let mut turns = 0_u64;
    loop {
        turns = black_box(turns).wrapping_add(1);
    }
}

fn sleep(count: Option<u64>) -> Result<(), Fault> {
    std::thread::sleep(Duration::from_millis(count.unwrap_or(60_000)));
    fine(None)
}

pub(crate) fn grow() -> ! {
    let mut kept = Vec::new();
    loop {
        kept.push(black_box(vec![1_u8; 1 << 20]));
    }
}

/// An abort is the instruction `unreachable`.
pub(crate) fn trap() -> ! {
    std::process::abort()
}

fn recurse() -> Result<(), Fault> {
    fn deeper(depth: u64) -> u64 {
        // Never true, which the compiler cannot know.
        if black_box(depth) == u64::MAX {
            return 0;
        }
        let frame = black_box([depth; 16]);
        black_box(deeper(depth + 1)) + black_box(frame)[7]
    }
    Err(Fault::Internal(format!("came back from {}", deeper(0))))
}

/// An honest stream without an end in sight: 1 GiB where nothing is said.
fn many_rows(count: Option<u64>) -> Result<(), Fault> {
    const ROWS_IN_A_PIECE: usize = 64;
    let count = or(count, 1_000_000);
    // Every row has 1,074 bytes and a line break: only the digits of its id change.
    let row = format!(
        "{{\"id\":{:010},\"text\":\"{}\"}}\n",
        1_000_000_000_u64,
        "x".repeat(1_047)
    );
    let mut piece = row.repeat(ROWS_IN_A_PIECE).into_bytes();
    for first in (0..count).step_by(ROWS_IN_A_PIECE) {
        let rows = ROWS_IN_A_PIECE.min(count - first);
        for index in 0..rows {
            let id = format!("{:010}", 1_000_000_000 + first + index);
            let at = index * row.len() + "{\"id\":".len();
            piece[at..at + id.len()].copy_from_slice(id.as_bytes());
        }
        if reply::rows(&piece[..rows * row.len()]) == Demand::Enough {
            break;
        }
    }
    Ok(())
}

fn flood_rows() -> ! {
    let rows = lines(0..8_192);
    loop {
        reply::rows(rows.as_bytes());
    }
}

fn flood_one_row(count: Option<u64>) -> Result<(), Fault> {
    let mut row = vec![b'x'; or(count, 100_000_000).max(3)];
    row[0] = b'"';
    let end = row.len() - 2;
    row[end..].copy_from_slice(b"\"\n");
    reply::rows(&row);
    Ok(())
}

fn flood_document(count: Option<u64>) -> Result<(), Fault> {
    reply::document(&vec![b'x'; or(count, 200_000_000)]);
    Ok(())
}

fn flood_attachments() -> ! {
    let image = reply::Attachment::Image(reply::Blob {
        media_type: "image/png".to_owned(),
        data: vec![7; 1_000_000],
    });
    loop {
        reply::attach(&image);
    }
}

fn flood_small_attachments() -> ! {
    let image = reply::Attachment::Image(reply::Blob {
        media_type: String::new(),
        data: Vec::new(),
    });
    loop {
        reply::attach(&image);
    }
}

fn attach_huge(count: Option<u64>) -> Result<(), Fault> {
    reply::attach(&reply::Attachment::Image(reply::Blob {
        media_type: "image/png".to_owned(),
        data: vec![7; or(count, 100_000_000)],
    }));
    Ok(())
}

fn attach_images(count: Option<u64>) -> Result<(), Fault> {
    let image = reply::Attachment::Image(reply::Blob {
        media_type: "image/png".to_owned(),
        data: vec![7; 5_000],
    });
    for _ in 0..or(count, 30) {
        reply::attach(&image);
    }
    fine(None)
}

fn attach_blob(count: Option<u64>) -> Result<(), Fault> {
    reply::attach(&reply::Attachment::Resource(reply::Embedded {
        uri: "plimsoll-test://blob".to_owned(),
        media_type: "application/octet-stream".to_owned(),
        data: vec![7; or(count, 5_000)],
    }));
    fine(None)
}

/// Text of so many bytes.
fn long(count: Option<u64>, default: usize) -> String {
    "x".repeat(or(count, default))
}

fn log_huge(count: Option<u64>) -> Result<(), Fault> {
    log::write(log::Level::Info, &long(count, 100_000_000));
    fine(None)
}

fn config_huge(count: Option<u64>) -> Result<(), Fault> {
    match store::get(&long(count, 40_000_000)) {
        Ok(None) => fine(None),
        other => Err(Fault::Internal(format!(
            "expected no value, found {other:?}"
        ))),
    }
}

fn progress_huge(count: Option<u64>) -> Result<(), Fault> {
    reply::progress(1, None, Some(&long(count, 100_000_000)));
    fine(None)
}

fn million_keys(count: Option<u64>) -> Result<(), Fault> {
    let members: Vec<String> = (0..or(count, 1_000_000))
        .map(|n| format!("\"key_{n}\":{n}"))
        .collect();
    reply::document(format!("{{{}}}", members.join(",")).as_bytes());
    Ok(())
}

fn many_small_rows(count: Option<u64>) -> Result<(), Fault> {
    let mut document = "1,".repeat(or(count, 10_000_000).max(1)).into_bytes();
    document.insert(0, b'[');
    let end = document.len() - 1;
    document[end] = b']';
    reply::document(&document);
    Ok(())
}

fn deep(count: Option<u64>) -> Result<(), Fault> {
    let levels = or(count, 100_000);
    reply::document([vec![b'['; levels], vec![b']'; levels]].concat().as_slice());
    Ok(())
}

fn long_number(count: Option<u64>) -> Result<(), Fault> {
    reply::document(format!("[{}]", "9".repeat(or(count, 1_000_000))).as_bytes());
    Ok(())
}

fn flood_log() -> ! {
    let line = "log ".repeat(25_000);
    loop {
        log::write(log::Level::Info, &line);
    }
}

#[expect(clippy::print_stdout, reason = "that is the misdeed")]
fn flood_stdout() -> ! {
    loop {
        println!("a line that nobody asked for");
    }
}

fn flood_progress() -> ! {
    let mut done = 0;
    loop {
        done += 1;
        reply::progress(done, None, Some("still going"));
    }
}

fn progress_back(_: Option<u64>) -> Result<(), Fault> {
    for done in [5, 3, 5] {
        reply::progress(done, Some(4), None);
    }
    fine(None)
}

fn slow_rest(count: Option<u64>) -> Result<(), Fault> {
    let count = or(count, 60);
    reply::total(count as u64);
    if reply::rows(lines(0..30).as_bytes()) == Demand::More {
        std::thread::sleep(Duration::from_secs(60));
        reply::rows(lines(30..count).as_bytes());
    }
    Ok(())
}

fn fault_after_rows(_: Option<u64>) -> Result<(), Fault> {
    reply::rows(lines(0..100).as_bytes());
    Err(Fault::Unavailable(
        "the backend went away after 100 rows".to_owned(),
    ))
}

fn document_twice(_: Option<u64>) -> Result<(), Fault> {
    reply::document(b"[1]");
    reply::document(b"[2]");
    Ok(())
}

fn document_and_rows(_: Option<u64>) -> Result<(), Fault> {
    reply::document(b"[1]");
    reply::rows(b"2\n");
    Ok(())
}

fn look_around(_: Option<u64>) -> Result<(), Fault> {
    let list = |folder: &str| match std::fs::read_dir(folder) {
        Ok(entries) => entries
            .map(|entry| {
                entry.map_or_else(
                    |error| error.to_string(),
                    |entry| entry.path().display().to_string(),
                )
            })
            .collect(),
        Err(error) => vec![format!("{folder}: {error}")],
    };
    let seen = serde_json::json!({
        "environment": std::env::vars().map(|(name, _)| name).collect::<Vec<_>>(),
        "arguments": std::env::args().collect::<Vec<_>>(),
        "root": list("/"),
        "parent": list(".."),
        "password_file": std::fs::read_to_string("/etc/passwd").is_ok(),
        "written": std::fs::write("/data/written", "by a guest").is_ok(),
    });
    reply::document(seen.to_string().as_bytes());
    Ok(())
}
