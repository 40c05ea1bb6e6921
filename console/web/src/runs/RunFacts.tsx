/** What ran and under what: frozen when it was submitted, whatever has become of its job since. */
import { Code, Stack, Table } from "@mantine/core";
import type { ReactNode } from "react";
import type { Schemas } from "../api/client";
import { PolicyEditor } from "../policy/PolicyEditor";
import { duration } from "../ui/format";
import { visibleLines } from "../ui/words";
import { Words } from "../ui/Words";

export function RunFacts({ detail }: { detail: Schemas["RunDetail"] }) {
  const { spec, facts, run } = detail;
  const limits = spec.limits ?? {};
  const rows: [string, ReactNode][] = [
    ["Command", <Code key="command" block className="wrap">{visibleLines((spec.command ?? []).join("\n")) || "what the image runs"}</Code>],
    ["Image", <Words key="image">{spec.image ?? "the runner's own"}</Words>],
    ["User", spec.root ? "root" : "agent"],
    ["Isolation", <Words key="isolation">{spec.isolation ?? "as the runner is set"}</Words>],
    ["Timeout", limits.timeout_seconds ? duration(limits.timeout_seconds * 1000) : "the runner's own"],
    ["Memory", limits.memory_mib ? `${limits.memory_mib} MiB` : "the runner's own"],
    ["CPUs", limits.cpu_millis ? String(limits.cpu_millis / 1000) : "the runner's own"],
    ["Processes", limits.pids ? String(limits.pids) : "the runner's own"],
    ["Secrets", <Words key="secrets">{(spec.secrets ?? []).join(", ") || "none"}</Words>],
    ["Network", `${spec.network?.mode ?? "none"}${spec.network?.allow_private ? ", with private networks" : ""}`],
    ["Domains", <Words key="domains" most={2000}>{(spec.network?.domains ?? []).join(", ") || "–"}</Words>],
    ["Runner", <Words key="runner">{run.runner ?? "–"}</Words>],
    ...Object.entries((facts ?? {}) as Record<string, unknown>).map(([key, value]): [string, ReactNode] =>
      [key.replaceAll("_", " "), <Words key={key} most={600}>{typeof value === "string" ? value : JSON.stringify(value)}</Words>]),
  ];
  return (
    <Stack>
      <Table variant="vertical" layout="fixed" aria-label="What ran">
        <Table.Tbody>
          {rows.map(([label, value]) => (
            <Table.Tr key={label}>
              <Table.Th scope="row" w={140}>{label}</Table.Th>
              <Table.Td>{value}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
      {spec.network?.policy ? <PolicyEditor label="The policy that it ran under" text={spec.network.policy} /> : null}
    </Stack>
  );
}
