//! Other MCP servers behind the host, through `plugins/mcp`: the reference servers, another Plimsoll, and one that misbehaves.
//! `tests/install backends-mcp` puts the servers into `target/backends-mcp`.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use axum::routing::any;
use plimsoll::call::Caller;
use plimsoll::contract::Attachment;
use plimsoll::shape::{Code, Reply};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use crate::support::{self, TestHost, component, fleet, json as parse, root};

/// How long something that is about to happen may take: many times what it takes on a machine that does nothing else.
const PATIENCE: Duration = Duration::from_secs(60);

/// The ways to speak to another Plimsoll, as the config value `protocol` has them; in the handshake eras it keeps sessions.
const PROTOCOLS: [&str; 3] = ["auto", "2026-07-28", "session"];

/// The entry of the plugin for a server. `more` are further lines of it, and then of its tables.
fn entry(url: &str, protocol: &str, config: &str, more: &str) -> String {
    let origin = url.split('/').take(3).collect::<Vec<_>>().join("/");
    format!(
        "[plugins.up]\ncomponent = {:?}\nprivate_hosts = [{origin:?}]\nconfig = {{ url = {url:?}, protocol = {protocol:?}{config} }}\n{more}\n",
        component("plugins/mcp.wasm")
    )
}

/// A file that `make backends-mcp` puts there. A missing one fails the test: it is never skipped.
fn installed(name: &str) -> PathBuf {
    let folder = root().join("target/backends-mcp");
    let file = folder.join(name);
    assert!(
        folder.join("stamp").is_file() && file.exists(),
        "`{}` is missing: run `make backends-mcp`",
        file.display()
    );
    file
}

/// A server in a process of its own, which has a group of its own: it ends with all that it has started.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    /// Starts a script of `node_modules` on a free port, and waits until it says that it listens.
    fn start(script: &str, arguments: impl FnOnce(u16) -> Vec<String>) -> Self {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let node = installed("node");
        let folder = std::fs::canonicalize(&node)
            .unwrap()
            .parent()
            .unwrap()
            .to_owned();
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        let mut child = Command::new(node)
            .arg(installed("node_modules").join(script))
            .args(arguments(port))
            .env("PORT", port.to_string())
            .env("PATH", path)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let (sender, said) = std::sync::mpsc::channel();
        // Whatever else it says must not fill the pipes.
        let drain = |pipe: Box<dyn std::io::Read + Send>| {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                    let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
                }
            });
        };
        drain(Box::new(child.stdout.take().unwrap()));
        drain(Box::new(child.stderr.take().unwrap()));
        let listens = |line: &String| line.to_lowercase().contains("listening on port");
        let found = std::iter::from_fn(|| said.recv_timeout(PATIENCE).ok()).find(listens);
        assert!(found.is_some(), "{script} does not listen");
        Self {
            child,
            url: format!("http://127.0.0.1:{port}/mcp"),
        }
    }

    fn everything() -> Self {
        Self::start(
            "@modelcontextprotocol/server-everything/dist/index.js",
            |_| vec!["streamableHttp".to_owned()],
        )
    }

    /// The server of files over a folder, which speaks over standard input and output, behind a proxy.
    fn filesystem(folder: &Path) -> Self {
        let server =
            installed("node_modules/@modelcontextprotocol/server-filesystem/dist/index.js");
        let stdio = format!("node {} {}", server.display(), folder.display());
        Self::start("supergateway/dist/index.js", |port| {
            let port = port.to_string();
            [
                "--stdio",
                &stdio,
                "--outputTransport",
                "streamableHttp",
                "--logLevel",
                "info",
                "--port",
                &port,
            ]
            .map(str::to_owned)
            .into()
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.child.wait();
    }
}

fn body(reply: &Reply) -> &str {
    assert_eq!(reply.refusal(), None, "{}", reply.body());
    reply.body()
}

fn refused(reply: &Reply, code: Code) -> Value {
    assert_eq!(reply.refusal(), Some(code), "{}", reply.body());
    parse(reply.body())
}

fn names(host: &TestHost) -> Vec<String> {
    let catalog = host.host().catalog(&Caller::default());
    catalog.tools().map(|tool| tool.name().to_owned()).collect()
}

fn listed(host: &TestHost, name: &str) -> Value {
    host.host()
        .tool(&Caller::default(), name)
        .unwrap()
        .listed
        .clone()
}

/// Calls a tool, and what was told of its progress.
async fn call_with_progress(
    host: &TestHost,
    tool: &str,
    arguments: Value,
) -> (Reply, Vec<(u64, Option<u64>)>) {
    let (sender, mut told) = mpsc::channel(64);
    let tool = host.host().tool(&Caller::default(), tool).unwrap();
    let reply = host
        .host()
        .call(
            &Caller::default(),
            &tool,
            support::object(arguments),
            Some(sender),
        )
        .await;
    let mut found = Vec::new();
    while let Ok(progress) = told.try_recv() {
        found.push((progress.done, progress.total));
    }
    (reply, found)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reference_server_is_listed_and_called_through_a_session() {
    let server = Server::everything();
    for protocol in ["auto", "session"] {
        let host = TestHost::start(&entry(
            &server.url,
            protocol,
            ", tools = \"!get-env\", prefix = \"any_\"",
            "",
        ))
        .await;
        let names = names(&host);
        assert!(
            names.contains(&"any_echo".to_owned()) && !names.contains(&"any_get-env".to_owned()),
            "{names:?}"
        );
        let echo = listed(&host, "any_echo");
        assert_eq!(
            (&echo["title"], &echo["annotations"]["readOnlyHint"]),
            (&json!("Echo Tool"), &json!(true))
        );
        assert_eq!(echo["inputSchema"]["required"], json!(["message"]));

        let reply = host.call("any_echo", json!({"message": "ahoy"})).await;
        assert_eq!(body(&reply), "Echo: ahoy");

        // Structured content and its text are one answer, and the schema of it is published.
        let typed = listed(&host, "any_get-structured-content");
        assert_eq!(
            typed["outputSchema"]["properties"]["body"]["properties"]["humidity"]["type"],
            "number"
        );
        let reply = host
            .call(
                "any_get-structured-content",
                json!({"location": "New York"}),
            )
            .await;
        assert_eq!(
            body(&reply),
            r#"{"temperature":33,"conditions":"Cloudy","humidity":82}"#
        );
        assert!(reply.attachments().is_empty());

        // An image passes whole: what comes is a PNG to its last chunk.
        let reply = host
            .call(
                "any_get-annotated-message",
                json!({"messageType": "error", "includeImage": true}),
            )
            .await;
        assert_eq!(body(&reply), "Error: Operation failed");
        let [Attachment::Image(image)] = reply.attachments() else {
            panic!("expected an image: {:?}", reply.attachments().len())
        };
        assert_eq!(image.media_type, "image/png");
        assert!(image.data.starts_with(b"\x89PNG") && image.data.ends_with(b"IEND\xaeB`\x82"));

        // Links stay beside the text that they belong to, each with its name and type.
        let reply = host
            .call("any_get-resource-links", json!({"count": 2}))
            .await;
        assert_eq!(
            body(&reply),
            "Here are 2 resource links to resources available in this server:"
        );
        let Attachment::Resource(link) = &reply.attachments()[1] else {
            panic!("expected a resource")
        };
        assert_eq!(
            (link.uri.as_str(), link.media_type.as_str()),
            ("demo://resource/dynamic/text/2", "application/json")
        );
        assert_eq!(
            parse(std::str::from_utf8(&link.data).unwrap())["name"],
            "Text Resource 2"
        );

        let (reply, progress) = call_with_progress(
            &host,
            "any_trigger-long-running-operation",
            json!({"duration": 0.3, "steps": 3}),
        )
        .await;
        assert_eq!(
            body(&reply),
            "Long running operation completed. Duration: 0.3 seconds, Steps: 3."
        );
        assert_eq!(progress, [(1, Some(3)), (2, Some(3)), (3, Some(3))]);

        // What the server itself refuses, in its words.
        let reply = host
            .call(
                "any_get-resource-reference",
                json!({"resourceType": "Text", "resourceId": -1}),
            )
            .await;
        let refusal = refused(&reply, Code::Internal);
        assert!(
            refusal["message"].as_str().unwrap().contains("resourceId"),
            "{refusal}"
        );
    }
    // Without a session this server does not begin, and the start says so.
    let folder = tempfile::tempdir().unwrap();
    let entry = entry(&server.url, "stateless", "", "");
    let error = TestHost::start_in(folder, &entry).await.err().unwrap();
    assert!(
        format!("{error:#}").ends_with(
            "the MCP server answers tools/list with HTTP 400: error -32000: Bad Request: Server not initialized"
        ),
        "{error:#}"
    );
}

/// A folder with 20,000 files, a text of 10 MB in lines, one without lines, rows of 10 MB, and an image of 10 MB.
fn folder_of_files() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    let many = path.join("many");
    std::fs::create_dir(&many).unwrap();
    for index in 0..20_000 {
        std::fs::write(many.join(format!("{index:05}.txt")), "").unwrap();
    }
    let lines: String = (0..100_000)
        .map(|index| format!("{index:06} {}\n", "é\"".repeat(31)))
        .collect();
    assert!(lines.len() > 10_000_000);
    std::fs::write(path.join("lines.txt"), lines).unwrap();
    std::fs::write(path.join("line.txt"), "x".repeat(10_000_000)).unwrap();
    let rows: Vec<String> = (0..50_000)
        .map(|index| {
            format!(
                "{{\"id\": {index}, \"n\": 1.{index}0, \"text\": \"{}\"}}",
                "y".repeat(170)
            )
        })
        .collect();
    std::fs::write(path.join("rows.json"), format!("[{}]", rows.join(",\n"))).unwrap();
    std::fs::write(path.join("image.png"), vec![0; 10_000_000]).unwrap();
    std::fs::write(path.join("small.png"), vec![7; 1_000]).unwrap();
    (folder, path)
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_thousand_files_and_ten_megabytes_are_paged_or_refused_and_never_cut() {
    let (_folder, path) = folder_of_files();
    let server = Server::filesystem(&path);
    let host = TestHost::start(&entry(&server.url, "auto", "", "")).await;
    let place = |name: &str| path.join(name).to_str().unwrap().to_owned();

    // A directory is lines, which the host pages; page after page they are the directory.
    let mut arguments = json!({"path": place("many"), "limit": 100});
    let mut found = Vec::new();
    loop {
        let reply = host.call("list_directory", arguments.clone()).await;
        let facts = parse(reply.facts());
        let page = body(&reply);
        assert_eq!(
            (&facts["total_count"], &facts["returned"]),
            (&json!(20_000), &json!(100)),
            "{facts}"
        );
        found.extend(page.lines().map(str::to_owned));
        let Some(after) = facts["next_after"].as_str() else {
            break;
        };
        arguments["after"] = after.into();
    }
    found.sort();
    let expected: Vec<String> = (0..20_000)
        .map(|index| format!("[FILE] {index:05}.txt"))
        .collect();
    assert_eq!(found, expected);

    // A text of 10 MB is lines as well.
    let reply = host
        .call(
            "read_text_file",
            json!({"path": place("lines.txt"), "limit": 3}),
        )
        .await;
    let facts = parse(reply.facts());
    assert_eq!(
        (&facts["total_count"], &facts["returned"]),
        (&json!(100_000), &json!(3)),
        "{facts}"
    );
    let text = std::fs::read_to_string(path.join("lines.txt")).unwrap();
    let expected: Vec<&str> = text.lines().take(3).collect();
    assert_eq!(body(&reply).lines().collect::<Vec<_>>(), expected);

    // A budget is met with whole lines, and the facts say how many it left out.
    let arguments = json!({"path": place("lines.txt"), "limit": 100, "max_tokens": 2_000});
    let reply = host.call("read_text_file", arguments).await;
    let facts = parse(reply.facts());
    let found: Vec<&str> = body(&reply).lines().collect();
    assert!(facts["approx_tokens"].as_u64().unwrap() <= 2_000, "{facts}");
    assert_eq!(facts["budget_rows_dropped"], 100 - found.len(), "{facts}");
    assert!(!found.is_empty() && found.len() < 100, "{facts}");
    assert_eq!(found, text.lines().take(found.len()).collect::<Vec<_>>());

    // Text that is JSON has rows, which go out with the bytes that are in the file.
    let reply = host
        .call(
            "read_text_file",
            json!({"path": place("rows.json"), "limit": 2}),
        )
        .await;
    assert_eq!(parse(reply.facts())["total_count"], 50_000);
    let y = "y".repeat(170);
    assert_eq!(
        body(&reply),
        format!(
            "[\n{{\"id\": 0, \"n\": 1.00, \"text\": \"{y}\"}},\n{{\"id\": 1, \"n\": 1.10, \"text\": \"{y}\"}}\n]"
        )
    );

    // A text without lines has nothing to page by. It is refused whole, and the refusal names what makes it smaller.
    let reply = host
        .call("read_text_file", json!({"path": place("line.txt")}))
        .await;
    let refusal = refused(&reply, Code::ResponseTooLarge);
    assert!(
        refusal["payload"]["bytes"].as_u64().unwrap() > 10_000_000,
        "{refusal}"
    );
    let fields: Vec<&str> = refusal["fields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|field| field["name"].as_str().unwrap())
        .collect();
    assert!(
        fields.contains(&"head") && fields.contains(&"tail"),
        "{fields:?}"
    );
    assert!(reply.body().len() < 8_000);

    // An image of 10 MB is replaced by a line, and a small one is whole.
    let reply = host
        .call("read_media_file", json!({"path": place("image.png")}))
        .await;
    assert_eq!(
        body(&reply),
        "The image (image/png, 10000000 bytes) is left out: the attachments of one answer may have 131072 bytes as they are \
         sent. The operator can raise `attachment_bytes`."
    );
    let reply = host
        .call("read_media_file", json!({"path": place("small.png")}))
        .await;
    let [Attachment::Image(image)] = reply.attachments() else {
        panic!("expected an image")
    };
    assert_eq!((body(&reply), &image.data), ("", &vec![7; 1_000]));

    // A path that is not allowed is the server's to refuse.
    let reply = host.call("list_directory", json!({"path": "/etc"})).await;
    let refusal = refused(&reply, Code::Internal);
    assert!(
        refusal["message"]
            .as_str()
            .unwrap()
            .starts_with("Access denied - path outside allowed directories"),
        "{refusal}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_either_era_reads_a_folder_through_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    for index in 0..60 {
        std::fs::write(path.join(format!("{index:02}.txt")), "").unwrap();
    }
    std::fs::write(path.join("large.txt"), "x".repeat(300_000)).unwrap();
    std::fs::write(path.join("small.png"), [7; 10]).unwrap();
    let server = Server::filesystem(&path);
    let place = |name: &str| path.join(name).to_str().unwrap().to_owned();
    let calls = json!([
        ["list_directory", {"path": place("")}],
        ["read_text_file", {"path": place("large.txt")}],
        ["read_media_file", {"path": place("small.png")}],
        ["read_text_file", {"path": "/etc/passwd"}],
    ])
    .to_string();
    for (mode, protocol) in [("auto", "2026-07-28"), ("legacy", "stateless")] {
        let tools = ", tools = \"list_directory, read_*\"";
        let home = crate::doors::folder(&entry(&server.url, protocol, tools, ""));
        let python = root().join("target/clients/venv/bin/python");
        assert!(
            python.exists(),
            "`{}` is missing: run `make clients`",
            python.display()
        );
        let mut command = assert_cmd::Command::new(python);
        command
            .arg(root().join("tests/backends-mcp/calls.py"))
            .args([
                mode,
                &calls,
                env!("CARGO_BIN_EXE_plimsoll"),
                "serve",
                "--stdio",
            ])
            .current_dir(home.path())
            .env("HOME", home.path())
            .env("PLIMSOLL_LOG", "warn")
            .timeout(PATIENCE * 4);
        let output = tokio::task::block_in_place(|| command.output()).unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let found = parse(std::str::from_utf8(&output.stdout).unwrap());
        assert_eq!(
            found["tools"],
            json!([
                "read_file",
                "read_text_file",
                "read_media_file",
                "read_multiple_files",
                "list_directory"
            ])
        );
        let answers = found["answers"].as_array().unwrap();
        let text = |answer: usize, block: usize| {
            answers[answer]["blocks"][block]["text"].as_str().unwrap()
        };
        let facts = parse(text(0, 0));
        assert_eq!(
            (&facts["total_count"], &facts["returned"]),
            (&json!(62), &json!(25)),
            "{facts}"
        );
        assert_eq!(text(0, 1).lines().count(), 25);
        assert_eq!(answers[1]["is_error"], true);
        assert_eq!(parse(text(1, 0))["error"], "response_too_large");
        assert_eq!(
            answers[2]["blocks"][1],
            json!({"type": "image", "data": "BwcHBwcHBwcHBw==", "mimeType": "image/png"})
        );
        assert_eq!(answers[3]["is_error"], true);
        assert!(
            parse(text(3, 0))["message"]
                .as_str()
                .unwrap()
                .starts_with("Access denied"),
            "{}",
            text(3, 0)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_plimsoll_is_called_in_every_era_and_keeps_its_pages() {
    let conformance = format!(
        "[plugins.conformance]\ncomponent = {:?}\n",
        component("guests/conformance.wasm")
    );
    // So little fits into a page of its listing that there are several.
    let inner = TestHost::start(&(fleet() + &conformance + "[limits]\ncap_bytes = 12000\n")).await;
    let catalog = inner.host().catalog(&Caller::default());
    assert!(catalog.listing().page(None).unwrap().next.is_some());
    let served = inner.serve().await;
    let url = format!("{}/mcp", served.url);
    for protocol in PROTOCOLS {
        let outer = TestHost::start(&entry(&url, protocol, "", "")).await;
        let inner_names = names(&inner);
        assert_eq!(
            names(&outer),
            inner_names,
            "{protocol}: every page of the listing was followed"
        );
        let schema =
            |host: &TestHost| listed(host, "wave_show")["inputSchema"]["properties"].clone();
        assert_eq!(schema(&outer)["wave"], schema(&inner)["wave"]);
        assert_eq!(
            schema(&outer)["limit"],
            schema(&inner)["limit"],
            "its own limit stays its own"
        );

        // Its pages are its own: the host shapes what comes, and hands on the way to the next page.
        let arguments = json!({"limit": 2, "fields": ["id", "title"]});
        let direct = inner.call("fleet_show", arguments.clone()).await;
        let reply = outer.call("fleet_show", arguments).await;
        assert_eq!(parse(body(&reply)), parse(body(&direct)), "{protocol}");
        let Attachment::Resource(facts) = &reply.attachments()[0] else {
            panic!("expected the facts")
        };
        let facts = parse(std::str::from_utf8(&facts.data).unwrap());
        assert_eq!(facts["total_count"], 68);
        let own = parse(reply.facts());
        assert_eq!(
            (&own["total_count"], &own["returned"], &own["next_after"]),
            (&json!(facts["matched_count"]), &json!(2), &Value::Null),
            "the rows that the server has still are counted, and only the server leads to them"
        );
        let next = outer.call("fleet_show", facts["next"].clone()).await;
        let expected = inner.call("fleet_show", facts["next"].clone()).await;
        assert_eq!(parse(body(&next)), parse(body(&expected)));
        assert_ne!(body(&next), body(&reply));

        // What is one piece stays one, with the bytes that it has.
        let arguments = json!({"stream": "ws-012"});
        let direct = inner.call("stream_detail", arguments.clone()).await;
        let reply = outer.call("stream_detail", arguments).await;
        assert_eq!(body(&reply), body(&direct));

        // Its refusals stay refusals, of their kind and in its words.
        let refusal = refused(
            &outer
                .call("stream_detail", json!({"stream": "ws-999"}))
                .await,
            Code::NotFound,
        );
        assert!(
            refusal["message"].as_str().unwrap().contains("ws-999"),
            "{refusal}"
        );
        let refusal = refused(
            &outer.call("test_error_handling", json!({})).await,
            Code::Internal,
        );
        assert!(
            refusal["message"]
                .as_str()
                .unwrap()
                .contains("This tool intentionally returns an error"),
            "{refusal}"
        );

        let reply = outer.call("test_image_content", json!({})).await;
        let media = reply
            .attachments()
            .iter()
            .find_map(|attachment| match attachment {
                Attachment::Image(blob) => Some(&blob.data),
                _ => None,
            });
        let image =
            std::fs::read(root().join("tests/guests/conformance/src/media/red.png")).unwrap();
        assert_eq!(media, Some(&image), "{protocol}");
        // An argument that has to travel in a header too does so, where the era has such.
        let reply = outer
            .call("test_custom_header", json!({"region": "nørd"}))
            .await;
        assert_eq!(body(&reply), r#"{"region":"nørd"}"#, "{protocol}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_is_a_timeout_and_its_connection_is_closed() {
    let inner = TestHost::start(&support::hostile(
        "fuel = 1_000_000_000_000_000\ndeadline_ms = 60_000",
    ))
    .await;
    let served = inner.serve().await;
    let outer = entry(
        &format!("{}/mcp", served.url),
        "2026-07-28",
        ", tools = \"loop\"",
        "limits.deadline_ms = 2_000",
    );
    let outer = TestHost::start(&outer).await;
    let begun = async {
        while inner.host().running() == 0 {
            tokio::task::yield_now().await;
        }
    };
    let call = outer.call("loop", json!({}));
    let (reply, ()) = tokio::join!(call, async {
        tokio::time::timeout(PATIENCE, begun)
            .await
            .expect("the call does not arrive");
    });
    let refusal = refused(&reply, Code::InvokeTimeout);
    assert!(
        refusal["message"]
            .as_str()
            .unwrap()
            .starts_with("The call did not end within 2000 ms"),
        "{refusal}"
    );
    // In the modern era a closed connection is what ends a call, and this server has 58 s left otherwise.
    let ended = async {
        while inner.host().running() > 0 {
            tokio::task::yield_now().await;
        }
    };
    assert!(
        tokio::time::timeout(Duration::from_secs(30), ended)
            .await
            .is_ok(),
        "the call goes on"
    );
}

/// A server of sessions that asks its client before it answers, and remembers what it was sent.
#[derive(Default)]
struct Asking {
    /// What the client said to the question.
    reply: std::sync::Mutex<Option<Value>>,
    answered: Notify,
    methods: std::sync::Mutex<Vec<String>>,
}

async fn asking(
    State(server): State<Arc<Asking>>,
    method: Method,
    headers: HeaderMap,
    bytes: Bytes,
) -> Response {
    let answer = |status: StatusCode, media_type: &str, body: Body| {
        Response::builder()
            .status(status)
            .header("content-type", media_type)
            .header("mcp-session-id", "s-1")
            .body(body)
            .unwrap()
    };
    let json_answer = |result: Value| {
        let text = json!({"jsonrpc": "2.0", "id": 1, "result": result}).to_string();
        answer(StatusCode::OK, "application/json", Body::from(text))
    };
    let request: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let name = request["method"].as_str().unwrap_or(method.as_str());
    server.methods.lock().unwrap().push(name.to_owned());
    let header = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(
        (header("authorization"), header("x-team")),
        ("Bearer t0ken".to_owned(), "ops".to_owned())
    );
    if name != "initialize" {
        assert_eq!(
            (header("mcp-session-id"), header("mcp-protocol-version")),
            ("s-1".to_owned(), "2025-06-18".to_owned())
        );
    }
    match name {
        "initialize" => json_answer(
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "a", "version": "1"}}),
        ),
        "tools/list" => {
            json_answer(json!({"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]}))
        }
        "tools/call" => {
            let (sender, receiver) = mpsc::channel::<Result<String, std::io::Error>>(4);
            tokio::spawn(async move {
                let question = json!({"jsonrpc": "2.0", "id": "q-1", "method": "sampling/createMessage", "params": {}});
                let _ = sender
                    .send(Ok(format!("event: message\ndata: {question}\n\n")))
                    .await;
                server.answered.notified().await;
                let reply = server.reply.lock().unwrap().take().unwrap();
                let result = json!({"content": [{"type": "text", "text": reply.to_string()}]});
                let result = json!({"jsonrpc": "2.0", "id": 1, "result": result});
                let _ = sender
                    .send(Ok(format!("event: message\ndata: {result}\n\n")))
                    .await;
            });
            let pieces = futures::stream::unfold(receiver, |mut receiver| async {
                receiver.recv().await.map(|piece| (piece, receiver))
            });
            answer(
                StatusCode::OK,
                "text/event-stream",
                Body::from_stream(pieces),
            )
        }
        "POST" => {
            *server.reply.lock().unwrap() = Some(request);
            server.answered.notify_one();
            answer(StatusCode::ACCEPTED, "text/plain", Body::empty())
        }
        _ => answer(StatusCode::ACCEPTED, "text/plain", Body::empty()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_its_client_hears_no_and_goes_on() {
    let server = Arc::new(Asking::default());
    let router = axum::Router::new()
        .route("/mcp", any(asking))
        .with_state(server.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "t0ken\n").unwrap();
    let secrets = "secrets = { bearer = { file = \"token\" } }";
    let entry = entry(&url, "session", ", \"header.X-Team\" = \"ops\"", secrets);
    let host = TestHost::start_in(folder, &entry).await.unwrap();
    let reply = host.call("ask", json!({})).await;
    assert_eq!(
        parse(body(&reply)),
        json!({"jsonrpc": "2.0", "id": "q-1", "error":
            {"code": -32601, "message": "sampling/createMessage is not supported: nobody is there to ask"}})
    );
    let methods = server.methods.lock().unwrap().clone();
    let handshake = ["initialize", "notifications/initialized"];
    let expected: Vec<&str> = handshake
        .into_iter()
        .chain(["tools/list", "DELETE"])
        .chain(handshake)
        .chain(["tools/call", "POST", "DELETE"])
        .collect();
    assert_eq!(methods, expected, "no request more than the session takes");
    serving.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_be_reached_is_unavailable_and_says_what_to_do() {
    // A host that served a listing once, and then is gone.
    let inner = TestHost::start(&fleet()).await;
    let served = inner.serve().await;
    let url = format!("{}/mcp", served.url);
    let outer = TestHost::start(&entry(&url, "2026-07-28", "", "")).await;
    drop(served);
    let gone = async {
        loop {
            let reply = outer.call("wave_show", json!({"wave": 1})).await;
            if reply.refusal().is_some() {
                return reply;
            }
        }
    };
    let reply = tokio::time::timeout(PATIENCE, gone).await.unwrap();
    let refusal = refused(&reply, Code::Unavailable);
    assert_eq!(refusal["retryable"], true);
    let message = refusal["message"].as_str().unwrap();
    assert!(
        message.starts_with("the MCP server did not answer tools/call: "),
        "{message}"
    );
}

/// The entry that the plugin's README shows is what an operator writes, and serves the server that it names.
#[tokio::test(flavor = "multi_thread")]
async fn the_entry_of_the_readme_serves_the_reference_server() {
    let server = Server::everything();
    let port = server
        .url
        .rsplit(':')
        .next()
        .unwrap()
        .split('/')
        .next()
        .unwrap();
    let readme = std::fs::read_to_string(root().join("plugins/mcp/README.md")).unwrap();
    let (_, rest) = readme.split_once("```toml\n").unwrap();
    let (shown, _) = rest.split_once("```").unwrap();
    let tried = std::fs::read_to_string(root().join("plugins/mcp/everything.toml")).unwrap();
    for config in [shown, &tried] {
        let (_, component_line) = config.split_once("component = \"").unwrap();
        let (written, _) = component_line.split_once('"').unwrap();
        let file = component("plugins/mcp.wasm");
        let config = config
            .replace(written, file.to_str().unwrap())
            .replace("3001", port);
        let host = TestHost::start(&config).await;
        let reply = host
            .call("everything_echo", json!({"message": "ahoy"}))
            .await;
        assert_eq!(body(&reply), "Echo: ahoy");
        assert!(!names(&host).contains(&"everything_get-env".to_owned()));
    }
}

#[test]
fn the_command_of_the_readme_shows_another_server() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert!(
        readme.contains("plugins/mcp/try"),
        "the README names the command"
    );
    let mut command = assert_cmd::Command::new(root().join("plugins/mcp/try"));
    installed("stamp");
    let output = command
        .env("PLIMSOLL", env!("CARGO_BIN_EXE_plimsoll"))
        .env("PLIMSOLL_LOG", "warn")
        .timeout(PATIENCE * 2)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        text.contains("Echo: ahoy") && text.contains("\"humidity\":82"),
        "{text}"
    );
}
