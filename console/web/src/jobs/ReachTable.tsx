/** What a network setting reaches, from the job's point of view, computed by the console's policy engine as it is edited. */
import { Badge, Stack, Text, Title } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { api, take, type Schemas } from "../api/client";
import { DataTable, type ColumnDef } from "../ui/DataTable";
import { Loaded } from "../ui/Loaded";
import { Words } from "../ui/Words";
import { useWorkspaceId } from "../ui/workspace";

type Reached = Schemas["Reached"];

const COLUMNS: ColumnDef<Reached>[] = [
  { header: "What", cell: ({ row }) => row.original.what },
  { header: "Such as", cell: ({ row }) => <span className="mono"><Words>{row.original.destination}</Words></span> },
  { header: "Reached", cell: ({ row }) => <Decision word={row.original.decision} /> },
  { header: "Because", cell: ({ row }) => <Text size="sm" component="div"><Words>{row.original.summary}</Words>{row.original.rule ? <Text size="xs" c="dimmed" component="div"><Words>{row.original.rule}</Words></Text> : null}</Text> },
];

export function Decision({ word }: { word: string }) {
  if (word === "permit" || word === "permitted") return <Badge variant="outline" className="state state-good">yes</Badge>;
  if (word === "ask") return <Badge variant="outline" className="state state-live">asks</Badge>;
  return <Badge variant="outline" className="state state-bad">no</Badge>;
}

export function ReachTable({ network }: { network: Schemas["NetworkSpec"] }) {
  const workspace = useWorkspaceId();
  const [asked] = useDebouncedValue(network, 400);
  const reach = useQuery({
    queryKey: ["reach", workspace, asked],
    queryFn: () => take(api.POST("/api/v1/workspaces/{workspace}/jobs/reach", { params: { path: { workspace } }, body: { network: asked } })),
    placeholderData: keepPreviousData,
    retry: false,
  });
  return (
    <Stack gap={4}>
      <Title order={3} size="h5">What it reaches</Title>
      <Loaded query={reach}>
        {(table) => table.rows
          ? <DataTable label="What it reaches" columns={COLUMNS} rows={table.rows} rowId={(row) => `${row.what} ${row.destination}`} />
          : <Text size="sm">Only the gateway reads this policy; it decides when a run begins.</Text>}
      </Loaded>
    </Stack>
  );
}
