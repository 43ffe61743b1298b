//! `plugins/openapi` against services that others wrote the software of: FastAPI and json-server, run for real; and documents
//! that npm packages ship.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use plimsoll::call::Caller;
use plimsoll::contract::Attachment;
use plimsoll::examples::{self, Case, Difference};
use plimsoll::shape::{Code, Reply};
use serde_json::{Value, json};

use crate::support::{TestHost, component, json as parse, object, root};

/// A service in a process of its own.
struct Backend {
    child: Child,
    /// `http://` and its address.
    url: String,
}

impl Drop for Backend {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Backend {
    /// Starts a program of `tests/backends`, which says its port first; it accepts connections by then.
    fn start(program: &str, arguments: &[&str]) -> Self {
        let installed = root().join("target/backends");
        let mut child = Command::new(installed.join(program))
            .args(arguments)
            .current_dir(&installed)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("`{program}`: {error}: run `tests/install backends`"));
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let url = format!("http://127.0.0.1:{}", line.trim());
        Self { child, url }
    }

    /// The shop: FastAPI, which writes its own document.
    fn shop() -> Self {
        let program = root().join("tests/backends/shop.py");
        Self::start("venv/bin/python", &[program.to_str().unwrap(), "0"])
    }

    /// json-server.
    fn rest() -> Self {
        let program = root().join("tests/backends/rest.cjs");
        Self::start("node", &[program.to_str().unwrap()])
    }

    /// The entry of a plugin that gets the document from the service itself.
    fn entry(&self, values: &str) -> String {
        self.entry_of(
            &format!("document = \"{}/openapi.json\"\n{values}", self.url),
            "",
        )
    }

    fn entry_of(&self, values: &str, more: &str) -> String {
        format!(
            "[plugins.shop]\ncomponent = {:?}\nprivate_hosts = [{:?}]\n{more}\n[plugins.shop.config]\n{values}\n",
            component("plugins/openapi.wasm"),
            self.url
        )
    }
}

/// A plugin over a document in a folder.
pub(crate) fn over(folder: &str, file: &str, values: &str) -> String {
    format!(
        "[plugins.api]\ncomponent = {:?}\nhosts = []\nfiles = [{{ host = {:?}, guest = \"/api\" }}]\n\
         [plugins.api.config]\ndocument = \"/api/{file}\"\n{values}\n",
        component("plugins/openapi.wasm"),
        root().join("target/backends/node_modules").join(folder)
    )
}

async fn load_error(config: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    match TestHost::start_in(folder, config).await {
        Ok(_) => panic!("it was loaded: {config}"),
        Err(error) => format!("{error:#}"),
    }
}

fn listed(host: &TestHost) -> Vec<Value> {
    let catalog = host.host().catalog(&Caller::default());
    catalog.tools().map(|tool| tool.listed.clone()).collect()
}

fn arguments_of(host: &TestHost, name: &str) -> BTreeSet<String> {
    let tool = listed(host)
        .into_iter()
        .find(|tool| tool["name"] == name)
        .unwrap();
    tool["inputSchema"]["properties"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The body of an answer.
fn body(reply: &Reply) -> Value {
    assert_eq!(reply.refusal(), None, "{}", reply.body());
    parse(reply.body())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_of_a_fastapi_service_is_a_tool_and_writes_only_where_granted() {
    let shop = Backend::shop();
    let all = TestHost::start(&shop.entry("writes = \"true\"")).await;
    let tools = listed(&all);
    assert!(tools.len() >= 30, "{}", tools.len());
    let order = tools
        .iter()
        .find(|tool| tool["name"] == "create_order")
        .unwrap();
    let properties = &order["inputSchema"]["properties"];
    assert_eq!(
        order["inputSchema"]["required"],
        json!(["customer", "lines"])
    );
    assert_eq!(
        properties["customer"],
        json!({"type": "string", "description": "Id of the customer."})
    );
    assert_eq!(
        properties["lines"]["items"]["properties"]["quantity"],
        json!({"type": "integer", "exclusiveMinimum": 0.0})
    );
    let category = tools
        .iter()
        .find(|tool| tool["name"] == "create_category")
        .unwrap();
    assert_eq!(
        category["inputSchema"]["properties"]["children"]["items"]["properties"]["children"]["items"],
        json!({"description": "Category is left out here: it contains itself.", "type": "object"})
    );
    let list = tools
        .iter()
        .find(|tool| tool["name"] == "list_orders")
        .unwrap();
    assert_eq!(list["title"], "All orders");
    assert_eq!(list["annotations"]["readOnlyHint"], true);
    assert_eq!(
        list["inputSchema"]["properties"]["limit"],
        json!({"description": "At most this many orders.", "type": "integer", "minimum": 1, "maximum": 10000})
    );
    let reading = TestHost::start(&shop.entry("")).await;
    assert!(
        listed(&reading)
            .iter()
            .all(|tool| tool["annotations"]["readOnlyHint"] == true)
    );
    assert_eq!(
        reading
            .call("delete_order", json!({"number": 1}))
            .await
            .refusal(),
        Some(Code::NotFound)
    );
    let chosen =
        TestHost::start(&shop.entry("tags = \"customers, prices\"\nmethods = \"get\"")).await;
    let chosen: BTreeSet<String> = listed(&chosen)
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        chosen,
        names(&[
            "list_customers",
            "get_customer",
            "list_customer_orders",
            "get_price"
        ])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_orders_are_refused_with_a_next_call_that_then_succeeds() {
    let shop = Backend::shop();
    let host = TestHost::start(&shop.entry("")).await;
    // Its own limit stays its own: the host adds none, and no cursor.
    assert_eq!(
        arguments_of(&host, "list_orders"),
        names(&["status", "limit", "fields", "max_tokens"])
    );
    let reply = host.call("list_orders", json!({})).await;
    assert_eq!(
        reply.refusal(),
        Some(Code::ResponseTooLarge),
        "{}",
        reply.body()
    );
    let refusal = parse(reply.body());
    assert_eq!(
        refusal["payload"]["shape"],
        json!({"kind": "array", "count": 8412})
    );
    assert!(
        refusal["payload"]["bytes"].as_u64().unwrap() > 1_500_000,
        "{refusal}"
    );
    let fields = refusal["fields"].as_array().unwrap();
    let message =
        |name: &str| fields.iter().find(|field| field["name"] == name).unwrap()["message"].clone();
    assert_eq!(message("limit"), "At most this many orders.");
    assert_eq!(message("status"), "Only orders in this state.");
    let next = refusal["next"].clone();
    let limit = next["limit"].as_u64().unwrap();
    assert!(limit > 500, "{refusal}");
    let reply = host.call("list_orders", next).await;
    assert_eq!(body(&reply).as_array().unwrap().len() as u64, limit);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_without_a_limit_is_paged_by_the_host() {
    let shop = Backend::shop();
    let host = TestHost::start(&shop.entry("")).await;
    let reply = host.call("export_orders", json!({})).await;
    assert_eq!(body(&reply).as_array().unwrap().len(), 25);
    let facts = parse(reply.facts());
    assert_eq!(
        (&facts["total_count"], &facts["returned"]),
        (&json!(8412), &json!(25))
    );
    let second = host.call("export_orders", facts["next"].clone()).await;
    assert_eq!(body(&second)[0]["number"], 25);
    // Ids beyond a double, as they came.
    assert!(
        second.body().contains("\"id\":9007199254741018,"),
        "{}",
        second.body()
    );
    let shipped = host
        .call("export_orders", json!({"status": "shipped", "limit": 2}))
        .await;
    assert_eq!(parse(shipped.facts())["total_count"], 2103);
    // Rows in an object.
    let customers = host.call("list_customers", json!({"limit": 3})).await;
    assert_eq!(body(&customers)["customers"].as_array().unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_pages_under_other_names_is_not_paged_again_and_says_what_comes_next() {
    let shop = Backend::shop();
    let host = TestHost::start(&shop.entry("")).await;
    assert_eq!(
        arguments_of(&host, "page_orders"),
        names(&["page", "per_page", "fields", "max_tokens"])
    );
    let reply = host
        .call("page_orders", json!({"page": 2, "per_page": 100}))
        .await;
    let rows = body(&reply);
    assert_eq!(
        (rows.as_array().unwrap().len(), &rows[0]["number"]),
        (100, &json!(100))
    );
    let next = |reply: &Reply| match reply.attachments() {
        [Attachment::Resource(next)] => {
            Some(parse(std::str::from_utf8(&next.data).unwrap())["next"].clone())
        }
        [] => None,
        other => panic!("{other:?}"),
    };
    assert_eq!(next(&reply), Some(json!({"page": 3, "per_page": 100})));
    let last = host
        .call("page_orders", json!({"page": 43, "per_page": 200}))
        .await;
    assert_eq!(
        (body(&last).as_array().unwrap().len(), next(&last)),
        (12, None)
    );
    // A page of the service's own is not all there is, and how many there are it does not say.
    assert_eq!(parse(last.facts())["total_count"], Value::Null);
    // Over the cap, `next` names its own limit.
    let capped = shop.entry("") + "[plugins.shop.limits]\ncap_bytes = 20000\n";
    let host = TestHost::start(&capped).await;
    let refusal = parse(
        host.call("page_orders", json!({"per_page": 200}))
            .await
            .body(),
    );
    assert_eq!(refusal["payload"]["shape"]["count"], 200);
    let fields: Vec<&str> = refusal["fields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|field| field["name"].as_str().unwrap())
        .collect();
    assert!(
        fields.contains(&"per_page") && fields.contains(&"page"),
        "{fields:?}"
    );
    let smaller = host.call("page_orders", refusal["next"].clone()).await;
    assert!(
        body(&smaller).as_array().unwrap().len() > 10,
        "{}",
        smaller.body()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_reach_the_service_in_path_query_header_and_body() {
    let shop = Backend::shop();
    let host = TestHost::start(&shop.entry("writes = \"true\"")).await;
    let call = async |tool: &str, arguments: Value| body(&host.call(tool, arguments).await);
    assert_eq!(
        call("get_order", json!({"number": 7})).await["customer"],
        "c007"
    );
    assert_eq!(
        call("get_customer", json!({"customer": "a b?c#d%é"})).await["id"],
        "a b?c#d%é"
    );
    assert_eq!(call("get_price", json!({"sku": "a/b"})).await["sku"], "a/b");
    assert_eq!(
        call(
            "search_orders",
            json!({"status": ["open", "packed"], "city_name": "Köln"})
        )
        .await,
        json!({"status": ["open", "packed"], "city": "Köln", "count": 2103})
    );
    assert_eq!(
        call("echo", json!({"text": "a&b=c", "x-trace": "t1"})).await,
        json!({"text": "a&b=c", "trace": "t1"})
    );
    let lines = json!([{"sku": "s", "quantity": 2, "price": 1.5}]);
    assert_eq!(
        call(
            "create_order",
            json!({"customer": "c1", "lines": lines, "ship_to": {"street": "s", "city": "c"}})
        )
        .await["created"],
        json!({"customer": "c1", "lines": lines, "note": null, "ship_to": {"street": "s", "city": "c", "country": "DE"}})
    );
    assert_eq!(
        call(
            "set_address",
            json!({"number": 3, "street": "s", "city": "c"})
        )
        .await["address"]["country"],
        "DE"
    );
    assert_eq!(
        call("change_order", json!({"number": 3, "status": "packed"})).await,
        json!({"number": 3, "status": "packed"})
    );
    assert_eq!(
        call("comment_order", json!({"number": 3, "text": "ü & so"})).await,
        json!({"number": 3, "text": "ü & so", "stars": 3})
    );
    assert_eq!(
        call("set_prices", json!({"body": [{"sku": "a", "cents": 1}]})).await,
        json!({"set": 1})
    );
    assert_eq!(
        call("delete_order", json!({"number": 3})).await,
        json!({"status": 204})
    );
    // What the schema does not let through does not reach the service.
    let wrong = host
        .call("create_order", json!({"customer": "c1", "lines": []}))
        .await;
    assert_eq!(wrong.refusal(), Some(Code::InvalidArguments));
    let above = host.call("get_customer", json!({"customer": ".."})).await;
    assert_eq!(above.refusal(), Some(Code::InvalidInput));
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_pass_as_they_came() {
    let shop = Backend::shop();
    let host = TestHost::start(&shop.entry("")).await;
    let exact = host.call("exact", json!({})).await;
    assert_eq!(
        exact.body(),
        "{ \"big\": 9007199254740993,\n  \"small\": 1.50, \"long\": 1e400 }\n"
    );
    let text = host.call("text", json!({"limit": 2})).await;
    assert_eq!(text.body().trim_end(), "line 0\nline 1");
    assert_eq!(parse(text.facts())["total_count"], 300);
    assert_eq!(
        body(&host.call("nothing", json!({})).await),
        json!({"status": 204})
    );
    let image = host.call("image", json!({})).await;
    assert!(
        matches!(image.attachments(), [Attachment::Image(image)] if image.media_type == "image/png" && image.data.starts_with(b"\x89PNG")),
        "{:?}",
        image.attachments()
    );
    let pdf = host.call("pdf", json!({})).await;
    let [Attachment::Resource(pdf)] = pdf.attachments() else {
        panic!("{:?}", pdf.attachments())
    };
    assert_eq!(
        (
            pdf.uri.as_str(),
            pdf.media_type.as_str(),
            pdf.data.as_slice()
        ),
        (
            format!("{}/formats/pdf", shop.url).as_str(),
            "application/pdf",
            &b"%PDF-1.4\n%\xff\xff\n"[..]
        )
    );
    // A mebibyte of an archive is over the cap, and is refused whole with its size.
    let archive = host.call("archive", json!({})).await;
    assert_eq!(archive.refusal(), Some(Code::ResponseTooLarge));
    assert!(
        archive.body().contains("Its attachments are"),
        "{}",
        archive.body()
    );
    let large = host.call("large", json!({"mebibytes": 65})).await;
    assert_eq!(
        large.refusal(),
        Some(Code::InvalidInput),
        "{}",
        large.body()
    );
    assert!(
        large
            .body()
            .contains("larger than what a plugin may take in"),
        "{}",
        large.body()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_the_service_are_faults_with_status_and_a_bounded_text() {
    let shop = Backend::shop();
    let host = TestHost::start(&shop.entry("")).await;
    for (status, code) in [
        (400, Code::InvalidInput),
        (422, Code::InvalidInput),
        (404, Code::NotFound),
        (401, Code::Internal),
        (403, Code::Internal),
        (429, Code::Unavailable),
        (500, Code::Unavailable),
        (503, Code::Unavailable),
    ] {
        let reply = host
            .call("error", json!({"status": status, "length": 50_000}))
            .await;
        assert_eq!(reply.refusal(), Some(code), "{status}: {}", reply.body());
        let message = parse(reply.body())["message"].as_str().unwrap().to_owned();
        assert!(
            message.contains(&format!(
                "answered with status {status} and said: {{\"detail\":\"xxx"
            )),
            "{message}"
        );
        assert!(
            message.contains("(50013 bytes in all)") && message.len() <= 2_000,
            "{}: {message}",
            message.len()
        );
    }
    let invalid = host.call("get_order", json!({"number": 100_000})).await;
    assert_eq!(invalid.refusal(), Some(Code::NotFound));
    assert!(
        invalid.body().contains("there is no order 100000"),
        "{}",
        invalid.body()
    );
    let moved = host.call("moved", json!({})).await;
    assert_eq!(moved.refusal(), Some(Code::Internal));
    assert!(
        moved
            .body()
            .contains("It points to `/orders`, and this plugin follows no redirects"),
        "{}",
        moved.body()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_service_ends_as_a_timeout_and_its_connection_is_closed() {
    let shop = Backend::shop();
    let entry = shop.entry("") + "[plugins.shop.limits]\ndeadline_ms = 2000\n";
    let host = TestHost::start(&entry).await;
    let reply = host.call("slow", json!({"seconds": 60})).await;
    assert_eq!(
        reply.refusal(),
        Some(Code::InvokeTimeout),
        "{}",
        reply.body()
    );
    // The service sees the end of the connection when it next looks; each question is a turn of its loop.
    let mut open = Value::Null;
    for _ in 0..100 {
        open = body(&host.call("slow_calls", json!({})).await)["open"].clone();
        if open == 1 {
            break;
        }
    }
    assert_eq!(
        open, 1,
        "the connection of the call that was stopped is still open"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_gone_or_not_granted_is_a_fault() {
    let shop = Backend::shop();
    let folder = tempfile::tempdir().unwrap();
    let document = reqwest::get(format!("{}/openapi.json", shop.url))
        .await
        .unwrap()
        .bytes()
        .await
        .unwrap();
    std::fs::write(folder.path().join("shop.json"), document).unwrap();
    let entry = |grant: &str| {
        format!(
            "[plugins.shop]\ncomponent = {:?}\n{grant}\nfiles = [{{ host = \".\", guest = \"/api\" }}]\n[plugins.shop.config]\n\
             document = \"/api/shop.json\"\nbase_url = {:?}\n",
            component("plugins/openapi.wasm"),
            shop.url
        )
    };
    let denied = TestHost::start_in(folder, &entry("hosts = []"))
        .await
        .unwrap();
    let reply = denied.call("statistics", json!({})).await;
    assert_eq!(reply.refusal(), Some(Code::Internal), "{}", reply.body());
    assert!(
        reply
            .body()
            .contains("the operator has to name it in `hosts` or `private_hosts`"),
        "{}",
        reply.body()
    );
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(
        denied.folder().join("shop.json"),
        folder.path().join("shop.json"),
    )
    .unwrap();
    let host = TestHost::start_in(folder, &entry(&format!("private_hosts = [{:?}]", shop.url)))
        .await
        .unwrap();
    assert_eq!(
        body(&host.call("statistics", json!({})).await)["orders"],
        8412
    );
    drop(shop);
    let reply = host.call("statistics", json!({})).await;
    assert_eq!(reply.refusal(), Some(Code::Unavailable), "{}", reply.body());
    assert!(
        reply
            .body()
            .contains("the backend did not answer: ConnectionRefused"),
        "{}",
        reply.body()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_go_where_auth_says_and_are_never_shown() {
    let shop = Backend::shop();
    let with = |auth: &str, secret: &str| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("secret"), secret).unwrap();
        let values = format!(
            "document = \"{}/openapi.json\"\ntags = \"keys\"\nauth = \"{auth}\"",
            shop.url
        );
        (
            folder,
            shop.entry_of(&values, "secrets = { TOKEN = { file = \"secret\" } }"),
        )
    };
    for (auth, tool, expected) in [
        ("bearer:TOKEN", "bearer_key", json!({"who": "bearer"})),
        (
            "header:X-Api-Key:TOKEN",
            "header_key",
            json!({"who": "header"}),
        ),
        ("query:key:TOKEN", "query_key", json!({"who": "query"})),
    ] {
        let (folder, config) = with(auth, "hunter2");
        let host = TestHost::start_in(folder, &config).await.unwrap();
        assert!(!arguments_of(&host, tool).contains("key"), "{auth}");
        assert_eq!(body(&host.call(tool, json!({})).await), expected, "{auth}");
    }
    let (folder, config) = with("basic:TOKEN", "user:pass");
    let host = TestHost::start_in(folder, &config).await.unwrap();
    assert_eq!(
        body(&host.call("basic_key", json!({})).await)["authorization"],
        "Basic dXNlcjpwYXNz"
    );
    let (folder, config) = with("query:key:TOKEN", "hunter3");
    let host = TestHost::start_in(folder, &config).await.unwrap();
    let reply = host.call("query_key", json!({})).await;
    assert_eq!(reply.refusal(), Some(Code::Internal), "{}", reply.body());
    assert!(
        reply.body().contains("the key [secret] is not known") && !reply.body().contains("hunter3"),
        "{}",
        reply.body()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_value_stops_the_start_and_says_what_was_expected() {
    let shop = Backend::shop();
    for (values, expected) in [
        (
            "tags = \"orders, order\"",
            "config `tags`: no operation has the tag `order`; the document has categories, customers,",
        ),
        (
            "operations = \"delete_order\"",
            "listed only with writes = \\\"true\\\"",
        ),
        (
            "methods = \"GTE\"",
            "config `methods`: expected some of GET, HEAD, POST, PUT, PATCH, DELETE, found `GTE`",
        ),
        (
            "auth = \"bearer:TOKEN\"",
            "config `auth`: there is no secret `TOKEN`",
        ),
    ] {
        let error = load_error(&shop.entry(values)).await;
        assert!(
            error.contains(expected) || error.contains(&expected.replace('\\', "")),
            "{values}: {error}"
        );
    }
    let error =
        load_error(&shop.entry_of(&format!("document = \"{}/nothing.json\"", shop.url), "")).await;
    assert!(error.contains("expected status 200, found 404"), "{error}");
    let error = load_error(&over("@octokit/openapi", "none.json", "")).await;
    assert!(
        error.contains("reading the document `/api/none.json`"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn json_server_is_called_through_a_document_of_version_3_0() {
    let rest = Backend::rest();
    let files = format!(
        "files = [{{ host = {:?}, guest = \"/api\" }}]",
        root().join("tests/backends")
    );
    let values = format!(
        "document = \"/api/rest.openapi.json\"\nbase_url = \"{}\"\nwrites = \"true\"",
        rest.url
    );
    let host = TestHost::start(&rest.entry_of(&values, &files)).await;
    let tools = listed(&host);
    let names: Vec<&str> = tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["list_posts", "create_post", "get_posts_id", "list_comments"]
    );
    assert_eq!(
        tools[1]["inputSchema"]["properties"],
        json!({"title": {"type": "string"}, "author": {"type": ["string", "null"]}, "views": {"type": "integer", "minimum": 0}})
    );
    let reply = host
        .call(
            "list_posts",
            json!({"author": "bo", "_page": 2, "_limit": 10, "_sort": ["id", "views"]}),
        )
        .await;
    let rows = body(&reply);
    assert_eq!(
        (rows.as_array().unwrap().len(), &rows[0]["id"]),
        (10, &json!(32))
    );
    let [Attachment::Resource(next)] = reply.attachments() else {
        panic!("{:?}", reply.attachments())
    };
    let next = parse(std::str::from_utf8(&next.data).unwrap())["next"].clone();
    assert_eq!(
        next,
        json!({"author": "bo", "_page": 3, "_limit": 10, "_sort": "id,views"})
    );
    // Without a limit of its own: paged by the host.
    let comments = host.call("list_comments", json!({"limit": 7})).await;
    assert_eq!(
        (
            body(&comments).as_array().unwrap().len(),
            &parse(comments.facts())["total_count"]
        ),
        (7, &json!(50))
    );
    assert_eq!(
        body(&host.call("get_posts_id", json!({"id": 5})).await)["title"],
        "post 5"
    );
    let created = body(
        &host
            .call("create_post", json!({"title": "new", "author": null}))
            .await,
    );
    assert_eq!(created, json!({"title": "new", "author": null, "id": 401}));
    assert_eq!(
        host.call("get_posts_id", json!({"id": 9999}))
            .await
            .refusal(),
        Some(Code::NotFound)
    );
}

pub(crate) const GITHUB: (&str, &str) = ("@octokit/openapi/generated", "api.github.com.json");

#[tokio::test(flavor = "multi_thread")]
async fn the_document_of_github_loads_by_tags() {
    let (folder, file) = GITHUB;
    let host = TestHost::start(&over(
        folder,
        file,
        "tags = \"repos, issues, pulls\"\nwrites = \"true\"",
    ))
    .await;
    let tools = listed(&host);
    assert!(tools.len() > 250, "{}", tools.len());
    let create = tools
        .iter()
        .find(|tool| tool["name"] == "issues_create")
        .unwrap();
    let required: BTreeSet<&str> = create["inputSchema"]["required"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    assert_eq!(required, BTreeSet::from(["owner", "repo", "title"]));
    let list = arguments_of(&host, "issues_list-for-repo");
    assert!(
        list.contains("per_page")
            && list.contains("page")
            && !list.contains("limit")
            && !list.contains("after"),
        "{list:?}"
    );
}

/// Fuel of a call over the 13 MB of GitHub's document: some 16 units a byte, and a fiftieth of the default.
const FUEL_OF_A_CALL: u64 = 200_000_000;

/// A call looks for one operation in 13 MB and converts nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_in_a_document_of_a_thousand_operations_costs_little() {
    let shop = Backend::shop();
    let (folder, file) = GITHUB;
    let files = format!(
        "files = [{{ host = {:?}, guest = \"/api\" }}]",
        root().join("target/backends/node_modules").join(folder)
    );
    let values = format!(
        "document = \"/api/{file}\"\nbase_url = \"{}\"\ntags = \"users\"",
        shop.url
    );
    let host = TestHost::start(&shop.entry_of(&values, &files)).await;
    let caller = Caller::default();
    let (reply, usage) = host
        .host()
        .measure_named(
            &caller,
            "users_get-by-username",
            object(json!({"username": "x"})),
        )
        .await;
    // The shop has no such path, and says so: the operation was found, and asked for.
    assert_eq!(reply.refusal(), Some(Code::NotFound), "{}", reply.body());
    assert!(
        reply.body().contains("GET /users/{username}"),
        "{}",
        reply.body()
    );
    println!(
        "one call: {} fuel, {} bytes, {:?}",
        usage.fuel, usage.memory_peak_bytes, usage.elapsed
    );
    assert!(usage.fuel < FUEL_OF_A_CALL, "{}", usage.fuel);
    assert!(
        usage.memory_peak_bytes < 40 << 20,
        "{}",
        usage.memory_peak_bytes
    );
}

/// What a call costs follows the size of its document, whether that is large or small.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_in_a_small_document_costs_as_much_a_byte() {
    let shop = Backend::shop();
    let folder = tempfile::tempdir().unwrap();
    let document = reqwest::get(format!("{}/openapi.json", shop.url)).await;
    let document = document.unwrap().bytes().await.unwrap();
    let bytes = document.len() as u64;
    std::fs::write(folder.path().join("shop.json"), document).unwrap();
    let values = format!("document = \"/api/shop.json\"\nbase_url = \"{}\"", shop.url);
    let files = "files = [{ host = \".\", guest = \"/api\" }]";
    let host = TestHost::start_in(folder, &shop.entry_of(&values, files)).await;
    let host = host.unwrap();
    let caller = Caller::default();
    let measured = host
        .host()
        .measure_named(&caller, "get_order", object(json!({"number": 7})));
    let (reply, usage) = measured.await;
    body(&reply);
    println!("one call over {bytes} bytes: {} fuel", usage.fuel);
    assert!(usage.fuel < 300_000 + 20 * bytes, "{}", usage.fuel);
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_that_other_packages_ship_load() {
    let base = "writes = \"true\"\nbase_url = \"https://api.test\"";
    for (folder, file, tools) in [
        ("@scalar/galaxy/dist", "latest.json", 1),
        ("@scalar/galaxy/dist", "3.1.json", 1),
        ("@readme/oas-examples/3.0/json", "petstore.json", 10),
        ("@readme/oas-examples/3.0/json", "circular.json", 1),
        (
            "@readme/oas-examples/3.0/json",
            "circular-request-bodies.json",
            1,
        ),
        ("@readme/oas-examples/3.0/json", "complex-nesting.json", 1),
        ("@readme/oas-examples/3.0/json", "schema-types.json", 1),
        ("@readme/oas-examples/3.0/json", "uspto.json", 1),
        ("@readme/oas-examples/3.0/json", "star-trek.json", 1),
        ("@readme/oas-examples/3.1/json", "train-travel.json", 3),
        ("@readme/oas-examples/3.1/json", "petstore.json", 10),
        ("@readme/oas-examples/3.1/json", "schema-types.json", 1),
        ("@readme/oas-examples/3.1/json", "readme.json", 20),
    ] {
        let folder_of_host = tempfile::tempdir().unwrap();
        let host = TestHost::start_in(folder_of_host, &over(folder, file, base)).await;
        let host = host.unwrap_or_else(|error| panic!("{folder}/{file}: {error:#}"));
        assert!(
            listed(&host).len() >= tools,
            "{folder}/{file}: {}",
            listed(&host).len()
        );
    }
    let error = load_error(&over(
        "@readme/oas-examples/2.0/json",
        "petstore.json",
        base,
    ))
    .await;
    assert!(
        error.contains("found Swagger 2.0; convert it first"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_example_of_the_plugin_comes_out_as_documented() {
    let shop = Backend::shop();
    let host = TestHost::start(&shop.entry("writes = \"true\"")).await;
    let folders = examples::folders(&root().join("plugins/openapi/examples")).unwrap();
    assert!(!folders.is_empty());
    for folder in folders {
        let case = Case::read(&folder).unwrap();
        let found = case.transcript(&case.run(host.host()).await.unwrap());
        let file = folder.join("expected.txt");
        if std::env::var_os("PLIMSOLL_BLESS").is_some() {
            std::fs::write(&file, found).unwrap();
            continue;
        }
        let expected = std::fs::read_to_string(&file).unwrap();
        if let Some(difference) = Difference::between(&expected, &found) {
            panic!("{}: {difference}", file.display());
        }
    }
}
