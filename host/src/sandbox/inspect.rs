//! What a component exports and imports, against what the host offers and the operator grants.

use std::fmt::Write as _;

use anyhow::bail;
use wasmtime::Engine;
use wasmtime::component::Component;
use wasmtime::component::types::ComponentItem;

use super::grants::Grants;
use super::load::World;

/// What an interface needs of a plugin's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// Nothing: it gives away nothing without a grant.
    Nothing,
    Clock,
    Random,
    Hosts,
    Connections,
}

impl Needs {
    /// All that have a line, in the order of a plugin's entry.
    const GRANTED: [Self; 4] = [Self::Clock, Self::Random, Self::Hosts, Self::Connections];

    /// The line of the entry that grants it.
    fn line(self) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::Clock => Some("clock = true"),
            Self::Random => Some("random = true"),
            Self::Hosts => Some("hosts = [\"https://HOST\"]"),
            Self::Connections => Some("connections.NAME.url = \"postgres://USER@HOST/DATABASE\""),
        }
    }

    fn is_granted(self, grants: &Grants) -> bool {
        match self {
            Self::Nothing => true,
            Self::Clock => grants.clock,
            Self::Random => grants.random,
            // An empty list grants the interface, and then denies every request: the runtimes of some languages import it
            // whether or not the plugin sends any.
            Self::Hosts => grants.hosts.is_some(),
            Self::Connections => !grants.connections.is_empty(),
        }
    }
}

/// A package of the host: name, version, and its interfaces.
pub(super) struct Package {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    needs: Needs,
    pub(super) interfaces: &'static [&'static str],
}

/// All that the host offers. The versions are those of the WIT here and in wasmtime-wasi 48; by the component model's
/// rule a guest of 0.2.6 finds 0.2.12, and one of 0.3.0 does not.
pub(super) const OFFERED: &[Package] = &[
    Package {
        name: "plimsoll:plugin",
        version: "0.1.0",
        needs: Needs::Nothing,
        interfaces: &["log", "reply", "shaping", "types"],
    },
    Package {
        name: "plimsoll:plugin",
        version: "0.1.0",
        needs: Needs::Connections,
        interfaces: &["sql"],
    },
    Package {
        name: "wasi:config",
        version: "0.2.0-rc.1",
        needs: Needs::Nothing,
        interfaces: &["store"],
    },
    Package {
        name: "wasi:cli",
        version: "0.2.12",
        needs: Needs::Nothing,
        interfaces: &[
            "environment",
            "exit",
            "stderr",
            "stdin",
            "stdout",
            "terminal-input",
            "terminal-output",
            "terminal-stderr",
            "terminal-stdin",
            "terminal-stdout",
        ],
    },
    Package {
        name: "wasi:io",
        version: "0.2.12",
        needs: Needs::Nothing,
        interfaces: &["error", "poll", "streams"],
    },
    Package {
        name: "wasi:filesystem",
        version: "0.2.12",
        needs: Needs::Nothing,
        interfaces: &["preopens", "types"],
    },
    Package {
        name: "wasi:clocks",
        version: "0.2.12",
        needs: Needs::Clock,
        interfaces: &["monotonic-clock", "wall-clock"],
    },
    Package {
        name: "wasi:http",
        version: "0.2.12",
        needs: Needs::Hosts,
        interfaces: &["outgoing-handler", "types"],
    },
    Package {
        name: "wasi:random",
        version: "0.2.12",
        needs: Needs::Random,
        interfaces: &["insecure", "insecure-seed", "random"],
    },
];

/// What a component is and wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// The world that its exports fit, if they fit one.
    pub world: Option<World>,
    /// What it exports.
    pub exports: Vec<String>,
    /// What it imports.
    pub imports: Vec<String>,
    /// The lines that its entry in `plimsoll.toml` needs, such as `clock = true`.
    pub needed: Vec<String>,
    /// Imports that the host does not offer, each with what it offers instead.
    pub missing: Vec<String>,
    /// The imports behind `needed`.
    wanted: Vec<(String, Needs)>,
}

/// An import that needs a line of the plugin's entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// The interface with its version.
    pub import: String,
    /// The line that grants it.
    pub line: &'static str,
    /// Whether the entry grants it.
    pub is_granted: bool,
}

/// The hint that lists all that the host offers.
pub(super) fn offer() -> String {
    let mut text = String::from("hint: the host offers");
    for (
        index,
        Package {
            name,
            version,
            interfaces,
            ..
        },
    ) in OFFERED.iter().enumerate()
    {
        let comma = if index == 0 { "" } else { "," };
        write!(
            text,
            "{comma} `{name}@{version}` ({})",
            interfaces.join(", ")
        )
        .expect("a string takes all that is written");
    }
    text
}

/// Reads what a component exports and imports.
pub(super) fn inspect(engine: &Engine, component: &Component) -> Inspection {
    let ty = component.component_type();
    let exports: Vec<String> = ty
        .exports(engine)
        .map(|(name, _)| name.to_owned())
        .collect();
    let is_exported = |world: World| {
        exports
            .iter()
            .any(|export| is_compatible(export, world.export()))
    };
    let world = match World::ALL.map(is_exported) {
        [true, true] => Some(World::BackendWithTools),
        [true, false] => Some(World::ToolHandler),
        [false, true] => Some(World::BackendAdapter),
        [false, false] => None,
    };

    let mut inspection = Inspection {
        world,
        exports,
        imports: Vec::new(),
        needed: Vec::new(),
        missing: Vec::new(),
        wanted: Vec::new(),
    };
    for (name, import) in ty.imports(engine) {
        inspection.imports.push(name.to_owned());
        inspection.classify(name, is_used(engine, &import.ty));
    }
    for needs in Needs::GRANTED {
        if inspection.wanted.iter().any(|(_, wanted)| *wanted == needs) {
            inspection.needed.extend(needs.line().map(str::to_owned));
        }
    }
    inspection
}

impl Inspection {
    fn classify(&mut self, import: &str, is_used: bool) {
        let (interface, version) = split(import);
        let offered = OFFERED.iter().find_map(|package| {
            let name = interface.strip_prefix(package.name)?.strip_prefix('/')?;
            package.interfaces.contains(&name).then_some(package)
        });
        match offered {
            Some(package) => {
                let offer = format!("{interface}@{}", package.version);
                if version.is_empty() || !is_compatible(import, &offer) {
                    self.missing
                        .push(format!("it wants `{import}`, the host offers `{offer}`"));
                } else if is_used && package.needs != Needs::Nothing {
                    self.wanted.push((import.to_owned(), package.needs));
                }
            }
            // Types alone, which some interface of the component's own packages defines: nothing to link.
            None if !is_used => {}
            None if interface.starts_with("wasi:sockets/") => {
                self.missing.push(format!("it wants `{import}`, the host offers no sockets, only `wasi:http/outgoing-handler`"));
            }
            None => self.missing.push(format!(
                "it wants `{import}`, the host offers nothing of that name"
            )),
        }
    }

    /// What of it needs a grant, against what is granted.
    pub fn wants(&self, grants: &Grants) -> Vec<Want> {
        let want = |(import, needs): &(String, Needs)| {
            Some(Want {
                import: import.clone(),
                line: needs.line()?,
                is_granted: needs.is_granted(grants),
            })
        };
        self.wanted.iter().filter_map(want).collect()
    }

    /// The world, or what was expected and what the component exports.
    pub(super) fn expect_world(&self) -> anyhow::Result<World> {
        if let Some(world) = self.world {
            return Ok(world);
        }
        let expected: Vec<String> = World::ALL
            .iter()
            .map(|world| format!("`{}` (world `{world}`)", world.export()))
            .collect();
        let expected = expected.join(" or ");
        let found = match &self.exports[..] {
            [] => String::from("nothing"),
            exports => exports
                .iter()
                .map(|export| format!("`{export}`"))
                .collect::<Vec<_>>()
                .join(", "),
        };
        for world in World::ALL {
            let is_same = |export: &&String| split(export).0 == split(world.export()).0;
            if let Some(export) = self.exports.iter().find(is_same)
                && !is_compatible(export, world.export())
            {
                bail!("it exports `{export}`, the host knows `{}`", world.export());
            }
        }
        bail!("it fits no world of the contract: expected one export of {expected}, found: {found}")
    }

    /// Whether all imports are offered and granted, or what is missing and how to grant it.
    pub(super) fn check(&self, name: &str, grants: &Grants) -> anyhow::Result<()> {
        if !self.missing.is_empty() {
            bail!("{}\n{}", self.missing.join("\n"), offer());
        }
        let refused: Vec<&(String, Needs)> = self
            .wanted
            .iter()
            .filter(|(_, needs)| !needs.is_granted(grants))
            .collect();
        if refused.is_empty() {
            return Ok(());
        }
        let wanted = refused
            .iter()
            .map(|(import, _)| format!("`{import}`"))
            .collect::<Vec<_>>()
            .join(", ");
        let lines = Needs::GRANTED
            .into_iter()
            .filter(|needs| refused.iter().any(|(_, refused)| refused == needs))
            .filter_map(Needs::line)
            .collect::<Vec<_>>()
            .join("\n");
        bail!(
            "it wants {wanted}, which its entry does not grant\nhint: add to `plimsoll.toml`\n[plugins.{}]\n{lines}",
            key(name)
        )
    }
}

/// Whether the host has to provide anything for an import: functions or resources, and not types alone. WASI's file
/// system imports `wall-clock` only to name the type of a time.
fn is_used(engine: &Engine, item: &ComponentItem) -> bool {
    match item {
        ComponentItem::ComponentInstance(instance) => instance
            .exports(engine)
            .any(|(_, export)| is_used(engine, &export.ty)),
        ComponentItem::Type(_) => false,
        _ => true,
    }
}

/// A name as interface and version; the version is empty where there is none.
fn split(name: &str) -> (&str, &str) {
    name.split_once('@').unwrap_or((name, ""))
}

/// Whether a name finds what is offered, by the component model's rule: equal, or the same up to the first part of the
/// version that is not zero. Early releases and 0.0.x find only themselves.
pub(super) fn is_compatible(name: &str, offered: &str) -> bool {
    let ((interface, version), (offered_interface, offered_version)) =
        (split(name), split(offered));
    if interface != offered_interface {
        return false;
    }
    if version == offered_version {
        return true;
    }
    match (track(version), track(offered_version)) {
        (Some(track), Some(offered)) => track == offered,
        _ => false,
    }
}

/// The part of a version within which releases are compatible.
fn track(version: &str) -> Option<(u64, u64)> {
    let release = version
        .split('+')
        .next()
        .filter(|release| !release.contains('-'))?;
    let mut parts = release.split('.').map(|part| part.parse::<u64>().ok());
    match (parts.next()??, parts.next()??, parts.next()??, parts.next()) {
        (0, 0, _, None) => None,
        (0, minor, _, None) => Some((0, minor)),
        (major, _, _, None) => Some((major, 0)),
        _ => None,
    }
}

/// The name as a key of TOML.
fn key(name: &str) -> String {
    let is_bare = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if is_bare {
        name.to_owned()
    } else {
        format!("{name:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compatible_as_the_linker_has_it() {
        let pairs = [
            ("a:b/c@0.2.0", "a:b/c@0.2.12", true),
            ("a:b/c@0.2.99", "a:b/c@0.2.12", true),
            ("a:b/c@0.3.0", "a:b/c@0.2.12", false),
            ("a:b/c@1.4.0", "a:b/c@1.0.0", true),
            ("a:b/c@2.0.0", "a:b/c@1.0.0", false),
            ("a:b/c@0.2.0-rc.1", "a:b/c@0.2.0-rc.1", true),
            ("a:b/c@0.2.0-rc.2", "a:b/c@0.2.0-rc.1", false),
            ("a:b/c@0.2.0", "a:b/c@0.2.0-rc.1", false),
            ("a:b/c@0.0.1", "a:b/c@0.0.2", false),
            ("a:b/c", "a:b/c@0.2.0", false),
            ("a:b/d@0.2.0", "a:b/c@0.2.0", false),
            ("a:b/c@x", "a:b/c@0.2.0", false),
        ];
        for (name, offered, expected) in pairs {
            assert_eq!(is_compatible(name, offered), expected, "{name} {offered}");
        }
    }

    #[test]
    fn a_name_is_quoted_where_toml_wants_it() {
        assert_eq!(key("fleet-2"), "fleet-2");
        assert_eq!(key("a.b"), "\"a.b\"");
    }
}
