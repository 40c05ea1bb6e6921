/** The workspace's jobs: what each is for, when it runs next, and a way to run it now. */
import { Group, Text, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, take, type Schemas } from "../api/client";
import { RunNow } from "../jobs/RunNow";
import { DataTable, type ColumnDef } from "../ui/DataTable";
import { Empty } from "../ui/Empty";
import { LinkButton } from "../ui/LinkButton";
import { Loaded } from "../ui/Loaded";
import { More } from "../ui/More";
import { Page } from "../ui/Page";
import { PAGE, usePages } from "../ui/pages";
import { When } from "../ui/When";
import { Words } from "../ui/Words";
import { useWorkspaceId } from "../ui/workspace";

type Job = Schemas["JobView"];

const NETWORKS: Record<string, string> = { internet: "Internet access", domains: "Allowed domains only", none: "No network" };

export function JobsPage() {
  const workspace = useWorkspaceId();
  const [search, setSearch] = useState("");
  const [q] = useDebouncedValue(search.trim(), 250);
  const jobs = usePages<Job>(["jobs", workspace, q], (cursor) =>
    take(api.GET("/api/v1/workspaces/{workspace}/jobs", { params: { path: { workspace }, query: { cursor, limit: PAGE, ...(q === "" ? {} : { q }) } } })));
  const columns: ColumnDef<Job>[] = [
    {
      header: "Name",
      cell: ({ row }) => (
        <>
          <Link to="/w/$workspace/jobs/$job" params={{ workspace, job: row.original.id }} className="link"><Words>{row.original.name}</Words></Link>
          {row.original.spec.description ? <Text size="xs" c="dimmed" lineClamp={1}><Words most={120}>{row.original.spec.description}</Words></Text> : null}
        </>
      ),
    },
    { header: "Network", cell: ({ row }) => NETWORKS[row.original.spec.network?.mode ?? "none"] },
    {
      header: "Next run",
      cell: ({ row }) => {
        if (!row.original.enabled) return "switched off";
        return row.original.next_at ? <When at={row.original.next_at} /> : "when asked";
      },
    },
    { header: "Changed", cell: ({ row }) => <When at={row.original.updated_at} /> },
    { header: "Actions", cell: ({ row }) => (row.original.enabled ? <RunNow job={row.original} compact /> : null) },
  ];
  return (
    <Page title="Jobs" about="What runs in sandboxes, on what network, and when." actions={<LinkButton to="/w/$workspace/jobs/new" params={{ workspace }}>Make a job</LinkButton>}>
      <Group>
        <TextInput type="search" label="Search" placeholder="Name" maxLength={200} value={search} onChange={(event) => setSearch(event.currentTarget.value)} w={320} maw="100%" />
      </Group>
      <Loaded query={jobs}>
        {(rows) => {
          if (rows.length > 0) return <DataTable label="Jobs" columns={columns} rows={rows} rowId={(row) => row.id} />;
          return q === ""
            ? <Empty title="No jobs yet">A job is a command, what it may reach and what it may use. Make one, and run it when you like, on a schedule or by a webhook.</Empty>
            : <Empty title="No job is called so">Search by a part of its name.</Empty>;
        }}
      </Loaded>
      <More query={jobs} />
    </Page>
  );
}
