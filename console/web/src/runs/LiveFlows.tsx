/**
 * The newest flows of all runs, as they come. However many come in a second, what is drawn is a bounded number of rows,
 * asked for once a second at most and drawn when the browser has time: what a person types or clicks goes first.
 */
import { Button, Group, SegmentedControl, Stack, Text, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { memo, useDeferredValue, useState } from "react";
import { api, take, type Schemas } from "../api/client";
import { useEvents } from "../api/events";
import { useCalm } from "../ui/calm";
import { DataTable, type ColumnDef } from "../ui/DataTable";
import { Empty } from "../ui/Empty";
import { bytes } from "../ui/format";
import { Loaded } from "../ui/Loaded";
import { When } from "../ui/When";
import { Words } from "../ui/Words";
import { useWorkspaceId } from "../ui/workspace";
import { Result, Rule, Target } from "./FlowTable";
import { isProposable } from "./propose";
import { ProposeRule } from "./ProposeRule";

type Recent = Schemas["RecentFlow"];
type Outcome = "" | "permitted" | "denied" | "failed";

/** Rows that are drawn; who wants to read more than go by asks for older ones. */
const ROWS = 40;
/** Asked so often at most: faster than this nobody reads. */
const EVERY = 1_000;
/** Runs whose flows are told as they come; of others they come with the next look. */
const HEARD = 40;

export function LiveFlows({ runs }: { runs: string[] }) {
  const workspace = useWorkspaceId();
  const [outcome, setOutcome] = useState<Outcome>("");
  const [search, setSearch] = useState("");
  const [paused, setPaused] = useState(false);
  const [older, setOlder] = useState<string[]>([]);
  const [q] = useDebouncedValue(search.trim(), 250);
  const cursor = older.at(-1) ?? "";
  const queries = useQueryClient();
  const live = !paused && cursor === "";
  const key = ["recent-flows", workspace, outcome, q, cursor];
  const flows = useQuery({
    queryKey: key,
    queryFn: () => take(api.GET("/api/v1/workspaces/{workspace}/flows", {
      params: { path: { workspace }, query: { limit: ROWS, ...(cursor === "" ? {} : { cursor }), ...(outcome === "" ? {} : { outcome }), ...(q === "" ? {} : { q }) } },
    })),
    placeholderData: keepPreviousData,
    // what ended meanwhile, and runs that are not listened to
    refetchInterval: live ? 3_000 : false,
  });
  const more = useCalm(() => void queries.invalidateQueries({ queryKey: ["recent-flows", workspace] }, { cancelRefetch: false }), EVERY);
  useEvents(live ? runs.slice(0, HEARD).map((run) => `workspace/${workspace}/run/${run}`) : [], ({ kind }) => {
    if (kind === "flows" || kind === "reset") more();
  });
  const newest = () => {
    setOlder([]);
    setPaused(false);
  };
  return (
    <Stack gap="sm">
      <Group align="flex-end" gap="xs">
        <SegmentedControl aria-label="Outcome" value={outcome} onChange={(value) => { setOutcome(value); setOlder([]); }}
          data={[{ value: "", label: "All" }, { value: "permitted", label: "Permitted" }, { value: "denied", label: "Denied" }, { value: "failed", label: "Failed" }]} />
        <TextInput type="search" aria-label="Search flows" flex={1} miw={240} maw={360} placeholder="Name, address, reason or run" maxLength={100} value={search} onChange={(event) => { setSearch(event.currentTarget.value); setOlder([]); }} />
        {live ? <Button variant="default" onClick={() => setPaused(true)}>Pause</Button> : <Button onClick={newest}>{cursor === "" ? "Go on" : "Newest"}</Button>}
      </Group>
      <Loaded query={flows}>
        {(page) => (
          <>
            {page.items.length === 0
              ? <Empty title="No flows">{outcome === "" && q === "" ? "What sandboxes reach for stands here as it happens." : "Nothing of this kind lately."}</Empty>
              : <Rows rows={page.items} workspace={workspace} />}
            <Group gap="xs">
              {page.next ? <Button variant="default" size="compact-sm" onClick={() => setOlder((before) => [...before, page.next ?? ""])}>Older flows</Button> : null}
              {older.length > 0 ? <Button variant="default" size="compact-sm" onClick={() => setOlder((before) => before.slice(0, -1))}>Newer flows</Button> : null}
              {live ? null : <Text size="sm" c="dimmed" role="status">{cursor === "" ? "Paused: new flows are counted above and not shown here." : "Older flows; new ones are not shown here."}</Text>}
            </Group>
          </>
        )}
      </Loaded>
    </Stack>
  );
}

/** The table, drawn behind everything else. */
function Rows({ rows, workspace }: { rows: Recent[]; workspace: string }) {
  const shown = useDeferredValue(rows);
  const [proposed, setProposed] = useState<Recent | null>(null);
  return (
    <>
      <Table rows={shown} workspace={workspace} onPropose={setProposed} />
      {proposed ? <ProposeRule denied={proposed} job={proposed.job ?? null} onClose={() => setProposed(null)} /> : null}
    </>
  );
}

interface TableProps {
  rows: Recent[];
  workspace: string;
  onPropose: (flow: Recent) => void;
}

const Table = memo(function Table({ rows, workspace, onPropose }: TableProps) {
  const columns: ColumnDef<Recent>[] = [
    { header: "When", cell: ({ row }) => <When at={row.original.at} /> },
    { header: "Run", cell: ({ row }) => <Link to="/w/$workspace/runs/$run" params={{ workspace, run: row.original.run }} preload={false} className="link"><Words most={60}>{row.original.run_name}</Words></Link> },
    { header: "Destination", cell: ({ row }) => <Target flow={row.original} /> },
    { header: "Outcome", cell: ({ row }) => <Result flow={row.original} /> },
    { header: "Rule", cell: ({ row }) => <Rule flow={row.original} /> },
    { header: "Bytes", cell: ({ row }) => (row.original.outcome === "permitted" ? bytes(row.original.up + row.original.down) : "–") },
    { header: "Actions", cell: ({ row }) => (row.original.outcome === "denied" && isProposable(row.original) ? <Button size="compact-sm" variant="default" onClick={() => onPropose(row.original)}>Propose rule</Button> : null) },
  ];
  return <DataTable label="Flows as they come" columns={columns} rows={rows} rowId={(row) => `${row.run} ${row.seq}`} />;
});
