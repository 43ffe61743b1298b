//! Which addresses a plugin's requests may reach: what an address is, whatever form hides it.
//!
//! Owns the classes alone. Whether one is granted is [`hosts`](super::hosts)' affair. The ranges are those of IANA's
//! registries of special-purpose addresses (RFC 6890 and its successors).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What an address is to a host that lets guests send requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// On the internet.
    Public,
    /// In the operator's own network; the word says how. It needs a grant of its own.
    Private(&'static str),
    /// Where clouds hand out credentials, or another neighbour on the link. It needs a grant that names this address.
    Neighbour(&'static str),
    /// Nothing that a request is ever sent to.
    Never(&'static str),
}

/// The class of an address.
pub(super) fn class(address: IpAddr) -> Class {
    match address {
        IpAddr::V4(address) => class_v4(address),
        IpAddr::V6(address) => class_v6(address),
    }
}

fn class_v4(address: Ipv4Addr) -> Class {
    match address.octets() {
        [0, ..] => Class::Never("unspecified"),
        [127, ..] => Class::Private("loopback"),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Class::Private("private"),
        // Alibaba's metadata service has an address of the shared range.
        [100, 100, 100, 200] => Class::Neighbour("cloud metadata"),
        [100, 64..=127, ..] => Class::Private("carrier-grade NAT"),
        // 169.254.169.254 and its like are not told apart: every address of the link may be a metadata service.
        [169, 254, ..] => Class::Neighbour("link-local"),
        [198, 18..=19, ..] => Class::Private("benchmarking"),
        [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 51, 100, _] | [203, 0, 113, _] => {
            Class::Never("reserved")
        }
        [224..=239, ..] => Class::Never("multicast"),
        [255, 255, 255, 255] => Class::Never("broadcast"),
        [240..=255, ..] => Class::Never("reserved"),
        _ => Class::Public,
    }
}

fn class_v6(address: Ipv6Addr) -> Class {
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        class_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Class::Never("unspecified"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Class::Private("loopback"),
        // An IPv4 address in IPv6 clothes: compatible, mapped, translated, NAT64, 6to4.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => {
            embedded(high, low)
        }
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        [0x2002, high, low, ..] => embedded(high, low),
        // NAT64 with a prefix of the operator's own, which may lead anywhere in the network.
        [0x64, 0xff9b, 1, ..] => Class::Private("local NAT64"),
        // Teredo hides an IPv4 address and nobody serves there; the next two are for documents.
        [0x2001, 0, ..] => Class::Never("tunnelled"),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Class::Never("reserved"),
        // Amazon's metadata services for IPv6.
        [0xfd00, 0xec2, ..] => Class::Neighbour("cloud metadata"),
        [0xfc00..=0xfdff, ..] => Class::Private("unique local"),
        [0xfe80..=0xfebf, ..] => Class::Neighbour("link-local"),
        [0xfec0..=0xfeff, ..] => Class::Private("site-local"),
        [0xff00..=0xffff, ..] => Class::Never("multicast"),
        // All that was ever given out for the internet.
        [0x2000..=0x3fff, ..] => Class::Public,
        _ => Class::Never("reserved"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case Q3.
    #[test]
    fn q3_every_class_of_address_is_known_in_every_form() {
        let table = [
            ("93.184.215.14", Class::Public),
            ("1.1.1.1", Class::Public),
            ("2606:4700::1111", Class::Public),
            ("127.0.0.1", Class::Private("loopback")),
            ("127.255.255.254", Class::Private("loopback")),
            ("::1", Class::Private("loopback")),
            ("10.1.2.3", Class::Private("private")),
            ("172.15.255.255", Class::Public),
            ("172.16.0.1", Class::Private("private")),
            ("172.31.255.255", Class::Private("private")),
            ("172.32.0.1", Class::Public),
            ("192.168.0.1", Class::Private("private")),
            ("100.63.255.255", Class::Public),
            ("100.64.0.1", Class::Private("carrier-grade NAT")),
            ("100.127.255.255", Class::Private("carrier-grade NAT")),
            ("100.128.0.1", Class::Public),
            ("100.100.100.200", Class::Neighbour("cloud metadata")),
            ("169.254.169.254", Class::Neighbour("link-local")),
            ("fd00:ec2::254", Class::Neighbour("cloud metadata")),
            ("fe80::1", Class::Neighbour("link-local")),
            ("fc00::1", Class::Private("unique local")),
            ("fd12:3456::1", Class::Private("unique local")),
            ("fec0::1", Class::Private("site-local")),
            ("0.0.0.0", Class::Never("unspecified")),
            ("0.1.2.3", Class::Never("unspecified")),
            ("::", Class::Never("unspecified")),
            ("224.0.0.1", Class::Never("multicast")),
            ("ff02::1", Class::Never("multicast")),
            ("255.255.255.255", Class::Never("broadcast")),
            ("240.0.0.1", Class::Never("reserved")),
            ("192.0.2.1", Class::Never("reserved")),
            ("2001:db8::1", Class::Never("reserved")),
            ("4000::1", Class::Never("reserved")),
            ("2001::1", Class::Never("tunnelled")),
            ("::ffff:127.0.0.1", Class::Private("loopback")),
            ("::ffff:10.0.0.1", Class::Private("private")),
            ("::ffff:169.254.169.254", Class::Neighbour("link-local")),
            ("::ffff:1.1.1.1", Class::Public),
            ("::127.0.0.1", Class::Private("loopback")),
            ("::ffff:0:127.0.0.1", Class::Private("loopback")),
            ("64:ff9b::127.0.0.1", Class::Private("loopback")),
            ("64:ff9b::a9fe:a9fe", Class::Neighbour("link-local")),
            ("64:ff9b:1::1", Class::Private("local NAT64")),
            ("2002:7f00:1::", Class::Private("loopback")),
            ("2002:a00:1::1", Class::Private("private")),
        ];
        for (address, expected) in table {
            assert_eq!(class(address.parse().unwrap()), expected, "{address}");
        }
    }
}
