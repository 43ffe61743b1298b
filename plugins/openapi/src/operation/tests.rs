//! What becomes of operations, with small documents.

use serde_json::{Value, json};

use super::*;
use crate::config::tests::of as config;

/// A document with these paths.
pub(crate) fn document(paths: &str) -> String {
    format!(
        r##"{{"openapi":"3.1.0","paths":{{{paths}}},"components":{{
            "parameters":{{"Page":{{"name":"page","in":"query","schema":{{"type":"integer"}}}}}},
            "requestBodies":{{"Order":{{"required":true,"content":{{"application/json":{{"schema":{{"$ref":"#/components/schemas/Order"}}}}}}}}}},
            "schemas":{{"Order":{{"type":"object","required":["status","id"],"properties":{{
                "id":{{"type":"integer","readOnly":true}},"status":{{"type":"string","description":"Where it is."}},
                "lines":{{"type":"array","items":{{"type":"string"}}}}}}}}}}}}}}"##
    )
}

/// Does something with the first chosen operation of a document.
pub(crate) fn with_operation<T>(
    text: &str,
    config: &Config,
    work: impl for<'a> FnOnce(&Document<'a>, &Operation<'a>) -> T,
) -> T {
    let document = Document::read(text, None).unwrap();
    let mut first = None;
    document.each_chosen(config, |found| {
        first = Some(found);
        true
    });
    let operation = Operation::read(&document, first.unwrap(), config).unwrap();
    work(&document, &operation)
}

fn writes() -> Config {
    config(&[("document", "/a"), ("writes", "true")]).unwrap()
}

fn tool(paths: &str) -> Tool {
    with_operation(&document(paths), &writes(), |document, operation| {
        operation.tool(document)
    })
}

fn schema(paths: &str) -> Value {
    serde_json::from_str(&tool(paths).input_schema).unwrap()
}

fn refused(paths: &str) -> String {
    let (text, config) = (document(paths), writes());
    let document = Document::read(&text, None).unwrap();
    let mut error = None;
    document.each_chosen(&config, |found| {
        error = Operation::read(&document, found, &config).err();
        true
    });
    error.unwrap()
}

#[test]
fn parameters_and_members_of_the_body_are_arguments_of_one_object() {
    assert_eq!(
        schema(
            r##""/orders/{id}":{"parameters":[{"name":"id","in":"path","required":true,"schema":{"type":"string"}},
                {"name":"dry","in":"query","schema":{"type":"string"}}],
            "put":{"operationId":"x","parameters":[{"name":"dry","in":"query","description":"Only try.","schema":{"type":"boolean"}},
                {"name":"X-Trace","in":"header","schema":{"type":"string"}},{"name":"sid","in":"cookie"}],
              "requestBody":{"$ref":"#/components/requestBodies/Order"}}}"##
        ),
        json!({"type": "object", "properties": {
            "id": {"type": "string"},
            "dry": {"description": "Only try.", "type": "boolean"},
            "X-Trace": {"type": "string"},
            "status": {"description": "Where it is.", "type": "string"},
            "lines": {"type": "array", "items": {"type": "string"}}},
          "required": ["id", "status"]})
    );
}

#[test]
fn a_body_with_a_name_that_is_taken_or_of_another_kind_is_one_argument() {
    let body = |parameters: &str, content: &str| {
        schema(&format!(
            r#""/x":{{"post":{{"operationId":"x","parameters":[{parameters}],"requestBody":{{"description":"B.","content":{content}}}}}}}"#
        ))["properties"]
            .clone()
    };
    let json_of = |schema: &str| format!(r#"{{"application/json":{{"schema":{schema}}}}}"#);
    let object = json_of(r#"{"type":"object","properties":{"a":{"type":"string"}}}"#);
    assert_eq!(body("", &object), json!({"a": {"type": "string"}}));
    assert_eq!(
        body(r#"{"name":"a","in":"query"}"#, &object),
        json!({"a": {}, "body": {"description": "B.", "type": "object", "properties": {"a": {"type": "string"}}}})
    );
    assert_eq!(
        body(
            r#"{"name":"body","in":"query"}"#,
            &json_of(r#"{"type":"array"}"#)
        ),
        json!({"body": {}, "request_body": {"description": "B.", "type": "array"}})
    );
    for one in [
        r#"{"type":"object","properties":{"a":{}},"additionalProperties":true}"#,
        r#"{"type":"object","properties":{"a[]":{}}}"#,
        r#"{"type":"object"}"#,
        r#"{"oneOf":[{"type":"object"}],"properties":{"a":{}}}"#,
    ] {
        let properties = body("", &json_of(one));
        let names: Vec<&String> = properties.as_object().unwrap().keys().collect();
        assert_eq!(names, ["body"], "{one}");
    }
    assert_eq!(
        body("", r#"{"text/csv":{}}"#),
        json!({"body": {"type": "string", "description": "B."}})
    );
    // JSON before a form, and a body of another kind that is not needed is left away.
    let both = format!(
        r#"{{"application/x-www-form-urlencoded":{{}},{}"#,
        &object[1..]
    );
    assert_eq!(body("", &both), json!({"a": {"type": "string"}}));
    assert_eq!(body("", r#"{"multipart/form-data":{}}"#), json!({}));
}

#[test]
fn arguments_have_valid_names_of_their_own() {
    let properties = schema(
        r#""/x/{id}":{"get":{"operationId":"x","parameters":[{"name":"id","in":"query"},{"name":"id","in":"path"},
            {"name":"filter[name]","in":"query"},{"name":"$top","in":"query"},{"name":"§","in":"query"}]}}"#,
    )["properties"]
        .clone();
    let names: Vec<&String> = properties.as_object().unwrap().keys().collect();
    let mut names: Vec<&str> = names.into_iter().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["argument", "filter_name", "id", "id_query", "top"]);
}

#[test]
fn what_cannot_be_called_says_why() {
    for (operation, expected) in [
        (
            r#""/x/{id}":{"get":{}}"#,
            "its path has a `{id}` that no parameter describes",
        ),
        (
            r##""/x":{"get":{"parameters":[{"$ref":"#/components/parameters/None"}]}}"##,
            "leads nowhere",
        ),
        (
            r#""/x":{"get":{"parameters":[{"name":"a","in":"body"}]}}"#,
            "its parameter `a` is in body; expected path, query, header or cookie",
        ),
        (
            r#""/x":{"get":{"parameters":[{"name":"a","in":"path","style":"matrix"}]}}"#,
            "has the style `matrix`, which this plugin does not write",
        ),
        (
            r#""/x":{"post":{"requestBody":{"required":true,"content":{"multipart/form-data":{}}}}}"#,
            "its body is multipart/form-data; expected JSON, a form or text",
        ),
        (
            r#""/x":{"post":{"requestBody":{"required":true}}}"#,
            "its body is of no type",
        ),
    ] {
        let error = refused(operation);
        assert!(error.contains(expected), "{operation}: {error}");
    }
}

#[test]
fn an_operation_with_a_limit_or_a_position_of_its_own_pages_itself() {
    let pages = |parameters: &str| {
        let tool = tool(&format!(
            r#""/x":{{"get":{{"operationId":"x","parameters":[{parameters}]}}}}"#
        ));
        tool.shape.applies.contains(PushDown::PAGING)
    };
    let query = |name: &str, kind: &str| {
        format!(r#"{{"name":"{name}","in":"query","schema":{{"type":"{kind}"}}}}"#)
    };
    for name in SIZES {
        assert!(pages(&query(name, "integer")), "{name}");
        assert!(!pages(&query(name, "boolean")), "{name}");
    }
    for name in POSITIONS {
        assert!(pages(&query(name, "string")), "{name}");
    }
    assert!(pages(&query("$skip", "integer")));
    assert!(pages(r##"{"$ref":"#/components/parameters/Page"}"##));
    assert!(pages(
        r#"{"name":"limit","in":"query","schema":{"anyOf":[{"type":"integer"},{"type":"null"}]}}"#
    ));
    assert!(!pages(&query("status", "string")));
    assert!(!pages(
        &query("limit", "integer").replace("query", "header")
    ));
}

#[test]
fn annotations_and_rows_follow_from_the_method() {
    for (method, annotations, is_whole) in [
        (
            "get",
            Annotations::READ_ONLY | Annotations::IDEMPOTENT,
            false,
        ),
        (
            "head",
            Annotations::READ_ONLY | Annotations::IDEMPOTENT,
            false,
        ),
        ("post", Annotations::empty(), true),
        (
            "put",
            Annotations::DESTRUCTIVE | Annotations::IDEMPOTENT,
            true,
        ),
        ("patch", Annotations::DESTRUCTIVE, true),
        (
            "delete",
            Annotations::DESTRUCTIVE | Annotations::IDEMPOTENT,
            true,
        ),
    ] {
        let tool = tool(&format!(r#""/x":{{"{method}":{{"operationId":"x"}}}}"#));
        assert_eq!(tool.annotations, annotations, "{method}");
        assert_eq!(
            matches!(tool.shape.rows, RowSource::Whole),
            is_whole,
            "{method}"
        );
    }
}

#[test]
fn a_tool_is_described_by_what_the_document_says() {
    let described = |text: &str| {
        let tool = tool(&format!(r#""/x":{{"get":{{"operationId":"x"{text}}}}}"#));
        (tool.title, tool.description)
    };
    assert_eq!(described(""), (None, "GET /x".into()));
    assert_eq!(described(r#","summary":" S ""#).1, "S");
    assert_eq!(
        described(r#","summary":"Lists","description":"All of them.""#),
        (Some("Lists".into()), "Lists\n\nAll of them.".into())
    );
    assert_eq!(
        described(r#","summary":"Lists","description":"Lists all.""#).1,
        "Lists all."
    );
    let long = described(&format!(r#","description":"{}""#, "wörd ".repeat(1_000))).1;
    assert!(
        long.len() <= 2_000 && long.ends_with("wörd … (the rest is in the API's document)"),
        "{long}"
    );
}

#[test]
fn a_schema_that_is_too_large_is_cut_at_a_lower_level() {
    let wide: Vec<String> = (0..60)
        .map(|n| {
            format!(
                r#""property_{n}":{{"type":"object","properties":{{{}}}}}"#,
                (0..40)
                    .map(|m| format!(r#""inner_{m}":{{"type":"string"}}"#))
                    .collect::<Vec<_>>()
                    .join(",")
            )
        })
        .collect();
    let paths = format!(
        r#""/x":{{"post":{{"operationId":"x","requestBody":{{"content":{{"application/json":{{"schema":{{"type":"object","properties":{{{}}}}}}}}}}}}}}}"#,
        wide.join(",")
    );
    let text = tool(&paths).input_schema;
    assert!(text.len() <= MAX_SCHEMA_BYTES, "{}", text.len());
    assert!(
        text.contains("is left out here: it lies deeper than 1 levels."),
        "{text}"
    );
    assert_eq!(MAX_SCHEMA_BYTES, 32_768);
}
