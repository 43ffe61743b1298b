//! The hosts that a plugin may send requests to: what the operator granted, and what a request asks for, both parsed by
//! the same parser and never matched as text.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, bail};
use http::Uri;
use url::{Host, Url};

use super::address::{Class, class};

/// What an entry looks like, for messages.
const EXPECTED: &str = "expected a scheme, a host or `*.` and a domain, and a port where it is not the scheme's own, such \
                        as `https://api.example.com` or `https://*.example.com:8443`";

/// The two schemes of `wasi:http`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    fn of(url: &Url) -> Option<Self> {
        match url.scheme() {
            "http" => Some(Self::Http),
            "https" => Some(Self::Https),
            _ => None,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    Exact(Host),
    /// Every name below this domain, at any depth; not the domain itself.
    Below(String),
}

impl Pattern {
    fn fits(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Exact(granted), host) => granted == host,
            (Self::Below(domain), Host::Domain(name)) => name
                .strip_suffix(domain.as_str())
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            (Self::Below(_), _) => false,
        }
    }
}

/// One host that is granted: scheme, host or domain, port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostGrant {
    scheme: Scheme,
    host: Pattern,
    port: u16,
    is_private: bool,
}

impl HostGrant {
    /// A host on the internet. Its addresses have to be public.
    pub fn public(text: &str) -> anyhow::Result<Self> {
        let grant = Self::parse(text, false)?;
        if let Some(address) = grant.address()
            && let Class::Private(kind) | Class::Neighbour(kind) = class(address)
        {
            bail!(
                "`{text}` is a {kind} address, which needs a grant of its own\nhint: name it in `private_hosts`"
            );
        }
        Ok(grant)
    }

    /// A host whose addresses may be loopback, private or otherwise of the operator's own network. Link-local ones are
    /// reached only where the grant is the address itself.
    pub fn private(text: &str) -> anyhow::Result<Self> {
        Self::parse(text, true)
    }

    fn parse(text: &str, is_private: bool) -> anyhow::Result<Self> {
        let url = Url::parse(text).with_context(|| format!("{EXPECTED}, found `{text}`"))?;
        let Some(scheme) = Scheme::of(&url) else {
            bail!("{EXPECTED}, found `{text}`: the scheme is `http` or `https`");
        };
        if !url.username().is_empty() || url.password().is_some() || text.contains('@') {
            bail!("{EXPECTED}, found `{text}`: a user has no place in it");
        }
        if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
            bail!(
                "{EXPECTED}, found `{text}`: a path has no place in it, since a grant is for a whole host"
            );
        }
        let host = url
            .host()
            .with_context(|| format!("{EXPECTED}, found `{text}`: it has no host"))?
            .to_owned();
        let host = match &host {
            Host::Domain(name) if name.contains('*') => {
                let domain = name
                    .strip_prefix("*.")
                    .filter(|domain| !domain.contains('*') && !domain.ends_with('.'));
                let Some(domain) = domain.filter(|domain| domain.contains('.')) else {
                    bail!(
                        "{EXPECTED}, found `{text}`: `*` stands for whole names before a domain of at least two labels"
                    );
                };
                Pattern::Below(domain.to_owned())
            }
            _ => Pattern::Exact(host),
        };
        let grant = Self {
            scheme,
            host,
            port: url.port().unwrap_or(scheme.port()),
            is_private,
        };
        if let Some(Class::Never(kind)) = grant.address().map(class) {
            bail!("`{text}` is a {kind} address, to which no request is sent");
        }
        Ok(grant)
    }

    fn fits(&self, target: &Target) -> bool {
        self.scheme == target.scheme && self.port == target.port && self.host.fits(&target.host)
    }

    /// The address, where the grant is one.
    fn address(&self) -> Option<IpAddr> {
        match self.host {
            Pattern::Exact(Host::Ipv4(address)) => Some(address.into()),
            Pattern::Exact(Host::Ipv6(address)) => Some(address.into()),
            _ => None,
        }
    }

    /// Whether its addresses may be private.
    pub fn is_private(&self) -> bool {
        self.is_private
    }
}

impl fmt::Display for HostGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if matches!(self.host, Pattern::Below(_)) {
            "*."
        } else {
            ""
        };
        let host = match &self.host {
            Pattern::Exact(host) => host.to_string(),
            Pattern::Below(domain) => domain.clone(),
        };
        write!(
            f,
            "{}://{star}{host}{}",
            self.scheme.as_str(),
            port_suffix(self.scheme, self.port)
        )
    }
}

fn port_suffix(scheme: Scheme, port: u16) -> String {
    if port == scheme.port() {
        String::new()
    } else {
        format!(":{port}")
    }
}

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) scheme: Scheme,
    pub(super) host: Host,
    pub(super) port: u16,
}

impl Target {
    /// Reads a request's scheme and authority as browsers do, so that `2130706433` is the address it means. The error
    /// says what is wrong with it.
    pub(super) fn of(uri: &Uri) -> Result<Self, String> {
        let scheme = uri.scheme_str().unwrap_or_default();
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        if authority.contains('@') {
            return Err(
                "its authority names a user, which is refused since it hides the host".to_owned(),
            );
        }
        let invalid = || format!("`{scheme}://{authority}` is not a host and a port");
        let url = Url::parse(&format!("{scheme}://{authority}/")).map_err(|_| invalid())?;
        let scheme = Scheme::of(&url).ok_or_else(invalid)?;
        // What the parser reads as anything but a host would be a second opinion on where the host ends.
        if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
            return Err(invalid());
        }
        let host = url.host().ok_or_else(invalid)?.to_owned();
        Ok(Self {
            scheme,
            host,
            port: url.port().unwrap_or(scheme.port()),
        })
    }

    /// As the `Host` header has it: what was checked, and not what the guest wrote.
    pub(super) fn authority(&self) -> String {
        format!("{}{}", self.host, port_suffix(self.scheme, self.port))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.authority())
    }
}

/// Which addresses a target that is granted may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reach {
    private: bool,
    /// A private grant is this address itself.
    named: Option<IpAddr>,
}

impl Reach {
    /// What the hosts grant a target, if anything.
    pub(super) fn of(target: &Target, hosts: &[HostGrant]) -> Option<Self> {
        let mut reach = None;
        for grant in hosts.iter().filter(|grant| grant.fits(target)) {
            let found = reach.get_or_insert(Self {
                private: false,
                named: None,
            });
            if grant.is_private {
                found.private = true;
                found.named = found.named.or(grant.address());
            }
        }
        reach
    }

    /// Whether every address may be connected to; the error says which may not and why. One that may not condemns all:
    /// a name with a public and a private address is what rebinding looks like.
    pub(super) fn check(self, target: &Target, addresses: &[SocketAddr]) -> Result<(), String> {
        for address in addresses.iter().map(SocketAddr::ip) {
            match class(address) {
                Class::Public => {}
                Class::Private(_) if self.private => {}
                Class::Neighbour(_) if self.named == Some(address) => {}
                Class::Private(kind) => {
                    return Err(format!(
                        "`{target}` has the {kind} address {address}, which needs a grant of its own: add \"{target}\" to \
                         `private_hosts`"
                    ));
                }
                Class::Neighbour(kind) => {
                    return Err(format!(
                        "`{target}` has the {kind} address {address}, which is reached only where `private_hosts` names the \
                         address itself"
                    ));
                }
                Class::Never(kind) => {
                    return Err(format!(
                        "`{target}` has the {kind} address {address}, which no grant opens"
                    ));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(uri: &str) -> Result<Target, String> {
        Target::of(&uri.parse::<Uri>().unwrap())
    }

    fn fits(grant: &str, uri: &str) -> bool {
        Reach::of(&target(uri).unwrap(), &[HostGrant::private(grant).unwrap()]).is_some()
    }

    /// Case Q1.
    #[test]
    fn q1_a_grant_is_for_scheme_host_and_port_and_nothing_that_looks_like_it() {
        let grant = "https://api.example.com";
        for uri in [
            "https://api.example.com/",
            "https://API.EXAMPLE.COM/x?y",
            "https://api.example.com:443/",
        ] {
            assert!(fits(grant, uri), "{uri}");
        }
        for uri in [
            "http://api.example.com/",
            "https://api.example.com:8443/",
            "https://api.example.com.evil.test/",
            "https://evil.test/?x=api.example.com",
            "https://evil.test/api.example.com",
            "https://xapi.example.com/",
            "https://example.com/",
            "https://x.api.example.com/",
            "https://api.example.com./",
        ] {
            assert!(!fits(grant, uri), "{uri}");
        }
        let below = "https://*.example.com:8443";
        assert!(fits(below, "https://a.example.com:8443/"));
        assert!(fits(below, "https://a.b.example.com:8443/"));
        for uri in [
            "https://example.com:8443/",
            "https://.example.com:8443/",
            "https://aexample.com:8443/",
            "https://a.example.com/",
            "https://a.example.com.evil.test:8443/",
        ] {
            assert!(
                !target(uri).is_ok_and(|target| Reach::of(
                    &target,
                    &[HostGrant::public(below).unwrap()]
                )
                .is_some()),
                "{uri}"
            );
        }
    }

    /// Case Q3: what hides an address is undone before anything is compared.
    #[test]
    fn q3_addresses_are_read_as_what_they_mean() {
        for (uri, host) in [
            ("http://2130706433/", "http://127.0.0.1"),
            ("http://0x7f000001/", "http://127.0.0.1"),
            ("http://0177.0.0.1/", "http://127.0.0.1"),
            ("http://127.1/", "http://127.0.0.1"),
            ("http://[::1]:8080/", "http://[::1]:8080"),
            ("http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]"),
        ] {
            assert_eq!(target(uri).unwrap().to_string(), host, "{uri}");
        }
        assert!(
            target("http://user@host/")
                .unwrap_err()
                .contains("names a user")
        );
        assert!(
            target("http://api.example.com@127.0.0.1/")
                .unwrap_err()
                .contains("names a user")
        );
        assert!(target("http://1.2.3.4.5/").is_err());
    }

    #[test]
    fn q3_an_address_needs_a_grant_of_its_class() {
        let check = |grant: HostGrant, uri: &str, addresses: &[&str]| {
            let target = target(uri).unwrap();
            let addresses: Vec<SocketAddr> = addresses
                .iter()
                .map(|ip| (ip.parse::<IpAddr>().unwrap(), target.port).into())
                .collect();
            Reach::of(&target, &[grant])
                .unwrap()
                .check(&target, &addresses)
        };
        let public = || HostGrant::public("http://a.test").unwrap();
        let private = || HostGrant::private("http://a.test").unwrap();
        assert_eq!(
            check(public(), "http://a.test/", &["1.1.1.1", "2606:4700::1"]),
            Ok(())
        );
        for address in [
            "127.0.0.1",
            "10.0.0.1",
            "100.64.0.1",
            "::1",
            "fd00::1",
            "::ffff:127.0.0.1",
            "2002:7f00:1::",
        ] {
            assert!(
                check(public(), "http://a.test/", &["1.1.1.1", address])
                    .unwrap_err()
                    .contains("`private_hosts`"),
                "{address}"
            );
            assert_eq!(
                check(private(), "http://a.test/", &["1.1.1.1", address]),
                Ok(()),
                "{address}"
            );
        }
        for address in [
            "169.254.169.254",
            "fd00:ec2::254",
            "fe80::1",
            "0.0.0.0",
            "255.255.255.255",
            "224.0.0.1",
            "::",
        ] {
            assert!(
                check(private(), "http://a.test/", &[address]).is_err(),
                "{address}"
            );
        }
        let named = HostGrant::private("http://169.254.169.254").unwrap();
        assert_eq!(
            check(
                named.clone(),
                "http://169.254.169.254/",
                &["169.254.169.254"]
            ),
            Ok(())
        );
        assert!(check(named, "http://169.254.169.254/", &["169.254.170.2"]).is_err());
    }

    #[test]
    fn an_entry_that_is_no_host_says_what_was_expected() {
        let table = [
            ("api.example.com", "expected a scheme"),
            ("ftp://a.test", "the scheme is `http` or `https`"),
            ("https://user:word@a.test", "a user has no place in it"),
            ("https://a.test/path", "a path has no place in it"),
            ("https://a.test?x=y", "a path has no place in it"),
            ("https://*", "at least two labels"),
            ("https://*.com", "at least two labels"),
            ("https://a.*.test", "at least two labels"),
            ("https://*.*.a.test", "at least two labels"),
            ("https://", "expected a scheme"),
            ("http://127.0.0.1:9000", "name it in `private_hosts`"),
            ("http://2130706433", "loopback address"),
            ("http://[::1]", "loopback address"),
            ("http://169.254.169.254", "link-local address"),
            ("http://0.0.0.0", "no request is sent"),
            ("http://[::]", "no request is sent"),
            ("http://[::ffff:0.0.0.0]", "no request is sent"),
        ];
        for (text, expected) in table {
            let error = format!("{:#}", HostGrant::public(text).unwrap_err());
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert_eq!(
            HostGrant::public("https://API.example.com:443/")
                .unwrap()
                .to_string(),
            "https://api.example.com"
        );
        assert_eq!(
            HostGrant::public("https://*.example.com:8443")
                .unwrap()
                .to_string(),
            "https://*.example.com:8443"
        );
    }
}
