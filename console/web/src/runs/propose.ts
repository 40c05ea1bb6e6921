/** A rule that would permit what was denied, as text to look at. Whether it should be permitted is a person's to say. */

import type { Schemas } from "../api/client";

export interface Denied {
  name?: string | null;
  address?: string | null;
  port: number;
  protocol: string;
  reason?: string | null;
}

/** Reasons that a rule of a policy can change. What no policy opens is not among them. */
const CHANGED_BY_A_RULE = ["network_none", "name_not_allowed", "address_not_allowed", "port_not_allowed", "protocol_not_allowed"];

/** Whether a rule would help at all. */
export function isProposable(denied: Denied): boolean {
  return CHANGED_BY_A_RULE.includes(denied.reason ?? "") && (quoted(denied.name) !== null || address(denied) !== null);
}

/** The rule, as lines of a policy. */
export function proposal(denied: Denied): string {
  const name = quoted(denied.name);
  const to = name === null ? `cidr: ${address(denied) ?? ""}` : `host: ${name}`;
  const lines = ["allow:", `  - ${to}`];
  // a look-up has no port; the ports of the web are meant where none is named
  if (denied.port > 0 && !(name !== null && denied.protocol === "tcp" && [80, 443].includes(denied.port))) lines.push(`    ports: [${denied.port}]`);
  if (denied.protocol === "udp" && denied.port > 0) lines.push("    protocol: udp");
  if (denied.protocol === "icmp") lines.push("    protocol: icmp");
  return `${lines.join("\n")}\n`;
}

/**
 * A policy's text with the rule as the first entry of its `allow` list, everything else as it stands; nothing where the
 * list is written in a way that is a person's to edit. Whether the result is a policy is the console's to say.
 */
export function withRule(policy: string, denied: Denied): string | null {
  const [, ...entry] = proposal(denied).trimEnd().split("\n");
  const lines = policy.trimEnd().split(/\r?\n/);
  const heads = lines.flatMap((line, index) => (/^["']?allow["']?\s*:/.test(line) ? [index] : []));
  const [at] = heads;
  if (at === undefined) return `${[...lines, "allow:", ...entry].join("\n")}\n`;
  if (heads.length > 1 || !/^allow:\s*(#.*)?$/.test(lines[at] ?? "")) return null;
  const next = lines.slice(at + 1).find((line) => line.trim() !== "" && !line.trim().startsWith("#")) ?? "";
  // a list may stand below its key with or without indentation, the same for all of its entries
  const indent = /^( *)- /.exec(next)?.[1];
  if (indent === undefined) return null;
  const made = entry.map((line) => `${indent}${line.slice(2)}`);
  return `${[...lines.slice(0, at + 1), ...made, ...lines.slice(at + 1)].join("\n")}\n`;
}

/** The job's network with what was denied; nothing where a person must write it, such as what a list of domains cannot say. */
export function opened(network: Schemas["NetworkSpec"] | null | undefined, denied: Denied): Schemas["NetworkSpec"] | null {
  if (typeof network?.policy === "string") {
    const policy = withRule(network.policy, denied);
    return policy === null ? null : { ...network, policy };
  }
  const name = quoted(denied.name);
  if (network?.mode !== "domains" || network.policy_name || name === null || !isOfTheWeb(denied)) return null;
  return { ...network, domains: [...(network.domains ?? []), name] };
}

/** Whether a domain in a list permits it: looking its name up, and TCP to the ports of the web. */
function isOfTheWeb({ protocol, port }: Denied): boolean {
  return protocol !== "icmp" && (port === 0 || (protocol === "tcp" && [80, 443].includes(port)));
}

/** A name that may stand in a policy as it is; a sandbox can ask for any. */
function quoted(name: string | null | undefined): string | null {
  return name !== null && name !== undefined && /^(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]*[a-z0-9])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9])?)*$/i.test(name) ? name.toLowerCase() : null;
}

function address(denied: Denied): string | null {
  const text = denied.address ?? "";
  if (/^\d{1,3}(\.\d{1,3}){3}$/.test(text)) return `${text}/32`;
  return /^[0-9a-f:]+$/i.test(text) && text.includes(":") ? `${text}/128` : null;
}
