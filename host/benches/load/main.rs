//! The host as a whole against other servers, and the table of targets: `make bench`.
//!
//! Starts the host, a native rmcp server, a bare axum server and FastMCP, each with the same two tools, and loads them in
//! turn. What is compared is always of one run, and everything is a median over rounds. Prints the table as Markdown, and
//! puts it into the README.

#![expect(clippy::print_stdout, reason = "this is a table for people")]

mod client;
mod inside;
mod peers;
mod server;
#[path = "../subjects/mod.rs"]
mod subjects;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use client::{Load, Request};
use server::Server;
use subjects::guest::root;
use subjects::rows::{self, Kind, LOAD_ROWS};
use table::{Bound, Row, micros, millis};

/// How often each server is loaded with each tool; medians are over these.
const ROUNDS: usize = 5;

/// How long each time, at least: the processor time of a process is counted in ticks of 10 ms.
const LOAD_TIME: Duration = Duration::from_millis(1_200);

const CONCURRENCIES: [usize; 2] = [1, 16];

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, folder] = arguments.as_slice()
        && role != "--bench"
    {
        return peers::serve(role, folder.as_ref());
    }
    let folder = root().join("target/bench");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("small.json"), rows::small())?;
    std::fs::write(
        folder.join("rows.json"),
        rows::document_of(Kind::Narrow, LOAD_ROWS),
    )?;
    // One thread: the client is not to take more of the machine than it must.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut rows = inside::rows();
    rows.extend(runtime.block_on(loads(&folder))?);
    rows.extend(runtime.block_on(whole(&folder))?);
    let table = table::markdown(&rows);
    println!("{table}");
    table::into_readme(&root().join("README.md"), &table)
}

/// Every server under the same load.
async fn loads(folder: &std::path::Path) -> anyhow::Result<Vec<Row>> {
    let mut servers = vec![
        Server::host(folder, "load", &server::bench_rows())?,
        Server::peer("rmcp", folder)?,
        Server::peer("axum", folder)?,
        Server::fastmcp(folder)?,
    ];
    let mut rows = Vec::new();
    for (tool, name) in [("small", "small call"), ("rows", "1 MiB, 5,000 rows")] {
        let request = Request::call(tool);
        for server in &mut servers {
            server.until_ready(&request).await?;
            server.reset_peak()?;
        }
        for concurrency in CONCURRENCIES {
            let mut loads: Vec<Vec<Load>> = servers.iter().map(|_| Vec::new()).collect();
            for round in 0..ROUNDS {
                for turn in 0..servers.len() {
                    // Another one begins each round: none of them always comes after the slowest.
                    let index = (turn + round) % servers.len();
                    let load = client::load(&servers[index], &request, concurrency, LOAD_TIME);
                    loads[index].push(load.await.with_context(|| servers[index].name.clone())?);
                }
            }
            let cpu: Vec<f64> = loads.iter().map(|loads| median(loads, |l| l.cpu)).collect();
            let rate: Vec<f64> = loads
                .iter()
                .map(|loads| median(loads, |l| l.rate))
                .collect();
            let what = format!("{name}, concurrency {concurrency}");
            let (at_most, at_least) = match (tool, concurrency) {
                ("small", 16) => (Bound::AtMost(1.4), Bound::AtLeast(20.0)),
                ("rows", 16) => (Bound::AtMost(0.5), Bound::AtLeast(50.0)),
                _ => (Bound::None, Bound::None),
            };
            let per_call = format!("{what}: server CPU a call");
            rows.push(Row::compared(
                &per_call,
                micros(cpu[0]),
                at_most,
                "rmcp",
                &micros(cpu[1]),
                cpu[0] / cpu[1],
            ));
            rows.push(Row::compared(
                &per_call,
                micros(cpu[0]),
                Bound::None,
                "axum",
                &micros(cpu[2]),
                cpu[0] / cpu[2],
            ));
            rows.push(Row::compared(
                &per_call,
                micros(cpu[0]),
                Bound::None,
                "FastMCP",
                &micros(cpu[3]),
                cpu[0] / cpu[3],
            ));
            let calls = |rate: f64| format!("{rate:.0}/s");
            let throughput = format!("{what}: throughput");
            rows.push(Row::compared(
                &throughput,
                calls(rate[0]),
                at_least,
                "FastMCP",
                &calls(rate[3]),
                rate[0] / rate[3],
            ));
            rows.push(Row::compared(
                &throughput,
                calls(rate[0]),
                Bound::None,
                "rmcp",
                &calls(rate[1]),
                rate[0] / rate[1],
            ));
        }
        let peak = |server: &Server| server.memory("VmHWM:");
        let ours = peak(&servers[0])?;
        for other in &servers[1..] {
            let theirs = peak(other)?;
            let what = format!("{name}: peak RSS under this load");
            rows.push(Row::compared(
                &what,
                table::mib(ours),
                Bound::None,
                &other.name,
                &table::mib(theirs),
                ours / theirs,
            ));
        }
    }
    Ok(rows)
}

/// Memory, start and later pages of a host in a process of its own.
async fn whole(folder: &std::path::Path) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    Server::warm_cache(folder, "idle", &server::three_rust_plugins()).await?;
    let idle = Server::host(folder, "idle", &server::three_rust_plugins())?;
    idle.until_ready(&Request::listing()).await?;
    let resident = idle.memory("VmRSS:")?;
    rows.push(Row::alone(
        "idle RSS with three Rust plugins",
        table::mib(resident),
        Bound::AtMost(30.0),
        resident / table::MIB,
        "MiB",
    ));
    drop(idle);

    let many = |rows: u64| Request::call_with("many", &serde_json::json!({"rows": rows}));
    for (rows_in, name) in [(5_000, "1 MiB"), (250_000, "50 MiB")] {
        let mut beyond = Vec::new();
        for _ in 0..ROUNDS {
            // A new host each time: what an earlier call left in its allocator and its pool would hide what this one takes.
            let host = Server::host(folder, "memory", &server::bench_rows())?;
            host.until_ready(&many(100)).await?;
            let before = host.reset_peak()?;
            client::once(&host, &many(rows_in)).await?;
            beyond.push(host.memory("VmHWM:")? - before);
        }
        let beyond = median(&beyond, |bytes| *bytes);
        rows.push(Row::alone(
            &format!("memory of a call of {name} of pushed rows, its guest's among it"),
            table::mib(beyond),
            Bound::AtMost(2.0),
            beyond / table::MIB,
            "MiB",
        ));
    }

    let host = Server::host(folder, "pages", &server::bench_rows())?;
    host.until_ready(&many(1_000)).await?;
    let answer = serde_json::json!({"rows": 26_000});
    let (early, late) = client::pages(&host, "many", &answer, 1_000, 200).await?;
    let early = median(&early, |seconds| *seconds);
    let late = median(&late, |seconds| *seconds);
    rows.push(Row::compared(
        "page 1,000 of a kept answer",
        micros(late),
        Bound::AtMost(1.25),
        "page 2",
        &micros(early),
        late / early,
    ));
    drop(host);

    Server::warm_cache(folder, "start", &server::script_plugins()).await?;
    let mut starts = Vec::new();
    for _ in 0..ROUNDS {
        let began = std::time::Instant::now();
        let host = Server::host(folder, "start", &server::script_plugins())?;
        host.until_ready(&Request::listing()).await?;
        starts.push(began.elapsed().as_secs_f64());
    }
    let start = median(&starts, |seconds| *seconds);
    rows.push(Row::alone(
        "start to the first `tools/list`, a JavaScript and a Python plugin, warm cache",
        millis(start),
        Bound::AtMost(150.0),
        start * 1e3,
        "ms",
    ));
    Ok(rows)
}

/// The middle one of some numbers.
pub(crate) fn median<T>(of: &[T], number: impl Fn(&T) -> f64) -> f64 {
    let mut numbers: Vec<f64> = of.iter().map(number).collect();
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// The folder of one host.
pub(crate) fn state(folder: &std::path::Path, name: &str) -> PathBuf {
    folder.join("hosts").join(name)
}
