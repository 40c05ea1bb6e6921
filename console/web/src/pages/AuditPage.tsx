/** What people and tokens changed, newest first: of the workspace, or of the whole instance. */
import { Badge, Button, Text } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { api, take, type Schemas } from "../api/client";
import { DataTable, type ColumnDef } from "../ui/DataTable";
import { Empty } from "../ui/Empty";
import { Loaded } from "../ui/Loaded";
import { More } from "../ui/More";
import { Page } from "../ui/Page";
import { saveAs } from "../ui/save";
import { When } from "../ui/When";
import { Words } from "../ui/Words";
import { useWorkspaceId } from "../ui/workspace";

type Entry = Schemas["EntryView"];
type Ask = (bounds: { after?: number; before?: number }) => Promise<{ items: Entry[] }>;

/** Greater than the number of any entry: what comes before it is the newest. */
const END = Number.MAX_SAFE_INTEGER;

export function AuditPage() {
  const workspace = useWorkspaceId();
  const ask: Ask = (query) => take(api.GET("/api/v1/workspaces/{workspace}/audit", { params: { path: { workspace }, query } }));
  return <Log title="Audit" about="What people and tokens changed in this workspace, and what they were refused." name={workspace} ask={ask} />;
}

export function WholeAuditPage() {
  const ask: Ask = (query) => take(api.GET("/api/v1/audit", { params: { query } }));
  return <Log title="Audit of the instance" about="What people and tokens changed anywhere. Each entry holds the hash of the one before; `sallyport audit verify` checks the chain." name="instance" ask={ask} />;
}

function Log({ title, about, name, ask }: { title: string; about: string; name: string; ask: Ask }) {
  const log = useInfiniteQuery({
    queryKey: ["audit", name],
    queryFn: ({ pageParam }) => ask({ before: pageParam }),
    initialPageParam: END,
    getNextPageParam: (last) => {
      const oldest = last.items.at(-1)?.seq;
      return oldest !== undefined && oldest > 1 ? oldest : undefined;
    },
    select: (data) => data.pages.flatMap((page) => page.items),
  });
  return (
    <Page title={title} about={about} actions={<Button variant="default" onClick={() => void save(name, ask)}>Export</Button>}>
      <Loaded query={log}>
        {(entries) => entries.length === 0
          ? <Empty title="Nothing yet">The first change will stand here.</Empty>
          : <DataTable label={title} columns={COLUMNS} rows={entries} rowId={(entry) => String(entry.seq)} />}
      </Loaded>
      <More query={log} label="Show earlier entries" />
    </Page>
  );
}

const COLUMNS: ColumnDef<Entry>[] = [
  { header: "No.", cell: ({ row }) => row.original.seq },
  { header: "When", cell: ({ row }) => <When at={row.original.at} /> },
  { header: "What", cell: ({ row }) => <span className="mono">{row.original.action}</span> },
  { header: "About", cell: ({ row }) => <Words>{row.original.subject === "" ? "–" : row.original.subject}</Words> },
  {
    header: "By",
    cell: ({ row }) => (
      <>
        <Text size="sm" component="div"><Words>{row.original.actor ?? "nobody"}</Words></Text>
        <Text size="xs" c="dimmed" component="div"><Words>{`${row.original.credential.split(" ")[0] ?? ""} from ${row.original.address}`}</Words></Text>
      </>
    ),
  },
  {
    header: "Answer",
    cell: ({ row }) => {
      const { status } = row.original;
      return status < 400
        ? <Badge variant="outline" color="green" className="badge-good">done</Badge>
        : <Badge variant="outline" color="red" className="badge-bad">{`refused (${status})`}</Badge>;
    },
  },
];

/** The whole log as JSON lines, oldest first, as it is kept. */
async function save(name: string, ask: Ask): Promise<void> {
  const lines: string[] = [];
  let after = 0;
  for (;;) {
    const { items } = await ask({ after });
    const last = items.at(-1);
    if (!last) break;
    lines.push(...items.map((entry) => JSON.stringify(entry)));
    after = last.seq;
  }
  saveAs(`audit-${name}.jsonl`, `${lines.join("\n")}\n`);
}
