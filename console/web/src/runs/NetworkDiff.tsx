/** How this run's network differs from that of the run before: new destinations first, they are what to look at. */
import { Badge, Group, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api, take, type Schemas } from "../api/client";
import { DataTable, type ColumnDef } from "../ui/DataTable";
import { Empty } from "../ui/Empty";
import { bytes, count } from "../ui/format";
import { Loaded } from "../ui/Loaded";
import { Words } from "../ui/Words";
import { useWorkspaceId } from "../ui/workspace";

type Destination = Schemas["Destination"];
interface Change {
  what: "new" | "gone" | "changed";
  destination: Destination;
  was: Destination | null;
}

export function NetworkDiff({ run }: { run: string }) {
  const workspace = useWorkspaceId();
  const diff = useQuery({ queryKey: ["diff", workspace, run], queryFn: () => take(api.GET("/api/v1/workspaces/{workspace}/runs/{run}/diff", { params: { path: { workspace, run } } })) });
  return (
    <Loaded query={diff}>
      {(data) => {
        if (!data.against) return <Empty title="Nothing to compare with">This is the first run of its job, or it is of none.</Empty>;
        const changes: Change[] = [
          ...data.added.map((destination): Change => ({ what: "new", destination, was: null })),
          ...data.changed.map((one): Change => ({ what: "changed", destination: one.is, was: one.was })),
          ...data.gone.map((destination): Change => ({ what: "gone", destination, was: null })),
        ];
        return (
          <Stack gap="xs">
            <Text size="sm">Compared with <Link to="/w/$workspace/runs/$run" params={{ workspace, run: data.against }} className="link">the run before</Link>.</Text>
            {changes.length === 0
              ? <Empty title="No difference">It reached for the same destinations, and the same became of it.</Empty>
              : <DataTable label="Differences" columns={COLUMNS} rows={changes} rowId={(change) => `${change.what} ${key(change.destination)}`} />}
          </Stack>
        );
      }}
    </Loaded>
  );
}

function key(one: Destination): string {
  return `${one.destination} ${one.port} ${one.protocol} ${one.outcome}`;
}

const TONES = { new: "state-bad", changed: "state-live", gone: "state-plain" };
const COLUMNS: ColumnDef<Change>[] = [
  { header: "What", cell: ({ row }) => <Badge variant="outline" className={`state ${TONES[row.original.what]}`}>{row.original.what}</Badge> },
  { header: "Destination", cell: ({ row }) => <DestinationName of={row.original.destination} /> },
  { header: "Outcome", cell: ({ row }) => <Group gap={4}>{row.original.was ? <><Outcome of={row.original.was} /> → </> : null}<Outcome of={row.original.destination} /></Group> },
  { header: "Times", cell: ({ row }) => count(row.original.destination.times) },
  { header: "Bytes", cell: ({ row }) => bytes(row.original.destination.up + row.original.destination.down) },
];

export function DestinationName({ of }: { of: Destination }) {
  const { destination, port, protocol } = of;
  const host = destination.includes(":") && port > 0 ? `[${destination}]` : destination;
  return <span className="mono"><Words>{`${host}${port > 0 ? `:${port}` : ""}`}</Words>{protocol === "tcp" ? "" : port === 0 && protocol === "udp" ? " look-up" : ` ${protocol}`}</span>;
}

export function Outcome({ of }: { of: Destination }) {
  return <Text size="sm" span className={of.outcome === "permitted" ? "state-good" : "state-bad"}><Words>{of.reason ? `${of.outcome}: ${of.reason}` : of.outcome}</Words></Text>;
}
