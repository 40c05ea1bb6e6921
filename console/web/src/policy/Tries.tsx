/** A policy tried: the tests that stand in it, and what it would have made of flows that were recorded. */
import { Badge, Button, Group, Select, Stack, Text, Title } from "@mantine/core";
import { keepPreviousData, useMutation, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, take, type Schemas } from "../api/client";
import { DataTable, type ColumnDef } from "../ui/DataTable";
import { Empty } from "../ui/Empty";
import { count } from "../ui/format";
import { Loaded } from "../ui/Loaded";
import { ProblemAlert, sentence } from "../ui/ProblemAlert";
import { When } from "../ui/When";
import { visible } from "../ui/words";
import { Words } from "../ui/Words";
import { useWorkspaceId } from "../ui/workspace";

const TESTS: ColumnDef<Schemas["PolicyTest"]>[] = [
  { header: "Line", cell: ({ row }) => row.original.line },
  { header: "To", cell: ({ row }) => <span className="mono"><Words>{row.original.to}</Words></span> },
  { header: "Expected", cell: ({ row }) => <span className="mono">{row.original.expected}</span> },
  { header: "Result", cell: ({ row }) => <Badge variant="outline" className={`state state-${row.original.passed ? "good" : "bad"}`}>{row.original.passed ? "passes" : "fails"}</Badge> },
  { header: "Because", cell: ({ row }) => (row.original.passed ? null : <Text size="sm" component="div"><span className="mono">{row.original.found}</span>: <Words most={400}>{sentence(row.original.summary)}</Words></Text>) },
];

/** The lines of a policy's own `tests:`; the text has no mistakes. */
export function PolicyTests({ text }: { text: string }) {
  const workspace = useWorkspaceId();
  const tests = useQuery({
    queryKey: ["policy-tests", workspace, text],
    queryFn: () => take(api.POST("/api/v1/workspaces/{workspace}/policies/test", { params: { path: { workspace } }, body: { text } })),
    placeholderData: keepPreviousData,
    staleTime: Infinity,
    gcTime: 60_000,
    retry: false,
  });
  return (
    <Loaded query={tests}>
      {(data) => data.items.length === 0
        ? <Text size="sm" c="dimmed">This policy has none. Lines under <span className="mono">tests:</span> say what must stay as it is, such as <span className="mono">{'{ to: "example.com:443", expect: permit }'}</span>.</Text>
        : (
          <Stack gap="xs">
            <Text size="sm" role="status">{`${count(data.passed)} passed, ${count(data.failed)} failed`}</Text>
            <DataTable label="Tests of the policy" columns={TESTS} rows={data.items} rowId={(row) => `${row.line} ${row.to}`} />
          </Stack>
        )}
    </Loaded>
  );
}

interface ReplayProps {
  text: string;
  jobs: { id: string; name: string }[];
}

/** Recorded flows under this policy. */
export function Replay({ text, jobs }: ReplayProps) {
  const workspace = useWorkspaceId();
  const [job, setJob] = useState("");
  const replay = useMutation({
    mutationFn: () => take(api.POST("/api/v1/workspaces/{workspace}/policies/replay", { params: { path: { workspace } }, body: { text, ...(job === "" ? {} : { job }) } })),
  });
  const { data } = replay;
  return (
    <Stack gap="xs">
      <Group align="flex-end" gap="xs">
        <Select label="Flows of" allowDeselect={false} searchable value={job} onChange={(value) => { setJob(value ?? ""); replay.reset(); }} flex={1} maw={360}
          data={[{ value: "", label: "all jobs" }, ...jobs.map(({ id, name }) => ({ value: id, label: visible(name) }))]} />
        <Button variant="default" loading={replay.isPending} onClick={() => replay.mutate()}>Replay</Button>
      </Group>
      <ProblemAlert error={replay.error} />
      {data ? (
        <Stack gap="sm" role="status" aria-label="Replay">
          {data.flows === 0 ? <Empty title="No flows">Nothing was recorded yet that this policy could decide.</Empty> : (
            <Text size="sm">{count(data.flows)} flows since <When at={data.since} />: {count(data.same)} would be decided as they were, {count(data.not_by_policy)} are no policy&apos;s to decide.</Text>
          )}
          <Groups title="Would be permitted now" rows={data.newly_permitted} workspace={workspace} />
          <Groups title="Would be denied now" rows={data.newly_denied} workspace={workspace} />
          <Groups title="A person would be asked now" rows={data.newly_asked} workspace={workspace} />
          <Groups title="Not known: what decides was not recorded" rows={data.undecided} workspace={workspace} />
        </Stack>
      ) : null}
    </Stack>
  );
}

function Groups({ title, rows, workspace }: { title: string; rows: Schemas["Replayed"][]; workspace: string }) {
  if (rows.length === 0) return null;
  const columns: ColumnDef<Schemas["Replayed"]>[] = [
    { header: "Destination", cell: ({ row: { original: one } }) => <span className="mono"><Words>{`${one.to.includes(":") ? `[${one.to}]` : one.to}${one.port === null || one.port === undefined ? "" : `:${one.port}`}`}</Words>{one.protocol === "tcp" ? "" : ` ${one.protocol}`}</span> },
    { header: "Then", cell: ({ row }) => <span className="mono">{row.original.was}</span> },
    { header: "Now", cell: ({ row }) => <span className="mono">{row.original.is}</span> },
    { header: "Times", cell: ({ row }) => count(row.original.count) },
    { header: "Such as", cell: ({ row }) => (row.original.run ? <Link to="/w/$workspace/runs/$run" params={{ workspace, run: row.original.run }} className="link">a run</Link> : null) },
  ];
  return (
    <div>
      <Title order={3} size="h5">{title}</Title>
      <DataTable label={title} columns={columns} rows={rows} rowId={(row) => `${row.to} ${row.port ?? ""} ${row.protocol} ${row.was} ${row.is}`} />
    </div>
  );
}
