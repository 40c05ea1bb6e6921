/** What a run's network saw: every destination with name, address, bytes, the line that decided, and denials with a way on. */
import { Button, Group, SegmentedControl, Text, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useInfiniteQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, take, type Schemas } from "../api/client";
import { DataTable, type ColumnDef } from "../ui/DataTable";
import { Empty } from "../ui/Empty";
import { bytes, count, duration } from "../ui/format";
import { Loaded } from "../ui/Loaded";
import { More } from "../ui/More";
import { When } from "../ui/When";
import { Words } from "../ui/Words";
import { useWorkspaceId } from "../ui/workspace";
import { isProposable } from "./propose";
import { ProposeRule } from "./ProposeRule";

type Flow = Schemas["Flow"];
type Outcome = "" | "permitted" | "denied" | "failed";

const AT_ONCE = 200;

export function FlowTable({ run, job, dropped }: { run: string; job: string | null; dropped: number }) {
  const workspace = useWorkspaceId();
  const [outcome, setOutcome] = useState<Outcome>("");
  const [search, setSearch] = useState("");
  const [q] = useDebouncedValue(search.trim(), 250);
  const [proposed, setProposed] = useState<Flow | null>(null);
  const flows = useInfiniteQuery({
    queryKey: ["flows", workspace, run, outcome, q],
    queryFn: ({ pageParam }) => take(api.GET("/api/v1/workspaces/{workspace}/runs/{run}/flows", {
      params: { path: { workspace, run }, query: { after: pageParam, limit: AT_ONCE, ...(outcome === "" ? {} : { outcome }), ...(q === "" ? {} : { q }) } },
    })),
    initialPageParam: 0,
    getNextPageParam: (last) => last.next ?? undefined,
    select: (data) => data.pages.flatMap((page) => page.items),
  });
  const columns: ColumnDef<Flow>[] = [
    { header: "When", cell: ({ row }) => <When at={row.original.at} /> },
    { header: "Destination", cell: ({ row }) => <Target flow={row.original} /> },
    { header: "Outcome", cell: ({ row }) => <Result flow={row.original} /> },
    { header: "Rule", cell: ({ row }) => <Rule flow={row.original} /> },
    { header: "Bytes", cell: ({ row }) => (row.original.outcome === "permitted" ? <Text size="sm" component="div">{bytes(row.original.up)} up, {bytes(row.original.down)} down{row.original.duration_ms === null || row.original.duration_ms === undefined ? "" : `, ${duration(row.original.duration_ms)}`}</Text> : "–") },
    { header: "Actions", cell: ({ row }) => (row.original.outcome === "denied" && isProposable(row.original) ? <Button size="compact-sm" variant="default" onClick={() => setProposed(row.original)}>Propose rule</Button> : null) },
  ];
  return (
    <>
      <Group align="flex-end">
        <SegmentedControl aria-label="Outcome" value={outcome} onChange={(value) => setOutcome(value)}
          data={[{ value: "", label: "All" }, { value: "permitted", label: "Permitted" }, { value: "denied", label: "Denied" }, { value: "failed", label: "Failed" }]} />
        <TextInput type="search" aria-label="Search flows" flex={1} miw={240} maw={360} placeholder="Name, address or reason" maxLength={100} value={search} onChange={(event) => setSearch(event.currentTarget.value)} />
      </Group>
      <Loaded query={flows}>
        {(rows) => rows.length === 0
          ? <Empty title="Nothing">{outcome === "" && q === "" ? "This run has reached for nothing so far." : "Nothing of this kind."}</Empty>
          : <DataTable label="Flows" columns={columns} rows={rows} rowId={(row) => String(row.seq)} />}
      </Loaded>
      {dropped > 0 ? <Text size="sm" c="dimmed">{count(dropped)} further ones are in the gateway&apos;s journal only.</Text> : null}
      <More query={flows} />
      {proposed ? <ProposeRule denied={proposed} job={job} onClose={() => setProposed(null)} /> : null}
    </>
  );
}

/** Name and port, and the address that was dialled or asked for. */
export function Target({ flow }: { flow: Pick<Flow, "name" | "address" | "port" | "protocol" | "upstream" | "http" | "times"> }) {
  const where = flow.name ?? flow.address ?? "unknown";
  const port = flow.port > 0 ? `:${flow.port}` : "";
  const address = flow.upstream ?? (flow.name ? flow.address : null);
  return (
    <>
      <Text size="sm" component="div" className="mono"><Words>{`${where.includes(":") && port !== "" ? `[${where}]` : where}${port}`}</Words>{flow.protocol === "tcp" ? "" : flow.protocol === "udp" && flow.port === 0 ? " look-up" : ` ${flow.protocol}`}{flow.times > 1 ? ` × ${count(flow.times)}` : ""}</Text>
      {address ? <Text size="xs" c="dimmed" component="div"><Words>{address}</Words></Text> : null}
      {flow.http ? <Text size="xs" c="dimmed" component="div"><Words>{flow.http}</Words></Text> : null}
    </>
  );
}

export function Result({ flow }: { flow: Flow }) {
  if (flow.outcome === "permitted") return <Text size="sm" component="div" className="state-good">{flow.is_open ? "open" : "permitted"}{flow.ending && flow.ending !== "finished" ? <Text size="xs" c="dimmed" component="div"><Words>{flow.ending}</Words></Text> : null}</Text>;
  return <Text size="sm" component="div" className="state-bad">{flow.outcome}<Text size="xs" className="mono" c="dimmed" component="div"><Words>{flow.reason ?? ""}</Words></Text></Text>;
}

export function Rule({ flow }: { flow: Flow }) {
  if (!flow.file && !flow.policy) return <>–</>;
  return (
    <>
      <Text size="sm" component="div" className="mono"><Words>{flow.file ? `${flow.file}:${flow.line ?? "?"}` : (flow.policy ?? "")}</Words></Text>
      {flow.commit_id ? <Text size="xs" c="dimmed" component="div" className="mono"><Words>{flow.commit_id.slice(0, 12)}</Words></Text> : null}
    </>
  );
}
