/** What is going on: runs in progress, flows over time, where they go, what was denied and how to permit it. */
import { Button, Grid, Group, SegmentedControl } from "@mantine/core";
import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { api, take, type Schemas } from "../api/client";
import { useEvents } from "../api/events";
import { TimeChart } from "../chart/TimeChart";
import { Part } from "../jobs/JobForm";
import { DestinationName, Outcome } from "../runs/NetworkDiff";
import { isProposable } from "../runs/propose";
import { LiveFlows } from "../runs/LiveFlows";
import { ProposeRule } from "../runs/ProposeRule";
import { Took } from "../runs/RunList";
import { StateBadge } from "../runs/StateBadge";
import { useCalm } from "../ui/calm";
import { ChecklistScore } from "../ui/Checklist";
import { DataTable, type ColumnDef } from "../ui/DataTable";
import { Empty } from "../ui/Empty";
import { FirewallAlert, FirewallLabel } from "../ui/Firewall";
import { bytes, count } from "../ui/format";
import { Loaded } from "../ui/Loaded";
import { Page } from "../ui/Page";
import { When } from "../ui/When";
import { Words } from "../ui/Words";
import { useWorkspaceId } from "../ui/workspace";
import { filled, toDenied } from "../chart/filled";

type Now = Schemas["Now"];
type Destination = Schemas["Destination"];

const SPANS = [{ value: "15", label: "15 min" }, { value: "60", label: "1 h" }, { value: "360", label: "6 h" }, { value: "1440", label: "24 h" }];

export function NowPage() {
  const workspace = useWorkspaceId();
  const queries = useQueryClient();
  const [minutes, setMinutes] = useState("15");
  const now = useQuery({
    queryKey: ["now", workspace, minutes],
    queryFn: () => take(api.GET("/api/v1/workspaces/{workspace}/now", { params: { path: { workspace }, query: { minutes: Number(minutes) } } })),
    refetchInterval: 5_000,
    placeholderData: keepPreviousData,
  });
  const refresh = useCalm(() => void queries.invalidateQueries({ queryKey: ["now", workspace] }), 1000);
  useEvents([`workspace/${workspace}`], refresh);
  return (
    <Page title="Now" about={<Group gap="sm"><FirewallLabel /><ChecklistScore /></Group>} actions={<SegmentedControl aria-label="How far back" value={minutes} onChange={setMinutes} data={SPANS} />}>
      <FirewallAlert />
      <Loaded query={now}>
        {(data) => (
          <>
            <Running now={data} workspace={workspace} />
            <Rates now={data} />
            <Grid>
              <Grid.Col span={{ base: 12, lg: 6 }}><Top now={data} /></Grid.Col>
              <Grid.Col span={{ base: 12, lg: 6 }}><Denials now={data} /></Grid.Col>
            </Grid>
            <Part title="Flows" about="Of all runs, newest first, as they come."><LiveFlows runs={data.running.map((run) => run.id)} /></Part>
          </>
        )}
      </Loaded>
    </Page>
  );
}

function Running({ now, workspace }: { now: Now; workspace: string }) {
  const columns: ColumnDef<Now["running"][number]>[] = [
    { header: "State", cell: ({ row }) => <Link to="/w/$workspace/runs/$run" params={{ workspace, run: row.original.id }} className="link"><StateBadge state={row.original.state} /></Link> },
    { header: "Job", cell: ({ row }) => <Words>{row.original.name}</Words> },
    { header: "Submitted", cell: ({ row }) => <When at={row.original.queued_at} /> },
    { header: "Took", cell: ({ row }) => <Took run={row.original} /> },
    { header: "Network", cell: ({ row }) => `${count(row.original.flows)} flows, ${count(row.original.denied)} denied, ${bytes(row.original.up + row.original.down)}` },
  ];
  return (
    <Part title="Runs in progress" about={now.waiting === 0 ? "" : `${count(now.waiting)} more ${now.waiting === 1 ? "waits" : "wait"}.`}>
      {now.running.length === 0 ? <Empty title="Nothing runs">{now.waiting > 0 ? "Runs wait for a runner." : "Run a job, and it stands here."}</Empty> : <DataTable label="Runs in progress" columns={columns} rows={now.running} rowId={(run) => run.id} />}
    </Part>
  );
}

function Rates({ now }: { now: Now }) {
  const { times, rates } = useMemo(() => filled(now), [now]);
  const sum = (pick: (rate: Now["rates"][number]) => number) => now.rates.reduce((total, rate) => total + pick(rate), 0);
  return (
    <Part title="Flows over time" about={`${count(sum((rate) => rate.permitted))} permitted, ${count(sum((rate) => rate.denied))} denied, ${count(sum((rate) => rate.failed))} failed; ${bytes(sum((rate) => rate.up))} up, ${bytes(sum((rate) => rate.down))} down.`}>
      <TimeChart label="Flows over time" times={times} series={[
        { label: "Permitted", colours: ["#0b7285", "#3bc9db"], values: rates.map((rate) => rate.permitted) },
        { label: "Denied", colours: ["#c92a2a", "#ff8787"], values: rates.map((rate) => rate.denied) },
        { label: "Failed", colours: ["#e67700", "#ffd43b"], values: rates.map((rate) => rate.failed) },
      ]} show={(value) => count(Math.round(value))} />
    </Part>
  );
}

const key = (one: Destination) => `${one.destination} ${one.port} ${one.protocol} ${one.outcome} ${one.reason ?? ""}`;

function Top({ now }: { now: Now }) {
  const columns: ColumnDef<Destination>[] = [
    { header: "Destination", cell: ({ row }) => <DestinationName of={row.original} /> },
    { header: "Outcome", cell: ({ row }) => <Outcome of={row.original} /> },
    { header: "Times", cell: ({ row }) => count(row.original.times) },
    { header: "Bytes", cell: ({ row }) => bytes(row.original.up + row.original.down) },
  ];
  return <Part title="Top destinations">{now.top.length === 0 ? <Empty title="None">No run has reached anything in this time.</Empty> : <DataTable label="Top destinations" columns={columns} rows={now.top} rowId={key} />}</Part>;
}

function Denials({ now }: { now: Now }) {
  const [proposed, setProposed] = useState<Destination | null>(null);
  const columns: ColumnDef<Destination>[] = [
    { header: "Destination", cell: ({ row }) => <DestinationName of={row.original} /> },
    { header: "Reason", cell: ({ row }) => <span className="mono"><Words>{row.original.reason ?? ""}</Words></span> },
    { header: "Times", cell: ({ row }) => count(row.original.times) },
    { header: "Last", cell: ({ row }) => <When at={row.original.last_at} /> },
    { header: "Actions", cell: ({ row }) => (isProposable(toDenied(row.original)) ? <Button size="compact-sm" variant="default" onClick={() => setProposed(row.original)}>Propose rule</Button> : null) },
  ];
  return (
    <Part title="Denied">
      {now.denied.length === 0 ? <Empty title="Nothing was denied">What sandboxes reach for in vain stands here.</Empty> : <DataTable label="Denied" columns={columns} rows={now.denied} rowId={key} />}
      {proposed ? <ProposeRule denied={toDenied(proposed)} job={null} onClose={() => setProposed(null)} /> : null}
    </Part>
  );
}
