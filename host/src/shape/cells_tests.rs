use proptest::prelude::*;
use serde_json::json;

use super::super::touched::MAX_TOUCHED;
use super::*;

fn paths(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn policy(drop: &[&str], mask: &[&str]) -> CellPolicy {
    CellPolicy::new(&paths(drop), &paths(mask), None, None).unwrap()
}

fn sizes(data: Option<u32>, max: Option<u32>) -> CellPolicy {
    CellPolicy::new(&[], &[], data, max).unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn what_is_withheld_goes_and_everything_else_keeps_its_bytes() {
    let policy = policy(&["secret", "owner.phone"], &["email", "owner.mail", "deep"]);
    let mut touched = Touched::default();
    let row = r#"{ "id": 1.0 ,"secret":{"a":[1]},"email" : "x@y", "owner":[{"mail":null,"phone":7},{"phone":7,"n":1e400}] ,"secret":2,"\u0065mail":3,"deep":{"x":1} }"#;
    let out = policy.privacy(row.as_bytes(), &mut touched);
    assert_eq!(
        text(&out),
        r#"{ "id": 1.0 ,"email" : "[masked]", "owner":[{"mail":"[masked]"},{"n":1e400}] ,"\u0065mail":"[masked]","deep":"[masked]" }"#
    );
    assert_eq!(
        touched.json(),
        json!({
            "dropped": {"cells": 4, "columns": ["owner.phone", "secret"]},
            "masked": {"cells": 4, "columns": ["deep", "email", "owner.mail"]},
        })
    );
    let row = br#"{"id": 1, "other":{"secret":1}}"#;
    assert!(matches!(
        policy.privacy(row, &mut Touched::default()),
        Cow::Borrowed(_)
    ));
    assert_eq!(
        text(&policy.privacy(b"{broken", &mut Touched::default())),
        "\"[masked]\""
    );
}

#[test]
fn arrays_in_arrays_hide_nothing_and_neither_does_depth() {
    let policy = policy(&[], &["email"]);
    let deep = format!("{}{{\"email\":1}}{}", "[".repeat(40), "]".repeat(40));
    let out = policy.privacy(deep.as_bytes(), &mut Touched::default());
    assert!(text(&out).contains(r#"{"email":"[masked]"}"#));
    let deeper = format!(
        "{}{{\"email\":1}}{}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let out = policy.privacy(deeper.as_bytes(), &mut Touched::default());
    assert!(
        !text(&out).contains("email"),
        "what lies too deep is masked"
    );
}

#[test]
fn a_document_withholds_at_any_depth_outside_of_its_rows() {
    let policy = policy(&["phone"], &["email", "items"]);
    let shaped = |document: &str, rows: &Rows| {
        policy
            .privacy_of_document(document.as_bytes(), rows, &mut Touched::default())
            .map(|document| text(&document).to_owned())
    };
    // The rows stay where they are, even where their array has the name of a field that is masked.
    assert_eq!(
        shaped(
            r#"{"items":[{"email":1,"items":2,"in":{"email":3}}],"page":{"by":{"email":"x","phone":1}}}"#,
            &Rows::Automatic
        )
        .unwrap(),
        r#"{"items":[{"email":"[masked]","items":"[masked]","in":{"email":3}}],"page":{"by":{"email":"[masked]"}}}"#
    );
    // Two arrays: there are no rows, and nothing is known of where fields are.
    assert_eq!(
        shaped(
            r#"{"a":[{"email":1}],"b":[[{"phone":2}]]}"#,
            &Rows::Automatic
        )
        .unwrap(),
        r#"{"a":[{"email":"[masked]"}],"b":[[{}]]}"#
    );
    assert_eq!(
        shaped("{\"email\":1}\n\n{\"phone\":2}\n", &Rows::Lines).unwrap(),
        "{\"email\":\"[masked]\"}\n\n{}\n"
    );
    let text_error = "the answer is text; fields of this tool are withheld, and in text they cannot be found: expected JSON, or \
                      a JSON object a line";
    for document in ["email: x", "[\n{\"email\":1},\n", "\"x@y\"\n7"] {
        assert_eq!(shaped(document, &Rows::Lines).unwrap_err(), text_error);
    }
    assert_eq!(
        shaped("secret words", &Rows::Whole).unwrap_err(),
        text_error
    );
    assert_eq!(shaped(" ", &Rows::Whole).unwrap(), " ");
    assert_eq!(
        shaped(r#"[{"email":NaN}]"#, &Rows::Automatic).unwrap_err(),
        "the answer is not valid JSON; where and why is not shown, since fields of this tool are withheld"
    );
    assert_eq!(
        shaped(r#"{"a":1}"#, &Rows::Automatic).unwrap(),
        r#"{"a":1}"#
    );
}

#[test]
fn a_field_is_covered_by_what_is_around_it_and_in_it() {
    let policy = policy(&["a.b"], &["m"]);
    let table = [
        // (path, covered, removed)
        ("a", true, false),
        ("a.b", true, true),
        ("a.b.c", true, true),
        ("a.c", false, false),
        ("m", true, false),
        ("m.x", true, true),
        ("mm", false, false),
    ];
    for (name, covers, removes) in table {
        let path = Path::new(name).unwrap();
        assert_eq!(policy.covers(&path), covers, "{name}");
        assert_eq!(policy.removes(&path), removes, "{name}");
    }
}

#[test]
fn the_strictest_of_two_policies_applies() {
    let mine = CellPolicy::new(&paths(&["a"]), &paths(&["b"]), None, Some(500)).unwrap();
    let tenants = CellPolicy::new(&paths(&["b"]), &paths(&["c"]), Some(256), Some(100)).unwrap();
    for both in [mine.and(&tenants), tenants.and(&mine)] {
        let row = br#"{"a":1,"b":2,"c":3,"d":4}"#;
        let out = both.privacy(row, &mut Touched::default());
        assert_eq!(text(&out), r#"{"c":"[masked]","d":4}"#);
        assert_eq!((both.data_chars, both.max_chars), (Some(256), Some(100)));
    }
    let none = CellPolicy::default();
    assert!(none.is_empty() && none.and(&none).is_empty());
    assert_eq!(none.and(&mine).max_chars, Some(500));
    assert_eq!(
        mine.describe(),
        "drop a; mask b; shorten texts over 500 characters"
    );
    assert_eq!(
        tenants.describe(),
        "drop b; mask c; replace data over 256 characters; shorten texts over 100 characters"
    );
}

#[test]
fn a_long_text_keeps_its_beginning_and_says_how_long_it_was() {
    let policy = sizes(None, Some(10)).for_call(Some("fields"), Vec::new());
    let mut touched = Touched::default();
    let long = r"0123456\ud83d\ude00\u00e9\n".to_owned() + &"x".repeat(200);
    let row = format!(
        r#"{{"n":1.0,"a":{{"b":["{long}","short"]}}, "{}":"stays"}}"#,
        "k".repeat(100)
    );
    let out = policy.size(row.as_bytes(), &mut touched);
    let expected = format!(
        r#"{{"n":1.0,"a":{{"b":["0123456\ud83d\ude00\u00e9\n… [the first 10 of 210 characters; name a.b in fields to read it whole]","short"]}}, "{}":"stays"}}"#,
        "k".repeat(100)
    );
    assert_eq!(text(&out), expected);
    assert_eq!(
        touched.json(),
        json!({"shortened": {"cells": 1, "columns": ["a.b"]}})
    );
    // Without an argument that names fields there is no way to read it, and none is promised.
    let out = sizes(None, Some(10)).size(row.as_bytes(), &mut Touched::default());
    assert!(text(&out).contains("… [the first 10 of 210 characters]\""));
    // A call that names the field has it whole.
    let whole = policy.for_call(Some("fields"), vec![Path::new("a").unwrap()]);
    assert_eq!(
        text(&whole.size(row.as_bytes(), &mut Touched::default())),
        row
    );
    // A mark that is longer than what it stands for is not worth it.
    let row = format!(r#"["{}"]"#, "y".repeat(40));
    assert_eq!(
        text(&policy.size(row.as_bytes(), &mut Touched::default())),
        row
    );
}

#[test]
fn a_name_that_is_no_path_is_not_offered_as_one() {
    let policy = sizes(None, Some(10)).for_call(Some("fields"), Vec::new());
    let row = format!(r#"{{"a.b":"{}"}}"#, "x".repeat(200));
    let out = policy.size(row.as_bytes(), &mut Touched::default());
    assert_eq!(
        text(&out),
        r#"{"a.b":"xxxxxxxxxx… [the first 10 of 200 characters]"}"#
    );
}

#[test]
fn data_is_replaced_by_its_type_and_size() {
    let policy = sizes(Some(256), None).for_call(Some("fields"), Vec::new());
    let mut touched = Touched::default();
    let data = "iVBORw0KGgo".to_owned() + &"Ab0\\/".repeat(100);
    let row = format!(
        r#"{{"logo":"{data}","body":"see \"data:image/gif;base64,{}\"","k":1}}"#,
        "QUJD".repeat(100)
    );
    let out = policy.size(row.as_bytes(), &mut touched);
    assert_eq!(
        text(&out),
        r#"{"logo":"[image/png, 308 bytes; name logo in fields to read it whole]","body":"see \"[image/gif, 300 bytes; name body in fields to read it whole]\"","k":1}"#
    );
    assert_eq!(
        touched.json(),
        json!({"replaced": {"cells": 2, "columns": ["body", "logo"]}})
    );
}

#[test]
fn one_sentence_says_what_was_done_and_what_can_be_read() {
    let mut touched = Touched::default();
    assert_eq!(touched.notice(Some("fields")), None);
    touched.note(Change::Dropped, "secret");
    assert_eq!(
        touched.notice(Some("fields")).unwrap(),
        "Values of this answer were changed as its operator wants it: dropped secret (1 cell); what is dropped or masked \
         cannot be read here."
    );
    touched.note(Change::Masked, "email");
    touched.note(Change::Masked, "email");
    touched.note(Change::Shortened, "body");
    assert_eq!(
        touched.notice(Some("fields")).unwrap(),
        "Values of this answer were changed as its operator wants it: dropped secret (1 cell); masked email (2 cells); \
         shortened body (1 cell); what is dropped or masked cannot be read here, and name a replaced or shortened column in \
         fields to read it whole."
    );
    let mut sized = Touched::default();
    for column in 0..12 {
        sized.note(Change::Replaced, &format!("c{column:02}"));
    }
    assert_eq!(
        sized.notice(None).unwrap(),
        "Values of this answer were changed as its operator wants it: replaced c00, c01, c02, c03, c04, c05, c06, c07, c08, \
         c09, 2 more (12 cells); no argument of this tool shows the rest of what is replaced or shortened."
    );
    let mut many = Touched::default();
    for column in 0..1_000 {
        many.note(Change::Shortened, &format!("{column}"));
    }
    assert_eq!(many.0.len(), MAX_TOUCHED + 1);
    assert_eq!(many.0.values().sum::<u64>(), 1_000);
}

#[test]
fn the_numbers_are_those_of_the_reference() {
    assert_eq!(DEFAULT_DATA_CHARS, 256);
    assert_eq!(MASK, b"\"[masked]\"");
}

/// Any JSON text, with numbers and escapes that a parser would change.
fn any_json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        prop::sample::select(vec![
            "null",
            "true",
            "1.0",
            "-0",
            "1e400",
            "9007199254740993",
            "\"\"",
            "[ ]",
            "{ }",
            "\"\\u00e9\\ud83d\\ude00\\ud83d\"",
        ])
        .prop_map(str::to_owned),
        ".{0,60}".prop_map(|text| Value::from(text).to_string()),
        (0..400usize).prop_map(|length| Value::from("wörds ".repeat(length / 6)).to_string()),
        (60..300usize)
            .prop_map(|length| format!("\"data:image/png;base64,{}\"", "QUJD".repeat(length / 4))),
    ];
    let name = prop::sample::select(vec!["a", "b", "secret", "\\u0061", "größe"]);
    leaf.prop_recursive(4, 40, 5, move |inner| {
        prop_oneof![
            (prop::collection::vec(inner.clone(), 0..5), any::<bool>()).prop_map(
                |(items, spaced)| {
                    format!("[{}]", items.join(if spaced { " ,\n" } else { "," }))
                }
            ),
            (
                prop::collection::vec((name.clone(), inner), 0..5),
                any::<bool>()
            )
                .prop_map(|(members, spaced)| {
                    let members: Vec<String> = members
                        .iter()
                        .map(|(name, value)| {
                            if spaced {
                                format!("\"{name}\" : {value} ")
                            } else {
                                format!("\"{name}\":{value}")
                            }
                        })
                        .collect();
                    format!("{{{}}}", members.join(if spaced { ", " } else { "," }))
                }),
        ]
    })
}

/// Every scalar of a text with the names on the way to it, in order, as it is written.
fn scalars(text: &str) -> Vec<(Vec<String>, String)> {
    fn walk(text: &[u8], at: usize, names: &mut Vec<String>, out: &mut Vec<(Vec<String>, String)>) {
        match text[at] {
            b'{' => {
                for member in json::members(text, at).map(Result::unwrap) {
                    names.push(json::name(&text[member.key]).unwrap().into_owned());
                    walk(text, member.value.start, names, out);
                    names.pop();
                }
            }
            b'[' => {
                for element in json::elements(text, at).map(Result::unwrap) {
                    walk(text, element.start, names, out);
                }
            }
            _ => {
                let end = json::skip_value(text, at).unwrap();
                out.push((
                    names.clone(),
                    String::from_utf8(text[at..end].to_vec()).unwrap(),
                ));
            }
        }
    }
    let mut out = Vec::new();
    walk(
        text.as_bytes(),
        json::skip_space(text.as_bytes(), 0),
        &mut Vec::new(),
        &mut out,
    );
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_withheld_is_gone_and_every_other_scalar_is_as_it_was(row in any_json()) {
        let policy = policy(&["secret", "b.secret"], &["a.b", "größe"]);
        let out = policy.privacy(row.as_bytes(), &mut Touched::default()).into_owned();
        let out = text(&out);
        prop_assert_eq!(json::validate(out.as_bytes()), Ok(()));
        let starts = |names: &[String], path: &[&str]| names.len() >= path.len() && names.iter().zip(path).all(|(name, step)| name == step);
        let dropped = |names: &[String]| starts(names, &["secret"]) || starts(names, &["b", "secret"]);
        let masked = |names: &[String]| starts(names, &["a", "b"]) || starts(names, &["größe"]);
        let left: Vec<_> = scalars(&row).into_iter().filter(|(names, _)| !dropped(names) && !masked(names)).collect();
        let found: Vec<_> = scalars(out).into_iter().filter(|(names, _)| !masked(names)).collect();
        prop_assert_eq!(found, left);
        for (names, value) in scalars(out) {
            prop_assert!(!dropped(&names), "{}", out);
            prop_assert!(!masked(&names) || value == "\"[masked]\"", "{}", out);
        }
        let again = policy.privacy(out.as_bytes(), &mut Touched::default()).into_owned();
        prop_assert_eq!(text(&again), out);
        // What is not written by the policy is in the row, in order: nothing around the values is made anew.
        let mut rest = row.as_str();
        for piece in out.split("\"[masked]\"") {
            for character in piece.chars() {
                let at = rest.find(character);
                prop_assert!(at.is_some(), "{} is not a part of {}", out, row);
                rest = &rest[at.unwrap_or_default() + character.len_utf8()..];
            }
        }
    }

    #[test]
    fn only_texts_become_smaller_and_only_those_that_are_too_long(row in any_json(), max in 1..80u32) {
        let policy = sizes(Some(64), Some(max)).for_call(Some("fields"), Vec::new());
        let mut touched = Touched::default();
        let out = policy.size(row.as_bytes(), &mut touched).into_owned();
        let out = text(&out);
        prop_assert_eq!(json::validate(out.as_bytes()), Ok(()));
        prop_assert!(out.chars().count() <= row.chars().count());
        let (before, after) = (scalars(&row), scalars(out));
        prop_assert_eq!(before.len(), after.len());
        let mut changed = 0;
        for ((names, before), (same, after)) in before.iter().zip(&after) {
            prop_assert_eq!(names, same);
            if before == after {
                continue;
            }
            changed += 1;
            prop_assert!(before.starts_with('"') && graphemes::count(&before.as_bytes()[1..before.len() - 1]) > max.min(64) as usize);
            let is_marked = after.ends_with("to read it whole]\"") || after.ends_with(" characters]\"");
            prop_assert!(is_marked || after.contains("[image/png, "), "{}", after);
        }
        prop_assert_eq!(touched.is_empty(), changed == 0);
        // What did not change has every byte around its values as well.
        if changed == 0 {
            prop_assert_eq!(out, row);
        }
    }

    #[test]
    fn no_bytes_make_a_pass_panic(bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"{}[]\",:\\aud8 ".to_vec())], 0..80)) {
        let policy = CellPolicy::new(&paths(&["a"]), &paths(&["d"]), Some(4), Some(2)).unwrap();
        policy.privacy(&bytes, &mut Touched::default());
        policy.size(&bytes, &mut Touched::default());
        let quoted = [b"\"".as_slice(), &bytes, b"\""].concat();
        policy.size(&quoted, &mut Touched::default());
    }
}
