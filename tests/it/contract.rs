//! The contract is frozen: a change of the resolved worlds shows here.

use wit_parser::Resolve;

use crate::support::root;

/// The worlds with every interface that they reach, as WIT text.
fn resolved() -> String {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(root().join("wit/v0.1")).unwrap();
    let mut printer = wit_component::WitPrinter::default();
    let others: Vec<_> = resolve
        .packages
        .iter()
        .map(|(id, _)| id)
        .filter(|id| *id != package)
        .collect();
    printer.print(&resolve, package, &others).unwrap();
    printer.output.to_string()
}

#[test]
fn the_resolved_worlds_are_those_of_the_snapshot() {
    insta::with_settings!({ snapshot_path => "snapshots", prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("contract-v0.1", resolved());
    });
}

#[test]
fn every_item_is_documented_and_says_since_when() {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(root().join("wit/v0.1")).unwrap();
    let package = &resolve.packages[package];
    let undocumented = |docs: &wit_parser::Docs| {
        docs.contents
            .as_deref()
            .unwrap_or_default()
            .trim()
            .is_empty()
    };
    for (name, id) in &package.worlds {
        let world = &resolve.worlds[*id];
        assert!(!undocumented(&world.docs), "world {name}");
        assert!(
            matches!(world.stability, wit_parser::Stability::Stable { .. }),
            "world {name}"
        );
    }
    for (interface_name, id) in &package.interfaces {
        let interface = &resolve.interfaces[*id];
        assert!(!undocumented(&interface.docs), "interface {interface_name}");
        assert!(
            matches!(interface.stability, wit_parser::Stability::Stable { .. }),
            "interface {interface_name}"
        );
        for (name, id) in &interface.types {
            let kind = &resolve.types[*id];
            if matches!(kind.kind, wit_parser::TypeDefKind::Type(_)) {
                continue; // A `use` of a type that is documented where it is defined.
            }
            assert!(!undocumented(&kind.docs), "{interface_name}.{name}");
            let members: Vec<(&str, &wit_parser::Docs)> = match &kind.kind {
                wit_parser::TypeDefKind::Record(record) => record
                    .fields
                    .iter()
                    .map(|f| (f.name.as_str(), &f.docs))
                    .collect(),
                wit_parser::TypeDefKind::Variant(variant) => variant
                    .cases
                    .iter()
                    .map(|c| (c.name.as_str(), &c.docs))
                    .collect(),
                wit_parser::TypeDefKind::Enum(cases) => cases
                    .cases
                    .iter()
                    .map(|c| (c.name.as_str(), &c.docs))
                    .collect(),
                wit_parser::TypeDefKind::Flags(flags) => flags
                    .flags
                    .iter()
                    .map(|f| (f.name.as_str(), &f.docs))
                    .collect(),
                _ => Vec::new(),
            };
            for (member, docs) in members {
                assert!(!undocumented(docs), "{interface_name}.{name}.{member}");
            }
        }
        for (name, function) in &interface.functions {
            assert!(!undocumented(&function.docs), "{interface_name}.{name}");
            assert!(
                matches!(function.stability, wit_parser::Stability::Stable { .. }),
                "{interface_name}.{name}"
            );
        }
    }
}
