/** What a sandbox asked for becomes a rule only if it can be nothing else. */
import { expect, test } from "vitest";
import { isProposable, opened, proposal, withRule } from "./propose";

test("names and addresses become rules, with ports where the web's are not meant", () => {
  expect(proposal({ name: "Example.org", port: 443, protocol: "tcp", reason: "name_not_allowed" })).toBe("allow:\n  - host: example.org\n");
  expect(proposal({ name: "example.org", port: 0, protocol: "udp", reason: "name_not_allowed" })).toBe("allow:\n  - host: example.org\n");
  expect(proposal({ name: "db.example.org", port: 5432, protocol: "tcp" })).toBe("allow:\n  - host: db.example.org\n    ports: [5432]\n");
  expect(proposal({ address: "192.0.2.1", port: 53, protocol: "udp" })).toBe("allow:\n  - cidr: 192.0.2.1/32\n    ports: [53]\n    protocol: udp\n");
  expect(proposal({ address: "2001:db8::1", port: 22, protocol: "tcp" })).toBe("allow:\n  - cidr: 2001:db8::1/128\n    ports: [22]\n");
});

test("nothing is proposed that no rule opens, or that would be more than a name", () => {
  expect(isProposable({ name: "example.org", port: 443, protocol: "tcp", reason: "name_not_allowed" })).toBe(true);
  expect(isProposable({ address: "169.254.169.254", port: 80, protocol: "tcp", reason: "address_metadata" })).toBe(false);
  for (const name of ["*", "a\nallow:\n  - host: evil", "a: b", "x\u202e.example", "", "a..b", "-a.example"]) {
    expect(isProposable({ name, port: 443, protocol: "tcp", reason: "name_not_allowed" }), name).toBe(false);
  }
});

test("a rule goes into a policy's list as its neighbours stand there, and nowhere that it could mean something else", () => {
  const denied = { name: "db.example.org", port: 5432, protocol: "tcp", reason: "name_not_allowed" };
  expect(withRule("policy: p\nallow:\n  # why\n  - host: a.example\ndeny:\n  - host: b.example\n", denied))
    .toBe("policy: p\nallow:\n  - host: db.example.org\n    ports: [5432]\n  # why\n  - host: a.example\ndeny:\n  - host: b.example\n");
  expect(withRule("allow:   # names\n- host: a.example\npolicy: p", denied)).toBe("allow:   # names\n- host: db.example.org\n  ports: [5432]\n- host: a.example\npolicy: p\n");
  expect(withRule("policy: p\nnetwork: domains\n", denied)).toBe("policy: p\nnetwork: domains\nallow:\n  - host: db.example.org\n    ports: [5432]\n");
  for (const text of ["allow: []\n", "allow: [{ host: a.example }]\n", "'allow':\n  - host: a\n", "allow:\n  - host: a\nallow:\n  - host: b\n", "allow:\n", "allow: &x\n  - host: a\n", "allow:\n  host: a\n"]) {
    expect(withRule(text, denied), text).toBe(null);
  }
});

test("a ping is permitted as a ping", () => {
  const ping = { name: "example.org", port: 0, protocol: "icmp", reason: "protocol_not_allowed" };
  expect(proposal(ping)).toBe("allow:\n  - host: example.org\n    protocol: icmp\n");
  expect(proposal({ address: "192.0.2.1", port: 0, protocol: "icmp" })).toBe("allow:\n  - cidr: 192.0.2.1/32\n    protocol: icmp\n");
  const network = { mode: "domains" as const, allow_private: false, domains: [], policy: "policy: p\nnetwork: domains\n" };
  expect(opened(network, ping)?.policy).toBe("policy: p\nnetwork: domains\nallow:\n  - host: example.org\n    protocol: icmp\n");
});

test("a list of domains gets a name only where that permits what was denied", () => {
  const network = { mode: "domains" as const, allow_private: false, domains: ["a.example"] };
  const after = (protocol: string, port: number) => opened(network, { name: "Example.org", protocol, port })?.domains ?? null;
  for (const [protocol, port] of [["tcp", 80], ["tcp", 443], ["udp", 0]] as const) {
    expect(after(protocol, port), `${protocol} ${port}`).toEqual(["a.example", "example.org"]);
  }
  for (const [protocol, port] of [["tcp", 5432], ["udp", 443], ["udp", 53], ["icmp", 0]] as const) {
    expect(after(protocol, port), `${protocol} ${port}`).toBe(null);
  }
  expect(opened({ ...network, policy_name: "p" }, { name: "example.org", protocol: "tcp", port: 443 })).toBe(null);
});
