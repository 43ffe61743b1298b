//! What becomes of the results that servers send.

use serde_json::Value;

use super::*;

const ROOM: usize = 1_000;

/// The document as text, and the attachments by what they are.
fn answer(result: &Value) -> (String, Vec<String>) {
    of(&result.to_string())
}

fn of(result: &str) -> (String, Vec<String>) {
    let Outcome::Answer(answer) = read(result, ROOM).unwrap() else {
        panic!("expected an answer: {result}")
    };
    let show = |attachment: &Attachment| match attachment {
        Attachment::Image(blob) => format!("image {} {}", blob.media_type, blob.data.len()),
        Attachment::Audio(blob) => format!("audio {} {}", blob.media_type, blob.data.len()),
        Attachment::Resource(embedded) => {
            let text = String::from_utf8_lossy(&embedded.data);
            format!("{} {} {text}", embedded.uri, embedded.media_type)
        }
    };
    let document = answer
        .document
        .map_or(String::new(), |bytes| String::from_utf8(bytes).unwrap());
    (document, answer.attachments.iter().map(show).collect())
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn none() -> Vec<String> {
    Vec::new()
}

#[test]
fn one_text_is_the_document_as_it_is() {
    for document in ["[{\"n\": 1.10}]", "a\nb\n", "  {\"a\":1}\n", ""] {
        assert_eq!(
            answer(&json!({"content": [text(document)]})),
            (document.to_owned(), none())
        );
    }
    assert_eq!(answer(&json!({"content": []})), (String::new(), none()));
    assert_eq!(
        read("{}", ROOM).unwrap(),
        Outcome::Answer(Answer::default())
    );
}

#[test]
fn objects_of_one_kind_are_rows_and_texts_are_lines() {
    let rows = json!({"content": [text("{\"id\":1,\"a\":2}"), text("{ \"id\": 2.50 }"), text("{\"id\":3}\n")]});
    assert_eq!(
        answer(&rows),
        (
            "[{\"id\":1,\"a\":2},\n{ \"id\": 2.50 },\n{\"id\":3}]".to_owned(),
            none()
        )
    );
    assert_eq!(
        answer(&json!({"content": [text("one"), text("2")]})),
        ("one\n2".to_owned(), none())
    );
}

#[test]
fn the_largest_json_among_texts_is_the_document_and_the_rest_is_attached() {
    let mixed =
        json!({"content": [text("Found 2:"), text("[1,2]"), text("{\"note\":\"longer\"}")]});
    assert_eq!(
        answer(&mixed),
        (
            "{\"note\":\"longer\"}".to_owned(),
            vec![
                "mcp:text/1 text/plain Found 2:".to_owned(),
                "mcp:text/2 application/json [1,2]".to_owned()
            ]
        )
    );
    // Objects of different kinds are no rows.
    assert_eq!(
        answer(&json!({"content": [text("{\"facts\":1}"), text("{\"body\":1234}")]})),
        (
            "{\"body\":1234}".to_owned(),
            vec!["mcp:text/1 application/json {\"facts\":1}".to_owned()]
        )
    );
}

#[test]
fn the_body_of_another_plimsoll_is_the_document_however_short() {
    let result = json!({"content": [text("{\"total_count\":0}"), text("[]")], "_meta": {"dev.plimsoll/receipt": {}}});
    assert_eq!(
        answer(&result),
        (
            "[]".to_owned(),
            vec!["mcp:text/1 application/json {\"total_count\":0}".to_owned()]
        )
    );
}

#[test]
fn another_plimsoll_says_how_many_rows_are_left() {
    for (receipt, total) in [
        (json!({"returned": 2, "before": 4, "after": 66}), Some(68)),
        (json!({"returned": 2, "after": null}), None),
        (json!({}), None),
    ] {
        let result = json!({"content": [text("{}"), text("[1,2]")], "_meta": {"dev.plimsoll/receipt": receipt}});
        let Outcome::Answer(answer) = read(&result.to_string(), ROOM).unwrap() else {
            panic!("expected an answer")
        };
        assert_eq!(answer.total, total, "{receipt}");
    }
}

#[test]
fn structured_content_and_its_copy_are_one_answer() {
    let copy = "{\n  \"a\": [1, 2],\n  \"b\": \"x\"\n}";
    let result = format!(
        "{{\"content\":[{}],\"structuredContent\":{{\"b\":\"x\",\"a\":[1,2]}}}}",
        text(copy)
    );
    assert_eq!(
        of(&result),
        ("{\"b\":\"x\",\"a\":[1,2]}".to_owned(), none()),
        "without indentation"
    );
    // Case F9: what was rounded on the way is in the text as it was.
    let result = format!(
        "{{\"content\":[{}],\"structuredContent\":{{\"id\":9007199254740992}}}}",
        text("{\"id\": 9007199254740993}")
    );
    assert_eq!(
        of(&result),
        ("{\"id\": 9007199254740993}".to_owned(), none())
    );
    let result = "{\"content\":[],\"structuredContent\":{\"a\":1.10}}";
    assert_eq!(of(result), ("{\"a\":1.10}".to_owned(), none()));
}

#[test]
fn the_wrapper_of_a_value_is_seen_through() {
    for (texts, structured) in [
        (vec![text("[1,2]")], json!({"result": [1, 2]})),
        (
            vec![text("{\"a\":1}"), text("two")],
            json!({"result": [{"a": 1}, "two"]}),
        ),
        (vec![text("1"), text("2")], json!([1, 2])),
        (vec![text("7")], json!({"result": 7})),
    ] {
        let result = json!({"content": texts, "structuredContent": structured});
        assert_eq!(answer(&result), (structured.to_string(), none()));
    }
}

#[test]
fn a_text_in_a_wrapper_is_text() {
    for texts in [vec![text("a\n\"b\"")], vec![text("a"), text("\"b\"")]] {
        let result = json!({"content": texts, "structuredContent": {"content": "a\n\"b\""}});
        assert_eq!(answer(&result), ("a\n\"b\"".to_owned(), none()));
    }
}

/// Case F7: texts were lost because there was structured content.
#[test]
fn a_text_that_is_no_copy_stays_beside_structured_content() {
    let result = json!({"content": [text("See https://a.test")], "structuredContent": {"n": 1}});
    assert_eq!(
        answer(&result),
        (
            "{\"n\":1}".to_owned(),
            vec!["mcp:text/1 text/plain See https://a.test".to_owned()]
        )
    );
}

#[test]
fn what_is_not_text_is_attached_whole() {
    let result = json!({"content": [
        text("done"),
        {"type": "image", "data": "iVBORw==", "mimeType": "image/png"},
        {"type": "audio", "data": "UklGRg", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "a:1", "mimeType": "text/x-log", "text": "hello"}},
        {"type": "resource", "resource": {"uri": "a:2", "mimeType": "application/x-yaml", "text": "k: v"}},
        {"type": "resource", "resource": {"uri": "a:3", "mimeType": "application/pdf", "blob": "JVBERg=="}},
        {"type": "resource_link", "uri": "a:4", "name": "four"},
    ]});
    let (document, attachments) = answer(&result);
    assert_eq!(document, "done");
    assert_eq!(
        attachments,
        [
            "image image/png 4",
            "audio audio/wav 4",
            "a:1 text/x-log hello",
            "a:2 text/plain k: v",
            "a:3 application/pdf %PDF",
            "a:4 application/json {\"type\":\"resource_link\",\"uri\":\"a:4\",\"name\":\"four\"}",
        ]
        .map(|line| line.replace(
            "{\"type\":\"resource_link\",\"uri\":\"a:4\",\"name\":\"four\"}",
            &result["content"][6].to_string()
        ))
    );
}

/// Case G5: data that is cut is no image.
#[test]
fn what_is_too_large_is_replaced_by_a_line_and_never_cut() {
    let large = "A".repeat(ROOM + 4);
    let image = json!({"type": "image", "data": large, "mimeType": "image/png"});
    let line = "The image (image/png, 753 bytes) is left out: the attachments of one answer may have 1000 bytes as they are sent. \
                The operator can raise `attachment_bytes`.";
    assert_eq!(
        answer(&json!({"content": [image]})),
        (line.to_owned(), none()),
        "in the place of a document"
    );
    let blob = json!({"type": "resource", "resource": {"uri": "a:1", "blob": "AAAA"}});
    assert_eq!(
        answer(&json!({"content": [text("x"), image, blob]})),
        (
            "x".to_owned(),
            vec![
                "a:1 application/octet-stream \0\0\0".to_owned(),
                format!("mcp:left-out text/plain {line}")
            ]
        ),
        "what fits still comes"
    );
    let broken = json!({"type": "image", "data": "!", "mimeType": "image/png"});
    assert_eq!(
        answer(&json!({"content": [broken]})).0,
        "The image (image/png) is left out: its data is not base64."
    );
}

#[test]
fn more_attachments_than_the_host_takes_are_told_in_lines() {
    let mut content = vec![text("x")];
    content.extend((0..102).map(|index| json!({"type": "resource", "resource": {"uri": format!("a:{index}"), "blob": "AAAA"}})));
    let (document, attachments) = answer(&json!({"content": content}));
    assert_eq!((document.as_str(), attachments.len()), ("x", 100));
    let line = "The resource (application/octet-stream, 3 bytes) is left out: an answer may have 100 attachments.";
    assert_eq!(
        attachments[99],
        format!("mcp:left-out text/plain {line}\n{line}\n{line}")
    );
}

#[test]
fn links_alone_are_rows() {
    let link = json!({"type": "resource_link", "uri": "a:1", "name": "one"});
    assert_eq!(
        answer(&json!({"content": [link, link]})),
        (format!("[{link},\n{link}]"), none())
    );
}

#[test]
fn a_text_resource_that_stands_alone_or_is_too_large_is_the_document() {
    let resource = |text: &str| json!({"type": "resource", "resource": {"uri": "a:1", "mimeType": "text/plain", "text": text}});
    assert_eq!(
        answer(&json!({"content": [resource("line")]})),
        ("line".to_owned(), none())
    );
    let large = "line\n".repeat(300);
    assert_eq!(
        answer(&json!({"content": [text("downloaded"), resource(&large)]})),
        (large, vec!["mcp:text/1 text/plain downloaded".to_owned()])
    );
}

#[test]
fn a_failure_keeps_its_text() {
    let of = |result: Value| read(&result.to_string(), ROOM).unwrap();
    assert_eq!(
        of(json!({"isError": true, "content": [text("no"), text("way")]})),
        Outcome::Failed("no\nway".to_owned())
    );
    assert_eq!(
        of(json!({"isError": true, "content": [], "structuredContent": {"e": 1}})),
        Outcome::Failed("{\"e\":1}".to_owned())
    );
    assert_eq!(
        of(json!({"isError": true, "content": []})),
        Outcome::Failed("the tool failed and does not say why".to_owned())
    );
    assert_eq!(
        of(json!({"resultType": "input_required"})),
        Outcome::Asks("input_required".to_owned())
    );
    assert!(matches!(
        of(json!({"resultType": "complete", "content": []})),
        Outcome::Answer(_)
    ));
}

#[test]
fn a_result_that_is_none_says_why() {
    assert!(
        read("{\"content\":1}", ROOM)
            .unwrap_err()
            .starts_with("invalid type: integer `1`, expected a sequence")
    );
    assert!(
        read("{\"content\":[{\"text\":\"a\"}]}", ROOM)
            .unwrap_err()
            .starts_with("a block of its content: missing field `type`")
    );
}

#[test]
fn blocks_that_come_once_more_as_structured_content_come_once() {
    let image = json!({"type": "image", "data": "iVBORw==", "mimeType": "image/png"});
    let result = json!({"content": [image], "structuredContent": {"content": [image]}});
    assert_eq!(
        answer(&result),
        (String::new(), vec!["image image/png 4".to_owned()])
    );
}
