/** Runs, newest first, told of what changes as it happens. */
import { Text } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api, take, type Schemas } from "../api/client";
import { useEvents } from "../api/events";
import { useCalm } from "../ui/calm";
import { DataTable } from "../ui/DataTable";
import { Empty } from "../ui/Empty";
import { bytes, count, duration } from "../ui/format";
import { Loaded } from "../ui/Loaded";
import { More } from "../ui/More";
import { PAGE, usePages } from "../ui/pages";
import { useNow, When } from "../ui/When";
import { Words } from "../ui/Words";
import { useWorkspaceId } from "../ui/workspace";
import { isLive, StateBadge } from "./StateBadge";

export type Run = Schemas["RunView"];

const CAUSES: Record<string, string> = { person: "by hand", token: "by the API", schedule: "by schedule", webhook: "by webhook", retry: "another attempt" };

interface Props {
  filter: { state?: string; job?: string };
  /** Only the last few, without the job's name. */
  short?: boolean;
}

export function RunList({ filter, short = false }: Props) {
  const workspace = useWorkspaceId();
  const queries = useQueryClient();
  const runs = usePages<Run>(["runs", workspace, filter, short], (cursor) =>
    take(api.GET("/api/v1/workspaces/{workspace}/runs", { params: { path: { workspace }, query: { ...filter, cursor, limit: short ? 5 : PAGE } } })));
  const refresh = useCalm(() => void queries.invalidateQueries({ queryKey: ["runs", workspace] }), 1000);
  useEvents([`workspace/${workspace}`], (happening) => {
    if (happening.kind === "run" || happening.kind === "reset") refresh();
  });
  const columns = short ? COLUMNS.filter((column) => column.header !== "Job") : COLUMNS;
  return (
    <>
      <Loaded query={runs}>
        {(rows) => rows.length === 0
          ? <Empty title="No runs">{filter.state ? "None is in this state." : "What a job does when it runs stands here: output, every destination, every denial."}</Empty>
          : <DataTable label="Runs" columns={columns.map(({ header, cell }) => ({ header, cell: ({ row }: { row: { original: Run } }) => cell(row.original, workspace) }))} rows={rows} rowId={(row) => row.id} />}
      </Loaded>
      {short ? null : <More query={runs} />}
    </>
  );
}

const COLUMNS: { header: string; cell: (run: Run, workspace: string) => React.ReactNode }[] = [
  { header: "State", cell: (run, workspace) => <Link to="/w/$workspace/runs/$run" params={{ workspace, run: run.id }} className="link"><StateBadge state={run.state} /></Link> },
  { header: "Job", cell: (run) => <Words>{run.name}</Words> },
  {
    header: "Why",
    cell: (run) => (
      <>
        <Text size="sm" component="div">{CAUSES[run.cause] ?? run.cause}{run.attempt > 1 ? `, attempt ${run.attempt}` : ""}</Text>
        {run.message ? <Text size="xs" c="dimmed" lineClamp={2} component="div"><Words most={200}>{run.message}</Words></Text> : null}
      </>
    ),
  },
  { header: "Submitted", cell: (run) => <When at={run.queued_at} /> },
  { header: "Took", cell: (run) => <Took run={run} /> },
  { header: "Network", cell: (run) => <Text size="sm" component="div">{count(run.flows)} flows, {run.denied > 0 ? <strong>{count(run.denied)} denied</strong> : "none denied"}, {bytes(run.up + run.down)}</Text> },
];

/** How long its command ran, or has been running. */
export function Took({ run }: { run: Run }) {
  const now = useNow();
  if (run.started_at === null || run.started_at === undefined) return <>{isLive(run.state) ? "–" : "did not start"}</>;
  return <>{duration(Math.max(0, (run.ended_at ?? now) - run.started_at))}</>;
}
