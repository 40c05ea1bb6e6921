/** What was sent to somebody, newest first, and the button that sends a test. */
import { Badge, Button, Group, Stack } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { api, take, type Schemas } from "../api/client";
import { DataTable, type ColumnDef } from "../ui/DataTable";
import { Dialog } from "../ui/Dialog";
import { Empty } from "../ui/Empty";
import { Loaded } from "../ui/Loaded";
import { More } from "../ui/More";
import { PAGE, usePages } from "../ui/pages";
import { ProblemAlert } from "../ui/ProblemAlert";
import { When } from "../ui/When";
import { Words } from "../ui/Words";
import { visible } from "../ui/words";
import { useWorkspaceId } from "../ui/workspace";
import { topicName } from "./topics";

type Delivery = Schemas["DeliveryView"];

const TONES = new Map([["done", "state-good"], ["failed", "state-bad"]]);

const COLUMNS: ColumnDef<Delivery>[] = [
  { header: "Since", cell: ({ row }) => <When at={row.original.created_at} /> },
  { header: "About", cell: ({ row }) => topicName(row.original.topic) },
  { header: "State", cell: ({ row }) => <Badge variant="outline" className={`state ${TONES.get(row.original.state) ?? "state-plain"}`}>{row.original.state}</Badge> },
  { header: "Attempts", cell: ({ row }) => row.original.attempts },
  { header: "Last answer", cell: ({ row }) => <Words most={200}>{row.original.outcome === "" ? "–" : row.original.outcome}</Words> },
];

export function Deliveries({ to, onClose }: { to: Schemas["NotificationView"]; onClose: () => void }) {
  const workspace = useWorkspaceId();
  const queries = useQueryClient();
  const path = { workspace, notification: to.id };
  const key = ["deliveries", workspace, to.id];
  const deliveries = usePages<Delivery>(key, (cursor) =>
    take(api.GET("/api/v1/workspaces/{workspace}/notifications/{notification}/deliveries", { params: { path, query: { cursor, limit: PAGE } } })), { refetchInterval: 3_000 });
  const test = useMutation({
    mutationFn: () => take(api.POST("/api/v1/workspaces/{workspace}/notifications/{notification}/test", { params: { path } })),
    onSuccess: () => queries.invalidateQueries({ queryKey: key }),
  });
  return (
    <Dialog title={`Deliveries to ${visible(to.name)}`} onClose={onClose} wide>
      <Stack>
        <Loaded query={deliveries}>
          {(rows) => rows.length === 0
            ? <Empty title="Nothing was sent yet">A test says whether it arrives.</Empty>
            : <DataTable label="Deliveries" columns={COLUMNS} rows={rows} rowId={(row) => row.id} />}
        </Loaded>
        <More query={deliveries} />
        <ProblemAlert error={test.error} />
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose}>Close</Button>
          <Button loading={test.isPending} onClick={() => test.mutate()}>Send a test</Button>
        </Group>
      </Stack>
    </Dialog>
  );
}
