/** One run: what became of it, what it printed, what it reached, where its time went, what it was allowed. Live while it lasts. */
import { Alert, Anchor, Button, Group, Stack, Tabs, Text } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { useState } from "react";
import { api, take, type Schemas } from "../api/client";
import { useEvents } from "../api/events";
import { OutputView } from "../output/OutputView";
import "../output/output.css";
import { useOutput } from "../output/useOutput";
import { FlowTable } from "../runs/FlowTable";
import { NetworkDiff } from "../runs/NetworkDiff";
import { Phases } from "../runs/Phases";
import { Took } from "../runs/RunList";
import { RunFacts } from "../runs/RunFacts";
import { isLive, StateBadge } from "../runs/StateBadge";
import { Timeline } from "../runs/Timeline";
import { useCalm } from "../ui/calm";
import { Empty } from "../ui/Empty";
import { bytes, count } from "../ui/format";
import { Loaded } from "../ui/Loaded";
import { Page } from "../ui/Page";
import { ProblemAlert, sentence } from "../ui/ProblemAlert";
import { When } from "../ui/When";
import { Words } from "../ui/Words";
import { useWorkspaceId } from "../ui/workspace";

type Detail = Schemas["RunDetail"];
type Run = Schemas["RunView"];

export function RunPage() {
  const workspace = useWorkspaceId();
  const { run: id = "" } = useParams({ strict: false });
  const run = useQuery({ queryKey: ["run", workspace, id], queryFn: () => take(api.GET("/api/v1/workspaces/{workspace}/runs/{run}", { params: { path: { workspace, run: id } } })) });
  return (
    <Page title={run.data ? `Run of ${run.data.run.name}` : "Run"} about={run.data ? <Summary run={run.data.run} /> : ""} actions={run.data ? <Actions run={run.data.run} /> : null}>
      <Loaded query={run}>{(detail) => <Detailed key={detail.run.id} detail={detail} />}</Loaded>
    </Page>
  );
}

function Summary({ run }: { run: Run }) {
  const workspace = useWorkspaceId();
  return (
    <Group gap="sm" mt={4} component="div">
      <StateBadge state={run.state} />
      <Text size="sm" span>submitted <When at={run.queued_at} />, took <Took run={run} /></Text>
      {run.exit_code === null || run.exit_code === undefined ? null : <Text size="sm" span>exit code {run.exit_code}</Text>}
      {run.job ? <Link to="/w/$workspace/jobs/$job" params={{ workspace, job: run.job }} className="link">its job</Link> : null}
    </Group>
  );
}

function Actions({ run }: { run: Run }) {
  const workspace = useWorkspaceId();
  const queries = useQueryClient();
  const navigate = useNavigate();
  const params = { path: { workspace, run: run.id } };
  const cancel = useMutation({
    mutationFn: () => take(api.POST("/api/v1/workspaces/{workspace}/runs/{run}/cancel", { params })),
    onSettled: () => {
      void queries.invalidateQueries({ queryKey: ["runs", workspace] });
      return queries.invalidateQueries({ queryKey: ["run", workspace, run.id] });
    },
  });
  const retry = useMutation({
    mutationFn: () => take(api.POST("/api/v1/workspaces/{workspace}/runs/{run}/retry", { params })),
    onSuccess: (made) => navigate({ to: "/w/$workspace/runs/$run", params: { workspace, run: made.id } }),
  });
  return (
    <Stack gap="xs" align="flex-end">
      {isLive(run.state)
        ? <Button color="red" variant="default" loading={cancel.isPending} disabled={run.cancelled_at !== null && run.cancelled_at !== undefined} onClick={() => cancel.mutate()}>{run.cancelled_at ? "Ending…" : "Cancel"}</Button>
        : <Button loading={retry.isPending} onClick={() => retry.mutate()}>Run again</Button>}
      <ProblemAlert error={cancel.error ?? retry.error} />
    </Stack>
  );
}

function Detailed({ detail }: { detail: Detail }) {
  const { run } = detail;
  const workspace = useWorkspaceId();
  const queries = useQueryClient();
  const { output, more } = useOutput(workspace, run.id);
  const [tab, setTab] = useState<string | null>("output");
  const refreshRun = useCalm(() => void queries.invalidateQueries({ queryKey: ["run", workspace, run.id] }), 500);
  const refreshFlows = useCalm(() => {
    void queries.invalidateQueries({ queryKey: ["flows", workspace, run.id] });
    void queries.invalidateQueries({ queryKey: ["diff", workspace, run.id] });
    refreshRun();
  }, 1500);
  const refreshSteps = useCalm(() => void queries.invalidateQueries({ queryKey: ["steps", workspace, run.id] }), 500);
  const refreshOutput = useCalm(more, 250);
  useEvents([`workspace/${workspace}/run/${run.id}`], ({ kind }) => {
    const all = kind === "reset";
    if (all || kind === "output") refreshOutput();
    if (all || kind === "flows") refreshFlows();
    if (all || kind === "steps") refreshSteps();
    if (all || kind === "state") {
      refreshRun();
      refreshOutput();
    }
  });
  return (
    <>
      {run.message ? <Alert color={run.state === "succeeded" ? "gray" : "red"} title={run.reason ? run.reason.replaceAll("_", " ") : "What happened"}><Words most={1000}>{sentence(run.message)}</Words></Alert> : null}
      <Phases run={run} />
      <Tabs value={tab} onChange={setTab} keepMounted={false}>
        <Tabs.List>
          <Tabs.Tab value="output">Output</Tabs.Tab>
          <Tabs.Tab value="network">{`Network (${count(run.flows)}${run.denied > 0 ? `, ${count(run.denied)} denied` : ""})`}</Tabs.Tab>
          <Tabs.Tab value="diff">Since the run before</Tabs.Tab>
          <Tabs.Tab value="timeline">Timeline</Tabs.Tab>
          <Tabs.Tab value="facts">What ran</Tabs.Tab>
        </Tabs.List>
        <Tabs.Panel value="output" pt="md"><OutputPanel run={run} output={output} /></Tabs.Panel>
        <Tabs.Panel value="network" pt="md"><Stack><FlowTable run={run.id} job={run.job ?? null} dropped={run.flows_dropped} /></Stack></Tabs.Panel>
        <Tabs.Panel value="diff" pt="md"><NetworkDiff run={run.id} /></Tabs.Panel>
        <Tabs.Panel value="timeline" pt="md"><Timeline run={run.id} /></Tabs.Panel>
        <Tabs.Panel value="facts" pt="md"><RunFacts detail={detail} /></Tabs.Panel>
      </Tabs>
    </>
  );
}

function OutputPanel({ run, output }: { run: Run; output: ReturnType<typeof useOutput>["output"] }) {
  const workspace = useWorkspaceId();
  const live = isLive(run.state);
  if (output.error) return <ProblemAlert error={output.error} />;
  if (output.rows.length === 0) {
    if (!output.complete) return <Text size="sm" role="status">Loading…</Text>;
    return <Empty title="No output">{live ? "It has printed nothing so far." : "It printed nothing."}</Empty>;
  }
  return (
    <Stack gap="xs">
      <Group justify="space-between">
        <Text size="sm">{bytes(output.total)}{output.complete ? "" : ", loading…"}</Text>
        <Anchor size="sm" underline="always" href={`/api/v1/workspaces/${workspace}/runs/${run.id}/output/raw`} download={`run-${run.id}.log`}>Save as a file</Anchor>
      </Group>
      {output.truncated ? <Text size="sm" c="dimmed">It printed more than is kept of a run; the rest is gone. Have it write to files, or less.</Text> : null}
      <OutputView rows={output.rows} dropped={output.dropped} live={live} />
    </Stack>
  );
}
