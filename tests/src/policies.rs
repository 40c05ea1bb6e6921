//! Policies that many tests use.

/// Two names and everything below the first.
pub const DOMAINS: &str = "\
policy: lab
network: domains
allow:
  - host: ok.sallylab.net
  - host: '*.ok.sallylab.net'
  - host: four.sallylab.net
  - host: six.sallylab.net
";

/// The same names on any port, any protocol.
pub const DOMAINS_ANY: &str = "\
policy: lab-any
network: domains
allow:
  - { host: ok.sallylab.net, ports: any, speaks: any }
  - { host: four.sallylab.net, ports: any, speaks: any }
  - { host: six.sallylab.net, ports: any, speaks: any }
";

/// Every public destination.
pub const INTERNET: &str = "policy: lab-internet\nnetwork: internet\n";

/// Every public and private destination.
pub const INTERNET_PRIVATE: &str =
    "policy: lab-internet-private\nnetwork: internet\nprivate: true\n";

/// Nothing.
pub const NONE: &str = "policy: lab-none\nnetwork: none\n";
